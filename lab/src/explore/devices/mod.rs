//! Devices for tests: shared blocks that can be forked, a recorder of writes and flushes, a device with faults, and the
//! states that a power cut leaves of recorded writes.

mod faulty;
mod fork;
mod powercut;
mod recording;

pub use faulty::{Call, FaultyDevice, Trouble};
pub use fork::{Block, ForkDevice, placed};
pub use powercut::{Fate, cut_power};
pub use recording::{Event, RecordingDevice};
