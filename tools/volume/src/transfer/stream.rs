//! The format of a stream of contents: `format/STREAM.md`.
//!
//! A header, then chunks of entries. Each part is followed by a hash that covers the previous hash, so a verified
//! prefix belongs to the stream that its header names: the receiver can keep it, and the rest can be sent later.
//! Memory is limited to one chunk.

use std::io::{self, Read, Write};

use betr_core::format::{Features, FormatError, Key, NextNumbers, ZoneSizes, is_hold_name};
use betr_core::ids::{Epoch, Hash, Time, TreeId, VolumeId};
use betr_offline::transfer::Change;
use bytes::Bytes;
use sha2::{Digest, Sha256};

/// The first bytes of a stream.
pub(super) const MAGIC: &[u8; 8] = b"\xbeBETRst\n";
/// The supported version.
const VERSION: u32 = 2;
/// Bytes of the header before the names.
const FIXED_BYTES: usize = 200;
/// Bytes of the longest header: names of 255, 255 and 64 bytes, and the hash.
const HEADER_MAX: usize = FIXED_BYTES + 2 * 255 + 64 + HASH_BYTES;
const HASH_BYTES: usize = 32;
/// A chunk ends after the entry that brings its body to 256 KiB. An entry has less than 72 KiB.
const CHUNK_BYTES: usize = 256 << 10;
const BODY_MAX: usize = CHUNK_BYTES + (72 << 10);
const CHUNK_HEAD: usize = 8;
const ENTRY_HEAD: usize = 9;

/// The header of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The volume that was sent.
    pub volume: VolumeId,
    /// The epoch and the wall time of the snapshot.
    pub epoch: Epoch,
    pub wall: Time,
    /// The incompatible features of the volume.
    pub incompatible: u64,
    pub zones: ZoneSizes,
    /// The next numbers to assign.
    pub next: NextNumbers,
    /// The sizes of the image and its log, in bytes.
    pub image_bytes: u64,
    pub log_bytes: u64,
    /// The content hash of the snapshot, and its name.
    pub content: Hash,
    pub name: String,
    /// The content hash and name of the base snapshot; `None` if the stream starts from an empty volume.
    pub base: Option<(Hash, String)>,
    pub label: String,
}

