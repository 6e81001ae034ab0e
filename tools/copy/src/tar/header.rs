//! The header blocks of members.
//!
//! Fields by offset+length: name 0+100, mode 100+8, owner 108+8, group 116+8, size 124+12, time 136+12, checksum
//! 148+8, type 156, link 157+100, magic 257+8, major 329+8, minor 337+8. Then in ustar the prefix of the name
//! 345+155; in GNU's format the time of access 345+12, four segments of a sparse file 386+96, whether more follow
//! 482, and its size 483+12.

use std::ops::Range;

use crate::host::Time;

use crate::tar::error::Fault;
use crate::tar::sparse::Segment;
use crate::tar::{BLOCK, number};

const CHECKSUM: Range<usize> = 148..156;
const TYPE: usize = 156;
const USTAR: &[u8; 8] = b"ustar\x0000";
const GNU: &[u8; 8] = b"ustar  \0";
const PREFIX: usize = 155;
const NAME: usize = 100;

/// A header with a valid checksum.
pub(crate) struct Header([u8; BLOCK]);

impl Header {
    /// Checks the checksum of a block.
    pub(super) fn parse(block: [u8; BLOCK]) -> Result<Header, Fault> {
        let stored = number::field(&block[CHECKSUM]);
        let (unsigned, signed) = checksums(&block);
        if stored == Some(unsigned.into()) || stored == Some(signed.into()) {
            return Ok(Header(block));
        }
        let expected = format!("{unsigned:o} (octal)");
        Err(Fault::text("checksum of the header", expected, trim(&block[CHECKSUM])))
    }

    /// The byte that gives its type.
    pub(super) fn kind(&self) -> u8 {
        self.0[TYPE]
    }

    pub(super) fn is_gnu(&self) -> bool {
        self.0[257..265] == *GNU
    }

    /// The name, with its prefix in ustar.
    pub(super) fn name(&self) -> Vec<u8> {
        let name = text(&self.0[..NAME]);
        match text(&self.0[345..345 + PREFIX]) {
            prefix if self.is_ustar() && !prefix.is_empty() => [prefix, name].join(&b'/'),
            _ => name.to_vec(),
        }
    }

    /// The target of a link.
    pub(super) fn link(&self) -> Vec<u8> {
        text(&self.0[157..257]).to_vec()
    }

    pub(super) fn perm(&self) -> Result<u32, Fault> {
        Ok(self.number("mode", 100..108, 0..1 << 33)? as u32 & 0o7777)
    }

    pub(super) fn uid(&self) -> Result<u32, Fault> {
        Ok(self.number("owner", 108..116, 0..1 << 32)? as u32)
    }

    pub(super) fn gid(&self) -> Result<u32, Fault> {
        Ok(self.number("group", 116..124, 0..1 << 32)? as u32)
    }

    /// The number of bytes of data.
    pub(super) fn size(&self) -> Result<u64, Fault> {
        Ok(self.number("size", 124..136, 0..1 << 63)? as u64)
    }

    pub(super) fn modified(&self) -> Result<Time, Fault> {
        self.time("time", 136..148)
    }

    /// The time of access, if GNU's format has it.
    pub(super) fn accessed(&self) -> Result<Option<Time>, Fault> {
        if !self.is_gnu() || text(&self.0[345..357]).is_empty() {
            return Ok(None);
        }
        self.time("time of access", 345..357).map(Some)
    }

    /// The major and minor device numbers.
    pub(super) fn device(&self) -> Result<(u32, u32), Fault> {
        let major = self.number("major number", 329..337, 0..1 << 32)? as u32;
        Ok((major, self.number("minor number", 337..345, 0..1 << 32)? as u32))
    }

    /// A sparse file in GNU's format: its size, the first segments, and whether more follow.
    pub(super) fn sparse(&self) -> Result<(u64, Vec<Segment>, bool), Fault> {
        let size = self.number("size of the sparse file", 483..495, 0..1 << 63)? as u64;
        Ok((size, segments(&self.0[386..482])?, self.0[482] != 0))
    }

