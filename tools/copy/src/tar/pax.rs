//! The records of extended headers: `LENGTH KEY=VALUE` and a newline, where the length is that of the whole record.
//!
//! Records of a member's own header override those of a global one. An empty value removes a record, except for
//! extended attributes, which may be empty. Unknown records have no counterpart in an image, or repeat known ones;
//! unsupported forms of attributes give warnings.

use std::collections::BTreeMap;

use crate::host::Time;

use crate::tar::error::Fault;
use crate::tar::sparse::{self, Segment};
use crate::tar::{acl, number};

/// The prefix of the keys of extended attributes.
const XATTR: &[u8] = b"SCHILY.xattr.";
/// The names under which the kernel stores access control lists.
const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
/// The keys of access control lists as text.
const TEXT_ACCESS: &[u8] = b"SCHILY.acl.access";
const TEXT_DEFAULT: &[u8] = b"SCHILY.acl.default";

/// The contents of extended headers for a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pax {
    pub path: Option<Vec<u8>>,
    pub link: Option<Vec<u8>>,
    pub size: Option<u64>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub modified: Option<Time>,
    pub accessed: Option<Time>,
    pub major: Option<u32>,
    pub minor: Option<u32>,
    pub sparse: Sparse,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Access control lists, as text.
    acl_access: Option<Vec<u8>>,
    acl_default: Option<Vec<u8>>,
    /// Attributes and lists in an unsupported form occur.
    other_xattrs: bool,
    other_acls: bool,
}

/// The records about a sparse file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sparse {
    pub major: Option<u64>,
    pub minor: Option<u64>,
    pub name: Option<Vec<u8>>,
    /// The size of the file, with holes.
    pub size: Option<u64>,
    pub count: Option<u64>,
    /// The map, if it is in records (formats 0.0 and 0.1).
    pub map: Option<Vec<Segment>>,
    /// An offset whose length record is still missing.
    offset: Option<u64>,
}

