//! Where databases are made, how much of the disk they take, and what the disk is given to write.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::units::show_mib;

/// The default directory: on most systems a real disk, which `/tmp` often is not.
const USUAL: &str = "/var/tmp";
/// What a file system in memory calls itself.
const TMPFS_MAGIC: i64 = 0x0102_1994;
/// Free space that is asked for: a multiple of keys and values, for engines that keep old
/// versions, and room for logs.
const FREE_FACTOR: u64 = 8;
const FREE_AT_LEAST: u64 = 2 << 30;
/// What a database may take that lies still while another one is in use.
const STILL_FACTOR: u64 = 3;

/// Makes a directory for databases with `data` bytes of keys and values each, of which one at a time is in
/// use. It is removed with all that is in it when dropped.
pub fn make_dir(parent: Option<&Path>, data: u64, databases: usize) -> Result<TempDir> {
    let parent = parent.unwrap_or(Path::new(USUAL));
    let show = parent.display();
    let kind = rustix::fs::statfs(parent).with_context(|| format!("cannot look at {show}"))?;
    ensure!(
        kind.f_type as i64 != TMPFS_MAGIC,
        "{show} is in memory, where nothing is written and nothing is durable; give another --dir"
    );
    let space = rustix::fs::statvfs(parent)?;
    let factor = FREE_FACTOR + STILL_FACTOR * (databases as u64).saturating_sub(1);
    let (free, needed) = (space.f_bavail * space.f_frsize, data * factor + FREE_AT_LEAST);
    ensure!(
        free >= needed,
        "{show} has {} MiB free, but {} MiB may be needed",
        show_mib(free as f64),
        show_mib(needed as f64)
    );
    tempfile::Builder::new()
        .prefix("engines-")
        .tempdir_in(parent)
        .with_context(|| format!("cannot make a directory in {show}"))
}

/// The block device that a directory is on.
pub struct Device {
    dir: File,
    counts: PathBuf,
}

impl Device {
    /// The device of the directory; `None` if the file system does not say which one it is on.
    pub fn of(dir: &Path) -> Result<Option<Device>> {
        let dir = File::open(dir).with_context(|| format!("cannot open {}", dir.display()))?;
        let number = dir.metadata()?.dev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let counts = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        Ok(counts.exists().then_some(Device { dir, counts }))
    }

    /// Bytes that the device was given to write so far, by everybody, when the file system has
    /// nothing left that waits to be written.
    pub fn written(&self) -> Result<u64> {
        rustix::fs::syncfs(&self.dir).context("cannot sync the file system")?;
        let text =
            fs::read_to_string(&self.counts).context("cannot read the counts of a device")?;
        let sectors = text.split_whitespace().nth(6).context("a device without sectors written")?;
        Ok(sectors.parse::<u64>().context("sectors that are not a number")? * 512)
    }
}

/// Bytes of the blocks that all files below the directory take.
pub fn allocated(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let entry = entry?;
        // An engine may remove files meanwhile.
        bytes += match entry.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error.into()),
            Ok(meta) if meta.is_dir() => allocated(&entry.path())?,
            Ok(meta) => meta.blocks() * 512,
        };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_summed_below_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("below")).unwrap();
        fs::write(dir.path().join("a"), [1; 5000]).unwrap();
        fs::write(dir.path().join("below/b"), [1; 5000]).unwrap();
        rustix::fs::sync();
        assert!(allocated(dir.path()).unwrap() >= 10_000);
    }

    #[test]
    fn a_device_counts_what_is_written() {
        let dir = tempfile::tempdir().unwrap();
        // There is none if the directory is in memory, for example.
        let Some(device) = Device::of(dir.path()).unwrap() else { return };
        let before = device.written().unwrap();
        fs::write(dir.path().join("a"), vec![1; 1 << 20]).unwrap();
        assert!(device.written().unwrap() >= before + (1 << 20));
    }

    #[test]
    fn a_disk_that_is_too_small_is_refused() {
        let error = make_dir(Some(&std::env::temp_dir()), 1 << 58, 1).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("free") || error.contains("in memory"), "{error}");
    }
}
