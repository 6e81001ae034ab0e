//! A proof as a file: `format/PROOF.md`.
//!
//! A proof contains extents of an image, each with its address. Nothing in it is trusted: every byte that is read must
//! verify by the chain of hashes from the root, or the read fails. Memory is bounded by the index of the rows, which is
//! no larger than the file. The bytes of the rows are read from the file on demand.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use betr_core::device::Device;
use betr_core::ids::{BLOCK_SIZE, BlockNr};
use betr_core::path::Operand;

/// The magic at the beginning of a proof.
const MAGIC: &[u8; 8] = b"\xbeBETRpf\n";
/// The version of the format.
const VERSION: u32 = 1;
/// The size of the header in bytes.
const HEADER_BYTES: usize = 32;
/// The size of a row in the index, in bytes.
const ROW_BYTES: usize = 12;
/// The most bytes in a row.
const ROW_MAX: u64 = 1 << 20;
/// The most bytes in a path.
const PATH_MAX: usize = 1 << 16;
/// The end of the address space of an image (16 TiB).
const IMAGE_MAX: u64 = 1 << 44;

/// The claim of a proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The path.
    pub path: Vec<u8>,
    /// Whether the proof covers the contents of a file besides the inode.
    pub contents: bool,
    /// The block of the root page.
    pub root: BlockNr,
}

/// The reason why a file is not a proof.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProofError {
    /// Reading failed.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// A field has an invalid value.
    #[error("{what}, at byte {at}: expected {expected}, found {found}")]
    Wrong { what: &'static str, at: usize, expected: String, found: String },
}

fn wrong(
    what: &'static str,
    at: usize,
    expected: impl ToString,
    found: impl ToString,
) -> ProofError {
    ProofError::Wrong { what, at, expected: expected.to_string(), found: found.to_string() }
}

/// Writes a proof with the ranges that a lookup has read from a device. Returns its length in bytes.
pub(crate) fn write(
    mut out: impl Write,
    claim: &Claim,
    read: &[Range<u64>],
    device: &dyn Device,
) -> io::Result<u64> {
    let pieces = read.iter().flat_map(|row| {
        let starts = (row.start..row.end).step_by(ROW_MAX as usize);
        starts.map(|start| (start, (row.end - start).min(ROW_MAX) as u32))
    });
    let rows: Vec<(u64, u32)> = pieces.collect();
    let mut head = MAGIC.to_vec();
    head.extend(VERSION.to_le_bytes());
    head.extend(u32::from(claim.contents).to_le_bytes());
    head.extend(claim.root.0.to_le_bytes());
    head.extend((claim.path.len() as u32).to_le_bytes());
    head.extend((rows.len() as u32).to_le_bytes());
    head.extend(&claim.path);
    for (at, len) in &rows {
        head.extend(at.to_le_bytes());
        head.extend(len.to_le_bytes());
    }
    out.write_all(&head)?;
    let mut written = head.len() as u64;
    let mut bytes = Vec::new();
    for (at, len) in rows {
        bytes.resize(len as usize, 0);
        device.read_at(at, &mut bytes)?;
        out.write_all(&bytes)?;
        written += u64::from(len);
    }
    out.flush()?;
    Ok(written)
}

/// A device with only the bytes of a proof; all other reads fail.
pub(crate) struct ProofDevice {
    file: File,
    rows: Vec<Row>,
}

/// The address of a row in the image, its length, and its place in the file.
#[derive(Clone, Copy, Debug)]
struct Row {
    at: u64,
    len: u32,
    place: u64,
}

impl ProofDevice {
    /// Opens a proof. Only its form is verified, not its content.
    pub(super) fn open(mut file: File) -> Result<(Claim, ProofDevice), ProofError> {
        let file_bytes = file.metadata()?.len();
        if file_bytes < HEADER_BYTES as u64 {
            let expected = format!("{HEADER_BYTES} bytes or more");
            return Err(wrong("length", 0, expected, file_bytes));
        }
        let mut head = [0; HEADER_BYTES];
        file.read_exact(&mut head)?;
        let u32_at = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four"));
        if !head.starts_with(MAGIC) {
            let text = betr_core::text::printable;
            return Err(wrong("magic", 0, text(MAGIC), text(&head[..8])));
        }
        if u32_at(8) != VERSION {
            return Err(wrong("version", 8, VERSION, u32_at(8)));
        }
        let contents = match u32_at(12) {
            flag @ 0..=1 => flag == 1,
            flag => return Err(wrong("contents", 12, "0 or 1", flag)),
        };
        let root = u64::from_le_bytes(head[16..24].try_into().expect("eight"));
        if root >= IMAGE_MAX / BLOCK_SIZE as u64 {
            return Err(wrong("block of the root", 16, "less than 2^32", root));
        }
        let (path_bytes, count) = (u32_at(24) as usize, u64::from(u32_at(28)));
        if path_bytes > PATH_MAX {
            return Err(wrong("length of the path", 24, format!("at most {PATH_MAX}"), path_bytes));
        }
        let mut place = (HEADER_BYTES + path_bytes) as u64 + count * ROW_BYTES as u64;
        if place > file_bytes {
            return Err(wrong("rows", 28, format!("as many as {file_bytes} bytes have"), count));
        }
        let mut path = vec![0; path_bytes];
        file.read_exact(&mut path)?;
        let plain = Operand::new(path.clone()).plain();
        if plain.as_ref() != Some(&path) {
            let text = betr_core::text::printable;
            let expected = plain.map_or("names from the root on".into(), |plain| text(&plain));
            return Err(wrong("path", HEADER_BYTES, expected, text(&path)));
        }
        let mut index = vec![0; count as usize * ROW_BYTES];
        file.read_exact(&mut index)?;
        let (mut rows, mut end) = (Vec::with_capacity(count as usize), 0);
        for (number, row) in index.chunks_exact(ROW_BYTES).enumerate() {
            let here = HEADER_BYTES + path_bytes + number * ROW_BYTES;
            let at = u64::from_le_bytes(row[..8].try_into().expect("eight"));
            let len = u32::from_le_bytes(row[8..].try_into().expect("four"));
            if len == 0 || u64::from(len) > ROW_MAX {
                return Err(wrong("length of a row", here + 8, format!("1 to {ROW_MAX}"), len));
            }
            if at < end || at > IMAGE_MAX - u64::from(len) {
                let expected = format!("{end} to 2^44, in order");
                return Err(wrong("address of a row", here, expected, at));
            }
            rows.push(Row { at, len, place });
            end = at + u64::from(len);
            place += u64::from(len);
        }
        if place != file_bytes {
            return Err(wrong("length", 0, format!("{place} bytes"), file_bytes));
        }
        let claim = Claim { path, contents, root: BlockNr(root) };
        Ok((claim, ProofDevice { file, rows }))
    }
}

