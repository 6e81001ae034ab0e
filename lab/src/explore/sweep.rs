//! Cutting the power in anything that writes: a repair, an import, a tool of its own.
//!
//! The caller records what reaches the device, and says of each state that a cut may leave whether it is
//! as it must be.

use std::collections::HashSet;
use std::sync::Arc;

use super::devices::{Event, ForkDevice};
use super::timeline::Timeline;
use super::{Cut, Random};
use betr_core::device::Device;

/// What a sweep is of.
pub struct Sweep {
    /// The device before the first event.
    pub base: ForkDevice,
    /// What reached it.
    pub events: Vec<Event>,
    /// Decides which states are taken where there are too many.
    pub seed: u64,
    /// How many states of one moment are looked at, at most.
    pub states: usize,
}

/// A state that is not as it must be.
#[derive(Debug)]
pub struct Broken {
    /// The power cut that left it.
    pub cut: Cut,
    /// The writes in doubt, and what became of each.
    pub description: Vec<String>,
    /// What is wrong.
    pub what: String,
    /// The bytes of the device.
    pub image: Vec<u8>,
}

impl Sweep {
    /// Shows `judge` a device for each distinct state, with the number of events before the cut. Returns how
    /// many there were.
    pub fn run(
        self,
        mut judge: impl FnMut(Arc<dyn Device>, usize) -> Result<(), String>,
    ) -> Result<u64, Box<Broken>> {
        let Sweep { base, events, seed, states } = self;
        let timeline = Timeline::new(base, events);
        let mut random = Random::new(seed);
        let mut seen = HashSet::new();
        let ground = timeline.base.fork();
        let mut flushed = 0;
        for events in 0..=timeline.events.len() {
            let upto = timeline.flushed(events);
            timeline.advance(&ground, flushed..upto);
            flushed = upto;
            for cut in timeline.cuts(events, &mut random).into_iter().take(states) {
                let disk = timeline.leave(&ground, &cut);
                if !seen.insert(disk.digest()) {
                    continue;
                }
                if let Err(what) = judge(Arc::new(disk.fork()), events) {
                    let (description, image) = (timeline.describe(&cut), disk.snapshot());
                    return Err(Box::new(Broken { cut, description, what, image }));
                }
            }
        }
        Ok(seen.len() as u64)
    }
}
