//! The file system over the two trees: names, inodes, zones and the POSIX operations.
//!
//! Every operation is one transaction of resolved messages, built as a draft. Preparations, such as splitting a zone
//! before a directory outgrows it, are transactions of their own without visible effect.
//!
//! An object is used by a handle, an [`Object`], which knows the place of its inode.

pub mod acl;
mod allocate;
mod attributes;
mod census;
mod clones;
mod copy;
mod data;
mod draft;
mod make;
mod numbers;
mod object;
mod orphans;
mod past;
mod reflink;
mod relocate;
mod remove;
mod rename;
mod resolve;
mod shared;
mod walk;
mod xattrs;
mod zones;

use std::sync::Arc;

use crate::error::{Error, Place, Refusal, Result};
use crate::format::*;
use crate::ids::*;
use crate::tree::{Request, Streams};
use crate::volume::{Checkpoint, HoldChange, Pruned, Volume};

pub use crate::format::limits::{FIRST_INO, FIRST_ZONE};
pub use allocate::{Allocate, Seek};
pub use attributes::Changes;
pub use census::{Zone, ZoneKind, ZonePath, zone_path};
pub use copy::{Copied, CopyLinks, CopyStopped, CopyTo, Since};
pub use data::{Blocks, Stored, data_prefix};
pub(crate) use draft::whole_blocks;
use draft::{Delta, Draft};
pub use make::{Attributes, Contents, New};
pub use object::Object;
use object::{Live, Placed};
pub(crate) use orphans::orphan_name;
pub use past::open_as_of;
pub use rename::Over;
pub use resolve::{LastLink, Resolved, Slot};
pub use shared::{Shared, Unlink};
pub use walk::{Visit, Walk};
pub use xattrs::xattr_bytes;
use zones::Small;
pub use zones::{parse_small, small_name};

/// The zone of the root directory.
pub const ROOT_ZONE: ZoneId = ZoneId(0);
/// The zone of the orphan directory, for objects that are unlinked but still open.
pub const ORPHAN_ZONE: ZoneId = ZoneId(1);
/// The inode number of the root directory.
pub const ROOT_INO: Ino = Ino(1);
/// The inode number of the orphan directory.
pub const ORPHAN_INO: Ino = Ino(2);

/// Returns the current time.
pub type Clock = Box<dyn FnMut() -> Time + Send + Sync>;

/// The file system of a volume.
pub struct Fs {
    volume: Volume,
    clock: Clock,
    sizes: ZoneSizes,
    live: Arc<Live>,
    /// Zones that are too small; `None` until they have been read.
    small: Option<Small>,
    /// The most messages of one recursive deletion.
    remove_at_once: usize,
    /// Orphans that could not be deleted; they are tried again at the next checkpoint.
    stuck: Vec<Ino>,
    /// Number of transactions: results of earlier reads may be stale.
    changes: u64,
    /// Transactions since the last [`Fs::take_trail`]; `None` if they are not recorded.
    trail: Option<Vec<(Op, Msn)>>,
    /// Reads of contents.
    contents: Streams,
    /// Listings of directories.
    listings: Streams,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// The type of its object.
    pub kind: FileType,
    /// The inode number of its object.
    pub ino: Ino,
    value: MetaValue,
    directory: Object,
    seen: u64,
}

/// The rest of a directory listing, in the order of names. Changes behind its position are not seen; entries that stay
/// are listed once.
pub struct Listing {
    directory: Object,
    rest: Rest,
    lineage: Lineage,
    seen: u64,
    /// The last name listed.
    after: Option<Vec<u8>>,
}

/// What is left of a listing, as of the state when it was read last.
enum Rest {
    Unread,
    Reading(Request),
    Nothing,
}

