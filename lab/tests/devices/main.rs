//! What the core makes of devices that fail.

mod deferring;
mod disk;
mod lenient;
mod planning;
