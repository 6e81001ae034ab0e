//! The input of an archive, and the number of bytes read from it.

use std::fs::{File, Metadata};
use std::io::{self, IsTerminal, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use betr_core::text::printable;

use crate::tar::compressed::{Format, MAGIC_BYTES};

/// The source of an archive.
pub struct Input {
    name: String,
    source: Source,
    offset: u64,
}

enum Source {
    /// A file, in which data can be skipped, and its length.
    File(File, u64),
    /// Anything else, and the kind of its source.
    Stream(Box<dyn Read>, Writer),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Writer {
    /// A program at the other end of a pipe or socket. It gets SIGPIPE if it writes after that is closed.
    Program,
    /// A device, which may be endless.
    Device,
    /// A decompressor. It verifies the checksum when it is read to its end.
    Packed,
}

impl Writer {
    fn of(meta: &Metadata) -> Writer {
        let kind = meta.file_type();
        if kind.is_fifo() || kind.is_socket() { Writer::Program } else { Writer::Device }
    }
}

impl Input {
    /// Opens the file at `path`. Anything but a regular file, such as a pipe, is read as a stream.
    pub fn open(path: &Path) -> io::Result<Input> {
        let mut file = File::open(path)?;
        let meta = file.metadata()?;
        let name = printable(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()));
        if !meta.is_file() {
            return Input::of_stream(name, file, Writer::of(&meta));
        }
        let start = start_of(&mut file)?;
        file.rewind()?;
        let source = match Format::of(&start) {
            Some(format) => Source::Stream(format.unpack(file), Writer::Packed),
            None => Source::File(file, meta.len()),
        };
        Ok(Input { name, source, offset: 0 })
    }

    fn of_stream(
        name: String,
        mut stream: impl Read + 'static,
        writer: Writer,
    ) -> io::Result<Input> {
        let start = start_of(&mut stream)?;
        let format = Format::of(&start);
        let whole = io::Cursor::new(start).chain(stream);
        let source = match format {
            Some(format) => Source::Stream(format.unpack(whole), Writer::Packed),
            None => Source::Stream(Box::new(whole), writer),
        };
        Ok(Input { name, source, offset: 0 })
    }

    /// The name of standard input in messages.
    pub const STDIN: &str = "standard input";

    /// Standard input, which must not be a terminal.
    pub fn stdin() -> io::Result<Input> {
        let stdin = io::stdin();
        if stdin.is_terminal() {
            let text = "it is a terminal: an archive is expected from a pipe or a file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let meta = File::from(stdin.as_fd().try_clone_to_owned()?).metadata()?;
        Input::of_stream(Input::STDIN.into(), stdin, Writer::of(&meta))
    }

    /// A finite stream with the name `name` in messages.
    pub fn stream(name: impl Into<String>, stream: impl Read + 'static) -> Input {
        let source = Source::Stream(Box::new(stream), Writer::Program);
        Input { name: name.into(), source, offset: 0 }
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of bytes read or skipped.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Fills `buf`; less is read only at the end.
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            let read = match &mut self.source {
                Source::File(file, _) => file.read(&mut buf[done..]),
                Source::Stream(stream, _) => stream.read(&mut buf[done..]),
            };
            match read {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.offset += done as u64;
        Ok(done)
    }

    /// Reads a pipe or socket to its end, beyond the end of the archive. Otherwise SIGPIPE would end a program that
    /// still writes padding, and its pipeline would fail. A decompressor verifies its checksum there.
    pub(crate) fn drain(&mut self) -> io::Result<()> {
        if let Source::Stream(stream, Writer::Program | Writer::Packed) = &mut self.source {
            self.offset += io::copy(stream, &mut io::sink())?;
        }
        Ok(())
    }

    /// Skips up to `count` bytes. Returns how many there were.
    pub(crate) fn skip(&mut self, count: u64) -> io::Result<u64> {
        match &mut self.source {
            Source::File(file, len) => {
                let skipped = count.min(len.saturating_sub(self.offset));
                file.seek(SeekFrom::Start(self.offset + skipped))?;
                self.offset += skipped;
                Ok(skipped)
            }
            Source::Stream(stream, _) => {
                let skipped = io::copy(&mut stream.take(count), &mut io::sink())?;
                self.offset += skipped;
                Ok(skipped)
            }
        }
    }
}

/// The first [`MAGIC_BYTES`] bytes of a source, or all of a shorter one.
fn start_of(source: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::with_capacity(MAGIC_BYTES);
    source.take(MAGIC_BYTES as u64).read_to_end(&mut start)?;
    Ok(start)
}
