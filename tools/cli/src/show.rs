//! Names and labels as text that is safe to print.
//!
//! A path or a label is bytes chosen by somebody else. Printed as they are, they can move the
//! cursor, colour the screen or reorder the line. The mapping is that of the core.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The bytes as printable text.
pub fn bytes(bytes: &[u8]) -> String {
    betr_core::text::printable(bytes)
}

/// The path as printable text; see [`bytes`].
pub fn path(path: impl AsRef<Path>) -> String {
    bytes(path.as_ref().as_os_str().as_bytes())
}
