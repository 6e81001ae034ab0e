//! Reads the members of an archive in sequence.
//!
//! The data of a member can be read until the next one is requested. Types without data in POSIX have none, whatever
//! size their header says. A hard link has data only if a pax header of its own precedes it, since older programs
//! give it the size of its file. An archive ends with two blocks of zeros, or with one and the end of the file;
//! otherwise it is truncated.

use std::io;
use std::path::Path;

use crate::host::{Kind, Meta, Time};
use betr_core::text::printable;

use crate::tar::error::{Fault, TarError};
use crate::tar::header::{self, Header};
use crate::tar::input::Input;
use crate::tar::pax::Pax;
use crate::tar::sparse::{self, MapReader, Segment};
use crate::tar::{BLOCK, EXTENSION_MAX, GLOBAL_MAX, name, padding};

/// Compressed formats that are not supported: first bytes, name, and the program that unpacks them.
const COMPRESSED: [(&[u8], &str, &str); 3] = [
    (b"BZh", "bzip2", "bzcat"),
    (b"\x04\x22\x4d\x18", "lz4", "lz4cat"),
    (b"\x1f\x9d", "compress", "zcat"),
];

/// Extended headers are read in pieces of 64 KiB, so that memory is allocated only for data that exist.
const PIECE: u64 = 64 << 10;

/// An archive that is being read.
pub struct Archive {
    input: Input,
    global: Pax,
    /// The name, in the archive, of the member whose data follow.
    member: Option<Vec<u8>>,
    data: Data,
    ended: bool,
}

/// The unread rest of a member's data.
#[derive(Default)]
struct Data {
    segments: std::vec::IntoIter<Segment>,
    /// The unread rest of the current segment.
    current: Option<Segment>,
    /// Bytes of the archive before the next header.
    stored: u64,
}

/// A member of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The path below the root, without empty components, `.` and `..`; empty for the root itself.
    pub path: Vec<u8>,
    /// The type, with metadata or link target.
    pub what: What,
    /// Warnings about metadata that could not be read.
    pub warnings: Vec<String>,
}

/// The type of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// An object. Its device, inode and link numbers are meaningless, and its time of change is that of modification.
    Object(Meta),
    /// A hard link to the member with the path `to`, possibly with the contents of the file, of `size` bytes.
    Link {
        /// The path of the member that it links to.
        to: Vec<u8>,
        /// The size of the contents; 0 without contents.
        size: u64,
        /// The time of last modification.
        modified: Time,
    },
}

/// The contents of extended headers before the header of a member.
#[derive(Default)]
struct Extension {
    pax: Pax,
    /// Whether a pax header applies to this member alone.
    own: bool,
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    bytes: u64,
}

