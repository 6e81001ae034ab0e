//! Trees of the host: reading them for a comparison, and planting one with every kind of object.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, lgetxattr, llistxattr,
    lsetxattr, makedev, mknodat, utimensat,
};
use sha2::{Digest, Sha256};

use crate::support::{is_root, pattern};

/// The properties of an object that a copy must keep.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    kind: fs::FileType,
    mode: u32,
    owner: (u32, u32),
    size: u64,
    device: u64,
    modified: (i64, i64),
    /// The hash of a file's contents, or the target of a link.
    contents: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first name of the same object.
    first: Vec<u8>,
}

/// All objects in a tree, by path; the root has the empty path.
pub(crate) fn read(root: &Path) -> BTreeMap<Vec<u8>, Entry> {
    let mut paths = vec![root.to_owned()];
    let mut at = 0;
    while at < paths.len() {
        if fs::symlink_metadata(&paths[at]).unwrap().is_dir() {
            paths.extend(fs::read_dir(&paths[at]).unwrap().map(|entry| entry.unwrap().path()));
        }
        at += 1;
    }
    let relative = |path: &Path| path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
    paths.sort_by_key(|path| relative(path));
    let mut first = HashMap::new();
    let mut entries = BTreeMap::new();
    for path in &paths {
        let meta = fs::symlink_metadata(path).unwrap();
        let kind = meta.file_type();
        let first = first.entry((meta.dev(), meta.ino())).or_insert_with(|| relative(path));
        let contents = match (kind.is_file(), kind.is_symlink()) {
            (true, _) => Sha256::digest(fs::read(path).unwrap()).to_vec(),
            (_, true) => fs::read_link(path).unwrap().into_os_string().into_vec(),
            _ => Vec::new(),
        };
        let entry = Entry {
            kind,
            mode: if kind.is_symlink() { 0 } else { meta.mode() & 0o7777 },
            owner: if is_root() { (meta.uid(), meta.gid()) } else { (0, 0) },
            size: if kind.is_dir() { 0 } else { meta.size() },
            device: meta.rdev(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            contents,
            xattrs: xattrs(path),
            first: first.clone(),
        };
        entries.insert(relative(path), entry);
    }
    entries
}

/// Asserts that two trees are equal.
pub(crate) fn assert_same(left: &Path, right: &Path) {
    let (left, right) = (read(left), read(right));
    for (path, entry) in &left {
        let name = String::from_utf8_lossy(path);
        let other = right.get(path);
        assert_eq!(Some(entry), other, "{name:?} differs");
    }
    assert_eq!(left.keys().collect::<Vec<_>>(), right.keys().collect::<Vec<_>>());
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 64 << 10];
    let len = llistxattr(path, &mut names[..]).unwrap_or(0);
    let names = names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; 64 << 10];
        let len = lgetxattr(path, OsStr::from_bytes(name), &mut value[..]).unwrap();
        value.truncate(len);
        value
    };
    names.map(|name| (name.to_vec(), value(name))).collect()
}

/// Sets an extended attribute; `false` if that is impossible.
pub(crate) fn set_xattr(path: &Path, name: &str, value: &[u8]) -> bool {
    lsetxattr(path, name, value, XattrFlags::empty()).is_ok()
}

