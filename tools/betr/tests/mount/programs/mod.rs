//! Programs as they are, doing their work on a mount. After each, the image is checked, and everything must be
//! as it was when it is mounted again.

mod archives;
mod build;
mod database;
mod fio;
mod fsx;
mod git;
mod together;
mod tree;
