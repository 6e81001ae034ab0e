//! A file system that several threads use: who reads waits neither for a sync nor for a checkpoint of another.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use betr_core::device::{Device, MemoryDevice};
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Fs, New, Shared};
use betr_core::ids::Time;
use betr_tests::{clock, create, tight, tiny};
use bytes::Bytes;

/// A device whose flushes wait to be let through, once it is closed.
struct Gate {
    device: MemoryDevice,
    closed: AtomicBool,
    came: Mutex<Sender<()>>,
    go: Mutex<Receiver<()>>,
}

impl Device for Gate {
    fn len(&self) -> u64 {
        self.device.len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.device.read_at(at, buf)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.device.write_at(at, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        if !self.closed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let gone = || io::Error::other("nobody keeps the gate");
        self.came.lock().unwrap().send(()).map_err(|_| gone())?;
        self.go.lock().unwrap().recv().map_err(|_| gone())
    }
}

#[test]
fn who_reads_does_not_wait_for_the_device() {
    let device = MemoryDevice::new(4 << 20);
    let (came, flushes) = channel();
    let (let_through, go) = channel();
    let closed = AtomicBool::new(false);
    let gate = Arc::new(Gate { device, closed, came: Mutex::new(came), go: Mutex::new(go) });
    let volume = create(gate.clone(), tiny(), tight(), 1).unwrap();
    let mut fs = Fs::format(volume, clock(0), Attributes::at(Time::default())).unwrap();
    let root = fs.root().unwrap();
    let file = New::of(FileType::Regular, Attributes::at(Time::default()));
    let file = fs.make(&root, b"file", file).unwrap();
    fs.checkpoint().unwrap();
    gate.closed.store(true, Ordering::Relaxed);

    let shared = Shared::new(fs);
    let text = Bytes::from_static(b"there");
    for whole in [false, true] {
        shared.change(|fs| fs.write(&file, 0, &text)).unwrap();
        thread::scope(|scope| {
            let ends = scope.spawn(|| if whole { shared.checkpoint() } else { shared.sync() });
            while !ends.is_finished() {
                if flushes.recv_timeout(Duration::from_millis(20)).is_err() {
                    continue;
                }
                // It waits for the device now.
                let read = shared.read(|fs| fs.read(&file, 0, 5)).unwrap();
                assert_eq!(read, b"there");
                assert!(!ends.is_finished());
                let_through.send(()).unwrap();
            }
            ends.join().unwrap().unwrap();
        });
    }
}
