//! Adds paths to findings that name keys or zones.

use std::sync::Arc;

use betr_cli::volume::clock_now;
use betr_core::check::{Finding, Report};
use betr_core::device::Device;
use betr_core::error::Place;
use betr_core::format::{Features, MetaKey, Superblock, parse_data_key};
use betr_core::fs::Fs;
use betr_core::ids::TreeId;
use betr_core::store::CacheBudget;
use betr_core::text::Brief;
use betr_core::volume::{Mode, OpenOptions, Volume};
use betr_offline::history::Names;

/// The cache of the volume that names are read from: 32 MiB, in bytes, enough for the heads of its nodes.
const CACHE: usize = 32 << 20;

/// Adds the path to each finding whose place is a key or a zone, if the checkpoint has it.
pub(crate) fn name(report: &mut Report, device: &Arc<dyn Device>) {
    let has_key = |finding: &Finding| matches!(finding.place, Place::Key(..) | Place::Zone(_));
    let Some(superblock) = &report.superblock else { return };
    let is_files = superblock.features.incompatible & Features::KEYS == 0;
    if !is_files || !report.findings.iter().any(has_key) {
        return;
    }
    let Ok(names) = names(device, superblock) else { return };
    for Finding { place, detail, .. } in &mut report.findings {
        let Some(key) = key_of(place) else { continue };
        let path = names.path(&key);
        // An unreachable object has no path.
        if path.starts_with(b"/") {
            *detail += &format!("; path {}", Brief(&path));
        }
    }
}

/// The key of the inode to which a place belongs.
fn key_of(place: &Place) -> Option<MetaKey> {
    match place {
        Place::Key(TreeId::Metadata, key) => MetaKey::decode(key),
        Place::Key(TreeId::Data, key) => {
            parse_data_key(key).and_then(|(prefix, _)| MetaKey::decode(prefix))
        }
        Place::Zone(zone) => Some(MetaKey::root(*zone)),
        _ => None,
    }
}

fn names(device: &Arc<dyn Device>, superblock: &Superblock) -> betr_core::Result<Names> {
    let options = OpenOptions {
        slot: Some(superblock.slot),
        cache: CacheBudget::of(CACHE),
        ..OpenOptions::new(Mode::Checkpoint, Box::new(|| 0))
    };
    let volume = Volume::open(device.clone(), options)?.0;
    Ok(Names::when_needed(Fs::open(volume, Box::new(clock_now))))
}
