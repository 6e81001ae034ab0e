//! Reports the losses of a damaged log, by path.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{Code, Report};
use crate::device::Device;
use crate::error::{Place, Result};
use crate::format::limits::FILE_BLOCK;
use crate::format::{Key, MetaKey, parse_data_key};
use crate::fs::{Fs, Walk};
use crate::ids::*;
use crate::log::Survey;
use crate::volume::{Mode, OpenOptions, Volume};

/// Adds a finding for each acknowledged value and operation that is lost.
pub(super) fn report(device: &Arc<dyn Device>, survey: &Survey, report: &mut Report) {
    let values = survey.lost.iter().map(|lost| (TreeId::Data, &lost.key));
    let operations = survey.beyond.iter().map(|record| (record.tree, &record.key));
    let keys = values.chain(operations);
    let zones = keys.filter_map(|(tree, key)| Some(object_of(tree, key)?.zone())).collect();
    let slot = report.superblock.as_ref().map(|superblock| superblock.slot);
    let names = Names::of(device, slot, zones).unwrap_or_default();
    for lost in &survey.lost {
        let place = names.place(TreeId::Data, &lost.key);
        let bytes = bytes_of(&lost.key, lost.messages.count);
        let code = if lost.unreadable { Code::ReadFailed } else { Code::ValueLost };
        report.add(code, place, format!("{bytes}, {}", lost.damage));
    }
    for record in &survey.beyond {
        let sure = if record.verifies { "" } else { ", as far as it can be read" };
        let detail = format!("{} {}{sure}", Place::Record(record.lsn), record.op.name());
        report.add(Code::OperationLost, names.place(record.tree, &record.key), detail);
    }
    for lsns in &survey.illegible {
        let detail = format!("what was done from there to before {} cannot be read", lsns.end);
        report.add(Code::OperationLost, Place::Record(lsns.start), detail);
    }
}

/// The bytes of its file that `count` keys of the data index represent, as text.
fn bytes_of(key: &Key, count: u32) -> String {
    let block = parse_data_key(key).map_or(0, |(_, block)| block);
    let first = u128::from(block) * FILE_BLOCK as u128;
    format!("bytes {first} to {}", first + u128::from(count) * FILE_BLOCK as u128 - 1)
}

/// The object of a key.
fn object_of(tree: TreeId, key: &[u8]) -> Option<MetaKey> {
    let key = match tree {
        TreeId::Data => parse_data_key(key)?.0,
        TreeId::Metadata => key,
    };
    MetaKey::decode(key)
}

/// Paths of the requested zones.
#[derive(Default)]
struct Names(HashMap<ZoneId, Vec<u8>>);

impl Names {
    /// Finds the zones in the part of the log that can be replayed.
    fn of(device: &Arc<dyn Device>, slot: Option<u32>, wanted: HashSet<ZoneId>) -> Result<Names> {
        let open = OpenOptions { slot, ..OpenOptions::new(Mode::ReadOnly, Box::new(|| 0)) };
        let (volume, _) = Volume::open(device.clone(), open)?;
        let fs = Fs::open(volume, Box::new(Time::default));
        let mut names = Names::default();
        let mut walk = Walk::new(fs.root()?);
        while let Some((path, object)) = walk.next_object(&fs)? {
            let path = [b"/", &path[..]].concat();
            for zone in object.inode().data_zone.into_iter().chain(object.zone()) {
                if wanted.contains(&zone) {
                    names.0.entry(zone).or_insert_with(|| path.clone());
                }
            }
        }
        Ok(names)
    }

    /// The path of a key if it is known, else the key.
    fn place(&self, tree: TreeId, key: &Key) -> Place {
        let object = object_of(tree, key);
        let found = object.and_then(|object| Some((self.0.get(&object.zone())?, object)));
        match found {
            Some((path, object)) => {
                let mut path = path.clone();
                for name in object.names() {
                    if path.last() != Some(&b'/') {
                        path.push(b'/');
                    }
                    path.extend_from_slice(name);
                }
                Place::Path(path)
            }
            None => Place::Key(tree, key.to_vec()),
        }
    }
}
