//! Searches the states of one story.

use std::ops::AddAssign;
use std::sync::Arc;

use super::devices::{Event, ForkDevice};
use super::judge::{Judge, Verdict};
use super::story::Story;
use super::timeline::{Cut, Timeline};
use super::{Random, Rules};

/// 1 of 6 recoveries is interrupted itself.
const INSIDE_EVERY: u64 = 6;
/// 12 states of an interrupted recovery are tested.
const INSIDE_STATES: u64 = 12;

/// The states to test.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// The most distinct states; spread evenly over the cuts.
    pub states: u64,
    /// The least number of events before a cut.
    pub first_event: usize,
    /// Interrupt every recovery, not only some.
    pub inside_all: bool,
    /// Reuse the verdict of a state that is equal in every block that was read.
    pub shortcuts: bool,
    /// The seed of random choices.
    pub seed: u64,
}

/// Counts of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Recorded stories.
    pub stories: u64,
    /// Their steps.
    pub steps: u64,
    /// Their writes and flushes.
    pub events: u64,
    /// Checkpoints in them.
    pub checkpoints: u64,
    /// Number of times that the log wrapped around.
    pub wraps: u64,
    /// States built.
    pub states: u64,
    /// States with distinct disks.
    pub distinct: u64,
    /// Those that a power cut during a recovery left.
    pub inside: u64,
    /// Distinct states that were actually recovered; each other one equals one of these in every block that was read.
    pub recovered: u64,
    /// Log groups replayed, over all distinct states.
    pub groups: u64,
    /// Distinct states whose last log group was torn.
    pub torn: u64,
    /// How often each rule was exercised, by the steps of the stories and by the recovered states.
    pub rules: Rules,
}

impl AddAssign<&Tally> for Tally {
    fn add_assign(&mut self, other: &Tally) {
        self.stories += other.stories;
        self.steps += other.steps;
        self.events += other.events;
        self.checkpoints += other.checkpoints;
        self.wraps += other.wraps;
        self.states += other.states;
        self.distinct += other.distinct;
        self.inside += other.inside;
        self.recovered += other.recovered;
        self.groups += other.groups;
        self.torn += other.torn;
        for (rule, count) in &other.rules {
            *self.rules.entry(rule).or_default() += count;
        }
    }
}

/// A state that a power cut leaves; or that a second cut, during its recovery, leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The cut.
    pub cut: Cut,
    /// The cut during the recovery.
    pub inside: Option<Cut>,
}

/// A state that does not recover as required.
pub(super) struct Found {
    pub state: State,
    pub what: String,
    pub image: Vec<u8>,
}

/// Tests states of a story until one fails, the plan is done, or `stop` returns true. Also returns the digests of all
/// tested disks.
pub(super) fn search(
    story: &Story,
    plan: Plan,
    tally: &mut Tally,
    stop: &dyn Fn() -> bool,
) -> (Option<Found>, Vec<u128>) {
    let random = Random::new(plan.seed ^ 0x0007_ca5e);
    let judge = Judge::new(story, plan.shortcuts);
    let (checkpoints, wraps) = story.checkpoints_and_wraps();
    *tally += &Tally {
        stories: 1,
        steps: story.steps.len() as u64,
        events: story.timeline.events.len() as u64,
        checkpoints,
        wraps,
        rules: story.rules.clone(),
        ..Tally::default()
    };
    let end = tally.distinct + plan.states;
    let mut search = Search { story, plan, judge, random, tally, end, last: None };
    let found = search.all(stop);
    let rules = std::mem::take(&mut search.judge.rules);
    let digests = search.judge.digests();
    *tally += &Tally { rules, ..Tally::default() };
    (found, digests)
}

struct Search<'s> {
    story: &'s Story,
    plan: Plan,
    judge: Judge<'s>,
    random: Random,
    tally: &'s mut Tally,
    /// The total of distinct states, over all stories, at which the plan is done.
    end: u64,
    /// The writes of the recovery that was judged last.
    last: Option<Vec<Event>>,
}

