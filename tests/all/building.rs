//! Building an image: reading the source, hashing and writing go on at the same time.

use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

use betr_copy::host::Source;
use betr_copy::{ImportOptions, import_tree};
use betr_core::device::{Device, MemoryDevice};
use betr_core::store::CacheBudget;
use betr_tests::{Random, formatted, middling};

const MIB: u64 = 1 << 20;

/// A device on which the first write of a leaf waits until another has come.
struct Waiting {
    device: MemoryDevice,
    /// The length of the shortest write that counts, once it is set.
    least: OnceLock<usize>,
    others: Mutex<u32>,
    changed: Condvar,
    /// How many others there were when the waiting ended.
    seen: OnceLock<u32>,
    waits: OnceLock<()>,
}

impl Device for Waiting {
    fn len(&self) -> u64 {
        self.device.len()
    }
    fn read_at(&self, at: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.device.read_at(at, buf)
    }
    fn write_at(&self, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        if self.least.get().is_some_and(|least| bytes.len() >= *least) {
            let mut others = self.others.lock().unwrap();
            if self.waits.set(()).is_ok() {
                let limit = Duration::from_secs(60);
                let few = |others: &mut u32| *others == 0;
                others = self.changed.wait_timeout_while(others, limit, few).unwrap().0;
                let _ = self.seen.set(*others);
            } else {
                *others += 1;
                self.changed.notify_all();
            }
        }
        self.device.write_at(at, bytes)
    }
    fn flush(&self) -> std::io::Result<()> {
        self.device.flush()
    }
    fn requires_serial_io(&self) -> bool {
        false
    }
}

/// While the write of a leaf waits for the device, the contents of the next are read from the source, hashed and written.
#[test]
fn other_leaves_are_built_while_one_waits_for_the_device() {
    if std::thread::available_parallelism().is_ok_and(|threads| threads.get() < 2) {
        println!("skipped: this machine has one core");
        return;
    }
    let host = tempfile::tempdir().unwrap();
    std::fs::write(host.path().join("file"), Random::new(1).bytes(48 << 20)).unwrap();
    let source = Source::open(host.path()).unwrap();
    let links = source.links().unwrap();
    let device = Arc::new(Waiting {
        device: MemoryDevice::new(128 * MIB),
        least: OnceLock::new(),
        others: Mutex::default(),
        changed: Condvar::new(),
        seen: OnceLock::new(),
        waits: OnceLock::new(),
    });
    let cache = CacheBudget::of(32 << 20);
    let mut fs = formatted(device.clone(), middling(), cache, 1);
    let root = fs.root().unwrap();
    device.least.set(64 << 10).unwrap();
    import_tree(&mut fs, &source, &links, &root, ImportOptions::default()).unwrap();
    fs.checkpoint().unwrap();
    assert!(device.seen.get().is_some_and(|seen| *seen > 0), "{:?}", device.seen);
}
