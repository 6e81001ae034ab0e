//! The reserve: space that is set aside so that a volume never gets stuck. Computes needs in blocks and maps from the
//! geometry, the size of the image, and the pending messages. docs/reserve.md derives them.

use super::Transaction;
use super::holds::HOLD_BLOCKS;
use crate::format::{
    Action, ENTRIES_PER_PAGE, Growth, Inflow, Key, Op, RecordMessage, limits, parse_data_key,
};
use crate::ids::*;
use crate::node::Item;
use crate::space::Need;
use crate::store::{Geometry, Store};
use crate::tuning::{DELETES_MAX, DELETES_SHARE};

/// 60 bytes: the most that a message or an entry takes besides key and value.
pub(super) const ENTRY_BYTES: usize = 60;
/// 16 blocks: the most that an operation takes besides its bytes.
pub(super) const OPERATION_BLOCKS: u64 = 16;
/// A leaf that gets messages may take two more blocks, for a partly filled basement and a partly filled block. It may
/// then split, and its second half takes one more. Both halves may be scattered.
const LEAF_NEED: Need = Need { blocks: 3, maps: 2 };
/// A leaf that gets messages in steps may be 3 times the leaf size, if it could not be split for lack of space.
const LEAF_SIZES: usize = 3;

/// What an operation may use of the reserve for deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// Nothing: it leaves more bytes of entries than before.
    Takes,
    /// Half of it: it leaves no more bytes of entries. Its messages need space until buffers are drained.
    Keeps,
    /// All of it: it frees more than it takes, or changes attributes only.
    Frees,
}

/// Whether nodes of this geometry and the reserve fit into half of a volume of `image_blocks` blocks.
pub(super) fn suits(geometry: Geometry, image_blocks: u64) -> bool {
    let steps = path_need(geometry, image_blocks, Height(2));
    (steps + reserve_for_deletes(geometry, image_blocks)).all() <= image_blocks / 2
}

/// The need of leaves for `entries` entries of `bytes` bytes in total.
pub(super) fn need_of(geometry: Geometry, bytes: u64, entries: u64) -> Need {
    let leaves = geometry.leaves_of(bytes).min(entries);
    Need::of_blocks(bytes.div_ceil(BLOCK_SIZE as u64)) + divided_need(geometry, leaves)
}

/// The need of leaves for `bytes` bytes of a file, written in order. A leaf ends where the next 4 KiB block does not
/// fit, so it holds at least the leaf size less one block with its entry.
pub(super) fn need_in_order(geometry: Geometry, bytes: u64) -> Need {
    let blocks = bytes.div_ceil(BLOCK_SIZE as u64);
    let block = (BLOCK_SIZE + ENTRY_BYTES + limits::KEY_MAX) as u64;
    let leaf = u64::from(geometry.leaf_size).saturating_sub(block).max(BLOCK_SIZE as u64);
    Need::of_blocks(blocks) + divided_need(geometry, (bytes / leaf + 1).min(blocks))
}

/// The need of `leaves` new leaves besides their entries: for each a block (its head and the unused end) and a map, 2
/// blocks and a map for each parent, which has at least half the fanout, and the pages of the table.
fn divided_need(geometry: Geometry, leaves: u64) -> Need {
    let parents = 2 * leaves / u64::from(geometry.fanout);
    let pages = leaves / ENTRIES_PER_PAGE as u64;
    Need { blocks: leaves + 2 * parents + pages, maps: leaves + parents }
}

/// The need of leaves when pending messages make them longer, with their new parents and the pages of the table for new
/// leaves. The blocks that the messages take in buffers become free.
pub(super) fn growth_need(store: &Store, inflow: Inflow) -> Need {
    let Inflow { bytes, growth } = inflow;
    if growth == Growth::default() {
        return Need::default();
    }
    let geometry = store.geometry;
    let leaves = growth.messages.min(store.nodes_max());
    let parents = 2 * leaves / u64::from(geometry.fanout);
    let pages = leaves / ENTRIES_PER_PAGE as u64 + 1;
    let Need { blocks, maps } = LEAF_NEED;
    let touched = Need { blocks: leaves * blocks, maps: leaves * maps };
    let longer = Need::of_blocks(growth.bytes.div_ceil(BLOCK_SIZE as u64));
    let divided = divided_need(geometry, geometry.leaves_of(bytes + growth.bytes));
    longer + divided + touched + Need { blocks: 2 * parents + pages, maps: parents }
}

/// The space that must stay free after an operation: the reserve for steps, the growth of leaves by pending messages,
/// the part of the reserve for deletes that the claim leaves, and the need of dropping a hold.
pub(super) fn kept_for(store: &Store, image_blocks: u64, claim: Claim) -> Need {
    kept_after(store, image_blocks, claim, Inflow::default())
}

