//! The keys of the schema.
//!
//! A metadata key is the zone id (8 bytes, big-endian), then `02 name 00` for each directory on the
//! way and `01 name 00` for the last component; nothing for the zone's root. An extended attribute's
//! key is its owner's key, `00` and the attribute's name. A data key is the zone id and the path like
//! a metadata key (no path for a file with a data zone of its own), then the block number (8 bytes,
//! big-endian). Plain byte comparison gives the paper's order, depth first with the entries of a directory together (BetrFS 0.2 §4), and everything
//! below a directory is one range.

use super::key::Key;
use super::limits::{NAME_MAX, XATTR_NAME_MAX};
use crate::ids::ZoneId;

const XATTR: u8 = 0;
const LAST: u8 = 1;
const INNER: u8 = 2;
/// The bytes of a zone id.
const ZONE: usize = 8;

/// A key of the metadata index: that of an object, or of an extended attribute of one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MetaKey {
    bytes: Vec<u8>,
    place: MetaPlace,
}

impl MetaKey {
    /// The key of a zone's root.
    pub fn root(zone: ZoneId) -> MetaKey {
        MetaKey::at::<&[u8]>(zone, &[])
    }

    /// The key of the object with a path in a zone; without any names that of the root.
    pub fn at<N: AsRef<[u8]>>(zone: ZoneId, names: &[N]) -> MetaKey {
        let len = names.iter().map(|name| name.as_ref().len() + 2).sum::<usize>();
        let mut key = MetaKey {
            bytes: Vec::with_capacity(ZONE + len),
            place: MetaPlace { zone, directory: ZONE, path: ZONE },
        };
        key.bytes.extend_from_slice(&zone.0.to_be_bytes());
        names.iter().for_each(|name| key.descend(name.as_ref()));
        key
    }

    /// The key of an entry of the directory at this key.
    pub fn child(&self, name: &[u8]) -> MetaKey {
        let mut bytes = Vec::with_capacity(self.place.path + name.len() + 2);
        bytes.extend_from_slice(self.owner());
        let mut key = MetaKey { bytes, place: self.place };
        key.descend(name);
        key
    }

    /// Appends a name to the path of an object.
    fn descend(&mut self, name: &[u8]) {
        if !self.is_root() {
            self.bytes[self.place.directory] = INNER;
        }
        self.place.directory = self.place.path;
        self.bytes.push(LAST);
        self.bytes.extend_from_slice(name);
        self.bytes.push(0);
        self.place.path = self.bytes.len();
    }

    /// The key of the directory of the object; `None` for a zone's root.
    pub fn parent(&self) -> Option<MetaKey> {
        MetaKey::beginning(self.place.directory(&self.bytes)?)
    }

    /// The key of the object, also for that of an attribute.
    pub fn object(&self) -> MetaKey {
        MetaKey { bytes: self.owner().to_vec(), place: self.place }
    }

    /// The key of an extended attribute of the object at this key.
    pub fn with_xattr(&self, name: &[u8]) -> MetaKey {
        let bytes = [self.owner(), &[XATTR], name].concat();
        MetaKey { bytes, place: self.place }
    }

    /// The zone.
    pub fn zone(&self) -> ZoneId {
        self.place.zone
    }

    /// Whether it is that of a zone's root, or of an attribute of the root.
    pub fn is_root(&self) -> bool {
        self.place.is_root()
    }

    /// The path within the zone; empty for its root.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        // Each name has its tag before it and its end behind it.
        let names = self.bytes[ZONE..self.place.path].split(|byte| *byte == 0);
        names.filter_map(|name| name.get(1..))
    }

    /// The path within the zone, with a slash between two names.
    pub fn path(&self) -> Vec<u8> {
        self.names().collect::<Vec<_>>().join(&b'/')
    }

    /// The last name of the path; empty for a zone's root.
    pub fn name(&self) -> &[u8] {
        self.place.name(&self.bytes)
    }

    /// Number of names of the path.
    pub fn depth(&self) -> usize {
        self.names().count()
    }

    /// The name of the extended attribute, for the key of one.
    pub fn xattr(&self) -> Option<&[u8]> {
        self.place.xattr(&self.bytes)
    }

    fn owner(&self) -> &[u8] {
        self.place.owner(&self.bytes)
    }

    /// The encoded key.
    pub fn encode(&self) -> Key {
        Key::copied(&self.bytes)
    }

    /// The bytes of the encoded key.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The range of the keys of all extended attributes of the object at this key.
    pub fn xattr_range(&self) -> (Key, Key) {
        between(self.owner(), XATTR, XATTR + 1)
    }

    /// The range of the keys of all entries of the directory at this key, without those below them.
    pub fn entry_range(&self) -> (Key, Key) {
        between(&self.place.below(&self.bytes), LAST, LAST + 1)
    }

    /// The common prefix of the keys of everything below the directory at this key.
    pub fn below(&self) -> Key {
        Key::new(self.place.below(&self.bytes))
    }

    /// The range of the keys of everything below the directory at this key: entries and their attributes, and
    /// subdirectories with their content. In the data index, the contents of the files there.
    pub fn subtree_range(&self) -> (Key, Key) {
        between(&self.place.below(&self.bytes), LAST, INNER + 1)
    }

    /// The length of the longest key that the object at this key may need: that of an attribute with the longest name.
    pub fn reach(&self) -> usize {
        self.place.path + 1 + XATTR_NAME_MAX
    }

    /// The longest path at the start of a key, or of a bound of a key range: the zone and all complete names. `None`
    /// without a complete zone id.
    pub fn beginning(key: &[u8]) -> Option<MetaKey> {
        let (zone, mut rest) = key.split_first_chunk::<ZONE>()?;
        let mut found = MetaKey::root(ZoneId(u64::from_be_bytes(*zone)));
        while let [LAST | INNER, after @ ..] = rest
            && let Some(end) = after.iter().position(|byte| *byte == 0)
            && is_name(&after[..end])
        {
            found.descend(&after[..end]);
            rest = &after[end + 1..];
        }
        Some(found)
    }

    /// Decodes a key; `None` if it is no metadata key.
    pub fn decode(key: &[u8]) -> Option<MetaKey> {
        Some(MetaKey { bytes: key.to_vec(), place: MetaPlace::of(key)? })
    }
}

