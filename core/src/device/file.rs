//! A regular file or block device, accessed by positional reads and writes.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{Advice, SeekFrom, fadvise, seek};
use rustix::io::Errno;

use super::Device;
use crate::tuning::{FETCH_BYTES, WRITE_OUT_BYTES};

/// An open file. A lock on it lasts until all devices and images that share the file are dropped.
#[derive(Debug)]
pub struct FileDevice {
    file: Arc<File>,
    /// Byte offset of the device in the file.
    start: u64,
    len: u64,
    /// Whether it is a regular file that had all of these bytes when it was opened.
    whole: bool,
}

impl FileDevice {
    /// The first `len` bytes of `file`.
    pub fn new(file: impl Into<Arc<File>>, len: u64) -> FileDevice {
        FileDevice::within(file, 0, len)
    }

    /// The `len` bytes of `file` from `start` on.
    pub fn within(file: impl Into<Arc<File>>, start: u64, len: u64) -> FileDevice {
        let file = file.into();
        // The kernel cannot predict reads from access patterns; the tree advises it instead. If the kernel ignores this
        // advice, it only reads too much.
        let _ = fadvise(&file, 0, None, Advice::Random);
        let whole = file.metadata().is_ok_and(|meta| meta.is_file() && meta.len() >= start + len);
        FileDevice { file, start, len, whole }
    }

    /// Fails if the file has become shorter since it was opened: a write past its end would hide that.
    pub fn check_len(&self) -> io::Result<()> {
        let (had, has) = (self.start + self.len, self.file.metadata()?.len());
        match self.whole && has < had {
            true => {
                let text =
                    format!("the file has become shorter: it had {had} bytes, and has {has}");
                Err(io::Error::other(text))
            }
            false => Ok(()),
        }
    }

    /// The file.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }
}

impl Device for FileDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        super::checked_end(at, buf.len(), self.len)?;
        self.file.read_exact_at(buf, self.start + at).map_err(|error| match error.kind() {
            // This is not the end of the image, but of a truncated file.
            io::ErrorKind::UnexpectedEof => io::Error::other("the file has become shorter"),
            _ => error,
        })
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        super::checked_end(at, bytes.len(), self.len)?;
        self.check_len()?;
        self.file.write_all_at(bytes, self.start + at)?;
        if bytes.len() >= WRITE_OUT_BYTES {
            // The kernel starts to write dirty pages when it is told that they are not needed.
            self.advise_dont_need(at, bytes.len() as u64);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.check_len()?;
        self.file.sync_data()
    }

    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        let found = match seek(&self.file, SeekFrom::Data(self.start + at)) {
            Ok(found) => found - self.start,
            Err(Errno::NXIO) => return Ok(None),
            // This file system does not know of holes.
            Err(Errno::INVAL) => at,
            Err(error) => return Err(error.into()),
        };
        Ok(Some(found).filter(|found| *found < self.len))
    }

    fn advise_will_need(&self, at: u64, len: u64) {
        // The kernel fetches no more at once than its own read-ahead would.
        for from in (at..at.saturating_add(len)).step_by(FETCH_BYTES as usize) {
            let len = NonZeroU64::new(FETCH_BYTES.min(at + len - from));
            let _ = fadvise(&self.file, self.start + from, len, Advice::WillNeed);
        }
    }

    fn advise_dont_need(&self, at: u64, len: u64) {
        let _ = fadvise(&self.file, self.start + at, NonZeroU64::new(len), Advice::DontNeed);
    }

    fn punch(&self, at: u64, len: u64) -> io::Result<bool> {
        use rustix::fs::{FallocateFlags, fallocate};
        if !self.file.metadata()?.is_file() || at.checked_add(len).is_none_or(|end| end > self.len)
        {
            return Ok(false);
        }
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, hole, self.start + at, len) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn requires_serial_io(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_found_behind_holes() {
        let file = rustix::fs::memfd_create("holes", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = Arc::new(File::from(file));
        file.set_len(100 << 20).unwrap();
        let device = FileDevice::within(file.clone(), 10 << 20, 80 << 20);
        assert_eq!(device.next_data(0).unwrap(), None);
        file.write_all_at(b"x", 50 << 20).unwrap();
        let found = device.next_data(0).unwrap();
        assert!(found.is_some_and(|at| (1..=40 << 20).contains(&at)), "{found:?}");
        // The bytes of the file before and after the device do not belong to it.
        let before = FileDevice::new(file.clone(), 10 << 20);
        let behind = FileDevice::within(file, 60 << 20, 10 << 20);
        assert_eq!((before.next_data(0).unwrap(), behind.next_data(0).unwrap()), (None, None));
    }
}
