//! RocksDB, as the system has it.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use rocksdb::properties::{
    COMPACTION_PENDING, MEM_TABLE_FLUSH_PENDING, NUM_RUNNING_COMPACTIONS, NUM_RUNNING_FLUSHES,
};
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompactionStyle, DBCompressionType, MergeOperands, Options,
    WriteBatch, WriteOptions,
};

use crate::engine::{Background, Engine, Settings, locked_version};
use crate::work::{Key, PATCH_BYTES, PATCH_OFFSET, Patch, Value};

/// A patch on its way: the offset in the value, then the bytes.
const OPERAND_BYTES: usize = 1 + PATCH_BYTES;

/// An open database.
pub struct RocksDb {
    db: DB,
    dir: PathBuf,
}

impl RocksDb {
    /// Opens the database, and makes it if there is none.
    pub fn open(settings: &Settings) -> Result<Self> {
        let cache = Cache::new_lru_cache(settings.cache as usize)?;
        let db = DB::open(&options(&cache), &settings.dir)?;
        Ok(RocksDb { db, dir: settings.dir.clone() })
    }

    fn write(&self, batch: WriteBatch, sync: bool) -> Result<()> {
        let mut options = WriteOptions::default();
        options.set_sync(sync);
        Ok(self.db.write_opt(batch, &options)?)
    }
}

/// What its guides recommend for a general workload, where it is not the default already.
fn options(cache: &Cache) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    // Ten bits for each key: about one in a hundred needless reads.
    table.set_bloom_filter(10.0, false);
    // Filters and indexes count towards the cache, so that the cache bounds the memory; those of
    // level 0 stay, because every get needs them.
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    // Blocks stay at the default of 4 KiB, which is what the pages of the other engines have.
    table.set_format_version(5);

    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::None);
    // The size of a write buffer is the default; a third one lets writing go on while one is
    // being flushed and the next is full.
    options.set_write_buffer_size(64 << 20);
    options.set_max_write_buffer_number(3);
    options.set_compaction_style(DBCompactionStyle::Level);
    // Sizes of levels follow from the last one: less space, fewer bytes written.
    options.set_level_compaction_dynamic_level_bytes(true);
    // One flush and one compaction at a time, which is the default.
    options.set_max_background_jobs(2);
    // Hands tables to the disk while they are written, so that the sync at the end is short.
    options.set_bytes_per_sync(1 << 20);
    options.set_merge_operator("patch", full_merge, partial_merge);
    options
}

/// Applies patches to the value, the oldest first. A patch of a key that is absent is a mistake.
fn full_merge(_: &[u8], existing: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let mut value = existing?.to_vec();
    for patch in operands.iter().flat_map(|operand| operand.chunks(OPERAND_BYTES)) {
        let (offset, bytes) = patch.split_first()?;
        value.get_mut(usize::from(*offset)..)?.get_mut(..bytes.len())?.copy_from_slice(bytes);
    }
    Some(value)
}

/// Makes one operand of many: of the patches at an offset only the newest is kept.
fn partial_merge(_: &[u8], _: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let mut patches: Vec<&[u8]> = Vec::with_capacity(operands.len());
    for patch in operands.iter().flat_map(|operand| operand.chunks(OPERAND_BYTES)) {
        patches.retain(|older| older[0] != patch[0]);
        patches.push(patch);
    }
    Some(patches.concat())
}

impl Engine for RocksDb {
    fn version(&self) -> Result<String> {
        // The library cannot be asked, but writes it into the file of its options.
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("OPTIONS-") {
                let text = fs::read_to_string(entry.path())?;
                let mut lines = text.lines().map(str::trim);
                let version = lines.find_map(|line| line.strip_prefix("rocksdb_version="));
                let version = version.context("no version in the file of options")?;
                let package = locked_version("rocksdb").context("not in Cargo.lock")?;
                return Ok(format!("{version} (rocksdb {package})"));
            }
        }
        bail!("no file of options")
    }

    fn insert(&mut self, pairs: &[(Key, Value)]) -> Result<()> {
        let mut batch = WriteBatch::default();
        for (key, value) in pairs {
            batch.put(key, value);
        }
        self.write(batch, true)
    }

    fn update(&mut self, patches: &[(Key, Patch)]) -> Result<()> {
        let mut batch = WriteBatch::default();
        let mut operand = [PATCH_OFFSET as u8; OPERAND_BYTES];
        for (key, patch) in patches {
            operand[1..].copy_from_slice(patch);
            batch.merge(key, operand);
        }
        self.write(batch, true)
    }

    fn delete(&mut self, keys: &[Key]) -> Result<()> {
        let mut batch = WriteBatch::default();
        for key in keys {
            batch.delete(key);
        }
        self.write(batch, true)
    }

    fn delete_range(&mut self, from: &Key, to: &Key) -> Result<()> {
        let mut batch = WriteBatch::default();
        batch.delete_range(from, to);
        self.write(batch, false)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.db.flush_wal(true)?)
    }

    fn get(&mut self, key: &Key, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.db.get_pinned(key)?;
        Ok(value.map(|value| read(&value)).is_some())
    }

    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let mut cursor = self.db.raw_iterator();
        cursor.seek_to_first();
        while let Some((key, value)) = cursor.item() {
            visit(key, value);
            cursor.next();
        }
        Ok(cursor.status()?)
    }

    fn background(&mut self) -> Result<Background> {
        let properties = [
            MEM_TABLE_FLUSH_PENDING,
            NUM_RUNNING_FLUSHES,
            COMPACTION_PENDING,
            NUM_RUNNING_COMPACTIONS,
        ];
        for property in properties {
            let value = self.db.property_int_value(property)?;
            if value.with_context(|| format!("no property {property:?}"))? > 0 {
                return Ok(Background::Busy);
            }
        }
        Ok(Background::Idle)
    }

    fn close(self: Box<Self>) -> Result<()> {
        // Dropping it closes it; write buffers stay in the log, as they do by default.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::{Order, Work};

    /// Patches that meet each other before they meet their value, in memory and in compactions.
    #[test]
    fn patches_merge_without_their_value() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings { dir: dir.path().to_owned(), cache: 1 << 20, data: 1 << 20 };
        let mut engine = RocksDb::open(&settings).unwrap();
        let work = Work::new(100, 1);
        let key = |number| work.key(number, Order::Random);
        let pairs: Vec<_> = (0..100).map(|number| (key(number), work.value(number))).collect();
        engine.insert(&pairs).unwrap();
        engine.db.flush().unwrap();
        for round in 0..4 {
            // The newest patch is the right one.
            let patch = |number| if round == 3 { work.patch(number) } else { [round; 4] };
            let patches: Vec<_> = (0..100).map(|number| (key(number), patch(number))).collect();
            engine.update(&patches).unwrap();
            if round == 1 || round == 2 {
                engine.db.flush().unwrap();
            }
        }
        for _ in 0..2 {
            for number in 0..100 {
                let mut read = Vec::new();
                assert!(engine.get(&key(number), &mut |value| read = value.to_vec()).unwrap());
                assert_eq!(read, work.patched_value(number));
            }
            engine.db.compact_range(None::<&[u8]>, None::<&[u8]>);
        }
    }

    #[test]
    fn a_patch_of_nothing_is_a_mistake() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings { dir: dir.path().to_owned(), cache: 1 << 20, data: 1 << 20 };
        let mut engine = RocksDb::open(&settings).unwrap();
        engine.update(&[([1; 16], [2; 4])]).unwrap();
        assert!(engine.get(&[1; 16], &mut |_| {}).is_err());
    }
}
