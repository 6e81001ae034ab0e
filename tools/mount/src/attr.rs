//! Translates inodes, types and times to and from those of the FUSE protocol.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use betr_core::format::{FileType, Inode};
use betr_core::ids::Time;
use fuser::{FileAttr, INodeNo, TimeOrNow};

use crate::options::Options;

/// The unit of `blocks`, in bytes.
const SECTOR: u64 = 512;

/// The attributes of an inode whose blocks take `stored` bytes.
pub(crate) fn attributes(inode: &Inode, stored: u64, options: &Options) -> FileAttr {
    FileAttr {
        ino: INodeNo(inode.ino.0),
        size: inode.size,
        blocks: stored / SECTOR,
        atime: system_time(inode.accessed),
        mtime: system_time(inode.modified),
        ctime: system_time(inode.changed),
        crtime: system_time(inode.born),
        kind: kind(inode.kind),
        perm: (inode.perm & 0o7777) as u16,
        nlink: inode.links,
        uid: options.uid.unwrap_or(inode.uid),
        gid: options.gid.unwrap_or(inode.gid),
        rdev: encode_device(inode.device),
        blksize: 4096,
        flags: 0,
    }
}

/// The attributes of a negative entry: inode number 0.
pub(crate) fn nothing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: fuser::FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

pub(crate) fn kind(kind: FileType) -> fuser::FileType {
    match kind {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
    }
}

/// The file type in a mode; `None` for a type that mknod(2) cannot make. 0 means a regular file.
pub(crate) fn kind_of_mode(mode: u32) -> Option<FileType> {
    Some(match mode & 0o170_000 {
        0 | 0o100_000 => FileType::Regular,
        0o020_000 => FileType::CharDevice,
        0o060_000 => FileType::BlockDevice,
        0o010_000 => FileType::Fifo,
        0o140_000 => FileType::Socket,
        _ => return None,
    })
}

/// Major and minor number in the 32 bits of the protocol.
fn encode_device((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xf_ff00) << 12)
}

/// The inverse of [`encode_device`].
pub(crate) fn decode_device(device: u32) -> (u32, u32) {
    ((device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & 0xf_ff00))
}

/// A time; one that does not fit becomes 1970.
pub(crate) fn system_time(time: Time) -> SystemTime {
    let nanos = Duration::from_nanos(time.nanos.into());
    let secs = Duration::from_secs(time.secs.unsigned_abs());
    let whole = match time.secs {
        0.. => UNIX_EPOCH.checked_add(secs),
        _ => UNIX_EPOCH.checked_sub(secs),
    };
    whole.and_then(|whole| whole.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

/// A time that the kernel sets.
pub(crate) fn time_of(time: TimeOrNow, now: Time) -> Time {
    let time = match time {
        TimeOrNow::Now => return now,
        TimeOrNow::SpecificTime(time) => time,
    };
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Time { secs: since.as_secs() as i64, nanos: since.subsec_nanos() },
        // Before 1970 fuser subtracts the nanoseconds from the seconds, although the kernel counts them forward; this
        // restores them.
        Err(error) => {
            let before = error.duration();
            Time { secs: -(before.as_secs() as i64), nanos: before.subsec_nanos() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_devices_come_back() {
        for (secs, nanos) in [(0, 0), (1, 999_999_999), (-5, 0), (1 << 33, 7)] {
            let time = Time { secs, nanos };
            let now = Time { secs: 42, nanos: 0 };
            assert_eq!(time_of(TimeOrNow::SpecificTime(system_time(time)), now), time);
            assert_eq!(time_of(TimeOrNow::Now, now), now);
        }
        // How fuser decodes -2 seconds plus 0.25 seconds.
        let read = UNIX_EPOCH - Duration::new(2, 250_000_000);
        let time = time_of(TimeOrNow::SpecificTime(read), Time::default());
        assert_eq!(time, Time { secs: -2, nanos: 250_000_000 });
        assert_eq!(system_time(time), UNIX_EPOCH - Duration::new(1, 750_000_000));
        for device in [(1, 3), (0xfff, 0xf_ffff), (8, 0x1_0001)] {
            assert_eq!(decode_device(encode_device(device)), device);
        }
    }
}
