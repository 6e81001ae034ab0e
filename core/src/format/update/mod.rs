//! Updates: blind changes of a value (the upserts of BetrFS 0.2 §2).
//!
//! There are three: *patch* writes bytes at an offset, *add* adds to a counter, *trim* truncates the value. All updates
//! of one value combine into one. Any number of patches and trims take little more space than the value. But
//! alternating adds and patches of parts of the same counter add a stage each. If there is no value, an update does
//! nothing, unless a patch has *create* set.
//!
//! ```text
//! stages, each applied to the result of the one before; all numbers are short ones unless stated otherwise:
//! flags        1 byte: 1 create: an absent value counts as an empty one; 2 trim; 4 anew: the old value counts
//!              as absent, in the first stage only, and with 1; 8 extend
//! pieces       how many
//! adds         how many
//! trim         with flag 2: the value is cut to this length
//! extend       then filled up with zeros to this length, if it is shorter: with flag 8 the number here, which
//!              is greater than the end of the last piece; otherwise that end, or 0 without pieces
//! pieces       offset, length, bytes: then written over it; in order, apart, within `extend`
//! adds         offset (a multiple of 8), delta (8 bytes): then added to the eight bytes there, wrapping
//!              around, if the value has them; in order
//! ```

mod outline;
mod stage;

use bytes::Bytes;

use super::fields::{Fields, FormatError, Trace, Writer};
use super::limits::VALUE_MAX;
use outline::outlines;
pub use outline::{apply_stages, growth_of, is_anew};
pub(super) use outline::{is_rewritten, length_after};
pub use stage::Stage;
use stage::encode_piece;

const CREATE: u8 = 1;
const TRIM: u8 = 2;
const ANEW: u8 = 4;
const EXTEND: u8 = 8;
/// 1 GiB: longer than any value; updates beyond the limits of values are refused at commit.
const BEYOND: usize = 1 << 30;
/// The least bytes of a stage, and the most bytes of a number in it.
const STAGE_MIN: usize = 3;
const NUMBER_MAX: usize = 5;
/// 8 bytes of a counter; its offset is a multiple of 8.
const CELL: usize = 8;

/// One or more patches, adds and trims, combined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update(Bytes);

impl Update {
    /// Writes `bytes` at `offset`; a gap before them is filled with zeros. An absent value stays absent unless
    /// `create`.
    pub fn patch(offset: usize, bytes: &[u8], create: bool) -> Update {
        let mut encoded = Vec::with_capacity(STAGE_MIN + 2 * NUMBER_MAX + bytes.len());
        Update::encode_patch(&mut encoded, offset, bytes, create);
        Update(encoded.into())
    }

    /// Encodes a patch into `encoded`, replacing its content.
    pub(crate) fn encode_patch(encoded: &mut Vec<u8>, offset: usize, bytes: &[u8], create: bool) {
        let offset = offset.min(BEYOND);
        let extend = offset + bytes.len();
        let (pieces, end) = if bytes.is_empty() { (0, 0) } else { (1, extend) };
        encoded.clear();
        let mut w = Writer::from(std::mem::take(encoded));
        Stage { create, extend, ..Stage::default() }.encode_head(&mut w, (pieces, end), 0);
        if pieces > 0 {
            encode_piece(&mut w, offset, bytes);
        }
        *encoded = w.finish();
    }

    /// Adds `delta` to the little-endian number of eight bytes at `offset`, a multiple of eight, if the value includes
    /// them.
    pub fn add(offset: usize, delta: i64) -> Update {
        Update::of(&[Stage { adds: vec![(offset.min(BEYOND), delta)], ..Stage::default() }])
    }

    /// As [`Update::add`], for several counters in the order of their offsets.
    pub fn add_all(adds: Vec<(usize, i64)>) -> Update {
        Update::of(&[Stage { adds, ..Stage::default() }])
    }

    /// Truncates the value to `len` bytes, if it is longer.
    pub fn trim(len: usize) -> Update {
        Update::of(&[Stage { trim: Some(len.min(BEYOND)), ..Stage::default() }])
    }

    /// Replaces the value, whether there was one or not.
    pub fn insert(value: &Bytes) -> Update {
        let pieces = if value.is_empty() { Vec::new() } else { vec![(0, value.clone())] };
        let extend = value.len();
        Update::of(&[Stage { create: true, anew: true, extend, pieces, ..Stage::default() }])
    }

    /// The update of an absent value; `None` if it creates none.
    pub fn anew(&self) -> Option<Update> {
        let mut stages = self.stages();
        let first = stages.iter().position(|stage| stage.create)?;
        stages.drain(..first);
        stages[0].anew = true;
        Some(Update::of(&stages))
    }

    /// Whether the result does not depend on the old value.
    pub fn is_anew(&self) -> bool {
        is_anew(&self.0)
    }