impl Device for ProofDevice {
    fn len(&self) -> u64 {
        IMAGE_MAX
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let (mut at, mut rest) = (at, buf);
        while !rest.is_empty() {
            let next = self.rows.partition_point(|row| row.at + u64::from(row.len) <= at);
            let Some(row) = self.rows.get(next).filter(|row| row.at <= at) else {
                return Err(io::Error::other("the proof does not have these bytes"));
            };
            let skip = at - row.at;
            let here = (u64::from(row.len) - skip).min(rest.len() as u64);
            let (part, behind) = rest.split_at_mut(here as usize);
            self.file.read_exact_at(part, row.place + skip)?;
            (at, rest) = (at + here, behind);
        }
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "a proof is only read"))
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Seek;

    use betr_core::device::MemoryDevice;

    use super::*;

    fn opened(bytes: &[u8]) -> Result<(Claim, ProofDevice), ProofError> {
        let file = rustix::fs::memfd_create("proof", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = File::from(file);
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        ProofDevice::open(file)
    }

    fn proof() -> (Claim, Vec<u8>) {
        let bytes: Vec<u8> = (0..5 << 20).map(|at: u32| (at >> 9) as u8).collect();
        let device = MemoryDevice::from(bytes);
        let claim = Claim { path: b"/a/b".to_vec(), contents: true, root: BlockNr(7) };
        let mut file = Vec::new();
        let read = [10..20, 4096..(4096 + (2 << 20) + 5)];
        let len = write(&mut file, &claim, &read, &device).unwrap();
        assert_eq!(len, file.len() as u64);
        (claim, file)
    }

    #[test]
    fn only_what_was_read_can_be_read() {
        let (claim, file) = proof();
        let (found, device) = opened(&file).unwrap();
        assert_eq!(found, claim);
        for (at, len) in [(10, 10), (4096, 1), (4096, (2 << 20) + 5), ((1 << 20) + 4000, 200)] {
            let mut bytes = vec![0; len];
            device.read_at(at, &mut bytes).unwrap();
            assert!((at..).zip(bytes).all(|(at, byte)| byte == (at >> 9) as u8));
        }
        for (at, len) in [(9, 2), (19, 2), (0, 1), (4095, 2), (4096 + (2 << 20) + 5, 1)] {
            assert!(device.read_at(at, &mut vec![0; len]).is_err(), "{at}");
        }
        device.read_at(u64::MAX, &mut []).unwrap();
    }

    #[test]
    fn what_is_no_proof_is_refused() {
        let (_, file) = proof();
        let index = HEADER_BYTES + 4;
        let cases: [(usize, &[u8], &str); 11] = [
            (0, b"x", "magic, at byte 0"),
            (8, &[2], "version, at byte 8"),
            (12, &[2], "0 or 1, found 2"),
            (22, &[1], "block of the root"),
            (26, &[9], "length of the path"),
            (31, &[255], "rows, at byte 28"),
            (HEADER_BYTES, b"//a/", "path, at byte 32: expected /a, found //a/"),
            (HEADER_BYTES, b"/../", "expected names from the root on, found /../"),
            (index + 8, &[0], "length of a row"),
            (index + 12, &[0, 0], "address of a row"),
            (index + 12 + 6, &[1], "address of a row"),
        ];
        for (at, bytes, text) in cases {
            let mut bad = file.clone();
            bad[at..at + bytes.len()].copy_from_slice(bytes);
            let error = opened(&bad).err().expect(text).to_string();
            assert!(error.contains(text), "{error}");
        }
        for len in [0, 31, 40, file.len() - 1] {
            assert!(opened(&file[..len]).is_err());
        }
        assert!(opened(&[&file[..], b"x"].concat()).is_err());
    }
}
