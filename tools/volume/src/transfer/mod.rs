//! `betr send` and `betr receive`: the contents of a snapshot as a stream.

pub mod receive;
pub mod send;
mod stream;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use betr_cli::progress::Meter;
use betr_cli::size::human;
use betr_core::Result;
use betr_core::ids::Hash;
use betr_core::volume::Volume;
use betr_offline::transfer::content_hash;

/// The count of transferred bytes, for the progress display.
#[derive(Clone, Default)]
struct Moved(Arc<AtomicU64>);

impl Moved {
    fn meter(&self, wanted: bool, what: &'static str) -> Meter {
        let moved = self.clone();
        Meter::text(wanted, move || format!("{what}: {}", human(moved.0.load(Ordering::Relaxed))))
    }

    fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The content hash of a volume. Reads the whole volume.
fn hash(volume: &Volume, wanted: bool, what: &'static str) -> Result<Hash> {
    let moved = Moved::default();
    let _meter = moved.meter(wanted, what);
    content_hash(volume, &mut |bytes| moved.add(bytes))
}
