//! The knobs of the engine: numbers that change how fast it is or how much memory it takes, and neither what an image means nor
//! what survives a crash.
//!
//! Each says the number and its unit, the reason, and what was measured with it (ARCHITECTURE.md, "Decisions", says how). "Not measured"
//! means that no run of ours told it from half or twice as much, or that none was made. What a proof needs, such as the bounds of
//! a step (`volume::reserve`), and what the format says (`format::limits`) are not here.

use crate::ids::BLOCK_SIZE;

// Devices and memory for them.

/// 128 KiB: what the kernel is asked for in one call of what will be read; one request of a usual disk. Not measured.
pub(crate) const FETCH_BYTES: u64 = 128 << 10;

/// 64 MiB: the most that is asked for ahead for one reader, whatever lengths an image states. A bound against hostile images, as long as
/// half of the longest part of a node.
pub(crate) const FETCH_MAX: u64 = 64 << 20;

/// 3 tries in all of a read or write that fails with a transient error. Interrupted calls and timeouts of network block devices
/// pass; a device that is gone fails as often as it is asked, and each timeout may take half a minute.
pub(crate) const TRIES: u32 = 3;

/// 32 KiB: smaller pieces of memory are not kept to be used again; allocators serve these without the kernel.
pub(crate) const BUFFER_LARGE: usize = 32 << 10;

/// 4 MiB: the most that is kept of larger pieces, about one node of 4 MiB.
pub(crate) const BUFFERS_KEPT_BYTES: usize = 4 << 20;

/// 8 pieces are kept at the most. Not measured.
pub(crate) const BUFFERS_KEPT: usize = 8;

/// 64 single blocks, 256 KiB, that lookups have read are kept to be used again. With what a leaf does not add up for each
/// lookup it saved 1 to 2 of 16 µs of a lookup where the kernel has the block (means of five runs).
pub(crate) const BLOCKS_KEPT: usize = 64;

/// 262,144 extents of scattered images that are known at once: more than an image of 1 GiB has blocks. Not measured.
pub(crate) const SCATTERED_KNOWN: usize = 1 << 18;

// Space.

/// 3 blocks: requests up to that come from the first gap that holds them, so that long rows stay long for nodes. Not measured.
pub(crate) const SMALL_BLOCKS: u64 = 3;

/// Above 7/8 full a row is looked for that is not much longer than what is asked for, so that long rows stay whole. Not measured.
pub(crate) const TIGHT_SHARE: u64 = 8;

/// 65,536 extents that have become free are noted for punching, 1 MiB of memory; the others are not offered.
pub(crate) const RELEASED_MAX: usize = 1 << 16;

// Allocation table.

/// 4,096 clean pages, 16 MiB, stay in memory: the entries of 250,000 nodes, or of 100 GB in leaves of 384 KiB.
pub(crate) const CLEAN_PAGES_MAX: usize = 4096;

// Store: the cache, reading ahead, and writing back.

/// 8 KiB: after an edit, a node up to that is checked in debug builds; that costs less than the edit's other work.
pub(crate) const CHECKED_BYTES: usize = 8 << 10;

/// One of 64 edits of larger nodes is followed by a check in debug builds: each costs as much as many edits.
pub(crate) const CHECKED_EDITS: u64 = 64;

/// 1/4 of the cache is the most that the buffers of one node take, so that the nodes of a step fit in. With 16 MiB of cache 20
/// million keys take 66 MiB in all; they took 80 to 96 without this bound and [`CROWDED_SHARE`].
pub(crate) const BUFFERS_SHARE: usize = 4;

/// 8 KiB: edges up to that do not make a node wide, however small nodes are.
pub(crate) const EDGES_MIN: usize = 8 << 10;

/// 2 times what others take, for nodes between the root and those above leaves: what one sends down makes another node write its
/// head and a run. 7.9 bytes written a byte for 8.5, and 9.5 s for 10.4, of ten million updates among 50 million keys; three
/// times as much gains nothing more.
pub(crate) const BETWEEN: u32 = 2;

/// 2,048 nodes: images without room for that have few nodes between, or none ([`BETWEEN`]).
pub(crate) const BETWEEN_NODES_MIN: u64 = 2048;

/// 4 KiB: the usual size of a basement, which is what a cold lookup reads of a leaf, with its head. With parts of 8 KiB lookups
/// among 50 million keys were faster after a recovery (9.2 to 9.6 k/s for 7.4), but each took more of the cache.
pub const BASEMENT_SIZE: u32 = 4 << 10;

/// 3/4 of what is clean is the most that heads alone take, while there is anything else to drop: a head makes a read less of whatever is
/// looked up in its leaf, a part only of what is looked up in it. Not measured apart.
pub(crate) const HEADS_SHARE: f64 = 0.75;

/// 1/4 of what is clean, at the most, for leaves that scans read: what a scan is about to come to must stay.
pub(crate) const SCANS_SHARE: usize = 4;

/// 1/3 of what internal nodes weigh: below that leaves are few, and internal nodes are dropped first.
pub(crate) const LEAVES_SHARE: usize = 3;