/// As [`kept_for`], after a step that copies messages with this inflow.
pub(super) fn kept_after(store: &Store, image_blocks: u64, claim: Claim, copied: Inflow) -> Need {
    let steps = path_need(store.geometry, image_blocks, store.height());
    let reserve = reserve_for_deletes(store.geometry, image_blocks);
    let deletes = match claim {
        Claim::Takes => reserve,
        Claim::Keeps => Need::of_blocks(reserve.all() / 2),
        Claim::Frees => Need::default(),
    };
    let drops = if store.space.held_blocks() > 0 { HOLD_BLOCKS } else { 0 };
    steps + growth_need(store, store.inflow() + copied) + deletes + Need::of_blocks(drops)
}

/// The need of a path from a root of this height to a leaf, which only this path leads to (invariant 6): all nodes are rewritten at their maximum size, and one of
/// them flushes its entire buffer to the leaf. The bytes take no more blocks there, but split the leaf.
pub(super) fn path_need(geometry: Geometry, image_blocks: u64, height: Height) -> Need {
    let node = level_need(geometry, image_blocks);
    let leaf = LEAF_SIZES * geometry.leaf_size as usize;
    let taken = 2 * geometry.between_size(image_blocks) as usize;
    let (levels, new) = (u64::from(height.0), geometry.nodes_of((leaf + taken) as u64, height));
    let nodes = Need { blocks: levels * node.blocks, maps: levels * node.maps };
    // Two levels of table pages, and no more than the nodes of one block each would fill.
    let pages = 2 * (levels + new).min(image_blocks / ENTRIES_PER_PAGE as u64 + 1);
    nodes + Need::of_image(leaf) + Need { blocks: 2 * new + pages, maps: new + 1 }
}

/// The reserve for operations that free space: their messages wait in buffers until a drain, and an open file moves
/// when it loses its name. When a tree grows by a level, one level of this becomes reserve for steps.
pub(super) fn reserve_for_deletes(geometry: Geometry, image_blocks: u64) -> Need {
    let share = (image_blocks / DELETES_SHARE).min(DELETES_MAX) + 2 * OPERATION_BLOCKS;
    Need::of_blocks(share.max(level_need(geometry, image_blocks).all()))
}

/// The need of an internal node of maximum size.
fn level_need(geometry: Geometry, image_blocks: u64) -> Need {
    Need::of_image(geometry.internal_bytes_max(image_blocks)) + Need { blocks: 1, maps: 1 }
}

/// The most that an ordinary step dirties: three internal nodes, two of which merge, and a few leaves, which may grow.
/// Steps that copy shared nodes are looked at one by one instead.
pub(super) fn usual_step_need(store: &Store, image_blocks: u64) -> Need {
    let geometry = store.geometry;
    let growth = store.inflow().growth.bytes.min(geometry.growth_at_once() as u64);
    let largest = u64::from(geometry.between_size(image_blocks));
    let bytes = 4 * u64::from(geometry.leaf_size) + 3 * largest + largest / 4 + growth;
    need_of(geometry, bytes, u64::MAX) + Need::of_blocks(OPERATION_BLOCKS)
}

/// The space that the messages of an operation need.
pub(super) fn room_of(messages: &[RecordMessage]) -> Inflow {
    let bytes = messages.iter().map(bytes_of).sum();
    let rows = messages.chunk_by(are_neighbours).map(|row| {
        let all: Growth = row.iter().map(growth_of).sum();
        // Consecutive blocks of a file fill their leaves, except the first and the last leaf.
        Growth { messages: all.messages.min(2), ..all }
    });
    Inflow { bytes, growth: rows.sum() }
}

/// Whether two messages insert consecutive blocks of a file.
fn are_neighbours(first: &RecordMessage, second: &RecordMessage) -> bool {
    match (first, second) {
        (
            RecordMessage::Point(TreeId::Data, first, Action::Insert(_)),
            RecordMessage::Point(TreeId::Data, second, Action::Insert(_)),
        ) => match (parse_data_key(first), parse_data_key(second)) {
            (Some((prefix, block)), Some(next)) => next == (prefix, block.saturating_add(1)),
            _ => false,
        },
        _ => false,
    }
}

/// How much a message may make a leaf grow.
fn growth_of(message: &RecordMessage) -> Growth {
    let RecordMessage::Point(_, key, action) = message else { return Growth::default() };
    Item::new(key, Msn(0), action).leaf_growth()
}

/// The most bytes that a message takes in a buffer.
fn bytes_of(message: &RecordMessage) -> u64 {
    let bytes = match message {
        RecordMessage::Point(_, key, Action::Update(update)) => key.len() + update.bytes().len(),
        RecordMessage::Point(_, key, action) => key.len() + action.value().len(),
        RecordMessage::RangeDelete(_, lo, hi) => lo.len() + hi.len(),
        RecordMessage::Clone(..) => message.encoded_bytes(),
        RecordMessage::Unbound(key, _) => key.len(),
    };
    (ENTRY_BYTES + bytes) as u64
}