impl Archive {
    /// Opens the file, pipe or device at `path`.
    pub fn open(path: &Path) -> Result<Archive, TarError> {
        let input = Input::open(path).map_err(|source| {
            let archive = printable(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()));
            TarError::Io { archive, offset: 0, source }
        })?;
        Ok(Archive::new(input))
    }

    /// Opens standard input.
    pub fn stdin() -> Result<Archive, TarError> {
        let failed = |source| TarError::Io { archive: Input::STDIN.into(), offset: 0, source };
        Input::stdin().map(Archive::new).map_err(failed)
    }

    /// Reads an archive from `input`.
    pub fn new(input: Input) -> Archive {
        let global = Pax::default();
        Archive { input, global, member: None, data: Data::default(), ended: false }
    }

    /// Reads the header of the next member; `None` at the end.
    pub fn next_member(&mut self) -> Result<Option<Member>, TarError> {
        if self.ended {
            return Ok(None);
        }
        self.pass_by()?;
        self.member = None;
        let mut extension = Extension { pax: self.global.clone(), ..Extension::default() };
        loop {
            let at = self.input.offset();
            let Some(block) = self.header_block(at)? else {
                if extension.bytes > 0 {
                    return Err(self.corrupt(at, Fault::new("header", "a member", "the end")));
                }
                self.ended = true;
                return Ok(None);
            };
            let header = Header::parse(block).map_err(|fault| match at {
                0 => self.not_tar(&block, fault),
                _ => self.corrupt(at, fault),
            })?;
            if self.is_before_member(&header, at, &mut extension)? {
                continue;
            }
            let member = self.begin(&header, extension);
            return member.map(Some).map_err(|error| match error {
                Stop::Fault(fault) => self.corrupt(at, fault),
                Stop::Error(error) => error,
            });
        }
    }

    /// Whether a header is an extended one, which has then been applied to the following member.
    fn is_before_member(
        &mut self,
        header: &Header,
        at: u64,
        extension: &mut Extension,
    ) -> Result<bool, TarError> {
        match header.kind() {
            b'x' | b'X' => {
                let (start, bytes) = self.extension(header, at, extension)?;
                let applied = extension.pax.apply(&bytes);
                applied.map_err(|(within, fault)| self.corrupt(start + within as u64, fault))?;
                extension.own = true;
            }
            b'g' => {
                self.global(header, at)?;
                if !extension.own {
                    extension.pax = self.global.clone();
                }
            }
            b'L' => extension.name = Some(self.long_name(header, at, extension)?),
            b'K' => extension.link = Some(self.long_name(header, at, extension)?),
            // A volume label of GNU tar.
            b'V' => {
                let size = header.size().map_err(|fault| self.corrupt(at, fault))?;
                self.skip(at, whole(size))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Applies a header that concerns all following members.
    fn global(&mut self, header: &Header, at: u64) -> Result<(), TarError> {
        let (start, bytes) = self.extension(header, at, &mut Extension::default())?;
        let applied = self.global.apply(&bytes);
        applied.map_err(|(within, fault)| self.corrupt(start + within as u64, fault))?;
        let kept = self.global.kept();
        if kept > GLOBAL_MAX {
            let expected = format!("at most {GLOBAL_MAX} bytes for all members");
            return Err(self.corrupt(at, Fault::new("global header", expected, kept)));
        }
        Ok(())
    }

    /// Reads data of the member. Returns the offset in its file and the number of bytes put into `buf`, which is full
    /// unless a hole or the end follows; `None` at the end. Ranges between the data are holes.
    pub fn next_segment(&mut self, buf: &mut [u8]) -> Result<Option<(u64, usize)>, TarError> {
        let data = &mut self.data;
        let next = data.current.take().or_else(|| data.segments.find(|segment| segment.len > 0));
        let Some(Segment { offset, len }) = next else { return Ok(None) };
        let now = len.min(buf.len() as u64);
        if now < len {
            data.current = Some(Segment { offset: offset + now, len: len - now });
        }
        data.stored -= now;
        self.fill(&mut buf[..now as usize])?;
        Ok(Some((offset, now as usize)))
    }

    /// The name of the archive in messages.
    pub fn name(&self) -> &str {
        self.input.name()
    }

    /// Builds a member from its header and the extended headers before it.
    fn begin(&mut self, header: &Header, extension: Extension) -> Result<Member, Stop> {
        let Extension { pax, own, name, link, .. } = extension;
        let raw = pax.sparse.name.clone().or(pax.path.clone()).or(name);
        let raw = raw.unwrap_or_else(|| header.name());
        self.member = Some(raw.clone());
        let path = name::clean("name", &raw)?;
        let link = pax.link.clone().or(link).unwrap_or_else(|| header.link());
        let size = || pax.size.map_or_else(|| header.size(), Ok);
        let mut warnings = Vec::new();
        let kind = match header.kind() {
            b'1' => {
                let size = if own { size()? } else { 0 };
                self.plain(size);
                let to = name::clean("target of the hard link", &link)?;
                let modified = pax.modified.map_or_else(|| header.modified(), Ok)?;
                return Ok(Member { path, what: What::Link { to, size, modified }, warnings });
            }
            b'2' if link.is_empty() => {
                return Err(Fault::new("target of the symbolic link", "a path", "none").into());
            }
            b'2' => Kind::Symlink(link),
            kind @ (b'3' | b'4') => {
                let (major, minor) = match (pax.major, pax.minor) {
                    (Some(major), Some(minor)) => (major, minor),
                    (major, minor) => {
                        let device = header.device()?;
                        (major.unwrap_or(device.0), minor.unwrap_or(device.1))
                    }
                };
                match kind {
                    b'3' => Kind::CharDevice { major, minor },
                    _ => Kind::BlockDevice { major, minor },
                }
            }
            b'5' => Kind::Directory,
            b'6' => Kind::Fifo,
            // A directory with a list of its names, in GNU's incremental archives.
            b'D' => {
                self.data.stored = whole(size()?);
                Kind::Directory
            }
            0 | b'0' if raw.ends_with(b"/") => {
                self.data.stored = whole(size()?);
                Kind::Directory
            }
            0 | b'0' | b'7' | b'S' => Kind::File,
            other => {
                let expected = "one of the types '0' to '7', 'D' and 'S'";
                return Err(Fault::text("type of the member", expected, &[other]).into());
            }
        };
        let size = match kind {
            Kind::File => self.contents(header, &pax, size()?)?,
            Kind::Symlink(ref target) => target.len() as u64,
            _ => 0,
        };
        let modified = pax.modified.map_or_else(|| header.modified(), Ok)?;
        let accessed = match pax.accessed {
            None => header.accessed()?.unwrap_or(modified),
            Some(accessed) => accessed,
        };
        let meta = Meta {
            uid: pax.uid.map_or_else(|| header.uid(), Ok)?,
            gid: pax.gid.map_or_else(|| header.gid(), Ok)?,
            size,
            atime: accessed,
            xattrs: pax.xattrs(&mut warnings),
            ..Meta::new(kind, header.perm()?, modified)
        };
        Ok(Member { path, what: What::Object(meta), warnings })
    }

    /// Prepares to read the contents of a file, of which `stored` bytes follow. Returns the size of the file.
    fn contents(&mut self, header: &Header, pax: &Pax, stored: u64) -> Result<u64, Stop> {
        if header.kind() == b'S' {
            let (size, mut map, mut more) = header.sparse()?;
            while more {
                let (segments, yet_more) = header::more_segments(&self.block()?)?;
                sparse::check_count((map.len() + segments.len()) as u64)?;
                map.extend(segments);
                more = yet_more;
            }
            return self.sparse(map, size, stored);
        }
        let size = || pax.sparse.size.ok_or(Fault::new("sparse file", "its size", "none"));
        match (pax.sparse.major.unwrap_or(0), pax.sparse.minor.unwrap_or(0)) {
            (1, 0) => {
                let mut reader = MapReader::default();
                let mut left = stored;
                let map = loop {
                    left = left.checked_sub(BLOCK as u64).ok_or_else(|| {
                        let what = "map in front of the data of the sparse file";
                        Fault::new(what, format!("an end within {stored} bytes"), "none")
                    })?;
                    if let Some(map) = reader.take(&self.block()?)? {
                        break map;
                    }
                };
                self.sparse(map, size()?, left)
            }
            (0, 0 | 1) => match pax.sparse.map()? {
                Some(map) => self.sparse(map.to_vec(), size()?, stored),
                None if pax.sparse.is_any() => {
                    Err(Fault::new("sparse file", "a map of its data", "none").into())
                }
                None => {
                    self.plain(stored);
                    Ok(stored)
                }
            },
            (major, minor) => {
                let found = format!("{major}.{minor}");
                Err(Fault::new("format of the sparse file", "0.0, 0.1 or 1.0", found).into())
            }
        }
    }

    fn plain(&mut self, size: u64) {
        let segments = vec![Segment { offset: 0, len: size }].into_iter();
        self.data = Data { segments, current: None, stored: whole(size) };
    }

    fn sparse(&mut self, map: Vec<Segment>, size: u64, stored: u64) -> Result<u64, Stop> {
        sparse::check(&map, size, stored)?;
        self.data = Data { segments: map.into_iter(), current: None, stored: whole(stored) };
        Ok(size)
    }

    /// Reads the data of an extended header. Returns their offset in the archive, too.
    fn extension(
        &mut self,
        header: &Header,
        at: u64,
        extension: &mut Extension,
    ) -> Result<(u64, Vec<u8>), TarError> {
        let size = header.size().map_err(|fault| self.corrupt(at, fault))?;
        extension.bytes = extension.bytes.saturating_add(size).saturating_add(BLOCK as u64);
        if extension.bytes > EXTENSION_MAX {
            let expected = format!("at most {EXTENSION_MAX} bytes for one member");
            return Err(self.corrupt(at, Fault::new("extended header", expected, extension.bytes)));
        }
        let start = self.input.offset();
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < size {
            let done = bytes.len();
            bytes.resize(done + PIECE.min(size - done as u64) as usize, 0);
            self.fill(&mut bytes[done..])?;
        }
        self.skip(at, padding(size))?;
        Ok((start, bytes))
    }

    /// Reads the data of a GNU long name header; a trailing zero byte is dropped.
    fn long_name(
        &mut self,
        header: &Header,
        at: u64,
        extension: &mut Extension,
    ) -> Result<Vec<u8>, TarError> {
        let (_, mut bytes) = self.extension(header, at, extension)?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        bytes.truncate(end);
        Ok(bytes)
    }

    /// Reads the next header block; `None` at the end of the archive.
    fn header_block(&mut self, at: u64) -> Result<Option<[u8; BLOCK]>, TarError> {
        let mut block = [0; BLOCK];
        let read = self.read(&mut block)?;
        if at == 0 && read < BLOCK {
            let found = format!("{read} bytes");
            return Err(
                self.not_tar(&block, Fault::new("beginning", "a block of 512 bytes", found))
            );
        }
        match read {
            BLOCK if block.iter().any(|byte| *byte != 0) => return Ok(Some(block)),
            BLOCK => {}
            0 => {
                let fault =
                    Fault::new("header", "a member or two blocks of zeros", "the end of the file");
                return Err(self.corrupt(at, fault));
            }
            _ => return Err(self.cut_off(at, BLOCK as u64, read as u64)),
        }
        let read = self.read(&mut block)?;
        if block[..read].iter().any(|byte| *byte != 0) {
            let fault = Fault::new("end of the archive", "two blocks of zeros", "one");
            return Err(self.corrupt(at, fault));
        }
        self.input.drain().map_err(|source| self.io(source))?;
        Ok(None)
    }

    /// Skips the unread data of a member.
    fn pass_by(&mut self) -> Result<(), TarError> {
        let left = std::mem::take(&mut self.data).stored;
        self.skip(self.input.offset(), left)
    }

    fn skip(&mut self, at: u64, count: u64) -> Result<(), TarError> {
        let skipped = self.input.skip(count).map_err(|source| self.io(source))?;
        if skipped < count { Err(self.cut_off(at, count, skipped)) } else { Ok(()) }
    }

    fn block(&mut self) -> Result<[u8; BLOCK], TarError> {
        let mut block = [0; BLOCK];
        self.fill(&mut block)?;
        Ok(block)
    }

    fn fill(&mut self, buf: &mut [u8]) -> Result<(), TarError> {
        let at = self.input.offset();
        let read = self.read(buf)?;
        if read < buf.len() {
            return Err(self.cut_off(at, buf.len() as u64, read as u64));
        }
        Ok(())
    }

    fn read(&mut self, buf: &mut [u8]) -> Result<usize, TarError> {
        self.input.read(buf).map_err(|source| self.io(source))
    }

    fn io(&self, source: io::Error) -> TarError {
        let archive = self.name().to_owned();
        TarError::Io { archive, offset: self.input.offset(), source }
    }

    fn cut_off(&self, at: u64, expected: u64, found: u64) -> TarError {
        let fault = Fault::new(
            "the archive is cut off",
            format!("{expected} bytes from here on"),
            format!("{found}"),
        );
        self.corrupt(at, fault)
    }

    fn corrupt(&self, offset: u64, fault: Fault) -> TarError {
        let archive = self.name().to_owned();
        TarError::Corrupt { archive, offset, member: self.member.clone(), fault }
    }

    fn not_tar(&self, start: &[u8], fault: Fault) -> TarError {
        let archive = self.name().to_owned();
        for (magic, format, program) in COMPRESSED {
            if start.starts_with(magic) {
                return TarError::Compressed { archive, format, program };
            }
        }
        TarError::NotTar { archive, fault }
    }
}

/// Why a member could not be read: a fault of its header, or an error with a place of its own.
enum Stop {
    Fault(Fault),
    Error(TarError),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Fault(fault)
    }
}

impl From<TarError> for Stop {
    fn from(error: TarError) -> Stop {
        Stop::Error(error)
    }
}

/// The stored length of `size` bytes with padding. `size` is below 2^63.
fn whole(size: u64) -> u64 {
    size + padding(size)
}
