//! LMDB, as the package heed brings it along.

use std::ops::Bound;

use anyhow::{Context, Result, ensure};
use heed::types::{Bytes, DecodeIgnore};
use heed::{CommitOrAbort, Database, Env, EnvOpenOptions};

use crate::engine::{Background, Engine, Settings, locked_version};
use crate::work::{BATCH, Key, Patch, Value, patched};

/// The size of the mapping for each byte of keys and values. It is address space only: the file
/// grows as it is written.
const MAP_FACTOR: u64 = 16;
/// The mapping is at least this large.
const MAP_AT_LEAST: u64 = 1 << 30;

type Pairs = Database<'static, Bytes, Bytes>;

/// An open environment. Its flags are the defaults: pages are written by calls, not through the
/// mapping, and every commit is synced. The setting for the cache has no meaning here, because
/// the page cache of the system is the only one.
pub struct Lmdb {
    env: Env,
    pairs: Pairs,
}

impl Lmdb {
    /// Opens the environment, and makes it if there is none.
    pub fn open(settings: &Settings) -> Result<Self> {
        let map = (settings.data * MAP_FACTOR).max(MAP_AT_LEAST).next_multiple_of(MAP_AT_LEAST);
        let mut options = EnvOpenOptions::new();
        options.map_size(usize::try_from(map)?);
        let env = open_env(&options, settings)?;
        let write = env.write_txn()?;
        let made = env.create_databases_and_commit(write, |opener, write| {
            let pairs = opener.create_database::<Bytes, Bytes>(write, None)?;
            heed::Result::Ok(CommitOrAbort::<_, ()>::Commit(pairs))
        })?;
        let pairs = made.commit().context("the database was not made")?;
        Ok(Lmdb { env, pairs })
    }
}

#[expect(unsafe_code, reason = "the package has no other way to open an environment")]
fn open_env(options: &EnvOpenOptions, settings: &Settings) -> Result<Env> {
    // SAFETY: the directory was made for this engine of this process, so no other process changes the
    // mapped file. It is on a local disk, and no flag takes the lock away.
    Ok(unsafe { options.open(&settings.dir) }?)
}

impl Engine for Lmdb {
    fn version(&self) -> Result<String> {
        let heed::LmdbVersion { major, minor, patch, .. } = heed::lmdb_version();
        let package = locked_version("heed").context("not in Cargo.lock")?;
        Ok(format!("{major}.{minor}.{patch} (heed {package})"))
    }

    fn insert(&mut self, pairs: &[(Key, Value)]) -> Result<()> {
        let mut write = self.env.write_txn()?;
        for (key, value) in pairs {
            self.pairs.put(&mut write, key, value)?;
        }
        Ok(write.commit()?)
    }

    fn update(&mut self, patches: &[(Key, Patch)]) -> Result<()> {
        let mut write = self.env.write_txn()?;
        for (key, patch) in patches {
            let stored = self.pairs.get(&write, key)?.context("the key to update is absent")?;
            let value = patched(stored, patch)?;
            self.pairs.put(&mut write, key, &value)?;
        }
        Ok(write.commit()?)
    }

    fn delete(&mut self, keys: &[Key]) -> Result<()> {
        let mut write = self.env.write_txn()?;
        for key in keys {
            ensure!(self.pairs.delete(&mut write, key)?, "the key to delete is absent");
        }
        Ok(write.commit()?)
    }

    fn delete_range(&mut self, from: &Key, to: &Key) -> Result<()> {
        // Its call for a range deletes key by key, so it is given as many as make a batch.
        let rest = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        loop {
            let mut write = self.env.write_txn()?;
            let keys = self.pairs.remap_data_type::<DecodeIgnore>();
            let next = keys.range(&write, &rest)?.nth(BATCH).transpose()?;
            let next = next.map(|(key, ())| key.to_vec());
            let end = next.as_ref().map_or(rest.1, |next| Bound::Excluded(&next[..]));
            self.pairs.delete_range(&mut write, &(rest.0, end))?;
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
        let txn = self.env.read_txn()?;
        Ok(self.pairs.get(&txn, key)?.map(read).is_some())
    }

    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let txn = self.env.read_txn()?;
        for pair in self.pairs.iter(&txn)? {
            let (key, value) = pair?;
            visit(key, value);
        }
        Ok(())
    }

    fn background(&mut self) -> Result<Background> {
        Ok(Background::Never)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}
