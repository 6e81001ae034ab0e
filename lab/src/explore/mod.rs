//! The crash explorer: tests whether every state that a power cut may leave of a workload recovers.
//!
//! A workload is a script of file operations. The writes and flushes that reach the device are recorded, with the state
//! of a model at each operation boundary. Then power is cut after every event: flushed writes have arrived, and each
//! later write has arrived, is lost or torn. Every such state must recover to an operation boundary, no older than the
//! last acknowledged one and no younger than the cut. The checker must find nothing, and a power cut during the
//! recovery must change nothing.
//!
//! A script may have its own power cuts, after which it continues: their remains must do no harm later. A failure
//! without any cut counts, too.
//!
//! Nothing depends on time, threads or chance: the same options give the same result.

mod compare;
pub mod devices;
mod judge;
mod memo;
mod model;
mod moments;
mod pen;
mod random;
mod run;
mod script;
mod search;
mod shrink;
mod story;
mod sweep;
mod timeline;
mod watch;
mod workloads;

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use search::{Found, Plan, search};
use shrink::shrink;

pub use model::Model;
pub use moments::Remembered;
pub use random::Random;
pub use run::{Boundary, Run, Setup, Taken, perform};
pub use script::{Fill, Path, ScriptError, Step, parse, print};
pub use search::{State, Tally};
pub use shrink::Failure;
pub use story::{Mishap, Story};
pub use sweep::{Broken, Sweep};
pub use timeline::Cut;
pub use workloads::{Workload, random_steps};

/// How often each rule was exercised, by its name.
pub type Rules = BTreeMap<&'static str, u64>;

/// 4,000: the most distinct states of one story.
const STATES_A_STORY: u64 = 4000;

/// A bug to be put into the explored volumes, to verify that it is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flaw {
    /// No bug.
    #[default]
    None,
    /// A superblock is written without a flush of the blocks that it refers to.
    SuperblockUnfenced,
    /// A sync returns before its log group is durable.
    SyncUnflushed,
}

/// Options of an exploration.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The most distinct states of each workload.
    pub states: u64,
    /// Continue with other seeds until all workloads together have this number of distinct states.
    pub at_least: u64,
    /// The seed of the workloads' steps and of all random choices.
    pub seed: u64,
    /// The bug to put in.
    pub flaw: Flaw,
    /// Reuse the verdict of a state that is equal in every block that was read.
    pub shortcuts: bool,
    /// Shrink a failure to the steps that it needs.
    pub shrinks: bool,
    /// Number of threads.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Options {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let flaw = Flaw::None;
        Options {
            states: 2000,
            at_least: 0,
            seed: 1,
            flaw,
            shortcuts: true,
            shrinks: true,
            threads,
        }
    }
}

/// The result of an exploration.
pub struct Exploration {
    /// The counts of each workload.
    pub tallies: Vec<(&'static str, Tally)>,
    /// Number of distinct disks over all workloads.
    pub distinct: u64,
    /// The first failure, shrunk.
    pub failure: Option<Failure>,
}

/// A job of an exploration: a story, and the number of states to explore.
#[derive(Clone, Copy)]
struct Job {
    workload: usize,
    seed: u64,
    states: u64,
}

/// The result of a job.
struct Done {
    tally: Tally,
    /// The digests of the explored disks.
    digests: Vec<u128>,
    failed: Option<Failed>,
}

/// How a story failed.
enum Failed {
    /// During recording.
    Mishap(Vec<Step>, Mishap),
    /// In a state.
    State(Box<Story>, Found),
}

/// Explores workloads.
pub fn explore(workloads: &[Workload], options: Options) -> Exploration {
    let mut exploration = Exploration {
        tallies: workloads.iter().map(|workload| (workload.name, Tally::default())).collect(),
        distinct: 0,
        failure: None,
    };
    let mut digests = HashSet::new();
    let mut options = options;
    loop {
        let jobs = jobs(workloads, options);
        explore_more(workloads, options, &jobs, &mut exploration, &mut digests);
        let more = digests.len() as u64 - exploration.distinct;
        exploration.distinct = digests.len() as u64;
        let enough = exploration.distinct >= options.at_least || more == 0;
        if enough || exploration.failure.is_some() {
            return exploration;
        }
        options.seed = options.seed.wrapping_add(rounds(options.states));
    }
}

fn explore_more(
    workloads: &[Workload],
    options: Options,
    jobs: &[Job],
    exploration: &mut Exploration,
    digests: &mut HashSet<u128>,
) {
    let next = AtomicUsize::new(0);
    let failed_at = AtomicUsize::new(usize::MAX);
    let results: Mutex<Vec<Option<Done>>> = Mutex::new(jobs.iter().map(|_| None).collect());
    let work = || loop {
        let at = next.fetch_add(1, Ordering::Relaxed);
        // The failure of the earliest job counts, so later jobs can stop.
        let stop = || failed_at.load(Ordering::Relaxed) < at;
        let Some(job) = jobs.get(at).filter(|_| !stop()) else { return };
        let done = run_job(*job, workloads, options, &stop);
        if done.failed.is_some() {
            failed_at.fetch_min(at, Ordering::Relaxed);
        }
        results.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(done);
    };
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| alone(work));
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (job, done) in jobs.iter().zip(results) {
        let Some(done) = done else { continue };
        exploration.tallies[job.workload].1 += &done.tally;
        digests.extend(done.digests);
        if let Some(failed) = done.failed {
            let workload = &workloads[job.workload];
            exploration.failure = Some(alone(|| shrink(workload, job.seed, options, failed)));
            break;
        }
    }
}

/// Runs `work` on a pool of one thread: a tiny volume is faster without parallelism.
fn alone<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match rayon::ThreadPoolBuilder::new().num_threads(1).build() {
        Ok(pool) => pool.install(work),
        Err(_) => work(),
    }
}

/// The number of stories of each workload for this number of states.
fn rounds(states: u64) -> u64 {
    states.div_ceil(STATES_A_STORY).max(1)
}

fn jobs(workloads: &[Workload], options: Options) -> Vec<Job> {
    let rounds = rounds(options.states);
    let states = options.states.div_ceil(rounds);
    let job = |round, workload| Job { workload, seed: options.seed.wrapping_add(round), states };
    (0..rounds).flat_map(|round| (0..workloads.len()).map(move |at| job(round, at))).collect()
}

fn run_job(job: Job, workloads: &[Workload], options: Options, stop: &dyn Fn() -> bool) -> Done {
    let workload = &workloads[job.workload];
    let steps = workload.steps(job.seed);
    let mut tally = Tally::default();
    let story = match Story::record(workload.setup, &steps, job.seed, options.flaw) {
        Ok(story) => story,
        Err(mishap) => {
            let failed = Some(Failed::Mishap(steps, mishap));
            return Done { tally, digests: Vec::new(), failed };
        }
    };
    let plan = Plan {
        states: job.states,
        first_event: 0,
        inside_all: false,
        shortcuts: options.shortcuts,
        seed: job.seed,
    };
    let (found, digests) = search(&story, plan, &mut tally, stop);
    Done { tally, digests, failed: found.map(|found| Failed::State(Box::new(story), found)) }
}
