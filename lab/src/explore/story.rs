//! A story: a workload as recorded on the device, with the states of the model.

use std::sync::Arc;

use super::devices::{Event, ForkDevice, RecordingDevice};
use super::run::{Boundary, Run, Setup, Taken};
use super::timeline::Timeline;
use super::{Flaw, Random, Rules, State, Step};
use betr_core::device::Device;
use betr_core::error::Result;
use betr_core::format::{Magic, Superblock};
use betr_core::ids::{BLOCK_SIZE, BlockNr, Msn};
use betr_core::space::Layout;

/// A recorded workload.
pub struct Story {
    /// How its volume was created.
    pub setup: Setup,
    /// Its steps.
    pub steps: Vec<Step>,
    pub(super) timeline: Timeline,
    boundaries: Vec<Boundary>,
    spans: Vec<Span>,
    /// Acknowledgements: number of events, and the acknowledged boundary.
    acknowledged: Vec<(usize, usize)>,
    /// Number of events after each step.
    positions: Vec<usize>,
    /// How often its steps exercised each rule.
    pub(super) rules: Rules,
}

/// The range of events in which a boundary may be recovered.
struct Span {
    /// The start of its operation.
    begun: usize,
    /// The event at which it was abandoned, if it was.
    abandoned: usize,
}

/// A workload that cannot be recorded, because file system and model disagree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mishap {
    /// The step, from 0.
    pub step: usize,
    /// What happened.
    pub what: String,
}

impl Story {
    /// Records the steps on a new volume; `flaw` is a fault of the device.
    pub fn record(
        setup: Setup,
        steps: &[Step],
        seed: u64,
        flaw: Flaw,
    ) -> std::result::Result<Story, Mishap> {
        let before = |error: betr_core::Error| Mishap { step: 0, what: error.to_string() };
        let memory = Arc::new(ForkDevice::new(setup.image_bytes as usize / BLOCK_SIZE));
        setup.format(memory.clone(), seed).map_err(before)?;
        let base = memory.fork();
        let device = Arc::new(RecordingDevice::new(memory.clone()));
        let mut run = Run::start(setup, device.clone(), seed).map_err(before)?;
        let mut spans = vec![Span { begun: 0, abandoned: usize::MAX }];
        let mut acknowledged = vec![(0, 0)];
        let mut positions = Vec::with_capacity(steps.len());
        let mut rules = Rules::new();
        for (at, step) in steps.iter().enumerate() {
            if let Step::Crash(seed) = step {
                lose(&base, &memory, &device, *seed)
                    .map_err(|error| Mishap { step: at, what: error.to_string() })?;
            }
            let begun = device.position();
            let taken = run.step(step).map_err(|what| Mishap { step: at, what })?;
            spans.resize_with(run.boundaries().len(), || Span { begun, abandoned: usize::MAX });
            match taken {
                Taken::Acknowledged => acknowledged.push((device.position(), run.now())),
                Taken::Reopened => abandon(&mut spans[run.now() + 1..], begun),
                Taken::Nothing | Taken::Operation | Taken::Refused | Taken::NoRoom => {}
            }
            if let Some(rule) = taken.rule() {
                *rules.entry(rule).or_default() += 1;
            }
            positions.push(device.position());
        }
        let (boundaries, needed) = run.finish();
        rules.extend(needed);
        let mut story = Story {
            setup,
            steps: steps.to_vec(),
            timeline: Timeline::new(base, Vec::new()),
            boundaries,
            spans,
            acknowledged,
            positions,
            rules,
        };
        let mut events = device.events();
        for at in flaw.spoils(&events, &story.layout().map_err(before)?) {
            events.remove(at);
            story.forget(at);
        }
        story.timeline.events = super::timeline::prepare(events);
        Ok(story)
    }

    /// Removes the event at `at` from all positions.
    fn forget(&mut self, at: usize) {
        let earlier = |position: &mut usize| {
            if *position > at && *position != usize::MAX {
                *position -= 1;
            }
        };
        self.positions.iter_mut().for_each(earlier);
        self.acknowledged.iter_mut().for_each(|(position, _)| earlier(position));
        for span in &mut self.spans {
            earlier(&mut span.begun);
            earlier(&mut span.abandoned);
        }
    }

    fn layout(&self) -> Result<Layout> {
        Layout::new(self.setup.image_bytes, self.setup.log_bytes)
    }

    /// Number of writes and flushes.
    pub fn events(&self) -> usize {
        self.timeline.events.len()
    }

    /// The fault of a state's recovery; `None` also if there is no such state.
    pub fn fault(&self, state: &State) -> Option<String> {
        super::search::fault_of(self, state).map(|(what, _)| what)
    }

    /// The step in progress after this number of events.
    pub fn step_at(&self, events: usize) -> usize {
        self.positions.partition_point(|position| *position < events)
    }

    /// Number of events at the end of a step, counted from 0.
    pub(super) fn events_after(&self, step: usize) -> usize {
        self.positions[step]
    }

