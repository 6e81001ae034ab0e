//! Functions shared by the betr tools that do not depend on the format.
//!
//! Streams, exit codes, sizes, times, opening and creating images safely, and recognising other formats. Only
//! [`volume`], [`clones`], [`snapshots`], [`plan`] and [`trial`] read the structures of an image, so a mistake in the format cannot
//! weaken the checks that keep a tool from destroying data.
#![forbid(unsafe_code)]

pub mod changes;
pub mod clones;
pub mod codes;
pub mod exit;
pub mod identity;
pub mod image;
pub mod io;
pub mod json;
pub mod moment;
pub mod name;
pub mod plan;
pub mod probe;
pub mod progress;
pub mod range;
pub mod scratch;
pub mod server;
pub mod show;
pub mod size;
pub mod skip;
pub mod snapshots;
pub mod time;
pub mod trial;
pub mod view;
pub mod volume;
pub mod words;

pub use codes::ExitCodes;
pub use exit::{Exit, Failure};
pub use io::{Io, JsonList};
