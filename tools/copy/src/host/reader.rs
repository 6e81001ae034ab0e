//! Reading the data of one regular file without its holes.
//!
//! A [`FileReader`] returns data in pieces of increasing offset; ranges between pieces and after the last one read as
//! zeros. It returns nothing beyond the size that the file had in the listing. The file is compared with its metadata
//! when it is opened and again at the end, so that the data match the metadata.
//!
//! A change within one tick of the host's clock that leaves size, modification time and change time as they were is
//! not detected.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{OFlags, SeekFrom, Stat, seek};
use rustix::io::{Errno, pread};

use crate::host::error::{HostError, Result};
use crate::host::meta::{Kind, Meta, Time};
use crate::host::walk;

/// An open regular file whose data are being read.
#[derive(Debug)]
pub struct FileReader {
    fd: OwnedFd,
    path: Vec<u8>,
    size: u64,
    mtime: Time,
    ctime: Time,
    /// The offset from which the next piece is searched.
    position: u64,
    /// The end of the data range that contains `position`.
    data_end: u64,
    /// Whether fewer blocks are allocated than `size` takes, and the file system reports holes.
    holes: bool,
}

impl FileReader {
    /// Opens `path` below `base`. Fails if the file no longer matches `expected`.
    pub(crate) fn open(
        base: BorrowedFd<'_>,
        path: &[u8],
        shown: Vec<u8>,
        expected: &Meta,
    ) -> Result<Self> {
        // O_NONBLOCK matters only if the file was replaced by a pipe.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = match walk::open(base, path, flags | OFlags::NOATIME) {
            // Only the owner may use O_NOATIME.
            Err(Errno::PERM) => walk::open(base, path, flags),
            opened => opened,
        };
        let changed = |what| HostError::Changed { path: shown.clone(), what };
        let fd = opened.map_err(|errno| match errno {
            Errno::NOENT => changed("it was removed after it was listed"),
            Errno::LOOP | Errno::NXIO | Errno::NOTDIR => {
                changed("it was replaced by something else after it was listed")
            }
            errno => HostError::io("open", shown.clone(), errno),
        })?;
        let stat = walk::stat(fd.as_fd())
            .map_err(|errno| HostError::io("look at", shown.clone(), errno))?;
        if let Some(what) = replaced(&stat, expected) {
            return Err(changed(what));
        }
        Ok(Self {
            fd,
            size: expected.size,
            mtime: expected.mtime,
            ctime: expected.ctime,
            position: 0,
            data_end: 0,
            holes: (stat.st_blocks as u64).saturating_mul(512) < stat.st_size as u64,
            path: shown,
        })
    }

    /// Reads the next piece of data into `buf`. Returns its offset and length, or `None` after the last one.
    ///
    /// A piece ends where `buf` is full, where a hole begins, or where the file ends. On a file system that does not
    /// report holes, the whole file is data.
    ///
    /// # Panics
    ///
    /// If `buf` is empty.
    pub fn next_segment(&mut self, buf: &mut [u8]) -> Result<Option<(u64, usize)>> {
        assert!(!buf.is_empty(), "there must be room for data");
        if self.position >= self.data_end {
            self.find_data()?;
        }
        if self.position >= self.size {
            return Ok(None);
        }
        let left = self.data_end - self.position;
        let length = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        let offset = self.position;
        self.fill(&mut buf[..length])?;
        Ok(Some((offset, length)))
    }

    /// Checks that the file still matches its listing. Without this check the data may come from different states of
    /// the file.
    pub fn finish(self) -> Result<()> {
        let stat = walk::stat(self.fd.as_fd()).map_err(|errno| self.io("look at", errno))?;
        if stat.st_size as u64 != self.size {
            return Err(self.changed("its size is different"));
        }
        if Time::modified(&stat) != self.mtime {
            return Err(self.changed("its modification time is different"));
        }
        if Time::changed(&stat) != self.ctime {
            return Err(self.changed("its change time is different"));
        }
        // Generated files, as in /proc, report a size of 0.
        if self.size == 0 && self.read_at(&mut [0], 0)? > 0 {
            return Err(self.changed("it says that it is empty but has data"));
        }
        Ok(())
    }

    /// Moves to the next data at or after the position, or to the end.
    fn find_data(&mut self) -> Result<()> {
        self.data_end = self.size;
        if !self.holes || self.position >= self.size {
            return Ok(());
        }
        let start = match seek(&self.fd, SeekFrom::Data(self.position)) {
            Ok(start) => start,
            Err(Errno::NXIO) => self.size,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                self.holes = false;
                return Ok(());
            }
            Err(errno) => return Err(self.io("find the holes of", errno)),
        };
        self.position = start.min(self.size);
        if self.position == self.size {
            return Ok(());
        }
        let end = match seek(&self.fd, SeekFrom::Hole(start)) {
            Ok(end) => end,
            Err(Errno::NXIO) => return Err(self.changed("it became shorter")),
            Err(errno) => return Err(self.io("find the holes of", errno)),
        };
        // A hole was punched at `start` between the two calls: read it as data.
        if end > start {
            self.data_end = end.min(self.size);
        }
        Ok(())
    }

    /// Fills `buf` from the position.
    fn fill(&mut self, buf: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match self.read_at(&mut buf[done..], self.position)? {
                0 => return Err(self.changed("it became shorter")),
                read => {
                    done += read;
                    self.position += read as u64;
                }
            }
        }
        Ok(())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        loop {
            match pread(&self.fd, &mut *buf, offset) {
                Err(Errno::INTR) => {}
                read => return read.map_err(|errno| self.io("read", errno)),
            }
        }
    }

    fn io(&self, op: &'static str, errno: Errno) -> HostError {
        HostError::io(op, self.path.clone(), errno)
    }

    fn changed(&self, what: &'static str) -> HostError {
        HostError::Changed { path: self.path.clone(), what }
    }
}

/// Why an opened file is not the one from the listing; `None` if it is.
fn replaced(stat: &Stat, expected: &Meta) -> Option<&'static str> {
    if Kind::from_stat(stat) != Some(Kind::File)
        || stat.st_dev != expected.dev
        || stat.st_ino != expected.ino
    {
        return Some("it was replaced by something else after it was listed");
    }
    if stat.st_size as u64 != expected.size {
        return Some("its size is different");
    }
    if Time::modified(stat) != expected.mtime {
        return Some("its modification time is different");
    }
    None
}
