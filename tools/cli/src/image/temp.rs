//! A file that gets its final name last.
//!
//! It is created without a name (`O_TMPFILE`), or under a temporary name that is removed on drop. Naming it has two
//! variants, which differ in what they may destroy: `appear` never replaces a file, `replace` does so atomically with
//! rename(2).

use super::error::{OpenError, doing};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The temporary name of a file, removed on drop; `None` for a file that has none.
#[derive(Debug)]
pub(super) struct Temp(Option<PathBuf>);

impl Drop for Temp {
    fn drop(&mut self) {
        if let Some(name) = &self.0 {
            // Drop cannot report an error.
            let _ = fs::remove_file(name);
        }
    }
}

impl Temp {
    /// Creates a file in the directory of `target`: without a name if the file system supports that.
    pub(super) fn create(target: &Path, mode: Mode) -> Result<(Temp, File), OpenError> {
        // A file without a name is linked later through /proc/self/fd.
        if Path::new("/proc/self/fd").exists() {
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            match rustix::fs::open(parent(target), flags, mode) {
                Ok(file) => return Ok((Temp(None), file.into())),
                // The errors by which kernels and file systems report that they lack O_TMPFILE.
                Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
                Err(error) => return Err(doing(target, "create")(error.into())),
            }
        }
        Temp::create_named(target, mode)
    }

    fn create_named(target: &Path, mode: Mode) -> Result<(Temp, File), OpenError> {
        loop {
            let name = temp_name(target);
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).mode(mode.as_raw_mode());
            match options.open(&name) {
                Ok(file) => return Ok((Temp(Some(name)), file)),
                // Left by a killed process that had the same PID. It may not be ours, so it stays.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(doing(target, "create")(error)),
            }
        }
    }

    /// Gives the file the name `target`, which must not exist.
    pub(super) fn appear(mut self, file: &File, target: &Path) -> Result<(), OpenError> {
        let result = match &self.0 {
            None => link(file, target),
            Some(name) => {
                match rustix::fs::renameat_with(CWD, name, CWD, target, RenameFlags::NOREPLACE) {
                    // This file system does not support RENAME_NOREPLACE. link(2) does not replace a file either, but
                    // leaves the temporary name, which the drop removes.
                    Err(Errno::INVAL | Errno::NOSYS) => fs::hard_link(name, target),
                    Err(error) => Err(error.into()),
                    Ok(()) => {
                        self.0 = None;
                        Ok(())
                    }
                }
            }
        };
        result.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => OpenError::Appeared { path: target.into() },
            _ => doing(target, "give its name to")(error),
        })
    }

    /// Gives the file the name `target`, replacing the file there. linkat(2) cannot replace, so a file without a name
    /// gets a temporary one first.
    pub(super) fn replace(mut self, file: &File, target: &Path) -> Result<(), OpenError> {
        while self.0.is_none() {
            let name = temp_name(target);
            match link(file, &name) {
                Ok(()) => self.0 = Some(name),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(doing(target, "give a temporary name beside")(error)),
            }
        }
        if let Some(name) = &self.0 {
            fs::rename(name, target).map_err(doing(target, "replace"))?;
        }
        self.0 = None;
        Ok(())
    }
}

/// Links a file that has no name to `target`.
fn link(file: &File, target: &Path) -> io::Result<()> {
    let source = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, source, CWD, target, AtFlags::SYMLINK_FOLLOW)?;
    Ok(())
}

/// Returns `.NAME.betr-PID-N` beside `target`, different on each call. NAME is cut to 200 bytes so that the result
/// stays a valid file name.
fn temp_name(target: &Path) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = target.file_name().unwrap_or(OsStr::new("image")).as_bytes();
    let mut temp = b".".to_vec();
    temp.extend(&name[..name.len().min(200)]);
    temp.extend(format!(".betr-{}-{count}", std::process::id()).bytes());
    parent(target).join(OsString::from_vec(temp))
}

/// The directory of a resolved path.
pub(super) fn parent(target: &Path) -> &Path {
    target.parent().unwrap_or(Path::new("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn names(dir: &Path) -> Vec<OsString> {
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_temporary_name_works_as_no_name_does() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().canonicalize().unwrap().join("x".repeat(255));
        let mode = Mode::from_raw_mode(0o600);

        let (temp, _file) = Temp::create_named(&target, mode).unwrap();
        assert_eq!(names(dir.path()).len(), 1);
        drop(temp);
        assert!(names(dir.path()).is_empty());

        let (temp, file) = Temp::create_named(&target, mode).unwrap();
        file.write_all_at(b"one", 0).unwrap();
        temp.appear(&file, &target).unwrap();
        assert_eq!(names(dir.path()), [target.file_name().unwrap()]);

        let (temp, file) = Temp::create_named(&target, mode).unwrap();
        let error = temp.appear(&file, &target).unwrap_err();
        assert!(matches!(error, OpenError::Appeared { .. }), "{error}");
        assert_eq!(names(dir.path()), [target.file_name().unwrap()]);

        let (temp, file) = Temp::create_named(&target, mode).unwrap();
        file.write_all_at(b"two", 0).unwrap();
        temp.replace(&file, &target).unwrap();
        assert_eq!(names(dir.path()), [target.file_name().unwrap()]);
        assert_eq!(fs::read(&target).unwrap(), b"two");
    }
}
