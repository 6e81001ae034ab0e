//! Writes an archive in the pax format.
//!
//! The same members give the same bytes: headers contain only the members' metadata. An extended header is written
//! for values that a header cannot hold: long names, large numbers, fractions of seconds, times before 1970, a time
//! of access that differs from that of modification, extended attributes, and maps of sparse files (GNU's format
//! 1.0).

use std::io::{self, Write};

use crate::host::{Kind, Meta, Time};

use crate::tar::header::{Fields, Unfit};
use crate::tar::sparse::Segments;
use crate::tar::{BLOCK, RECORD, number, padding, pax};

/// The longest part of a member's name in the name of its extended header, in bytes.
const SHOWN: usize = 80;

/// An archive that is being written.
pub struct Writer<W> {
    out: W,
    written: u64,
    /// Bytes of the member's data that are still to be written.
    left: u64,
    /// Bytes of padding after the data.
    padding: u64,
}

/// The records of an extended header.
#[derive(Default)]
struct Records {
    bytes: Vec<u8>,
    /// Whether they contain the name of the member.
    named: bool,
    /// Whether a name is not UTF-8, which extended headers otherwise require.
    binary: bool,
}

impl<W: Write> Writer<W> {
    /// Starts an archive.
    pub fn new(out: W) -> Writer<W> {
        Writer { out, written: 0, left: 0, padding: 0 }
    }

    /// Writes a member that is not a regular file. Sockets cannot be members. An empty name is the root.
    pub fn object(&mut self, name: &[u8], meta: &Meta) -> io::Result<()> {
        let none = &[][..];
        let (kind, link, device) = match &meta.kind {
            Kind::Directory => (b'5', none, (0, 0)),
            Kind::Symlink(target) => (b'2', &target[..], (0, 0)),
            Kind::CharDevice { major, minor } => (b'3', none, (*major, *minor)),
            Kind::BlockDevice { major, minor } => (b'4', none, (*major, *minor)),
            Kind::Fifo => (b'6', none, (0, 0)),
            Kind::File => return Err(misuse("a file comes with its data")),
            Kind::Socket => return Err(misuse("a socket cannot be a member")),
        };
        let fields = Fields { kind, link, device, ..fields(named(name), meta) };
        self.header(fields, Some(meta), Records::of_xattrs(meta))
    }

    /// Starts a regular file. Its data follow, segment after segment.
    pub fn file(&mut self, name: &[u8], meta: &Meta, data: &Segments) -> io::Result<()> {
        let name = named(name);
        let fields = fields(name, meta);
        let mut records = Records::of_xattrs(meta);
        if data.is_sparse() {
            let map = data.encode();
            records.sparse(name, data.size());
            let shown = [b"GNUSparseFile.0/", shown(name)].concat();
            let size = map.len() as u64 + data.stored();
            self.header(Fields { name: &shown, size, ..fields }, Some(meta), records)?;
            self.write(&map)?;
        } else {
            self.header(Fields { size: data.size(), ..fields }, Some(meta), records)?;
        }
        self.left = data.stored();
        self.padding = padding(self.left);
        Ok(())
    }

    /// Writes more data of the current file.
    pub fn data(&mut self, data: &[u8]) -> io::Result<()> {
        let left = self.left.checked_sub(data.len() as u64);
        self.left = left.ok_or_else(|| misuse("more data than the file was said to have"))?;
        self.write(data)
    }

    /// Writes `name` as a hard link to the member `to`. Of `meta` only values that fit into a header are repeated.
    pub fn link(&mut self, name: &[u8], to: &[u8], meta: &Meta) -> io::Result<()> {
        let fields = Fields { kind: b'1', link: named(to), ..fields(named(name), meta) };
        self.header(fields, None, Records::default())
    }

