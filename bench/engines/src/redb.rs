//! redb, a copy-on-write B-tree in Rust.

use std::ops::Bound;

use anyhow::{Context, Result, ensure};
use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition, TableError};

use crate::engine::{Background, Engine, Settings, locked_version};
use crate::work::{BATCH, Key, Patch, Value, patched};

/// Strings of bytes of any length, as all other engines hold them.
const PAIRS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("pairs");

/// An open database. Its options are the defaults, but for the cache: every commit is synced.
pub struct Redb {
    db: Database,
}

impl Redb {
    /// Opens the database, and makes it if there is none.
    pub fn open(settings: &Settings) -> Result<Self> {
        let mut builder = Builder::new();
        builder.set_cache_size(usize::try_from(settings.cache)?);
        Ok(Redb { db: builder.create(settings.path("redb"))? })
    }
}

impl Engine for Redb {
    fn version(&self) -> Result<String> {
        Ok(locked_version("redb").context("not in Cargo.lock")?.to_owned())
    }

    fn insert(&mut self, pairs: &[(Key, Value)]) -> Result<()> {
        let write = self.db.begin_write()?;
        let mut table = write.open_table(PAIRS)?;
        for (key, value) in pairs {
            table.insert(&key[..], &value[..])?;
        }
        drop(table);
        Ok(write.commit()?)
    }

    fn update(&mut self, patches: &[(Key, Patch)]) -> Result<()> {
        let write = self.db.begin_write()?;
        let mut table = write.open_table(PAIRS)?;
        for (key, patch) in patches {
            let mut stored = table.get_mut(&key[..])?.context("the key to update is absent")?;
            let value = patched(stored.value(), patch)?;
            stored.insert(&value[..])?;
        }
        drop(table);
        Ok(write.commit()?)
    }

    fn delete(&mut self, keys: &[Key]) -> Result<()> {
        let write = self.db.begin_write()?;
        let mut table = write.open_table(PAIRS)?;
        for key in keys {
            ensure!(table.remove(&key[..])?.is_some(), "the key to delete is absent");
        }
        drop(table);
        Ok(write.commit()?)
    }

    fn delete_range(&mut self, from: &Key, to: &Key) -> Result<()> {
        // Its call for a range looks at every key, so it is given as many as make a batch.
        let rest = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        loop {
            let write = self.db.begin_write()?;
            let mut table = write.open_table(PAIRS)?;
            let next = table.range::<&[u8]>(rest)?.nth(BATCH).transpose()?;
            let next = next.map(|(key, _)| key.value().to_vec());
            let end = next.as_ref().map_or(rest.1, |next| Bound::Excluded(&next[..]));
            table.retain_in::<&[u8], _>((rest.0, end), |_, _| false)?;
            drop(table);
            write.commit()?;
            if next.is_none() {
                return Ok(());
            }
        }
    }

    fn sync(&mut self) -> Result<()> {
        // Every commit was.
        Ok(())
    }

    fn get(&mut self, key: &Key, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let table = self.db.begin_read()?.open_table(PAIRS)?;
        Ok(table.get(&key[..])?.map(|value| read(value.value())).is_some())
    }

    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let table = match self.db.begin_read()?.open_table(PAIRS) {
            Err(TableError::TableDoesNotExist(_)) => return Ok(()),
            table => table?,
        };
        for pair in table.iter()? {
            let (key, value) = pair?;
            visit(key.value(), value.value());
        }
        Ok(())
    }

    fn background(&mut self) -> Result<Background> {
        Ok(Background::Never)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.close()?)
    }
}