impl Fs {
    /// Puts a root directory and an orphan directory into a new volume.
    pub fn format(volume: Volume, clock: Clock, root: Attributes) -> Result<Fs> {
        let mut fs = Fs::open(volume, clock);
        let now = fs.now();
        let orphans = Attributes { perm: 0o700, ..Attributes::at(now) };
        let mut draft = Draft::new(now, fs.sizes);
        for (zone, ino, attributes) in
            [(ROOT_ZONE, ROOT_INO, root), (ORPHAN_ZONE, ORPHAN_INO, orphans)]
        {
            let inode = Inode { links: 2, ..attributes.inode(FileType::Directory, ino, now) };
            draft.insert_inode(&MetaKey::root(zone), &inode, Lineage::NONE);
        }
        fs.small = Some(Small::default());
        fs.commit(Op::Format, draft)?;
        Ok(fs)
    }

    /// The file system of an open volume.
    pub fn open(volume: Volume, clock: Clock) -> Fs {
        let sizes = volume.superblock().zones;
        Fs {
            volume,
            clock,
            sizes,
            live: Arc::default(),
            small: None,
            remove_at_once: remove::MESSAGES_AT_ONCE,
            stuck: Vec::new(),
            changes: 0,
            trail: None,
            contents: Streams::new(TreeId::Data),
            listings: Streams::new(TreeId::Metadata),
        }
    }

    /// The volume.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The volume, for sync.
    pub fn volume_mut(&mut self) -> &mut Volume {
        &mut self.volume
    }

    /// Returns the volume.
    pub fn into_volume(self) -> Volume {
        self.volume
    }

    /// Sets the most messages of one recursive deletion; larger trees are deleted in pieces.
    pub fn remove_at_once(&mut self, messages: usize) {
        self.remove_at_once = messages;
    }

    /// Starts to record transactions.
    pub fn keep_trail(&mut self) {
        self.trail.get_or_insert_default();
    }

