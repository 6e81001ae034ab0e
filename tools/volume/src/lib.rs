//! Commands on a whole volume: information, probing, resizing, labels, snapshots, transfer.
#![forbid(unsafe_code)]

pub mod info;
pub mod probe;
pub mod resize;
pub mod snapshot;
pub mod transfer;
pub mod tune;
