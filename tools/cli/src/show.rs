//! Names and labels as text that is safe to print.
//!
//! Paths and labels are untrusted bytes. Printed raw, they can move the cursor, change colours or reorder the line. The
//! escaping is that of the core.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use betr_core::format::{MetaKey, parse_data_key};
use betr_core::ids::{TreeId, ZoneId};
use betr_core::text::Printable;

/// The bytes as printable text.
pub fn bytes(bytes: &[u8]) -> String {
    betr_core::text::printable(bytes)
}

/// The path as printable text; see [`bytes`].
pub fn path(path: impl AsRef<Path>) -> String {
    bytes(path.as_ref().as_os_str().as_bytes())
}

/// A key in terms of the schema, followed by its bytes in hexadecimal.
pub fn key(tree: TreeId, key: &[u8]) -> String {
    let raw = crate::json::hex(key);
    match tree {
        TreeId::Metadata => match MetaKey::decode(key) {
            Some(meta) => {
                let path = meta.path();
                let xattr = match meta.xattr() {
                    Some(name) => format!(" xattr {}", Printable(name)),
                    None => String::new(),
                };
                format!("{} /{}{xattr} (k#1:{raw})", meta.zone(), Printable(&path))
            }
            None => format!("k#1:{raw}"),
        },
        TreeId::Data => match parse_data_key(key) {
            Some((prefix, block)) if prefix.len() == 8 => {
                let zone = prefix.try_into().map_or(0, u64::from_be_bytes);
                format!("{} block {block} (k#2:{raw})", ZoneId(zone))
            }
            _ => format!("k#2:{raw}"),
        },
    }
}
