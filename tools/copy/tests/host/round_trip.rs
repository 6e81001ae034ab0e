//! A tree with every kind of object is the same after it has been read and written again.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use betr_copy::host::{Kind, Meta, Source, Target};
use rustix::fs::FileType;

use crate::common::{acl, copy, data, make_deep, mknod, set_times, set_xattr, walk};

const MIB: u64 = 1 << 20;

/// `security.capability` (version 2) with the right to open raw sockets.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn build(root: &Path) {
    fs::create_dir(root).unwrap();
    fs::create_dir_all(root.join("dir/sub/empty")).unwrap();
    fs::write(root.join("dir/file"), b"some data").unwrap();
    fs::write(root.join("empty"), b"").unwrap();
    fs::write(root.join("large"), vec![7; 300_000]).unwrap();
    for name in [&b"new\nline"[..], b"\xff\xfe bad", &[b'n'; 255], b" ", b"back\\slash"] {
        fs::write(root.join(OsStr::from_bytes(name)), name).unwrap();
    }
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(b"middle", 5 * MIB).unwrap();
    sparse.set_len(16 * MIB).unwrap();
    File::create(root.join("hole")).unwrap().set_len(MIB).unwrap();
    fs::hard_link(root.join("dir/file"), root.join("dir/sub/again")).unwrap();
    fs::hard_link(root.join("dir/file"), root.join("a third name")).unwrap();
    symlink("nowhere/at all", root.join("dangling")).unwrap();
    symlink("/etc", root.join("dir/away")).unwrap();
    symlink(OsStr::from_bytes(b"\xff\n"), root.join("odd link")).unwrap();
    fs::hard_link(root.join("dangling"), root.join("dangling too")).unwrap();
    mknod(&root.join("fifo"), FileType::Fifo, 0, 0);
    mknod(&root.join("socket"), FileType::Socket, 0, 0);
    mknod(&root.join("char"), FileType::CharacterDevice, 4095, 1_048_575);
    mknod(&root.join("block"), FileType::BlockDevice, 7, 300);
    attributes(root);
    modes_and_times(root);
}

fn attributes(root: &Path) {
    set_xattr(&root.join("large"), "user.foo", b"bar");
    set_xattr(&root.join("large"), "user.empty", b"");
    set_xattr(&root.join("large"), "user.large", &[0xa5; 3000]);
    set_xattr(&root.join("dir"), "user.dir", b"\0\xff");
    set_xattr(root, "user.root", b"r");
    if rustix::process::geteuid().is_root() {
        set_xattr(&root.join("dangling"), "trusted.link", b"of the link itself");
        set_xattr(&root.join("fifo"), "trusted.fifo", b"f");
        set_xattr(&root.join("empty"), "security.capability", &CAPABILITY);
        let uid = 12_345;
        for path in ["empty", "dir/sub", "dangling", "fifo", "sparse"] {
            std::os::unix::fs::lchown(root.join(path), Some(uid), Some(uid + 1)).unwrap();
        }
        // Changing the owner has removed it.
        set_xattr(&root.join("empty"), "security.capability", &CAPABILITY);
    }
    let acl = acl();
    set_xattr(&root.join("hole"), "system.posix_acl_access", &acl);
    set_xattr(&root.join("dir"), "system.posix_acl_default", &acl);
}

