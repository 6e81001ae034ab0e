//! What the system says of this process: bytes read and written, memory; and its page cache.

use std::fs;
use std::io::Write;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Bytes that the process has read and written, as `/proc/self/io` counts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Io {
    /// Handed over by calls that read, from the page cache or not.
    pub rchar: u64,
    /// Handed over to calls that write.
    pub wchar: u64,
    /// Fetched from the disk.
    pub read_bytes: u64,
    /// Of pages that became dirty in the page cache, or went past it to the disk. Where the cache
    /// has pages in groups, all of a group count as soon as one of them becomes dirty.
    pub write_bytes: u64,
    /// Of dirty pages that were given up before they were written, because files were removed.
    pub cancelled_write_bytes: u64,
}

impl Io {
    /// The counts up to now.
    pub fn now() -> Result<Self> {
        let text = fs::read_to_string("/proc/self/io").context("cannot read /proc/self/io")?;
        let field = |name| number(&text, name);
        Ok(Io {
            rchar: field("rchar:")?,
            wchar: field("wchar:")?,
            read_bytes: field("read_bytes:")?,
            write_bytes: field("write_bytes:")?,
            cancelled_write_bytes: field("cancelled_write_bytes:")?,
        })
    }

    /// What has been added since `earlier`.
    pub fn since(&self, earlier: &Io) -> Io {
        Io {
            rchar: self.rchar - earlier.rchar,
            wchar: self.wchar - earlier.wchar,
            read_bytes: self.read_bytes - earlier.read_bytes,
            write_bytes: self.write_bytes - earlier.write_bytes,
            cancelled_write_bytes: self.cancelled_write_bytes - earlier.cancelled_write_bytes,
        }
    }
}

/// The memory of the process in bytes, as `/proc/self/status` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Memory {
    /// The most that was ever resident, since the peak was last reset: pages of mapped files too.
    pub peak: u64,
    /// What is resident now and belongs to no file.
    pub anonymous: u64,
    /// What is resident now of mapped files.
    pub file: u64,
}

impl Memory {
    /// The memory now.
    pub fn now() -> Result<Self> {
        let text = fs::read_to_string("/proc/self/status").context("cannot read the status")?;
        let field = |name| number(&text, name).map(|kib| kib << 10);
        Ok(Memory {
            peak: field("VmHWM:")?,
            anonymous: field("RssAnon:")?,
            file: field("RssFile:")?,
        })
    }

    /// Forgets the peak, so that it will be that of what follows. False if the system cannot.
    pub fn reset_peak() -> bool {
        fs::write("/proc/self/clear_refs", "5").is_ok()
    }
}

fn number(text: &str, name: &str) -> Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let word = line.and_then(|rest| rest.split_whitespace().next());
    let word = word.with_context(|| format!("the system does not say {name}"))?;
    word.parse().with_context(|| format!("{name} {word} is not a number"))
}

/// Why the page cache cannot be dropped, if it cannot.
pub fn why_caches_stay() -> Option<String> {
    let error = fs::OpenOptions::new().write(true).open(DROP_CACHES).err()?;
    Some(format!("the page cache cannot be dropped: {error}"))
}

/// Writes out what is dirty in the page cache, and drops the cache.
pub fn drop_caches() -> Result<()> {
    rustix::fs::sync();
    let mut file = fs::OpenOptions::new().write(true).open(DROP_CACHES)?;
    file.write_all(b"3").context("cannot drop the page cache")
}

/// The machine that the numbers belong to.
#[derive(Debug, Serialize)]
pub struct Machine {
    kernel: String,
    processors: usize,
    memory: u64,
}

impl Machine {
    /// This machine.
    pub fn this() -> Result<Self> {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned();
        let memory = number(&fs::read_to_string("/proc/meminfo")?, "MemTotal:")? << 10;
        Ok(Machine { kernel, processors: std::thread::available_parallelism()?.get(), memory })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_grow_by_what_is_written() {
        let before = Io::now().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        let added = Io::now().unwrap().since(&before);
        assert!(added.wchar >= 100_000, "{added:?}");
    }

    #[test]
    fn memory_is_known() {
        let memory = Memory::now().unwrap();
        assert!(memory.peak >= memory.anonymous && memory.anonymous > 0, "{memory:?}");
    }
}
