//! Encoding of a leaf: divides its entries into basements, and places all parts.

use super::*;

/// 64 MiB: the largest basement that is tried, half of the longest possible part.
const BASEMENT_WHOLE: usize = 64 << 20;
/// Bytes of slack in successive guesses of the head's length, over the length needed the time before.
const HEAD_SLACK: [usize; 4] = [0, 48, 96, HEAD_PADDING_MAX];

/// An encoded leaf.
pub struct EncodedLeaf {
    /// Head, keys and values, padded to whole blocks.
    pub bytes: Vec<u8>,
    /// The length of the head.
    pub head_bytes: u32,
    /// The hash in the head's seal.
    pub hash: Hash,
}

impl Leaf {
    /// Encodes the leaf, which must be open, into one of the disk's buffers. If basements of the usual size need more
    /// than `most` blocks, larger ones are used. So a leaf that only lost entries never takes more blocks than before.
    pub fn image(
        &self,
        disk: &Disk,
        (birth, write_seq): (Birth, u64),
        basement_size: usize,
        most: Option<u32>,
    ) -> EncodedLeaf {
        let Content::Open { entries, former, .. } = &self.content else {
            panic!("a leaf is opened before it is written");
        };
        if cfg!(debug_assertions) {
            entries.check_invariants();
        }
        let items: Vec<Item<'_>> = entries.iter().collect();
        let plan = Plan::within(self, &items, former, (basement_size, most));
        let blocks_max = self.bytes_max(basement_size).div_ceil(BLOCK_SIZE);
        debug_assert!(
            plan.end.div_ceil(BLOCK_SIZE) <= blocks_max,
            "no leaf is longer than reckoned"
        );
        let mut bytes = disk.buffer(plan.end.next_multiple_of(BLOCK_SIZE));
        bytes.fill(0);
        plan.fill(self, birth, write_seq, bytes)
    }
}

/// The layout of an encoded leaf: its basements, and the offsets of all parts.
struct Plan<'l> {
    basements: Vec<BasementPlan<'l>>,
    /// The length of the head, including its padding, and the padding.
    head_bytes: usize,
    head_padding: usize,
    /// The length of the leaf.
    end: usize,
}

struct BasementPlan<'l> {
    entries: &'l [Item<'l>],
    /// The shortest key greater than all keys of the basements before; for the first basement, the leaf's lower bound.
    first: &'l [u8],
    places: Vec<(u16, u16)>,
    chunks: Vec<usize>,
    /// The length of the key section, and its padding.
    bytes: usize,
    padding: usize,
    /// The bytes of small chunks, and the number of file blocks.
    small: usize,
    blocks: usize,
}