fn modes_and_times(root: &Path) {
    let chmod = |name: &str, mode| {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    chmod("sparse", 0o6755);
    chmod("large", 0o400);
    chmod("dir", 0o3771);
    chmod("dir/sub/empty", 0o500);
    set_times(&root.join("large"), (1, 2), (3, 4));
    set_times(&root.join("empty"), (-2, 999_999_999), (-1_000_000_000, 1));
    set_times(&root.join("dangling"), (1_700_000_000, 5), (1_600_000_000, 123_456_789));
    set_times(&root.join("dir/sub"), (1_700_000_000, 5), (1_600_000_000, 987_654_321));
    set_times(root, (1_500_000_000, 1), (1_400_000_000, 999_999_999));
}

/// The metadata that a copy must share with its original.
fn comparable(meta: &Meta) -> Meta {
    let mut meta = meta.clone();
    (meta.dev, meta.ino) = (0, 0);
    meta.ctime = Default::default();
    if !matches!(meta.kind, Kind::File | Kind::Symlink(_)) {
        meta.size = 0;
    }
    if let Kind::Symlink(_) = meta.kind {
        // Reading the link has changed it on both sides.
        meta.atime = Default::default();
    }
    meta
}

#[test]
fn a_tree_survives() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    build(&from);
    let source = Source::open(&from).unwrap();
    let before = walk(&source);
    let mut target = Target::create(&to, true).unwrap();
    let warnings = copy(&source, &mut target);
    assert!(warnings.is_empty(), "{warnings:?}");

    let copied = Source::open(&to).unwrap();
    let after = walk(&copied);
    assert_eq!(before.len(), after.len());
    for ((path, was), (copied_path, is)) in before.iter().zip(&after) {
        assert_eq!(path, copied_path);
        assert_eq!(comparable(was), comparable(is), "{}", betr_core::text::printable(path));
        if was.kind == Kind::File {
            assert_eq!(data(&source, path, was).1, data(&copied, path, is).1);
        }
    }
    for tree in [&source, &copied] {
        let mut counts: Vec<u64> = tree.links().unwrap().iter().map(|(_, names)| names).collect();
        counts.sort_unstable();
        assert_eq!(counts, [2, 3]);
    }
}

#[test]
fn holes_stay_holes() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    build(&from);
    let source = Source::open(&from).unwrap();
    copy(&source, &mut Target::create(&to, true).unwrap());
    let copied = Source::open(&to).unwrap();
    for (name, tree) in [("sparse", &source), ("hole", &source), ("sparse", &copied)] {
        let entries = tree.list(b"").unwrap();
        let meta = &entries.iter().find(|e| e.name == name.as_bytes()).unwrap().meta;
        let pieces = data(tree, name.as_bytes(), meta).0;
        let read: usize = pieces.iter().map(|(_, piece)| piece.len()).sum();
        assert!(read as u64 <= MIB, "{name}: {read} bytes of data");
        assert!(pieces.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}

#[test]
fn paths_longer_than_the_kernel_takes() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir(&from).unwrap();
    let name = "d".repeat(200);
    let deepest = make_deep(&from, &name, 60);
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CREATE;
    let file = rustix::fs::openat(&deepest, "file", flags, 0o600.into()).unwrap();
    rustix::io::write(&file, b"deep").unwrap();
    drop((file, deepest));

    let source = Source::open(&from).unwrap();
    copy(&source, &mut Target::create(&to, true).unwrap());
    let copied = Source::open(&to).unwrap();
    let all = walk(&copied);
    let (path, meta) = all.last().unwrap();
    assert!(path.len() > 12_000 && path.ends_with(b"/file"));
    assert_eq!(data(&copied, path, meta).1, b"deep");
    let times = |all: &[(Vec<u8>, Meta)]| all.iter().map(|(_, m)| m.mtime).collect::<Vec<_>>();
    assert_eq!(times(&walk(&source)), times(&all));
}

#[test]
fn single_objects_survive() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    build(&from);
    for name in ["sparse", "large", "empty", "dangling", "fifo", "char", "hole"] {
        let path = from.join(name);
        if path.symlink_metadata().is_err() {
            continue;
        }
        let to = dir.path().join(name);
        let source = Source::open(&path).unwrap();
        let warnings = copy(&source, &mut Target::create(&to, false).unwrap());
        assert!(warnings.is_empty(), "{warnings:?}");
        let (was, is) = (source.root().unwrap(), Source::open(&to).unwrap().root().unwrap());
        let (was, mut is) = (comparable(&was), comparable(&is));
        is.nlink = was.nlink;
        assert_eq!(was, is, "{name}");
    }
}
