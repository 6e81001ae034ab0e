//! A device in memory, for tests.

use std::io;
use std::sync::{PoisonError, RwLock};

use super::{Device, checked_end};

/// Bytes in memory; all zero at first.
pub struct MemoryDevice {
    bytes: RwLock<Vec<u8>>,
}

impl MemoryDevice {
    /// A device of `len` zero bytes.
    pub fn new(len: u64) -> MemoryDevice {
        MemoryDevice::from(vec![0; len as usize])
    }

    /// A copy of all bytes.
    pub fn snapshot(&self) -> Vec<u8> {
        self.bytes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl From<Vec<u8>> for MemoryDevice {
    fn from(bytes: Vec<u8>) -> MemoryDevice {
        MemoryDevice { bytes: RwLock::new(bytes) }
    }
}

impl Device for MemoryDevice {
    fn len(&self) -> u64 {
        self.bytes.read().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let bytes = self.bytes.read().unwrap_or_else(PoisonError::into_inner);
        let end = checked_end(at, buf.len(), bytes.len() as u64)?;
        buf.copy_from_slice(&bytes[at as usize..end as usize]);
        Ok(())
    }

    fn write_at(&self, at: u64, from: &[u8]) -> io::Result<()> {
        let mut bytes = self.bytes.write().unwrap_or_else(PoisonError::into_inner);
        let end = checked_end(at, from.len(), bytes.len() as u64)?;
        bytes[at as usize..end as usize].copy_from_slice(from);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn requires_serial_io(&self) -> bool {
        false
    }
}