impl Pax {
    /// Applies the records of a header. A fault comes with its offset in `bytes`.
    pub(super) fn apply(&mut self, bytes: &[u8]) -> Result<(), (usize, Fault)> {
        let mut at = 0;
        while at < bytes.len() {
            let (len, key, value) = record(&bytes[at..]).map_err(|fault| (at, fault))?;
            self.set(key, value).map_err(|fault| (at, fault))?;
            at += len;
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Fault> {
        if let Some(name) = key.strip_prefix(XATTR) {
            self.xattrs.insert(unquote(name), value.to_vec());
            return Ok(());
        }
        let text = || Some(value.to_vec()).filter(|value| !value.is_empty());
        match key {
            b"path" => self.path = text(),
            b"linkpath" => self.link = text(),
            b"size" => self.size = size(key, value)?,
            b"uid" => self.uid = small(key, value)?,
            b"gid" => self.gid = small(key, value)?,
            b"mtime" => self.modified = time(key, value)?,
            b"atime" => self.accessed = time(key, value)?,
            b"SCHILY.devmajor" => self.major = small(key, value)?,
            b"SCHILY.devminor" => self.minor = small(key, value)?,
            TEXT_ACCESS => self.acl_access = text(),
            TEXT_DEFAULT => self.acl_default = text(),
            b"SCHILY.acl.ace" => self.other_acls = true,
            b"SCHILY.realsize" => {
                return Err(Fault::text(
                    "pax record SCHILY.realsize",
                    "no sparse file of star",
                    value,
                ));
            }
            // The kernel's value ends with a zero byte.
            b"RHT.security.selinux" => {
                let value = [value, b"\0"].concat();
                self.xattrs.insert(b"security.selinux".to_vec(), value);
            }
            _ if key.starts_with(b"LIBARCHIVE.xattr.") => self.other_xattrs = true,
            _ => {
                if let Some(name) = key.strip_prefix(b"GNU.sparse.") {
                    self.sparse.set(name, key, value)?;
                }
            }
        }
        Ok(())
    }

    /// The number of bytes that the kept records take.
    pub(super) fn kept(&self) -> u64 {
        let texts =
            [&self.path, &self.link, &self.sparse.name, &self.acl_access, &self.acl_default];
        let texts = texts.into_iter().flatten().map(Vec::len).sum::<usize>();
        let xattrs =
            self.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        let segments = self.sparse.map.as_ref().map_or(0, |map| size_of_val(&map[..]));
        (texts + xattrs + segments) as u64
    }

    /// The extended attributes, sorted by name.
    pub(super) fn xattrs(&self, warnings: &mut Vec<String>) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut xattrs = self.xattrs.clone();
        let lists = [(ACL_ACCESS, &self.acl_access), (ACL_DEFAULT, &self.acl_default)];
        for (name, list) in lists {
            let Some(list) = list.as_deref().filter(|_| !xattrs.contains_key(name)) else {
                continue;
            };
            match acl::attribute(list) {
                Ok(Some(value)) => drop(xattrs.insert(name.to_vec(), value)),
                Ok(None) => {}
                Err(why) => warnings.push(format!("the access control list is left out: {why}")),
            }
        }
        if self.other_acls {
            warnings.push("the NFSv4 access control list is left out".into());
        }
        if self.other_xattrs && self.xattrs.is_empty() {
            warnings.push("extended attributes of libarchive are left out".into());
        }
        xattrs.into_iter().collect()
    }
}

impl Sparse {
    fn set(&mut self, name: &[u8], key: &[u8], value: &[u8]) -> Result<(), Fault> {
        match name {
            b"major" => self.major = size(key, value)?,
            b"minor" => self.minor = size(key, value)?,
            b"name" => self.name = Some(value.to_vec()).filter(|value| !value.is_empty()),
            b"size" | b"realsize" => self.size = size(key, value)?,
            b"numblocks" => self.count = size(key, value)?,
            b"map" => self.map = Some(sparse::parse_list(value)?),
            b"offset" => {
                let offset = size(key, value)?;
                if self.offset.replace(offset.unwrap_or(0)).is_some() {
                    return Err(Fault::text(
                        "pax record GNU.sparse.offset",
                        "GNU.sparse.numbytes",
                        value,
                    ));
                }
            }
            b"numbytes" => {
                let (offset, len) = (self.offset.take(), size(key, value)?.unwrap_or(0));
                let Some(offset) = offset else {
                    let what = "pax record GNU.sparse.numbytes";
                    return Err(Fault::text(what, "GNU.sparse.offset before it", value));
                };
                let map = self.map.get_or_insert_default();
                sparse::check_count(map.len() as u64 + 1)?;
                map.push(Segment { offset, len });
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether there is any record about a sparse file.
    pub(super) fn is_any(&self) -> bool {
        *self != Sparse::default()
    }

    /// The map in records, if there is one. Checks the number of its segments.
    pub(super) fn map(&self) -> Result<Option<&[Segment]>, Fault> {
        let Some(map) = &self.map else { return Ok(None) };
        match self.count {
            Some(count) if count != map.len() as u64 => {
                Err(Fault::new("map of the sparse file", format!("{count} segments"), map.len()))
            }
            _ => Ok(Some(map)),
        }
    }
}

/// Appends a record. Its length includes the digits of the length itself.
pub(crate) fn write(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while len.to_string().len() + rest != len {
        len = len.to_string().len() + rest;
    }
    records.extend_from_slice(len.to_string().as_bytes());
    records.push(b' ');
    records.extend_from_slice(key);
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

/// The key of an extended attribute: `%` and `=` are quoted as GNU tar does.
pub(crate) fn xattr_key(name: &[u8]) -> Vec<u8> {
    let mut key = XATTR.to_vec();
    for byte in name {
        match byte {
            b'%' => key.extend_from_slice(b"%25"),
            b'=' => key.extend_from_slice(b"%3D"),
            _ => key.push(*byte),
        }
    }
    key
}

/// The key and the text of an extended attribute that is an access control list.
pub(crate) fn acl_record(name: &[u8], value: &[u8]) -> Option<(&'static [u8], Vec<u8>)> {
    let key = match name {
        ACL_ACCESS => TEXT_ACCESS,
        ACL_DEFAULT => TEXT_DEFAULT,
        _ => return None,
    };
    Some((key, acl::text(value)?.into_bytes()))
}

fn unquote(name: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((first, tail)) = rest.split_first() {
        let (byte, tail) = match (first, tail) {
            (b'%', [b'2', b'5', tail @ ..]) => (b'%', tail),
            (b'%', [b'3', b'D', tail @ ..]) => (b'=', tail),
            _ => (*first, tail),
        };
        plain.push(byte);
        rest = tail;
    }
    plain
}

/// Parses the first record: its length, key and value.
fn record(bytes: &[u8]) -> Result<(usize, &[u8], &[u8]), Fault> {
    let malformed = |expected: &str| Fault::text("pax record", expected, bytes);
    // A valid length has at most 19 digits.
    let blank = bytes.iter().take(20).position(|byte| *byte == b' ');
    let blank = blank.ok_or_else(|| malformed("a length and a blank"))?;
    let len = number::decimal(&bytes[..blank]).ok_or_else(|| malformed("a length and a blank"))?;
    let whole =
        usize::try_from(len).ok().filter(|len| *len > blank).and_then(|len| bytes.get(..len));
    let whole =
        whole.ok_or_else(|| malformed(&format!("a length of {} to {}", blank + 1, bytes.len())))?;
    let text = whole[blank..].strip_suffix(b"\n").filter(|text| !text.is_empty());
    let text = &text.ok_or_else(|| malformed("a newline at its end"))?[1..];
    let equals = text.iter().position(|byte| *byte == b'=').filter(|at| *at > 0);
    let equals = equals.ok_or_else(|| malformed("a key and '='"))?;
    Ok((whole.len(), &text[..equals], &text[equals + 1..]))
}

/// Parses a file size; `None` if the record is removed.
fn size(key: &[u8], value: &[u8]) -> Result<Option<u64>, Fault> {
    let fits = |value: &u64| i64::try_from(*value).is_ok();
    parse(key, value, "a number below 2^63", |value| number::decimal(value).filter(fits))
}

fn small(key: &[u8], value: &[u8]) -> Result<Option<u32>, Fault> {
    let parsed = |value: &[u8]| number::decimal(value).and_then(|value| value.try_into().ok());
    parse(key, value, "a number below 2^32", parsed)
}

fn time(key: &[u8], value: &[u8]) -> Result<Option<Time>, Fault> {
    parse(key, value, "a time in seconds", number::time)
}

fn parse<T>(
    key: &[u8],
    value: &[u8],
    expected: &str,
    parsed: impl Fn(&[u8]) -> Option<T>,
) -> Result<Option<T>, Fault> {
    if value.is_empty() {
        return Ok(None);
    }
    let what = || format!("pax record {}", betr_core::text::printable(key));
    parsed(value).map(Some).ok_or_else(|| Fault::text(what(), expected, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(records: &[u8]) -> Result<Pax, (usize, Fault)> {
        let mut pax = Pax::default();
        pax.apply(records).map(|()| pax)
    }

    #[test]
    fn records_are_read_and_written() {
        for len in 0..1200 {
            let mut records = Vec::new();
            let value = vec![b'\n'; len];
            write(&mut records, &xattr_key(b"user.a=b%c"), &value);
            write(&mut records, b"comment", b"x");
            write(&mut records, b"path", b"a=b");
            let pax = applied(&records).unwrap();
            assert_eq!(pax.path.as_deref(), Some(&b"a=b"[..]));
            assert_eq!(pax.xattrs[&b"user.a=b%c"[..]], value);
        }
        assert_eq!(applied(b"").unwrap(), Pax::default());
    }

    #[test]
    fn an_empty_value_takes_a_record_back() {
        let pax = applied(b"8 uid=1\n9 path=a\n7 uid=\n8 path=\n19 SCHILY.xattr.u=\n").unwrap();
        assert_eq!((pax.uid, &pax.path), (None, &None));
        assert_eq!(pax.xattrs(&mut Vec::new()), [(b"u".to_vec(), Vec::new())]);
    }

    #[test]
    fn malformed_records_are_told_with_their_place() {
        for (records, at) in [
            (&b"x"[..], 0),
            (b"8 uid=1\nx", 8),
            (b"7 uid=1\n", 0),
            (b"9 uid=1\n", 0),
            (b"0 uid=1\n", 0),
            (b"2 ", 0),
            (b"3 \n", 0),
            (b"4 =\n", 0),
            (b"5 =a\n", 0),
            (b"99999999999999999999 a=b\n", 0),
            (b"18446744073709551615 a=b\n", 0),
            (b"-8 uid=1\n", 0),
            (b"8 uid=x\n", 0),
            (b"9 uid=-1\n", 0),
            (b"18 uid=4294967296\n", 0),
            (b"29 size=9223372036854775808\n", 0),
            (b"11 mtime=a\n", 0),
            (b"21 GNU.sparse.map=1\n", 0),
            (b"25 GNU.sparse.numbytes=1\n", 0),
            (b"23 GNU.sparse.offset=1\n23 GNU.sparse.offset=1\n", 23),
        ] {
            let found = applied(records).map_err(|(at, _)| at);
            assert_eq!(found, Err(at), "{}", String::from_utf8_lossy(records));
        }
    }

    #[test]
    fn lists_as_text_count_where_there_is_no_attribute() {
        let list = b"user::rw-,user:7:r--,group::r--,mask::r--,other::---";
        let mut records = Vec::new();
        write(&mut records, b"SCHILY.acl.access", list);
        write(&mut records, b"SCHILY.acl.default", b"user:lisa:r");
        let mut warnings = Vec::new();
        let xattrs = applied(&records).unwrap().xattrs(&mut warnings);
        assert_eq!((xattrs.len(), &xattrs[0].0[..]), (1, ACL_ACCESS));
        assert_eq!(warnings.len(), 1);
        write(&mut records, &xattr_key(ACL_ACCESS), b"told");
        let xattrs = applied(&records).unwrap().xattrs(&mut warnings);
        assert_eq!(xattrs, [(ACL_ACCESS.to_vec(), b"told".to_vec())]);
    }
}