    /// The state at a boundary.
    pub(super) fn boundary(&self, at: usize) -> &Boundary {
        &self.boundaries[at]
    }

    /// The boundaries with this MSN: more than one if some were abandoned.
    pub(super) fn boundaries_at(&self, msn: Msn) -> impl Iterator<Item = usize> {
        (0..self.boundaries.len()).filter(move |at| self.boundaries[*at].msn == msn)
    }

    /// Checks that a power cut after this number of events may leave one of these equal boundaries; the error says why
    /// not.
    pub(super) fn admits(
        &self,
        events: usize,
        boundaries: &[usize],
    ) -> std::result::Result<(), String> {
        let acknowledged = self.acknowledged.iter().rev().find(|(at, _)| *at <= events);
        let oldest = acknowledged.map_or(0, |(_, boundary)| *boundary);
        let mut refused = Ok(());
        for at in boundaries {
            let span = &self.spans[*at];
            let msn = self.boundary(*at).msn;
            refused = Err(if *at < oldest {
                let expected = self.boundary(oldest).msn;
                format!("what was acknowledged, MSN {expected}, is lost: MSN {msn} came back")
            } else if span.abandoned < events {
                format!("a future that was abandoned came back, MSN {msn}")
            } else if span.begun > events {
                format!("an operation that had not begun came back, MSN {msn}")
            } else {
                return Ok(());
            });
        }
        refused
    }

    /// Number of checkpoints, and of times that the log wrapped around.
    pub(super) fn checkpoints_and_wraps(&self) -> (u64, u64) {
        let Ok(layout) = self.layout() else { return (0, 0) };
        let log = layout.log_start.byte()..layout.map.start().byte();
        let (mut checkpoints, mut wraps, mut before) = (0, 0, 0);
        for (at, bytes) in self.timeline.writes() {
            checkpoints += u64::from(is_first_slot(bytes));
            if log.contains(&at) {
                wraps += u64::from(at < before);
                before = at;
            }
        }
        (checkpoints, wraps)
    }
}

/// Cuts the power: removes the lost writes since the last flush from `memory`, through its recorder. A cut among these
/// removals leaves a state that the first cut might have left.
fn lose(
    base: &ForkDevice,
    memory: &ForkDevice,
    device: &RecordingDevice,
    seed: u64,
) -> std::io::Result<()> {
    let timeline = Timeline::new(base.fork(), device.events());
    let left = timeline.state(&timeline.any_cut(&mut Random::new(seed)));
    left.write_difference(device, &memory.fork())?;
    device.flush()
}

fn abandon(spans: &mut [Span], events: usize) {
    for span in spans.iter_mut().filter(|span| span.abandoned == usize::MAX) {
        span.abandoned = events;
    }
}

/// Whether a write is the first superblock of an epoch.
pub(super) fn is_first_slot(bytes: &[u8]) -> bool {
    Magic::of(bytes) == Some(Magic::Superblock)
        && Superblock::decode(bytes, None).is_ok_and(|found| found.slot.is_multiple_of(2))
}

/// A short description of a write.
pub(super) fn kind_of(at: u64, bytes: &[u8]) -> &'static str {
    match Magic::of(bytes) {
        Some(Magic::Identity) => "identity block",
        Some(Magic::Superblock) if is_first_slot(bytes) => "superblock, first slot",
        Some(Magic::Superblock) => "superblock, second slot",
        Some(Magic::TablePage) => "page of the allocation table",
        Some(Magic::SpaceMap) => "page of the space map",
        Some(Magic::Leaf) => "leaf",
        Some(Magic::Internal) => "internal node",
        Some(Magic::Run) => "run of messages",
        Some(Magic::LogGroup) => "log group",
        Some(Magic::ScatterMap) => "scatter map",
        Some(Magic::HoldsPage) => "page of snapshots",
        Some(Magic::DeadPage) => "page of a dead list",
        Some(Magic::Plan) => "plan",
        None if at == BlockNr(64).byte() => "rest of a log group",
        None => "bytes",
    }
}

impl Flaw {
    /// The flushes that this flaw drops, the last first.
    fn spoils(self, events: &[Event], layout: &Layout) -> Vec<usize> {
        let log = layout.log_start.byte()..layout.map.start().byte();
        let flushes = (0..events.len()).rev().filter(|at| events[*at] == Event::Flush);
        let write = |at: Option<usize>| match at.and_then(|at| events.get(at)) {
            Some(Event::Write(at, bytes)) => Some((*at, bytes)),
            _ => None,
        };
        match self {
            Flaw::None => Vec::new(),
            Flaw::SuperblockUnfenced => flushes
                .filter(|at| {
                    write(at.checked_add(1)).is_some_and(|(_, bytes)| is_first_slot(bytes))
                })
                .collect(),
            Flaw::SyncUnflushed => flushes
                .filter(|at| write(at.checked_sub(1)).is_some_and(|(at, _)| log.contains(&at)))
                .collect(),
        }
    }
}
