//! How far a plan has come on an image, and carrying it out from there.

use super::Plan;
use super::file::{Neighbours, read};
use betr_core::device::{Device, SECTOR};
use betr_core::error::{Error, Fault, Place, Result};
use betr_core::format::Change;
use betr_core::ids::*;

/// How far a plan has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing of it is there.
    Untouched,
    /// All groups before this one are there, and perhaps some of it.
    Half {
        /// The group.
        next: u32,
    },
    /// All of it is there.
    Whole,
}

/// Finds out how far a plan has come on the image on `device`. An image that is not on the way from before the plan
/// to after it is refused.
///
/// A device writes sectors as a whole. So on the way, when group *n* is being written, each sector of its blocks is as
/// before or as afterwards, what groups before *n* change is as they leave it, and everything else as it was. Each
/// change rules out some *n*; what is left fits.
pub fn locate(plan: &Plan, device: &dyn Device) -> Result<Standing> {
    plan.verify_base(device)?;
    let end = plan.header().groups + 1;
    // Where what rules out a group begins, less where it ends.
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
        // Where blocks are changed back, it may look as if some groups were there.
        Some(_) if !touched => Ok(Standing::Untouched),
        Some(next) => Ok(Standing::Half { next }),
        None => Err(why_none_fits(plan, device)?),
    }
}

/// A block that cannot be as it is at any time; or that they do not go together.
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

/// Whether each sector is as before or as afterwards.
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

/// Carries out what is left of a plan, durably. Returns how far it had come.
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
        // Before the first group, too: what is there already may have been written by somebody who was killed.
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
