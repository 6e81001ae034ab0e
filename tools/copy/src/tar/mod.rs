//! Reads and writes tar archives as streams, member by member.
//!
//! An [`Archive`] returns members in the order of the archive: the path, the metadata that a [`Meta`] holds, and the
//! data without their holes. It reads v7, ustar, GNU (long names, old sparse files, base-256 numbers) and pax
//! (POSIX.1-2001, with star's records for extended attributes and access control lists, and GNU's sparse files 0.0,
//! 0.1 and 1.0). A [`Writer`] writes pax archives that an [`Archive`] reads back to the same [`Meta`].
//!
//! It seeks only to skip data, and allocates no memory because of a size in a header: of a member it keeps at most
//! [`EXTENSION_MAX`] bytes of extended headers and [`SEGMENTS_MAX`] segments of data.
//!
//! Names of users and groups are ignored, only their numbers count. Nothing here depends on images, or changes the
//! host.
//!
//! Existing libraries are not used: their handling of pax records loses binary attributes, negative times or the
//! places of errors.
//!
//! [`Meta`]: crate::host::Meta

mod acl;
mod compressed;
mod error;
mod header;
mod input;
mod links;
mod name;
mod number;
mod pax;
mod reader;
mod sparse;
mod writer;

pub use error::{Fault, TarError};
pub use input::Input;
pub use links::{ArchiveLinks, LinksTo};
pub use reader::{Archive, Member, What};
pub use sparse::{SEGMENTS_MAX, Segments};
pub use writer::Writer;

/// The most bytes of extended headers and long names for one member.
pub const EXTENSION_MAX: u64 = 16 << 20;
/// The most bytes of records in global headers.
pub const GLOBAL_MAX: u64 = 64 << 10;

/// The block size of archives, in bytes.
const BLOCK: usize = 512;
/// Archives are padded to a multiple of this, in bytes.
const RECORD: u64 = 10_240;

/// Padding after `size` bytes of data.
fn padding(size: u64) -> u64 {
    (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64
}
