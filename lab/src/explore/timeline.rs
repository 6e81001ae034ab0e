//! The events of a device, and the states that a power cut may leave.
//!
//! Writes are also kept as shared blocks, so that a state whose writes arrived whole needs no copies or hashes.

use std::sync::Arc;

use super::Random;
use super::devices::{Block, Event, Fate, ForkDevice};
use betr_core::device::SECTOR;
use betr_core::ids::BLOCK_SIZE;

/// 5: up to that many unflushed writes, every subset is a state.
const SUBSETS_OF: usize = 5;
/// 24 random subsets of more writes.
const SAMPLES: usize = 24;

/// A device at the start, and its events.
pub(super) struct Timeline {
    pub base: ForkDevice,
    pub events: Vec<Arrival>,
}

/// An event, prepared for application to many devices.
pub(super) enum Arrival {
    Flush,
    Write { at: u64, bytes: Arc<[u8]>, blocks: Vec<Arc<Block>> },
}

/// A power cut: the number of events before it, and the fate of each unflushed write, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Events before the cut.
    pub events: usize,
    /// The fates of the writes since the last flush.
    pub fates: Vec<Fate>,
}

/// Events with their blocks.
pub(super) fn prepare(events: Vec<Event>) -> Vec<Arrival> {
    events.into_iter().map(Arrival::of).collect()
}

impl Arrival {
    fn of(event: Event) -> Arrival {
        let Event::Write(at, bytes) = event else { return Arrival::Flush };
        let (blocks, rest) = bytes.as_chunks::<BLOCK_SIZE>();
        let whole = rest.is_empty() && at.is_multiple_of(BLOCK_SIZE as u64);
        let blocks = if whole { blocks } else { &[] };
        let blocks = blocks.iter().map(|block| Arc::new(Block::new(block))).collect();
        Arrival::Write { at, bytes, blocks }
    }

    /// Applies a write, or its arrived part, to a device.
    fn arrive(&self, device: &ForkDevice, fate: &Fate) {
        let Arrival::Write { at, bytes, blocks } = self else { return };
        if *fate == Fate::Whole && !blocks.is_empty() {
            let first = (at / BLOCK_SIZE as u64) as usize;
            for (number, block) in blocks.iter().enumerate() {
                device.put(first + number, block.clone());
            }
        } else {
            fate.write(device, *at, bytes).expect("the write was within the device before");
        }
    }

    fn sectors(&self) -> usize {
        match self {
            Arrival::Flush => 0,
            Arrival::Write { bytes, .. } => bytes.len().div_ceil(SECTOR),
        }
    }
}

impl Timeline {
    pub(super) fn new(base: ForkDevice, events: Vec<Event>) -> Timeline {
        Timeline { base, events: prepare(events) }
    }

    /// The places and bytes of all writes.
    pub(super) fn writes(&self) -> impl Iterator<Item = (u64, &Arc<[u8]>)> {
        self.events.iter().filter_map(|event| match event {
            Arrival::Write { at, bytes, .. } => Some((*at, bytes)),
            Arrival::Flush => None,
        })
    }

    /// The number of events up to the last flush before a cut.
    pub(super) fn flushed(&self, events: usize) -> usize {
        let last = self.events[..events].iter().rposition(|e| matches!(e, Arrival::Flush));
        last.map_or(0, |at| at + 1)
    }

    /// The writes in doubt at a cut.
    pub(super) fn in_doubt(&self, events: usize) -> &[Arrival] {
        &self.events[self.flushed(events)..events]
    }

    /// The device after a cut.
    pub(super) fn state(&self, cut: &Cut) -> ForkDevice {
        let device = self.base.fork();
        let flushed = self.flushed(cut.events);
        self.events[..flushed].iter().for_each(|event| event.arrive(&device, &Fate::Whole));
        self.leave(&device, cut)
    }

    /// The device after a cut; `None` if the cut does not match the events.
    pub(super) fn possible(&self, cut: &Cut) -> Option<ForkDevice> {
        let within = cut.events <= self.events.len();
        let fits = within && self.in_doubt(cut.events).len() == cut.fates.len();
        fits.then(|| self.state(cut))
    }

    /// The device after a cut, given the device at the last flush.
    pub(super) fn leave(&self, ground: &ForkDevice, cut: &Cut) -> ForkDevice {
        let device = ground.fork();
        for (event, fate) in self.in_doubt(cut.events).iter().zip(&cut.fates) {
            event.arrive(&device, fate);
        }
        device
    }

    /// Applies a range of events to a device.
    pub(super) fn advance(&self, device: &ForkDevice, events: std::ops::Range<usize>) {
        self.events[events].iter().for_each(|event| event.arrive(device, &Fate::Whole));
    }