/// Why a stream cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    /// Reading failed.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// A field has an invalid value.
    #[error("{what}: expected {expected}, found {found}")]
    Wrong { what: &'static str, expected: String, found: String },
    /// A number is not one that a volume gives out.
    #[error("what the header says: {0}")]
    Numbers(#[from] FormatError),
    /// The stream is truncated.
    #[error("it ends before it is complete")]
    Ended,
}

fn wrong(what: &'static str, expected: impl ToString, found: impl ToString) -> StreamError {
    StreamError::Wrong { what, expected: expected.to_string(), found: found.to_string() }
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let (base_hash, base_name) = self.base.clone().unwrap_or((Hash([0; 32]), String::new()));
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(self.volume.0);
        bytes.extend(self.epoch.0.to_le_bytes());
        bytes.extend(self.wall.secs.to_le_bytes());
        bytes.extend(self.wall.nanos.to_le_bytes());
        bytes.extend(u32::from(self.base.is_some()).to_le_bytes());
        let ZoneSizes { min, max } = self.zones;
        let push = |bytes: &mut Vec<u8>, number: u64| bytes.extend(number.to_le_bytes());
        [self.incompatible, min, max].iter().for_each(|number| push(&mut bytes, *number));
        bytes.extend(self.next.to_bytes());
        [self.image_bytes, self.log_bytes].iter().for_each(|number| push(&mut bytes, *number));
        bytes.extend(self.content.0);
        bytes.extend(base_hash.0);
        let names = [&self.name, &base_name, &self.label];
        names.iter().for_each(|name| bytes.extend((name.len() as u16).to_le_bytes()));
        bytes.resize(FIXED_BYTES, 0);
        names.iter().for_each(|name| bytes.extend(name.as_bytes()));
        bytes
    }

    /// Parses the fixed part. Returns the number of bytes after it.
    fn names_bytes(fixed: &[u8]) -> Result<usize, StreamError> {
        if !fixed.starts_with(MAGIC) {
            return Err(wrong("the beginning", "a stream of betr send", "other bytes"));
        }
        let version = u32::from_le_bytes(array(fixed, 8));
        if version != VERSION {
            return Err(wrong("version of the stream", VERSION, version));
        }
        let len = |at| usize::from(u16::from_le_bytes(array(fixed, at)));
        let names = len(NAMES_AT) + len(NAMES_AT + 2) + len(NAMES_AT + 4);
        match FIXED_BYTES + names + HASH_BYTES <= HEADER_MAX {
            true => Ok(names),
            false => Err(wrong("length of names", "574 bytes at the most", names)),
        }
    }

    fn decode(bytes: &[u8]) -> Result<Header, StreamError> {
        let u64_at = |at| u64::from_le_bytes(array(bytes, at));
        let len = |at| usize::from(u16::from_le_bytes(array(bytes, at)));
        let mut at = FIXED_BYTES;
        let mut text = |len: usize| {
            let text = std::str::from_utf8(&bytes[at..at + len]).map(str::to_owned);
            at += len;
            text.map_err(|_| wrong("a name", "UTF-8", "other bytes"))
        };
        let (name, base_name) = (text(len(NAMES_AT))?, text(len(NAMES_AT + 2))?);
        let label = text(len(NAMES_AT + 4))?;
        let base = match u32::from_le_bytes(array(bytes, 52)) {
            0 => None,
            1 => Some((Hash(array(bytes, 144)), base_name)),
            other => return Err(wrong("whether there is a base", "0 or 1", other)),
        };
        let zeros = [&bytes[12..16], &bytes[NAMES_AT + 6..FIXED_BYTES]].concat();
        if zeros.iter().any(|byte| *byte != 0) {
            return Err(wrong("what is reserved", "zeros", "other bytes"));
        }
        let nanos = u32::from_le_bytes(array(bytes, 48));
        if nanos >= 1_000_000_000 {
            return Err(wrong("nanoseconds", "less than 1,000,000,000", nanos));
        }
        let names = [Some(&name), base.as_ref().map(|(_, name)| name)];
        if !names.into_iter().flatten().all(|name| is_hold_name(name)) {
            return Err(wrong("name of a snapshot", "one that a snapshot can have", "another"));
        }
        Ok(Header {
            volume: VolumeId(array(bytes, 16)),
            epoch: Epoch(u64_at(32)),
            wall: Time { secs: i64::from_le_bytes(array(bytes, 40)), nanos },
            incompatible: known(u64_at(56))?,
            zones: ZoneSizes { min: u64_at(64), max: u64_at(72) },
            next: NextNumbers::from_bytes(&array(bytes, 80))?,
            image_bytes: u64_at(96),
            log_bytes: u64_at(104),
            content: Hash(array(bytes, 112)),
            name,
            base,
            label,
        })
    }
}

/// The offset of the lengths of the names.
const NAMES_AT: usize = 176;

