//! A leaf as bytes: how its entries are divided into basements, and where each part lies.

use super::*;

/// A leaf as bytes, ready to be written.
pub struct LeafImage {
    /// Head, keys and values, padded to whole blocks.
    pub bytes: Vec<u8>,
    /// The length of the head.
    pub head_bytes: u32,
    /// The hash in the head's seal.
    pub hash: Hash,
}

impl Leaf {
    /// The leaf as bytes, in memory of the disk's. It must be open.
    pub fn image(
        &self,
        disk: &Disk,
        birth: Birth,
        write_seq: u64,
        basement_size: usize,
    ) -> LeafImage {
        let Content::Open { entries, .. } = &self.content else {
            panic!("a leaf is opened before it is written");
        };
        debug_assert!(entries.is_counted(), "the size of a leaf is kept");
        let items: Vec<Item<'_>> = entries.iter().collect();
        let plan = Plan::new(self, &items, basement_size);
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

/// How an open leaf will lie on disk: basements, and where everything starts.
struct Plan<'l> {
    basements: Vec<BasementPlan<'l>>,
    head_bytes: usize,
    blocks_at: usize,
    end: usize,
}

struct BasementPlan<'l> {
    entries: &'l [Item<'l>],
    places: Vec<(u16, u16)>,
    chunks: Vec<usize>,
    /// The length of the key section.
    bytes: usize,
    /// The bytes of small chunks, and of blocks of files.
    small: usize,
    blocks: usize,
}

impl<'l> Plan<'l> {
    fn new(leaf: &Leaf, entries: &'l [Item<'l>], basement_size: usize) -> Plan<'l> {
        let basements = divide(leaf.tree, entries, basement_size);
        let firsts = basements.iter().map(|b| b.entries[0].key.len());
        let head_bytes = LeafHead::encoded_bytes(&leaf.bounds, firsts);
        let small_end = head_bytes + basements.iter().map(BasementPlan::part).sum::<usize>();
        let blocks: usize = basements.iter().map(|basement| basement.blocks).sum();
        let blocks_at = small_end.next_multiple_of(BLOCK_SIZE);
        let end = if blocks > 0 { blocks_at + blocks } else { small_end };
        Plan { basements, head_bytes, blocks_at, end }
    }

    /// Where key sections and small chunks stand.
    fn places(&self) -> Places {
        let lengths =
            self.basements.iter().map(|basement| (basement.bytes as u32, basement.small as u32));
        Places::behind(self.head_bytes as u32, lengths).expect("no leaf is that long")
    }

    fn fill(&self, leaf: &Leaf, birth: Birth, write_seq: u64, mut bytes: Vec<u8>) -> LeafImage {
        let mut block_at = self.blocks_at;
        let mut places = self.places();
        let mut references = Vec::with_capacity(self.basements.len());
        for basement in &self.basements {
            let mut chunks = Vec::with_capacity(basement.chunks.len());
            let (section_at, chunks_at) = places.next(basement.bytes as u32, basement.small as u32);
            let mut small_at = chunks_at as usize;
            for len in &basement.chunks {
                let at = if is_block(leaf.tree, *len) { &mut block_at } else { &mut small_at };
                chunks.push(ChunkRef {
                    offset: *at as u32,
                    bytes: *len as u32,
                    hash: Hash::default(),
                });
                *at += len;
            }
            for (entry, (chunk, offset)) in basement.entries.iter().zip(&basement.places) {
                if *chunk != NO_CHUNK {
                    let at = chunks[usize::from(*chunk)].offset as usize + usize::from(*offset);
                    let value = entry.value();
                    bytes[at..at + value.len()].copy_from_slice(value);
                }
            }
            for chunk in &mut chunks {
                let at = chunk.offset as usize;
                chunk.hash = Hash::of(&bytes[at..at + chunk.bytes as usize]);
            }
            let section = encode_section(&chunks, basement.lengths(), basement.bytes);
            assert_eq!(section.len(), basement.bytes, "a key section is as long as was planned");
            let at = section_at as usize;
            bytes[at..at + section.len()].copy_from_slice(&section);
            references.push(BasementRef {
                offset: section_at,
                bytes: section.len() as u32,
                small_at: chunks_at,
                small: basement.small as u32,
                entries: basement.entries.len() as u32,
                hash: Hash::of(&section),
                first: Key::copied(basement.entries[0].key),
            });
        }
        let head = LeafHead {
            id: leaf.id,
            tree: leaf.tree,
            write_seq,
            leaf_bytes: self.end as u32,
            bounds: leaf.bounds.clone(),
            basements: references,
        };
        let (head, hash) = head.encode(birth);
        bytes[..head.len()].copy_from_slice(&head);
        LeafImage { bytes, head_bytes: head.len() as u32, hash }
    }
}

impl BasementPlan<'_> {
    /// The length of keys and small values.
    fn part(&self) -> usize {
        self.bytes + self.small
    }

    /// The keys, each with the length of its value.
    fn lengths(&self) -> impl ExactSizeIterator<Item = (&[u8], usize)> {
        lengths(self.entries)
    }
}

/// The keys of entries, each with the length of its value.
fn lengths<'l>(entries: &'l [Item<'l>]) -> impl ExactSizeIterator<Item = (&'l [u8], usize)> {
    entries.iter().map(|entry| (entry.key, entry.value().len()))
}

/// Divides entries into basements of about `size` bytes, none of them empty. Blocks of files lie elsewhere:
/// they are read one by one.
fn divide<'l>(tree: TreeId, entries: &'l [Item<'l>], size: usize) -> Vec<BasementPlan<'l>> {
    let mut basements = Vec::new();
    let mut start = 0;
    let mut bytes = 0;
    for at in 0..=entries.len() {
        let cost = |entry: &Item<'_>| {
            let len = entry.value().len();
            let elsewhere = if is_block(tree, len) { len } else { 0 };
            entry_cost(tree, entry.key.len(), len) - elsewhere
        };
        let next = entries.get(at).map(cost);
        let full = next.is_none_or(|next| bytes + next > size);
        if full && at > start {
            let entries = &entries[start..at];
            let (places, chunks) = chunks_of(tree, lengths(entries).map(|(_, value)| value));
            let bytes = KeySection::encoded_bytes(lengths(entries), chunks.len());
            let all: usize = chunks.iter().sum();
            let blocks = chunks.iter().filter(|bytes| is_block(tree, **bytes)).sum();
            let small = all - blocks;
            basements.push(BasementPlan { entries, places, chunks, bytes, small, blocks });
            start = at;
        }
        bytes = if full { next.unwrap_or(0) } else { bytes + next.unwrap_or(0) };
    }
    basements
}
