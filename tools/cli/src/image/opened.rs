//! Open files as devices: the only module of the tools that makes a [`FileDevice`].
//!
//! A device shares the open file. The lock lasts until the image and all its devices are dropped. Operations on the
//! file itself are methods here.

use std::fs::{File, Metadata};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use betr_core::device::{Device, FileDevice};

use super::NewImage;

/// An open image; locked unless it was opened by `look`.
#[derive(Debug)]
pub struct OpenImage {
    /// The whole file as a device.
    pub(super) file: Arc<FileDevice>,
    /// The length in bytes at the time of opening.
    pub len: u64,
    /// Whether it is a block device, whose length cannot change.
    pub is_block_device: bool,
    /// The path as given.
    pub path: PathBuf,
}

impl OpenImage {
    pub(super) fn new(file: File, len: u64, is_block_device: bool, path: PathBuf) -> OpenImage {
        OpenImage { file: Arc::new(FileDevice::new(file, len)), len, is_block_device, path }
    }

    /// The whole image as a device.
    pub fn device(&self) -> Arc<dyn Device> {
        self.file.clone()
    }

    /// A device of `len` bytes from byte `start` on.
    pub fn part(&self, start: u64, len: u64) -> Arc<dyn Device> {
        Arc::new(FileDevice::within(self.file.file().clone(), start, len))
    }

    /// Changes the length of the file; added bytes are zeros. The lengths of existing devices do not change.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.file().set_len(len)
    }

    /// Fails if the file has become shorter since it was opened.
    pub fn check_len(&self) -> io::Result<()> {
        self.file.check_len()
    }

    /// The host's metadata of the open file, even if the path now leads elsewhere.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.file.file().metadata()
    }
}

impl NewImage {
    /// The first `len` bytes of the new image as a device.
    pub fn device(&self, len: u64) -> Arc<dyn Device> {
        Arc::new(FileDevice::new(self.file.clone(), len))
    }
}

/// A whole file as a device, without a lock, for plans.
pub fn device_of(file: impl Into<Arc<File>>) -> io::Result<Arc<dyn Device>> {
    let file = file.into();
    let len = file.metadata()?.len();
    Ok(Arc::new(FileDevice::new(file, len)))
}
