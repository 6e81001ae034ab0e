//! States that a power cut may leave on a device.
//!
//! What was flushed is there. Of every write since, nothing, everything, or some of its 512-byte sectors
//! may have arrived, in any order among writes.

use std::io;

use super::{Device, Event};

/// The unit that a device writes as a whole.
pub const SECTOR: usize = 512;

/// What became of a write that was not flushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing arrived.
    Lost,
    /// All of it arrived.
    Whole,
    /// Those sectors arrived whose bit is set; sector n asks for bit n modulo 64.
    Torn(u64),
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
        match if at < flushed { Fate::Whole } else { fate(at) } {
            Fate::Lost => {}
            Fate::Whole => device.write_at(*byte, bytes)?,
            Fate::Torn(mask) => {
                for (sector, piece) in bytes.chunks(SECTOR).enumerate() {
                    if mask >> (sector % 64) & 1 == 1 {
                        device.write_at(byte + (sector * SECTOR) as u64, piece)?;
                    }
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::MemoryDevice;

    #[test]
    fn only_what_was_not_flushed_is_in_doubt() {
        let write = |at: u64, byte: u8| Event::Write(at, Arc::from([byte; 1024]));
        let events = [write(0, 1), Event::Flush, write(0, 2), write(1024, 3), write(2048, 4)];
        let device = MemoryDevice::new(4096);
        let fates = [Fate::Lost, Fate::Torn(2), Fate::Whole];
        cut_power(&device, &events, |at| fates[at - 2].clone()).unwrap();
        let bytes = device.snapshot();
        assert_eq!([bytes[0], bytes[1024], bytes[1536], bytes[2048], bytes[3072]], [1, 0, 3, 4, 0]);
    }
}
