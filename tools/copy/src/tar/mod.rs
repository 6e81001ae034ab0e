//! Tar archives as streams: read member by member, and written so.
//!
//! An [`Archive`] gives members in the order of the archive: the path, the metadata that a [`Meta`] holds,
//! and the data without their holes. It reads v7, ustar, GNU (long names, old sparse files, numbers to the
//! base 256) and pax (POSIX.1-2001, with the records of star for extended attributes and access control lists,
//! and GNU's sparse files 0.0, 0.1 and 1.0). A [`Writer`] makes pax archives that the same [`Meta`] comes out of.
//!
//! There is no seeking but to skip data, and no allocation by what a header says: what is kept of a member is
//! at most [`EXTENSION_MAX`] bytes of extended headers and [`SEGMENTS_MAX`] segments of data.
//!
//! Names of users and groups are not looked at, only their numbers. Nothing is known here of images, and nothing
//! of the host is changed.
//!
//! Libraries for this were left aside: what they make of pax records loses binary attributes, negative times or
//! the places of errors.
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

/// The most bytes of extended headers and long names that one member may have.
pub const EXTENSION_MAX: u64 = 16 << 20;
/// The most bytes that global headers may say to all members.
pub const GLOBAL_MAX: u64 = 64 << 10;

/// The unit of archives.
const BLOCK: usize = 512;
/// Archives end at a multiple of this.
const RECORD: u64 = 10_240;

/// How many bytes stand between `size` and the end of its last block.
fn padding(size: u64) -> u64 {
    (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64
}
