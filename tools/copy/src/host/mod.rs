//! The host side of reading a tree into an image and of writing one out of it.
//!
//! Four parts, none of which knows anything of the image format:
//!
//! * [`Source`] reads a directory tree, or one single object, of the host:
//!   metadata with nanoseconds and extended attributes, and the data of files
//!   without their holes. [`Links`] are found before a tree is read.
//! * [`Target`] writes a tree, or one single object, to the host and never
//!   leaves its destination whatever names it is given.
//! * [`Excludes`] says what of a tree is left out.
//! * [`Meta`] is what both exchange with their caller.
//!
//! Paths inside a tree are bytes relative to its root, with `/` between the
//! components and nothing (`b""`) for the root itself. They may be longer than
//! `PATH_MAX`. No symbolic link in such a path is ever followed.
//!
//! Extended attributes and the modes of existing objects are reached through
//! `/proc/self/fd`, so `/proc` must be mounted.

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
