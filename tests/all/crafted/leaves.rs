//! Crafted leaves: keys out of bounds, heads that state other lengths than key sections.

use super::*;

/// A key section with values of a given length.
pub(super) fn section(chunks: Vec<ChunkRef>, keys: &[Key], bytes: usize) -> KeySection {
    KeySection::new(DATA, chunks, keys.iter().map(|key| (&**key, bytes)))
}

pub(super) fn keys_of(bounds: &Bounds, count: u32) -> Vec<Key> {
    let suffix = |number: u32| key(&[&bounds.lo[..], &number.to_be_bytes()].concat());
    (0..count).map(suffix).collect()
}

/// A leaf with one value of `bytes` zeros, and what its head states of small chunks and file blocks.
fn with_values(mut forge: Forge, bytes: usize, stated: (u32, u32)) -> Vec<u8> {
    let (id, bounds) = leaf(&mut forge);
    let keys = keys_of(&bounds, 1);
    let chunk = (bytes, Hash::of(&vec![0; bytes]));
    let chunks = placed_chunks(DATA, std::iter::once(chunk)).collect();
    forge.put_leaf(id, DATA, bounds, &keys, &[(section(chunks, &keys, bytes), stated)]);
    forge.seal()
}

pub(super) const CASES: &[Case] = &[
    ("an empty leaf in the middle", Wrong, |mut forge| {
        let (id, bounds) = leaf(&mut forge);
        forge.put_leaf(id, DATA, bounds, &[], &[]);
        // A leaf may be empty; but a file's blocks have gone, which is no damage: force a finding.
        forge.seal_with(|superblock| superblock.used_blocks += 1)
    }),
    ("keys outside the bounds of the leaf", Finds(Code::PartInvalid), |mut forge| {
        let (id, bounds) = leaf(&mut forge);
        let keys = [bounds.lo.clone(), bounds.hi.clone().unwrap().successor()];
        let section = section(Vec::new(), &keys, 0);
        forge.put_leaf(id, DATA, bounds.clone(), &keys[..1], &[(section, (0, 0))]);
        forge.seal()
    }),
    ("keys out of order", Finds(Code::PartInvalid), |mut forge| {
        let (id, bounds) = leaf(&mut forge);
        let mut keys = keys_of(&bounds, 3);
        keys.swap(1, 2);
        let section = section(Vec::new(), &keys, 0);
        forge.put_leaf(id, DATA, bounds.clone(), &keys[..1], &[(section, (0, 0))]);
        forge.seal()
    }),
    ("two basements with the same keys", Finds(Code::PartInvalid), |mut forge| {
        let (id, bounds) = leaf(&mut forge);
        let keys = keys_of(&bounds, 3);
        let section = |keys: &[Key]| (section(Vec::new(), keys, 0), (0, 0));
        forge.put_leaf(
            id,
            DATA,
            bounds.clone(),
            &keys[..2],
            &[section(&keys), section(&keys[1..])],
        );
        forge.seal()
    }),
    ("small chunks longer than the head says", Finds(Code::PartInvalid), |forge| {
        with_values(forge, 8, (7, 0))
    }),
    ("more file blocks than entries", Finds(Code::PartInvalid), |forge| {
        with_values(forge, 4096, (0, 2))
    }),
    ("a small chunk where the head says a file block", Finds(Code::PartInvalid), |forge| {
        with_values(forge, 8, (0, 1))
    }),
    ("keys that unfold to much more", Wrong, |mut forge| {
        let (id, bounds) = leaf(&mut forge);
        let stem = [&bounds.lo[..], &[1; 900][..]].concat();
        let mut keys: Vec<Key> =
            (0..16_000u32).map(|n| key(&[&stem[..], &n.to_be_bytes()].concat())).collect();
        keys.retain(|key| bounds.contains(key));
        let first = keys[..1].to_vec();
        forge.put_leaf(id, DATA, bounds, &first, &[(section(Vec::new(), &keys, 0), (0, 0))]);
        forge.seal()
    }),
];
