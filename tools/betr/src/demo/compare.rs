//! Compares a copied tree with the original.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use betr_cli::{Failure, show};

/// Compares everything in `copy` with `original`, except entries named in `without` that `copy` lacks. Returns the
/// number of compared objects.
pub(super) fn compare(original: &Path, copy: &Path, without: &[&[u8]]) -> Result<u64, Failure> {
    let mut compared = 0;
    let mut waiting = vec![(original.to_path_buf(), copy.to_path_buf())];
    while let Some((original, copy)) = waiting.pop() {
        let io = |error: std::io::Error| Failure::failed(format!("{}: {error}", show::path(&copy)));
        for entry in std::fs::read_dir(&copy).map_err(io)? {
            let name = entry.map_err(io)?.file_name();
            let (original, copy) = (original.join(&name), copy.join(&name));
            if is_left_out(&name, without) && original.symlink_metadata().is_err() {
                continue;
            }
            if same(&original, &copy)? {
                waiting.push((original, copy));
            }
            compared += 1;
        }
    }
    Ok(compared)
}

fn is_left_out(name: &OsStr, without: &[&[u8]]) -> bool {
    without.contains(&name.as_bytes())
}

/// Compares one object. Returns whether it is a directory.
fn same(original: &Path, copy: &Path) -> Result<bool, Failure> {
    let differ = |what: &str| {
        Failure::failed(format!("{}: {what} differs from the original", show::path(copy)))
    };
    let io = |error: std::io::Error| Failure::failed(format!("{}: {error}", show::path(copy)));
    let (a, b) = (original.symlink_metadata().map_err(io)?, copy.symlink_metadata().map_err(io)?);
    if a.file_type() != b.file_type() {
        return Err(differ("type"));
    }
    let key = |m: &Metadata| (m.mode(), m.uid(), m.gid(), m.mtime(), m.mtime_nsec());
    if !a.is_symlink() && key(&a) != key(&b) {
        return Err(differ("mode, owner or time"));
    }
    if a.is_symlink()
        && std::fs::read_link(original).map_err(io)? != std::fs::read_link(copy).map_err(io)?
    {
        return Err(differ("target"));
    }
    if a.is_file() && std::fs::read(original).map_err(io)? != std::fs::read(copy).map_err(io)? {
        return Err(differ("contents"));
    }
    Ok(a.is_dir())
}
