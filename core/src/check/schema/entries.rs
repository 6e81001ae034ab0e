//! The entries of both indexes, and their sources. What is seen through a lens is visited entry by entry, up to a limit, but
//! blocks of a file with a data zone are summed up, since other paths lead to the same nodes.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::contents::{Blocks, Files};
use super::leaves::{NextLeaf, is_of_path};
use crate::error::{Error, Fault, Place, Result};
use crate::format::*;
use crate::ids::*;
use crate::store::Store;
use crate::tree::{KeyScan, Scan, Sums};

/// 1,048,576 keys, in some 100 MiB: a sound volume has none behind lenses that are no block's of a file.
const ODD_KEYS_MAX: u64 = 1 << 20;

/// A source of the entries of both indexes, leaf by leaf, with pending messages applied.
pub(in crate::check) trait Source: Sync {
    /// Announces a leaf that will be requested.
    fn announce(&self, leaf: &NextLeaf);

    /// The entries of a leaf of the metadata index.
    fn metadata(&self, store: &Store, leaf: NextLeaf) -> Result<Vec<Entry>>;

    /// The keys of a leaf of the data index, with the lengths of their values.
    fn data(&self, store: &Store, leaf: NextLeaf) -> Result<Vec<Stored>>;
}

/// Reads from the trees, with the cache.
pub(in crate::check) struct Scanned;

impl Source for Scanned {
    fn announce(&self, _: &NextLeaf) {}

    fn metadata(&self, store: &Store, NextLeaf { bounds, .. }: NextLeaf) -> Result<Vec<Entry>> {
        let mut scan = Scan::new(TreeId::Metadata, bounds.lo, bounds.hi);
        let mut entries = Vec::new();
        while let Some((key, value)) = scan.next(store)? {
            entries.push(Entry::new(key, value));
        }
        Ok(entries)
    }

    fn data(&self, store: &Store, NextLeaf { bounds, .. }: NextLeaf) -> Result<Vec<Stored>> {
        let mut scan = KeyScan::new(TreeId::Data, bounds.lo, bounds.hi);
        let mut keys = Vec::new();
        while let Some((key, len)) = scan.next(store)? {
            keys.push(Stored::Block(key, len));
        }
        Ok(keys)
    }
}

/// What the data index has.
pub(in crate::check) enum Stored {
    /// A key, and the length of its value.
    Block(Key, usize),
    /// Blocks of a file with a data zone, which this key names: of a leaf, or seen through a lens.
    OfZone(Key, Box<Blocks>),
    /// Blocks of the file with this key, in a leaf with these bounds.
    Part(Key, Box<(Blocks, Bounds)>),
}

impl Stored {
    /// Its first key.
    pub(super) fn key(&self) -> &Key {
        match self {
            Stored::Block(key, _) | Stored::OfZone(key, _) | Stored::Part(key, _) => key,
        }
    }
}

/// 2^30 entries behind lenses, in some minutes: metadata and blocks of 2,500 clones of a tree of 80,000 files. In a
/// crafted tree paths through lenses multiply at each level.
const SHOWN_ENTRIES_MAX: u64 = 1 << 30;

/// 262,144 findings, in some 60 MiB: with more of them, entries behind lenses are not visited. A crafted tree would have several
/// for each.
const FINDINGS_MAX: usize = 1 << 18;

/// 8,388,608 rows of inode numbers, in some 800 MiB: a clone of a tree of 80,000 files has 160.
const ROWS_MAX: usize = 1 << 23;

/// What a check keeps in memory.
pub(super) struct Kept {
    /// Number of findings.
    pub findings: usize,
    /// Number of rows of inode numbers.
    pub rows: usize,
}

/// The parts of both indexes that are seen through a lens.
pub(super) struct Shown {
    sums: Sums<Blocks>,
    files: Sums<Files>,
    /// The number of keys of the data index that may still be read one by one.
    left: AtomicU64,
    /// The number of entries that may still be visited.
    entries_left: AtomicU64,
}

impl Shown {
    pub(super) fn new() -> Shown {
        Shown {
            sums: Sums::new(TreeId::Data),
            files: Sums::new(TreeId::Data),
            left: AtomicU64::new(ODD_KEYS_MAX),
            entries_left: AtomicU64::new(SHOWN_ENTRIES_MAX),
        }
    }

    /// The entries of a leaf of the metadata index.
    pub(super) fn metadata(&self, store: &Store, leaf: NextLeaf) -> Result<Vec<Entry>> {
        let lo = leaf.bounds.lo.clone();
        let entries = Scanned.metadata(store, leaf)?;
        self.count(TreeId::Metadata, &lo, entries.len()).map(|()| entries)
    }

    /// The keys of a leaf of the data index, or the sum over blocks of one file.
    pub(super) fn data(&self, store: &Store, leaf: NextLeaf) -> Result<Vec<Stored>> {
        if !is_of_path(&leaf.bounds.lo) {
            return self.part(store, leaf.bounds);
        }
        let bounds = leaf.bounds;
        let parts = self.files.of_leaf(store, &bounds)?.into_parts(&bounds);
        self.count(TreeId::Data, &bounds.lo, parts.len()).map(|()| parts)
    }

