//! The file system over the two trees: names, inodes, zones and the POSIX operations.
//!
//! Every operation is one transaction of resolved messages. In this version every directory is a
//! metadata zone and every regular file has a data zone of its own, so that renames and links are a
//! few messages whatever the size; reading accepts any placement that the schema allows.
//!
//! An object is named by its *place*: the metadata key where its inode stands. The place of a
//! directory, or of a file with several links, is the root of its zone and survives renames; that of
//! other objects is their entry in the directory.

mod attributes;
mod data;
mod entries;
mod make;
mod walk;

use bytes::Bytes;

use crate::error::{Error, Place, Refusal, Result};
use crate::format::*;
use crate::ids::*;
use crate::tree::Scan;
use crate::volume::{Transaction, Volume};

pub use attributes::Changes;
pub use data::Blocks;
pub use make::{Attributes, New};
pub use walk::{Visit, Walk};

/// The zone of the root directory.
pub const ROOT_ZONE: ZoneId = ZoneId(0);
/// The zone of the orphan directory, which holds what is unlinked but still open.
pub const ORPHAN_ZONE: ZoneId = ZoneId(1);
/// The first zone that may be given out.
pub const FIRST_ZONE: ZoneId = ZoneId(2);
/// The inode number of the root directory.
pub const ROOT_INO: Ino = Ino(1);
/// The inode number of the orphan directory.
pub const ORPHAN_INO: Ino = Ino(2);
/// The first inode number that may be given out.
pub const FIRST_INO: Ino = Ino(3);

/// Tells the time.
pub type Clock = Box<dyn FnMut() -> Time + Send>;

/// The file system of a volume.
pub struct Fs {
    volume: Volume,
    clock: Clock,
}

/// An inode, and the metadata key where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Where the inode stands.
    pub place: MetaKey,
    /// The inode.
    pub inode: Inode,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// The type of what it names.
    pub kind: FileType,
    /// The inode number of what it names.
    pub ino: Ino,
    value: MetaValue,
    place: MetaKey,
}

impl Fs {
    /// Puts a root directory and an orphan directory into a new volume.
    pub fn format(volume: Volume, clock: Clock, root: Attributes) -> Result<Fs> {
        let mut fs = Fs { volume, clock };
        let now = fs.now();
        let orphans = Attributes { perm: 0o700, ..Attributes::at(now) };
        let insert = |zone, ino, attributes: &Attributes| {
            let inode = Inode { links: 2, ..attributes.inode(FileType::Directory, ino, now) };
            insert_inode(&MetaKey::root(zone), &inode)
        };
        let messages =
            vec![insert(ROOT_ZONE, ROOT_INO, &root), insert(ORPHAN_ZONE, ORPHAN_INO, &orphans)];
        fs.commit(Op::Format, now, messages)?;
        Ok(fs)
    }

    /// The file system of an open volume.
    pub fn open(volume: Volume, clock: Clock) -> Fs {
        Fs { volume, clock }
    }

    /// The volume.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The volume, for sync and checkpoint.
    pub fn volume_mut(&mut self) -> &mut Volume {
        &mut self.volume
    }

    /// Gives the volume back.
    pub fn into_volume(self) -> Volume {
        self.volume
    }

    /// The time.
    pub fn now(&mut self) -> Time {
        (self.clock)()
    }

    /// Makes the state durable as a checkpoint.
    pub fn checkpoint(&mut self) -> Result<()> {
        let now = self.now();
        self.volume.checkpoint_at(now)
    }

    /// The root directory.
    pub fn root(&self) -> Result<Object> {
        self.object(MetaKey::root(ROOT_ZONE))
    }

    /// The object whose inode stands at `place`.
    pub fn object(&self, place: MetaKey) -> Result<Object> {
        match self.value(&place)? {
            Some(MetaValue::Inode(inode)) => Ok(Object { place, inode }),
            Some(MetaValue::ZoneRef(_)) => {
                Err(self.damaged(&place, "an inode", "a zone reference"))
            }
            None => Err(self.damaged(&place, "an inode", "nothing")),
        }
    }

    /// What `name` in `directory` leads to.
    pub fn lookup(&self, directory: &Object, name: &[u8]) -> Result<Object> {
        self.find(directory, name)?.ok_or(Refusal::NotFound.into())
    }

