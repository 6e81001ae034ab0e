//! A view whose changes become a plan.

use std::sync::Arc;

use betr_core::device::{Device, MemoryDevice};
use betr_lab::explore::devices::FaultyDevice;
use betr_offline::device::{PlanningDevice, Scratch};

#[test]
fn what_cannot_be_read_below_is_an_error() {
    let faulty = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(8192))));
    faulty.spoil(0..1);
    let view =
        PlanningDevice::new(faulty, Scratch::new(tempfile::tempfile().unwrap(), String::new()));
    assert!(view.write_at(1, &[1]).is_err());
    assert_eq!(view.changes(), 0);
    // As a whole it can be written, but not with its old bytes in a plan.
    view.write_at(0, &[1; 4096]).unwrap();
    assert!(view.change(0).is_err());
}
