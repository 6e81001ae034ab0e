//! Creates images atomically: a new image appears complete or not at all.
//!
//! A new image file is built without a name (`O_TMPFILE`), or under a temporary name if the file system does not
//! support that. It gets its name when it is complete and durable; until then an existing image stays unchanged. A tool
//! that fails or is killed leaves no partial image. If it is killed while it uses a temporary name, `.NAME.betr-…`
//! remains, which cannot be mistaken for an image.
//!
//! A block device is written in place. So is a file that cannot be replaced by rename: a mount point, a file in a
//! directory without write permission, or a file with other hard links, which would keep the old content.
//! [`NewImage::begin`] first destroys the signatures of the old content. A file is truncated to zeros; of a device only
//! the two ends are cleared.
//!
//! A replacement keeps the mode and owner of the old file, but not its ACLs and other attributes.

use super::data::data_in;
use super::error::{OpenError, doing};
use super::temp::{Temp, parent};
use super::{Access, OpenImage, same_file};
use betr_core::path::Operand;
use rustix::fs::{AtFlags, CWD, Mode, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// 2 MiB at each end of a block device are zeroed, because file systems and partition tables have their signatures
/// there.
const WIPED: u64 = 2 << 20;

/// An image under construction. Dropping it removes the unfinished file; an image that is written in place keeps what
/// was written. [`NewImage::commit`] gives the image its name.
#[derive(Debug)]
pub struct NewImage {
    /// The file to write, of the requested length. It reads as zeros unless it is a block device.
    pub file: Arc<File>,
    /// The final path. Its last component is not a symbolic link.
    path: PathBuf,
    place: Place,
}

/// Where the new image is built, and how it replaces the old one.
#[derive(Debug)]
enum Place {
    /// In place, on a block device of `len` bytes.
    Device { len: u64 },
    /// In place, in the existing file, which gets the length `len`.
    File { len: u64 },
    /// In a new file, for a path where no file exists.
    New { temp: Temp },
    /// In a new file that will replace `old`, which stays locked until then.
    Replacing { temp: Temp, old: OpenImage },
}

/// Starts a new image of `len` bytes at `path`.
///
/// `path` must not exist, or be a regular file or block device without data, unless `force` is set. `force` does not
/// override a lock, a mount or a loop device. A regular file has no data if all bytes are zero. A block device may take
/// hours to read, so it counts as empty if no signature is recognised and its first and last mebibyte are zeros.
pub fn create(path: impl AsRef<Path>, len: u64, force: bool) -> Result<NewImage, OpenError> {
    let path = path.as_ref();
    let target = resolve(path)?;
    match fs::symlink_metadata(&target) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (temp, file) = Temp::create(&target, Mode::from_raw_mode(0o666))?;
            let new = NewImage { file: file.into(), path: target, place: Place::New { temp } };
            new.set_len(len)?;
            return Ok(new);
        }
        Err(source) => return Err(doing(&target, "examine")(source)),
    }
    let old = super::open(&target, Access::Write)?;
    if !force && let Some(found) = data_in(&old)? {
        return Err(OpenError::HasData { path: path.into(), found });
    }
    if old.is_block_device {
        let place = Place::Device { len: old.len };
        let new = NewImage { file: old.file.file().clone(), path: target, place };
        new.set_len(len)?;
        return Ok(new);
    }
    if !is_bound(&target, &old)?
        && let Some((temp, file)) = beside(&target)?
    {
        let new = replacing(target, old, temp, file)?;
        new.set_len(len)?;
        return Ok(new);
    }
    Ok(NewImage { file: old.file.file().clone(), path: target, place: Place::File { len } })
}

/// Starts a new, empty file at `path`, which must not exist.
pub fn create_new(path: impl AsRef<Path>) -> Result<NewImage, OpenError> {
    let target = resolve(path.as_ref())?;
    if fs::symlink_metadata(&target).is_ok() {
        return Err(OpenError::Exists { path: path.as_ref().into() });
    }
    let (temp, file) = Temp::create(&target, Mode::from_raw_mode(0o666))?;
    Ok(NewImage { file: file.into(), path: target, place: Place::New { temp } })
}

