//! Builds archives by hand, and reads them.

use std::io::{Cursor, Read};

use betr_copy::host::{Kind, Meta, Time};
use betr_copy::tar::{Archive, Input, Member, TarError, What};

/// A header with a name, a type and a size, and fixed values in the other fields.
#[derive(Clone)]
pub(crate) struct Header(pub [u8; 512]);

impl Header {
    pub(crate) fn new(name: &[u8], kind: u8, size: u64) -> Header {
        let mut header = Header([0; 512]);
        header.put(0, name);
        header.put(100, b"0000644\0");
        header.put(108, b"0000012\0");
        header.put(116, b"0000013\0");
        header.put(124, format!("{size:011o}\0").as_bytes());
        header.put(136, b"00000000100\0");
        header.0[156] = kind;
        header.put(257, b"ustar\x0000");
        header
    }

    /// A header in GNU's format.
    pub(crate) fn gnu(name: &[u8], kind: u8, size: u64) -> Header {
        Header::new(name, kind, size).with(257, b"ustar  \0")
    }

    /// A header of the v7 format, without a magic.
    pub(crate) fn v7(name: &[u8], kind: u8, size: u64) -> Header {
        Header::new(name, kind, size).with(257, &[0; 8])
    }

    pub(crate) fn with(mut self, at: usize, bytes: &[u8]) -> Header {
        self.put(at, bytes);
        self
    }

    pub(crate) fn link(self, to: &[u8]) -> Header {
        self.with(157, to)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// The block, with its checksum.
    pub(crate) fn block(mut self) -> Vec<u8> {
        self.put(148, b"        ");
        let sum: u32 = self.0.iter().map(|byte| u32::from(*byte)).sum();
        self.put(148, format!("{sum:06o}\0 ").as_bytes());
        self.0.to_vec()
    }
}

/// An archive under construction.
#[derive(Clone, Default)]
pub(crate) struct Tar(pub Vec<u8>);

impl Tar {
    pub(crate) fn header(mut self, header: Header) -> Tar {
        self.0.extend(header.block());
        self
    }

    /// Appends data, padded to a whole block.
    pub(crate) fn data(mut self, data: &[u8]) -> Tar {
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(crate) fn file(self, name: &[u8], data: &[u8]) -> Tar {
        self.header(Header::new(name, b'0', data.len() as u64)).data(data)
    }

    /// Appends an extended header of type `kind` with records.
    pub(crate) fn pax(self, kind: u8, records: &[(&[u8], &[u8])]) -> Tar {
        let mut bytes = Vec::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let len = (rest + 1..).find(|len| len.to_string().len() + rest == *len).unwrap();
            bytes.extend(len.to_string().into_bytes());
            bytes.extend([b" ", *key, b"=", *value, b"\n"].concat());
        }
        self.header(Header::new(b"pax", kind, bytes.len() as u64)).data(&bytes)
    }

    /// The archive with its end marker.
    pub(crate) fn end(mut self) -> Vec<u8> {
        self.0.extend([0; 1024]);
        self.0
    }
}

/// A member with its contents, holes filled with zeros; without the contents of a large file.
pub(crate) type Found = (Member, Vec<u8>);

/// The contents of larger files are not collected, in bytes.
const LARGEST: u64 = 1 << 20;

/// Reads all members of an archive.
pub(crate) fn read(bytes: &[u8]) -> Result<Vec<Found>, TarError> {
    read_from(Input::stream("x.tar", Cursor::new(bytes.to_vec())))
}

pub(crate) fn read_from(input: Input) -> Result<Vec<Found>, TarError> {
    let mut archive = Archive::new(input);
    let mut members = Vec::new();
    let mut piece = vec![0; 1000];
    while let Some(member) = archive.next_member()? {
        let size = match &member.what {
            What::Object(meta) if meta.kind == Kind::File => meta.size,
            What::Link { size, .. } => *size,
            What::Object(_) => 0,
        };
        let mut contents = vec![0; size.min(LARGEST) as usize];
        let mut end = 0;
        while let Some((offset, len)) = archive.next_segment(&mut piece)? {
            assert!(len > 0 && offset >= end && offset + len as u64 <= size);
            end = offset + len as u64;
            if size <= LARGEST {
                contents[offset as usize..end as usize].copy_from_slice(&piece[..len]);
            }
        }
        members.push((member, contents));
    }
    assert!(archive.next_member()?.is_none());
    Ok(members)
}

/// The only member of an archive.
pub(crate) fn read_one(tar: Tar) -> Found {
    let mut members = read(&tar.end()).unwrap();
    assert_eq!(members.len(), 1, "{members:?}");
    members.pop().unwrap()
}

pub(crate) fn meta(member: &Member) -> &Meta {
    match &member.what {
        What::Object(meta) => meta,
        What::Link { .. } => panic!("{member:?} is a link"),
    }
}

pub(crate) fn at(secs: i64, nanos: u32) -> Time {
    Time { secs, nanos }
}

/// A stream that returns few bytes per read.
pub(crate) struct Trickle(pub Cursor<Vec<u8>>);

impl Read for Trickle {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let len = buf.len().min(7);
        self.0.read(&mut buf[..len])
    }
}
