//! The contents of an image by path, and whether a repair reported all changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use betr_core::device::Device;
use betr_core::format::FileType;
use betr_core::fs::{Fs, Walk};
use betr_core::ids::TreeId;
use betr_core::mend::{Mended, Missing, MissingPart};
use betr_core::volume::Mode;
use betr_core::{Place, Result};

use crate::{clock, open, tight};

/// An object at a path: its metadata and attributes as text, and its contents.
pub type There = (String, Vec<u8>);

/// All objects, by path.
pub type Contents = BTreeMap<Vec<u8>, There>;

/// 1 MiB: contents of a file are compared up to this length.
const BYTES_MAX: u64 = 1 << 20;

/// Reads all objects.
pub fn contents(device: &Arc<dyn Device>) -> Result<Contents> {
    let volume = open(device.clone(), Mode::ReadOnly, tight(), 3)?.0;
    let fs = Fs::open(volume, clock(0));
    let mut walk = Walk::new(fs.root()?);
    let mut all = BTreeMap::new();
    while let Some((path, object)) = walk.next_object(&fs)? {
        let said = format!("{:?} {:?}", object.inode(), fs.xattrs(&object)?);
        let bytes = match object.inode().kind {
            FileType::Regular => fs.read(&object, 0, BYTES_MAX as usize)?,
            _ => Vec::new(),
        };
        all.insert([b"/", &path[..]].concat(), (said, bytes));
    }
    Ok(all)
}

/// Asserts that a repair reported all changes.
pub fn all_is_told(what: &str, before: &Contents, after: &Contents, mended: &Mended) {
    let found = b"/lost+found";
    let entries = |path: &[u8]| {
        let of = |missing: &&Missing| missing.what == MissingPart::Entries;
        // A loss includes everything below it, and what the directory counts.
        let above = |dir: &[u8]| {
            let below = path.strip_prefix(dir);
            below.is_some_and(|rest| dir == b"/" || rest.is_empty() || rest.starts_with(b"/"))
        };
        mended.missing.iter().filter(of).any(|missing| above(&missing.path))
    };
    let bytes = |path: &[u8], at: u64| {
        mended.missing.iter().any(|missing| match missing.what {
            MissingPart::Bytes { first, last } => {
                missing.path == path && (first..=last).contains(&at)
            }
            MissingPart::Entries | MissingPart::Attributes => false,
        })
    };
    // A file that has lost bytes may have holes.
    let full = |meta: &str| meta.replace("sparse: true", "sparse: false");
    let cut = |path: &[u8]| {
        let of = |missing: &Missing| matches!(missing.what, MissingPart::Bytes { .. });
        mended.missing.iter().any(|missing| missing.path == path && of(missing))
    };
    let attributes = |path: &[u8]| {
        let of = |missing: &Missing| missing.what == MissingPart::Attributes;
        mended.missing.iter().any(|missing| missing.path == path && of(missing))
    };
    // What is below a directory may have other numbers then.
    let numbers = |path: &[u8]| {
        let slashes = (0..path.len()).filter(|at| path[*at] == b'/');
        slashes.skip(1).any(|slash| attributes(&path[..slash]))
    };
    let unnumbered = |meta: &str| {
        let digits = |text: &str| text.trim_start_matches(|c: char| c.is_ascii_digit()).to_owned();
        let (before, after) = meta.split_once("ino: Ino(").unwrap();
        before.to_owned() + &digits(after)
    };
    // The root directory has one more entry if `lost+found` was made.
    let ours = |path: &&Vec<u8>| !path.starts_with(found) && **path != b"/";
    // A file made for contents without an inode.
    let made = |path: &[u8]| {
        let slash = path.iter().rposition(|byte| *byte == b'/').unwrap();
        let name = [&path[slash + 1..], &[0]].concat();
        mended.changes.iter().any(|change| match &change.place {
            Place::Key(TreeId::Metadata, key) => key.ends_with(&name),
            _ => false,
        })
    };
    for path in before.keys().chain(after.keys()).filter(ours) {
        match (before.get(path), after.get(path)) {
            (Some((meta, data)), Some((meta_after, data_after))) => {
                let same = meta == meta_after
                    || cut(path) && full(meta) == full(meta_after)
                    || numbers(path) && unnumbered(meta) == unnumbered(meta_after);
                assert!(same || entries(path) || attributes(path), "{what}: {path:?}: {mended:#?}");
                if data.len() == data_after.len() {
                    let differ = (0..data.len()).filter(|at| data[*at] != data_after[*at]);
                    let mut untold = differ.filter(|at| !bytes(path, *at as u64));
                    assert_eq!(untold.next(), None, "{what}: {path:?}: {mended:#?}");
                }
            }
            _ => assert!(entries(path) || made(path), "{what}: {path:?}: {mended:#?}"),
        }
    }
}
