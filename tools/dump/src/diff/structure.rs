//! Compares two images by structure: superblocks, and the nodes that their tables name.

use std::collections::BTreeMap;

use betr_cli::Failure;
use betr_core::disk::Disk;
use betr_core::format::{Entry, Superblock, Trace};
use betr_core::ids::BLOCK_SIZE;
use betr_core::volume::{Ring, read_identity};
use betr_offline::anatomy::{Ground, Purpose};
use serde_json::{Value, json};

use crate::diff::Side;

/// A difference.
pub(crate) struct Change {
    what: String,
    before: Option<String>,
    after: Option<String>,
}

impl Change {
    pub(super) fn line(&self) -> String {
        match (&self.before, &self.after) {
            (None, Some(after)) => format!("+ {}  {after}", self.what),
            (Some(before), None) => format!("- {}  {before}", self.what),
            (before, after) => {
                let text = |side: &Option<String>| side.clone().unwrap_or_default();
                format!("~ {}  {} to {}", self.what, text(before), text(after))
            }
        }
    }

    pub(super) fn object(&self) -> Value {
        json!({ "what": self.what, "before": self.before, "after": self.after })
    }
}

/// The parts of a checkpoint by name.
type Structure = BTreeMap<String, String>;

/// The differences between the newest checkpoints of two images, sorted by name.
pub(crate) fn changes(a: &Side, b: &Side) -> Result<Vec<Change>, Failure> {
    let (a, mut b) = (structure(a)?, structure(b)?);
    let mut changes = Vec::new();
    for (what, before) in a {
        let after = b.remove(&what);
        if after.as_ref() != Some(&before) {
            changes.push(Change { what, before: Some(before), after });
        }
    }
    let added =
        b.into_iter().map(|(what, after)| Change { what, before: None, after: Some(after) });
    changes.extend(added);
    changes.sort_by(|a, b| a.what.cmp(&b.what));
    Ok(changes)
}

fn structure(side: &Side) -> Result<Structure, Failure> {
    let at_image = |error| side.failure(&error);
    let disk = Disk::new(side.device.clone());
    let identity = read_identity(&disk).map_err(at_image)?;
    let ring = Ring::read(&disk, &identity).map_err(at_image)?;
    let superblock = ring.choose(None).map_err(at_image)?;
    let mut structure = Structure::new();
    fields(&disk, superblock, &ring, &mut structure);
    let ground = Ground::of(&disk, superblock, None);
    if let Some(damage) = ground.damage.first() {
        let name = betr_cli::show::path(&side.path);
        return Err(Failure::damaged(format!(
            "{name}: {damage}\nRun 'betr fsck -fn {name}' to see all damage."
        )));
    }
    for area in ground.areas {
        if let Purpose::Node(id, entry) = area.purpose {
            structure.insert(id.to_string(), words(&entry));
        }
    }
    Ok(structure)
}

fn words(entry: &Entry) -> String {
    let kind = if entry.height.0 == 0 { "leaf".into() } else { format!("height {}", entry.height) };
    format!("{} {kind}, {} bytes, hash {}", entry.tree, entry.extent.bytes(), entry.hash)
}

/// Adds the fields of the superblock, as its decoder reads them.
fn fields(disk: &Disk, superblock: &Superblock, ring: &Ring, structure: &mut Structure) {
    let slot = ring.slots().iter().find(|slot| slot.slot == superblock.slot);
    let block = slot.and_then(|slot| disk.read(slot.byte, BLOCK_SIZE).ok());
    let Some(block) = block else { return };
    let mut listener = Listener { groups: Vec::new(), structure };
    // The block has verified before.
    let _ = Superblock::decode(&block, Some(&mut listener));
}

struct Listener<'s> {
    groups: Vec<String>,
    structure: &'s mut Structure,
}

impl Trace for Listener<'_> {
    fn enter(&mut self, name: &'static str, index: Option<usize>) {
        self.groups.push(index.map_or(format!("{name}, "), |index| format!("{name} {index}, ")));
    }

    fn leave(&mut self) {
        self.groups.pop();
    }

    fn field(
        &mut self,
        name: &'static str,
        _: std::ops::Range<usize>,
        value: &dyn std::fmt::Display,
    ) {
        let name = format!("superblock, {}{name}", self.groups.concat());
        self.structure.insert(name, value.to_string());
    }
}
