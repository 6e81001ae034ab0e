//! Open files as devices: the only room of the tools that makes a [`FileDevice`].
//!
//! A device shares the open file, and the lock on it lasts until the image and all of its devices are dropped. What a
//! tool needs of the file itself is a method here.

use std::fs::{File, Metadata};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use betr_core::device::{Device, FileDevice};

use super::NewImage;

/// An image that is open, and locked unless it was only looked at.
#[derive(Debug)]
pub struct OpenImage {
    /// All of it.
    pub(super) file: Arc<FileDevice>,
    /// The length in bytes when it was opened.
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

    /// All of it as a device.
    pub fn device(&self) -> Arc<dyn Device> {
        self.file.clone()
    }

    /// `len` bytes from `start` on as a device.
    pub fn part(&self, start: u64, len: u64) -> Arc<dyn Device> {
        Arc::new(FileDevice::within(self.file.file().clone(), start, len))
    }

    /// Changes the length of the file; what is added is zeros. Its devices stay as long as they are.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.file().set_len(len)
    }

    /// An error if the file has become shorter since it was opened.
    pub fn check_len(&self) -> io::Result<()> {
        self.file.check_len()
    }

    /// What the host says of the open file, wherever its path leads by now.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.file.file().metadata()
    }
}

impl NewImage {
    /// The first `len` bytes as a device.
    pub fn device(&self, len: u64) -> Arc<dyn Device> {
        Arc::new(FileDevice::new(self.file.clone(), len))
    }
}

/// All of a file that is no image and that nothing locks: a plan.
pub fn device_of(file: impl Into<Arc<File>>) -> io::Result<Arc<dyn Device>> {
    let file = file.into();
    let len = file.metadata()?.len();
    Ok(Arc::new(FileDevice::new(file, len)))
}
