//! The differences between another moment and the current one: paths, keys, and rewritten nodes.

use std::ops::ControlFlow;
use std::sync::Arc;

use betr_cli::changes;
use betr_cli::volume::clock_now;
use betr_core::address::Address;
use betr_core::device::Device;
use betr_core::disk::Disk;
use betr_core::format::Superblock;
use betr_core::fs::open_as_of;
use betr_core::ids::{Msn, TreeId};
use betr_core::volume::{Moment, OpenOptions, Ring};
use betr_offline::compare::{self, What};
use betr_offline::history::{touched_between, touched_since_checkpoint};

use super::{key_of, text};
use crate::image::Image;
use crate::sheet::{Cell, Role, Row, Sheet, column, rest};
use crate::spot::Spot;
use crate::words;
use crate::work::Work;

/// The most changed paths that are listed.
const CHANGES_MAX: usize = 100_000;
/// The most key ranges that are listed.
const KEYS_MAX: usize = 10_000;

/// Compares the state of `from` with the current one.
pub(super) fn difference(image: &Image, from: Moment, work: &Arc<Work>) -> Result<Sheet, String> {
    let device = image.raw(work);
    let to = image.moment.clone().unwrap_or(Moment::Now);
    let open = |moment: &Moment| {
        let found = moment.find(&device).map_err(text)?;
        let options = OpenOptions::new(found.mode, Box::new(|| 0));
        let (fs, recovery) =
            open_as_of(device.clone(), found.clone(), options, Box::new(clock_now))
                .map_err(text)?;
        let end = recovery.stopped.as_ref().map(|stopped| Msn(stopped.before.0));
        let end = end.unwrap_or(fs.volume().next_msn());
        Ok::<_, String>((fs, found, end))
    };
    let (a, from_found, from_end) = open(&from)?;
    let (b, to_found, to_end) = open(&to)?;
    // Two states after the same checkpoint differ only in the keys that the records between them changed.
    let are_kept = from_found.snapshot.is_some() || to_found.snapshot.is_some();
    let touched = match from_found.slot == to_found.slot && !are_kept {
        true => {
            let superblock = superblock_in(image, &device, from_found.slot)?;
            Some(touched_between(&device, &superblock, from_end, to_end).map_err(text)?)
        }
        false => None,
    };
    let mut rows = Vec::new();
    let mut count = 0usize;
    let narrowed = match &touched {
        Some(touched) => Some(touched.clone()),
        None => {
            let before = touched_since_checkpoint(&device, &from_found, from_end).map_err(text)?;
            let after = touched_since_checkpoint(&device, &to_found, to_end).map_err(text)?;
            compare::touched(a.volume(), b.volume(), [before, after])
        }
    };
    compare::compare(&a, &b, narrowed.as_ref(), &mut |change| {
        count += 1;
        if rows.len() < CHANGES_MAX {
            let (mark, role) = match &change.what {
                What::Added(_) => ("+", Role::Good),
                What::Removed(_) => ("-", Role::Bad),
                What::Changed(_) => ("~", Role::Warn),
            };
            let line = changes::line(&change);
            let cells = vec![
                Cell::new(role, mark),
                Cell::from(line.get(2..).unwrap_or_default().to_owned()),
            ];
            rows.push(Row::of(cells).to([Spot::At(Address::Path(change.path))]));
        }
        work.step(count as u64, 0);
        if work.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .map_err(text)?;
    if work.is_cancelled() {
        return Err("given up".into());
    }
    if let Some(touched) = &touched {
        for (tree, ranges) in [TreeId::Metadata, TreeId::Data].into_iter().zip(touched) {
            for range in ranges.iter().take(KEYS_MAX) {
                let (lo, hi) = (range.lo, range.hi);
                let is_one = lo.successor() == hi;
                let shown = if is_one {
                    key_of(tree, &lo)
                } else {
                    format!("{} up to {}", key_of(tree, &lo), key_of(tree, &hi))
                };
                let cells = vec![
                    Cell::new(Role::Dim, "k"),
                    Cell::new(Role::Dim, format!("{tree} index: {shown}")),
                ];
                rows.push(Row::of(cells).to([Spot::At(Address::Key(tree, lo))]));
            }
        }
    } else {
        rows.extend(rewritten(image, work, from_found.epoch.0)?);
    }
    let (from, to) = (words::moment(&from), words::moment(&to));
    let title = format!("from {from} to {to}: {} paths", words::number(count as u64));
    let sheet = Sheet::new(title, vec![column("", 1), rest("what is different")], rows);
    Ok(sheet.note(
        Role::Dim,
        "+ added   - removed   ~ changed   k keys touched   n nodes written since",
    ))
}

/// The superblock in a slot.
fn superblock_in(image: &Image, device: &Arc<dyn Device>, slot: u32) -> Result<Superblock, String> {
    let identity = image.identity.as_ref().ok_or("no identity block verifies")?;
    let ring = Ring::read(&Disk::new(device.clone()), identity).map_err(text)?;
    ring.choose(Some(slot)).cloned().map_err(text)
}

/// The nodes that were written after an epoch.
fn rewritten(image: &Image, work: &Arc<Work>, epoch: u64) -> Result<Vec<Row>, String> {
    use betr_offline::anatomy::Purpose;
    let ground = image.ground(work)?;
    let newer = ground.areas.iter().filter_map(|area| match area.purpose {
        Purpose::Node(id, entry) if entry.birth.0 > epoch => Some((id, entry)),
        _ => None,
    });
    let row = |(id, entry): (betr_core::ids::NodeId, betr_core::format::Entry)| {
        let at = entry.extent.start.byte();
        let what = format!(
            "{id} height {}, {} index, written for epoch {} at b:{at:#x}",
            entry.height.0, entry.tree, entry.birth.0
        );
        Row::of(vec![Cell::new(Role::Link, "n"), Cell::from(what)])
            .to([Spot::node(id), Spot::byte(at)])
    };
    Ok(newer.map(row).collect())
}
