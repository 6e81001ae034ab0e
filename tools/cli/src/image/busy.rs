//! Detects the users of an image: mounts, loop devices and holders of locks.
//!
//! The information is read from /proc and /sys as text. Missing or malformed text counts as "not in use": these checks
//! prevent accidents, not malice, and the tools must work on a machine without /proc. Files are compared by device and
//! inode number, never by name alone, because a file may have several names.

use super::error::OpenError;
use crate::show;
use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Refuses an image that is mounted or backs a loop device.
pub(super) fn check(path: &Path, meta: &Metadata) -> Result<(), OpenError> {
    let mounts = Mounts::now();
    if let Some(at) = mounts.of_image(path, meta) {
        return Err(OpenError::Mounted { path: path.into(), at });
    }
    if !meta.file_type().is_block_device()
        && let Some(name) = loop_device(meta)
    {
        let at = devices_of(&name).into_iter().find_map(|device| mounts.of_device(device));
        return Err(OpenError::Loop { path: path.into(), device: format!("/dev/{name}"), at });
    }
    Ok(())
}

/// Returns the mount point of an image, or `None` if it is not mounted.
pub(super) fn mounted_at(path: &Path, meta: &Metadata) -> Option<PathBuf> {
    Mounts::now().of_image(path, meta)
}

/// A mounted file system, as /proc/self/mountinfo describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedAt {
    /// The device number of the file system.
    pub device: u64,
    /// The source of the mount; for a betr mount, the image.
    pub source: PathBuf,
    /// Whether the mount is read-only.
    pub read_only: bool,
    /// Whether reading leaves access times unchanged (`noatime`).
    pub noatime: bool,
}

/// Returns the file system mounted at `directory`. The path must contain no symbolic links.
pub fn what_is_mounted_at(directory: &Path) -> Option<MountedAt> {
    // Later mounts hide earlier ones at the same directory.
    let last = Mounts::now().lines().filter(|mount| mount.at == directory).last()?;
    let is = |option: &str| last.options.split(',').any(|other| other == option);
    let (read_only, noatime) = (is("ro"), is("noatime"));
    Some(MountedAt { device: last.device?, source: last.source, read_only, noatime })
}

/// The text of /proc/self/mountinfo.
struct Mounts(Vec<u8>);

/// The fields used from one line of mountinfo.
struct Mount {
    device: Option<u64>,
    at: PathBuf,
    options: String,
    source: PathBuf,
}

impl Mounts {
    fn now() -> Mounts {
        Mounts(fs::read("/proc/self/mountinfo").unwrap_or_default())
    }

    fn of_image(&self, path: &Path, meta: &Metadata) -> Option<PathBuf> {
        // A FUSE server on a block device also names the device as the source of the mount.
        let canonical = fs::canonicalize(path).unwrap_or_else(|_| path.into());
        let of_device = || match meta.file_type().is_block_device() {
            true => self.of_device(meta.rdev()),
            false => None,
        };
        of_device().or_else(|| self.of_file(&canonical))
    }

    fn lines(&self) -> impl Iterator<Item = Mount> {
        self.0.split(|byte| *byte == b'\n').filter_map(parse_mount)
    }

    /// Returns the mount point of a block device. Some file systems (btrfs) report a device number other than that of
    /// their block device, so the source is compared as well. Only sources below /dev are examined: stat(2) of another
    /// path might block on a network or FUSE server.
    fn of_device(&self, device: u64) -> Option<PathBuf> {
        let is_source = |source: &Path| {
            source.starts_with("/dev")
                && fs::metadata(source)
                    .is_ok_and(|meta| meta.file_type().is_block_device() && meta.rdev() == device)
        };
        let mut lines = self.lines();
        lines.find(|m| m.device == Some(device) || is_source(&m.source)).map(|m| m.at)
    }

