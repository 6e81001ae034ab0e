//! What a disk retries, counts and verifies.

use std::io;
use std::sync::Arc;

use betr_core::device::MemoryDevice;
use betr_core::disk::Disk;
use betr_lab::explore::devices::{Call, FaultyDevice, Trouble};

/// How often the disk tries a call of the device.
const TRIES: u64 = 3;

#[test]
fn transient_errors_are_tried_again_and_others_are_not() {
    use io::ErrorKind::{Interrupted, Other, TimedOut, WouldBlock};
    for kind in [Interrupted, TimedOut, WouldBlock, Other] {
        for failing in 0..=TRIES {
            let device = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(8192))));
            for nth in 0..failing {
                device.plan(Call::Read(nth), Trouble::Kind(kind));
                device.plan(Call::Write(nth), Trouble::Kind(kind));
            }
            let disk = Disk::new(device.clone());
            let most = if kind == Other { 1 } else { TRIES };
            assert_eq!(disk.write(4096, &[7; 10]).is_ok(), failing < most, "{kind} {failing}");
            let read = disk.read(4096, 10);
            assert_eq!(read.is_ok(), failing < most, "{kind} {failing}");
            assert!(read.is_err() || read.unwrap() == [7; 10]);
            let calls = (failing + 1).min(most);
            assert_eq!(device.calls(), (calls, calls, 0));
            // What the caller asked for, not what it took.
            assert_eq!((disk.counts().reads, disk.counts().writes), (1, 1));
        }
    }
}
