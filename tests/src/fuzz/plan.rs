//! Repair plans: the header, changes, and whole files.

use std::sync::Arc;

use betr_core::device::{Device, MemoryDevice};
use betr_core::format::*;
use betr_core::ids::*;
use betr_offline::plan::{Plan, PlanView, Standing, apply, locate};

use super::Input;
use super::structure::sealed;

/// 72 blocks: the image of plans, with the fixed places and a few more.
const BLOCKS: u64 = 72;

/// Headers; changes; and whole plans, which are applied if they are valid.
pub fn plan(bytes: &[u8]) -> bool {
    let Some(input) = Input::of(bytes, 3) else { return false };
    match input.which {
        0 => sealed(&input, Magic::Plan, PlanHeader::decode, PlanHeader::encode).is_some(),
        1 => change(input.bytes),
        _ if input.as_it_is => file(input.bytes.to_vec(), None),
        _ => {
            let (bytes, image) = made(input.bytes);
            file(bytes, Some(image))
        }
    }
}

/// A change: its fields, and the first bytes of the old and new blocks.
fn change(bytes: &[u8]) -> bool {
    let (front, rest) = bytes.split_at(bytes.len().min(16));
    let (old, new) = rest.split_at(rest.len() / 2);
    let mut bytes = front.to_vec();
    bytes.resize(16, 0);
    for part in [old, new] {
        let end = bytes.len() + BLOCK_SIZE;
        bytes.extend_from_slice(&part[..part.len().min(BLOCK_SIZE)]);
        bytes.resize(end, 0);
    }
    let header = PlanHeader { groups: 5, changes: 9, ..header() };
    match Change::decode(&bytes, &header) {
        Ok(change) => {
            assert!(change.encode(Vec::new()) == bytes);
            assert!(Change::decode(&bytes[1..], &header).is_err());
            assert!(Change::decode(&bytes[..CHANGE_BYTES - 1], &header).is_err());
            true
        }
        Err(error) => {
            assert!(error.at <= CHANGE_BYTES, "{error}");
            false
        }
    }
}

fn header() -> PlanHeader {
    PlanHeader {
        birth: Birth { volume: VolumeId::default(), epoch: Epoch(1), nonce: Nonce(1) },
        kind: PlanKind::Repair,
        image_blocks: BLOCKS,
        base: Hash::default(),
        result: Hash::default(),
        body: Hash::default(),
        explanation_bytes: 0,
        groups: 1,
        changes: 1,
        fixed: vec![Extent { start: BlockNr(0), blocks: 64 }],
        corrects: true,
    }
}

/// A plan with correct hashes, and its image. The input has the number of groups, the length of the explanation, the
/// explanation, and three bytes for each change: block, group, and new content.
fn made(bytes: &[u8]) -> (Vec<u8>, MemoryDevice) {
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let image = MemoryDevice::new(BLOCKS * BLOCK_SIZE as u64);
    let mut after = image.snapshot();
    let rest = bytes.get(2..).unwrap_or_default();
    let (explanation, changes) = rest.split_at(rest.len().min(byte(1).into()));
    let mut body = explanation.to_vec();
    body.resize(explanation.len().next_multiple_of(BLOCK_SIZE), 0);
    let changes = changes.as_chunks::<3>().0;
    for &[block, group, fill] in changes.iter().take(64) {
        let block = usize::from(block) % BLOCKS as usize;
        let range = block * BLOCK_SIZE..(block + 1) * BLOCK_SIZE;
        let mut old = Box::new([0; BLOCK_SIZE]);
        old.copy_from_slice(&after[range.clone()]);
        let new = Box::new([fill; BLOCK_SIZE]);
        after[range].copy_from_slice(&new[..]);
        let block = BlockNr(block as u64);
        body = Change { block, group: group.into(), old, new }.encode(body);
    }
    let fixed = header().fixed;
    let places = |bytes: &[u8]| {
        Hash::of(&[&BLOCKS.to_le_bytes(), &bytes[..fixed[0].bytes() as usize]].concat())
    };
    let header = PlanHeader {
        kind: if byte(0) & 0x80 != 0 { PlanKind::Undo } else { PlanKind::Repair },
        base: places(&image.snapshot()),
        result: places(&after),
        body: Hash::of(&body),
        explanation_bytes: explanation.len(),
        groups: u32::from(byte(0) & 0x7f),
        changes: changes.len().min(64) as u64,
        ..header()
    };
    ([header.encode(), body].concat(), image)
}

/// Tests a file that may be a plan, and its image, if there is one.
fn file(bytes: Vec<u8>, image: Option<MemoryDevice>) -> bool {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from(bytes));
    let Ok(plan) = Plan::open(device.clone()) else { return false };
    for number in 0..plan.header().changes {
        plan.change(number).expect("all changes are verified when a plan is opened");
    }
    let Some(image) = image else { return true };
    let image = Arc::new(image);
    let standing = locate(&plan, &*image).unwrap();
    let laid_over = Plan::open(device).and_then(|plan| PlanView::new(image.clone(), plan)).unwrap();
    let mut expected = vec![0; image.len() as usize];
    laid_over.read_at(0, &mut expected).unwrap();
    // A plan may change blocks and change them back.
    let unchanged = image.snapshot() == expected;
    assert!(standing == Standing::Untouched || unchanged && standing == Standing::Whole);
    apply(&plan, &*image).unwrap();
    assert!(image.snapshot() == expected, "a plan does not what it shows");
    true
}