/// Sets both times of an object; of a symbolic link its own.
pub(crate) fn set_times(path: &Path, secs: i64, nanos: i64) {
    let time = Timespec { tv_sec: secs, tv_nsec: nanos };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Plants a tree with every kind of object that the host and the user allow.
pub(crate) fn plant(root: &Path) {
    let at = |name: &str| root.join(name);
    for dir in ["empty", "sub/deeper", "sticky", "setgid", "private", "kinds", "names"] {
        fs::create_dir_all(at(dir)).unwrap();
    }
    for len in [0, 1, 4095, 4096, 4097, 3 << 20] {
        fs::write(at(&format!("file-{len}")), pattern(len)).unwrap();
    }
    sparse(root);
    links(root);
    odd_names(&at("names"));
    special(&at("kinds"));
    let deep: PathBuf = (0..60).map(|level| format!("level-{level}")).collect();
    fs::create_dir_all(root.join(&deep)).unwrap();
    fs::write(root.join(deep).join("bottom"), "found").unwrap();
    owners_and_modes(root);
    attributes(root);
    times(root);
}

/// Holes in the middle and at the ends; written zeros; a file that is one hole.
fn sparse(root: &Path) {
    use std::os::unix::fs::FileExt;
    let file = fs::File::create(root.join("sparse")).unwrap();
    file.write_all_at(b"begin", 0).unwrap();
    file.write_all_at(b"middle", (1 << 20) + 5000).unwrap();
    file.set_len((16 << 20) + 123).unwrap();
    fs::File::create(root.join("hole")).unwrap().set_len(128 << 20).unwrap();
    fs::write(root.join("zeros"), vec![0; 100_000]).unwrap();
}

fn links(root: &Path) {
    fs::write(root.join("one"), "three names").unwrap();
    fs::hard_link(root.join("one"), root.join("sub/two")).unwrap();
    fs::hard_link(root.join("one"), root.join("sub/deeper/three")).unwrap();
    // The target of a symbolic link is any bytes, and need not exist.
    for (name, target) in [("link", "one"), ("dangling", "no/such/thing"), ("dir-link", "sub")] {
        symlink(target, root.join(name)).unwrap();
    }
    symlink("x".repeat(4000), root.join("long-link")).unwrap();
    symlink(OsStr::from_bytes(b"\xff\n"), root.join("odd-link")).unwrap();
    fs::hard_link(root.join("link"), root.join("sub/same-link")).unwrap();
}

fn odd_names(dir: &Path) {
    let long = "n".repeat(255);
    let names: [&[u8]; 10] = [
        b"new\nline",
        b"not utf-8 \xff\xfe",
        b"\x1b[31mred",
        b" spaces ",
        b"-rf",
        b"...",
        b"back\\slash",
        "\u{202e}reversed \u{1f333}".as_bytes(),
        b"Case",
        long.as_bytes(),
    ];
    for name in names {
        fs::write(dir.join(OsStr::from_bytes(name)), name).unwrap();
    }
    fs::write(dir.join("case"), "another").unwrap();
}

fn special(dir: &Path) {
    let make = |name: &str, kind, device| {
        mknodat(CWD, dir.join(name), kind, Mode::from_raw_mode(0o640), device)
    };
    make("fifo", FileType::Fifo, 0).unwrap();
    make("socket", FileType::Socket, 0).unwrap();
    let devices = make("char", FileType::CharacterDevice, makedev(1, 3))
        .and_then(|()| make("block", FileType::BlockDevice, makedev(259, 70_000)));
    match devices {
        Ok(()) => {
            assert!(fs::metadata(dir.join("block")).unwrap().file_type().is_block_device());
        }
        // Without root, or in a container: the rest of the tree is still useful.
        Err(error) => eprintln!("no devices in the tree: {error}"),
    }
}

fn owners_and_modes(root: &Path) {
    if is_root() {
        for (name, uid, gid) in [("file-1", 1234, 5678), ("sub", 70_000, 80_000), ("link", 1, 2)] {
            std::os::unix::fs::lchown(root.join(name), Some(uid), Some(gid)).unwrap();
        }
    }
    let modes = [
        ("file-0", 0o000),
        ("file-1", 0o6755),
        ("file-4095", 0o444),
        ("file-4096", 0o600),
        ("sticky", 0o1777),
        ("setgid", 0o2755),
        ("private", 0o700),
        ("sub", 0o711),
    ];
    for (name, mode) in modes {
        // Users other than root could not read it back.
        let mode = if mode == 0 && !is_root() { 0o400 } else { mode };
        set_mode(&root.join(name), mode);
    }
}

fn attributes(root: &Path) {
    for name in ["file-4097", "sub", "empty", "one"] {
        set_xattr(&root.join(name), "user.comment", b"a comment");
        set_xattr(&root.join(name), "user.empty", b"");
    }
    set_xattr(&root.join("file-4097"), "user.large", &pattern(2000));
    // Only root can set these. Links and special files can have no others.
    for name in ["file-4097", "sub", "link", "kinds/fifo"] {
        set_xattr(&root.join(name), "trusted.test", b"\0binary\xff");
    }
    // rw for the owner, r for user 1000, r for the group and as the mask, r for others.
    let acl: [(u16, u16, u32); 5] =
        [(1, 6, u32::MAX), (2, 4, 1000), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 4, u32::MAX)];
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in acl {
        value.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
        value.extend(id.to_le_bytes());
    }
    set_xattr(&root.join("file-3145728"), "system.posix_acl_access", &value);
}

/// Entries first, since creating an entry changes the times of its directory.
fn times(root: &Path) {
    let given = [
        ("file-0", -1, 0),
        ("file-1", -1_000_000_000, 999_999_999),
        ("file-4095", 0, 0),
        ("file-4096", 4_000_000_000, 1),
        ("link", 12_345, 678),
        ("kinds/fifo", 54_321, 9),
        ("sub/deeper", -5, 500_000_000),
        ("sub", 1_111_111_111, 111_111_111),
        ("empty", 2, 2),
    ];
    for (name, secs, nanos) in given {
        set_times(&root.join(name), secs, nanos);
    }
    set_times(root, 1_222_222_222, 222_222_222);
}
