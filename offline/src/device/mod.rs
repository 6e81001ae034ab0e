//! Devices for offline work: an overlay that is planned on, a recorder of reads, one that remembers what it has read, a
//! view that goes on where a device has failed.

mod cached;
mod lenient;
mod noting;
mod planning;
mod scratch;

pub use cached::CachedDevice;
pub use lenient::LenientDevice;
pub use noting::NotingDevice;
pub use planning::PlanningDevice;
pub use scratch::Scratch;
