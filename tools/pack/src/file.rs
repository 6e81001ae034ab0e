//! A pack as a stream of bytes: `format/PACK.md`. It is written and read in a single pass.
//!
//! The reader trusts nothing. Rows must be in order and within the image, so the output never exceeds the length of the
//! image. Memory is bounded by the compression window. Only the hash at the end proves that the pack is complete and
//! unchanged.

use std::io::{self, BufRead, Read, Write};

use betr_core::ids::{BLOCK_SIZE, Hash, is_zero};
use betr_offline::redact::Original;
use sha2::{Digest, Sha256};
use zstd::stream::{read::Decoder, write::Encoder};

/// The magic at the beginning of a pack.
const MAGIC: &[u8; 8] = b"\xbeBETRpk\n";
/// The version of the format.
const VERSION: u32 = 2;
/// The size of the header in bytes.
const HEADER_BYTES: usize = 24;
/// The size of a row header in bytes: first block and count.
const ROW_BYTES: usize = 12;
/// The most blocks in a row.
const ROW_MAX: u32 = 256;
/// The most bytes in an image (16 TiB).
const IMAGE_MAX: u64 = 1 << 44;
/// The binary logarithm of the compression window: 8 MiB.
const WINDOW_LOG: u32 = 23;
/// The size in bytes of the entry for a resealed structure.
pub(crate) const ORIGINAL_BYTES: usize = 44;
/// An image has at least 32 bytes for each hash in it, which bounds the number of entries.
const HASH_BYTES: u64 = 32;
/// The zstd compression level.
const LEVEL: i32 = 9;

/// The file contents in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// None: they are replaced by zeros.
    Zeros,
    /// All of them.
    All,
    /// Those of structures that do not verify; all others are replaced by zeros.
    OfDamaged,
}

impl Contents {
    /// The variants in the order of their codes.
    const CODES: [Contents; 3] = [Contents::Zeros, Contents::All, Contents::OfDamaged];
}

/// The header of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The file contents in the pack.
    pub contents: Contents,
    /// The length of the image in bytes.
    pub image_bytes: u64,
}

/// The reason why a pack cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PackError {
    /// Reading failed, or the compressed data is truncated or invalid.
    #[error("{}", unread(.0))]
    Read(#[from] io::Error),
    /// The file ends within the header.
    #[error("it has only {0} bytes, and a pack has more")]
    Short(usize),
    /// A later version of the format.
    #[error("version, at byte 8: expected at most {VERSION}, found {0}")]
    Newer(u32),
    /// A field has an invalid value.
    #[error("{what}, at {place}: expected {expected}, found {found}")]
    Wrong { what: &'static str, place: String, expected: String, found: String },
}

fn unread(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "it ends too early".into(),
        _ => error.to_string(),
    }
}

