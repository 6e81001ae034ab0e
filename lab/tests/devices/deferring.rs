//! A device over a host without room.

use std::io::ErrorKind;
use std::sync::Arc;

use betr_core::Error;
use betr_core::device::{DeferringDevice, Device, MemoryDevice};
use betr_core::disk::Disk;
use betr_core::ids::BLOCK_SIZE;
use betr_lab::explore::devices::FaultyDevice;

const BLOCK: u64 = BLOCK_SIZE as u64;

fn full() -> (Arc<MemoryDevice>, Arc<FaultyDevice>, DeferringDevice) {
    let memory = Arc::new(MemoryDevice::new(16 * BLOCK));
    let faulty = Arc::new(FaultyDevice::new(memory.clone()));
    faulty.fill_up(true);
    (memory, faulty.clone(), DeferringDevice::new(faulty, 4 * BLOCK_SIZE))
}

#[test]
fn what_has_no_room_is_held_until_there_is_some() {
    let (memory, faulty, deferring) = full();
    memory.write_at(2 * BLOCK, &[7; BLOCK_SIZE]).unwrap();
    deferring.write_at(2 * BLOCK + 10, b"held").unwrap();
    deferring.write_at(3 * BLOCK - 1, b"ab").unwrap();
    // The youngest counts, also where it comes when there is room again.
    deferring.write_at(2 * BLOCK + 10, b"H").unwrap();
    assert_eq!(deferring.deferred_bytes(), 2 * BLOCK_SIZE);
    assert_eq!(deferring.write_deferred().unwrap_err().kind(), ErrorKind::StorageFull);
    let read = |device: &dyn Device| {
        let mut found = vec![0; 2 * BLOCK_SIZE];
        device.read_at(2 * BLOCK, &mut found).unwrap();
        found
    };
    let seen = read(&deferring);
    assert_eq!((&seen[9..15], &seen[4095..4098]), (&b"\x07Held\x07"[..], &b"ab\0"[..]));
    assert_eq!(read(&*memory)[..BLOCK_SIZE], [7; BLOCK_SIZE]);
    faulty.fill_up(false);
    deferring.write_at(2 * BLOCK + 13, b"D").unwrap();
    deferring.write_deferred().unwrap();
    let seen = read(&*memory);
    assert_eq!((&seen[9..15], &seen[4095..4098]), (&b"\x07HelD\x07"[..], &b"ab\0"[..]));
    assert_eq!(deferring.deferred_bytes(), 0);
}

#[test]
fn no_more_is_held_than_may_be() {
    let (_, _, deferring) = full();
    deferring.write_at(0, &[1; 3 * BLOCK_SIZE]).unwrap();
    let beyond = deferring.write_at(4 * BLOCK, &[1; 2 * BLOCK_SIZE]);
    assert_eq!(beyond.unwrap_err().kind(), ErrorKind::StorageFull);
    deferring.write_at(BLOCK, &[1; 3 * BLOCK_SIZE]).unwrap();
    assert_eq!(deferring.deferred_bytes(), 4 * BLOCK_SIZE);
}

/// A write of another thread that is refused between the two steps of a flush is not among what it makes durable.
#[test]
fn a_flush_does_not_wait_for_what_is_deferred_meanwhile() {
    let (_, faulty, deferring) = full();
    deferring.write_deferred().unwrap();
    deferring.write_at(BLOCK, &[2; BLOCK_SIZE]).unwrap();
    deferring.flush().unwrap();
    assert_eq!(deferring.deferred_bytes(), BLOCK_SIZE);
    let disk = Disk::new(Arc::new(deferring));
    assert!(matches!(disk.flush(), Err(Error::HostFull { .. })));
    faulty.fill_up(false);
    disk.flush().unwrap();
}
