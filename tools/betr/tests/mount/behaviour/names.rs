//! Names and paths: length limits, and arbitrary bytes.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirEntryExt, MetadataExt, symlink};

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;

use super::refused;
use crate::fixture::Mounted;

#[test]
fn a_name_has_at_most_255_bytes() {
    let Some(mut mount) = Mounted::new("") else { return };
    let (longest, longer) = ("n".repeat(255), "n".repeat(256));
    fs::create_dir(mount.at("dir")).unwrap();
    fs::write(mount.at("file"), "1").unwrap();
    let inside = |name: &str, below: &str| mount.at(&format!("dir/{name}{below}"));

    fs::create_dir(inside(&longest, "")).unwrap();
    fs::write(inside(&longest, "/file"), "2").unwrap();
    assert_eq!(fs::read_to_string(inside(&longest, "/file")).unwrap(), "2");
    // As the last component, and as one in the middle.
    for path in [inside(&longer, ""), inside(&longer, "/file")] {
        refused(Errno::NAMETOOLONG, fs::metadata(&path));
        refused(Errno::NAMETOOLONG, fs::read(&path));
        refused(Errno::NAMETOOLONG, fs::write(&path, ""));
        refused(Errno::NAMETOOLONG, fs::create_dir(&path));
        refused(Errno::NAMETOOLONG, symlink("target", &path));
        refused(Errno::NAMETOOLONG, fs::hard_link(mount.at("file"), &path));
        refused(Errno::NAMETOOLONG, fs::rename(mount.at("file"), &path));
        refused(Errno::NAMETOOLONG, fs::rename(&path, mount.at("other")));
        refused(Errno::NAMETOOLONG, fs::remove_file(&path));
        refused(Errno::NAMETOOLONG, fs::remove_dir(&path));
    }
    mount.settle();
}

#[test]
fn a_name_is_any_bytes() {
    let Some(mut mount) = Mounted::new("") else { return };
    let mut names: BTreeSet<Vec<u8>> = (1..=255).map(|byte| vec![b'x', byte, b'y']).collect();
    names.remove(&b"x/y"[..]);
    names.extend(
        [&b"..."[..], b" ", b"-rf", b"\\x0a", b"\xff\xfe", b"\xc3", b"a\nb", b"*"].map(Vec::from),
    );
    for name in &names {
        fs::write(mount.point().join(OsStr::from_bytes(name)), name).unwrap();
    }
    mount.settle();
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(mount.point()).unwrap().map(Result::unwrap) {
        if entry.file_name() == "lost+found" {
            continue;
        }
        let name = entry.file_name().into_vec();
        assert_eq!(fs::read(entry.path()).unwrap(), name);
        assert_eq!(fs::metadata(entry.path()).unwrap().ino(), entry.ino());
        assert!(found.insert(name));
    }
    assert_eq!(found, names);
    for name in ["", ".", "..", "no/such"] {
        assert!(fs::write(mount.at(name), "").is_err());
    }
}

#[test]
fn a_tree_may_be_deeper_than_a_path_is_long() {
    const LEVELS: usize = 60;
    let Some(mut mount) = Mounted::new("") else { return };
    let name = |level: usize| format!("{level:03}-{}", "d".repeat(200));
    let flags = OFlags::DIRECTORY | OFlags::RDONLY;
    let descend = |make: bool| {
        let mut dir = rustix::fs::open(mount.point(), flags, Mode::empty()).unwrap();
        for level in 0..LEVELS {
            if make {
                mkdirat(&dir, name(level), Mode::RWXU).unwrap();
            }
            dir = openat(&dir, name(level), flags, Mode::empty()).unwrap();
        }
        dir
    };
    let bottom = descend(true);
    let file = openat(&bottom, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
    rustix::io::write(&file, b"down here").unwrap();
    drop((file, bottom));

    let path = (0..LEVELS).map(name).collect::<Vec<_>>().join("/");
    refused(Errno::NAMETOOLONG, fs::metadata(mount.at(&path)));
    mount.unmount();
    mount.fsck();
    mount.mount("");
    let descend = |levels: usize| {
        let mut dir = rustix::fs::open(mount.point(), flags, Mode::empty()).unwrap();
        for level in 0..levels {
            dir = openat(&dir, name(level), flags, Mode::empty()).unwrap();
        }
        dir
    };
    let bottom = descend(LEVELS);
    assert_eq!(statat(&bottom, "file", AtFlags::empty()).unwrap().st_size, 9);
    // A file in the depth gets a link halfway up; then the whole tree is moved with its top.
    let middle = descend(LEVELS / 2);
    rustix::fs::linkat(&bottom, "file", &middle, "near", AtFlags::empty()).unwrap();
    fs::create_dir(mount.at("other")).unwrap();
    fs::rename(mount.at(&name(0)), mount.at("other/top")).unwrap();
    assert_eq!(statat(&bottom, "file", AtFlags::empty()).unwrap().st_nlink, 2);
    unlinkat(&middle, "near", AtFlags::empty()).unwrap();
    drop((bottom, middle));
    fs::remove_dir_all(mount.at("other")).unwrap();
    mount.settle();
}

#[test]
fn symbolic_links_are_followed_and_read() {
    let Some(mut mount) = Mounted::new("") else { return };
    fs::create_dir(mount.at("dir")).unwrap();
    fs::write(mount.at("dir/file"), "found").unwrap();
    let longest = "t".repeat(4095);
    for (name, target) in [
        ("plain", "dir/file"),
        ("through", "plain"),
        ("up", "dir/../dir/file"),
        ("dangling", "nowhere"),
        ("loop", "loop"),
        ("long", &longest),
        ("bytes", "a\nb \\ \u{202e}"),
    ] {
        symlink(target, mount.at(name)).unwrap();
        assert_eq!(fs::read_link(mount.at(name)).unwrap().as_os_str(), target);
        let meta = fs::symlink_metadata(mount.at(name)).unwrap();
        assert_eq!((meta.size(), meta.mode()), (target.len() as u64, 0o120_777));
    }
    for name in ["plain", "through", "up"] {
        assert_eq!(fs::read_to_string(mount.at(name)).unwrap(), "found");
    }
    refused(Errno::NOENT, fs::read(mount.at("dangling")));
    refused(Errno::LOOP, fs::read(mount.at("loop")));
    refused(Errno::NAMETOOLONG, fs::read(mount.at("long")));
    refused(Errno::NOENT, symlink("", mount.at("empty")));
    refused(Errno::INVAL, fs::read_link(mount.at("dir")));
    // Created through the dangling link.
    fs::write(mount.at("dangling"), "now").unwrap();
    assert_eq!(fs::read_to_string(mount.at("nowhere")).unwrap(), "now");
    mount.settle();
}
