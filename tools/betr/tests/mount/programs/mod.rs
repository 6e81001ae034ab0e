//! Unmodified programs at work on a mount. After each, the image is checked, and its contents must be the same after
//! a remount.

mod archives;
mod build;
mod database;
mod fio;
mod fsx;
mod git;
mod together;
mod tree;
