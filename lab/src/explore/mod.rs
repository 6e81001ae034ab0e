//! The crash explorer: every state that a power cut may leave of a workload, and whether it recovers.
//!
//! A workload is a script of file operations. It is recorded: what reached the device and when it was
//! flushed, and what the file system was, according to a model, at each operation boundary. Then power is
//! cut after every event: what was flushed is there, each later write is there, lost or torn. Every such
//! state must recover to an operation boundary that is not older than what was acknowledged and not younger
//! than the cut; the checker must find nothing; a power cut inside the recovery must change nothing.
//!
//! A script may have power cuts of its own, after which it goes on: what one cut leaves behind must not
//! harm later. And what goes wrong without any cut is a failure too.
//!
//! Nothing here depends on time, threads or chance: the same options give the same result.

mod compare;
pub mod devices;
mod judge;
mod memo;
mod model;
mod moments;
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

/// Distinct states that are taken from one story.
const STATES_A_STORY: u64 = 4000;

/// A mistake that the explored volumes are to have, to see that it is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flaw {
    /// None.
    #[default]
    None,
    /// A superblock is written without a flush after what it refers to.
    SuperblockUnfenced,
    /// A sync returns before its log group is durable.
    SyncUnflushed,
}

/// How to explore.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many distinct states of each workload to look at, at most.
    pub states: u64,
    /// Go on, with other seeds, until there are so many distinct states of all workloads together.
    pub at_least: u64,
    /// Decides the workloads' steps and everything random.
    pub seed: u64,
    /// The mistake to put in.
    pub flaw: Flaw,
    /// Do not recover what agrees with something recovered before in every block that was read.
    pub shortcuts: bool,
    /// How many threads to use.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Options {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let flaw = Flaw::None;
        Options { states: 2000, at_least: 0, seed: 1, flaw, shortcuts: true, threads }
    }
}

/// What was found.
pub struct Exploration {
    /// What was looked at, a workload each.
    pub tallies: Vec<(&'static str, Tally)>,
    /// Disks that differ from all others somewhere, over all workloads.
    pub distinct: u64,
    /// The first failure, in its smallest form.
    pub failure: Option<Failure>,
}

/// A part of an exploration: a story, and how many of its states.
#[derive(Clone, Copy)]
struct Job {
    workload: usize,
    seed: u64,
    states: u64,
}

/// What came of a job.
struct Done {
    tally: Tally,
    /// The digests of the disks that were looked at.
    digests: Vec<u128>,
    failed: Option<Failed>,
}

/// How a story failed.
enum Failed {
    /// While it was recorded.
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
        // A failure of an earlier job counts, so later ones need not go on.
        let stop = || failed_at.load(Ordering::Relaxed) < at;
        let Some(job) = jobs.get(at).filter(|_| !stop()) else { return };
        let done = carry_out(*job, workloads, options, &stop);
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

/// Runs `work` where the engine finds no other threads: a tiny volume is faster without.
fn alone<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    match rayon::ThreadPoolBuilder::new().num_threads(1).build() {
        Ok(pool) => pool.install(work),
        Err(_) => work(),
    }
}

/// How many stories of each workload give so many states.
fn rounds(states: u64) -> u64 {
    states.div_ceil(STATES_A_STORY).max(1)
}

fn jobs(workloads: &[Workload], options: Options) -> Vec<Job> {
    let rounds = rounds(options.states);
    let states = options.states.div_ceil(rounds);
    let job = |round, workload| Job { workload, seed: options.seed.wrapping_add(round), states };
    (0..rounds).flat_map(|round| (0..workloads.len()).map(move |at| job(round, at))).collect()
}

fn carry_out(job: Job, workloads: &[Workload], options: Options, stop: &dyn Fn() -> bool) -> Done {
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
