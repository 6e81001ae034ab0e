//! Checks the allocation table, page by page.

use super::owners::Owners;
use super::{Code, Report};
use crate::disk::Disk;
use crate::error::Place;
use crate::format::{
    ENTRIES_PER_PAGE, Entry, POINTERS_PER_PAGE, PageBody, PagePointer, Superblock,
};
use crate::ids::*;
use crate::table::read_page;

/// Checks every page; returns all entries, in the order of node ids.
pub(super) fn check(
    disk: &Disk,
    superblock: &Superblock,
    owners: &mut Owners,
    report: &mut Report,
) -> Vec<(NodeId, Entry)> {
    let root = superblock.table;
    let mut entries = Vec::new();
    let mut waiting: Vec<(u8, u64, PagePointer)> = vec![(root.levels as u8 - 1, 0, root.page)];
    while let Some((level, index, pointer)) = waiting.pop() {
        let extent = Extent { start: pointer.block, blocks: 1 };
        // A page that something else owns already is not read again: this ends every cycle.
        if !owners.take(extent, || Place::Byte(pointer.block.byte()), report) {
            continue;
        }
        let page = match read_page(disk, superblock.birth.volume, &pointer, level, index) {
            Ok(page) => page,
            Err(error) => {
                report.add_error(Code::TablePageInvalid, &error);
                owners.mark_incomplete();
                continue;
            }
        };
        let place = Place::Byte(pointer.block.byte());
        match &page.body {
            PageBody::Entries(found) => {
                let first = index * ENTRIES_PER_PAGE as u64;
                for (at, entry) in found.iter().enumerate() {
                    let id = NodeId(first + at as u64);
                    if let Some(entry) = entry {
                        check_entry(id, entry, superblock, &place, report);
                        entries.push((id, *entry));
                    }
                }
            }
            PageBody::Pointers(found) => {
                for (at, pointer) in found.iter().enumerate().rev() {
                    let child =
                        index.saturating_mul(POINTERS_PER_PAGE as u64).saturating_add(at as u64);
                    if let Some(pointer) = pointer {
                        waiting.push((level - 1, child, *pointer));
                    }
                }
            }
        }
    }
    entries
}

fn check_entry(
    id: NodeId,
    entry: &Entry,
    superblock: &Superblock,
    place: &Place,
    report: &mut Report,
) {
    if entry.birth > superblock.birth.epoch {
        let detail = format!("{id} is of epoch {}, which is yet to come", entry.birth.0);
        report.add(Code::EntryWrong, place.clone(), detail);
    }
    if id >= superblock.next_node {
        let detail = format!("{id} exists, and {} would be given out next", superblock.next_node);
        report.add(Code::CounterWrong, place.clone(), detail);
    }
}
