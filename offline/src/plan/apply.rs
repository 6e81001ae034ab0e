//! Finds how far a plan has been applied to an image, and applies the rest.

use super::Plan;
use super::file::{Neighbours, read};
use betr_core::device::{Device, SECTOR};
use betr_core::error::{Error, Fault, Place, Result};
use betr_core::format::Change;
use betr_core::ids::*;

/// How far a plan has been applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// None of it.
    Untouched,
    /// All groups before `next`, and perhaps parts of that group.
    Half {
        /// The group.
        next: u32,
    },
    /// All of it.
    Whole,
}

/// Finds how far a plan has been applied to the image on `device`. Refuses an image that is in no state between before
/// and after the plan.
///
/// A device writes sectors atomically. So while group *n* is being written, each sector of its blocks is either old or
/// new. Blocks of groups before *n* are as these leave them, and all others are unchanged. Each change excludes some
/// *n*; the remaining ones are possible.
pub fn locate(plan: &Plan, device: &dyn Device) -> Result<Standing> {
    plan.verify_base(device)?;
    let end = plan.header().groups + 1;
    // Difference array of the groups that are excluded.
    let mut ruled_out = Vec::new();
    let mut touched = false;
    let mut found = vec![0; BLOCK_SIZE];
    for number in 0..plan.header().changes {
        let change = plan.change(number)?;
        read(device, change.block.byte(), &mut found)?;
        let (is_old, is_new) = (found == change.old[..], found == change.new[..]);
        let Neighbours { before, last } = plan.neighbours(&change);
        let group = change.group;
        let mut rule_out = |from: u32, to: u32| {
            ruled_out.resize(ruled_out.len().max(to as usize + 1), 0i64);
            ruled_out[from as usize] += 1;
            ruled_out[to as usize] -= 1;
        };
        if !is_old {
            rule_out(before + 1, group);
        }
        if !is_new && last {
            rule_out(group + 1, end + 1);
        }
        if !is_mixture(&change, &found) {
            rule_out(group, group + 1);
        }
        touched |= before == 0 && !is_old;
    }
    let mut sum = 0;
    let mut fits = None;
    for group in 1..=end {
        sum += ruled_out.get(group as usize).copied().unwrap_or(0);
        if sum == 0 {
            fits = Some(group);
        }
    }
    match fits {
        Some(group) if group == end => Ok(Standing::Whole),
        // If blocks are changed back and forth, some groups may seem to be there.
        Some(_) if !touched => Ok(Standing::Untouched),
        Some(next) => Ok(Standing::Half { next }),
        None => Err(why_none_fits(plan, device)?),
    }
}

/// The error for an image that fits no state: a block that fits at no time, or blocks that do not fit together.
fn why_none_fits(plan: &Plan, device: &dyn Device) -> Result<Error> {
    let mut found = vec![0; BLOCK_SIZE];
    for numbers in plan.by_block() {
        let mut fits = false;
        let mut first = None;
        for number in numbers {
            let change = plan.change(number)?;
            read(device, change.block.byte(), &mut found)?;
            fits |= is_mixture(&change, &found);
            first.get_or_insert(change);
        }
        if let Some(change) = first.filter(|_| !fits) {
            return Ok(mismatch(&change, &found));
        }
    }
    let expected = "some groups of the plan, in their order";
    let fault = Fault::mismatch("changes", expected, "others without those before them");
    Ok(Error::other_image(Place::Image, fault))
}

/// Whether each sector is either old or new.
fn is_mixture(change: &Change, found: &[u8]) -> bool {
    let sectors =
        found.chunks(SECTOR).zip(change.old.chunks(SECTOR).zip(change.new.chunks(SECTOR)));
    sectors.into_iter().all(|(found, (old, new))| found == old || found == new)
}

fn mismatch(change: &Change, found: &[u8]) -> Error {
    let [old, new] = [&change.old, &change.new].map(|bytes| Hash::of(&bytes[..]));
    let expected = format_args!("bytes of hash {old} before, or {new} after");
    let fault = Fault::mismatch("block", expected, format_args!("hash {}", Hash::of(found)));
    Error::other_image(Place::Byte(change.block.byte()), fault)
}

/// Applies the rest of a plan, durably. Returns how far it had been applied.
///
/// Nothing is written to an image that [`locate`] refuses.
pub fn apply(plan: &Plan, device: &dyn Device) -> Result<Standing> {
    let standing = locate(plan, device)?;
    let next = match standing {
        Standing::Whole => return Ok(standing),
        Standing::Untouched => 1,
        Standing::Half { next } => next,
    };
    let mut group = None;
    for number in 0..plan.header().changes {
        let change = plan.change(number)?;
        if change.group < next {
            continue;
        }
        // Before the first group, too: an interrupted process may have written the existing changes without a flush.
        if group != Some(change.group) {
            flush(device)?;
            group = Some(change.group);
        }
        let at = change.block.byte();
        let failed = |source| Error::Io { op: "write", place: Place::Byte(at), source };
        device.write_at(at, &change.new[..]).map_err(failed)?;
    }
    flush(device)?;
    match locate(plan, device)? {
        Standing::Whole => Ok(standing),
        _ => {
            let text = "what was written is not what is read".into();
            Err(Error::corrupt(Place::Image, Fault::Missing(text)))
        }
    }
}

fn flush(device: &dyn Device) -> Result<()> {
    let failed = |source| Error::Io { op: "flush", place: Place::Image, source };
    device.flush().map_err(failed)
}
