//! States that a power cut may leave on a device.
//!
//! All flushed writes have arrived. Of each later write, none, all, or some of the 512-byte sectors may have arrived,
//! independently of the order of writes.

use std::io;

use super::Event;
use betr_core::device::{Device, SECTOR};

/// The fate of a write that was not flushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing arrived.
    Lost,
    /// All of it arrived.
    Whole,
    /// Only this number of sectors at its start arrived.
    First(usize),
    /// Everything except this number of sectors at its start arrived.
    Without(usize),
    /// The sectors arrived whose bit is set; sector n uses bit n modulo 64.
    Torn(u64),
}

impl Fate {
    /// Whether a sector of the write arrived.
    fn arrived(&self, sector: usize) -> bool {
        match self {
            Fate::Lost => false,
            Fate::Whole => true,
            Fate::First(count) => sector < *count,
            Fate::Without(count) => sector >= *count,
            Fate::Torn(mask) => mask >> (sector % 64) & 1 == 1,
        }
    }

    /// Applies the arrived part of a write of `bytes` at `at` to `device`.
    pub fn write(&self, device: &dyn Device, at: u64, bytes: &[u8]) -> io::Result<()> {
        if *self == Fate::Whole {
            return device.write_at(at, bytes);
        }
        for (sector, piece) in bytes.chunks(SECTOR).enumerate() {
            if self.arrived(sector) {
                device.write_at(at + (sector * SECTOR) as u64, piece)?;
            }
        }
        Ok(())
    }
}

/// Applies `events` to `device` as a power cut after all of them leaves it. `fate` decides for each write without a
/// later flush, in the order of writing.
pub fn cut_power(
    device: &dyn Device,
    events: &[Event],
    mut fate: impl FnMut(usize) -> Fate,
) -> io::Result<()> {
    let flushed = events.iter().rposition(|event| *event == Event::Flush).unwrap_or(0);
    for (at, event) in events.iter().enumerate() {
        let Event::Write(byte, bytes) = event else { continue };
        let fate = if at < flushed { Fate::Whole } else { fate(at) };
        fate.write(device, *byte, bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use betr_core::device::MemoryDevice;

    #[test]
    fn only_what_was_not_flushed_is_in_doubt() {
        let write = |at: u64, byte: u8| Event::Write(at, Arc::from([byte; 1024]));
        let mut events = vec![write(0, 1), Event::Flush];
        events.extend((0..5).map(|at| write(at * 1024, at as u8 + 2)));
        let fates = [Fate::Lost, Fate::Torn(2), Fate::Whole, Fate::First(1), Fate::Without(1)];
        let device = MemoryDevice::new(8192);
        cut_power(&device, &events, |at| fates[at - 2].clone()).unwrap();
        let sectors: Vec<u8> = device.snapshot().iter().copied().step_by(SECTOR).collect();
        assert_eq!(sectors[..12], [1, 1, 0, 3, 4, 4, 5, 0, 0, 6, 0, 0]);
    }
}
