//! Keys and values without files: a counter and a log of events in one image, which survive the end of the program.
//!
//! `cargo run -p betr-core --example kv -- IMAGE` makes the image if it does not exist, and counts how often it ran.

use std::collections::hash_map::RandomState;
use std::fs::OpenOptions;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use betr_core::device::FileDevice;
use betr_core::ids::TreeId;
use betr_core::kv::{Batch, Kv, KvOptions};
use betr_core::volume::Mode;

/// 16 MiB: the size of a new image.
const IMAGE_BYTES: u64 = 16 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("the path of an image is missing")?;
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
    let is_new = file.metadata()?.len() == 0;
    if is_new {
        file.set_len(IMAGE_BYTES)?;
    }
    let device = Arc::new(FileDevice::new(file, IMAGE_BYTES));
    // A nonce must never repeat for an image: the standard library's random keys come from the system.
    let options = KvOptions::new(Box::new(|| RandomState::new().build_hasher().finish()));
    let mut kv = if is_new {
        let mut kv = Kv::create(device, *b"kv example image", options)?;
        let mut batch = Batch::new();
        batch.insert(TreeId::Metadata, b"runs", &0u64.to_le_bytes());
        kv.commit(batch)?;
        kv
    } else {
        Kv::open(device, Mode::ReadWrite, options)?.0
    };
    // Nothing is read to write: the counter is changed by a message.
    let mut batch = Batch::new();
    batch.add(b"runs", 0, 1);
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
    batch.insert(TreeId::Data, &now.to_be_bytes(), b"ran");
    kv.commit(batch)?;
    kv.checkpoint()?;
    let runs = kv.get(TreeId::Metadata, b"runs")?.ok_or("no counter")?;
    println!("{} runs", u64::from_le_bytes(runs[..8].try_into()?));
    for entry in kv.range(TreeId::Data, b"", None) {
        let (key, value) = entry?;
        println!("{} {}", u64::from_be_bytes((*key).try_into()?), String::from_utf8_lossy(&value));
    }
    Ok(())
}
