//! A device that goes on where reading fails.

use std::sync::Arc;

use betr_core::device::{Device, MemoryDevice};
use betr_core::ids::BLOCK_SIZE;
use betr_lab::explore::devices::FaultyDevice;
use betr_offline::device::LenientDevice;

fn device(len: usize) -> Arc<FaultyDevice> {
    Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::from(vec![7; len]))))
}

#[test]
fn the_end_that_is_missing_is_zero() {
    let view = LenientDevice::new(device(10_000), 16_384);
    let mut all = vec![1; 16_384];
    view.read_at(0, &mut all).unwrap();
    assert!(all[..10_000].iter().all(|byte| *byte == 7));
    assert!(all[10_000..].iter().all(|byte| *byte == 0));
    assert!(view.missing().iter().eq([&(10_000..16_384)]));
    assert!(view.read_at(16_384, &mut [0]).is_err() && view.write_at(0, &[1]).is_err());
    // A view that is shorter than the device misses nothing.
    let view = LenientDevice::new(device(10_000), 8192);
    view.read_at(0, &mut all[..8192]).unwrap();
    assert!(view.missing().is_empty() && view.read_at(8192, &mut [0]).is_err());
}

#[test]
fn blocks_that_cannot_be_read_are_zero_and_tried_once() {
    let base = device(40_960);
    base.spoil(8193..8194);
    base.spoil(12_288..12_289);
    base.spoil(24_576..24_577);
    let view = LenientDevice::new(base.clone(), 40_960);
    let mut all = vec![1; 40_960];
    for _ in 0..2 {
        view.read_at(0, &mut all).unwrap();
        for (number, block) in all.chunks(BLOCK_SIZE).enumerate() {
            let expected = if [2, 3, 6].contains(&number) { 0 } else { 7 };
            assert!(block.iter().all(|byte| *byte == expected), "block {number}");
        }
    }
    assert_eq!(view.missing(), [8192..16_384, 24_576..28_672]);
    let (reads, ..) = base.calls();
    view.read_at(24_580, &mut [1; 100]).unwrap();
    assert_eq!(base.calls().0, reads);
    assert!(view.misses(&(0..8193)) && !view.misses(&(0..8192)));
    assert!(!view.misses(&(16_384..24_576)) && view.misses(&(28_671..28_672)));
}
