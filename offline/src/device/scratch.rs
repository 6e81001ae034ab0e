//! A file without a name, for temporary data.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use betr_core::device::{Device, FileDevice};

/// An empty file that is deleted when it is closed. Errors name its directory.
pub struct Scratch {
    file: Arc<File>,
    place: String,
}

impl Scratch {
    /// `file` must be empty and unshared; `place` is its directory, for errors.
    pub fn new(file: File, place: String) -> Scratch {
        Scratch { file: file.into(), place }
    }

    /// The file itself.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// The file as a device of `len` bytes.
    pub fn device(&self, len: u64) -> io::Result<Arc<dyn Device>> {
        self.file.set_len(len)?;
        Ok(Arc::new(FileDevice::new(self.file.clone(), len)))
    }

    pub(super) fn read(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, at).map_err(|error| self.told(&error))
    }

    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at).map_err(|error| self.told(&error))
    }

    fn told(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("a temporary file in {}: {error}", self.place))
    }
}
