//! Crafted bindings: groups whose late-bound values are in impossible places.

use super::*;

pub(super) const CASES: &[Case] = &[
    ("a value bound to a copy of a leaf", Finds(Code::LogReplayed), |mut forge| {
        let (leaf, first) = copy_of_leaf(&mut forge);
        one_value(&mut forge, first, Target::Leaf(leaf));
        forge.seal()
    }),
    ("a value bound to a leaf of the checkpoint", Finds(Code::LogReplayed), |mut forge| {
        let (leaf, first) = some_leaf(&mut forge);
        one_value(&mut forge, first, Target::Leaf(leaf));
        forge.seal()
    }),
    ("a value bound past the end of the image", Finds(Code::LogTorn), |mut forge| {
        let (mut leaf, first) = copy_of_leaf(&mut forge);
        leaf.extent.start = BlockNr(1 << 31);
        one_value(&mut forge, first, Target::Leaf(leaf));
        forge.seal()
    }),
    ("a value bound to a key that the leaf has not", Finds(Code::LogTorn), |mut forge| {
        let (leaf, _) = copy_of_leaf(&mut forge);
        one_value(&mut forge, data_key(&[9; 8], 1 << 60), Target::Leaf(leaf));
        forge.seal()
    }),
    ("a leaf that does not fill its extent", Finds(Code::LogTorn), |mut forge| {
        let (mut leaf, first) = copy_of_leaf(&mut forge);
        leaf.extent.blocks += 1;
        one_value(&mut forge, first, Target::Leaf(leaf));
        forge.seal()
    }),
    ("a leaf of another name", Finds(Code::LogTorn), |mut forge| {
        let (mut leaf, first) = copy_of_leaf(&mut forge);
        leaf.node = NodeId(leaf.node.0 + 1);
        one_value(&mut forge, first, Target::Leaf(leaf));
        forge.seal()
    }),
    ("one leaf bound by two groups", Finds(Code::LogTorn), |mut forge| {
        let (leaf, first) = copy_of_leaf(&mut forge);
        many(&mut forge, 2, |_| (first.clone(), Target::Leaf(leaf)));
        forge.seal()
    }),
    ("extents that overlap", Finds(Code::LogDamaged), |mut forge| {
        let (leaf, first) = copy_of_leaf(&mut forge);
        many(&mut forge, 6, |number| {
            let start = BlockNr(leaf.extent.start.0 + number);
            (
                first.clone(),
                Target::Leaf(BoundLeaf { extent: Extent { start, ..leaf.extent }, ..leaf }),
            )
        });
        forge.seal()
    }),
    (
        "so many values as may be, bound to a leaf that is none",
        Finds(Code::LogDamaged),
        |mut forge| {
            let (leaf, _) = copy_of_leaf(&mut forge);
            let leaf = BoundLeaf { hash: Hash([7; 32]), ..leaf };
            rows(&mut forge, 4, Target::Leaf(leaf));
            forge.seal()
        },
    ),
    (
        "so many values as may be, bound to a slice of everything",
        Finds(Code::LogDamaged),
        |mut forge| {
            let extent = Extent { start: BlockNr(1), blocks: 1279 };
            let bytes = extent.bytes() as u32;
            let (node, hash) = (NodeId(2), Hash([7; 32]));
            let map = Hash::default();
            let slice = BoundSlice { node, extent, offset: 0, bytes, count: bytes / 20, hash, map };
            rows(&mut forge, 4, Target::Slice(slice));
            forge.seal()
        },
    ),
    ("so many values as may be, bound to nothing", Finds(Code::LogReplayed), |mut forge| {
        rows(&mut forge, 5, Target::Null);
        forge.seal()
    }),
    ("groups that vouch for so many lost values", Finds(Code::ValueLost), |mut forge| {
        let (leaf, _) = copy_of_leaf(&mut forge);
        let start = leaf.extent.start.0;
        let mut lsn = forge.superblock.next_msn.0;
        let mut unit = forge.superblock.log_head;
        for number in 0..8 {
            let extent = Extent { start: BlockNr(start + number), blocks: 1 };
            let to = Target::Leaf(BoundLeaf { extent, head_bytes: 100, ..leaf });
            (unit, lsn) = row(&mut forge, unit, number, lsn, to);
        }
        forge.seal()
    }),
    ("a value of one byte more than a block", Finds(Code::LogTorn), |mut forge| {
        let to = Target::Inline(Bytes::from(vec![1; 4097]));
        one_value(&mut forge, data_key(&[9; 8], 1), to);
        forge.seal()
    }),
    ("an inline value for the last key", Finds(Code::LogReplayed), |mut forge| {
        let to = Target::Inline(Bytes::from(vec![1; 4096]));
        one_value(&mut forge, data_key(&[0xff; 1016], u64::MAX), to);
        forge.seal()
    }),
];

