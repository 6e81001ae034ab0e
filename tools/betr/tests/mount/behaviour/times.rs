//! Times of access, modification and change.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, utimensat};

use crate::fixture::{Mounted, run};

/// Seconds and nanoseconds of access, modification and change.
type Times = [(i64, i64); 3];

fn times(path: &Path) -> Times {
    let meta = fs::symlink_metadata(path).unwrap();
    [
        (meta.atime(), meta.atime_nsec()),
        (meta.mtime(), meta.mtime_nsec()),
        (meta.ctime(), meta.ctime_nsec()),
    ]
}

fn set(path: &Path, access: (i64, i64), modification: (i64, i64)) {
    let time = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
    let times = Timestamps { last_access: time(access), last_modification: time(modification) };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Longer than the resolution of any file system's clock.
fn pass() {
    std::thread::sleep(Duration::from_millis(20));
}

/// Which of the three times an action changes, as letters.
fn changed(path: &Path, act: impl FnOnce()) -> String {
    let before = times(path);
    pass();
    act();
    let after = times(path);
    let letters = ["a", "m", "c"].into_iter().zip(before.into_iter().zip(after));
    let letters = letters.inspect(|(_, (old, new))| assert!(old <= new, "{old:?} and {new:?}"));
    letters.filter(|(_, (old, new))| old != new).map(|(letter, _)| letter).collect()
}

#[test]
fn times_are_kept_to_the_nanosecond() {
    let Some(mut mount) = Mounted::new("") else { return };
    fs::create_dir(mount.at("dir")).unwrap();
    fs::write(mount.at("file"), "").unwrap();
    symlink("file", mount.at("link")).unwrap();
    for (index, name) in ["dir", "file", "link"].into_iter().enumerate() {
        for (access, modification) in [
            ((0, 0), (0, 1)),
            ((1_700_000_000, 999_999_999), (1_700_000_000, 123_456_789)),
            // Before 1970, and after 2038 and 2106.
            ((-1, 500_000_000), (-2_000_000_000, 1)),
            ((2_200_000_000, 7), (4_400_000_000 + index as i64, 8)),
        ] {
            set(&mount.at(name), access, modification);
            assert_eq!(times(&mount.at(name))[..2], [access, modification], "{name}");
        }
    }
    let before = ["dir", "file", "link"].map(|name| times(&mount.at(name)));
    mount.settle();
    let after = ["dir", "file", "link"].map(|name| times(&mount.at(name)));
    // Reading the directory and the link may have updated their times of access.
    for (before, after) in before.into_iter().zip(after) {
        assert_eq!(before[1..], after[1..]);
    }
}

#[test]
fn now_and_omit_are_understood() {
    let Some(mount) = Mounted::new("") else { return };
    let path = mount.at("file");
    fs::write(&path, "").unwrap();
    set(&path, (1000, 1), (2000, 2));
    set(&path, (0, UTIME_OMIT), (3000, 3));
    assert_eq!(times(&path)[..2], [(1000, 1), (3000, 3)]);
    set(&path, (4000, 4), (0, UTIME_OMIT));
    assert_eq!(times(&path)[..2], [(4000, 4), (3000, 3)]);
    set(&path, (0, UTIME_NOW), (0, UTIME_OMIT));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
    assert!((now - 10..=now).contains(&times(&path)[0].0));
    assert_eq!(times(&path)[1], (3000, 3));
}

#[test]
fn every_change_sets_its_times() {
    let Some(mount) = Mounted::new("") else { return };
    let (dir, file) = (mount.at("dir"), mount.at("dir/file"));
    fs::create_dir(&dir).unwrap();
    fs::write(&file, "content").unwrap();
    let handle = File::options().read(true).write(true).open(&file).unwrap();

    assert_eq!(changed(&file, || handle.write_all_at(b"x", 0).unwrap()), "mc");
    assert_eq!(changed(&file, || handle.set_len(3).unwrap()), "mc");
    assert_eq!(changed(&file, || handle.set_len(3000).unwrap()), "mc");
    assert_eq!(changed(&file, || rustix::fs::chmod(&file, rustix::fs::Mode::RWXU).unwrap()), "c");
    assert_eq!(changed(&file, || std::os::unix::fs::chown(&file, Some(3), None).unwrap()), "c");
    let flags = rustix::fs::XattrFlags::empty();
    assert_eq!(changed(&file, || rustix::fs::setxattr(&file, "user.a", b"", flags).unwrap()), "c");
    assert_eq!(changed(&file, || rustix::fs::removexattr(&file, "user.a").unwrap()), "c");
    assert_eq!(changed(&file, || fs::hard_link(&file, dir.join("second")).unwrap()), "c");
    assert_eq!(changed(&file, || fs::remove_file(dir.join("second")).unwrap()), "c");
}

#[test]
fn every_change_of_names_sets_the_times_of_directories() {
    let Some(mount) = Mounted::new("") else { return };
    let (dir, other) = (mount.at("dir"), mount.at("other"));
    fs::create_dir(&dir).unwrap();
    fs::create_dir(&other).unwrap();
    let file = dir.join("file");
    assert_eq!(changed(&dir, || fs::write(&file, "").unwrap()), "mc");
    assert_eq!(changed(&dir, || fs::write(&file, "more").unwrap()), "");
    assert_eq!(changed(&dir, || fs::hard_link(&file, dir.join("second")).unwrap()), "mc");
    assert_eq!(changed(&dir, || symlink("x", dir.join("link")).unwrap()), "mc");
    assert_eq!(changed(&dir, || fs::create_dir(dir.join("sub")).unwrap()), "mc");
    assert_eq!(changed(&dir, || fs::rename(&file, dir.join("renamed")).unwrap()), "mc");
    assert_eq!(changed(&other, || fs::rename(dir.join("sub"), other.join("sub")).unwrap()), "mc");
    assert_eq!(changed(&dir, || fs::rename(other.join("sub"), dir.join("sub")).unwrap()), "mc");
    assert_eq!(changed(&dir, || fs::remove_dir(dir.join("sub")).unwrap()), "mc");
    assert_eq!(changed(&dir, || fs::remove_file(dir.join("link")).unwrap()), "mc");
}

/// relatime: a read updates the time of access if that is not later than the last change, or a day old.
#[test]
fn an_access_is_noted_where_it_says_something_new() {
    let Some(mut mount) = Mounted::new("relatime") else { return };
    let path = mount.at("file");
    fs::write(&path, "content").unwrap();
    let read = || assert_eq!(fs::read(&path).unwrap(), b"content");
    let now = times(&path)[1].0;
    set(&path, (now - 7200, 0), (now - 3600, 0));
    assert_eq!(changed(&path, read), "a");
    assert!(times(&path)[0].0 >= now);
    assert_eq!(changed(&path, read), "");
    set(&path, (now - 200_000, 0), (now - 300_000, 0));
    assert_eq!(changed(&path, read), "a");
    let noted = times(&path);
    mount.remount();
    assert_eq!(times(&path), noted);

    fs::create_dir(mount.at("dir")).unwrap();
    fs::write(mount.at("dir/file"), "").unwrap();
    set(&mount.at("dir"), (now - 7200, 0), (now - 3600, 0));
    let list = || assert_eq!(fs::read_dir(mount.at("dir")).unwrap().count(), 1);
    assert_eq!(changed(&mount.at("dir"), list), "a");
    // With O_NOATIME it is not updated.
    set(&path, (now - 7200, 0), (now - 3600, 0));
    let quiet = || {
        let mut bytes = [0; 7];
        crate::fixture::open(&path, rustix::fs::OFlags::NOATIME)
            .read_exact_at(&mut bytes, 0)
            .unwrap();
    };
    assert_eq!(changed(&path, quiet), "");
}

/// Options of a remount apply, too.
#[test]
fn a_remount_leaves_times_of_access_alone() {
    let Some(mut mount) = Mounted::new("relatime") else { return };
    let path = mount.at("file");
    fs::write(&path, "content").unwrap();
    let now = times(&path)[1].0;
    let remount = |options: &str| {
        let options = format!("remount,{options}");
        run("mount", ["-i".as_ref(), "-o".as_ref(), options.as_ref(), mount.point().as_os_str()]);
        std::thread::sleep(Duration::from_millis(300));
    };
    let read = || assert_eq!(fs::read(&path).unwrap(), b"content");
    for options in ["noatime", "ro,relatime"] {
        set(&path, (now - 7200, 0), (now - 3600, 0));
        remount(options);
        assert_eq!(changed(&path, read), "", "{options}");
        std::thread::sleep(Duration::from_millis(1200));
        assert_eq!(times(&path)[0].0, now - 7200, "{options}");
        remount("rw,strictatime");
    }
    assert_eq!(changed(&path, read), "a");
    mount.settle();
}

#[test]
fn a_write_that_is_under_way_at_the_unmount_has_its_time() {
    let Some(mut mount) = Mounted::new("") else { return };
    let mut file = File::create(mount.at("file")).unwrap();
    file.write_all(b"one").unwrap();
    pass();
    file.write_all(b"two").unwrap();
    let written = times(&mount.at("file"));
    drop(file);
    mount.settle();
    assert_eq!(times(&mount.at("file"))[1..], written[1..]);
}
