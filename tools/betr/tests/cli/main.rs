//! The binary as its users meet it: options, exit codes, streams, and what becomes of files.

mod commands;
mod contract;
mod crash;
mod damaged;
mod exclude;
mod fsck;
mod info;
mod install;
mod man;
mod memory;
mod mkfs;
mod names;
mod owner;
mod plan;
mod probe;
mod process;
mod readme;
mod reproducible;
mod resize;
mod round_trip;
mod stopped;
mod support;
mod tar;
mod tar_hostile;
mod tree;
mod tune;
