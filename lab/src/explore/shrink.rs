//! Shrinks a failure: fewer steps, and fewer writes with special fates.
//!
//! Steps are dropped in pieces, halves first, while some state of the remaining story still fails. Then the fates of
//! the state are simplified, one by one.

use super::devices::Fate;
use super::search::{Found, Plan, State, Tally, fault_of, find_like, recovery_of, search};
use super::{Failed, Mishap, Options, Step, Story, Workload};

/// 400 shorter scripts are tried at most.
const TRIALS: u32 = 400;
/// 300 states of each script are tested at most, and 12,000 in all.
const STATES: u64 = 300;
const ALL_STATES: u64 = 12_000;
/// 2: only cuts in the last steps are tried, since a failing state needs no steps after its cut.
const LAST_STEPS: usize = 2;

/// A shrunk failure.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The workload.
    pub workload: &'static str,
    /// The seed of that workload's steps.
    pub seed: u64,
    /// The necessary steps.
    pub steps: Vec<Step>,
    /// The failing state; `None` if the steps themselves fail.
    pub state: Option<State>,
    /// A description of the state, by lines.
    pub description: Vec<String>,
    /// The fault.
    pub verdict: String,
    /// The image after the power cut; empty without a state.
    pub image: Vec<u8>,
}

pub(super) fn shrink(workload: &Workload, seed: u64, options: Options, failed: Failed) -> Failure {
    let trials = if options.shrinks { TRIALS } else { 0 };
    let mut shrinker =
        Shrinker { workload, seed, options, pattern: None, trials, states: ALL_STATES };
    let failed = match failed {
        Failed::Mishap(mut steps, mishap) => {
            steps.truncate(mishap.step + 1);
            Failed::Mishap(steps, mishap)
        }
        Failed::State(story, found) => {
            shrinker.pattern = Some(found.state.clone());
            let end = story.step_at(found.state.cut.events) + 1;
            let steps = &story.steps[..end.min(story.steps.len())];
            shrinker.attempt(steps).unwrap_or(Failed::State(story, found))
        }
    };
    let failed = shrinker.fewer_steps(failed);
    match failed {
        Failed::Mishap(steps, Mishap { step, what }) => {
            let description = vec![format!("step {} goes wrong without a power cut", step + 1)];
            let (image, name) = (Vec::new(), workload.name);
            let state = None;
            Failure { workload: name, seed, steps, state, description, verdict: what, image }
        }
        Failed::State(story, found) => {
            let found = plainer(&story, found);
            let description = describe(&story, &found.state);
            Failure {
                workload: workload.name,
                seed,
                steps: story.steps,
                state: Some(found.state),
                description,
                verdict: found.what,
                image: found.image,
            }
        }
    }
}

struct Shrinker<'s> {
    workload: &'s Workload,
    seed: u64,
    options: Options,
    /// The state that was found first.
    pattern: Option<State>,
    /// The remaining budgets.
    trials: u32,
    states: u64,
}

impl Shrinker<'_> {
    /// Whether these steps fail, too, and how.
    fn attempt(&mut self, steps: &[Step]) -> Option<Failed> {
        self.trials = self.trials.checked_sub(1)?;
        let story = match Story::record(self.workload.setup, steps, self.seed, self.options.flaw) {
            Ok(story) => story,
            Err(mishap) => return Some(Failed::Mishap(steps.to_vec(), mishap)),
        };
        let pattern = self.pattern.as_ref()?;
        let first_event = steps.len().checked_sub(LAST_STEPS + 1);
        let first_event = first_event.map_or(0, |step| story.events_after(step));
        if let Some(found) = find_like(&story, pattern, first_event) {
            return Some(Failed::State(Box::new(story), found));
        }
        let plan = Plan {
            states: STATES.min(self.states),
            first_event,
            inside_all: pattern.inside.is_some(),
            shortcuts: self.options.shortcuts,
            seed: self.seed,
        };
        let mut tally = Tally::default();
        let (found, _) = search(&story, plan, &mut tally, &|| false);
        self.states = self.states.saturating_sub(tally.distinct);
        found.map(|found| Failed::State(Box::new(story), found))
    }

    fn fewer_steps(&mut self, mut failed: Failed) -> Failed {
        let mut size = failed.steps().len() / 2;
        while size > 0 {
            let mut at = 0;
            let before = failed.steps().len();
            while at < failed.steps().len() {
                let steps = failed.steps();
                let end = (at + size).min(steps.len());
                let shorter = [&steps[..at], &steps[end..]].concat();
                match self.attempt(&shorter) {
                    Some(found) if failed.is_like(&found) => failed = found,
                    _ => at = end,
                }
            }
            // At the finest size, as long as it helps.
            if size > 1 || failed.steps().len() == before {
                size /= 2;
            }
        }
        failed
    }
}

impl Failed {
    fn steps(&self) -> &[Step] {
        match self {
            Failed::Mishap(steps, _) => steps,
            Failed::State(story, _) => &story.steps,
        }
    }

    /// Whether both need a power cut, or neither does.
    fn is_like(&self, other: &Failed) -> bool {
        matches!(self, Failed::Mishap(..)) == matches!(other, Failed::Mishap(..))
    }
}

/// The same failure with the simplest fates: arrived, then lost, then torn.
fn plainer(story: &Story, mut found: Found) -> Found {
    let levels = if found.state.inside.is_some() { 2 } else { 1 };
    for level in 0..levels {
        for at in 0..fates(&mut found.state, level).len() {
            for plain in plain_fates() {
                let mut state = found.state.clone();
                let fate = &mut fates(&mut state, level)[at];
                if *fate == plain {
                    break;
                }
                *fate = plain;
                if let Some((what, image)) = fault_of(story, &state) {
                    found = Found { state, what, image };
                    break;
                }
            }
        }
    }
    found
}

/// Fates, the simplest first.
fn plain_fates() -> impl Iterator<Item = Fate> {
    let torn = (1..8).flat_map(|sectors| [Fate::First(sectors), Fate::Without(sectors)]);
    [Fate::Whole, Fate::Lost].into_iter().chain(torn)
}

fn fates(state: &mut State, level: usize) -> &mut Vec<Fate> {
    match (&mut state.inside, level) {
        (Some(inside), 1) => &mut inside.fates,
        _ => &mut state.cut.fates,
    }
}

fn describe(story: &Story, state: &State) -> Vec<String> {
    let events = state.cut.events;
    let under_way = match story.steps.get(story.step_at(events)) {
        Some(step) => format!("during: {step}"),
        None => "after the last step".into(),
    };
    let mut lines = vec![format!("power cut after event {events}, {under_way}")];
    let indented = |line: String| format!("  {line}");
    lines.extend(story.timeline.describe(&state.cut).into_iter().map(indented));
    if let (Some(inner), Some(recovery)) = (&state.inside, recovery_of(story, &state.cut)) {
        lines.push(format!("second power cut after event {} of the recovery", inner.events));
        lines.extend(recovery.describe(inner).into_iter().map(indented));
    }
    lines
}
