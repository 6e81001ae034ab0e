//! Hard links and link counts.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use rustix::fs::{AtFlags, CWD, linkat};
use rustix::io::Errno;

use super::refused;
use crate::fixture::Mounted;

#[test]
fn names_of_a_file_are_counted() {
    let Some(mut mount) = Mounted::new("") else { return };
    let links = |name: &str| fs::symlink_metadata(mount.at(name)).unwrap().nlink();
    fs::create_dir_all(mount.at("a/b")).unwrap();
    fs::write(mount.at("file"), "one").unwrap();
    for number in 0..300 {
        fs::hard_link(mount.at("file"), mount.at(&format!("a/b/{number}"))).unwrap();
        assert_eq!(links("file"), number + 2);
    }
    let ino = fs::metadata(mount.at("file")).unwrap().ino();
    assert_eq!(fs::metadata(mount.at("a/b/299")).unwrap().ino(), ino);
    // Each name refers to the file, even after the first name is removed.
    fs::remove_file(mount.at("file")).unwrap();
    fs::write(mount.at("a/b/7"), "two").unwrap();
    assert_eq!(fs::read_to_string(mount.at("a/b/200")).unwrap(), "two");
    for number in 0..250 {
        fs::remove_file(mount.at(&format!("a/b/{number}"))).unwrap();
    }
    assert_eq!(links("a/b/299"), 50);
    // Renaming one link over another link of the same file does nothing (POSIX).
    fs::rename(mount.at("a/b/298"), mount.at("a/b/299")).unwrap();
    assert_eq!(links("a/b/298"), 50);
    fs::write(mount.at("other"), "other").unwrap();
    fs::rename(mount.at("other"), mount.at("a/b/298")).unwrap();
    assert_eq!(links("a/b/299"), 49);
    mount.settle();
    assert_eq!(fs::metadata(mount.at("a/b/299")).unwrap().ino(), ino);
    assert_eq!(fs::read_to_string(mount.at("a/b/260")).unwrap(), "two");
}

#[test]
fn directories_count_their_subdirectories() {
    let Some(mut mount) = Mounted::new("") else { return };
    let links = |name: &str| fs::metadata(mount.at(name)).unwrap().nlink();
    fs::create_dir(mount.at("dir")).unwrap();
    fs::create_dir(mount.at("other")).unwrap();
    assert_eq!(links("dir"), 2);
    for name in ["x", "y", "z"] {
        fs::create_dir(mount.at("dir").join(name)).unwrap();
    }
    fs::write(mount.at("dir/file"), "").unwrap();
    assert_eq!(links("dir"), 5);
    fs::rename(mount.at("dir/x"), mount.at("other/x")).unwrap();
    fs::rename(mount.at("dir/y"), mount.at("dir/z")).unwrap();
    assert_eq!((links("dir"), links("other")), (3, 3));
    fs::remove_dir(mount.at("dir/z")).unwrap();
    assert_eq!(links("dir"), 2);
    mount.settle();
}

#[test]
fn what_may_have_several_names() {
    let Some(mut mount) = Mounted::new("") else { return };
    fs::create_dir(mount.at("dir")).unwrap();
    fs::write(mount.at("file"), "").unwrap();
    symlink("file", mount.at("link")).unwrap();
    refused(Errno::PERM, fs::hard_link(mount.at("dir"), mount.at("dir2")));
    refused(Errno::EXIST, fs::hard_link(mount.at("file"), mount.at("link")));
    refused(Errno::NOENT, fs::hard_link(mount.at("none"), mount.at("none2")));
    refused(Errno::XDEV, fs::hard_link(mount.image(), mount.at("image")));
    // A link to the symbolic link itself, and to its target.
    linkat(CWD, mount.at("link"), CWD, mount.at("link2"), AtFlags::empty()).unwrap();
    linkat(CWD, mount.at("link"), CWD, mount.at("file2"), AtFlags::SYMLINK_FOLLOW).unwrap();
    assert_eq!(fs::symlink_metadata(mount.at("link")).unwrap().nlink(), 2);
    assert_eq!(fs::symlink_metadata(mount.at("file")).unwrap().nlink(), 2);
    assert!(fs::symlink_metadata(mount.at("link2")).unwrap().is_symlink());
    // A file that has lost its last name cannot be linked again.
    let file = fs::File::open(mount.at("file")).unwrap();
    fs::remove_file(mount.at("file")).unwrap();
    fs::remove_file(mount.at("file2")).unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let again = linkat(CWD, path, CWD, mount.at("again"), AtFlags::SYMLINK_FOLLOW);
    refused(Errno::NOENT, again);
    drop(file);
    mount.settle();
}
