//! Reads trees of the host into an image, and writes trees of an image to the host.
//!
//! Four parts, none of which depends on the image format:
//!
//! * [`Source`] reads a directory tree, or one single object, of the host: metadata with nanoseconds and extended
//!   attributes, and the data of files without their holes. [`Links`] are found before a tree is read.
//! * [`Target`] writes a tree, or one single object, to the host, and never outside its destination, whatever names
//!   it is given.
//! * [`Excludes`] are patterns of names that are left out.
//! * [`Meta`] is the metadata that both exchange with their caller.
//!
//! Paths inside a tree are bytes relative to its root, with `/` between components; `b""` is the root itself. They
//! may be longer than `PATH_MAX`. Symbolic links in such a path are never followed.
//!
//! Extended attributes, and the modes of existing objects, are accessed through `/proc/self/fd`, so `/proc` must be
//! mounted.

mod error;
mod exclude;
mod links;
mod meta;
mod reader;
mod restore;
mod source;
mod target;
mod walk;
mod writer;
mod xattr;

pub use error::{HostError, Result, Warning};
pub use exclude::Excludes;
pub use links::Links;
pub use meta::{Kind, Meta, Time};
pub use reader::FileReader;
pub use source::{Entry, Source};
pub use target::Target;
pub use writer::FileWriter;
