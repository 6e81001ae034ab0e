//! States that a power cut may leave on a device.
//!
//! What was flushed is there. Of every write since, nothing, everything, or some of its 512-byte sectors
//! may have arrived, in any order among writes.

use std::io;

use super::Event;
use betr_core::device::{Device, SECTOR};

/// What became of a write that was not flushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing arrived.
    Lost,
    /// All of it arrived.
    Whole,
    /// Only so many sectors at its beginning arrived.
    First(usize),
    /// Everything but so many sectors at its beginning arrived.
    Without(usize),
    /// Those sectors arrived whose bit is set; sector n asks for bit n modulo 64.
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

    /// Does to `device` what becomes of a write of `bytes` at `at`.
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

/// Brings onto `device`, which is as it was before the first of `events`, what a power cut after all of
/// them leaves. `fate` is asked about each write that no flush follows, in the order of writing.
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