impl Header {
    fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(self.contents as u32).to_le_bytes());
        bytes[16..].copy_from_slice(&self.image_bytes.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, PackError> {
        let wrong = |what, at: usize, expected: &str, found: String| {
            let (place, expected) = (format!("byte {at}"), expected.into());
            PackError::Wrong { what, place, expected, found }
        };
        if !bytes.starts_with(MAGIC) {
            let text = betr_core::text::printable;
            return Err(wrong("magic", 0, &text(MAGIC), text(&bytes[..8])));
        }
        match u32_at(bytes, 8) {
            VERSION => {}
            version if version > VERSION => return Err(PackError::Newer(version)),
            version => return Err(wrong("version", 8, "2", version.to_string())),
        }
        let code = u32_at(bytes, 12);
        let contents = Contents::CODES.get(code as usize).copied();
        let contents = contents.ok_or_else(|| wrong("contents", 12, "0 to 2", code.to_string()))?;
        let image_bytes = u64_at(bytes, 16);
        if image_bytes > IMAGE_MAX {
            return Err(wrong("image bytes", 16, "at most 2^44", image_bytes.to_string()));
        }
        Ok(Header { contents, image_bytes })
    }

    /// The number of blocks in the image; the last block may be partial.
    pub(crate) fn blocks(self) -> u64 {
        self.image_bytes.div_ceil(BLOCK_SIZE as u64)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Writes a pack.
pub(crate) struct PackWriter<W: Write> {
    out: Encoder<'static, W>,
    hash: Sha256,
    /// The row being collected, and its first block.
    row: Vec<u8>,
    first: u64,
    blocks: u64,
}

impl<W: Write> PackWriter<W> {
    /// Writes the header.
    pub(crate) fn new(mut out: W, header: Header) -> io::Result<PackWriter<W>> {
        let bytes = header.encode();
        out.write_all(&bytes)?;
        let mut out = Encoder::new(out, LEVEL)?;
        out.window_log(WINDOW_LOG)?;
        let hash = Sha256::new_with_prefix(bytes);
        Ok(PackWriter { out, hash, row: Vec::new(), first: 0, blocks: 0 })
    }

    /// Appends a block, which must come after all previous ones. Blocks of zeros are skipped.
    pub(crate) fn block(&mut self, block: u64, bytes: &[u8]) -> io::Result<()> {
        if is_zero(bytes) {
            return Ok(());
        }
        let count = (self.row.len() / BLOCK_SIZE) as u64;
        if count == u64::from(ROW_MAX) || block != self.first + count {
            self.flush_row()?;
        }
        if self.row.is_empty() {
            self.first = block;
        }
        self.row.extend_from_slice(bytes);
        self.row.resize(self.row.len().next_multiple_of(BLOCK_SIZE), 0);
        self.blocks += 1;
        Ok(())
    }

    fn flush_row(&mut self) -> io::Result<()> {
        let count = (self.row.len() / BLOCK_SIZE) as u32;
        if count > 0 {
            self.write(&row_header(self.first, count))?;
            let row = std::mem::take(&mut self.row);
            self.write(&row)?;
            self.row = row;
            self.row.clear();
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.out.write_all(bytes)
    }

    /// Ends the rows and appends `count` entries for resealed structures, encoded by [`encode_original`]. Ends the
    /// pack; returns the number of blocks in it.
    pub(crate) fn end(mut self, count: u64, mut originals: impl Read) -> io::Result<u64> {
        self.flush_row()?;
        self.write(&row_header(self.blocks, 0))?;
        self.write(&count.to_le_bytes())?;
        let mut original = [0; ORIGINAL_BYTES];
        for _ in 0..count {
            originals.read_exact(&mut original)?;
            self.write(&original)?;
        }
        let hash: [u8; 32] = self.hash.finalize().into();
        self.out.write_all(&hash)?;
        self.out.finish()?.flush()?;
        Ok(self.blocks)
    }
}

/// Encodes the entry for a resealed structure.
pub(crate) fn encode_original(original: &Original) -> [u8; ORIGINAL_BYTES] {
    let mut bytes = [0; ORIGINAL_BYTES];
    bytes[..8].copy_from_slice(&original.byte.to_le_bytes());
    bytes[8..12].copy_from_slice(&original.bytes.to_le_bytes());
    bytes[12..].copy_from_slice(&original.hash.0);
    bytes
}

fn row_header(first: u64, count: u32) -> [u8; ROW_BYTES] {
    let mut bytes = [0; ROW_BYTES];
    bytes[..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..].copy_from_slice(&count.to_le_bytes());
    bytes
}

/// Reads a pack.
pub(crate) struct PackReader<R: BufRead> {
    input: Decoder<'static, R>,
    header: Header,
    hash: Sha256,
    /// The position in the decompressed data.
    at: u64,
    row: Vec<u8>,
    /// The block after the last row, and whether the last row was full, so that the next row may begin there.
    next: u64,
    full: bool,
    blocks: u64,
    /// The number of entries left, once all rows have been read.
    originals: u64,
}

impl<R: BufRead> PackReader<R> {
    /// Reads and verifies the header.
    pub(crate) fn new(mut input: R) -> Result<PackReader<R>, PackError> {
        let mut found = Vec::with_capacity(HEADER_BYTES);
        input.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut found)?;
        let bytes: [u8; HEADER_BYTES] =
            found.try_into().map_err(|found: Vec<u8>| PackError::Short(found.len()))?;
        let header = Header::decode(&bytes)?;
        let mut input = Decoder::with_buffer(input)?.single_frame();
        input.window_log_max(WINDOW_LOG)?;
        let (hash, row) = (Sha256::new_with_prefix(bytes), Vec::new());
        Ok(PackReader {
            input,
            header,
            hash,
            at: 0,
            row,
            next: 0,
            full: true,
            blocks: 0,
            originals: 0,
        })
    }

    /// The header of the pack.
    pub(crate) fn header(&self) -> Header {
        self.header
    }

    /// Reads the next row: its first block and its bytes. `None` after the last row; then the entries for resealed
    /// structures follow.
    pub(crate) fn row(&mut self) -> Result<Option<(u64, &[u8])>, PackError> {
        let at = self.at;
        let mut head = [0; ROW_BYTES];
        self.read(&mut head)?;
        let (first, count) = (u64_at(&head, 0), u32_at(&head, 8));
        if count == 0 {
            self.end_of_rows(at, first)?;
            return Ok(None);
        }
        if count > ROW_MAX {
            return Err(wrong("blocks of a row", at + 8, "at most 256", count));
        }
        let end = first.checked_add(count.into()).filter(|end| *end <= self.header.blocks());
        let least = if self.full { self.next } else { self.next + 1 };
        let Some(end) = end.filter(|_| first >= least) else {
            let expected = format!("blocks from {least} to {}", self.header.blocks());
            return Err(wrong("a row", at, expected, format!("{first}+{count}")));
        };
        (self.next, self.full, self.blocks) =
            (end, count == ROW_MAX, self.blocks + u64::from(count));
        let mut row = std::mem::take(&mut self.row);
        row.resize(count as usize * BLOCK_SIZE, 0);
        self.read(&mut row)?;
        self.row = row;
        if let Some(zero) = self.row.chunks(BLOCK_SIZE).position(is_zero) {
            let at = at + (ROW_BYTES + zero * BLOCK_SIZE) as u64;
            return Err(wrong("a block", at, "one that is not zero", "zeros"));
        }
        let beyond = (end * BLOCK_SIZE as u64).saturating_sub(self.header.image_bytes) as usize;
        let inside = self.row.len() - beyond;
        if !is_zero(&self.row[inside..]) {
            let at = at + (ROW_BYTES + inside) as u64;
            return Err(wrong("the last block", at, "zeros behind the image", "something else"));
        }
        Ok(Some((first, &self.row[..inside])))
    }

    /// Handles the end of the rows, after its block number and count have been read.
    fn end_of_rows(&mut self, at: u64, blocks: u64) -> Result<(), PackError> {
        if blocks != self.blocks {
            return Err(wrong("number of blocks", at, self.blocks, blocks));
        }
        let at = self.at;
        let mut count = [0; 8];
        self.read(&mut count)?;
        self.originals = u64::from_le_bytes(count);
        let most = self.header.image_bytes / HASH_BYTES;
        match self.originals > most {
            true => Err(wrong("structures", at, format!("at most {most}"), self.originals)),
            false => Ok(()),
        }
    }

    /// Reads the next entry for a resealed structure, after all rows. `None` when all have been read and the final hash
    /// verifies.
    pub(crate) fn original(&mut self) -> Result<Option<Original>, PackError> {
        if self.originals == 0 {
            self.end()?;
            return Ok(None);
        }
        self.originals -= 1;
        let mut bytes = [0; ORIGINAL_BYTES];
        self.read(&mut bytes)?;
        let hash = Hash(bytes[12..].try_into().expect("32 bytes"));
        Ok(Some(Original { byte: u64_at(&bytes, 0), bytes: u32_at(&bytes, 8), hash }))
    }

    fn end(&mut self) -> Result<(), PackError> {
        let computed = Hash(self.hash.clone().finalize().into());
        let mut hash = [0; 32];
        self.input.read_exact(&mut hash)?;
        if hash != computed.0 {
            return Err(wrong("hash", self.at, computed, Hash(hash)));
        }
        let after = self.at + hash.len() as u64;
        let nothing = |more| match more {
            true => Err(wrong("end", after, "the end of the pack", "more")),
            false => Ok(()),
        };
        nothing(self.input.read(&mut [0])? > 0)?;
        nothing(!self.input.get_mut().fill_buf()?.is_empty())
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.input.read_exact(bytes)?;
        self.hash.update(&*bytes);
        self.at += bytes.len() as u64;
        Ok(())
    }
}

fn wrong(what: &'static str, at: u64, expected: impl ToString, found: impl ToString) -> PackError {
    let place = format!("byte {at} of what is compressed");
    PackError::Wrong { what, place, expected: expected.to_string(), found: found.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header { contents: Contents::Zeros, image_bytes: 600 * 4096 - 96 };

    const ORIGINAL: Original = Original { byte: 1 << 63, bytes: 77, hash: Hash([9; 32]) };

    fn pack(blocks: &[(u64, u8)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = PackWriter::new(&mut bytes, HEADER).unwrap();
        for (block, byte) in blocks {
            let len = if *block == 599 { 4000 } else { 4096 };
            writer.block(*block, &vec![*byte; len]).unwrap();
        }
        writer.end(2, &[encode_original(&ORIGINAL); 2].concat()[..]).unwrap();
        bytes
    }

    fn unpack(bytes: &[u8]) -> Result<Vec<(u64, u8)>, PackError> {
        let mut reader = PackReader::new(bytes)?;
        let mut found = Vec::new();
        while let Some((first, bytes)) = reader.row()? {
            found.extend((first..).zip(bytes.chunks(BLOCK_SIZE).map(|block| block[0])));
        }
        let mut originals = Vec::new();
        while let Some(original) = reader.original()? {
            originals.push(original);
        }
        assert!(originals.is_empty() || originals == [ORIGINAL; 2]);
        Ok(found)
    }

    /// A pack with arbitrary rows.
    fn forged(records: &[u8]) -> Vec<u8> {
        let mut bytes = HEADER.encode().to_vec();
        let mut encoder = Encoder::new(&mut bytes, 1).unwrap();
        encoder.write_all(records).unwrap();
        encoder.finish().unwrap();
        bytes
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        let blocks: Vec<(u64, u8)> =
            (0..300).chain([500, 502, 599]).map(|block| (block, block as u8 | 1)).collect();
        let bytes = pack(&blocks);
        assert_eq!(unpack(&bytes).unwrap(), blocks);
        assert_eq!(PackReader::new(&bytes[..]).unwrap().header(), HEADER);
        assert_eq!(pack(&blocks), bytes);
        assert_eq!(unpack(&pack(&[(3, 0), (4, 1)])).unwrap(), [(4, 1)]);
        assert_eq!(unpack(&pack(&[])).unwrap(), []);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let bytes = pack(&[(1, 1), (2, 2), (77, 3)]);
        for at in 0..bytes.len() {
            assert!(unpack(&bytes[..at]).is_err(), "cut at {at}");
            let mut bad = bytes.clone();
            bad[at] ^= 1 << (at % 8);
            // Some bits of the compressed data have no meaning; flipping one leaves the decoded data unchanged.
            if let Ok(found) = unpack(&bad) {
                assert!(at >= HEADER_BYTES && found == [(1, 1), (2, 2), (77, 3)], "bit at {at}");
            }
        }
        assert!(unpack(&[&bytes[..], b"x"].concat()).is_err());
        let mut newer = bytes;
        newer[8] = 3;
        assert!(matches!(unpack(&newer), Err(PackError::Newer(3))));
        assert!(matches!(unpack(&[]), Err(PackError::Short(0))));
    }

    #[test]
    fn rows_that_lie_are_refused() {
        let row = |first, count: u32, bytes: &[u8]| [&row_header(first, count)[..], bytes].concat();
        let block = [7; BLOCK_SIZE];
        let cases = [
            (row(u64::MAX, 1, &block), "a row, at byte 0"),
            (row(600, 1, &block), "blocks from 0 to 600, found 600+1"),
            (row(599, 1, &block), "zeros behind the image"),
            (row(0, 257, &block), "at most 256, found 257"),
            (row(0, 1, &[0; BLOCK_SIZE]), "one that is not zero"),
            ([row(1, 1, &block), row(1, 1, &block)].concat(), "blocks from 3 to 600"),
            ([row(1, 1, &block), row(2, 1, &block)].concat(), "blocks from 3 to 600"),
            ([row(1, 1, &block), row(2, 0, &[0; 32])].concat(), "number of blocks"),
            ([row(1, 1, &block), row(1, 0, &[0; 40])].concat(), "hash, at byte 4128"),
            (row(0, 0, &[0xff; 8]), "structures, at byte 12"),
        ];
        for (records, text) in cases {
            let error = unpack(&forged(&records)).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