    fn is_ustar(&self) -> bool {
        self.0[257..263] == USTAR[..6]
    }

    fn time(&self, what: &'static str, at: Range<usize>) -> Result<Time, Fault> {
        let range = i64::MIN.into()..i64::MAX.into();
        Ok(Time { secs: self.number(what, at, range)? as i64, nanos: 0 })
    }

    fn number(
        &self,
        what: &'static str,
        at: Range<usize>,
        range: Range<i128>,
    ) -> Result<i128, Fault> {
        let found = &self.0[at];
        let value = number::field(found).filter(|value| range.contains(value));
        let expected = || format!("a number from {} to {}", range.start, range.end - 1);
        value.ok_or_else(|| Fault::text(format!("{what} in the header"), expected(), found))
    }
}

/// Parses a block with more segments of a sparse file in GNU's format. Returns whether yet more follow.
pub(crate) fn more_segments(block: &[u8; BLOCK]) -> Result<(Vec<Segment>, bool), Fault> {
    Ok((segments(&block[..504])?, block[504] != 0))
}

fn segments(bytes: &[u8]) -> Result<Vec<Segment>, Fault> {
    let number = |field: &[u8]| {
        let value = number::field(field).and_then(|value| u64::try_from(value).ok());
        value.ok_or_else(|| Fault::text("segment of a sparse file", "a number", field))
    };
    let mut found = Vec::new();
    for pair in bytes.chunks_exact(24) {
        // The list may end early, with an empty field.
        if text(pair).is_empty() {
            break;
        }
        found.push(Segment { offset: number(&pair[..12])?, len: number(&pair[12..])? });
    }
    Ok(found)
}

/// The fields of a new header.
pub(crate) struct Fields<'f> {
    pub name: &'f [u8],
    pub kind: u8,
    pub perm: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub modified: i64,
    pub link: &'f [u8],
    pub device: (u32, u32),
}

/// The fields that do not fit into a header, and are 0 or truncated there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unfit {
    pub name: bool,
    pub link: bool,
    pub uid: bool,
    pub gid: bool,
    pub size: bool,
    pub modified: bool,
}

impl<'f> Fields<'f> {
    /// The fields of an extended header of `size` bytes.
    pub(super) fn of_extension(name: &'f [u8], size: u64) -> Fields<'f> {
        Fields {
            name,
            kind: b'x',
            perm: 0o644,
            uid: 0,
            gid: 0,
            size,
            modified: 0,
            link: b"",
            device: (0, 0),
        }
    }

    /// Encodes the header, and returns which fields do not fit.
    pub(super) fn encode(&self) -> ([u8; BLOCK], Unfit) {
        let mut block = [0; BLOCK];
        let name = split(self.name);
        let (prefix, last) = name.unwrap_or((b"", &self.name[..self.name.len().min(NAME)]));
        block[..last.len()].copy_from_slice(last);
        block[345..345 + prefix.len()].copy_from_slice(prefix);
        let mut fits = |at: Range<usize>, value: u64| {
            let fits = number::put_octal(&mut block[at.clone()], value);
            fits || !number::put_octal(&mut block[at], 0)
        };
        fits(100..108, self.perm.into());
        let uid = !fits(108..116, self.uid.into());
        let gid = !fits(116..124, self.gid.into());
        let size = !fits(124..136, self.size);
        let modified = !u64::try_from(self.modified).is_ok_and(|secs| fits(136..148, secs));
        if modified {
            fits(136..148, 0);
        }
        block[TYPE] = self.kind;
        let link = &self.link[..self.link.len().min(NAME)];
        block[157..157 + link.len()].copy_from_slice(link);
        block[257..265].copy_from_slice(USTAR);
        for (at, value) in [(329, self.device.0), (337, self.device.1)] {
            let mut field = [0; 8];
            number::put_any(&mut field, value);
            block[at..at + 8].copy_from_slice(&field);
        }
        let sum = format!("{:06o}\0 ", checksums(&block).0);
        block[CHECKSUM].copy_from_slice(sum.as_bytes());
        let link = self.link.len() > NAME;
        (block, Unfit { name: name.is_none(), link, uid, gid, size, modified })
    }
}

/// Splits a name into prefix and name, if it fits.
fn split(name: &[u8]) -> Option<(&[u8], &[u8])> {
    if name.len() <= NAME {
        return Some((b"", name));
    }
    // The trailing slash of a directory cannot be the separator.
    let parts = &name[..name.len() - 1];
    let at = parts.iter().take(PREFIX + 1).rposition(|byte| *byte == b'/')?;
    let (prefix, last) = (&name[..at], &name[at + 1..]);
    (!prefix.is_empty() && last.len() <= NAME).then_some((prefix, last))
}

/// The sum of the bytes of a header, with the checksum field as blanks: of unsigned bytes, and of signed ones, which
/// some old programs use.
fn checksums(block: &[u8; BLOCK]) -> (u32, i32) {
    let blank = CHECKSUM.len() as u32 * u32::from(b' ');
    let rest = block[..CHECKSUM.start].iter().chain(&block[CHECKSUM.end..]);
    rest.fold((blank, blank as i32), |(unsigned, signed), byte| {
        (unsigned + u32::from(*byte), signed + i32::from(*byte as i8))
    })
}

/// A field up to its first zero byte.
fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    &field[..end]
}