impl Search<'_> {
    fn all(&mut self, stop: &dyn Fn() -> bool) -> Option<Found> {
        let timeline = &self.story.timeline;
        let ground = timeline.base.fork();
        let mut done = 0;
        let first = self.plan.first_event.min(timeline.events.len());
        let cuts = (timeline.events.len() - first + 1) as u64;
        let before = self.tally.distinct;
        for (turn, events) in (first..=timeline.events.len()).enumerate() {
            let flushed = timeline.flushed(events);
            timeline.advance(&ground, done..flushed);
            done = flushed;
            // Later cuts may use what earlier ones leave of the budget.
            let allowed = before + self.plan.states * (turn as u64 + 1) / cuts;
            for cut in timeline.cuts(events, &mut self.random) {
                if self.tally.distinct >= allowed {
                    break;
                }
                let found = self.state(&timeline.leave(&ground, &cut), cut);
                if found.is_some() || stop() {
                    return found;
                }
            }
        }
        None
    }

    /// Tests a state of the story.
    fn state(&mut self, disk: &ForkDevice, cut: Cut) -> Option<Found> {
        let verdict = self.verdict(disk);
        let recovery = self.last.take();
        let failed = |what: &str, cut: Cut| {
            let state = State { cut, inside: None };
            Some(Found { state, what: what.into(), image: disk.snapshot() })
        };
        let recovered = match &*verdict {
            Ok(recovered) => recovered,
            Err(what) => return failed(what, cut),
        };
        if let Err(what) = self.story.admits(cut.events, &recovered.boundaries) {
            return failed(&what, cut);
        }
        let events = recovery?;
        let chosen = self.plan.inside_all || self.random.below(INSIDE_EVERY) == 0;
        if chosen { self.inside(disk, events, cut, &recovered.boundaries) } else { None }
    }

    /// Tests states that a power cut during the recovery of `disk` leaves: they must recover to the same boundary.
    fn inside(
        &mut self,
        disk: &ForkDevice,
        events: Vec<Event>,
        cut: Cut,
        boundaries: &[usize],
    ) -> Option<Found> {
        let timeline = Timeline::new(disk.fork(), events);
        for _ in 0..INSIDE_STATES.min(self.end.saturating_sub(self.tally.distinct)) {
            let events = 1 + self.random.below(timeline.events.len() as u64) as usize;
            let mut cuts = timeline.cuts(events, &mut self.random);
            let inner = cuts.swap_remove(self.random.below(cuts.len() as u64) as usize);
            let disk = timeline.state(&inner);
            let before = self.tally.distinct;
            let verdict = self.verdict(&disk);
            self.last = None;
            self.tally.inside += self.tally.distinct - before;
            let what = match &*verdict {
                Ok(recovered) if recovered.boundaries == boundaries => continue,
                Ok(recovered) => {
                    let [found, expected] = [&recovered.boundaries[..], boundaries]
                        .map(|boundaries| self.story.boundary(boundaries[0]).msn);
                    format!("the first recovery leads to MSN {expected}, the second to {found}")
                }
                Err(what) => what.clone(),
            };
            let state = State { cut, inside: Some(inner) };
            return Some(Found { state, what, image: disk.snapshot() });
        }
        None
    }

    /// The verdict on a disk.
    fn verdict(&mut self, disk: &ForkDevice) -> Arc<Verdict> {
        let digest = disk.digest();
        self.tally.states += 1;
        if let Some(verdict) = self.judge.seen(digest) {
            return verdict.clone();
        }
        self.tally.distinct += 1;
        let judged = self.judge.judge(disk, digest);
        self.tally.recovered += u64::from(judged.recovered);
        if let Ok(recovered) = &*judged.verdict {
            self.tally.groups += recovered.groups;
            self.tally.torn += u64::from(recovered.torn);
        }
        self.last = judged.recovery;
        judged.verdict
    }
}

/// The fault of a state, and its image; `None` if it recovers as required. A cut during the recovery is applied to the
/// current recovery of the state.
pub(super) fn fault_of(story: &Story, state: &State) -> Option<(String, Vec<u8>)> {
    let disk = story.timeline.possible(&state.cut)?;
    let mut judge = Judge::new(story, false);
    let judged = judge.judge(&disk, disk.digest());
    let recovered = match &*judged.verdict {
        Ok(recovered) => recovered,
        Err(what) if state.inside.is_none() => return Some((what.clone(), disk.snapshot())),
        Err(_) => return None,
    };
    let Some(inner) = &state.inside else {
        let refused = story.admits(state.cut.events, &recovered.boundaries).err();
        return refused.map(|what| (what, disk.snapshot()));
    };
    let timeline = Timeline::new(disk, judged.recovery?);
    let disk = timeline.possible(inner)?;
    let verdict = judge.judge(&disk, disk.digest()).verdict;
    match &*verdict {
        Ok(second) if second.boundaries == recovered.boundaries => None,
        Ok(_) => Some(("the second recovery leads elsewhere".into(), disk.snapshot())),
        Err(what) => Some((what.clone(), disk.snapshot())),
    }
}

/// A failing state of another story, with the same fates of the same number of writes.
pub(super) fn find_like(story: &Story, pattern: &State, first_event: usize) -> Option<Found> {
    let alike = |timeline: &Timeline, first: usize, cut: &Cut| {
        let all = (first..=timeline.events.len()).rev();
        let alike = all.filter(|at| timeline.in_doubt(*at).len() == cut.fates.len());
        alike.map(|events| Cut { events, fates: cut.fates.clone() }).collect::<Vec<_>>()
    };
    let mut states = Vec::new();
    for cut in alike(&story.timeline, first_event, &pattern.cut) {
        match &pattern.inside {
            None => states.push(State { cut, inside: None }),
            Some(inner) => {
                let Some(recovery) = recovery_of(story, &cut) else { continue };
                let inside = alike(&recovery, 1, inner).into_iter().map(Some);
                states.extend(inside.map(|inside| State { cut: cut.clone(), inside }));
            }
        }
    }
    states
        .into_iter()
        .find_map(|state| fault_of(story, &state).map(|(what, image)| Found { state, what, image }))
}

/// The writes of a state's recovery, to describe a cut during it.
pub(super) fn recovery_of(story: &Story, cut: &Cut) -> Option<Timeline> {
    let disk = story.timeline.state(cut);
    let judged = Judge::new(story, false).judge(&disk, disk.digest());
    Some(Timeline::new(disk, judged.recovery?))
}