    /// The keys of a part, one by one.
    pub(super) fn keys_of_part(
        &self,
        store: &Store,
        prefix: &Key,
        blocks: &Blocks,
        bounds: &Bounds,
    ) -> Result<Vec<(Key, usize)>> {
        let hi =
            if blocks.are_one_key(prefix) { Some(prefix.successor()) } else { prefix_end(prefix) };
        let file = Bounds { lo: prefix.clone(), hi }.within(bounds);
        let mut scan = KeyScan::new(TreeId::Data, file.lo.clone(), file.hi);
        let mut keys = Vec::new();
        while let Some(entry) = scan.next(store)? {
            keys.push(entry);
        }
        self.count(TreeId::Data, &file.lo, keys.len()).map(|()| keys)
    }

    /// Counts entries of a leaf that are visited.
    fn count(&self, tree: TreeId, lo: &Key, entries: usize) -> Result<()> {
        if spend(&self.entries_left, entries as u64) {
            return Ok(());
        }
        let text = format!("more than {SHOWN_ENTRIES_MAX} entries behind lenses");
        Err(Error::corrupt(Place::Key(tree, lo.to_vec()), Fault::Missing(text)))
    }

    /// Fails if too much is kept in memory to visit more entries behind lenses.
    pub(super) fn check_kept(&self, key: &Key, kept: Kept) -> Result<()> {
        let visited = SHOWN_ENTRIES_MAX - self.entries_left.load(Ordering::Relaxed);
        if kept.findings <= FINDINGS_MAX && kept.rows <= ROWS_MAX || visited <= FINDINGS_MAX as u64
        {
            return Ok(());
        }
        let text = match kept.findings > FINDINGS_MAX {
            true => format!("more than {FINDINGS_MAX} findings, and entries behind lenses"),
            false => "inode numbers behind lenses that are too far apart".into(),
        };
        let place = Place::Key(TreeId::Metadata, key.to_vec());
        Err(Error::corrupt(place, Fault::Missing(text)))
    }

    /// The sum over a part, or its keys where it is not blocks of one file.
    fn part(&self, store: &Store, bounds: Bounds) -> Result<Vec<Stored>> {
        let blocks = self.sums.of_shown(store, &bounds)?;
        if blocks.are_of_one_file(&bounds) {
            return Ok(vec![Stored::OfZone(bounds.lo, Box::new(blocks))]);
        }
        let keys = self.keys(store, &bounds, blocks.count())?.into_iter();
        Ok(keys.map(|(key, len)| Stored::Block(key, len)).collect())
    }

    /// Some keys one by one, of which there are `count`, and the lengths of their values.
    pub(super) fn keys(
        &self,
        store: &Store,
        keys: &Bounds,
        count: u64,
    ) -> Result<Vec<(Key, usize)>> {
        if !spend(&self.left, count) {
            let text = format!("more than {ODD_KEYS_MAX} keys behind lenses that are of no block");
            let place = Place::Key(TreeId::Data, keys.lo.to_vec());
            return Err(Error::corrupt(place, Fault::Missing(text)));
        }
        self.sums.keys(store, keys)
    }
}

/// Takes a number from what is left; returns false if there is not as much.
fn spend(left: &AtomicU64, count: u64) -> bool {
    let less = |left: u64| left.checked_sub(count);
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
}

/// A decoded entry of the metadata index.
pub(in crate::check) struct Entry {
    pub key: Key,
    pub value: Bytes,
    /// `None` if the key is malformed.
    pub place: Option<MetaPlace>,
    pub said: Said,
}

/// The content of an entry.
pub(in crate::check) enum Said {
    /// An extended attribute.
    Attribute,
    Inode(Brief),
    ZoneRef(ZoneRef),
    /// A malformed value.
    Malformed(Box<FormatError>),
}

/// The fields of an inode that the check keeps.
#[derive(Clone, Copy)]
pub(in crate::check) struct Brief {
    pub kind: FileType,
    pub ino: Ino,
    pub links: u32,
    pub size: u64,
    pub data_zone: Option<ZoneId>,
    pub sparse: bool,
    pub lineage: Lineage,
}

impl Entry {
    /// Decodes an entry.
    pub(crate) fn new(key: Key, value: Bytes) -> Entry {
        let place = MetaPlace::of(&key);
        let said = match place.is_some_and(|place| place.xattr(&key).is_some()) {
            true => Said::Attribute,
            false => match MetaValue::decode(&value, None) {
                Ok(MetaValue::Inode(inode)) => {
                    let Inode { kind, ino, links, size, data_zone, sparse, lineage, .. } = inode;
                    Said::Inode(Brief { kind, ino, links, size, data_zone, sparse, lineage })
                }
                Ok(MetaValue::ZoneRef(zone)) => Said::ZoneRef(zone),
                Err(error) => Said::Malformed(Box::new(error)),
            },
        };
        Entry { key, value, place, said }
    }

    /// The complete inode.
    pub(crate) fn inode(&self) -> Option<Inode> {
        match MetaValue::decode(&self.value, None) {
            Ok(MetaValue::Inode(inode)) => Some(inode),
            _ => None,
        }
    }
}
