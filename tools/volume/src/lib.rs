//! Commands on a volume as a whole: what it is called, and what state it is in.
#![forbid(unsafe_code)]

pub mod info;
pub mod probe;
pub mod resize;
pub mod snapshot;
pub mod transfer;
pub mod tune;