    /// Cuts after this number of events, the simplest first: everything arrived; nothing did; every subset, or random
    /// ones; and each write torn in turn, while others arrived or did not.
    pub(super) fn cuts(&self, events: usize, random: &mut Random) -> Vec<Cut> {
        let doubt = self.in_doubt(events);
        let count = doubt.len();
        let mut fates = vec![vec![Fate::Whole; count]];
        if count > 0 {
            fates.push(vec![Fate::Lost; count]);
        }
        let mut others = Vec::new();
        if (1..=SUBSETS_OF).contains(&count) {
            let subset = |set: u64| (0..count).map(|at| whole_if(set >> at & 1 == 1)).collect();
            others.extend((1..(1 << count) - 1).map(subset));
        } else if count > 0 {
            others.extend((0..SAMPLES).map(|_| some(count, random)));
        }
        for torn in 0..count {
            let ways = if torn + 1 == count { 3 } else { 1 };
            for way in 0..ways {
                let way = if ways == 1 { random.below(3) } else { way };
                let mut fates = match random.below(3) {
                    0 => vec![Fate::Whole; count],
                    _ => some(count, random),
                };
                fates[torn] = tear(way, doubt[torn].sectors(), random);
                others.push(fates);
            }
        }
        random.shuffle(&mut others);
        fates.append(&mut others);
        fates.into_iter().map(|fates| Cut { events, fates }).collect()
    }

    /// A random cut after all events.
    pub(super) fn any_cut(&self, random: &mut Random) -> Cut {
        let events = self.events.len();
        let fate = |write: &Arrival| match random.below(4) {
            0 => Fate::Lost,
            1 => tear(random.below(3), write.sectors(), random),
            _ => Fate::Whole,
        };
        Cut { events, fates: self.in_doubt(events).iter().map(fate).collect() }
    }

    /// A description of a cut: each write in doubt, its kind, and its fate.
    pub(super) fn describe(&self, cut: &Cut) -> Vec<String> {
        let doubt = self.in_doubt(cut.events).iter().zip(&cut.fates);
        let line = |(event, fate): (&Arrival, &Fate)| {
            let Arrival::Write { at, bytes, .. } = event else { return "flush".into() };
            let what = super::story::kind_of(*at, bytes);
            let fate = match fate {
                Fate::Lost => "lost".into(),
                Fate::Whole => "arrived".into(),
                Fate::First(sectors) => format!("torn: only the first {sectors} sectors arrived"),
                Fate::Without(sectors) => format!("torn: the first {sectors} sectors are lost"),
                Fate::Torn(mask) => format!("torn: sectors {mask:#x}"),
            };
            format!("{what} at b:{at:#x}, {} bytes: {fate}", bytes.len())
        };
        doubt.map(line).collect()
    }
}

fn whole_if(whole: bool) -> Fate {
    if whole { Fate::Whole } else { Fate::Lost }
}

/// A random subset of `count` writes; the probability of each is random, too.
fn some(count: usize, random: &mut Random) -> Vec<Fate> {
    let chance = 1 + random.below(7);
    (0..count).map(|_| whole_if(random.below(8) < chance)).collect()
}

/// One of three ways to tear a write of `sectors` sectors.
fn tear(way: u64, sectors: usize, random: &mut Random) -> Fate {
    // The important fields of a structure are often in its first sectors.
    let most = if random.below(2) == 0 { sectors.min(4) } else { sectors } as u64;
    let cut = 1 + random.below((most - 1).max(1)) as usize;
    match way {
        0 => Fate::First(cut),
        1 => Fate::Without(cut),
        _ => Fate::Torn(random.next()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use betr_core::device::Device;

    fn timeline() -> Timeline {
        let write = |block: u64, byte: u8| {
            Event::Write(block * BLOCK_SIZE as u64, Arc::from([byte; BLOCK_SIZE]))
        };
        let events = vec![write(0, 1), Event::Flush, write(1, 2), write(2, 3), write(0, 4)];
        Timeline::new(ForkDevice::new(3), events)
    }

    #[test]
    fn every_subset_and_every_torn_write_is_a_state() {
        let timeline = timeline();
        let cuts = timeline.cuts(5, &mut Random::new(1));
        let mut whole: Vec<u128> = Vec::new();
        let mut torn = [false; 3];
        for cut in &cuts {
            if cut.fates.iter().all(|fate| matches!(fate, Fate::Lost | Fate::Whole)) {
                whole.push(timeline.state(cut).digest());
            }
            for (at, fate) in cut.fates.iter().enumerate() {
                torn[at] |= !matches!(fate, Fate::Lost | Fate::Whole);
            }
        }
        whole.sort_unstable();
        whole.dedup();
        assert_eq!((whole.len(), torn), (8, [true; 3]));
        assert_eq!(timeline.cuts(2, &mut Random::new(1)).len(), 1);
    }

    #[test]
    fn a_state_is_what_was_flushed_and_what_arrived() {
        let timeline = timeline();
        let fates = vec![Fate::Lost, Fate::First(1), Fate::Whole];
        let device = timeline.possible(&Cut { events: 5, fates: fates.clone() }).unwrap();
        let byte = |at: u64| {
            let mut byte = [9];
            device.read_at(at, &mut byte).unwrap();
            byte[0]
        };
        assert_eq!([0, 4096, 8192, 8192 + 512].map(byte), [4, 0, 3, 0]);
        assert!(timeline.possible(&Cut { events: 4, fates: fates.clone() }).is_none());
        assert!(timeline.possible(&Cut { events: 6, fates }).is_none());
    }
}