    /// The transactions since the last call, each with the MSN after it.
    pub fn take_trail(&mut self) -> Vec<(Op, Msn)> {
        self.trail.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The current time.
    pub fn now(&mut self) -> Time {
        (self.clock)()
    }

    /// Merges zones that are too small, and makes a checkpoint. Damaged zones are left as they are.
    pub fn checkpoint(&mut self) -> Result<()> {
        let checkpoint = self.begin_checkpoint(Pruned::All)?;
        let waited = checkpoint.wait();
        self.volume.end_checkpoint(checkpoint, waited)
    }

    fn begin_checkpoint(&mut self, pruned: Pruned) -> Result<Checkpoint> {
        self.tidy()?;
        let now = self.now();
        self.volume.note_time(now);
        self.volume.begin_checkpoint(pruned)
    }

    /// The first step of a change of snapshots ([`Volume::begin_hold_change`]). A rollback makes all handles stale.
    pub fn begin_hold_change(&mut self, change: &HoldChange) -> Result<Option<Checkpoint>> {
        let begun = self.volume.begin_hold_change(change);
        // A rollback that fails midway has replaced the trees as well.
        let is_replaced = begun.is_ok() || self.volume.has_failed();
        if matches!(change, HoldChange::RollBack { .. }) && is_replaced {
            (self.live, self.small) = (Arc::default(), None);
            self.stuck.clear();
            self.changes += 1;
        }
        begun
    }

    /// Rolls back to a snapshot, durably ([`Volume::roll_back`]). Makes all handles stale.
    pub fn roll_back(&mut self, to: &str, drop_younger: bool) -> Result<()> {
        let change = HoldChange::RollBack { to: to.into(), drop_younger };
        let Some(checkpoint) = self.begin_hold_change(&change)? else { return Ok(()) };
        let waited = checkpoint.wait();
        self.volume.end_hold_change(checkpoint, waited)
    }

    /// Deletes orphans that are no longer in use.
    pub fn reap(&mut self) -> Result<()> {
        let left = self.small.is_none() && self.count_orphans()? > 0;
        match left || self.live.has_gone() {
            true => self.begin().map(drop),
            false => Ok(()),
        }
    }

    /// The root directory.
    pub fn root(&self) -> Result<Object> {
        self.zone_root(ROOT_ZONE, ROOT_INO)
    }

    fn orphans(&self) -> Result<Object> {
        self.zone_root(ORPHAN_ZONE, ORPHAN_INO)
    }

    /// The root of a zone, whose inode number is known.
    fn zone_root(&self, zone: ZoneId, ino: Ino) -> Result<Object> {
        match self.live.get(ino) {
            Some(object) if object.zone() == Some(zone) => Ok(object),
            _ => {
                let place = MetaKey::root(zone);
                let inode = self.root_inode(zone)?;
                if inode.ino != ino {
                    let (expected, found) = (format!("inode {ino}"), format!("{}", inode.ino));
                    return Err(self.damaged(&place, &expected, &found));
                }
                self.enter(inode, Placed { zone: Some(zone), up: None })
            }
        }
    }

    /// The handle of an object at this place.
    fn enter(&self, inode: Inode, place: Placed) -> Result<Object> {
        let ino = inode.ino;
        let object = self.live.enter(inode, place.clone());
        let known = object.placed();
        let same = match place.zone {
            Some(_) => known.zone == place.zone,
            None => known.zone.is_none() && known.up == place.up,
        };
        if !same {
            let (known, place) = (object.place(), place.key());
            let found =
                format!("inode {ino} there and under {}", crate::text::printable(&known.encode()));
            return Err(self.damaged(&place, "an inode in one place", &found));
        }
        if place.zone.is_some() && place.up.is_some() && known.up != place.up {
            object.put(place);
        }
        Ok(object)
    }

    /// The object that `name` in `directory` refers to.
    pub fn lookup(&self, directory: &Object, name: &[u8]) -> Result<Object> {
        self.find(directory, name)?.ok_or(Refusal::NotFound.into())
    }

    /// The object that `name` in `directory` refers to, if it exists.
    pub fn find(&self, directory: &Object, name: &[u8]) -> Result<Option<Object>> {
        if !directory.is_directory() {
            return Err(Refusal::NotADirectory.into());
        }
        check_name(name)?;
        match self.value(&directory.place().child(name), directory.lineage())? {
            None => Ok(None),
            Some(value) => self.follow(directory, name, value).map(Some),
        }
    }

    /// The object at a canonical path. Symbolic links are not followed, and `..` is an error. Operands of commands are
    /// resolved by [`Fs::look_up`].
    pub fn resolve(&self, path: &[u8]) -> Result<Object> {
        let mut object = self.root()?;
        for name in components(path) {
            object = self.lookup(&object, name)?;
        }
        Ok(object)
    }

    /// The parent directory of a canonical path, and its last component. Operands of commands are resolved by [`Fs::slot`].
    pub fn resolve_parent<'p>(&self, path: &'p [u8]) -> Result<(Object, &'p [u8])> {
        let mut names: Vec<&[u8]> = components(path).collect();
        let last = names.pop().ok_or(Refusal::Invalid)?;
        let mut object = self.root()?;
        for name in names {
            object = self.lookup(&object, name)?;
        }
        Ok((object, last))
    }

    /// A listing of a directory, from its beginning or after a name.
    pub fn listing(&self, directory: &Object, after: Option<&[u8]>) -> Result<Listing> {
        if !directory.is_directory() {
            return Err(Refusal::NotADirectory.into());
        }
        let after = after.map(<[u8]>::to_vec);
        let (directory, lineage) = (directory.clone(), Lineage::NONE);
        Ok(Listing { directory, rest: Rest::Unread, lineage, seen: 0, after })
    }

