//! What commands that make objects share.

use betr_core::Result;
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Fs, New, Object};

/// Permissions in octal. A value parser for clap.
pub(crate) fn parse_mode(text: &str) -> std::result::Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| format!("{text:?} is no mode; expected an octal number up to 7777"))
}

/// An object of root's with these permissions, made now.
pub(crate) fn plain(fs: &mut Fs, kind: FileType, perm: u32) -> New {
    let now = fs.now();
    New::of(kind, Attributes { perm, ..Attributes::at(now) })
}

/// Makes it, with what it inherits from its directory.
pub(crate) fn make(fs: &mut Fs, directory: &Object, name: &[u8], new: New) -> Result<Object> {
    let new = fs.inherit(directory, new, 0)?;
    fs.make(directory, name, new)
}