/// 128 of the youngest and of the oldest internal nodes are compared where one is to be written. Choosing by the wait for the next
/// messages wrote 8.5 bytes a byte for 9.3 of ten million updates among 50 million keys.
pub(crate) const CANDIDATES: usize = 128;

/// 8 leaves that a scan has verified ahead: of 50 million entries it waited for two groups in five before the kernel was asked for those
/// behind them too, and took 12.8 s for 11.1.
pub(crate) const AHEAD_MAX: usize = 8;

/// 1/32 of the cache is the most that these leaves take.
pub(crate) const AHEAD_SHARE: usize = 32;

/// 16 batches in which nodes are written where memory is short: with fewer more would be dirty at once, with more each write would be
/// small. Not measured.
pub(crate) const BATCHES: usize = 16;

/// 1/8 of what may be dirty, beyond it, waits for the end of an operation; with more, a step writes nodes first ([`BUFFERS_SHARE`]).
pub(crate) const CROWDED_SHARE: usize = 8;

/// 1 MiB: that much always may, however small the cache is.
pub(crate) const CROWDED_MIN: usize = 1 << 20;

/// 4 batches of leaves are in flight at once where all are written: some are encoded while others wait for the device.
pub(crate) const LEAVES_FLIGHTS: usize = 4;

/// A node is written for the sake of its late-bound values if it is at most 2 times as long: beyond that it is cheaper to write them
/// into the log.
pub(crate) const WORTH_WRITING: usize = 2;

/// 8 flights at once; twice as many changed nothing.
pub(crate) const FLIGHTS_MAX: usize = 8;

/// 4 of them, the last, are left the time to be encoded; with seven nothing changed.
pub(crate) const ENCODING_MAX: usize = 4;

/// 1/8 of what may be dirty is the most that nodes in flight weigh, unless there is one flight.
pub(crate) const FLIGHTS_SHARE: usize = 8;

// Nodes.

/// 16 messages: as many join a buffer one by one, unless more are known to come; more are sorted and joined at once.
pub(crate) const ONE_BY_ONE: usize = 16;

/// 1/8 of a leaf: when lookups have read as much piece by piece, some 50 µs each, they have waited longer than a solid-state disk takes
/// for all of it, and it is fetched as a whole. 100,000 cold lookups among 5 million keys take 2.9 s for 4.8.
pub(crate) const WARM_SHARE: u64 = 8;

/// 1/8 of the entries of a leaf: fewer messages are applied one by one, more by joining both lists.
pub(crate) const APPLIED_SHARE: usize = 8;

/// 1/8 more entries than it has: the room that a leaf gets when it is opened for changes.
pub(crate) const SPARE_SHARE: usize = 8;

/// 13 bits of an address within a piece of an arena: pieces of 8 KiB are not moved when a list grows. 5 million inserts a seventh faster,
/// 425 MB resident for 517.
pub(crate) const PIECE_BITS: u32 = 13;

/// 256 bytes: the fewest that are set aside, and those that a piece behind the first begins with.
pub(crate) const PIECE_MIN: usize = 256;

/// 1 KiB: longer values are shared, not copied, when a list takes them.
pub(crate) const COPIED_MAX: usize = 1024;

/// 128 new keys of a list before they join the others. Not measured apart.
pub(crate) const RECENT_MAX: usize = 128;

/// 256 bytes: the fewest that a list grows by.
pub(crate) const LIST_ROOM_MIN: usize = 256;

/// 64 KiB of unused memory of a list are not worth moving the rest.
pub(crate) const WASTE_MIN: usize = 64 << 10;

/// 8 slots are looked at one after the other before a binary search: the next place is seldom far.
pub(crate) const NEAR: usize = 8;

/// 262,144 messages: memory for more is not set aside before they have been read and verified, whatever a head states.
pub(crate) const EXPECTED_MAX: usize = 1 << 18;

/// 16 KiB: slices of a run with no more bytes between them are read in one request, which takes no longer than two.
pub(crate) const GAP_MAX: u32 = 16 << 10;

/// 16 sealed runs before they are joined: a message is gone after some twenty visits of its node, so it is joined once or twice.
pub(crate) const RUNS_APART: usize = 16;

/// 8 children whose buffers are brought back into the open run at once, on all cores.
pub(crate) const UNSEALED_AT_ONCE: usize = 8;

/// 4 runs: from there on they are read and hashed on all cores. Joining sixteen took a seventh of the time of blind updates on one.
pub(crate) const READ_APART_MIN: usize = 4;

/// 4 KiB: messages for one child are cut into slices of about that. A fifth of 100,000 cold lookups among 50 million keys end in a
/// slice: with 8 KiB they took 13 µs more than those that end in a basement (80 for 67), and 2 more with 4.
pub(crate) const SLICE_TARGET: usize = 4 << 10;

// Trees.

/// 256 nodes that cannot be read: beyond that writing stops, since each is compared with each message of an operation.
pub(crate) const BLOCKED_MAX: usize = 256;

/// 32 messages for a child of the root: fewer stay in the root's buffer, unless it is full. With 16, ten million updates among 50
/// million keys took 13 s for 8.3.
pub(crate) const PAST_ROOT_MIN: usize = 32;

