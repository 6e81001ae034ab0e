//! Repair: whatever block is damaged, what comes of it is sound, and has lost no more than what was there.

use std::sync::Arc;

use betr_core::check::{CheckOptions, Finding, Report, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::format::FileType;
use betr_core::fs::{Fs, Walk};
use betr_core::ids::{BLOCK_SIZE, Time};
use betr_core::mend::{Repair, Repairable, repair};
use betr_core::volume::Mode;
use betr_tests::{clock, open, tight};

use crate::hostile;

const ALL: CheckOptions = CheckOptions { data: true, slot: None };

/// All paths, with what is there.
fn contents(device: &Arc<dyn Device>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let volume = open(device.clone(), Mode::ReadOnly, tight(), 3).unwrap().0;
    let fs = Fs::open(volume, clock(0));
    let mut walk = Walk::new(fs.root().unwrap());
    let mut all = Vec::new();
    while let Some((path, object)) = walk.next_object(&fs).unwrap() {
        let mut said = format!("{:?} {:?}", object.inode(), fs.xattrs(&object).unwrap());
        if object.inode().kind == FileType::Regular {
            said += &format!("{:?}", fs.read(&object, 0, 1 << 20).unwrap());
        }
        all.push((path, said.into_bytes()));
    }
    all
}

/// What a repair is made of an image: the findings before, what it lost, and what is there afterwards.
fn mended(what: &str, bytes: Vec<u8>) -> Option<(Report, Repair, Arc<dyn Device>)> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from(bytes));
    let before = check(&device, ALL, &mut ());
    if matches!(before.repairable(), Repairable::Nothing | Repairable::No) {
        return None;
    }
    let done = repair(&device, &before, None, Time::default(), Box::new(|| 7))
        .unwrap_or_else(|error| panic!("{what}: {error}: {:?}", before.findings));
    let after = check(&device, ALL, &mut ());
    let left = &after.findings;
    assert!(left.is_empty(), "{what}: {left:?}\nbefore: {:?}\n{done:#?}", before.findings);
    Some((before, done, device))
}

/// How a block is damaged.
const WAYS: [&str; 4] = ["zeroed", "first bit", "last bit", "swapped"];

fn damaged(image: &[u8], block: usize, way: &str) -> Vec<u8> {
    let mut bytes = image.to_vec();
    let range = block * BLOCK_SIZE..(block + 1) * BLOCK_SIZE;
    match way {
        "zeroed" => bytes[range].fill(0),
        "first bit" => bytes[range.start] ^= 0x80,
        "last bit" => bytes[range.end - 1] ^= 1,
        _ => {
            // With another that is far away.
            let other = (block + 77) % (image.len() / BLOCK_SIZE) * BLOCK_SIZE;
            bytes.copy_within(other..other + BLOCK_SIZE, range.start);
            bytes[other..other + BLOCK_SIZE].copy_from_slice(&image[range]);
        }
    }
    bytes
}

#[test]
fn whatever_block_is_damaged_the_rest_is_repaired() {
    let image = hostile::image(2 << 20);
    let sound: Arc<dyn Device> = Arc::new(MemoryDevice::from(image.clone()));
    let sound = contents(&sound);
    let (mut repaired, mut whole) = (0, 0);
    for block in 0..image.len() / BLOCK_SIZE {
        for way in WAYS {
            let bytes = damaged(&image, block, way);
            if bytes == image {
                continue;
            }
            let what = format!("block {block} {way}");
            let Some((before, done, device)) = mended(&what, bytes) else { continue };
            repaired += 1;
            // Tables and maps are found again as a whole.
            let found = |f: &Finding| f.code.problem().name.starts_with(['I', 'S', 'M', 'T']);
            if way != "swapped" && before.findings.iter().all(found) {
                let losses = done.mended.map_or(Vec::new(), |mended| mended.losses);
                assert_eq!(losses, [], "{what}");
                assert!(contents(&device) == sound, "{what}");
                whole += 1;
            }
        }
    }
    println!("{repaired} repaired, {whole} of them without loss");
    assert!(repaired > 150 && whole > 20, "{repaired} repaired, {whole} of them without loss");
}
