//! Writes plans from beginning to end; the header, which hashes the rest, comes last.

use std::fs::File;
use std::os::unix::fs::FileExt;

use sha2::{Digest, Sha256};

use super::base::{fixed_places, hash_of};
use super::file::read;
use crate::device::PlanningDevice;
use betr_core::device::Device;
use betr_core::disk::Disk;
use betr_core::error::{Error, Place, Result};
use betr_core::format::limits::{PLAN_CHANGES_MAX, PLAN_TEXT_MAX};
use betr_core::format::{Birth, CHANGE_BYTES, Change, PlanHeader, PlanKind};
use betr_core::ids::*;

/// 64 changes are written at once.
const AT_ONCE: usize = 64;

/// Writes the changes of `view` to an empty file; `corrects` says whether there were errors before. Returns false, and
/// writes nothing, if there are no changes.
pub fn write_repair(
    view: &PlanningDevice,
    corrects: bool,
    explanation: &str,
    file: &File,
) -> Result<bool> {
    let base = view.base();
    let (fixed, birth) = fixed_places(&Disk::new(base.clone()));
    let (groups, changes) = count(view)?;
    if changes == 0 {
        return Ok(false);
    }
    let image_blocks = view.len() / BLOCK_SIZE as u64;
    let none = Birth { volume: VolumeId::default(), epoch: Epoch(0), nonce: Nonce(0) };
    let hash = |device: &dyn Device| hash_of(image_blocks, &fixed, |at, buf| read(device, at, buf));
    let header = PlanHeader {
        birth: birth.unwrap_or(none),
        kind: PlanKind::Repair,
        image_blocks,
        base: hash(&**base)?,
        result: hash(view)?,
        body: Hash::default(),
        explanation_bytes: 0,
        groups,
        changes,
        fixed: fixed.clone(),
        corrects,
    };
    write(file, header, explanation, numbered(view))?;
    Ok(true)
}

/// The effective changes; groups without any are not numbered.
fn numbered(view: &PlanningDevice) -> impl Iterator<Item = Result<Change>> {
    let (mut group, mut last) = (0, 0);
    let failed = |source| Error::Io { op: "plan what was written", place: Place::Image, source };
    let all = (0..view.changes()).filter_map(move |at| view.change(at).map_err(failed).transpose());
    all.map(move |change| {
        let change = change?;
        if change.group != last {
            (group, last) = (group + 1, change.group);
        }
        Ok(Change { group, ..change })
    })
}

fn count(view: &PlanningDevice) -> Result<(u32, u64)> {
    numbered(view).try_fold((0, 0), |(_, changes), change| Ok((change?.group, changes + 1)))
}

/// Writes a plan to an empty file. `header` need not have the length of the explanation and the hash of the body.
pub(super) fn write(
    file: &File,
    header: PlanHeader,
    explanation: &str,
    changes: impl Iterator<Item = Result<Change>>,
) -> Result<()> {
    if explanation.len() > PLAN_TEXT_MAX || header.changes > PLAN_CHANGES_MAX {
        let text = "a plan has at most 16 MiB of explanation and 2^30 changes";
        return Err(Error::Input(text.into()));
    }
    let mut header = PlanHeader { explanation_bytes: explanation.len(), ..header };
    let mut hash = Sha256::new();
    let mut at = BLOCK_SIZE as u64;
    let mut put = |bytes: &[u8]| {
        hash.update(bytes);
        write_at(file, at, bytes)?;
        at += bytes.len() as u64;
        Ok::<_, Error>(())
    };
    let mut buffer = explanation.as_bytes().to_vec();
    buffer.resize(buffer.len().next_multiple_of(BLOCK_SIZE), 0);
    put(&buffer)?;
    buffer.clear();
    for change in changes {
        buffer = change?.encode(buffer);
        if buffer.len() >= AT_ONCE * CHANGE_BYTES {
            put(&buffer)?;
            buffer.clear();
        }
    }
    put(&buffer)?;
    debug_assert_eq!(at, header.file_bytes());
    header.body = Hash(hash.finalize().into());
    write_at(file, 0, &header.encode())
}

fn write_at(file: &File, at: u64, bytes: &[u8]) -> Result<()> {
    let failed = |source| Error::Io { op: "write the plan", place: Place::Byte(at), source };
    file.write_all_at(bytes, at).map_err(failed)
}
