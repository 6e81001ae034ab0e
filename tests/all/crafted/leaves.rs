//! Crafted leaves: keys out of bounds, values that share bytes, directories of basements that lie.

use super::*;

/// A section of keys with values of a given length.
pub(super) fn section(chunks: Vec<ChunkRef>, keys: &[Key], bytes: usize) -> KeySection {
    KeySection::new(DATA, chunks, keys.iter().map(|key| (&**key, bytes)))
}

pub(super) fn keys_of(bounds: &Bounds, count: u32) -> Vec<Key> {
    let suffix = |number: u32| key(&[&bounds.lo[..], &number.to_be_bytes()].concat());
    (0..count).map(suffix).collect()
}

/// Blocks that all lie at the same place, in as many basements as asked for.
pub(super) fn bomb(mut forge: Forge, basements: u32, each: u32) -> Vec<u8> {
    let (id, bounds) = leaf(&mut forge);
    let keys = keys_of(&bounds, basements * each);
    let firsts: Vec<Key> = keys.iter().step_by(each as usize).cloned().collect();
    let value = vec![7; 4096];
    let chunk = ChunkRef { offset: 0, bytes: 4096, hash: Hash::of(&value) };
    forge.put_leaf(id, DATA, bounds, &firsts, |head| {
        let section = |keys: &[Key], offset| {
            section(vec![ChunkRef { offset, ..chunk }; keys.len()], keys, 4096)
        };
        let lengths = keys.chunks(each as usize).map(|keys| section(keys, 0).encode().len());
        let end = head + lengths.sum::<usize>() as u32;
        let offset = end.next_multiple_of(4096);
        let rest = [vec![0; (offset - end) as usize], value.clone()].concat();
        (keys.chunks(each as usize).map(|keys| section(keys, offset)).collect(), rest)
    });
    forge.seal()
}

pub(super) const CASES: &[Case] = &[
    ("an empty leaf in the middle", Wrong, |mut forge| {
        let (id, bounds) = leaf(&mut forge);
        forge.put_leaf(id, DATA, bounds, &[], |_| (Vec::new(), Vec::new()));
        // A leaf may be empty; but a file's blocks have gone, which is no damage: force a finding.
        forge.seal_with(|superblock| superblock.used_blocks += 1)
    }),
    ("keys outside the bounds of the leaf", Finds(Code::PartInvalid), |mut forge| {
        let (id, bounds) = leaf(&mut forge);
        let keys = [bounds.lo.clone(), bounds.hi.clone().unwrap().successor()];
        forge.put_leaf(id, DATA, bounds.clone(), &keys[..1], |_| {
            (vec![section(Vec::new(), &keys, 0)], Vec::new())
        });
        forge.seal()
    }),
    ("keys out of order", Finds(Code::PartInvalid), |mut forge| {
        let (id, bounds) = leaf(&mut forge);
        let mut keys = keys_of(&bounds, 3);
        keys.swap(1, 2);
        forge.put_leaf(id, DATA, bounds.clone(), &keys[..1], |_| {
            (vec![section(Vec::new(), &keys, 0)], Vec::new())
        });
        forge.seal()
    }),
    ("two basements with the same keys", Finds(Code::PartInvalid), |mut forge| {
        let (id, bounds) = leaf(&mut forge);
        let keys = keys_of(&bounds, 3);
        forge.put_leaf(id, DATA, bounds.clone(), &keys[..2], |_| {
            let sections = [&keys[..], &keys[1..]].map(|keys| section(Vec::new(), keys, 0));
            (sections.into(), Vec::new())
        });
        forge.seal()
    }),
    ("a chunk that overlaps the head", Finds(Code::PartInvalid), |mut forge| {
        let (id, bounds) = leaf(&mut forge);
        let keys = keys_of(&bounds, 1);
        forge.put_leaf(id, DATA, bounds, &keys, |_| {
            // The first eight bytes are the magic, whose hash is known.
            let hash = Hash::of(Magic::Leaf.bytes());
            let chunks = vec![ChunkRef { offset: 0, bytes: 8, hash }];
            (vec![section(chunks, &keys, 8)], vec![1; 8])
        });
        forge.seal()
    }),
    ("many blocks at one place", Wrong, |forge| bomb(forge, 1, 12_000)),
    ("many basements with blocks at one place", Wrong, |forge| bomb(forge, 8_000, 2)),
    ("keys that unfold to much more", Wrong, |mut forge| {
        let (id, bounds) = leaf(&mut forge);
        let stem = [&bounds.lo[..], &[1; 900][..]].concat();
        let mut keys: Vec<Key> =
            (0..16_000u32).map(|n| key(&[&stem[..], &n.to_be_bytes()].concat())).collect();
        keys.retain(|key| bounds.contains(key));
        let first = keys[..1].to_vec();
        forge.put_leaf(id, DATA, bounds, &first, |_| {
            (vec![section(Vec::new(), &keys, 0)], Vec::new())
        });
        forge.seal()
    }),
];
