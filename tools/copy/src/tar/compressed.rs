//! Compressed archives, detected by their first bytes and decompressed while they are read.
//!
//! Checksums are verified, and decompression takes at most [`MEMORY_MAX`] of memory. Concatenated files, as parallel
//! compressors write them, are read as one.

use std::io::{self, BufRead, BufReader, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The number of first bytes that identify a format.
pub(crate) const MAGIC_BYTES: usize = 6;
/// Decompression takes at most 256 MiB: four times the need of `xz -9`, and twice that of `zstd -19` and the default
/// limit of zstd(1).
const MEMORY_MAX: u64 = 256 << 20;

/// A supported format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Gzip,
    Xz,
    Zstd,
}

impl Format {
    /// The format with these first bytes, if it is a supported one.
    pub(super) fn of(start: &[u8]) -> Option<Format> {
        let magics: [(&[u8], Format); 3] = [
            (b"\x1f\x8b", Format::Gzip),
            (b"\xfd7zXZ\0", Format::Xz),
            (b"\x28\xb5\x2f\xfd", Format::Zstd),
        ];
        magics.into_iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, format)| format)
    }

    /// Decompresses `packed`.
    pub(super) fn unpack(self, packed: impl Read + 'static) -> Box<dyn Read> {
        let packed = BufReader::with_capacity(64 << 10, packed);
        let (name, unpacked): (_, Box<dyn Read>) = match self {
            Format::Gzip => ("gzip", Box::new(flate2::bufread::MultiGzDecoder::new(packed))),
            Format::Xz => {
                let memory_kib = (MEMORY_MAX >> 10) as u32;
                ("xz", Box::new(lzma_rust2::XzReader::new_mem_limit(packed, true, memory_kib)))
            }
            Format::Zstd => ("zstd", Box::new(Frames::new(packed))),
        };
        Box::new(Unpacked { name, unpacked })
    }
}

/// Adds the name of the format to errors.
struct Unpacked {
    name: &'static str,
    unpacked: Box<dyn Read>,
}

impl Read for Unpacked {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.unpacked.read(buf).map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => error,
            kind => {
                io::Error::new(kind, format!("it cannot be unpacked as {}: {error}", self.name))
            }
        })
    }
}

/// Decompresses zstd frames.
struct Frames<R> {
    packed: R,
    frame: FrameDecoder,
    /// Whether a frame has started and not ended.
    is_open: bool,
}

impl<R: BufRead> Frames<R> {
    fn new(packed: R) -> Frames<R> {
        let mut frame = FrameDecoder::new();
        frame.set_max_window_size(MEMORY_MAX / 2);
        Frames { packed, frame, is_open: false }
    }

    /// Starts the next frame; `false` at the end.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.packed.fill_buf()?.is_empty() {
            match self.frame.reset(&mut self.packed) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    let skipped = io::copy(&mut (&mut self.packed).take(length), &mut io::sink())?;
                    if skipped < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(damaged(error)),
            }
        }
        Ok(false)
    }

    /// Compares the checksum of a frame with that of the decompressed data.
    fn verify(&self) -> io::Result<()> {
        match (self.frame.get_checksum_from_data(), self.frame.get_calculated_checksum()) {
            (Some(stated), Some(found)) if stated != found => {
                Err(damaged(format_args!("checksum: expected {stated:#x}, found {found:#x}")))
            }
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_open {
                self.is_open = self.begin()?;
                if !self.is_open {
                    return Ok(0);
                }
            }
            while self.frame.can_collect() < buf.len() && !self.frame.is_finished() {
                let more = BlockDecodingStrategy::UptoBytes(buf.len() - self.frame.can_collect());
                self.frame.decode_blocks(&mut self.packed, more).map_err(damaged)?;
            }
            let read = self.frame.read(buf)?;
            if read > 0 || buf.is_empty() {
                return Ok(read);
            }
            self.verify()?;
            self.is_open = false;
        }
    }
}

fn damaged(error: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
