//! A file system in memory: a directory, a file, a snapshot, and the file as the snapshot has it.
//!
//! `cargo run -p betr-core --example fs`

use std::sync::Arc;

use betr_core::device::{Device, MemoryDevice};
use betr_core::format::{FileType, ZoneSizes};
use betr_core::fs::{Attributes, Fs, New};
use betr_core::ids::Time;
use betr_core::store::CacheBudget;
use betr_core::volume::{CreateOptions, Volume};

fn main() -> betr_core::Result<()> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(16 << 20));
    // Clock and nonces are parameters, so that a run can be repeated exactly. A program on a real image takes random nonces.
    let mut nonce = 0;
    let nonces = Box::new(move || {
        nonce += 1;
        nonce
    });
    let zones = ZoneSizes::default();
    let options = CreateOptions { zones, ..CreateOptions::new([7; 16], device.len(), nonces) };
    let volume = Volume::create(device, options)?;
    let attributes = Attributes { perm: 0o755, ..Attributes::at(Time::default()) };
    let mut fs = Fs::format(volume, Box::new(Time::default), attributes)?;

    let root = fs.root()?;
    let notes = fs.make(&root, b"notes", New::of(FileType::Directory, attributes))?;
    let file = fs.make(&notes, b"today", New::of(FileType::Regular, attributes))?;
    fs.write(&file, 0, &b"buy milk\n".as_slice().into())?;
    // A snapshot is a checkpoint that is kept.
    fs.volume_mut().take_hold("morning")?;
    // Four bytes are written as a message: neither the leaf nor the block is read.
    fs.write(&file, 4, &b"wine".as_slice().into())?;
    fs.checkpoint()?;

    let now = fs.resolve(b"/notes/today")?;
    print!("now:     {}", String::from_utf8_lossy(&fs.read(&now, 0, 100)?));
    let hold = fs.volume().holds()?.into_iter().find(|hold| hold.name == "morning");
    let hold = hold.expect("it was taken above");
    let past =
        Fs::open(fs.volume().open_hold(&hold, CacheBudget::default())?, Box::new(Time::default));
    let then = past.resolve(b"/notes/today")?;
    print!("morning: {}", String::from_utf8_lossy(&past.read(&then, 0, 100)?));
    Ok(())
}
