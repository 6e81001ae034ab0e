//! Writing the data of one regular file, holes included.
//!
//! A [`FileWriter`] owns a new file that no other process has open, so unwritten ranges read as zeros and take no
//! space. It does not wait for the device (see [`crate::host::Target::sync`]), and sets no metadata.

use std::os::fd::OwnedFd;

use rustix::io::{Errno, pwrite};

use crate::host::error::{HostError, Result};

/// A regular file open for writing.
#[derive(Debug)]
pub struct FileWriter {
    fd: OwnedFd,
    path: Vec<u8>,
    /// The end of the written data.
    end: u64,
}

impl FileWriter {
    /// Writes to `fd`, a new and empty file; `path` is for messages.
    pub(crate) fn new(fd: OwnedFd, path: Vec<u8>) -> Self {
        Self { fd, path, end: 0 }
    }

    /// Writes all of `data` at `offset`. Unwritten ranges are holes.
    pub fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            match pwrite(&self.fd, rest, at) {
                Ok(0) => return Err(self.io("write", Errno::IO)),
                Ok(written) => {
                    at += written as u64;
                    rest = &rest[written..];
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.io("write", errno)),
            }
        }
        self.end = self.end.max(at);
        Ok(())
    }

    /// Sets the size to `size`, with a hole after the last data if necessary, and closes the file. Data past `size`
    /// are an error.
    pub fn finish(self, size: u64) -> Result<()> {
        if self.end > size {
            return Err(HostError::NotSupported {
                path: self.path,
                what: "it was given data past its size",
            });
        }
        if self.end < size {
            rustix::fs::ftruncate(&self.fd, size).map_err(|errno| self.io("extend", errno))?;
        }
        Ok(())
    }

    fn io(&self, op: &'static str, errno: Errno) -> HostError {
        HostError::io(op, self.path.clone(), errno)
    }
}
