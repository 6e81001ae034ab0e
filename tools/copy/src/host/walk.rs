//! Opening paths below a directory without ever following a symbolic link.
//!
//! Owns the rule for relative paths, and the function that opens them. A path is opened relative to an open
//! directory. Each component must be a plain name, so `..` is impossible, and no component may be a symbolic link.
//! Paths longer than the kernel accepts in one call are opened in steps. Mount points are entered.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, Stat, openat, openat2};
use rustix::io::Errno;

use crate::host::error::{HostError, Result};

/// The longest path that the kernel accepts, in bytes without the terminating NUL.
const PATH_MAX: usize = 4095;

/// The longest name to create, in bytes. File systems that count characters can hold longer names, so reading has no
/// such limit.
pub(crate) const NAME_MAX: usize = 255;

/// The longest component of a path to read, in bytes.
pub(crate) const READ_NAME_MAX: usize = PATH_MAX;

/// Flags to open a directory as a step to an entry in it.
const STEP: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Checks every component of `path`; the empty path, the root, is valid.
pub(crate) fn check_path(path: &[u8], longest: usize) -> Result<()> {
    if path.is_empty() {
        return Ok(());
    }
    for name in path.split(|byte| *byte == b'/') {
        let why = match name {
            b"" => "is empty",
            b"." | b".." => "does not name anything of its own",
            _ if name.contains(&0) => "has a NUL byte in it",
            _ if name.len() > longest => "is longer than the host can hold",
            _ => continue,
        };
        return Err(HostError::BadName { path: path.to_vec(), name: name.to_vec(), why });
    }
    Ok(())
}

/// Splits a checked path into its parent directory and its last name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// Joins two paths, either of which may be empty.
pub(crate) fn join(base: &[u8], relative: &[u8]) -> Vec<u8> {
    let mut path = base.to_vec();
    if !relative.is_empty() {
        if !path.is_empty() && !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(relative);
    }
    path
}

/// A path that reopens `fd`, even an O_PATH descriptor.
pub(crate) fn proc_path(fd: BorrowedFd<'_>) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Whether [`proc_path`] works.
pub(crate) fn proc_is_mounted() -> bool {
    Path::new("/proc/self/fd").exists()
}

/// Opens the checked path `path` below `base`.
pub(crate) fn open(
    base: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
) -> std::result::Result<OwnedFd, Errno> {
    open_with(base, path, flags, have_openat2())
}

/// Opens the checked directory `path` below `base`, as a step to its entries.
pub(crate) fn open_parent(
    base: BorrowedFd<'_>,
    path: &[u8],
) -> std::result::Result<OwnedFd, Errno> {
    open(base, path, STEP)
}

/// Metadata of an open file itself.
pub(crate) fn stat(fd: BorrowedFd<'_>) -> std::result::Result<Stat, Errno> {
    rustix::fs::fstat(fd)
}

fn open_with(
    base: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    whole_paths: bool,
) -> std::result::Result<OwnedFd, Errno> {
    let mut at: Option<OwnedFd> = None;
    let mut rest = path;
    loop {
        let from = at.as_ref().map_or(base, |fd| fd.as_fd());
        let step = if whole_paths {
            step_length(rest)
        } else {
            rest.iter().position(|byte| *byte == b'/')
        };
        let Some(length) = step else {
            return open_step(from, rest, flags, whole_paths);
        };
        let next = open_step(from, &rest[..length], STEP, whole_paths)?;
        at = Some(next);
        rest = &rest[length + 1..];
    }
}

/// The length of the prefix of `path` to open first, if it is too long for one call.
fn step_length(path: &[u8]) -> Option<usize> {
    if path.len() <= PATH_MAX {
        return None;
    }
    path[..=PATH_MAX].iter().rposition(|byte| *byte == b'/')
}

fn open_step(
    base: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    whole_paths: bool,
) -> std::result::Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if whole_paths {
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        openat2(base, path, flags, Mode::empty(), resolve)
    } else {
        openat(base, path, flags, Mode::empty())
    }
}

/// Whether openat2(2) can refuse symbolic links in a whole path (Linux 5.6 and later, unless a sandbox forbids it).
/// Otherwise every component takes a call. So it does under LD_PRELOAD libraries such as fakeroot and pseudo, which
/// do not intercept openat2(2) and must see every descriptor that is opened.
fn have_openat2() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        std::env::var_os("LD_PRELOAD").is_none_or(|preloaded| preloaded.is_empty())
            && openat2(CWD, c"/", STEP, Mode::empty(), ResolveFlags::NO_SYMLINKS).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_plain_names_pass() {
        assert!(check_path(b"", NAME_MAX).is_ok());
        assert!(check_path(b"a/..b/...", NAME_MAX).is_ok());
        assert!(check_path(&[b'x'; 255], NAME_MAX).is_ok());
        for bad in [&b"/"[..], b"/a", b"a/", b"a//b", b".", b"a/..", b"../a", b"a\0b"] {
            assert!(check_path(bad, NAME_MAX).is_err(), "{bad:?}");
        }
        assert!(check_path(&[b'x'; 256], NAME_MAX).is_err());
    }

    #[test]
    fn both_ways_of_opening_refuse_links() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(dir.path().join("a/b/f"), b"x").unwrap();
        symlink("a", dir.path().join("l")).unwrap();
        symlink("b", dir.path().join("a/l")).unwrap();
        symlink("f", dir.path().join("a/b/l")).unwrap();
        let base = std::fs::File::open(dir.path()).unwrap();
        for whole in [have_openat2(), false] {
            assert!(open_with(base.as_fd(), b"a/b/f", OFlags::RDONLY, whole).is_ok());
            for bad in [&b"l/b/f"[..], b"a/l/f", b"a/b/l"] {
                assert!(open_with(base.as_fd(), bad, OFlags::RDONLY, whole).is_err());
            }
            assert!(open_with(base.as_fd(), b"", OFlags::RDONLY, whole).is_ok());
        }
    }

    #[test]
    fn long_paths_are_cut_at_a_component() {
        let name = [b'n'; 254];
        let path = [&name[..]; 40].join(&b'/');
        let cut = step_length(&path).unwrap();
        assert!(cut <= PATH_MAX && cut > PATH_MAX - 256);
        assert_eq!(path[cut], b'/');
        assert_eq!(step_length(&path[..PATH_MAX]), None);
    }
}