    /// Returns the mount point of a file that is mounted without a loop device: by a FUSE server that names the file as
    /// its source, or by a kernel that mounts files directly (erofs).
    fn of_file(&self, canonical: &Path) -> Option<PathBuf> {
        self.lines().find(|m| m.source == canonical).map(|m| m.at)
    }
}

/// Parses `36 35 98:0 /root /mnt/point rw,noatime master:1 - ext3 /dev/source rw`. The number of fields before the dash
/// varies.
fn parse_mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = device_number(std::str::from_utf8(fields.nth(2)?).ok()?);
    let at = unescaped(fields.nth(1)?);
    let options = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = unescaped(fields.skip_while(|field| *field != b"-").nth(2)?);
    Some(Mount { device, at, options, source })
}

/// Decodes the octal escapes that the kernel writes in mountinfo, such as `\040` for a space.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) if *first == b'\\' => {
                bytes.push(code);
                rest = &after[3..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}

/// Parses `MAJOR:MINOR` in decimal.
fn device_number(text: &str) -> Option<u64> {
    let (major, minor) = text.trim_end().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// The backing file of a loop device, or of the loop device that contains the partition.
pub(super) fn backing_file(meta: &Metadata) -> Option<PathBuf> {
    if !meta.file_type().is_block_device() {
        return None;
    }
    let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
    let folder = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    backing_in(&folder).or_else(|| backing_in(folder.parent()?))
}

/// The backing file of the loop device whose /sys directory is `folder`.
fn backing_in(folder: &Path) -> Option<PathBuf> {
    let mut backing = fs::read(folder.join("loop/backing_file")).ok()?;
    if backing.last() == Some(&b'\n') {
        backing.pop();
    }
    Some(std::ffi::OsString::from_vec(backing).into())
}

/// The name of the loop device that the file backs, if any.
///
/// The kernel appends " (deleted)" to the name of a deleted backing file. The name without this suffix may meanwhile
/// belong to another file, so the text is used unchanged: it matches nothing unless a file really has that name.
fn loop_device(meta: &Metadata) -> Option<String> {
    let blocks = fs::read_dir("/sys/block").ok()?;
    for entry in blocks.flatten() {
        let name = entry.file_name();
        let Some(file) = backing_in(&entry.path()) else { continue };
        if fs::metadata(file).is_ok_and(|backing| super::same_file(&backing, meta)) {
            return Some(name.to_string_lossy().into_owned());
        }
    }
    None
}

/// The device numbers of a whole disk and of its partitions.
fn devices_of(name: &str) -> Vec<u64> {
    let disk = Path::new("/sys/block").join(name);
    let parts = fs::read_dir(&disk).into_iter().flatten().flatten().map(|entry| entry.path());
    std::iter::once(disk.clone())
        .chain(parts.filter(|part| part.join("partition").exists()))
        .filter_map(|folder| device_number(&fs::read_to_string(folder.join("dev")).ok()?))
        .collect()
}

/// The names of the devices that the kernel has built on a block device (device mapper, RAID).
pub(super) fn device_holders(device: u64) -> Vec<String> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let folder = format!("/sys/dev/block/{major}:{minor}/holders");
    let holders = fs::read_dir(folder).into_iter().flatten().flatten();
    holders.map(|entry| format!("/dev/{}", show::path(entry.file_name()))).collect()
}

/// The processes that hold a lock on the file, as `process 12 (name)`.
pub(super) fn lock_holders(meta: &Metadata) -> Vec<String> {
    holders(meta).into_iter().map(process).collect()
}

/// The process name (`/proc/PID/comm`) of a mount's server.
pub const SERVER: &str = "betr-mount";

/// Whether a mount's server holds a lock on the file. If the image is no longer mounted, the server is about to end.
pub(super) fn is_served(meta: &Metadata) -> bool {
    let name = |pid: u32| fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    holders(meta).into_iter().any(|pid| name(pid).trim_ascii_end() == SERVER.as_bytes())
}

