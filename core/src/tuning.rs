//! Tuning constants of the engine: they change speed, memory, and how much space is kept back, but neither the meaning of
//! an image nor what survives a crash.
//!
//! Each comment states number, unit and reason, and the measurement if there was one (docs/performance.md says how it
//! was made). Without one, no run distinguished the number from its half or double. The
//! proof of docs/reserve.md holds for any of them, since the reserve is computed from them (`store::geometry`,
//! `volume::reserve`). Those of the format are in `format::limits`.

use crate::ids::BLOCK_SIZE;

// Devices and memory for them.

/// 128 KiB: the bytes of one read-ahead call to the kernel; one request of a usual disk. Not measured.
pub(crate) const FETCH_BYTES: u64 = 128 << 10;

/// 64 MiB: the limit of read-ahead for one reader, half of the longest part of a node. It bounds lengths that hostile
/// images state.
pub(crate) const FETCH_MAX: u64 = 64 << 20;

/// 3 tries in all of a read or write that fails with a transient error. Interrupted calls and timeouts of network block
/// devices pass. A device that is gone fails on every try, and each timeout may take half a minute.
pub(crate) const TRIES: u32 = 3;

/// 32 KiB: smaller buffers are not kept for reuse; allocators serve these without the kernel.
pub(crate) const BUFFER_LARGE: usize = 32 << 10;

/// 4 MiB: the limit of kept larger buffers, about one node of 4 MiB.
pub(crate) const BUFFERS_KEPT_BYTES: usize = 4 << 20;

/// 32 buffers: the limit of kept larger buffers. With 8, reading a file in pieces of 1 MiB allocated 1.12 bytes for each byte,
/// for 1.10.
pub(crate) const BUFFERS_KEPT: usize = 32;

/// 64 single blocks, 256 KiB, of lookups are kept for reuse. Together with not summing up a leaf on each lookup, this
/// saved 1 to 2 of 16 µs of a lookup whose block the kernel has cached (means of five runs).
pub(crate) const BLOCKS_KEPT: usize = 64;

/// 262,144 extents of scattered nodes are cached: more than an image of 1 GiB has blocks. Not measured.
pub(crate) const SCATTERED_KNOWN: usize = 1 << 18;

/// 256 KiB: what is written at once from that size on, a leaf or a group of the log, is to be on its way to the disk before the
/// flush that waits for it. Building an image of 2 GiB took 2.7 s instead of 3.2.
pub(crate) const WRITE_OUT_BYTES: usize = 256 << 10;

// Space.

/// 3 blocks: allocations up to that come from the first gap, so that long free extents stay whole for nodes. Not
/// measured.
pub(crate) const SMALL_BLOCKS: u64 = 3;

/// Above 7/8 full, allocation uses the best fit, so that long free extents stay whole. Not measured.
pub(crate) const TIGHT_SHARE: u64 = 8;

/// 65,536 freed extents are recorded for punching, 1 MiB of memory; further ones are not punched.
pub(crate) const RELEASED_MAX: usize = 1 << 16;

// Allocation table.

/// 4,096 clean table pages, 16 MiB, stay in memory: the entries of 250,000 nodes, or of 100 GB in leaves of 384 KiB.
pub(crate) const CLEAN_PAGES_MAX: usize = 4096;

// Store: the cache, reading ahead, and writing back.

/// 8 KiB: nodes up to that are checked after every edit in debug builds; the check costs less than the edit.
pub(crate) const CHECKED_BYTES: usize = 8 << 10;

/// 1 of 64 edits of larger nodes is followed by a check in debug builds: a check costs as much as many edits.
pub(crate) const CHECKED_EDITS: u64 = 64;

/// 1/16 of the cache for what an allocator needs besides: with 5 million keys, a cache of 256 MiB and one arena of glibc,
/// deletes took 321 MiB without it.
pub(crate) const ALLOCATOR_SHARE: usize = 16;

/// 1/4 of the cache bounds the buffers of one node, so that the nodes of a step fit in. With 16 MiB of cache, 20
/// million keys take 66 MiB in all; they took 80 to 96 without this bound and [`CROWDED_SHARE`].
pub(crate) const BUFFERS_SHARE: usize = 4;

/// 8 KiB: edges up to that do not make a node wide, however small nodes are.
pub(crate) const EDGES_MIN: usize = 8 << 10;