    /// What `name` in `directory` leads to, if it exists.
    pub fn find(&self, directory: &Object, name: &[u8]) -> Result<Option<Object>> {
        if directory.inode.kind != FileType::Directory {
            return Err(Refusal::NotADirectory.into());
        }
        check_name(name)?;
        let place = directory.place.child(name);
        match self.value(&place)? {
            None => Ok(None),
            Some(value) => self.follow(place, value).map(Some),
        }
    }

    /// What an absolute path leads to. Symbolic links are not followed.
    pub fn resolve(&self, path: &[u8]) -> Result<Object> {
        let mut object = self.root()?;
        for name in components(path) {
            object = self.lookup(&object, name)?;
        }
        Ok(object)
    }

    /// The directory that holds the last component of a path, and that component.
    pub fn resolve_parent<'p>(&self, path: &'p [u8]) -> Result<(Object, &'p [u8])> {
        let mut names: Vec<&[u8]> = components(path).collect();
        let last = names.pop().ok_or(Refusal::Invalid)?;
        let mut object = self.root()?;
        for name in names {
            object = self.lookup(&object, name)?;
        }
        Ok((object, last))
    }

    /// A scan of the entries of a directory, in the order of their names.
    pub fn scan_directory(&self, directory: &Object) -> Result<Scan> {
        if directory.inode.kind != FileType::Directory {
            return Err(Refusal::NotADirectory.into());
        }
        let (lo, hi) = directory.place.entry_range();
        Ok(Scan::new(TreeId::Metadata, lo, Some(hi)))
    }

    /// The next entry of a directory.
    pub fn next_entry(&self, scan: &mut Scan) -> Result<Option<DirEntry>> {
        while let Some((key, value)) = self.volume.advance(scan)? {
            let place = MetaKey::decode(&key).ok_or_else(|| self.bad_key(&key))?;
            if place.xattr.is_some() {
                continue;
            }
            let value = decode_value(&key, &value)?;
            let (kind, ino) = match &value {
                MetaValue::Inode(inode) => (inode.kind, inode.ino),
                MetaValue::ZoneRef(zone) => (zone.kind, zone.ino),
            };
            let name = place.path.last().cloned().unwrap_or_default();
            return Ok(Some(DirEntry { name, kind, ino, value, place }));
        }
        Ok(None)
    }

    /// All entries of a directory, in the order of their names.
    pub fn list(&self, directory: &Object) -> Result<Vec<DirEntry>> {
        let mut scan = self.scan_directory(directory)?;
        let mut entries = Vec::new();
        while let Some(entry) = self.next_entry(&mut scan)? {
            entries.push(entry);
        }
        Ok(entries)
    }

    /// What an entry leads to.
    pub fn entry_object(&self, entry: DirEntry) -> Result<Object> {
        self.follow(entry.place, entry.value)
    }

    fn follow(&self, place: MetaKey, value: MetaValue) -> Result<Object> {
        match value {
            MetaValue::Inode(inode) => Ok(Object { place, inode }),
            MetaValue::ZoneRef(zone) => {
                let object = self.object(MetaKey::root(zone.zone))?;
                if (object.inode.ino, object.inode.kind) != (zone.ino, zone.kind) {
                    let expected = format!("inode {}, a {}", zone.ino, zone.kind.name());
                    let found =
                        format!("inode {}, a {}", object.inode.ino, object.inode.kind.name());
                    return Err(self.damaged(&object.place, &expected, &found));
                }
                Ok(object)
            }
        }
    }

    fn value(&self, place: &MetaKey) -> Result<Option<MetaValue>> {
        let key = place.encode();
        match self.volume.get(TreeId::Metadata, &key)? {
            None => Ok(None),
            Some(value) => decode_value(&key, &value).map(Some),
        }
    }

    fn commit(&mut self, op: Op, wall: Time, messages: Vec<RecordMessage>) -> Result<Lsn> {
        self.volume.commit(Transaction { op, wall, messages })
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

/// The components of a path; empty ones and `.` do not count.
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

fn insert(place: &MetaKey, value: Vec<u8>) -> RecordMessage {
    RecordMessage::Point(TreeId::Metadata, place.encode(), Action::Insert(Bytes::from(value)))
}

fn insert_inode(place: &MetaKey, inode: &Inode) -> RecordMessage {
    insert(place, inode.encode())
}

fn delete(place: &MetaKey) -> RecordMessage {
    RecordMessage::Point(TreeId::Metadata, place.encode(), Action::Delete)
}
