//! A device with faults: errors on reads, writes and flushes, lost and misdirected writes, and lack of space.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use betr_core::device::Device;

/// The fault of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It fails, without effect.
    Error,
    /// It fails with an error of this kind, without effect.
    Kind(io::ErrorKind),
    /// It fails after half of the bytes.
    HalfDone,
    /// It succeeds, without effect.
    Lost,
    /// It succeeds at another place, this number of bytes further on, wrapping around the end of the device.
    Astray(u64),
}

/// A call, counted from 0 since the device was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// The n-th read.
    Read(u64),
    /// The n-th write.
    Write(u64),
    /// The n-th flush.
    Flush(u64),
}

/// A base device, and its faults.
pub struct FaultyDevice {
    base: Arc<dyn Device>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    planned: Vec<(Call, Trouble)>,
    unreadable: Vec<Range<u64>>,
    full: bool,
    reads: u64,
    writes: u64,
    flushes: u64,
}

impl FaultyDevice {
    /// A view of `base` without faults.
    pub fn new(base: Arc<dyn Device>) -> FaultyDevice {
        FaultyDevice { base, state: Mutex::default() }
    }

    /// Plans a fault for a call.
    pub fn plan(&self, call: Call, trouble: Trouble) {
        self.lock().planned.push((call, trouble));
    }

    /// Makes all reads that touch these bytes fail.
    pub fn spoil(&self, bytes: Range<u64>) {
        self.lock().unreadable.push(bytes);
    }

    /// Makes writes fail for lack of space, or succeed again.
    pub fn fill_up(&self, full: bool) {
        self.lock().full = full;
    }

    /// Number of reads, writes and flushes so far.
    pub fn calls(&self) -> (u64, u64, u64) {
        let state = self.lock();
        (state.reads, state.writes, state.flushes)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn meet(&self, call: impl FnOnce(&mut State) -> Call) -> Option<Trouble> {
        let mut state = self.lock();
        let call = call(&mut state);
        let planned = state.planned.iter().find(|(planned, _)| *planned == call);
        planned.map(|(_, trouble)| *trouble)
    }
}

/// Counts a call; returns its number.
fn next(count: &mut u64) -> u64 {
    *count += 1;
    *count - 1
}

fn failure() -> io::Error {
    io::Error::other("the device failed")
}

impl Device for FaultyDevice {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let trouble = self.meet(|state| Call::Read(next(&mut state.reads)));
        let end = at + buf.len() as u64;
        let spoiled = self.lock().unreadable.iter().any(|bad| bad.start < end && at < bad.end);
        if spoiled {
            return Err(failure());
        }
        match trouble {
            None => self.base.read_at(at, buf),
            Some(Trouble::HalfDone) => {
                let half = buf.len() / 2;
                self.base.read_at(at, &mut buf[..half])?;
                Err(failure())
            }
            Some(Trouble::Error) => Err(failure()),
            Some(Trouble::Kind(kind)) => Err(kind.into()),
            // As if the device had lost the bytes: zeros never verify.
            Some(Trouble::Lost) => {
                buf.fill(0);
                Ok(())
            }
            Some(Trouble::Astray(distance)) => {
                let room = self.len() - buf.len() as u64 + 1;
                self.base.read_at((at + distance) % room, buf)
            }
        }
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if self.lock().full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        match self.meet(|state| Call::Write(next(&mut state.writes))) {
            None => self.base.write_at(at, bytes),
            Some(Trouble::Error) => Err(failure()),
            Some(Trouble::Kind(kind)) => Err(kind.into()),
            Some(Trouble::HalfDone) => {
                self.base.write_at(at, &bytes[..bytes.len() / 2])?;
                Err(failure())
            }
            Some(Trouble::Lost) => Ok(()),
            Some(Trouble::Astray(distance)) => {
                let room = self.len() - bytes.len() as u64 + 1;
                self.base.write_at((at + distance) % room, bytes)
            }
        }
    }

    fn flush(&self) -> io::Result<()> {
        match self.meet(|state| Call::Flush(next(&mut state.flushes))) {
            None => self.base.flush(),
            Some(Trouble::Lost | Trouble::Astray(_)) => Ok(()),
            Some(Trouble::Error | Trouble::HalfDone) => Err(failure()),
            Some(Trouble::Kind(kind)) => Err(kind.into()),
        }
    }
}