    /// Parses and verifies an update.
    pub fn decode(bytes: &Bytes, trace: Option<&mut dyn Trace>) -> Result<Update, FormatError> {
        Update::verify(bytes, trace)?;
        Ok(Update(bytes.clone()))
    }

    /// Verifies the bytes of an update.
    pub fn verify(bytes: &[u8], trace: Option<&mut dyn Trace>) -> Result<(), FormatError> {
        let mut f = Fields::traced(bytes, trace);
        let mut stages = 0;
        while stages == 0 || f.left() > 0 {
            f.enter("stage", Some(stages));
            let (mut adds_end, mut aligned) = (0, true);
            let add = |offset: usize| {
                adds_end = offset + CELL;
                aligned &= offset.is_multiple_of(CELL);
            };
            let stage = Stage::read(&mut f, add)?;
            if stage.anew && (stages > 0 || !stage.create) {
                return Err(f.wrong("flags", "4 in the first stage only, and with 1", "another"));
            }
            let end = stage.extend.max(stage.trim.unwrap_or(0)).max(adds_end);
            if end > VALUE_MAX || !aligned {
                return Err(f.wrong(
                    "stage",
                    "one that fits into a value, with counters in order",
                    "another",
                ));
            }
            f.leave();
            stages += 1;
        }
        Ok(())
    }

    /// An update that has been verified before.
    pub(crate) fn trusted(bytes: Bytes) -> Update {
        Update(bytes)
    }

    fn of(stages: &[Stage]) -> Update {
        let mut w = Writer::with_capacity(stages.iter().map(Stage::bytes_max).sum());
        stages.iter().for_each(|stage| stage.encode(&mut w));
        Update(w.finish().into())
    }

    /// The encoded update.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// An owned copy.
    pub fn owned(&self) -> Update {
        Update(Bytes::copy_from_slice(&self.0))
    }

    /// Its stages, in order.
    pub fn stages(&self) -> Vec<Stage> {
        outlines(&self.0).map(|outline| outline.stage(&self.0)).collect()
    }

    /// Whether it stays within values of `limit` bytes, and its counters are aligned.
    pub fn fits(&self, limit: usize) -> bool {
        let add = |offset: usize| offset.is_multiple_of(CELL) && offset + CELL <= limit;
        outlines(&self.0).all(|stage| {
            let end = stage.trim.unwrap_or(0).max(stage.extend);
            end <= limit && stage.adds().all(|(offset, _)| add(offset))
        })
    }

    /// Whether it adds to counters: only such updates must not be applied twice.
    pub fn adds(&self) -> bool {
        outlines(&self.0).any(|stage| stage.adds().next().is_some())
    }

    /// The greatest length to which it may extend a value.
    pub fn growth(&self) -> usize {
        growth_of(&self.0)
    }

    /// Whether it only trims.
    pub fn only_trims(&self) -> bool {
        outlines(&self.0).all(|stage| stage.extend == 0 && stage.adds().next().is_none())
    }

    /// Combines this update with an `older` one.
    pub fn after(&self, older: &Update) -> Update {
        if self.is_anew() {
            return self.clone();
        }
        let mut stages = older.stages();
        for stage in self.stages() {
            let joined = match stages.last_mut() {
                Some(last) => last.join(&stage),
                None => false,
            };
            if !joined {
                stages.push(stage);
            }
        }
        Update::of(&stages)
    }

    /// The value after the update; `None` for no value.
    pub fn apply(&self, value: Option<&[u8]>) -> Option<Bytes> {
        let mut changed = value.unwrap_or_default().to_vec();
        apply_stages(&self.0, &mut changed, value.is_some()).then(|| changed.into())
    }

    /// The length of the value after the update; `None` for no value.
    pub fn apply_len(&self, len: Option<usize>) -> Option<usize> {
        length_after(&self.0, len)
    }
}