/// 2 times the usual buffers for nodes between the root and height 1: each flush of such a node makes a child write its
/// head and a run. For ten million updates among 50 million keys, 7.9 instead of 8.5 bytes were written for each byte,
/// in 9.5 instead of 10.4 s. A factor of three gains nothing more.
pub(crate) const BETWEEN_BUFFERS: u32 = 2;

/// 2,048 nodes: images with space for fewer have few nodes between root and height 1, or none ([`BETWEEN_BUFFERS`]).
pub(crate) const BETWEEN_NODES_MIN: u64 = 2048;

/// 4 KiB: the usual size of a basement. A cold lookup reads the head of a leaf and one basement. With 8 KiB, lookups
/// among 50 million keys were faster after a recovery (9.2 to 9.6 instead of 7.4 k/s), but each took more of the cache.
pub const BASEMENT_SIZE: u32 = 4 << 10;

/// 3/4 of the clean bytes bounds heads without parts, while other nodes can be evicted. A head saves a read for every
/// lookup in its leaf, a part only for lookups in that part. Not measured separately.
pub(crate) const HEADS_SHARE: f64 = 0.75;

/// 1/4 of the clean bytes bounds leaves of scans: enough for the prefetched leaves to stay.
pub(crate) const SCANS_SHARE: usize = 4;

/// 1/3: if dirty leaves weigh less than that of dirty internal nodes, internal nodes are written first.
pub(crate) const LEAVES_SHARE: usize = 3;

/// 128: write-back victims are picked from the 128 oldest and 128 youngest dirty internal nodes. Choosing by the time
/// until the next messages wrote 8.5 instead of 9.3 bytes for each byte, for ten million updates among 50 million keys.
pub(crate) const CANDIDATES_PER_END: usize = 128;

/// 8 leaves are read and verified ahead of a scan, and the device is advised of as many behind them. Before that advice,
/// a scan of 50 million entries took 12.8 instead of 11.1 s.
pub(crate) const AHEAD_MAX: usize = 8;

/// 1/4 of the cache bounds these leaves, which do not count in it until the scan comes to them.
pub(crate) const AHEAD_SHARE: usize = 4;

/// 4 streams of requests that follow one another, each with leaves read ahead. Not measured.
pub(crate) const STREAMS: usize = 4;

/// 2: the third request in a row reads ahead. Two random ones in one leaf are often in order, three seldom.
pub(crate) const STREAM_BEGINS: usize = 2;

/// 32 batches: write-back takes 1/32 of the dirty budget at a time, so that four are in flight ([`FLIGHTS_SHARE`]). With 16, two
/// together exceeded the limit, so each was waited for before the next one: building an image of 2 GiB took 2.2 s instead of
/// 1.7.
pub(crate) const BATCHES: usize = 32;

/// 1/8: within an operation the dirty budget may be exceeded by this share; above it a step writes nodes first
/// ([`BUFFERS_SHARE`]).
pub(crate) const CROWDED_SHARE: usize = 8;

/// 1 MiB: within an operation the dirty budget may be exceeded by at least this, however small the cache is.
pub(crate) const CROWDED_MIN: usize = 1 << 20;

/// 4 batches of leaves are in flight when all are written: some are encoded while others wait for the device.
pub(crate) const LEAVES_FLIGHTS: usize = 4;

/// 2: a node is written to bind its late-bound values only if it is at most 2 times as long as they are. Otherwise it
/// is cheaper to write the values into the log.
pub(crate) const WORTH_WRITING: usize = 2;

/// 8 flights at once; twice as many changed nothing.
pub(crate) const FLIGHTS_MAX: usize = 8;

/// 2 flights, the last ones, are given time to be encoded before they are written; with 4, the usual number of all, only one
/// was written at a time. More changed nothing.
pub(crate) const ENCODING_MAX: usize = 2;

/// 1/8 of the dirty budget bounds nodes in flight, unless there is one flight.
pub(crate) const FLIGHTS_SHARE: usize = 8;

// Nodes.

/// 16 messages: up to that many are inserted into a buffer one by one, unless more are announced; more are sorted and
/// merged.
pub(crate) const ONE_BY_ONE: usize = 16;

/// 1/8 of a leaf: when lookups have read as much piece by piece, at some 50 µs each, they have waited longer than a
/// solid-state disk takes for the whole leaf, so the device is advised to read it. 100,000 cold lookups among 5 million keys take 2.9
/// instead of 4.8 s.
pub(crate) const WARM_SHARE: u64 = 8;