impl Claim {
    /// The claim of a transaction, as far as it is known without the trees.
    pub(super) fn of(transaction: &Transaction) -> Claim {
        let frees = match transaction.op {
            Op::Unlink | Op::Rmdir | Op::Truncate | Op::RemoveXattr | Op::SetAttributes => true,
            Op::RemoveTree | Op::Reap => true,
            _ => transaction.messages.iter().all(RecordMessage::frees),
        };
        if frees { Claim::Frees } else { Claim::Takes }
    }
}

/// The bytes of entries by which a message makes a leaf grow, if the key has a value of `before` bytes.
pub(super) fn gain(key: &Key, before: Option<usize>, action: &Action) -> i64 {
    let entry = |value: Option<usize>| value.map_or(0, |value| (key.len() + value) as i64);
    let after = match action {
        Action::Insert(value) => Some(value.len()),
        Action::Delete => None,
        Action::Update(update) => update.apply_len(before),
    };
    entry(after) - entry(before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::data_key;
    use crate::format::limits::HEIGHT_MAX;

    const SMALL: Geometry =
        Geometry { node_size: 16 << 10, leaf_size: 8 << 10, basement_size: 4096, fanout: 4 };

    fn usual() -> Geometry {
        Geometry::of_image(64 << 20)
    }

    #[test]
    fn leaves_take_more_than_their_bytes() {
        // Geometry, bytes and entries; blocks and maps.
        let cases = [
            (usual(), 0, 0, (0, 0)),
            (usual(), 1, 1, (1, 0)),
            (usual(), 1 << 20, 1, (256 + 1, 1)),
            // 32 leaves of half the size, and a parent.
            (usual(), 1 << 20, 1000, (256 + 32 + 2, 32 + 1)),
            // Two leaves of a block each, and a parent for two of them.
            (SMALL, 8 << 10, 2, (2 + 2 + 2, 2 + 1)),
        ];
        for (geometry, bytes, entries, (blocks, maps)) in cases {
            let need = need_of(geometry, bytes, entries);
            assert_eq!(need, Need { blocks, maps }, "{bytes} bytes of {entries} entries");
        }
    }

    #[test]
    fn a_file_in_order_takes_what_full_leaves_take() {
        for (geometry, bytes, most) in [(usual(), 64 << 20, 10), (SMALL, 1 << 20, 400)] {
            let (blocks, need) = (bytes / BLOCK_SIZE as u64, need_in_order(geometry, bytes).blocks);
            assert!(need > blocks && need <= blocks + blocks * most / 100, "{need} for {blocks}");
            let entries = need_of(geometry, bytes, blocks);
            assert!(need <= entries.blocks, "{need}, and {entries:?} in any order");
        }
    }

    /// The reserve for steps covers the largest step: a node flushes its largest possible buffer to one leaf.
    #[test]
    fn the_reserve_for_steps_covers_the_largest_step() {
        for image_blocks in [1 << 9, 1 << 12, 1 << 18, 1 << 30] {
            let geometry = Geometry::of_image(image_blocks * BLOCK_SIZE as u64);
            let mut before = 0;
            for height in 1..=HEIGHT_MAX {
                let reserve = path_need(geometry, image_blocks, Height(height));
                let pending = 2 * geometry.between_size(image_blocks) as usize;
                let node = Need::of_image(geometry.internal_bytes_max(image_blocks));
                let leaf = Need::of_image(geometry.leaf_size as usize + pending);
                let new = geometry.nodes_of(pending as u64, Height(height));
                // The node is written without the buffer that it flushed.
                let given = (pending / BLOCK_SIZE) as u64;
                let blocks = u64::from(height) * node.blocks + leaf.blocks - given + 2 * new;
                let maps = u64::from(height) * node.maps + leaf.maps + new;
                assert!(reserve.blocks >= blocks && reserve.all() >= blocks + maps, "{reserve:?}");
                assert!(reserve.all() > before, "a higher tree needs more");
                before = reserve.all();
            }
        }
    }

    #[test]
    fn blocks_in_a_row_come_to_few_leaves() {
        let insert = |ino: u64, block: u64| {
            let key = data_key(&ino.to_be_bytes(), block);
            RecordMessage::Point(TreeId::Data, key, Action::Insert(vec![1; BLOCK_SIZE].into()))
        };
        // Blocks of files; the number of leaves that they may make grow.
        let cases: [(&[(u64, u64)], u64); 5] = [
            (&[(1, 0)], 1),
            (&[(1, 0), (1, 1)], 2),
            (&[(1, 0), (1, 1), (1, 2), (1, 3)], 2),
            (&[(1, 0), (1, 2), (1, 4)], 3),
            (&[(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)], 4),
        ];
        for (blocks, leaves) in cases {
            let messages: Vec<_> = blocks.iter().map(|(ino, block)| insert(*ino, *block)).collect();
            let Inflow { bytes, growth } = room_of(&messages);
            assert_eq!(growth.messages, leaves, "{blocks:?}");
            assert!(bytes > (blocks.len() * BLOCK_SIZE) as u64, "{blocks:?}");
            assert!(growth.bytes < bytes, "a value leaves the room that it took in a buffer");
        }
    }
}