/// The length in bytes of the regular file or block device at `path`, for a tool that is given no size; `None` if
/// nothing exists there.
pub fn existing_len(path: impl AsRef<Path>) -> Result<Option<u64>, OpenError> {
    match super::open(path, Access::Read) {
        Ok(image) => Ok(Some(image.len)),
        Err(OpenError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the file cannot be replaced by rename because it has other hard links or is a mount point.
fn is_bound(target: &Path, old: &OpenImage) -> Result<bool, OpenError> {
    let meta = old.metadata().map_err(doing(target, "examine"))?;
    let stat = statx(CWD, target, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE);
    let is_mount = stat.is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    Ok(meta.nlink() > 1 || is_mount)
}

/// Creates a temporary file in the directory of `target`; `None` if the directory is not writable.
fn beside(target: &Path) -> Result<Option<(Temp, File)>, OpenError> {
    // Mode 0600 keeps other users from opening the file before it has the mode of the old one.
    match Temp::create(target, Mode::from_raw_mode(0o600)) {
        Ok(temp) => Ok(Some(temp)),
        Err(OpenError::Io { source, .. })
            if matches!(
                source.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn replacing(
    target: PathBuf,
    old: OpenImage,
    temp: Temp,
    file: File,
) -> Result<NewImage, OpenError> {
    let meta = old.metadata().map_err(doing(&target, "examine"))?;
    let new = file.metadata().map_err(doing(&target, "examine"))?;
    if (new.uid(), new.gid()) != (meta.uid(), meta.gid()) {
        std::os::unix::fs::fchown(&file, Some(meta.uid()), Some(meta.gid()))
            .map_err(doing(&target, "keep the owner and group of"))?;
    }
    // The mode is set after the owner, because chown(2) clears the set-user-ID and set-group-ID bits.
    file.set_permissions(Permissions::from_mode(meta.mode() & 0o7777))
        .map_err(doing(&target, "keep the mode of"))?;
    Ok(NewImage { file: file.into(), path: target, place: Place::Replacing { temp, old } })
}

impl NewImage {
    /// Whether the image is a block device, whose old content may be arbitrary.
    pub fn is_device(&self) -> bool {
        matches!(self.place, Place::Device { .. })
    }

    /// Must be called before the first byte is written. If the image is written in place, this destroys the signatures
    /// of the old content, so that an interrupted tool leaves nothing that looks like a valid image.
    pub fn begin(&self) -> Result<(), OpenError> {
        let wiped = match self.place {
            Place::New { .. } | Place::Replacing { .. } => return Ok(()),
            Place::File { len } => self.file.set_len(0).and_then(|()| self.file.set_len(len)),
            Place::Device { len } => {
                let zeros = vec![0; WIPED.min(len) as usize];
                let last = len - zeros.len() as u64;
                let first = self.file.write_all_at(&zeros, 0);
                first.and_then(|()| self.file.write_all_at(&zeros, last))
            }
        };
        wiped.and_then(|()| self.file.sync_all()).map_err(doing(&self.path, "wipe"))
    }

    /// The final path of the image.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Changes the length. Bytes added to a file are zeros. A block device keeps its own length, which must be at least
    /// `len`.
    pub fn set_len(&self, len: u64) -> Result<(), OpenError> {
        match self.place {
            Place::Device { len: have } if len > have => {
                Err(OpenError::TooSmall { path: self.path.clone(), have, want: len })
            }
            Place::Device { .. } => Ok(()),
            _ => self.file.set_len(len).map_err(doing(&self.path, "set the length of")),
        }
    }

    /// Makes the image durable and gives it its name. After an error the old content of the path is still there. If
    /// only syncing the directory failed, the complete new image may be there instead.
    pub fn commit(self) -> Result<(), OpenError> {
        self.file.sync_all().map_err(doing(&self.path, "write to disk all of"))?;
        let path = &self.path;
        match self.place {
            Place::Device { .. } | Place::File { .. } => return Ok(()),
            Place::New { temp } => temp.appear(&self.file, path)?,
            Place::Replacing { temp, old } => {
                let old = old.metadata().map_err(doing(path, "examine"))?;
                let there = fs::symlink_metadata(path);
                if !there.is_ok_and(|there| same_file(&there, &old)) {
                    return Err(OpenError::Replaced { path: path.clone() });
                }
                temp.replace(&self.file, path)?;
            }
        }
        let dir = File::open(parent(path)).and_then(|dir| dir.sync_all());
        dir.map_err(doing(path, "write to disk the directory of"))
    }
}

/// Canonicalizes the directory of the path and resolves a symbolic link in the last component, even if its target does
/// not exist: a dangling link means that its target is to be created.
fn resolve(path: &Path) -> Result<PathBuf, OpenError> {
    let mut path = path.to_path_buf();
    for _ in 0..40 {
        let operand = Operand::new(path.as_os_str().as_bytes());
        let split = operand.split().filter(|_| !operand.wants_directory());
        let Some((dir, name)) = split.map(|(dir, name)| (OsStr::from_bytes(dir), name)) else {
            // `/`, `..`, `name/.` and `name/` can only be directories, which `open` refuses.
            return fs::canonicalize(&path).map_err(doing(&path, "create"));
        };
        let dir = Path::new(dir);
        let resolved = fs::canonicalize(dir).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => OpenError::NoParent { path: path.clone(), dir: dir.into() },
            _ => doing(&path, "find the directory of")(error),
        })?;
        let target = resolved.join(OsStr::from_bytes(name));
        match fs::read_link(&target) {
            Ok(to) => path = resolved.join(to),
            Err(_) => return Ok(target),
        }
    }
    Err(doing(&path, "follow the links of")(Errno::LOOP.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_even_to_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("sub")).unwrap();
        std::os::unix::fs::symlink("sub/b", root.join("a")).unwrap();
        std::os::unix::fs::symlink("../c", root.join("sub/b")).unwrap();
        std::os::unix::fs::symlink("loop", root.join("loop")).unwrap();
        assert_eq!(resolve(&root.join("a")).unwrap(), root.join("c"));
        let error = resolve(&root.join("loop")).unwrap_err().to_string();
        assert!(error.contains("follow the links"), "{error}");
        // A trailing slash or dot requires a directory.
        for file in ["new/", "new/.", "c/", "c/."] {
            fs::write(root.join("c"), "a file").unwrap();
            let error = resolve(&root.join(file)).unwrap_err();
            assert!(!matches!(error, OpenError::NoParent { .. }), "{file}: {error}");
        }
        let error = resolve(&root.join("none/x")).unwrap_err();
        assert!(matches!(error, OpenError::NoParent { .. }), "{error}");
    }
}