impl std::fmt::Debug for MetaKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.names().map(<[u8]>::escape_ascii).collect();
        let xattr = self.xattr().map(<[u8]>::escape_ascii);
        write!(f, "MetaKey {{ zone: {}, names: {names:?}, xattr: {xattr:?} }}", self.zone())
    }
}

/// The range from the keys with one byte behind a prefix to those with another.
fn between(prefix: &[u8], lo: u8, hi: u8) -> (Key, Key) {
    let key = |last: u8| Key::new([prefix, &[last]].concat());
    (key(lo), key(hi))
}

/// The parts of a metadata key by offset, for scans of many keys: decoding allocates nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MetaPlace {
    /// The zone.
    pub zone: ZoneId,
    /// The length of the prefix before the last component of the path: the common prefix of the keys of everything
    /// below that directory.
    directory: usize,
    /// The length of zone and path.
    path: usize,
}

impl MetaPlace {
    /// Decodes a key; `None` if it is no metadata key.
    pub fn of(key: &[u8]) -> Option<MetaPlace> {
        let (zone, _) = key.split_first_chunk::<ZONE>()?;
        let zone = ZoneId(u64::from_be_bytes(*zone));
        let (mut directory, mut at) = (ZONE, ZONE);
        let mut ended = false;
        while let Some((tag, after)) = key[at..].split_first() {
            if *tag == XATTR && (ended || at == ZONE) {
                let fits = (1..=XATTR_NAME_MAX).contains(&after.len()) && !after.contains(&0);
                return fits.then_some(MetaPlace { zone, directory, path: at });
            }
            let end = after.iter().position(|byte| *byte == 0)?;
            if ended || !matches!(*tag, LAST | INNER) || !is_name(&after[..end]) {
                return None;
            }
            ended = *tag == LAST;
            directory = at;
            at += end + 2;
        }
        (ended || at == ZONE).then_some(MetaPlace { zone, directory, path: at })
    }

    /// Whether it is the zone's root, or an attribute of the root.
    pub fn is_root(&self) -> bool {
        self.path == ZONE
    }

    /// Whether the object is a direct entry of the zone's root.
    pub fn is_in_root(&self) -> bool {
        self.directory == ZONE && !self.is_root()
    }

    /// The common prefix of the keys of everything below the object's directory. `None` for a zone's root, which is in
    /// no directory.
    pub fn directory<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        (!self.is_root()).then(|| &key[..self.directory])
    }

    /// The last component of the path; empty for a zone's root.
    pub fn name<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        if self.is_root() { &[] } else { &key[self.directory + 1..self.path - 1] }
    }

    /// The key of the object, or of the object of the attribute.
    pub fn owner<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        &key[..self.path]
    }

    /// The name of the attribute, for the key of one.
    pub fn xattr<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        key.get(self.path + 1..).filter(|name| !name.is_empty())
    }

    /// The common prefix of the keys of everything below the object.
    pub fn below(&self, key: &[u8]) -> Vec<u8> {
        let mut below = self.owner(key).to_vec();
        if !self.is_root() {
            below[self.directory] = INNER;
        }
        below
    }
}

/// Whether `name` can name an entry of a directory.
pub fn is_name(name: &[u8]) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && !name.contains(&0)
        && !name.contains(&b'/')
        && name != b"."
        && name != b".."
}

/// The key of a block of a file whose blocks have the prefix `prefix`: the id of its data zone, or its own metadata key
/// for a file without one.
pub fn data_key(prefix: &[u8], block: u64) -> Key {
    Key::new([prefix, &block.to_be_bytes()].concat())
}

/// Splits a data key into prefix and block number; `None` if it is no data key.
pub fn parse_data_key(key: &[u8]) -> Option<(&[u8], u64)> {
    let (prefix, block) = key.split_last_chunk::<8>()?;
    (prefix.len() >= 8).then_some((prefix, u64::from_be_bytes(*block)))
}