fn trim(field: &[u8]) -> &[u8] {
    text(field).trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(name: &[u8]) -> Fields<'_> {
        Fields {
            name,
            kind: b'0',
            perm: 0o6755,
            uid: 0o7777777,
            gid: 1,
            size: (1 << 33) - 1,
            modified: 7,
            link: b"to",
            device: (u32::MAX, 3),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let (block, unfit) = fields(b"a/b").encode();
        assert_eq!(unfit, Unfit::default());
        let header = Header::parse(block).unwrap();
        assert_eq!((header.name(), header.link()), (b"a/b".to_vec(), b"to".to_vec()));
        assert_eq!((header.perm(), header.uid(), header.gid()), (Ok(0o6755), Ok(0o7777777), Ok(1)));
        assert_eq!((header.size(), header.device()), (Ok((1 << 33) - 1), Ok((u32::MAX, 3))));
        assert_eq!(header.modified(), Ok(Time { secs: 7, nanos: 0 }));
        let large = Fields { uid: 1 << 21, size: 1 << 33, modified: -1, ..fields(b"a") };
        let expected = Unfit { uid: true, size: true, modified: true, ..Unfit::default() };
        let (block, unfit) = large.encode();
        assert_eq!(unfit, expected);
        assert_eq!(Header::parse(block).unwrap().size(), Ok(0));
    }

    #[test]
    fn long_names_have_a_prefix_as_far_as_it_helps() {
        for (dir, file, fits) in [
            (155, 100, true),
            (155, 101, false),
            (156, 100, false),
            (3, 100, true),
            (0, 101, false),
            (60, 60, true),
        ] {
            let mut name = vec![b'd'; dir];
            if dir > 0 {
                name.push(b'/');
            }
            name.extend(vec![b'f'; file]);
            let (block, unfit) = fields(&name).encode();
            assert_eq!(!unfit.name, fits, "{dir}/{file}");
            let read = Header::parse(block).unwrap().name();
            assert_eq!(read == name, fits, "{dir}/{file}");
        }
        let directory = [&[b'd'; 99][..], b"/", &[b'e'; 50], b"/"].concat();
        let (block, _) = fields(&directory).encode();
        assert_eq!(Header::parse(block).unwrap().name(), directory);
    }

    #[test]
    fn checksums_are_checked() {
        let (mut block, _) = fields(b"\xff\xfe").encode();
        block[3] ^= 1;
        let fault = Header::parse(block).err().unwrap().to_string();
        assert!(fault.starts_with("checksum of the header: expected "), "{fault}");
        block[3] ^= 1;
        let signed = format!("{:06o}\0 ", checksums(&block).1);
        block[CHECKSUM].copy_from_slice(signed.as_bytes());
        assert!(Header::parse(block).is_ok());
    }
}