/// A leaf of the data index that contains the key of a block, and that key.
fn some_leaf(forge: &mut Forge) -> (BoundLeaf, Key) {
    let is_leaf = |entry: &Entry| entry.tree == DATA && entry.height == Height(0);
    let leaves: Vec<_> = forge.nodes().into_iter().filter(|(_, entry)| is_leaf(entry)).collect();
    for (node, entry) in leaves {
        let first = forge.keys(node).key(0);
        if block_after(&first, 0).is_none() {
            continue;
        }
        let Entry { extent, head_bytes, birth, hash, .. } = entry;
        let map = Hash::default();
        return (BoundLeaf { node, extent, head_bytes, birth, hash, map }, first);
    }
    panic!("no leaf with a block of a file");
}

/// A copy of such a leaf, in blocks that the map marks as free.
fn copy_of_leaf(forge: &mut Forge) -> (BoundLeaf, Key) {
    let (leaf, first) = some_leaf(forge);
    let blocks = leaf.extent.start.0..leaf.extent.end().0;
    let bytes: Vec<u8> = blocks.flat_map(|at| forge.block(BlockNr(at)).to_vec()).collect();
    let extent = forge.put(&bytes);
    forge.mark(extent.start.0..extent.end().0, false);
    (BoundLeaf { extent, ..leaf }, first)
}

fn one_value(forge: &mut Forge, key: Key, to: Target) {
    many(forge, 1, |_| (key.clone(), to.clone()));
}

/// Writes groups with one unbound entry each.
fn many(forge: &mut Forge, groups: u64, bound: impl Fn(u64) -> (Key, Target)) {
    let mut unit = forge.superblock.log_head;
    for number in 0..groups {
        let lsn = forge.superblock.next_msn.0 + number;
        let (key, to) = bound(number);
        let record = forge.record(lsn, vec![RecordMessage::Unbound(key, 1)]);
        let values = vec![MsnRange { first: Msn(lsn), count: 1 }];
        let number = forge.superblock.first_group + number;
        unit = forge.binding_group(unit, number, &[record], &[Binding { values, to }]);
    }
}

/// Writes groups that each bind the maximal number of values, all to one place.
fn rows(forge: &mut Forge, groups: u64, to: Target) {
    let (mut unit, mut lsn) = (forge.superblock.log_head, forge.superblock.next_msn.0);
    for number in 0..groups {
        (unit, lsn) = row(forge, unit, number, lsn, to.clone());
    }
}

fn row(forge: &mut Forge, unit: u64, number: u64, lsn: u64, to: Target) -> (u64, u64) {
    const COUNT: u32 = limits::LATE_VALUES_MAX as u32;
    let key = data_key(&[9; 8], u64::MAX - u64::from(COUNT) + 1);
    let record = forge.record(lsn, vec![RecordMessage::Unbound(key, COUNT)]);
    let values = vec![MsnRange { first: Msn(lsn), count: COUNT }];
    let number = forge.superblock.first_group + number;
    let unit = forge.binding_group(unit, number, &[record], &[Binding { values, to }]);
    (unit, lsn + u64::from(COUNT))
}