fn add_to(cell: &mut [u8], delta: i64) {
    let mut number = [0; CELL];
    number.copy_from_slice(cell);
    cell.copy_from_slice(&u64::from_le_bytes(number).wrapping_add_signed(delta).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(seed: &mut u64, n: u64) -> usize {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((*seed >> 33) % n) as usize
    }

    /// The specified effect of a single update on a value.
    fn plain(update: &Stage, value: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let mut value = value.or(update.create.then(Vec::new))?;
        if let Some(len) = update.trim {
            value.truncate(len);
        }
        value.resize(value.len().max(update.extend), 0);
        for (offset, bytes) in &update.pieces {
            value[*offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        for (offset, delta) in &update.adds {
            if value.len() >= offset + 8 {
                let number = i64::from_le_bytes(value[*offset..offset + 8].try_into().unwrap());
                value[*offset..offset + 8]
                    .copy_from_slice(&number.wrapping_add(*delta).to_le_bytes());
            }
        }
        Some(value)
    }

    fn any(seed: &mut u64) -> Update {
        match random(seed, 6) {
            0 => Update::trim(random(seed, 50)),
            1 => Update::add(8 * random(seed, 6), random(seed, 1000) as i64 - 500),
            kind => {
                let bytes: Vec<u8> =
                    (0..random(seed, 14)).map(|_| 1 + random(seed, 255) as u8).collect();
                Update::patch(random(seed, 40), &bytes, kind < 4)
            }
        }
    }

    #[test]
    fn combined_in_any_order_they_do_what_they_do_one_by_one() {
        let mut seed = 5;
        for round in 0..30_000 {
            let updates: Vec<Update> =
                (0..1 + random(&mut seed, 8)).map(|_| any(&mut seed)).collect();
            // Combining neighbours in any order must give the same result.
            let mut combined = updates.clone();
            while combined.len() > 1 {
                let at = random(&mut seed, combined.len() as u64 - 1);
                let younger = combined.remove(at + 1);
                combined[at] = younger.after(&combined[at]);
            }
            let combined = &combined[0];
            assert_eq!(Update::decode(combined.bytes(), None).as_ref(), Ok(combined));
            for len in [None, Some(0), Some(random(&mut seed, 60))] {
                let start = len.map(|len| vec![0xee; len]);
                let expected = updates
                    .iter()
                    .fold(start.clone(), |value, update| plain(&update.stages()[0], value));
                let found = combined.apply(start.as_deref());
                assert_eq!(found.as_deref(), expected.as_deref(), "round {round}: {updates:?}");
                assert_eq!(combined.apply_len(len), expected.map(|value| value.len()));
                // A recovery applies updates again to a value that was bound after them.
                if len.is_some() && !updates.iter().any(Update::adds) {
                    assert_eq!(combined.apply(found.as_deref()), found);
                }
            }
        }
    }

    #[test]
    fn what_is_rewritten_is_the_younger_one() {
        let mut seed = 3;
        let mut rewritten = 0;
        for _ in 0..20_000 {
            let mut one = || {
                let update = match random(&mut seed, 8) {
                    0..=5 => {
                        let bytes = [random(&mut seed, 3) as u8; 3];
                        let len = random(&mut seed, 4);
                        let (offset, create) = (random(&mut seed, 3), random(&mut seed, 2) == 0);
                        Update::patch(offset, &bytes[..len], create)
                    }
                    6 => Update::add(8 * random(&mut seed, 2), 1),
                    _ => Update::trim(random(&mut seed, 9)),
                };
                match random(&mut seed, 3) {
                    0 => any(&mut seed).after(&update),
                    1 => update.anew().unwrap_or(update),
                    _ => update,
                }
            };
            let (older, younger) = (one(), one());
            if is_rewritten(older.bytes(), younger.bytes()) {
                assert_eq!(younger.after(&older), younger);
                rewritten += 1;
            }
        }
        assert!(rewritten > 100, "{rewritten}");
    }

    #[test]
    fn what_no_writer_makes_is_refused() {
        let sound = Update::patch(8, b"12345678", false).after(&Update::patch(20, b"x", false));
        let sound = Update::add(24, 5).after(&sound);
        assert!(Update::decode(sound.bytes(), None).is_ok());
        // Flags, both counts, both offsets, both lengths, the add's offset.
        for (at, byte) in [
            (0, 4),
            (0, 8),
            (0, 16),
            (1, 1),
            (2, 0),
            (3, 16),
            (4, 0),
            (4, 0x88),
            (13, 16),
            (14, 0),
            (14, 90),
            (16, 25),
            (16, 4),
        ] {
            let mut bytes = sound.bytes().to_vec();
            assert_ne!(bytes[at], byte);
            bytes[at] = byte;
            assert!(Update::decode(&bytes.into(), None).is_err(), "byte {at} = {byte}");
        }
        for cut in 0..sound.bytes().len() {
            assert!(
                Update::decode(&sound.bytes().slice(..cut), None).is_err(),
                "cut to {cut} bytes"
            );
        }
        // An explicit extend that is implied, and numbers longer than necessary.
        for bytes in [&[8, 0, 0, 0][..], &[8, 1, 0, 2, 1, 1, 7], &[0, 0x80, 0, 0], &[2, 0, 0]] {
            assert!(Update::decode(&Bytes::copy_from_slice(bytes), None).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn patches_and_trims_take_no_more_room_than_the_value() {
        let mut seed = 9;
        let mut update = Update::trim(4096);
        for _ in 0..20_000 {
            let more = match random(&mut seed, 10) {
                0 => Update::trim(random(&mut seed, 4096)),
                _ => Update::patch(random(&mut seed, 4092), &[7; 4], true),
            };
            update = more.after(&update);
            assert!(update.stages().len() <= 2);
        }
        assert!(update.bytes().len() < 3 * 4096);
    }
}
