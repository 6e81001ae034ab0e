//! What the core makes of devices that fail.

mod disk;
mod holding;
mod lenient;
mod planning;
