//! Helpers of commands that create objects.

use betr_core::error::Refusal;
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Fs, LastLink, New, Object};
use betr_core::path::Operand;
use betr_core::{Error, Result};

/// Permissions in octal. A value parser for clap.
pub(crate) fn parse_mode(text: &str) -> std::result::Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| format!("{text:?} is no mode; expected an octal number up to 7777"))
}

/// An object with these permissions, owned by root, with the current time.
pub(crate) fn plain(fs: &mut Fs, kind: FileType, perm: u32) -> New {
    let now = fs.now();
    New::of(kind, Attributes { perm, ..Attributes::at(now) })
}

/// Creates an object, with the attributes that it inherits from its directory.
pub(crate) fn make(fs: &mut Fs, directory: &Object, name: &[u8], new: New) -> Result<Object> {
    let new = fs.inherit(directory, new, 0)?;
    fs.make(directory, name, new)
}

/// Opens a file. With `create` a missing one is created, as by open(2) with `O_CREAT`: symbolic links are followed,
/// and a path with a trailing slash is refused.
pub(crate) fn open(
    fs: &mut Fs,
    path: &Operand,
    last: LastLink,
    create: bool,
) -> Result<Option<Opened>> {
    match fs.look_up(path, last) {
        Ok(found) => return Ok(Some(Opened::Found(found.object))),
        Err(Error::Refused(Refusal::NotFound)) if create => {}
        Err(Error::Refused(Refusal::NotFound)) => return Ok(None),
        Err(error) => return Err(error),
    }
    let slot = fs.slot_behind(path)?;
    slot.vacant(FileType::Regular)?;
    let new = plain(fs, FileType::Regular, 0o644);
    make(fs, &slot.directory, &slot.name, new).map(|made| Some(Opened::Made(made)))
}

/// An existing file, or a created one.
pub(crate) enum Opened {
    Found(Object),
    Made(Object),
}
