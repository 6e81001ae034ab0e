//! Paths within an image and addresses on the command line.
//!
//! Both are accepted as the tools print them, so that output can be pasted as input. Escapes are those of
//! [`betr_core::text`]; a backslash that begins no escape stands for itself. A literal backslash before `x`, `u{` or
//! another backslash must be doubled. Bytes that are not UTF-8 may also be given raw.
//!
//! Commands on files, such as `ls` and `cp`, take paths byte for byte, as system tools do.

use std::os::unix::ffi::OsStrExt;

use betr_core::address::Address;
use betr_core::path::Operand;
use betr_core::text::meant;
use clap::builder::{OsStringValueParser, TypedValueParser};

/// For `value_parser`: a path from the root of the image.
pub fn path() -> impl TypedValueParser<Value = Operand> {
    OsStringValueParser::new().try_map(|text| match meant(text.as_bytes()) {
        path if path.starts_with(b"/") => Ok(Operand::new(path)),
        _ => Err("expected a path from the root on"),
    })
}

/// For `value_parser`: an address.
pub fn address() -> impl TypedValueParser<Value = Address> {
    OsStringValueParser::new().try_map(|text| Address::parse(text.as_bytes()))
}

/// For `value_parser`: a path without `..`, for use where no tree is available to resolve it.
pub fn plain_path() -> impl TypedValueParser<Value = Operand> {
    path().try_map(|path| match path.plain() {
        Some(_) => Ok(path),
        None => Err("'..' depends on the tree: expected a path of names"),
    })
}