fn holders(meta: &Metadata) -> BTreeSet<u32> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    lock_pids(&locks, meta.dev(), meta.ino(), |pid| has_open(pid, meta))
}

/// Returns the processes that hold a flock(2) lock on the inode, from the text of /proc/locks:
/// `1: FLOCK  ADVISORY  WRITE 1234 fe:00:9977858 0 EOF`.
///
/// Some file systems (btrfs, overlayfs) show a device number there that differs from the one in the metadata. If only
/// the inode number matches, `has_open` must confirm that the process has the file open.
fn lock_pids(locks: &str, dev: u64, ino: u64, has_open: impl Fn(u32) -> bool) -> BTreeSet<u32> {
    let device = format!("{:02x}:{:02x}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let mut pids = BTreeSet::new();
    for line in locks.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        // A line with "->" is a waiter, not a holder.
        let [_, "FLOCK", _, _, pid, file, ..] = fields[..] else {
            continue;
        };
        let (Ok(pid), Some((on, inode))) = (pid.parse(), file.rsplit_once(':')) else {
            continue;
        };
        // PID 0 is a process outside this PID namespace.
        if pid != 0 && inode.parse() == Ok(ino) && (on == device || has_open(pid)) {
            pids.insert(pid);
        }
    }
    pids
}

fn has_open(pid: u32, meta: &Metadata) -> bool {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    // Only entries with an absolute path are examined: pipes and sockets have none. stat(2) of an arbitrary target
    // might block on a server that does not answer.
    files
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|to| to.is_absolute()))
        .any(|entry| fs::metadata(entry.path()).is_ok_and(|open| super::same_file(&open, meta)))
}

fn process(pid: u32) -> String {
    match fs::read(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("process {pid} ({})", show::bytes(name.trim_ascii_end())),
        // The process took the lock and exited; a child that inherited the open file still holds it.
        Err(_) => format!("process {pid}, or one that it started"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_is_understood() {
        let text =
            b"36 35 7:3 / /mnt/a\\040b\\134c rw,noatime master:1 shared:2 - ext4 /dev/x rw\n\
            37 35 0:50 / /mnt/f rw - fuse.betr /srv/an\\040image rw,user_id=0\n\
            38 35 0:51 /sub /mnt/g rw - tmpfs none rw\n\
            nonsense\n\n";
        let mounts = Mounts(text.to_vec());
        let device = rustix::fs::makedev(7, 3);
        assert_eq!(mounts.lines().count(), 3);
        let options: Vec<String> = mounts.lines().map(|mount| mount.options).collect();
        assert_eq!(options, ["rw,noatime", "rw", "rw"]);
        assert_eq!(mounts.of_device(device), Some("/mnt/a b\\c".into()));
        assert_eq!(mounts.of_device(rustix::fs::makedev(7, 4)), None);
        assert_eq!(mounts.of_file(Path::new("/srv/an image")), Some("/mnt/f".into()));
        assert_eq!(mounts.of_file(Path::new("/srv/an")), None);
    }

    #[test]
    fn locks_are_understood() {
        let text = "1: FLOCK  ADVISORY  WRITE 1234 fe:00:99 0 EOF\n\
            1: -> FLOCK  ADVISORY  WRITE 7 fe:00:99 0 EOF\n\
            2: POSIX  ADVISORY  WRITE 8 fe:00:99 0 EOF\n\
            3: FLOCK  ADVISORY  READ 1235 00:31:99 0 EOF\n\
            4: FLOCK  ADVISORY  READ 1236 fe:00:98 0 EOF\n\
            5: FLOCK  ADVISORY  READ 0 fe:00:99 0 EOF\n\
            nonsense\n";
        let device = rustix::fs::makedev(0xfe, 0);
        let pids = |open: u32| lock_pids(text, device, 99, |pid| pid == open);
        assert_eq!(pids(0), BTreeSet::from([1234]));
        assert_eq!(pids(1235), BTreeSet::from([1234, 1235]));
    }
}