impl<'l> Plan<'l> {
    /// The plan with the smallest basements that needs at most `most` blocks. If there is none, a plan at most one
    /// block longer than the shortest, which has a single basement. Removing entries never makes that one longer.
    ///
    /// Basements begin where those of `former` do if that takes no more blocks: those without a change then keep their
    /// hashes, and a comparison of two states skips them.
    fn within(
        leaf: &'l Leaf,
        entries: &'l [Item<'l>],
        former: &Basements,
        (basement_size, most): (usize, Option<u32>),
    ) -> Plan<'l> {
        let blocks = |plan: &Plan<'_>| plan.end.div_ceil(BLOCK_SIZE) as u32;
        let mut plan = Plan::new(leaf, entries, &[], basement_size);
        let starts = starts(former, entries);
        if !starts.is_empty() {
            let kept = Plan::new(leaf, entries, &starts, basement_size);
            if blocks(&kept) <= blocks(&plan) {
                plan = kept;
            }
        }
        let Some(most) = most.filter(|most| blocks(&plan) > *most) else { return plan };
        let whole = Plan::new(leaf, entries, &[], BASEMENT_WHOLE);
        let limit = if blocks(&whole) <= most { most } else { blocks(&whole) + 1 };
        let mut size = basement_size;
        while blocks(&plan) > limit && size < BASEMENT_WHOLE {
            size *= 4;
            plan = Plan::new(leaf, entries, &[], size);
        }
        if blocks(&plan) > limit { whole } else { plan }
    }

    /// Basements of about `basement_size` bytes, which begin with entries at `starts` if they are at least half full.
    fn new(
        leaf: &'l Leaf,
        entries: &'l [Item<'l>],
        starts: &[usize],
        basement_size: usize,
    ) -> Plan<'l> {
        let costs = costs(entries);
        // The basements determine the length of the head, and the head's length determines where blocks end in the
        // basements. So the length is guessed, and the head is padded to the guess. Where key sections stand together,
        // no basement is in one place, and none is aligned.
        let mut aligns = basement_size >= BLOCK_SIZE;
        let (mut guess, mut cuts, mut needed) = (0, Vec::new(), 0);
        for slack in HEAD_SLACK {
            guess = match aligns && cuts.len() > 1 {
                // The slack must not cost another block.
                true => (needed + slack).min(needed.next_multiple_of(BLOCK_SIZE)),
                false => needed,
            };
            cuts = divide(leaf.tree, &costs, starts, basement_size, aligns.then_some(guess));
            let size = |cut: &Cut| BasementSize {
                bytes: (cut.keys + cut.padding) as u32,
                small: cut.small as u32,
                blocks: cut.blocks as u32,
                entries: (cut.end - cut.start) as u32,
                first: cut.first(leaf, entries).len(),
            };
            needed = LeafHead::encoded_bytes(leaf.tree, &leaf.bounds, cuts.iter().map(size));
            if aligns && are_together(&cuts) {
                aligns = false;
            } else if (needed..=needed + HEAD_PADDING_MAX).contains(&guess) {
                break;
            }
        }
        let head_padding = guess.checked_sub(needed).filter(|more| *more <= HEAD_PADDING_MAX);
        let head_padding = head_padding.unwrap_or(0);
        let head_bytes = needed + head_padding;
        let basements: Vec<BasementPlan<'_>> =
            cuts.iter().map(|cut| BasementPlan::new(leaf, entries, &costs, cut)).collect();
        let mut plan = Plan { basements, head_bytes, head_padding, end: 0 };
        plan.end = plan.places().end() as usize;
        plan
    }

    /// The offsets of all parts.
    fn places(&self) -> Places {
        let sizes = self.basements.iter().map(BasementPlan::sizes);
        Places::behind(self.head_bytes as u32, sizes).expect("no leaf is that long")
    }

    fn fill(&self, leaf: &Leaf, birth: Birth, write_seq: u64, mut bytes: Vec<u8>) -> EncodedLeaf {
        let mut places = self.places();
        let firsts = self.basements.iter().map(|basement| basement.first.len()).sum();
        let mut basements = Basements::with_capacity(self.basements.len(), firsts);
        let mut section = Vec::new();
        for basement in &self.basements {
            let sizes = basement.sizes();
            let offsets = places.next(sizes);
            let mut placed = BasementRef {
                offset: offsets.keys,
                bytes: sizes.keys,
                small_at: offsets.small,
                small: sizes.small,
                blocks_at: offsets.blocks,
                blocks: sizes.blocks,
                entries: basement.entries.len() as u32,
                hash: Hash::default(),
                first: basement.first,
            };
            let unhashed = basement.chunks.iter().map(|len| (*len, Hash::default()));
            let mut chunks: Vec<ChunkRef> = placed_chunks(leaf.tree, unhashed).collect();
            for (entry, (chunk, offset)) in basement.entries.iter().zip(&basement.places) {
                if *chunk != NO_CHUNK {
                    let chunk = placed.chunk(leaf.tree, &chunks[usize::from(*chunk)]);
                    let at = chunk.start as usize + usize::from(*offset);
                    let value = entry.value();
                    bytes[at..at + value.len()].copy_from_slice(value);
                }
            }
            for chunk in &mut chunks {
                let place = placed.chunk(leaf.tree, chunk);
                chunk.hash = Hash::of(&bytes[place.start as usize..place.end as usize]);
            }
            section.clear();
            let mut w = Writer::from(section);
            encode_section(&mut w, &chunks, basement.lengths());
            w.pad_to(w.len() + basement.padding);
            section = w.finish();
            assert_eq!(section.len(), basement.bytes, "a key section is as long as was planned");
            let at = placed.offset as usize;
            bytes[at..at + section.len()].copy_from_slice(&section);
            placed.hash = Hash::of(&section);
            basements.push(placed);
        }
        let head = LeafHead {
            id: leaf.id,
            tree: leaf.tree,
            write_seq,
            leaf_bytes: self.end as u32,
            bounds: leaf.bounds.clone(),
            basements,
            padding: self.head_padding as u8,
        };
        let (head, hash) = head.encode(birth);
        bytes[..head.len()].copy_from_slice(&head);
        EncodedLeaf { bytes, head_bytes: head.len() as u32, hash }
    }
}

