//! The state of an installation path, and atomic replacement of the file there.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use betr_core::ids::Hash;

use super::plan::{Item, What};
use super::record::Record;

/// The object at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing.
    Absent,
    /// The item to install.
    Same,
    /// A file that an earlier run installed.
    Own,
    /// Anything else.
    Foreign,
    /// A directory, which is never replaced.
    Directory,
}

/// Compares the object at a path with the item to install there.
pub(super) fn state_of(path: &Path, item: &Item, record: &Record) -> io::Result<State> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(State::Absent),
        Err(error) => return Err(error),
    };
    if meta.is_dir() {
        return Ok(State::Directory);
    }
    match &item.what {
        What::Link { target } if meta.is_symlink() => {
            let found = fs::read_link(path)?;
            Ok(match found.file_name() == target.file_name() {
                _ if found == *target => State::Same,
                true => State::Own,
                false => State::Foreign,
            })
        }
        What::File { bytes, executable } if meta.is_file() => {
            let found = fs::read(path)?;
            if found != *bytes {
                let own = record.has(&item.path, Hash::of(&found));
                return Ok(if own { State::Own } else { State::Foreign });
            }
            let mode = meta.permissions().mode() & 0o777;
            Ok(if mode == mode_of(*executable) { State::Same } else { State::Own })
        }
        _ => Ok(State::Foreign),
    }
}

fn mode_of(executable: bool) -> u32 {
    if executable { 0o755 } else { 0o644 }
}

/// Writes a temporary file, and renames it when it is complete.
pub(super) fn put(path: &Path, what: &What) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let (temporary, file) = begin(path, what)?;
    let done = finish(file, what).and_then(|()| fs::rename(&temporary, path));
    if done.is_err() {
        // The first error is reported.
        let _ = fs::remove_file(&temporary);
    }
    done
}

/// Creates the link, or an empty file, under a temporary name beside `path`.
fn begin(path: &Path, what: &What) -> io::Result<(PathBuf, Option<File>)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    for count in 0_u32.. {
        let temporary = path.with_file_name(format!(".{name}.{}-{count}", std::process::id()));
        let made = match what {
            What::File { .. } => File::create_new(&temporary).map(Some),
            What::Link { target } => symlink(target, &temporary).map(|()| None),
        };
        match made {
            Ok(file) => return Ok((temporary, file)),
            // Left by a killed process with the same process id.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

fn finish(file: Option<File>, what: &What) -> io::Result<()> {
    if let (Some(mut file), What::File { bytes, executable }) = (file, what) {
        file.write_all(bytes)?;
        file.set_permissions(Permissions::from_mode(mode_of(*executable)))?;
        file.sync_all()?;
    }
    Ok(())
}
