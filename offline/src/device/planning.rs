//! A copy-on-write view that records the order of writes: a repair that is tried on it becomes a plan.
//!
//! New blocks go to a file, so that memory holds little more than a number for each. Blocks written between two flushes
//! are a *group*. Those of one group may reach a device in any order, those of the next only after all of them. Within
//! a group the last write of a block counts; in a later group it is another change.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::Scratch;
use betr_core::device::{Device, checked_end, pieces};
use betr_core::format::{BlockBytes, Change};
use betr_core::ids::{BLOCK_SIZE, BlockNr};

const BLOCK: u64 = BLOCK_SIZE as u64;

/// A base device, which is never written, and the changes of its blocks.
pub struct PlanningDevice {
    base: Arc<dyn Device>,
    len: u64,
    /// The new blocks, in order of their numbers.
    scratch: Scratch,
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    /// In the order of the scratch file.
    written: Vec<Written>,
    /// The number of the newest content of a block.
    newest: HashMap<u64, u32>,
    /// Number of complete groups.
    flushed: u32,
}

/// A block in the scratch file.
#[derive(Clone, Copy)]
struct Written {
    block: u64,
    group: u32,
    /// The number of the content that it replaces; `None` for the base's.
    before: Option<u32>,
}

impl PlanningDevice {
    /// A view of the whole blocks of `base`, without differences.
    pub fn new(base: Arc<dyn Device>, scratch: Scratch) -> PlanningDevice {
        let len = base.len() / BLOCK * BLOCK;
        PlanningDevice { base, len, scratch, state: RwLock::default() }
    }

    /// The base device.
    pub fn base(&self) -> &Arc<dyn Device> {
        &self.base
    }

    /// Number of changes, including those that write the same bytes.
    pub fn changes(&self) -> usize {
        self.state().written.len()
    }

    /// A change, in the order of groups; `None` if it writes the bytes that were there.
    pub fn change(&self, number: usize) -> io::Result<Option<Change>> {
        let state = self.state();
        let Written { block, group, before } = state.written[number];
        let new = self.scratch_block(number as u32)?;
        let old = match before {
            Some(place) => self.scratch_block(place)?,
            None => self.base_block(block)?,
        };
        let change = Change { block: BlockNr(block), group: group + 1, old, new };
        Ok((change.old != change.new).then_some(change))
    }

    fn scratch_block(&self, place: u32) -> io::Result<BlockBytes> {
        let mut bytes = Box::new([0; BLOCK_SIZE]);
        self.scratch.read(u64::from(place) * BLOCK, &mut bytes[..])?;
        Ok(bytes)
    }

    fn base_block(&self, block: u64) -> io::Result<BlockBytes> {
        let mut bytes = Box::new([0; BLOCK_SIZE]);
        self.base.read_at(block * BLOCK, &mut bytes[..])?;
        Ok(bytes)
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The number for a block that is written now, and that of its content before.
    fn place(&mut self, block: u64) -> io::Result<(u32, Option<u32>)> {
        let newest = self.newest.get(&block).copied();
        if let Some(place) = newest
            && self.written[place as usize].group == self.flushed
        {
            return Ok((place, newest));
        }
        let place = u32::try_from(self.written.len())
            .map_err(|_| io::Error::new(io::ErrorKind::OutOfMemory, "too many changes"))?;
        Ok((place, newest))
    }

    /// Records that the block has been written to the scratch file.
    fn note(&mut self, block: u64, place: u32, before: Option<u32>) {
        if place as usize == self.written.len() {
            self.written.push(Written { block, group: self.flushed, before });
            self.newest.insert(block, place);
        }
    }
}

impl Device for PlanningDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        checked_end(at, buf.len(), self.len)?;
        let state = self.state();
        self.base.read_at(at, buf)?;
        if state.newest.is_empty() {
            return Ok(());
        }
        for (block, within, range) in pieces(at, buf.len()) {
            if let Some(place) = state.newest.get(&block) {
                let start = u64::from(*place) * BLOCK + within.start as u64;
                self.scratch.read(start, &mut buf[range])?;
            }
        }
        Ok(())
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        checked_end(at, bytes.len(), self.len)?;
        let mut state = self.state_mut();
        for (block, within, range) in pieces(at, bytes.len()) {
            let (place, before) = state.place(block)?;
            let mut copy = match before {
                _ if within.len() == BLOCK_SIZE => Box::new([0; BLOCK_SIZE]),
                Some(place) => self.scratch_block(place)?,
                None => self.base_block(block)?,
            };
            copy[within].copy_from_slice(&bytes[range]);
            self.scratch.write(u64::from(place) * BLOCK, &copy[..])?;
            state.note(block, place, before);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.state_mut();
        if state.written.last().is_some_and(|last| last.group == state.flushed) {
            state.flushed += 1;
        }
        Ok(())
    }

    fn advise_will_need(&self, at: u64, len: u64) {
        self.base.advise_will_need(at, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use betr_core::device::MemoryDevice;

    fn scratch() -> Scratch {
        Scratch::new(tempfile::tempfile().unwrap(), String::new())
    }

    fn view(bytes: Vec<u8>) -> (Arc<MemoryDevice>, PlanningDevice) {
        let base = Arc::new(MemoryDevice::from(bytes));
        (base.clone(), PlanningDevice::new(base, scratch()))
    }

    /// Group, block, and the first byte before and after the change.
    fn changes(view: &PlanningDevice) -> Vec<(u32, u64, u8, u8)> {
        let all = (0..view.changes()).filter_map(|number| view.change(number).unwrap());
        all.map(|change| (change.group, change.block.0, change.old[0], change.new[0])).collect()
    }

    #[test]
    fn the_base_stays_and_the_order_is_kept() {
        let (base, view) = view((0..20_000u32).map(|at| (at / 4096) as u8 + 1).collect());
        let before = base.snapshot();
        view.write_at(4096, &[10; 8192]).unwrap();
        // Within a group, the last write of a block counts.
        view.write_at(4096, &[11; 4096]).unwrap();
        view.flush().unwrap();
        view.flush().unwrap();
        // A part of a block, and a block in two groups.
        view.write_at(12_287, &[12; 2]).unwrap();
        view.write_at(4096, &[13; 1]).unwrap();
        view.flush().unwrap();
        view.write_at(4096, &[13; 1]).unwrap();
        assert!(view.write_at(16_383, &[1, 2]).is_err());
        let mut all = vec![0; 16_384];
        view.read_at(0, &mut all).unwrap();
        let mut expected = before[..16_384].to_vec();
        expected[4096..8192].fill(11);
        expected[4096] = 13;
        expected[8192..12_288].fill(10);
        expected[12_287..12_289].fill(12);
        assert_eq!(all, expected);
        assert_eq!(base.snapshot(), before);
        // Writing the same bytes is no change.
        assert_eq!(view.changes(), 6);
        assert_eq!(
            changes(&view),
            [(1, 1, 2, 11), (1, 2, 3, 10), (2, 2, 10, 10), (2, 3, 4, 12), (2, 1, 11, 13)]
        );
        let parts = view.change(2).unwrap().unwrap();
        assert_eq!((parts.old[4095], parts.new[4095], parts.new[4094]), (10, 12, 10));
    }
}