impl<'l> BasementPlan<'l> {
    fn new(leaf: &'l Leaf, entries: &'l [Item<'l>], costs: &[Cost], cut: &Cut) -> Self {
        let first = cut.first(leaf, entries);
        let (entries, costs) = (&entries[cut.start..cut.end], &costs[cut.start..cut.end]);
        let (places, chunks) = chunks_of(leaf.tree, costs.iter().map(|cost| cost.value));
        let Cut { keys, padding, small, blocks, .. } = *cut;
        BasementPlan {
            entries,
            first,
            places,
            chunks,
            bytes: keys + padding,
            padding,
            small,
            blocks,
        }
    }

    fn sizes(&self) -> PartSizes {
        let (keys, small, blocks) = (self.bytes as u32, self.small as u32, self.blocks as u32);
        PartSizes { keys, small, blocks }
    }

    /// The keys, each with the length of its value.
    fn lengths(&self) -> impl ExactSizeIterator<Item = (&[u8], usize)> {
        self.entries.iter().map(|entry| (entry.key, entry.value().len()))
    }
}

/// The bytes of an entry.
struct Cost {
    /// In the key section, after another entry; and as the first one.
    behind: usize,
    first: usize,
    /// The length of its value.
    value: usize,
}

impl Cost {
    fn key(&self, is_first: bool) -> usize {
        if is_first { self.first } else { self.behind }
    }
}

fn costs(entries: &[Item<'_>]) -> Vec<Cost> {
    let before = std::iter::once(&[][..]).chain(entries.iter().map(|entry| entry.key));
    let cost = |(entry, before): (&Item<'_>, &[u8])| {
        let (key, value) = (entry.key.len(), entry.value().len());
        let behind = section_entry_bytes(shared_prefix(before, entry.key), key, value);
        Cost { behind, first: section_entry_bytes(0, key, value), value }
    };
    entries.iter().zip(before).map(cost).collect()
}

/// The indexes of the entries that begin `former` basements, except the first.
fn starts(former: &Basements, entries: &[Item<'_>]) -> Vec<usize> {
    let start = |at| entries.partition_point(|entry| entry.key < former.first(at));
    (1..former.len()).map(start).collect()
}

/// A planned basement.
#[derive(Clone, Copy)]
struct Cut {
    /// Index of its first entry, and the index after its last.
    start: usize,
    end: usize,
    /// The length of its key section, and of the zeros after it that make the basement end at a block boundary.
    keys: usize,
    padding: usize,
    /// The length of its small chunks.
    small: usize,
    /// Number of its file blocks.
    blocks: usize,
}

impl Cut {
    /// The lower bound of its keys.
    fn first<'l>(&self, leaf: &'l Leaf, entries: &[Item<'l>]) -> &'l [u8] {
        match self.start.checked_sub(1) {
            None => &leaf.bounds.lo,
            Some(before) => separator(entries[before].key, entries[self.start].key),
        }
    }
}

/// Divides entries into non-empty basements of about `size` bytes. If they are aligned, from offset `aligned` in the
/// leaf on, they end at block boundaries where possible, so that each is read with as few blocks as possible. File
/// blocks are stored elsewhere: they are read one by one. A basement that is half full ends before the last of `starts`
/// that it reaches.
fn divide(
    tree: TreeId,
    costs: &[Cost],
    starts: &[usize],
    size: usize,
    mut aligned: Option<usize>,
) -> Vec<Cut> {
    let mut cuts = Vec::new();
    let mut starts = starts.iter().copied().peekable();
    let mut start = 0;
    while start < costs.len() {
        let limit = aligned.map_or(size, |at| limit_at(at, size, start == 0));
        let mut chunks = Chunks::new(tree);
        let (mut keys, mut small, mut blocks) = (SECTION_BYTES, 0, 0);
        let mut end = start;
        let mut kept = None;
        for cost in &costs[start..] {
            let more_keys = cost.key(end == start) + chunks.cost(cost.value);
            let is_block = is_block(tree, cost.value);
            let more_small = if is_block { 0 } else { cost.value };
            if end > start && keys + small + more_keys + more_small > limit {
                break;
            }
            chunks.place(cost.value);
            keys += more_keys;
            small += more_small;
            blocks += usize::from(is_block);
            end += 1;
            while starts.next_if(|start| *start < end).is_some() {}
            if starts.peek() == Some(&end) && 2 * (keys + small) >= limit {
                kept = Some((end, keys, small, blocks));
            }
        }
        if let Some(kept) = kept.filter(|_| end < costs.len()) {
            (end, keys, small, blocks) = kept;
        }
        let mut padding = 0;
        if let Some(at) = &mut aligned {
            *at += keys + small;
            let rest = at.next_multiple_of(BLOCK_SIZE) - *at;
            if end < costs.len() && rest <= SECTION_PADDING_MAX {
                padding = rest;
                *at += rest;
            }
        }
        cuts.push(Cut { start, end, keys, padding, small, blocks });
        start = end;
    }
    cuts
}

/// Whether all key sections of the basements are stored together.
fn are_together(cuts: &[Cut]) -> bool {
    let sum = |of: fn(&Cut) -> usize| cuts.iter().map(of).sum::<usize>() as u64;
    stand_together(sum(|cut| cut.keys), sum(|cut| cut.small))
}

/// The most bytes of a basement at offset `at`: up to a block boundary, if that is about `size`. The first basement,
/// after the head, may be shorter than others.
fn limit_at(at: usize, size: usize, is_first: bool) -> usize {
    let aligned = size.saturating_sub((at + size) % BLOCK_SIZE);
    let least = if is_first { size / 4 } else { least_limit(size) };
    match aligned {
        aligned if aligned >= least => aligned,
        aligned if aligned + BLOCK_SIZE <= size / 4 * 5 => aligned + BLOCK_SIZE,
        _ => size,
    }
}

/// The least value of `limit_at` for basements after the first.
fn least_limit(size: usize) -> usize {
    if size < BLOCK_SIZE { size } else { size / 4 * 3 }
}

/// The most basements and the most padding, for `bytes` bytes of keys and small values. Any two consecutive basements
/// exceed the limit of the first, and padding ends at block boundaries.
pub(super) fn basements_max(bytes: usize, size: usize) -> (usize, usize) {
    let overhead = 2 * (SECTION_BYTES + CHUNK_BYTES);
    let count = 2 * bytes / (least_limit(size) - overhead) + 3;
    let all = bytes + count * (SECTION_BYTES + CHUNK_BYTES);
    let padded = if size < BLOCK_SIZE { 0 } else { all / (BLOCK_SIZE - SECTION_PADDING_MAX) + 2 };
    (count, padded.min(count) * SECTION_PADDING_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;

    /// Encodes and decodes the head of a leaf of these keys and lengths of values; checks that it is within the
    /// estimate, and returns it with its length.
    fn head_of(
        tree: TreeId,
        entries: &[(Vec<u8>, usize)],
        basement_size: usize,
    ) -> (LeafHead, u32) {
        let disk = Disk::new(Arc::new(MemoryDevice::new(1 << 20)));
        let mut list = Sorted::default();
        for (key, len) in entries {
            list.push_copy(key, Msn(0), Kind::Insert, &vec![7; *len]);
        }
        let leaf = Leaf::with_entries(NodeId(3), tree, Bounds::default(), list);
        let birth = Birth { volume: VolumeId([1; 16]), epoch: Epoch(1), nonce: Nonce(1) };
        let image = leaf.image(&disk, (birth, 1), basement_size, None);
        assert!(image.bytes.len() <= leaf.bytes_max(basement_size).next_multiple_of(BLOCK_SIZE));
        let (_, head) = LeafHead::decode(&image.bytes[..image.head_bytes as usize], None).unwrap();
        let mut found = Vec::new();
        for at in 0..head.basements.len() {
            let keys = head.basements.at(at).keys();
            let section = &image.bytes[keys.start as usize..keys.end as usize];
            let place = || crate::error::Place::Image;
            let section = verified_section(&head, at, section, place).unwrap();
            assert_eq!(section.encode(), image.bytes[keys.start as usize..keys.end as usize]);
            found.extend(section.keys().map(|(key, len)| (key.to_vec(), len)));
        }
        assert!(found == entries);
        (head, image.head_bytes)
    }

    #[test]
    fn short_values_are_in_one_block_each() {
        let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().repeat(2);
        let mut entries: Vec<(Vec<u8>, usize)> = (0..3000).map(|n| (key(n), 100)).collect();
        entries.sort_unstable();
        // The head of a leaf of the usual size is one block.
        let (_, head_bytes) = head_of(TreeId::Metadata, &entries[..2100], BLOCK_SIZE);
        assert!(head_bytes as usize <= BLOCK_SIZE, "{head_bytes}");
        let (head, _) = head_of(TreeId::Metadata, &entries, BLOCK_SIZE);
        let blocks = |at: usize| {
            let basement = head.basements.at(at);
            basement.offset as usize / BLOCK_SIZE..(basement.chunks().end as usize - 1) / BLOCK_SIZE
        };
        let split = (1..head.basements.len()).filter(|at| !blocks(*at).is_empty()).count();
        assert_eq!(split, 0, "of {} basements", head.basements.len());
        assert!(blocks(0).len() <= 1);
        // There is little padding.
        let all: u32 = head.basements.iter().map(|basement| basement.bytes + basement.small).sum();
        assert!(all < 3000 * 122, "{all} bytes");
    }

    #[test]
    fn basements_without_a_change_keep_their_hashes() {
        let disk = Disk::new(Arc::new(MemoryDevice::new(4 << 20)));
        let birth = Birth { volume: VolumeId([1; 16]), epoch: Epoch(1), nonce: Nonce(1) };
        // Trees, with the least length of values and by how much they vary.
        let cases =
            [(TreeId::Metadata, 100, 37), (TreeId::Data, 4096, 1), (TreeId::Data, 100, 3000)];
        for (tree, least, more) in cases {
            let mut list = Sorted::default();
            for n in 0..500u64 {
                let value = vec![n as u8; least + n as usize * 7919 % more];
                list.push_copy(&n.to_be_bytes(), Msn(0), Kind::Insert, &value);
            }
            let leaf = Leaf::with_entries(NodeId(3), tree, Bounds::default(), list);
            let image = leaf.image(&disk, (birth, 1), BLOCK_SIZE, None);
            let blocks = (image.bytes.len() / BLOCK_SIZE) as u32;
            let extent = Extent { start: BlockNr(16), blocks };
            disk.device().write_at(extent.start.byte(), &image.bytes).unwrap();
            let head = |image: &EncodedLeaf| {
                LeafHead::decode(&image.bytes[..image.head_bytes as usize], None).unwrap().1
            };
            let before = head(&image);
            let mut leaf = Leaf::stored(before.clone(), extent);
            leaf.open(&disk).unwrap();
            leaf.apply(&7u64.to_be_bytes(), Msn(9), &Action::Delete);
            let image = leaf.image(&disk, (birth, 2), BLOCK_SIZE, Some(blocks));
            assert!(image.bytes.len() <= blocks as usize * BLOCK_SIZE);
            let after = head(&image);
            let known = |hash: Hash| before.basements.iter().any(|old| old.hash == hash);
            let others = after.basements.iter().filter(|new| !known(new.hash)).count();
            assert!(others <= 3 && after.basements.len() > 4, "{tree:?}: {others} others");
        }
    }

    #[test]
    fn no_leaf_is_longer_than_reckoned() {
        let mut seed = 5u64;
        let mut random = move |n: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % n
        };
        for round in 0..300 {
            let tree = if round % 2 == 0 { TreeId::Metadata } else { TreeId::Data };
            let (keys, values) = ([8, 30, 200, 1000][random(4)], [0, 9, 120, 900, 5000][random(5)]);
            let count = 1 + random(400);
            let mut entries = std::collections::BTreeMap::new();
            for _ in 0..count {
                let key: Vec<u8> = (0..1 + random(keys)).map(|_| random(3) as u8).collect();
                let len = if random(5) == 0 { FILE_BLOCK } else { random(values + 1) };
                entries.insert(key, len);
            }
            let entries: Vec<(Vec<u8>, usize)> = entries.into_iter().collect();
            let size = [512, 1024, 4096, 6000, 8192, 16384, 65536][random(7)];
            head_of(tree, &entries, size);
        }
    }
}