/// 1/8 of the entries of a leaf: fewer messages are applied one by one, more by merging both lists.
pub(crate) const APPLIED_SHARE: usize = 8;

/// 1/8 more entries: the room reserved when a leaf is opened for changes.
pub(crate) const SPARE_SHARE: usize = 8;

/// 13 bits address a byte within a piece of an arena: pieces of 8 KiB are not moved when a list grows. 5 million
/// inserts were a seventh faster, with 425 instead of 517 MB resident.
pub(crate) const PIECE_BITS: u32 = 13;

/// 256 bytes: the least capacity of a piece, and the first capacity of later pieces.
pub(crate) const PIECE_MIN: usize = 256;

/// 1 KiB: longer values are shared instead of copied when a list takes them.
pub(crate) const INLINE_VALUE_MAX: usize = 1024;

/// 128 new keys of a list before they are merged into the others. Not measured separately.
pub(crate) const RECENT_MAX: usize = 128;

/// 256 bytes: the least growth of a list.
pub(crate) const LIST_ROOM_MIN: usize = 256;

/// 64 KiB: less unused memory of a list is not worth moving the rest.
pub(crate) const WASTE_MIN: usize = 64 << 10;

/// 8 slots are compared one after another before a binary search: the next place is usually near.
pub(crate) const NEAR: usize = 8;

/// 262,144 messages: memory for more is not reserved before they have been read and verified, whatever a head states.
pub(crate) const EXPECTED_MAX: usize = 1 << 18;

/// 16 KiB: slices of a run with a gap up to that are read by one request, which takes no longer than two.
pub(crate) const GAP_MAX: u32 = 16 << 10;

/// 16 sealed runs before they are joined. A message is flushed after some twenty visits of its node, so it is joined
/// once or twice.
pub(crate) const RUNS_APART: usize = 16;

/// 8 children whose buffers are moved back into the open run at once, on all cores.
pub(crate) const UNSEALED_AT_ONCE: usize = 8;

/// 4 runs: from there on they are read and hashed on all cores. Joining sixteen on one core took a seventh of the time
/// of blind updates.
pub(crate) const READ_APART_MIN: usize = 4;

/// 4 KiB: the target size of slices. A fifth of 100,000 cold lookups among 50 million keys end in a slice. With 8 KiB
/// these took 13 µs more than those that end in a basement (80 instead of 67), and with 4 KiB 2 µs more.
pub(crate) const SLICE_TARGET: usize = 4 << 10;

// Trees.

/// 256 unreadable nodes: beyond that writing stops, since each message of an operation is compared with each of them.
pub(crate) const BLOCKED_MAX: usize = 256;

/// 32 messages on average for each child that a batch spans: fewer stay in the node's buffers, unless it is full. With
/// 16, ten million updates among 50 million keys took 13 instead of 8.3 s; more was not measured.
pub(crate) const SCATTERED_BELOW: usize = 32;

/// 1/8 of a leaf: a buffer with less for a shared child is flushed after all others, since the flush copies the child.
/// Not measured.
pub(crate) const OWNED_SHARE: usize = 8;

/// 4 children: a node with no more is not split, however long its edges are, since each part needs two.
pub(crate) const CHILDREN_MIN: usize = 4;

/// 4,096 prunes are queued separately, with some 500 KiB of keys; for more, the last one is extended.
pub(crate) const PRUNES_WAITING: usize = 4096;

// Log.

/// 16 leaves stay open for the next bound values of a replay: files that were written in turns have values in several.
pub(crate) const OPEN_LEAVES_MAX: usize = 16;

/// 2 MiB: the memory of longer groups is not kept for the next ones.
pub(crate) const GROUP_KEPT_MAX: usize = 2 << 20;

// Volume.

/// 1/4 of the dirty budget stays dirty after a replay, so that lookups find room in the cache without a write. With all
/// of it, lookups among 50 million keys after a recovery took 2.1 reads each; with a quarter, 1.2.
pub(crate) const LEFT_DIRTY: f64 = 0.25;

/// 4,096 late-bound values, 16 MiB of file blocks, are in memory at a time during a replay.
pub(crate) const VALUES_AT_ONCE: u32 = 4096;

/// 1 MiB is read at once to reconstruct a superblock.
pub(crate) const RAISE_BYTES: usize = 1 << 20;

