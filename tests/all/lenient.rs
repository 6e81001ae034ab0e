//! Failing devices: unreadable blocks are treated as zeros, so everything else can be repaired.

use std::sync::Arc;

use betr_core::check::{CheckOptions, Repairable, check};
use betr_core::device::{Device, MemoryDevice, OverlayDevice};
use betr_core::ids::{BLOCK_SIZE, Time};
use betr_core::mend::repair;
use betr_core::volume::stated_bytes;
use betr_lab::explore::devices::FaultyDevice;
use betr_offline::device::LenientDevice;

use crate::hostile;

const ALL: CheckOptions = CheckOptions::ALL;

#[test]
fn what_cannot_be_read_is_as_good_as_zeroed() {
    let image = hostile::image(2 << 20);
    let (len, block) = (image.len() as u64, BLOCK_SIZE as u64);
    let mut repaired = 0;
    for at in (0..len / block)
        .filter(|at| image[(at * block) as usize..][..BLOCK_SIZE] != [0; BLOCK_SIZE])
    {
        let bytes = at * block..(at + 1) * block;
        let faulty = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::from(image.clone()))));
        faulty.spoil(bytes.clone());
        let lenient = Arc::new(LenientDevice::new(faulty, len));
        let view: Arc<dyn Device> = Arc::new(OverlayDevice::new(lenient.clone()));
        let mut zeroed = image.clone();
        zeroed[bytes.start as usize..bytes.end as usize].fill(0);
        let zeroed: Arc<dyn Device> = Arc::new(MemoryDevice::from(zeroed));

        let [found, expected] = [&view, &zeroed].map(|device| check(device, ALL, &mut ()));
        assert_eq!(found.findings, expected.findings, "block {at}");
        // The reader has recorded it.
        let missing = lenient.missing();
        assert!(missing.is_empty() || missing.iter().eq([&bytes]), "block {at}: {missing:?}");
        assert!(!missing.is_empty() || found.is_clean(), "block {at}");
        if matches!(found.repairable(), Repairable::Nothing | Repairable::No) {
            continue;
        }
        let done = [(&view, &found), (&zeroed, &expected)].map(|(device, report)| {
            repair(device, report, None, Time::default(), Box::new(|| 7)).unwrap()
        });
        assert_eq!(done[0], done[1], "block {at}");
        assert_eq!(check(&view, ALL, &mut ()).findings, [], "block {at}");
        repaired += 1;
    }
    assert!(repaired > 20, "{repaired}");
}

#[test]
fn an_image_says_how_long_it_is() {
    let mut image = hostile::image(2 << 20);
    let len = Some(image.len() as u64);
    let says = |image: &[u8]| {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from(image.to_vec()));
        stated_bytes(&device)
    };
    assert_eq!(says(&image), len);
    assert_eq!(says(&image[..1 << 20]), len);
    // Without the identity block, the superblocks give the length; without both, nothing does.
    image[16 * BLOCK_SIZE] ^= 1;
    assert_eq!(says(&image[..1 << 20]), len);
    image[32 * BLOCK_SIZE..48 * BLOCK_SIZE].fill(0);
    assert_eq!(says(&image), None);
}
