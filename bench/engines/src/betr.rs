//! betr, a Bε-tree in an image: what all of this is about.

use std::fs::File;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use betr_core::store::CacheBudget;
use betr_core::device::FileDevice;
use betr_core::ids::TreeId;
use betr_core::kv::{self, Kv, KvOptions};
use betr_core::volume::Mode;

use crate::engine::{Background, Engine, Settings, locked_version};
use crate::work::{Key, PATCH_OFFSET, Patch, Value};

/// Images have a fixed size. A sparse file of this many times the data has room for both checkpoints.
const ROOM: u64 = 4;
/// What an image needs besides.
const ROOM_MIN: u64 = 2 << 30;
/// As long as all other engines' logs and buffers together.
const LOG_BYTES: u64 = 256 << 20;

/// An open image.
pub struct Betr {
    kv: Kv,
}

impl Betr {
    /// Opens the image, and makes it if there is none.
    pub fn open(settings: &Settings) -> Result<Self> {
        let path = settings.path("image.betr");
        let exists = path.exists();
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(&path).with_context(|| path.display().to_string())?;
        let bytes = match exists {
            true => file.metadata()?.len(),
            false => (settings.data * ROOM + ROOM_MIN).next_multiple_of(4096),
        };
        file.set_len(bytes)?;
        let device = Arc::new(FileDevice::new(file, bytes));
        let mut nonce = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
        let cache = usize::try_from(settings.cache)?;
        let options = KvOptions {
            cache: CacheBudget::of(cache),
            log_bytes: Some(LOG_BYTES),
            ..KvOptions::new(Box::new(move || {
                nonce += 1;
                nonce
            }))
        };
        let kv = match exists {
            true => Kv::open(device, Mode::ReadWrite, options)?.0,
            false => Kv::create(device, *b"compared engines", options)?,
        };
        Ok(Betr { kv })
    }

    fn commit(&mut self, changes: usize, fill: impl FnOnce(&mut kv::Batch)) -> Result<()> {
        let mut batch = kv::Batch::with_capacity(changes);
        fill(&mut batch);
        self.kv.commit(batch)?;
        Ok(self.kv.sync()?)
    }
}

impl Engine for Betr {
    fn version(&self) -> Result<String> {
        Ok(locked_version("betr-core").context("not in Cargo.lock")?.to_owned())
    }

    fn insert(&mut self, pairs: &[(Key, Value)]) -> Result<()> {
        self.commit(pairs.len(), |batch| {
            for (key, value) in pairs {
                batch.insert(TreeId::Metadata, key, value);
            }
        })
    }

    fn update(&mut self, patches: &[(Key, Patch)]) -> Result<()> {
        self.commit(patches.len(), |batch| {
            for (key, patch) in patches {
                batch.patch(TreeId::Metadata, key, PATCH_OFFSET, patch, false);
            }
        })
    }

    fn delete(&mut self, keys: &[Key]) -> Result<()> {
        let delete = |batch: &mut kv::Batch, key: &Key| batch.delete(TreeId::Metadata, key);
        self.commit(keys.len(), |batch| keys.iter().for_each(|key| delete(batch, key)))
    }

    fn delete_range(&mut self, from: &Key, to: &Key) -> Result<()> {
        let mut batch = kv::Batch::new();
        batch.delete_range(TreeId::Metadata, from, to);
        Ok(self.kv.commit(batch)?)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.kv.sync()?)
    }

    fn get(&mut self, key: &Key, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.kv.get(TreeId::Metadata, key)?;
        if let Some(value) = &value {
            read(value);
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        for entry in self.kv.range(TreeId::Metadata, b"", None) {
            let (key, value) = entry?;
            visit(&key, &value);
        }
        Ok(())
    }

    /// The last transaction may still be on its way into the trees, which are waited for here, and nodes be written.
    /// Nothing else goes on between calls: what is to be written is begun by the call that finds it due.
    fn background(&mut self) -> Result<Background> {
        self.kv.volume().store();
        Ok(Background::Idle)
    }

    /// A checkpoint, so that there is no log to replay.
    fn close(mut self: Box<Self>) -> Result<()> {
        Ok(self.kv.checkpoint()?)
    }
}