/// Checks that all features are known.
fn known(incompatible: u64) -> Result<u64, StreamError> {
    match incompatible & !Features::KEYS {
        0 => Ok(incompatible),
        unknown => Err(wrong("features", "those that are known", format!("{unknown:#x}"))),
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a range of that length")
}

/// The hash of a part of a stream, which covers the previous hash.
fn chained(before: &[u8], part: &[u8]) -> [u8; HASH_BYTES] {
    let mut hash = Sha256::new();
    hash.update(before);
    hash.update(part);
    hash.finalize().into()
}

/// Writes a stream without its first `skip` bytes, which the receiver has.
pub(super) struct StreamWriter<W> {
    out: W,
    skip: u64,
    /// Bytes of the stream so far, skipped ones included.
    pub bytes: u64,
    hash: [u8; HASH_BYTES],
    body: Vec<u8>,
    entries: u32,
    last: Key,
}

impl<W: Write> StreamWriter<W> {
    /// Starts a stream; its first `skip` bytes are not written.
    pub(super) fn new(out: W, header: &Header, skip: u64) -> io::Result<StreamWriter<W>> {
        let (hash, body, last) = ([0; HASH_BYTES], Vec::new(), Key::default());
        let mut writer = StreamWriter { out, skip, bytes: 0, hash, body, entries: 0, last };
        writer.part(&header.encode())?;
        Ok(writer)
    }

    fn part(&mut self, part: &[u8]) -> io::Result<()> {
        self.hash = chained(&self.hash, part);
        let hash = self.hash;
        for piece in [part, &hash] {
            let skipped = (self.skip.saturating_sub(self.bytes) as usize).min(piece.len());
            self.bytes += piece.len() as u64;
            self.out.write_all(&piece[skipped..])?;
        }
        Ok(())
    }

    /// Adds a change.
    pub(super) fn put(&mut self, (tree, key, value): &Change) -> io::Result<()> {
        let same = self.last.iter().zip(key.iter()).take_while(|(a, b)| a == b).count();
        let shared = if self.entries == 0 { 0 } else { same };
        let kind = tree.code() | if value.is_none() { DELETES } else { 0 };
        let bytes = value.as_deref().unwrap_or_default();
        self.body.push(kind);
        self.body.extend((shared as u16).to_le_bytes());
        self.body.extend(((key.len() - shared) as u16).to_le_bytes());
        self.body.extend((bytes.len() as u32).to_le_bytes());
        self.body.extend(&key[shared..]);
        self.body.extend(bytes);
        self.entries += 1;
        self.last = key.clone();
        if self.body.len() >= CHUNK_BYTES { self.chunk() } else { Ok(()) }
    }

    fn chunk(&mut self) -> io::Result<()> {
        let mut part = (self.body.len() as u32).to_le_bytes().to_vec();
        part.extend(self.entries.to_le_bytes());
        part.append(&mut self.body);
        self.entries = 0;
        self.part(&part)
    }

    /// Ends the stream, with an empty chunk. Returns its length.
    pub(super) fn end(mut self) -> io::Result<u64> {
        if self.entries > 0 {
            self.chunk()?;
        }
        self.chunk()?;
        self.out.flush()?;
        Ok(self.bytes)
    }
}

/// The bit of an entry's kind that marks a deletion.
const DELETES: u8 = 0x80;

/// Reads a stream. Each part is verified before it is parsed further.
pub(super) struct StreamReader<R> {
    input: R,
    hash: [u8; HASH_BYTES],
    /// Bytes that have been verified.
    pub bytes: u64,
    last: Option<(TreeId, Key)>,
}

/// A chunk, and its encoded bytes.
pub(super) struct Chunk {
    pub changes: Vec<Change>,
    pub raw: Vec<u8>,
}

impl<R: Read> StreamReader<R> {
    /// Reads the header. Returns its bytes, too.
    pub(super) fn open(mut input: R) -> Result<(Header, Vec<u8>, StreamReader<R>), StreamError> {
        let mut head = vec![0; FIXED_BYTES];
        fill(&mut input, &mut head)?;
        let names = Header::names_bytes(&head)?;
        head.resize(FIXED_BYTES + names, 0);
        fill(&mut input, &mut head[FIXED_BYTES..])?;
        let mut reader = StreamReader { input, hash: [0; HASH_BYTES], bytes: 0, last: None };
        let mut raw = head.clone();
        raw.extend(reader.verify(&head, "hash of the header")?);
        Ok((Header::decode(&head)?, raw, reader))
    }

    /// Continues the same stream from another input.
    pub(super) fn go_on<S>(self, input: S) -> StreamReader<S> {
        let StreamReader { hash, bytes, last, .. } = self;
        StreamReader { input, hash, bytes, last }
    }

    fn verify(&mut self, part: &[u8], what: &'static str) -> Result<[u8; 32], StreamError> {
        let expected = chained(&self.hash, part);
        let mut found = [0; HASH_BYTES];
        fill(&mut self.input, &mut found)?;
        if found != expected {
            return Err(wrong(what, Hash(expected), Hash(found)));
        }
        self.hash = expected;
        self.bytes += (part.len() + HASH_BYTES) as u64;
        Ok(expected)
    }

    /// The next chunk; one without changes is the last.
    pub(super) fn next_chunk(&mut self) -> Result<Chunk, StreamError> {
        let mut part = vec![0; CHUNK_HEAD];
        fill(&mut self.input, &mut part)?;
        let len = u32::from_le_bytes(array(&part, 0)) as usize;
        let entries = u32::from_le_bytes(array(&part, 4)) as usize;
        if len > BODY_MAX || entries > len / ENTRY_HEAD || (entries == 0) != (len == 0) {
            let expected = format!("up to {BODY_MAX} bytes, of 9 or more for each entry");
            return Err(wrong("length of a chunk", expected, format!("{entries} in {len} bytes")));
        }
        part.resize(CHUNK_HEAD + len, 0);
        fill(&mut self.input, &mut part[CHUNK_HEAD..])?;
        let mut raw = part.clone();
        raw.extend(self.verify(&part, "hash of a chunk")?);
        let changes = self.changes(Bytes::from(part).slice(CHUNK_HEAD..), entries)?;
        Ok(Chunk { changes, raw })
    }

    fn changes(&mut self, body: Bytes, entries: usize) -> Result<Vec<Change>, StreamError> {
        let short = || wrong("an entry", "one within its chunk", "a longer one");
        let mut changes: Vec<Change> = Vec::with_capacity(entries);
        let mut at = 0;
        for _ in 0..entries {
            let head = body.get(at..at + ENTRY_HEAD).ok_or_else(short)?;
            let (kind, shared) = (head[0], usize::from(u16::from_le_bytes(array(head, 1))));
            let suffix = usize::from(u16::from_le_bytes(array(head, 3)));
            let len = u32::from_le_bytes(array(head, 5)) as usize;
            at += ENTRY_HEAD;
            let end = at.checked_add(suffix + len).filter(|end| *end <= body.len());
            let end = end.ok_or_else(short)?;
            let tree = TreeId::from_code(kind & !DELETES);
            let tree = tree.ok_or_else(|| wrong("kind of an entry", "1, 2, 129 or 130", kind))?;
            let before = changes.last().map_or(&[][..], |(_, key, _)| key);
            let prefix = before.get(..shared).ok_or_else(short)?;
            let key = Key::new([prefix, &body[at..at + suffix]].concat());
            let value = body.slice(at + suffix..end);
            at = end;
            let is_greater = match &self.last {
                Some((last_tree, last)) => (*last_tree, last) < (tree, &key),
                None => true,
            };
            if !is_greater {
                return Err(wrong("an entry", "a greater key than that before it", "another"));
            }
            self.last = Some((tree, key.clone()));
            let value = match kind & DELETES {
                0 => Some(value),
                _ if value.is_empty() => None,
                _ => return Err(wrong("an entry that goes", "no value", "one")),
            };
            changes.push((tree, key, value));
        }
        if at != body.len() {
            return Err(wrong("a chunk", format!("{at} bytes of entries"), body.len()));
        }
        Ok(changes)
    }
}

fn fill(input: &mut impl Read, buf: &mut [u8]) -> Result<(), StreamError> {
    input.read_exact(buf).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => StreamError::Ended,
        _ => StreamError::Read(error),
    })
}

