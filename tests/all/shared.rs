//! A file system shared by threads: a reader waits neither for a sync nor for a checkpoint of another thread.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use betr_core::device::MemoryDevice;
use betr_core::error::Blame;
use betr_core::format::FileType;
use betr_core::fs::{Attributes, New, Shared};
use betr_core::ids::Time;
use betr_tests::{Gate, Keeper, formatted, tight, tiny};
use bytes::Bytes;

#[test]
fn who_reads_does_not_wait_for_the_device() {
    let (gate, Keeper { flushes, let_through }) = Gate::new(4 << 20);
    let mut fs = formatted(gate.clone(), tiny(), tight(), 1);
    let root = fs.root().unwrap();
    let file = New::of(FileType::Regular, Attributes::at(Time::default()));
    let file = fs.make(&root, b"file", file).unwrap();
    fs.checkpoint().unwrap();
    gate.close(true);

    let shared = Shared::new(fs);
    let text = Bytes::from_static(b"there");
    for whole in [false, true] {
        shared.change(|fs| fs.write(&file, 0, &text)).unwrap();
        thread::scope(|scope| {
            let ends = scope.spawn(|| if whole { shared.checkpoint() } else { shared.sync() });
            while !ends.is_finished() {
                if flushes.recv_timeout(Duration::from_millis(20)).is_err() {
                    continue;
                }
                // The sync waits for the device now.
                let read = shared.read(|fs| fs.read(&file, 0, 5)).unwrap();
                assert_eq!(read, b"there");
                assert!(!ends.is_finished());
                let_through.send(()).unwrap();
            }
            ends.join().unwrap().unwrap();
        });
    }
}

#[test]
fn a_panic_within_a_change_ends_reads_and_changes() {
    let fs = formatted(Arc::new(MemoryDevice::new(4 << 20)), tiny(), tight(), 1);
    let shared = Shared::new(fs);
    // A panic in a reader does not poison, because it changes nothing.
    let looks = || shared.read(|_| -> betr_core::Result<()> { resume_unwind(Box::new(())) });
    assert!(catch_unwind(AssertUnwindSafe(looks)).is_err());
    shared.change(|fs| fs.root().map(drop)).unwrap();

    let changes = || shared.change(|_| -> betr_core::Result<()> { resume_unwind(Box::new(())) });
    assert!(catch_unwind(AssertUnwindSafe(changes)).is_err());
    let after = [shared.read(|fs| fs.root().map(drop)), shared.change(|_| Ok(())), shared.sync()];
    for error in after.map(Result::unwrap_err) {
        assert_eq!(error.blame(), Blame::Program, "{error}");
        assert!(error.to_string().contains("failed half way"), "{error}");
    }
}
