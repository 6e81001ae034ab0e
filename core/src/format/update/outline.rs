//! Reads and applies verified updates in encoded form, without decoding them into stages.

use super::*;
use crate::format::fields::varint;

/// An encoded stage: its fields, and the bytes of its pieces and adds.
pub(super) struct Outline<'u> {
    pub create: bool,
    pub anew: bool,
    pub trim: Option<usize>,
    pub extend: usize,
    pub pieces: &'u [u8],
    pub adds: &'u [u8],
}

impl<'u> Outline<'u> {
    /// The stage; `update` has its bytes.
    pub(super) fn stage(&self, update: &Bytes) -> Stage {
        let Outline { create, anew, trim, extend, .. } = *self;
        let pieces = self.pieces().map(|(offset, bytes)| (offset, update.slice_ref(bytes)));
        let (pieces, adds) = (pieces.collect(), self.adds().collect());
        Stage { create, anew, trim, extend, pieces, adds }
    }

    pub(super) fn pieces(&self) -> impl Iterator<Item = (usize, &'u [u8])> + use<'u> {
        let mut rest = self.pieces;
        std::iter::from_fn(move || take_piece(&mut rest))
    }

    pub(super) fn adds(&self) -> impl Iterator<Item = (usize, i64)> + use<'u> {
        let mut rest = self.adds;
        std::iter::from_fn(move || take_add(&mut rest))
    }

    fn apply(&self, value: &mut Vec<u8>) {
        if let Some(len) = self.trim {
            value.truncate(len);
        }
        if value.len() < self.extend {
            value.resize(self.extend, 0);
        }
        for (offset, bytes) in self.pieces() {
            value[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        for (offset, delta) in self.adds() {
            if let Some(cell) = value.get_mut(offset..offset + CELL) {
                add_to(cell, delta);
            }
        }
    }
}

/// The length of a value after a verified update; `None` for no value.
pub(crate) fn length_after(update: &[u8], mut len: Option<usize>) -> Option<usize> {
    for stage in outlines(update) {
        len = len.filter(|_| !stage.anew);
        if stage.create {
            len = Some(len.unwrap_or(0));
        }
        len = len.map(|len| len.min(stage.trim.unwrap_or(len)).max(stage.extend));
    }
    len
}

/// Applies a verified update in place. `present` says whether there is a value; without one `value` must be empty.
/// Returns whether there is a value afterwards.
pub fn apply_stages(update: &[u8], value: &mut Vec<u8>, mut present: bool) -> bool {
    for stage in outlines(update) {
        if stage.anew {
            value.clear();
        }
        present |= stage.create;
        if present {
            stage.apply(value);
        }
    }
    present
}

/// The greatest length to which a verified update may extend a value; 1 if it only creates an empty one.
pub fn growth_of(update: &[u8]) -> usize {
    outlines(update).map(|stage| stage.extend.max(usize::from(stage.create))).max().unwrap_or(0)
}

/// Whether the result of a verified update does not depend on the old value.
pub fn is_anew(update: &[u8]) -> bool {
    update.first().is_some_and(|flags| flags & ANEW != 0)
}

/// Whether both updates only write one piece each, to the same place, so that the younger replaces the older. This is
/// common for a field that is written repeatedly.
pub(crate) fn is_rewritten(older: &[u8], younger: &[u8]) -> bool {
    let mut stages = outlines(younger);
    let Some(stage) = stages.next() else { return false };
    let mut pieces = stage.pieces();
    let Some((_, piece)) = pieces.next() else { return false };
    // Everything before the bytes of the piece describes it.
    let front = younger.len() - piece.len();
    stage.trim.is_none()
        && stage.adds.is_empty()
        && pieces.next().is_none()
        && stages.next().is_none()
        && older.len() == younger.len()
        && older[..front] == younger[..front]
}

/// The stages of a verified update, not decoded.
pub(super) fn outlines(update: &[u8]) -> impl Iterator<Item = Outline<'_>> {
    let mut rest = update;
    std::iter::from_fn(move || {
        let (flags, body) = rest.split_first()?;
        rest = body;
        let (pieces, adds) = (number(&mut rest)?, number(&mut rest)?);
        let trim = if flags & TRIM != 0 { Some(number(&mut rest)?) } else { None };
        let extend = if flags & EXTEND != 0 { Some(number(&mut rest)?) } else { None };
        let (mut end, body) = (0, rest);
        for _ in 0..pieces {
            let (offset, piece) = take_piece(&mut rest)?;
            end = offset + piece.len();
        }
        let (pieces, body) = body.split_at(body.len() - rest.len());
        for _ in 0..adds {
            take_add(&mut rest)?;
        }
        let (create, anew) = (flags & CREATE != 0, flags & ANEW != 0);
        let adds = &body[..body.len() - rest.len()];
        Some(Outline { create, anew, trim, extend: extend.unwrap_or(end), pieces, adds })
    })
}

/// Takes a number from the front.
fn number(rest: &mut &[u8]) -> Option<usize> {
    // Most numbers have one byte.
    let (after, number) = match *rest {
        [byte @ ..0x80, after @ ..] => (after, usize::from(*byte)),
        _ => varint(rest).map(|(after, number)| (after, number as usize)).ok()?,
    };
    *rest = after;
    Some(number)
}

fn take_piece<'u>(rest: &mut &'u [u8]) -> Option<(usize, &'u [u8])> {
    let (offset, len) = (number(rest)?, number(rest)?);
    let (piece, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some((offset, piece))
}

fn take_add(rest: &mut &[u8]) -> Option<(usize, i64)> {
    let offset = number(rest)?;
    let (delta, after) = rest.split_first_chunk::<CELL>()?;
    *rest = after;
    Some((offset, i64::from_le_bytes(*delta)))
}
