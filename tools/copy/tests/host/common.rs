//! A tree copied with the two halves of this crate, and small helpers.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;

use betr_copy::host::{Kind, Meta, Source, Target, Time, Warning};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps};

/// A buffer size that is not a multiple of a block size.
const BUFFER: usize = 70_001;

/// Prints why a test, or a part of it, did not run.
pub(crate) fn skipped(reason: &str) {
    println!("SKIPPED: {reason}");
}

/// Whether the tests run as root; prints that a test is skipped if not.
pub(crate) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skipped("needs root");
    }
    root
}

/// Sets an extended attribute of a path. Returns `false`, and prints the reason, if the file system or the user
/// cannot.
pub(crate) fn set_xattr(path: &Path, name: &str, value: &[u8]) -> bool {
    let set = rustix::fs::lsetxattr(path, name, value, rustix::fs::XattrFlags::empty());
    if let Err(errno) = set {
        skipped(&format!("extended attribute {name}: {errno}"));
    }
    set.is_ok()
}

/// Creates a special file. Returns `false`, and prints the reason, if the user may not.
pub(crate) fn mknod(path: &Path, kind: FileType, major: u32, minor: u32) -> bool {
    let dev = rustix::fs::makedev(major, minor);
    let made = rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o640), dev);
    if let Err(errno) = made {
        skipped(&format!("{kind:?}: {errno}"));
    }
    made.is_ok()
}

/// Sets the times of access and modification of a path itself.
pub(crate) fn set_times(path: &Path, atime: (i64, i64), mtime: (i64, i64)) {
    let time = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
    let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Metadata for an object that a test creates itself.
pub(crate) fn plain_meta(kind: Kind, perm: u32) -> Meta {
    let time = Time { secs: 1_000_000_000, nanos: 123_456_789 };
    Meta {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        ..Meta::new(kind, perm, time)
    }
}

pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match dir {
        b"" => name.to_vec(),
        dir => [dir, name].join(&b'/'),
    }
}

/// Every path below the root with its metadata, parents first, in order of names.
pub(crate) fn walk(source: &Source) -> Vec<(Vec<u8>, Meta)> {
    let mut found = vec![(Vec::new(), source.root().unwrap())];
    if found[0].1.kind != Kind::Directory {
        return found;
    }
    let mut next = 0;
    while next < found.len() {
        let (dir, meta) = found[next].clone();
        next += 1;
        if meta.kind == Kind::Directory {
            for entry in source.list(&dir).unwrap() {
                found.push((join(&dir, &entry.name), entry.meta));
            }
        }
    }
    found
}

/// The data of a file: its pieces, and the whole file.
pub(crate) fn data(source: &Source, path: &[u8], meta: &Meta) -> (Vec<(u64, Vec<u8>)>, Vec<u8>) {
    let mut reader = source.reader(path, meta).unwrap();
    let (mut pieces, mut whole) = (Vec::new(), vec![0; meta.size as usize]);
    let mut buffer = vec![0; BUFFER];
    while let Some((offset, length)) = reader.next_segment(&mut buffer).unwrap() {
        whole[offset as usize..][..length].copy_from_slice(&buffer[..length]);
        pieces.push((offset, buffer[..length].to_vec()));
    }
    reader.finish().unwrap();
    (pieces, whole)
}

/// Copies all of `source` to `target`, with its hard links.
pub(crate) fn copy(source: &Source, target: &mut Target) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut first: HashMap<(u64, u64), Vec<u8>> = HashMap::new();
    let all = walk(source);
    for (path, meta) in &all {
        if meta.nlink > 1 && meta.kind != Kind::Directory {
            if let Some(existing) = first.get(&(meta.dev, meta.ino)) {
                target.link(existing, path).unwrap();
                continue;
            }
            first.insert((meta.dev, meta.ino), path.clone());
        }
        match &meta.kind {
            Kind::Directory if path.is_empty() => {}
            Kind::Directory => target.mkdir(path).unwrap(),
            Kind::File => {
                let mut file = target.file(path).unwrap();
                for (offset, piece) in data(source, path, meta).0 {
                    file.write_at(offset, &piece).unwrap();
                }
                file.finish(meta.size).unwrap();
            }
            Kind::Symlink(to) => target.symlink(path, to).unwrap(),
            kind => warnings.extend(target.mknod(path, kind, meta.perm).unwrap()),
        }
    }
    for (path, meta) in all.iter().rev() {
        warnings.extend(target.set_meta(path, meta).unwrap());
    }
    target.sync().unwrap();
    warnings
}

/// Creates `depth` nested directories named `name`. Returns the innermost, whose path is too long for the kernel.
pub(crate) fn make_deep(base: &Path, name: &str, depth: usize) -> OwnedFd {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut dir = rustix::fs::openat(CWD, base, flags, Mode::empty()).unwrap();
    for _ in 0..depth {
        rustix::fs::mkdirat(&dir, name, Mode::RWXU).unwrap();
        dir = rustix::fs::openat(&dir, name, flags, Mode::empty()).unwrap();
    }
    dir
}

/// An access control list: user::rw-, user:77:r--, group::r--, mask::r--,
/// other::---.
pub(crate) fn acl() -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let mut acl = vec![2, 0, 0, 0];
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, NOBODY), (2, 4, 77), (4, 4, NOBODY), (16, 4, NOBODY), (32, 0, NOBODY)];
    for (tag, perm, id) in entries {
        acl.extend(tag.to_le_bytes());
        acl.extend(perm.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    acl
}