    /// The next entry of a listing.
    pub fn next_entry(&self, listing: &mut Listing) -> Result<Option<DirEntry>> {
        if listing.seen != self.changes || matches!(listing.rest, Rest::Unread) {
            let place = listing.directory.place();
            let (mut lo, hi) = place.entry_range();
            if let Some(name) = &listing.after {
                lo = place.child(name).encode().successor();
            }
            listing.seen = self.changes;
            listing.lineage = listing.directory.lineage();
            let beyond = || remove::zone_range(place.zone()).1;
            match &mut listing.rest {
                Rest::Reading(scan) => scan.go_to(lo, hi, None),
                rest => *rest = Rest::Reading(self.listings.scan(lo, hi, beyond, false)),
            }
        }
        let Rest::Reading(scan) = &mut listing.rest else { return Ok(None) };
        while let Some((key, value)) = self.volume.advance(scan)? {
            let place = MetaKey::decode(&key).ok_or_else(|| self.bad_key(&key))?;
            if place.is_root() || place.xattr().is_some() {
                continue;
            }
            let value = numbers::decode_shown(&key, &value, listing.lineage)?;
            let (kind, ino) = match &value {
                MetaValue::Inode(inode) => (inode.kind, inode.ino),
                MetaValue::ZoneRef(zone) => (zone.kind, zone.ino),
            };
            let (name, directory) = (place.name().to_vec(), listing.directory.clone());
            listing.after = Some(name.clone());
            return Ok(Some(DirEntry { name, kind, ino, value, directory, seen: self.changes }));
        }
        listing.rest = Rest::Nothing;
        Ok(None)
    }

    /// All entries of a directory, in the order of their names.
    pub fn list(&self, directory: &Object) -> Result<Vec<DirEntry>> {
        let mut listing = self.listing(directory, None)?;
        let mut entries = Vec::new();
        while let Some(entry) = self.next_entry(&mut listing)? {
            entries.push(entry);
        }
        Ok(entries)
    }

    /// The object of an entry.
    pub fn entry_object(&self, entry: DirEntry) -> Result<Object> {
        if entry.seen != self.changes {
            return self.lookup(&entry.directory, &entry.name);
        }
        self.follow(&entry.directory, &entry.name, entry.value)
    }

    fn follow(&self, directory: &Object, name: &[u8], value: MetaValue) -> Result<Object> {
        let up = Some((directory.clone(), name.into()));
        let reference = match value {
            MetaValue::Inode(inode) => return self.enter(inode, Placed { zone: None, up }),
            MetaValue::ZoneRef(reference) => reference,
        };
        if reference.kind == FileType::Directory && reference.zone < FIRST_ZONE {
            let place = directory.place().child(name);
            return Err(self.damaged(
                &place,
                "a zone for a directory",
                &reference.zone.to_string(),
            ));
        }
        let zone = Some(reference.zone);
        let known = self.live.get(reference.ino).filter(|object| object.zone() == zone);
        let place = MetaKey::root(reference.zone);
        if let Some(object) = &known
            && (object == directory || remove::is_below(directory, object))
        {
            return Err(self.damaged(&place, "a directory", "one that is below itself"));
        }
        let inode = match &known {
            Some(object) => Inode::clone(&object.inode()),
            None => self.root_inode(reference.zone)?,
        };
        if (inode.ino, inode.kind) != (reference.ino, reference.kind) {
            let expected = format!("inode {}, a {}", reference.ino, reference.kind.name());
            let found = format!("inode {}, a {}", inode.ino, inode.kind.name());
            return Err(self.damaged(&place, &expected, &found));
        }
        self.enter(inode, Placed { zone, up })
    }

    fn damaged(&self, place: &MetaKey, expected: &str, found: &str) -> Error {
        let key = place.encode().to_vec();
        let fault = crate::error::Fault::mismatch("metadata index", expected, found);
        Error::corrupt(Place::Key(TreeId::Metadata, key), fault)
    }

    fn bad_key(&self, key: &[u8]) -> Error {
        let fault = crate::error::Fault::Missing("this cannot be a metadata key".into());
        Error::corrupt(Place::Key(TreeId::Metadata, key.to_vec()), fault)
    }
}

/// The components of a path, without empty ones and `.`.
pub fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".")
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > limits::NAME_MAX {
        return Err(Refusal::NameTooLong.into());
    }
    if is_name(name) { Ok(()) } else { Err(Refusal::Invalid.into()) }
}

fn decode_value(key: &[u8], value: &[u8]) -> Result<MetaValue> {
    MetaValue::decode(value, None)
        .map_err(|error| Error::corrupt(Place::Key(TreeId::Metadata, key.to_vec()), error))
}
