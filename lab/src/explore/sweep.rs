//! Tests power cuts of anything that writes, such as a repair, an import, or another tool.
//!
//! The caller records the events of the device, and judges each state that a cut may leave.

use std::collections::HashSet;
use std::sync::Arc;

use super::devices::{Event, ForkDevice};
use super::timeline::Timeline;
use super::{Cut, Random};
use betr_core::device::Device;

/// A sweep over recorded events.
pub struct Sweep {
    /// The device before the first event.
    pub base: ForkDevice,
    /// The events.
    pub events: Vec<Event>,
    /// The seed for choosing states if there are too many.
    pub seed: u64,
    /// The most states of one cut position.
    pub states: usize,
}

/// A state that the judge rejected.
#[derive(Debug)]
pub struct Broken {
    /// The power cut that left it.
    pub cut: Cut,
    /// The writes in doubt, and their fates.
    pub description: Vec<String>,
    /// The fault.
    pub what: String,
    /// The image of the device.
    pub image: Vec<u8>,
}

impl Sweep {
    /// Calls `judge` with a device for each distinct state, and the number of events before the cut. Returns the number
    /// of states.
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
