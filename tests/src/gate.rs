//! A device whose flushes can be held up.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use betr_core::device::{Device, MemoryDevice};

/// A device in memory whose flushes wait while it is closed.
pub struct Gate {
    device: MemoryDevice,
    closed: AtomicBool,
    came: Mutex<Sender<()>>,
    go: Mutex<Receiver<()>>,
}

/// The controls of a gate.
pub struct Keeper {
    /// Receives a message for each flush that waits.
    pub flushes: Receiver<()>,
    /// Lets one flush through. When it is dropped, all waiting flushes fail.
    pub let_through: Sender<()>,
}

impl Gate {
    /// An open gate over a device of `len` bytes.
    pub fn new(len: u64) -> (Arc<Gate>, Keeper) {
        let (came, flushes) = channel();
        let (let_through, go) = channel();
        let (came, go) = (Mutex::new(came), Mutex::new(go));
        let closed = AtomicBool::new(false);
        let gate = Gate { device: MemoryDevice::new(len), closed, came, go };
        (Arc::new(gate), Keeper { flushes, let_through })
    }

    /// Makes flushes wait, or not.
    pub fn close(&self, closed: bool) {
        self.closed.store(closed, Ordering::Relaxed);
    }
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
