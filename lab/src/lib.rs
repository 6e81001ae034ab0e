//! Laboratories for the file system: what tests and developers try on it, and no other tool needs.
//!
//! [`explore`] is the crash explorer, with devices that record, fork and fail. [`damage`] spoils images in a known way.

pub mod damage;
pub mod explore;
