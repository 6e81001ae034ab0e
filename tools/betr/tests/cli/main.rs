//! The binary as its users meet it: options, exit codes, streams, and what becomes of files.

mod contract;
mod crash;
mod damaged;
mod fsck;
mod mkfs;
mod names;
mod process;
mod readme;
mod reproducible;
mod round_trip;
mod stopped;
mod support;
mod tree;