    /// Ends the archive, and returns the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.end_member()?;
        let end = (self.written + 2 * BLOCK as u64).next_multiple_of(RECORD);
        self.zeros(end - self.written)?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Writes a header, preceded by an extended one with `records` and the values that do not fit.
    fn header(
        &mut self,
        fields: Fields,
        meta: Option<&Meta>,
        mut records: Records,
    ) -> io::Result<()> {
        self.end_member()?;
        let (block, unfit) = fields.encode();
        records.names(&fields, unfit);
        if let Some(meta) = meta {
            records.values(&fields, meta, unfit);
        }
        let bytes = records.into_bytes();
        if !bytes.is_empty() {
            let name = [b"PaxHeaders/", shown(fields.name)].concat();
            let size = bytes.len() as u64;
            self.write(&Fields::of_extension(&name, size).encode().0)?;
            self.write(&bytes)?;
            self.zeros(padding(size))?;
        }
        self.write(&block)
    }

    fn end_member(&mut self) -> io::Result<()> {
        if self.left > 0 {
            return Err(misuse("a file without all of its data"));
        }
        let padding = std::mem::take(&mut self.padding);
        self.zeros(padding)
    }

    fn zeros(&mut self, mut count: u64) -> io::Result<()> {
        while count > 0 {
            let now = count.min(BLOCK as u64);
            self.write(&[0; BLOCK][..now as usize])?;
            count -= now;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}

impl Records {
    fn of_xattrs(meta: &Meta) -> Records {
        let mut records = Records::default();
        for (name, value) in &meta.xattrs {
            records.put(&pax::xattr_key(name), value);
            // Some programs read access control lists only from these records.
            if let Some((key, text)) = pax::acl_record(name, value) {
                records.put(key, &text);
            }
        }
        records
    }

    fn sparse(&mut self, name: &[u8], size: u64) {
        self.put(b"GNU.sparse.major", b"1");
        self.put(b"GNU.sparse.minor", b"0");
        self.name(b"GNU.sparse.name", name);
        self.put(b"GNU.sparse.realsize", size.to_string().as_bytes());
        self.named = true;
    }

    /// Adds names that do not fit into a header.
    fn names(&mut self, fields: &Fields, unfit: Unfit) {
        if unfit.name && !self.named {
            self.name(b"path", fields.name);
        }
        if unfit.link {
            self.name(b"linkpath", fields.link);
        }
    }

    /// Adds numbers and times that do not fit into a header.
    fn values(&mut self, fields: &Fields, meta: &Meta, unfit: Unfit) {
        for (unfit, key, value) in [
            (unfit.size, &b"size"[..], fields.size),
            (unfit.uid, b"uid", meta.uid.into()),
            (unfit.gid, b"gid", meta.gid.into()),
        ] {
            if unfit {
                self.put(key, value.to_string().as_bytes());
            }
        }
        if unfit.modified || meta.mtime.nanos != 0 {
            self.time(b"mtime", meta.mtime);
        }
        if meta.atime != meta.mtime {
            self.time(b"atime", meta.atime);
        }
    }

    fn time(&mut self, key: &[u8], time: Time) {
        self.put(key, number::time_text(time).as_bytes());
    }

    fn name(&mut self, key: &[u8], name: &[u8]) {
        self.binary |= std::str::from_utf8(name).is_err();
        self.put(key, name);
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        pax::write(&mut self.bytes, key, value);
    }

    fn into_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.binary {
            pax::write(&mut bytes, b"hdrcharset", b"BINARY");
        }
        bytes.extend(self.bytes);
        bytes
    }
}

fn fields<'f>(name: &'f [u8], meta: &Meta) -> Fields<'f> {
    Fields {
        name,
        kind: b'0',
        perm: meta.perm,
        uid: meta.uid,
        gid: meta.gid,
        size: 0,
        modified: meta.mtime.secs,
        link: b"",
        device: (0, 0),
    }
}

/// The name to write: `.` for the root, since a header needs a name.
fn named(name: &[u8]) -> &[u8] {
    if name.is_empty() { b"." } else { name }
}

/// The beginning of the last component of a name, which identifies the member to a reader.
fn shown(name: &[u8]) -> &[u8] {
    let name = name.strip_suffix(b"/").unwrap_or(name);
    let last = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    &last[..last.len().min(SHOWN)]
}

fn misuse(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
