//! fjall, an LSM-tree in Rust.

use anyhow::{Context, Result};
use fjall::config::CompressionPolicy;
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use crate::engine::{Background, Engine, Settings, locked_version};
use crate::work::{BATCH, Key, Patch, Value, patched};

/// An open database. Its options are the defaults, but for cache and compression: write buffers
/// of 64 MiB, bloom filters, blocks of 4 KiB, level compaction, a thread for each processor.
pub struct Fjall {
    db: Database,
    keys: Keyspace,
}

impl Fjall {
    /// Opens the database, and makes it if there is none.
    pub fn open(settings: &Settings) -> Result<Self> {
        let db = Database::builder(&settings.dir)
            .cache_size(settings.cache)
            .journal_compression(CompressionType::None)
            .open()?;
        let keys = db.keyspace("keys", || {
            KeyspaceCreateOptions::default()
                .data_block_compression_policy(CompressionPolicy::disabled())
                .index_block_compression_policy(CompressionPolicy::disabled())
        })?;
        Ok(Fjall { db, keys })
    }

    fn batch(&self, operations: usize) -> fjall::OwnedWriteBatch {
        fjall::OwnedWriteBatch::with_capacity(self.db.clone(), operations)
            .durability(Some(PersistMode::SyncData))
    }
}

impl Engine for Fjall {
    fn version(&self) -> Result<String> {
        Ok(locked_version("fjall").context("not in Cargo.lock")?.to_owned())
    }

    fn insert(&mut self, pairs: &[(Key, Value)]) -> Result<()> {
        let mut batch = self.batch(pairs.len());
        for (key, value) in pairs {
            batch.insert(&self.keys, key, value);
        }
        Ok(batch.commit()?)
    }

    fn update(&mut self, patches: &[(Key, Patch)]) -> Result<()> {
        let mut batch = self.batch(patches.len());
        for (key, patch) in patches {
            let value = self.keys.get(key)?.context("the key to update is absent")?;
            batch.insert(&self.keys, key, patched(&value, patch)?);
        }
        Ok(batch.commit()?)
    }

    fn delete(&mut self, keys: &[Key]) -> Result<()> {
        let mut batch = self.batch(keys.len());
        for key in keys {
            batch.remove(&self.keys, key);
        }
        Ok(batch.commit()?)
    }

    fn delete_range(&mut self, from: &Key, to: &Key) -> Result<()> {
        let mut batch = self.batch(BATCH);
        for pair in self.keys.range(*from..*to) {
            batch.remove(&self.keys, pair.key()?);
            if batch.len() == BATCH {
                std::mem::replace(&mut batch, self.batch(BATCH)).commit()?;
            }
        }
        Ok(batch.commit()?)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.db.persist(PersistMode::SyncData)?)
    }

    fn get(&mut self, key: &Key, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.keys.get(key)?.map(|value| read(&value)).is_some())
    }

    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        for pair in self.keys.iter() {
            let (key, value) = pair.into_inner()?;
            visit(&key, &value);
        }
        Ok(())
    }

    fn background(&mut self) -> Result<Background> {
        let flushing = self.db.outstanding_flushes() + self.keys.sealed_memtable_count();
        let busy = flushing + self.db.active_compactions() > 0;
        Ok(if busy { Background::Busy } else { Background::Idle })
    }

    fn close(self: Box<Self>) -> Result<()> {
        // Dropping it closes it; write buffers stay in the journal.
        Ok(())
    }
}
