//! Paths and addresses of an image on the command line.
//!
//! Both are taken as the tools print them, so that what one shows can be given to another: escapes are those of
//! [`betr_core::text`], and a backslash that begins none stands for itself. A name with a real backslash before `x`, `u{` or
//! another backslash is given with that one doubled. Bytes that are no text may also stand as they are.
//!
//! Commands on files, as `ls` and `cp`, take paths byte for byte, like those of the system.

use std::os::unix::ffi::OsStrExt;

use betr_core::address::Address;
use betr_core::path::Operand;
use betr_core::text::meant;
use clap::builder::{OsStringValueParser, TypedValueParser};

/// For `value_parser`: a path from the root of the image on.
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

/// For `value_parser`: a path without `..`, where no tree is at hand that could resolve it.
pub fn plain_path() -> impl TypedValueParser<Value = Operand> {
    path().try_map(|path| match path.plain() {
        Some(_) => Ok(path),
        None => Err("'..' depends on the tree: expected a path of names"),
    })
}
