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

/// A decoded key of the metadata index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MetaKey {
    /// The zone.
    pub zone: ZoneId,
    /// The path within the zone; empty for its root.
    pub path: Vec<Vec<u8>>,
    /// The name of the extended attribute, for the key of one.
    pub xattr: Option<Vec<u8>>,
}

impl MetaKey {
    /// The key of a zone's root.
    pub fn root(zone: ZoneId) -> MetaKey {
        MetaKey { zone, path: Vec::new(), xattr: None }
    }

    /// The key of an entry of the directory at this key.
    pub fn child(&self, name: &[u8]) -> MetaKey {
        let mut path = self.path.clone();
        path.push(name.to_vec());
        MetaKey { zone: self.zone, path, xattr: None }
    }

    /// The key of an extended attribute of the object at this key.
    pub fn with_xattr(&self, name: &[u8]) -> MetaKey {
        MetaKey { xattr: Some(name.to_vec()), ..self.clone() }
    }

    /// The encoded key.
    pub fn encode(&self) -> Key {
        let mut bytes = self.prefix(LAST);
        if let Some(name) = &self.xattr {
            bytes.push(XATTR);
            bytes.extend_from_slice(name);
        }
        Key::new(bytes)
    }

    /// The range of the keys of all extended attributes of the object at this key.
    pub fn xattr_range(&self) -> (Key, Key) {
        let mut lo = self.prefix(LAST);
        let mut hi = lo.clone();
        lo.push(XATTR);
        hi.push(XATTR + 1);
        (Key::new(lo), Key::new(hi))
    }

    /// The range of the keys of all entries of the directory at this key, without those below them.
    pub fn entry_range(&self) -> (Key, Key) {
        let mut lo = self.prefix(INNER);
        let mut hi = lo.clone();
        lo.push(LAST);
        hi.push(LAST + 1);
        (Key::new(lo), Key::new(hi))
    }

    /// The common prefix of the keys of everything below the directory at this key.
    pub fn below(&self) -> Key {
        Key::new(self.prefix(INNER))
    }

    /// The range of the keys of everything below the directory at this key: entries and their attributes, and
    /// subdirectories with their content. In the data index, the contents of the files there.
    pub fn subtree_range(&self) -> (Key, Key) {
        let mut lo = self.prefix(INNER);
        let mut hi = lo.clone();
        lo.push(LAST);
        hi.push(INNER + 1);
        (Key::new(lo), Key::new(hi))
    }

    /// The length of the longest key that the object at this key may need: that of an attribute with the longest name.
    pub fn reach(&self) -> usize {
        8 + self.path.iter().map(|name| name.len() + 2).sum::<usize>() + 1 + XATTR_NAME_MAX
    }

    /// The encoded zone and path, with this tag for the last component.
    fn prefix(&self, last: u8) -> Vec<u8> {
        let mut bytes = self.zone.0.to_be_bytes().to_vec();
        for (index, name) in self.path.iter().enumerate() {
            bytes.push(if index + 1 == self.path.len() { last } else { INNER });
            bytes.extend_from_slice(name);
            bytes.push(0);
        }
        bytes
    }

    /// The longest path at the start of a key, or of a bound of a key range: the zone and all complete names. `None`
    /// without a complete zone id.
    pub fn beginning(key: &[u8]) -> Option<MetaKey> {
        let (zone, mut rest) = key.split_first_chunk::<8>()?;
        let mut path = Vec::new();
        while let [LAST | INNER, after @ ..] = rest
            && let Some(end) = after.iter().position(|byte| *byte == 0)
            && is_name(&after[..end])
        {
            path.push(after[..end].to_vec());
            rest = &after[end + 1..];
        }
        Some(MetaKey { zone: ZoneId(u64::from_be_bytes(*zone)), path, xattr: None })
    }

    /// Decodes a key; `None` if it is no metadata key.
    pub fn decode(key: &[u8]) -> Option<MetaKey> {
        let place = MetaPlace::of(key)?;
        let MetaKey { zone, path, .. } = MetaKey::beginning(&key[..place.path])?;
        Some(MetaKey { zone, path, xattr: place.xattr(key).map(<[u8]>::to_vec) })
    }
}

/// The parts of a metadata key by offset, for scans of many keys: decoding allocates nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
        let (zone, _) = key.split_first_chunk::<8>()?;
        let zone = ZoneId(u64::from_be_bytes(*zone));
        let (mut directory, mut at) = (8, 8);
        let mut ended = false;
        while let Some((tag, after)) = key[at..].split_first() {
            if *tag == XATTR && (ended || at == 8) {
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
        (ended || at == 8).then_some(MetaPlace { zone, directory, path: at })
    }

    /// Whether it is the zone's root, or an attribute of the root.
    pub fn is_root(&self) -> bool {
        self.path == 8
    }

    /// Whether the object is a direct entry of the zone's root.
    pub fn is_in_root(&self) -> bool {
        self.directory == 8 && !self.is_root()
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
