//! What every engine is asked to do, and the one place that knows all engines by name.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::work::{Key, Patch, Value};

/// The engines that can be compared, by the names that the command line knows.
pub const NAMES: [&str; 5] = ["betr", "rocksdb", "fjall", "lmdb", "redb"];

/// Opens the database of an engine, and makes it if there is none.
pub fn open(name: &str, settings: &Settings) -> Result<Box<dyn Engine>> {
    Ok(match name {
        "betr" => Box::new(crate::betr::Betr::open(settings)?),
        "rocksdb" => Box::new(crate::rocksdb::RocksDb::open(settings)?),
        "fjall" => Box::new(crate::fjall::Fjall::open(settings)?),
        "lmdb" => Box::new(crate::lmdb::Lmdb::open(settings)?),
        "redb" => Box::new(crate::redb::Redb::open(settings)?),
        _ => bail!("there is no engine {name}; known are {}", NAMES.join(", ")),
    })
}

/// What an engine is told when it is opened.
#[derive(Clone, Debug)]
pub struct Settings {
    /// An existing directory that is the engine's alone.
    pub dir: PathBuf,
    /// Bytes that it may use to cache what it read.
    pub cache: u64,
    /// Bytes of all keys and values that it will hold, for those who have to know before.
    pub data: u64,
}

impl Settings {
    /// A path inside the engine's directory.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }
}

/// What an engine can say of its work in the background.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Background {
    /// There is never any: all is done when a call returns.
    Never,
    /// There is some under way or waiting.
    Busy,
    /// There is none at the moment.
    Idle,
}

/// An embedded key-value engine with one open database.
///
/// What `insert`, `update` and `delete` were given is durable when they return: it would be found
/// after a loss of power.
pub trait Engine {
    /// The version of the engine that is in use.
    fn version(&self) -> Result<String>;

    /// Inserts the pairs.
    fn insert(&mut self, pairs: &[(Key, Value)]) -> Result<()>;

    /// Overwrites the bytes of the values that [`crate::work::apply`] does, of keys that are
    /// present; blindly, if the engine can.
    fn update(&mut self, patches: &[(Key, Patch)]) -> Result<()>;

    /// Deletes the keys, one by one.
    fn delete(&mut self, keys: &[Key]) -> Result<()>;

    /// Deletes all keys from `from` on that are less than `to`. An engine that can delete ranges
    /// need not make it durable before `sync`; one that cannot deletes the keys in durable batches.
    fn delete_range(&mut self, from: &Key, to: &Key) -> Result<()>;

    /// Makes durable all that was handed over.
    fn sync(&mut self) -> Result<()>;

    /// Looks a key up, and hands its value to `read` if it is present, which is returned.
    fn get(&mut self, key: &Key, read: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Hands all keys and values to `visit`, in ascending order.
    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()>;

    /// Whether work is going on in the background.
    fn background(&mut self) -> Result<Background>;

    /// Closes the database.
    fn close(self: Box<Self>) -> Result<()>;
}

/// The version of a package that this program was built with.
pub fn locked_version(package: &str) -> Option<&'static str> {
    let name = format!("name = \"{package}\"");
    let mut lines = include_str!("../Cargo.lock").lines().skip_while(|line| *line != name);
    lines.nth(1)?.strip_prefix("version = \"")?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::work::{Order, Work};

    /// The contents of an engine's database, which must come in ascending order.
    fn contents(engine: &mut dyn Engine) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut pairs = Vec::new();
        engine.scan(&mut |key, value| pairs.push((key.to_vec(), value.to_vec()))).unwrap();
        assert!(pairs.is_sorted_by(|one, two| one.0 < two.0));
        pairs.into_iter().collect()
    }

    /// Every call on a small database, each compared with a map; closed and opened in between.
    fn behaves(name: &str) {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings { dir: dir.path().to_owned(), cache: 8 << 20, data: 4 << 20 };
        let mut engine = open(name, &settings).unwrap();
        let work = Work::new(25_000, 5);
        let mut model = BTreeMap::new();
        let key = |number| work.key(number, Order::Random);

        let pairs: Vec<_> = (0..25_000).map(|number| (key(number), work.value(number))).collect();
        for batch in pairs.chunks(10_000) {
            engine.insert(batch).unwrap();
        }
        model.extend(pairs.iter().map(|(key, value)| (key.to_vec(), value.to_vec())));
        assert!(contents(engine.as_mut()) == model, "{name} inserted something else");

        // Some keys twice, in one batch and in two.
        let numbers: Vec<u64> = (0..3000).chain(2000..4000).chain(500..600).collect();
        let patches: Vec<_> = numbers.iter().map(|&n| (key(n), work.patch(n))).collect();
        engine.update(&patches[..2500]).unwrap();
        engine.update(&patches[2500..]).unwrap();
        model.extend((0..4000).map(|n| (key(n).to_vec(), work.patched_value(n).to_vec())));
        engine.close().unwrap();
        let mut engine = open(name, &settings).unwrap();
        assert!(contents(engine.as_mut()) == model, "{name} updated something else");
        let mut read = Vec::new();
        assert!(engine.get(&key(17), &mut |value| read = value.to_vec()).unwrap());
        assert_eq!(read, work.patched_value(17));
        assert!(!engine.get(&[0; 16], &mut |_| panic!("nothing is there")).unwrap());

        let keys: Vec<_> = (1000..5000).step_by(2).map(key).collect();
        engine.delete(&keys).unwrap();
        model.retain(|key, _| !keys.iter().any(|deleted| deleted[..] == key[..]));
        assert!(contents(engine.as_mut()) == model, "{name} deleted something else");

        // The second range holds more keys than a batch.
        for (from, to) in [(3, 5), (16, 56)] {
            let (from, to) = (Work::slice_start(from), Work::slice_start(to));
            engine.delete_range(&from, &to).unwrap();
            model.retain(|key, _| key[..] < from[..] || key[..] >= to[..]);
        }
        engine.sync().unwrap();
        engine.close().unwrap();
        let mut engine = open(name, &settings).unwrap();
        assert!(contents(engine.as_mut()) == model, "{name} deleted another range");
        crate::idle::wait(engine.as_mut()).unwrap();
        assert!(engine.version().unwrap().contains('.'));
        engine.close().unwrap();
    }

    #[test]
    fn betr_behaves() {
        behaves("betr");
    }

    #[test]
    fn rocksdb_behaves() {
        behaves("rocksdb");
    }

    #[test]
    fn fjall_behaves() {
        behaves("fjall");
    }

    #[test]
    fn lmdb_behaves() {
        behaves("lmdb");
    }

    #[test]
    fn redb_behaves() {
        behaves("redb");
    }

    #[test]
    fn unknown_engines_are_refused() {
        let settings = Settings { dir: PathBuf::new(), cache: 0, data: 0 };
        assert!(open("none", &settings).is_err());
    }

    #[test]
    fn versions_are_found() {
        assert_eq!(locked_version("rocksdb"), Some("0.20.1"));
        assert_eq!(locked_version("no-such-package"), None);
    }
}