/// 1/64 of the image, at most [`DELETES_MAX`], and 32 blocks are the reserve for deletes. Their messages fill it until a drain
/// returns it: a smaller share means more drains of a full volume, a larger one less space for files. On images up to
/// 4 GiB the further maps of long scattered nodes, one block in 331, take at most a fifth of it (docs/reserve.md).
/// `SHARES` in `tools/mkfs/src/minimize.rs` contains this number. Not measured.
pub(crate) const DELETES_SHARE: u64 = 64;

/// 16,384 blocks, 64 MiB: the limit of the share for deletes, which images of 4 GiB reach. It bounds the space
/// that is kept back from files, however large the image is. Not measured.
pub(crate) const DELETES_MAX: u64 = (64 << 20) / BLOCK_SIZE as u64;

/// 1 MiB of zeros is written at once by mkfs.
pub(crate) const ZEROS: usize = 1 << 20;

/// 4 MiB, or a quarter of the log: a log group of that length is sealed, with a flush.
pub(crate) const GROUP_BYTES: usize = 4 << 20;

/// 256 MiB at most are bound late between two checkpoints: a recovery verifies all of it, and replays it into memory if
/// the volume is opened read-only.
pub(crate) const LATE_LIMIT: u64 = 256 << 20;

/// 256 messages: a transaction of as many is injected in the background. 10 million updates among 50 million keys took
/// 12.8 to 14.6 instead of 14.0 to 17.6 s.
pub(crate) const BESIDE_MIN: usize = 256;

/// 1/4 of a leaf: shorter parts of files are copied, not shared, and smaller objects are moved by a copy, since a clone
/// divides leaves, and changes copy them. A rename with a sync took 0.21 ms by a copy of 64 KiB, 0.43 of 256 KiB, and 0.25 by
/// a range clone of any size.
pub(crate) const SHARED_LEAVES: u32 = 4;

/// 1 MiB of consecutive blocks: a write of as many bytes is bound late (BetrFS 0.2 §3). 4 GiB in such writes cost 1.018
/// times their bytes.
pub const LATE_BYTES: usize = 1 << 20;

/// 1/4 of the log: when no more is left, dirty nodes begin to be written for the next checkpoint. Not measured
/// separately.
pub(crate) const LOG_END_SHARE: f64 = 0.25;

/// 1/8 of the dirty budget may stay dirty at the end of the log: nodes that every operation changes are not written
/// each time.
pub(crate) const LOG_END_DIRTY: f64 = 0.125;

/// 1/16: an operation that frees space may leave the dirty budget exceeded by this share, so that it does not write for
/// others. Half of 5 million keys were deleted by 32 range deletes in 0.7 to 0.9 ms.
pub(crate) const FREEING_SLACK: f64 = 1.0 / 16.0;

/// 1.25 MiB: the most bytes of messages of an operation whose keys are looked up when space is short; for the 1 MiB
/// that a mount writes at once, and keys.
pub(crate) const KEEPS_MAX: u64 = 5 << 18;

/// 1 delete for 256 nodes: with fewer, buffers with deletes are not searched for, which reads the head of each internal
/// node.
pub(crate) const RECLAIM_SHARE: u64 = 256;

/// 64 pages of 98 records of a dead list in one piece of a drop: readers of a mount wait for a piece no longer than for
/// a change, and each piece makes a checkpoint. Not measured.
pub(crate) const DROPPED_AT_ONCE: u64 = 64 * 98;

/// 16 nodes in one piece of pruning, so that readers of a mount wait for a piece no longer than for a change.
pub(crate) const PRUNED_AT_ONCE: u64 = 16;

/// 256 nodes are pruned by a checkpoint that others wait for. With 16, volumes with nodes of 4 KiB write a quarter
/// more, since they write leaves that a range delete covers before they drop them; with 256, nothing more.
pub(crate) const PRUNED_IN_CHECKPOINT: u64 = 256;

// A file system that several threads share.

/// 32 pieces of write-back, between changes of other threads, before a checkpoint takes the writer lock. Not measured.
pub(crate) const WRITE_BACKS_BEFORE: usize = 32;

/// 4,096 pieces of pruning, 65,536 nodes, before a checkpoint takes the writer lock. If other threads delete as fast as
/// leaves are dropped, the rest is left to the next checkpoint.
pub(crate) const PRUNINGS: usize = 4096;

// Keys and values.

/// 64 KiB: keys and values of a batch share allocations of that size.
pub(crate) const BATCH_PIECE: usize = 64 << 10;

/// 1 KiB: a longer key or value gets an allocation of its own, since long values stay in memory as they are.
pub(crate) const BATCH_ALONE: usize = 1024;
