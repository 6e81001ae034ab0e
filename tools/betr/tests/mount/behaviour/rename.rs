//! rename(2) and the flags of renameat2(2).

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::refused;
use crate::fixture::Mounted;

fn with(flags: RenameFlags, from: &Path, to: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, from, CWD, to, flags)?)
}

#[test]
fn a_name_is_replaced_in_one_step() {
    let Some(mut mount) = Mounted::new("") else { return };
    let at = |name: &str| mount.at(name);
    fs::create_dir_all(at("dir/sub")).unwrap();
    fs::create_dir_all(at("full/sub")).unwrap();
    fs::create_dir(at("empty")).unwrap();
    fs::write(at("file"), "file").unwrap();
    symlink("file", at("link")).unwrap();

    refused(Errno::NOENT, fs::rename(at("none"), at("file")));
    refused(Errno::ISDIR, fs::rename(at("file"), at("empty")));
    refused(Errno::NOTDIR, fs::rename(at("empty"), at("file")));
    refused(Errno::NOTEMPTY, fs::rename(at("dir"), at("full")));
    refused(Errno::INVAL, fs::rename(at("dir"), at("dir/sub/below")));
    refused(Errno::NOTEMPTY, fs::rename(at("full/sub"), at("full")));
    refused(Errno::XDEV, fs::rename(at("file"), mount.beside("file")));

    fs::rename(at("full"), at("empty")).unwrap();
    assert!(at("empty/sub").is_dir() && !at("full").exists());
    fs::rename(at("file"), at("link")).unwrap();
    assert!(!fs::symlink_metadata(at("link")).unwrap().is_symlink());
    fs::rename(at("link"), at("dir/sub/file")).unwrap();
    fs::rename(at("dir"), at("empty/sub/dir")).unwrap();
    assert_eq!(fs::read_to_string(at("empty/sub/dir/sub/file")).unwrap(), "file");
    fs::rename(at("empty"), at("empty")).unwrap();
    mount.settle();
}

#[test]
fn a_large_tree_moves_at_once() {
    let Some(mut mount) = Mounted::new("") else { return };
    for dir in 0..20 {
        fs::create_dir_all(mount.at(&format!("a/{dir}"))).unwrap();
        for file in 0..50 {
            fs::write(mount.at(&format!("a/{dir}/{file}")), vec![dir; 3000]).unwrap();
        }
    }
    let open = fs::File::open(mount.at("a/3/4")).unwrap();
    fs::create_dir_all(mount.at("x/y")).unwrap();
    for _ in 0..3 {
        fs::rename(mount.at("a"), mount.at("x/y/b")).unwrap();
        assert_eq!(fs::read(mount.at("x/y/b/3/4")).unwrap(), [3; 3000]);
        assert!(!mount.at("a").exists());
        fs::rename(mount.at("x/y/b"), mount.at("a")).unwrap();
    }
    assert_eq!(open.metadata().unwrap().ino(), fs::metadata(mount.at("a/3/4")).unwrap().ino());
    drop(open);
    mount.settle();
}

#[test]
fn nothing_is_replaced_that_must_not_be() {
    let Some(mut mount) = Mounted::new("") else { return };
    let flags = RenameFlags::NOREPLACE;
    fs::write(mount.at("one"), "1").unwrap();
    fs::write(mount.at("two"), "2").unwrap();
    fs::create_dir(mount.at("dir")).unwrap();
    symlink("nowhere", mount.at("link")).unwrap();
    for taken in ["one", "two", "dir", "link"] {
        refused(Errno::EXIST, with(flags, &mount.at("one"), &mount.at(taken)));
    }
    refused(Errno::EXIST, with(flags, &mount.at("dir"), &mount.at("two")));
    refused(Errno::NOENT, with(flags, &mount.at("none"), &mount.at("three")));
    with(flags, &mount.at("one"), &mount.at("dir/one")).unwrap();
    with(flags, &mount.at("dir"), &mount.at("dir2")).unwrap();
    assert_eq!(fs::read_to_string(mount.at("dir2/one")).unwrap(), "1");
    assert_eq!(fs::read_to_string(mount.at("two")).unwrap(), "2");
    mount.settle();
}

#[test]
fn two_names_are_exchanged() {
    let Some(mut mount) = Mounted::new("") else { return };
    let flags = RenameFlags::EXCHANGE;
    let exchange = |one: &str, two: &str| with(flags, &mount.at(one), &mount.at(two));
    fs::create_dir_all(mount.at("dir/sub")).unwrap();
    fs::create_dir(mount.at("other")).unwrap();
    fs::write(mount.at("file"), "file").unwrap();
    fs::write(mount.at("dir/inner"), "inner").unwrap();
    let numbers = |name: &str| {
        let meta = fs::symlink_metadata(mount.at(name)).unwrap();
        (meta.ino(), meta.nlink())
    };
    let (file, inner) = (numbers("file"), numbers("dir/inner"));
    exchange("file", "dir/inner").unwrap();
    assert_eq!((numbers("file"), numbers("dir/inner")), (inner, file));
    assert_eq!(fs::read_to_string(mount.at("dir/inner")).unwrap(), "file");
    // A directory and a file in different directories: the counts of both parents change.
    exchange("dir/sub", "other").unwrap();
    exchange("file", "dir/sub").unwrap();
    assert!(mount.at("file").is_dir() && mount.at("dir/sub").is_file());
    assert_eq!((numbers("dir").1, numbers("file").1), (2, 2));
    exchange("dir", "dir").unwrap();
    refused(Errno::NOENT, exchange("dir", "none"));
    refused(Errno::INVAL, exchange("dir", "dir/sub"));
    refused(Errno::INVAL, exchange("dir/sub", "dir"));
    let both = RenameFlags::EXCHANGE | RenameFlags::NOREPLACE;
    refused(Errno::INVAL, with(both, &mount.at("dir"), &mount.at("file")));
    mount.settle();
    assert_eq!(fs::read_to_string(mount.at("dir/sub")).unwrap(), "inner");
}
