//! Options that limit the loss of data, and options for the mount after a crash.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::fixture::{Mounted, betr_only};

fn bytes_and_time(path: &Path) -> (Vec<u8>, SystemTime) {
    (fs::read(path).unwrap(), fs::metadata(path).unwrap().modified().unwrap())
}

/// A mount that was killed after a sync. Not for ext4, which writes during recovery even if it is mounted read-only.
fn killed() -> Option<Mounted> {
    let mut mount = betr_only().then(|| Mounted::sized("", 64 << 20)).flatten()?;
    fs::write(mount.at("old"), "old").unwrap();
    mount.remount();
    fs::write(mount.at("new"), "new").unwrap();
    fs::write(mount.at("large"), vec![7; 5 << 20]).unwrap();
    for name in ["new", "large"] {
        File::open(mount.at(name)).unwrap().sync_all().unwrap();
    }
    File::open(mount.point()).unwrap().sync_all().unwrap();
    mount.crash();
    Some(mount)
}

#[test]
fn a_read_only_mount_recovers_without_a_write() {
    let Some(mut mount) = killed() else { return };
    let before = bytes_and_time(mount.image());
    for _ in 0..2 {
        mount.mount("ro");
        assert_eq!(fs::read_to_string(mount.at("new")).unwrap(), "new");
        assert_eq!(fs::read(mount.at("large")).unwrap(), vec![7; 5 << 20]);
        mount.unmount();
        assert!(bytes_and_time(mount.image()) == before);
    }
    mount.mount("");
    assert_eq!(fs::read_to_string(mount.at("new")).unwrap(), "new");
    mount.settle();
}

#[test]
fn without_recovery_the_last_checkpoint_is_seen() {
    let Some(mut mount) = killed() else { return };
    let before = bytes_and_time(mount.image());
    mount.mount("ro,norecovery");
    assert_eq!(fs::read_to_string(mount.at("old")).unwrap(), "old");
    // A checkpoint may contain a logged operation, too, but never half of it.
    if let Ok(large) = fs::read(mount.at("large")) {
        assert!([0, 5 << 20].contains(&large.len()));
    }
    mount.unmount();
    assert!(bytes_and_time(mount.image()) == before);
    mount.mount("");
    assert_eq!(fs::read(mount.at("large")).unwrap(), vec![7; 5 << 20]);
    mount.settle();
}

#[test]
fn after_so_many_seconds_what_was_closed_is_durable() {
    let Some(mut mount) = betr_only().then(|| Mounted::new("commit=1")).flatten() else { return };
    fs::create_dir(mount.at("dir")).unwrap();
    fs::write(mount.at("dir/file"), vec![7; 100_000]).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    mount.crash();
    mount.mount("");
    assert_eq!(fs::read(mount.at("dir/file")).unwrap(), vec![7; 100_000]);
    mount.settle();
}

#[test]
fn a_mount_whose_daemon_was_killed_says_so() {
    if !betr_only() {
        return;
    }
    let Some(mut mount) = Mounted::new("") else { return };
    fs::write(mount.at("file"), "").unwrap();
    let file = File::open(mount.at("file")).unwrap();
    mount.kill();
    mount.end_of_daemon();
    let refused = |error: std::io::Error| {
        let errno = rustix::io::Errno::from_io_error(&error);
        assert_eq!(errno, Some(rustix::io::Errno::NOTCONN), "{error}");
    };
    // Replies from the kernel's caches may continue.
    refused(File::open(mount.at("another")).unwrap_err());
    refused(fs::read_dir(mount.point()).unwrap_err());
    drop(file);
    mount.clear();
    mount.mount("");
    mount.settle();
}