#[cfg(test)]
mod tests {
    use betr_core::ids::{Ino, Tag, ZoneId};

    use super::*;

    fn header() -> Header {
        Header {
            volume: VolumeId([7; 16]),
            epoch: Epoch(9),
            wall: Time { secs: -5, nanos: 6 },
            incompatible: 0,
            zones: ZoneSizes { min: 1, max: 2 },
            next: NextNumbers { zone: ZoneId(3), ino: Ino(4), tag: Tag(5) },
            image_bytes: 5,
            log_bytes: 6,
            content: Hash([8; 32]),
            name: "a day".into(),
            base: Some((Hash([9; 32]), "before".into())),
            label: "label".into(),
        }
    }

    fn changes() -> Vec<Change> {
        let key = |number: u32| Key::new(format!("key {number:05}").into_bytes());
        let value = |number: u32| match number % 5 {
            0 => None,
            _ => Some(Bytes::from(vec![number as u8; number as usize * 37 % 3000])),
        };
        let of = |tree| (0..400).map(move |number| (tree, key(number), value(number)));
        of(TreeId::Metadata).chain(of(TreeId::Data)).collect()
    }

    fn written(skip: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = StreamWriter::new(&mut bytes, &header(), skip).unwrap();
        changes().iter().for_each(|change| writer.put(change).unwrap());
        writer.end().unwrap();
        bytes
    }

    fn read(bytes: &[u8]) -> Result<(Header, Vec<Change>), StreamError> {
        let (header, _, mut reader) = StreamReader::open(bytes)?;
        let mut all = Vec::new();
        loop {
            let chunk = reader.next_chunk()?;
            if chunk.changes.is_empty() {
                return Ok((header, all));
            }
            all.extend(chunk.changes);
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = written(0);
        assert!(bytes.len() > 2 * CHUNK_BYTES);
        assert_eq!(read(&bytes).unwrap(), (header(), changes()));
        for skip in [0, 1, 199, 300, 100_000, bytes.len() as u64] {
            assert!(written(skip) == bytes[skip as usize..], "{skip}");
        }
    }

    #[test]
    fn whatever_is_changed_is_noticed() {
        let bytes = written(0);
        for at in (0..bytes.len()).step_by(997).chain(0..300).chain(bytes.len() - 50..bytes.len()) {
            let mut bad = bytes.clone();
            bad[at] ^= 0x40;
            assert!(read(&bad).is_err(), "byte {at}");
            assert!(matches!(read(&bytes[..at]), Err(StreamError::Ended)), "cut at {at}");
        }
    }
}