/// 4 children: a node with no more is not divided, however long its edges are, since each part needs two.
pub(crate) const CHILDREN_MIN: usize = 4;

/// 4,096 range deletes wait each for itself to drop what they cover, some 500 KiB of keys; the last one grows for more.
pub(crate) const PRUNES_WAITING: usize = 4096;

// Log.

/// 16 leaves stay open for the next bound values of a replay: files that were written in turns are in several.
pub(crate) const OPEN_LEAVES_MAX: usize = 16;

/// 2 MiB: the memory of longer groups is not kept for the next ones.
pub(crate) const GROUP_KEPT_MAX: usize = 2 << 20;

// Volume.

/// 1/4 of what may be dirty is left so by a replay: lookups that follow then find room in the cache without a write. With all of it
/// left, lookups among 50 million keys after a recovery took 2.1 reads each; with a quarter, 1.2.
pub(crate) const LEFT_DIRTY: f64 = 0.25;

/// 4,096 late-bound values, 16 MiB of file blocks, that a replay holds in memory at a time.
pub(crate) const VALUES_AT_ONCE: u32 = 4096;

/// 1 MiB that raising a superblock reads at once.
pub(crate) const RAISE_BYTES: usize = 1 << 20;

/// 1/64 of the image is set aside for deletes, and no more than [`DELETES_MAX`].
pub(crate) const DELETES_SHARE: u64 = 64;

/// 16,384 blocks, 64 MiB: the most that is set aside for deletes.
pub(crate) const DELETES_MAX: u64 = (64 << 20) / BLOCK_SIZE as u64;

/// 1 MiB of zeros that mkfs writes at once.
pub(crate) const ZEROS: usize = 1 << 20;

/// 4 MiB, or a quarter of the log: a log group of that length is sealed, with a flush.
pub(crate) const GROUP_BYTES: usize = 4 << 20;

/// 256 MiB are bound late between two checkpoints at the most: a recovery verifies all of it, and replays it into memory where the
/// volume is opened for reading.
pub(crate) const LATE_LIMIT: u64 = 256 << 20;

/// 256 messages: a transaction of as many is brought into the trees beside the foreground. 10 million updates among 50 million keys took
/// 12.8 to 14.6 s for 14.0 to 17.6.
pub(crate) const BESIDE_MIN: usize = 256;

/// 1 MiB of consecutive blocks: a write of as many bytes is bound late (BetrFS 0.2 §3). 4 GiB in such writes cost 1.018 times their bytes.
pub const LATE_BYTES: usize = 1 << 20;

/// 1/4 of the log: when no more is left, dirty nodes begin to be written for the checkpoint to come. Not measured apart.
pub(crate) const CLEANING: f64 = 0.25;

/// 1/8 of what may be dirty stays so then: nodes that every operation changes are not written for each.
pub(crate) const HOT: f64 = 0.125;

/// 1/16 more may be dirty when an operation has ended that frees space: it takes no time to write for others. Half of 5 million keys went
/// with 32 range deletes in 0.7 to 0.9 ms.
pub(crate) const FREEING: f64 = 1.0 / 16.0;

/// 1.25 MiB: the most bytes of messages of an operation whose keys are looked up where space is short, for the 1 MiB that a mount writes at
/// once, and keys.
pub(crate) const KEEPS_MAX: u64 = 5 << 18;

/// 1 delete for 256 nodes: with fewer, buffers with deletes are not looked for, which reads the head of each internal node.
pub(crate) const RECLAIM_SHARE: u64 = 256;

/// 64 pages of 98 records of a dead list that one piece of dropping a snapshot looks at: readers of a mount wait for a piece no longer
/// than for a change, and a drop makes a checkpoint for each. Not measured.
pub(crate) const DROPPED_AT_ONCE: u64 = 64 * 98;

/// 16 nodes that one piece of pruning looks at, so that readers of a mount wait for a piece no longer than for a change.
pub(crate) const PRUNED_AT_ONCE: u64 = 16;

/// 256 nodes that a checkpoint looks at for pruning while others wait for it. With 16, volumes with nodes of 4 KiB write a quarter more,
/// since they write leaves that a range delete covers before they come to drop them; with 256, nothing more.
pub(crate) const PRUNED_IN_CHECKPOINT: u64 = 256;

// A file system that several threads share.

/// 32 pieces in which dirty nodes are written, between changes of others, before a checkpoint takes the turn. Not measured.
pub(crate) const CLEANINGS: usize = 32;

/// 4,096 pieces of pruning before a checkpoint takes the turn, 65,536 nodes: where others delete as fast as leaves are dropped, the
/// rest is left to the next checkpoint.
pub(crate) const PRUNINGS: usize = 4096;

// Keys and values.

/// 64 KiB: keys and values of a batch share pieces of memory of that size.
pub(crate) const BATCH_PIECE: usize = 64 << 10;

/// 1 KiB: a longer key or value has memory of its own, since what is long stays in memory as it is.
pub(crate) const BATCH_ALONE: usize = 1024;
