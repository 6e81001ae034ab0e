//! A read-only device with a cache, for several concurrent readers of one image.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use betr_core::device::Device;

/// 16 MiB of cache: the heads and basements on the paths to a few thousand files.
const REMEMBERED: usize = 16 << 20;
/// 256 KiB: longer reads are file contents or scans, which are read once, so they are not cached.
const LONGEST: usize = 256 << 10;

/// A base device, and a cache of its recent reads.
pub struct CachedDevice {
    base: Arc<dyn Device>,
    reads: Mutex<Reads>,
}

/// Cached reads by position and length, and their insertion order.
#[derive(Default)]
struct Reads {
    known: HashMap<(u64, usize), Arc<[u8]>>,
    order: VecDeque<(u64, usize)>,
    bytes: usize,
}

impl CachedDevice {
    /// Caches reads of `base`, which must not change meanwhile.
    pub fn new(base: Arc<dyn Device>) -> CachedDevice {
        CachedDevice { base, reads: Mutex::default() }
    }
}

impl Device for CachedDevice {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let place = (at, buf.len());
        if buf.len() > LONGEST {
            return self.base.read_at(at, buf);
        }
        let reads = || self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        let known = reads().known.get(&place).cloned();
        if let Some(known) = known {
            buf.copy_from_slice(&known);
            return Ok(());
        }
        self.base.read_at(at, buf)?;
        let mut reads = reads();
        if reads.known.insert(place, Arc::from(&*buf)).is_none() {
            reads.order.push_back(place);
            reads.bytes += buf.len();
        }
        while reads.bytes > REMEMBERED
            && let Some(oldest) = reads.order.pop_front()
        {
            reads.known.remove(&oldest);
            reads.bytes -= oldest.1;
        }
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "this device is only read"))
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        self.base.next_data(at)
    }

    fn advise_will_need(&self, at: u64, len: u64) {
        self.base.advise_will_need(at, len);
    }

    fn advise_dont_need(&self, at: u64, len: u64) {
        self.base.advise_dont_need(at, len);
    }

    fn requires_serial_io(&self) -> bool {
        self.base.requires_serial_io()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::NotingDevice;
    use betr_core::device::MemoryDevice;

    #[test]
    fn what_was_read_is_read_once() {
        let base = Arc::new(MemoryDevice::new(64 << 20));
        base.write_at(4096, b"text").unwrap();
        let device = CachedDevice::new(base.clone());
        let mut buf = [0; 4];
        device.read_at(4096, &mut buf).unwrap();
        assert_eq!(&buf, b"text");
        // The base is not read again.
        base.write_at(4096, b"next").unwrap();
        device.read_at(4096, &mut buf).unwrap();
        assert_eq!(&buf, b"text");
        assert!(device.write_at(4096, b"more").is_err());
        // The oldest reads are evicted.
        (0..65).for_each(|at| device.read_at(at << 18, &mut vec![0; LONGEST]).unwrap());
        device.read_at(4096, &mut buf).unwrap();
        assert_eq!(&buf, b"next");
        assert!(device.read_at(64 << 20, &mut buf).is_err());
        let noting = Arc::new(NotingDevice::new(base));
        let device = CachedDevice::new(noting.clone());
        device.read_at(0, &mut vec![0; LONGEST + 1]).unwrap();
        assert_eq!(device.reads.lock().unwrap().bytes, 0, "what is long is not remembered");
        let whole = 0..LONGEST as u64 + 1;
        assert_eq!(noting.read(), [whole]);
    }
}
