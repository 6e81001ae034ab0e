//! Crafted images: every hash is right, and something else is not. The checker says so where it can, and
//! neither it nor a reader nor a writer panics, hangs, or takes memory that the image does not warrant.

#[path = "crafted/forge.rs"]
mod forge;

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use betr_core::Result;
use betr_core::check::{CheckOptions, Code, check};
use betr_core::format::*;
use betr_core::fs::{Attributes, Changes, FIRST_INO, Fs, New, ROOT_ZONE, Visit, Walk};
use betr_core::ids::*;
use betr_core::volume::{Mode, Transaction};
use betr_tests::{clock, open, tight};
use bytes::Bytes;
use forge::Forge;

/// What the checker says of a case.
#[derive(Clone, Copy, Debug)]
enum Says {
    /// Nothing is wrong.
    Clean,
    /// Something is wrong, whatever it is called.
    Wrong,
    /// This is wrong, whatever else is.
    Finds(Code),
}

use Says::{Clean, Finds, Wrong};

type Case = (&'static str, Says, fn(Forge) -> Vec<u8>);

/// How long a case may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much memory the whole test may take at any time, in KiB.
const MEMORY_KIB: u64 = 384 << 10;
const IMAGE: u64 = 5 << 20;
const META: TreeId = TreeId::Metadata;
const DATA: TreeId = TreeId::Data;

// What the cases are made of.

fn internals(forge: &Forge, tree: TreeId, height: u8) -> Vec<NodeId> {
    let wanted = |entry: &Entry| entry.tree == tree && entry.height == Height(height);
    forge.nodes().into_iter().filter(|(_, entry)| wanted(entry)).map(|(id, _)| id).collect()
}

/// An internal node right above leaves, with at least two children, and its head.
fn parent(forge: &mut Forge) -> (NodeId, InternalHead) {
    let ids = internals(forge, DATA, 1);
    let mut heads = ids.into_iter().map(|id| (id, forge.internal(id)));
    heads.find(|(_, head)| head.children.len() >= 2).expect("a node with children")
}

fn key(bytes: &[u8]) -> Key {
    Key::copied(bytes)
}

fn insert(tree: TreeId, key: Key, value: impl Into<Bytes>) -> RecordMessage {
    RecordMessage::Point(tree, key, Action::Insert(value.into()))
}

fn message(msn: u64, value: &[u8]) -> Message {
    Message { msn: Msn(msn), action: Action::Insert(Bytes::copy_from_slice(value)) }
}

/// The image with these messages in its trees.
fn committed(forge: Forge, messages: Vec<RecordMessage>) -> Vec<u8> {
    let device = std::sync::Arc::new(betr_core::device::MemoryDevice::from(forge.seal()));
    let mut volume = open(device.clone(), Mode::ReadWrite, tight(), 9).unwrap().0;
    for messages in messages.chunks(64) {
        let messages = messages.to_vec();
        volume.commit(Transaction { op: Op::Raw, wall: Time::default(), messages }).unwrap();
    }
    volume.checkpoint().unwrap();
    device.snapshot()
}

/// The image with these messages in its log.
fn logged(mut forge: Forge, messages: Vec<RecordMessage>) -> Vec<u8> {
    forge.log(messages);
    forge.seal()
}

fn inode(kind: FileType, ino: u64) -> Inode {
    let time = Time::default();
    Inode {
        kind,
        perm: 0o755,
        uid: 0,
        gid: 0,
        links: if kind == FileType::Directory { 2 } else { 1 },
        size: 0,
        ino: Ino(ino),
        data_zone: None,
        accessed: time,
        modified: time,
        changed: time,
        born: time,
        device: (0, 0),
        target: Vec::new(),
        parent: None,
    }
}

fn put(place: &MetaKey, inode: &Inode) -> RecordMessage {
    insert(META, place.encode(), inode.encode())
}

fn refer(place: &MetaKey, kind: FileType, ino: u64, zone: u64) -> RecordMessage {
    let link = if kind == FileType::Directory { LinkKind::Own } else { LinkKind::Link };
    let reference = ZoneRef { link, kind, ino: Ino(ino), zone: ZoneId(zone) };
    insert(META, place.encode(), reference.encode())
}

fn root() -> MetaKey {
    MetaKey::root(ROOT_ZONE)
}

fn zone(zone: u64) -> MetaKey {
    MetaKey::root(ZoneId(zone))
}

/// A directory `name` in zone `from`, as zone `to`, which names `back` as its parent.
fn directory(from: u64, name: &[u8], to: u64, back: u64) -> Vec<RecordMessage> {
    let parent = Some(Parent { zone: ZoneId(back), name: name.to_vec() });
    let inode = Inode { parent, ..inode(FileType::Directory, 1000 + to) };
    vec![refer(&zone(from).child(name), FileType::Directory, 1000 + to, to), put(&zone(to), &inode)]
}

/// Raises the counters, so that numbers of cases are below them.
fn raised(mut forge: Forge) -> Forge {
    forge.superblock.next_zone = ZoneId(1 << 20);
    forge.superblock.next_ino = Ino(1 << 20);
    forge
}

// Nodes.

fn child_becomes(forge: Forge, other: impl FnOnce(&mut Forge, NodeId) -> NodeId) -> Vec<u8> {
    let mut forge = forge;
    let (id, _) = parent(&mut forge);
    let other = other(&mut forge, id);
    forge.change(id, |head| head.children[1].id = other);
    forge.seal()
}

const NODES: &[Case] = &[
    ("nothing is changed", Clean, Forge::seal),
    ("a child is the node itself", Wrong, |forge| child_becomes(forge, |_, id| id)),
    ("a child is the root", Wrong, |forge| child_becomes(forge, |_, _| DATA.root())),
    ("a child is its sibling", Wrong, |forge| {
        child_becomes(forge, |forge, id| forge.internal(id).children[0].id)
    }),
    ("a child is missing", Finds(Code::NodeMissing), |forge| {
        child_becomes(forge, |_, _| NodeId(u64::MAX))
    }),
    ("a child is node 0", Finds(Code::NodeMissing), |forge| child_becomes(forge, |_, _| NodeId(0))),
    ("a child is of the other tree", Wrong, |forge| {
        child_becomes(forge, |forge, _| internals(forge, META, 0)[0])
    }),
    ("a child of another height", Wrong, |mut forge| {
        let (id, _) = parent(&mut forge);
        let leaf = forge.internal(id).children[0].id;
        let top = forge.internal(DATA.root());
        forge.change(DATA.root(), |head| head.children[0].id = leaf);
        assert!(top.height.0 > 1);
        forge.seal()
    }),
    ("the root of a tree is one of the other", Wrong, |mut forge| {
        let root = InternalHead { tree: META, ..forge.internal(DATA.root()) };
        forge.put_internal(DATA.root(), &root);
        forge.seal()
    }),
    ("the roots are exchanged", Wrong, |mut forge| {
        let (meta, data) = (forge.internal(META.root()), forge.internal(DATA.root()));
        forge.put_internal(META.root(), &InternalHead { id: META.root(), ..data });
        forge.put_internal(DATA.root(), &InternalHead { id: DATA.root(), ..meta });
        forge.seal()
    }),
    ("bounds differ from those of the edge", Finds(Code::NodeWrong), |mut forge| {
        let (id, head) = parent(&mut forge);
        let bounds = Bounds { lo: head.bounds.lo.successor(), ..head.bounds.clone() };
        let fits = head.children.get(1).is_some_and(|child| bounds.contains(&child.pivot));
        assert!(fits);
        forge.change(id, |head| head.bounds = bounds);
        forge.seal()
    }),
    ("the root has bounds", Finds(Code::NodeWrong), |mut forge| {
        forge.change(DATA.root(), |head| {
            let last = head.children.last().unwrap().pivot.clone();
            head.bounds = Bounds { lo: key(&[0]), hi: Some(last.successor()) };
        });
        forge.seal()
    }),
    ("the metadata root has bounds", Finds(Code::NodeWrong), |mut forge| {
        forge.change(META.root(), |head| {
            let last = head.children.last().unwrap().pivot.clone();
            head.bounds = Bounds { lo: Key::default(), hi: Some(last.successor()) };
        });
        forge.seal()
    }),
    ("a root of height 16", Wrong, |mut forge| {
        forge.change(DATA.root(), |head| head.height = Height(16));
        forge.seal()
    }),
    ("a root of height 17", Wrong, |mut forge| {
        forge.change(DATA.root(), |head| head.height = Height(17));
        forge.seal()
    }),
    ("a tower of 16 nodes with one child each", Clean, tower),
    ("the root's entry says that it is a leaf", Finds(Code::HeadInvalid), |mut forge| {
        forge.entry(DATA.root()).height = Height(0);
        forge.seal()
    }),
    ("pivots out of order", Finds(Code::HeadInvalid), |mut forge| {
        let (id, _) = parent(&mut forge);
        forge.change(id, |head| {
            let first = head.children[0].pivot.clone();
            head.children[1].pivot = first;
        });
        forge.seal()
    }),
    ("a pivot outside the bounds", Finds(Code::HeadInvalid), |mut forge| {
        let (id, head) = parent(&mut forge);
        let hi = head.bounds.hi.clone().unwrap_or_else(|| key(&[0xff; 1024]));
        forge.change(id, |head| {
            head.bounds.hi = Some(hi.clone());
            head.children.last_mut().unwrap().pivot = hi;
        });
        forge.seal()
    }),
    ("one child twice", Wrong, |mut forge| {
        let (id, _) = parent(&mut forge);
        forge.change(id, |head| {
            let mut twice = head.children[1].clone();
            twice.pivot = twice.pivot.successor();
            head.children.insert(2, twice);
        });
        forge.seal()
    }),
    ("a node with far more children than the fanout", Wrong, many_children),
    ("an entry of the table that nothing leads to", Finds(Code::EntryWrong), |mut forge| {
        let (id, _) = parent(&mut forge);
        let mut head = forge.internal(id);
        let lost = NodeId(forge.superblock.next_node.0);
        forge.superblock.next_node.0 += 1;
        head.id = lost;
        head.runs.clear();
        forge.put_internal(lost, &head);
        forge.seal()
    }),
    ("runs are numbered to the end", Clean, |mut forge| {
        let (id, _) = parent(&mut forge);
        forge.change(id, |head| head.next_run = RunSeq(u64::MAX));
        forge.seal()
    }),
    ("the metadata root's runs are numbered to the end", Clean, |mut forge| {
        forge.change(META.root(), |head| head.next_run = RunSeq(u64::MAX));
        forge.seal()
    }),
];

/// A chain of internal nodes with one child each above an empty leaf, as high as trees may be.
fn tower(mut forge: Forge) -> Vec<u8> {
    for (id, entry) in forge.nodes() {
        if entry.tree == DATA {
            if entry.height.0 > 0 {
                for run in forge.internal(id).runs {
                    forge.mark(run.extent.start.0..run.extent.end().0, false);
                }
            }
            forge.mark(entry.extent.start.0..entry.extent.end().0, false);
            *forge.slot(id) = None;
        }
    }
    let free: Vec<NodeId> =
        (4..62).map(NodeId).filter(|id| forge.slot(*id).is_none()).take(16).collect();
    forge.put_leaf(free[0], DATA, Bounds::default(), &[], |_| (Vec::new(), Vec::new()));
    for height in 1..=16 {
        let id = if height == 16 { DATA.root() } else { free[height] };
        let child = ChildRef { id: free[height - 1], first_run: RunSeq(0), pivot: Key::default() };
        let head = InternalHead {
            id,
            tree: DATA,
            height: Height(height as u8),
            write_seq: 1,
            next_run: RunSeq(0),
            bounds: Bounds::default(),
            children: vec![child],
            runs: Vec::new(),
        };
        forge.put_internal(id, &head);
    }
    // The files whose blocks have gone stay: holes are no damage.
    forge.seal()
}

fn many_children(mut forge: Forge) -> Vec<u8> {
    forge.change(DATA.root(), |head| {
        let last = head.children.last().unwrap().clone();
        for number in 0..9000u32 {
            let pivot = [&last.pivot[..], &number.to_be_bytes()].concat();
            let id = NodeId(1_000_000 + u64::from(number));
            head.children.push(ChildRef { id, first_run: RunSeq(0), pivot: key(&pivot) });
        }
    });
    forge.seal()
}

// Leaves.

/// The first leaf of the data index that has a right neighbour; its bounds end.
fn leaf(forge: &mut Forge) -> (NodeId, Bounds) {
    let (id, head) = parent(forge);
    let child = forge.internal(id).children[0].id;
    let bounds = forge.leaf(child).bounds;
    assert!(bounds.hi.is_some() && !head.children.is_empty());
    (child, bounds)
}

fn entries(keys: &[Key], bytes: u32) -> Vec<StoredEntry> {
    let lengths = keys.iter().map(|_| bytes as usize);
    let places = chunks_of(DATA, lengths).0;
    let entry = |(key, (chunk, offset)): (&Key, (u16, u16))| StoredEntry {
        key: key.clone(),
        chunk,
        offset,
        bytes,
    };
    keys.iter().zip(places).map(entry).collect()
}

fn keys_of(bounds: &Bounds, count: u32) -> Vec<Key> {
    let suffix = |number: u32| key(&[&bounds.lo[..], &number.to_be_bytes()].concat());
    (0..count).map(suffix).collect()
}

/// Chunks of 64 KiB that all lie at the same place, in as many basements as asked for.
fn bomb(mut forge: Forge, basements: u32, each: u32) -> Vec<u8> {
    let (id, bounds) = leaf(&mut forge);
    let keys = keys_of(&bounds, basements * each);
    let firsts: Vec<Key> = keys.iter().step_by(each as usize).cloned().collect();
    let value = vec![7; 65536];
    let chunk = ChunkRef { offset: 0, bytes: 65536, hash: Hash::of(&value) };
    forge.put_leaf(id, DATA, bounds, &firsts, |head| {
        let section = |keys: &[Key], offset| KeySection {
            chunks: vec![ChunkRef { offset, ..chunk }; keys.len()],
            entries: entries(keys, 65536),
        };
        let lengths = keys.chunks(each as usize).map(|keys| section(keys, 0).encode().len());
        let offset = head + lengths.sum::<usize>() as u32;
        (keys.chunks(each as usize).map(|keys| section(keys, offset)).collect(), value)
    });
    forge.seal()
}

const LEAVES: &[Case] = &[
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
            let section = KeySection { chunks: Vec::new(), entries: entries(&keys, 0) };
            (vec![section], Vec::new())
        });
        forge.seal()
    }),
    ("keys out of order", Finds(Code::PartInvalid), |mut forge| {
        let (id, bounds) = leaf(&mut forge);
        let mut keys = keys_of(&bounds, 3);
        keys.swap(1, 2);
        forge.put_leaf(id, DATA, bounds.clone(), &keys[..1], |_| {
            let section = KeySection { chunks: Vec::new(), entries: entries(&keys, 0) };
            (vec![section], Vec::new())
        });
        forge.seal()
    }),
    ("two basements with the same keys", Finds(Code::PartInvalid), |mut forge| {
        let (id, bounds) = leaf(&mut forge);
        let keys = keys_of(&bounds, 3);
        forge.put_leaf(id, DATA, bounds.clone(), &keys[..2], |_| {
            let section = KeySection { chunks: Vec::new(), entries: entries(&keys, 0) };
            let other = KeySection { chunks: Vec::new(), entries: entries(&keys[1..], 0) };
            (vec![section, other], Vec::new())
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
            (vec![KeySection { chunks, entries: entries(&keys, 8) }], vec![1; 8])
        });
        forge.seal()
    }),
    ("many chunks at one place", Wrong, |forge| bomb(forge, 1, 12_000)),
    ("many basements with chunks at one place", Wrong, |forge| bomb(forge, 8_000, 2)),
    ("keys that unfold to much more", Wrong, |mut forge| {
        let (id, bounds) = leaf(&mut forge);
        let stem = [&bounds.lo[..], &[1; 900][..]].concat();
        let mut keys: Vec<Key> =
            (0..16_000u32).map(|n| key(&[&stem[..], &n.to_be_bytes()].concat())).collect();
        keys.retain(|key| bounds.contains(key));
        let first = keys[..1].to_vec();
        forge.put_leaf(id, DATA, bounds, &first, |_| {
            (vec![KeySection { chunks: Vec::new(), entries: entries(&keys, 0) }], Vec::new())
        });
        forge.seal()
    }),
];

// Runs.

/// A node above leaves with a run that `change` makes from its bounds, its first child, and that
/// child's upper bound.
fn with_run(
    mut forge: Forge,
    make: impl FnOnce(&InternalHead, &Key) -> (Vec<(Key, Message)>, Vec<RangeDelete>),
) -> Vec<u8> {
    let (id, head) = parent(&mut forge);
    let hi = head.children[1].pivot.clone();
    let (points, ranges) = make(&head, &hi);
    let slices = vec![(head.children[0].id, points)];
    let slices = if slices[0].1.is_empty() { Vec::new() } else { slices };
    forge.add_run(id, &slices, &ranges);
    forge.seal()
}

/// Changes the reference to a new, sound run of the metadata root, which every writer writes anew.
fn run_becomes(mut forge: Forge, change: impl FnOnce(&mut Forge, &mut RunRef)) -> Vec<u8> {
    let id = META.root();
    let head = forge.internal(id);
    let points = vec![(head.bounds.lo.successor(), message(1, b"x"))];
    let slices = [(head.children[0].id, points)];
    let mut run = forge.run(id, head.tree, head.next_run, &slices, &[]);
    change(&mut forge, &mut run);
    forge.change(id, |head| {
        head.next_run.0 += 1;
        head.runs.push(run);
    });
    forge.seal()
}

fn range(msn: u64, lo: &[u8], hi: &[u8]) -> RangeDelete {
    RangeDelete { msn: Msn(msn), lo: key(lo), hi: key(hi) }
}

const RUNS: &[Case] = &[
    ("messages outside their child", Finds(Code::MessageWrong), |forge| {
        with_run(forge, |_, hi| (vec![(hi.successor(), message(1, b"x"))], vec![]))
    }),
    ("a message of the future", Finds(Code::MessageWrong), |forge| {
        with_run(forge, |head, _| (vec![(head.bounds.lo.clone(), message(1 << 60, b"x"))], vec![]))
    }),
    ("a message of the far future at the root", Finds(Code::MessageWrong), |mut forge| {
        let head = forge.internal(META.root());
        let place = root().child(b"new-0").encode();
        let at = head.children.partition_point(|child| child.pivot <= place) - 1;
        let points = vec![(place, message(u64::MAX, &[1, 2, 3]))];
        forge.add_run(META.root(), &[(head.children[at].id, points)], &[]);
        forge.seal()
    }),
    ("runs whose messages grow older", Wrong, |mut forge| {
        let head = forge.internal(DATA.root());
        let place = head.children[1].pivot.clone();
        for msn in [1 << 40, 1 << 30, 3] {
            let points = vec![(place.clone(), message(msn, b"x"))];
            forge.add_run(DATA.root(), &[(head.children[1].id, points)], &[]);
        }
        forge.seal()
    }),
    ("range messages outside the bounds", Finds(Code::MessageWrong), |forge| {
        with_run(forge, |_, _| (vec![], vec![range(1, &[], &[0xff; 1024])]))
    }),
    ("a range message that covers all of the metadata", Wrong, |mut forge| {
        let msn = forge.superblock.next_msn.0 - 1;
        forge.add_run(META.root(), &[], &[range(msn, &[], &[0xff; 9])]);
        forge.seal()
    }),
    ("a run past the image's end", Finds(Code::BlockOutside), |forge| {
        run_becomes(forge, |_, run| run.extent.start = BlockNr(1 << 40))
    }),
    ("a dead run past the image's end", Finds(Code::BlockOutside), |forge| {
        run_becomes(forge, |_, run| {
            run.slices.clear();
            run.extent.start = BlockNr(1 << 40);
        })
    }),
    ("a run in the log", Finds(Code::BlockOutside), |forge| {
        run_becomes(forge, |forge, run| run.extent.start = forge.superblock.log_start)
    }),
    ("a dead run in the log", Finds(Code::BlockOutside), |forge| {
        run_becomes(forge, |forge, run| {
            run.slices.clear();
            run.extent.start = forge.superblock.log_start;
        })
    }),
    ("a dead run over the superblocks", Finds(Code::BlockOutside), |forge| {
        run_becomes(forge, |_, run| {
            run.slices.clear();
            run.extent.start = BlockNr(32);
        })
    }),
    ("a dead run over a node", Finds(Code::BlockTwice), |forge| {
        run_becomes(forge, |forge, run| {
            run.slices.clear();
            run.extent.start = forge.entry(DATA.root()).extent.start;
        })
    }),
    ("a run without even a header", Wrong, |forge| {
        run_becomes(forge, |_, run| {
            run.slices.clear();
            run.bytes = 0;
            run.extent.blocks = 0;
        })
    }),
    ("a run shorter than its header", Wrong, |forge| {
        run_becomes(forge, |_, run| {
            run.slices.clear();
            run.bytes = 17;
        })
    }),
    ("a run of another node", Finds(Code::PartInvalid), |mut forge| {
        let (id, head) = parent(&mut forge);
        let run = forge.run(NodeId(77), head.tree, head.next_run, &[], &[]);
        forge.change(id, |head| {
            head.next_run.0 += 1;
            head.runs.push(run);
        });
        forge.seal()
    }),
    ("a slice of another length", Wrong, |forge| {
        run_becomes(forge, |_, run| run.slices[0].section.count = 1 << 30)
    }),
    ("a run of many children and slices", Wrong, |mut forge| {
        let mut head = forge.internal(DATA.root());
        let last = head.children.last().unwrap().clone();
        let mut slices = Vec::new();
        for number in 0..10_000u32 {
            let pivot = key(&[&last.pivot[..], &number.to_be_bytes()].concat());
            let id = NodeId(1_000_000 + u64::from(number));
            head.children.push(ChildRef { id, first_run: RunSeq(0), pivot: pivot.clone() });
            slices.push((id, vec![(pivot, message(1, b""))]));
        }
        head.next_run.0 += 1;
        let run = forge.run(DATA.root(), DATA, RunSeq(head.next_run.0 - 1), &slices, &[]);
        head.runs.push(run);
        forge.put_internal(DATA.root(), &head);
        forge.seal()
    }),
];

// The table and the superblock.

/// Changes the superblock alone.
fn superblock(forge: Forge, change: impl FnOnce(&mut Superblock)) -> Vec<u8> {
    forge.seal_with(change)
}

/// Changes the identity block alone.
fn identity(forge: Forge, change: impl FnOnce(&mut Identity)) -> Vec<u8> {
    let mut bytes = forge.seal();
    let block = &mut bytes[IDENTITY_AT as usize..][..BLOCK_SIZE];
    let mut identity = Identity::decode(block, None).unwrap();
    change(&mut identity);
    block.copy_from_slice(&identity.encode());
    bytes
}

fn epoch_becomes(mut forge: Forge, epoch: u64) -> Vec<u8> {
    forge.superblock.birth.epoch = Epoch(epoch);
    forge.superblock.roots[0].epoch = Epoch(epoch);
    forge.seal()
}

const TABLE: &[Case] = &[
    ("an entry past the image's end", Finds(Code::BlockOutside), |mut forge| {
        let (id, _) = leaf(&mut forge);
        forge.entry(id).extent.start = BlockNr(1 << 50);
        forge.seal()
    }),
    ("an entry that is far longer than the image", Finds(Code::BlockOutside), |mut forge| {
        let (id, _) = leaf(&mut forge);
        forge.entry(id).extent.blocks = u32::MAX;
        forge.seal()
    }),
    ("a root that is far longer than the image", Finds(Code::BlockOutside), |mut forge| {
        forge.entry(META.root()).extent.blocks = u32::MAX;
        forge.entry(DATA.root()).extent.blocks = u32::MAX;
        forge.seal()
    }),
    ("an entry in the log", Finds(Code::BlockOutside), |mut forge| {
        let entry = *forge.entry(META.root());
        let head = forge.block(entry.extent.start).to_vec();
        let start = BlockNr(forge.superblock.log_start.0 + forge.superblock.log_units - 1);
        forge.write(start, &head);
        forge.entry(META.root()).extent = Extent { start, blocks: 1 };
        forge.seal()
    }),
    ("an entry longer than its head", Finds(Code::EntryWrong), |mut forge| {
        forge.entry(META.root()).extent.blocks += 1;
        forge.seal()
    }),
    ("two entries with one extent", Finds(Code::BlockTwice), |mut forge| {
        let (id, head) = parent(&mut forge);
        let (a, b) = (head.children[0].id, head.children[1].id);
        assert!(id != a);
        let twin = *forge.entry(a);
        *forge.entry(b) = twin;
        forge.seal()
    }),
    ("an entry with 2 references", Finds(Code::EntryWrong), |mut forge| {
        forge.entry(DATA.root()).references = 2;
        forge.seal()
    }),
    ("an entry without references", Wrong, |mut forge| {
        forge.entry(DATA.root()).references = 0;
        forge.seal()
    }),
    ("an entry of the epoch to come", Wrong, |mut forge| {
        let (id, _) = leaf(&mut forge);
        forge.entry(id).birth.0 = forge.superblock.birth.epoch.0 + 1;
        forge.seal()
    }),
    ("a page that points to itself", Finds(Code::TablePageInvalid), |mut forge| {
        let root = forge.superblock.table;
        let level = root.levels as u8;
        let mut page = TablePage::empty(level, 0);
        if let PageBody::Pointers(pointers) = &mut page.body {
            // The hash of a page cannot stand in it: the pointer names the place alone.
            pointers[0] = Some(root.page);
        }
        let (bytes, hash) = page.encode(forge.birth());
        let block = forge.put(&bytes).start;
        let birth = forge.birth().epoch;
        forge.seal_pages(|_, _| {});
        forge.seal_map();
        let page = PagePointer { block, birth, hash };
        forge.superblock.table = TableRoot { page, levels: root.levels + 2 };
        forge.superblock.roots[0].table = forge.superblock.table;
        forge.seal_superblock();
        forge.bytes
    }),
    ("the metadata root is not in the table", Finds(Code::NodeMissing), |mut forge| {
        *forge.slot(META.root()) = None;
        forge.seal()
    }),
    ("the data root is not in the table", Finds(Code::NodeMissing), |mut forge| {
        *forge.slot(DATA.root()) = None;
        forge.seal()
    }),
    ("a node 0", Finds(Code::EntryWrong), |mut forge| {
        let (id, _) = leaf(&mut forge);
        let bounds = forge.leaf(id).bounds;
        forge.put_leaf(NodeId(0), DATA, bounds, &[], |_| (Vec::new(), Vec::new()));
        forge.seal()
    }),
    ("the image says that it is longer", Finds(Code::ImageTruncated), |forge| {
        let blocks = forge.superblock.image_blocks + 1;
        identity(forge, |identity| {
            identity.image_blocks = blocks;
            identity.ring[1] = BlockNr(blocks - 16);
        })
    }),
    ("the image says that it is shorter", Wrong, |forge| {
        let blocks = forge.superblock.image_blocks - 100;
        identity(forge, |identity| {
            identity.image_blocks = blocks;
            identity.ring[1] = BlockNr(blocks - 16);
        })
    }),
    ("the ring is somewhere else", Wrong, |forge| {
        identity(forge, |identity| identity.ring = [BlockNr(u64::MAX), BlockNr(u64::MAX - 20)])
    }),
    ("the log is longer than the image", Wrong, |forge| {
        superblock(forge, |superblock| superblock.log_units = 1 << 20)
    }),
    ("a page of another index", Finds(Code::TablePageInvalid), |mut forge| {
        forge.pages.get_mut(&(0, 0)).unwrap().1.index = 1;
        forge.seal()
    }),
    ("levels that the table does not have", Finds(Code::TablePageInvalid), |forge| {
        superblock(forge, |superblock| {
            superblock.table.levels = 8;
            superblock.roots[0].table.levels = 8;
        })
    }),
    ("a table of 8 levels", Clean, |mut forge| {
        forge.seal_pages(|_, _| {});
        while forge.superblock.table.levels < 8 {
            let root = forge.superblock.table;
            let mut page = TablePage::empty(root.levels as u8, 0);
            if let PageBody::Pointers(pointers) = &mut page.body {
                pointers[0] = Some(root.page);
            }
            let (bytes, hash) = page.encode(forge.birth());
            let block = forge.put(&bytes).start;
            let page = PagePointer { block, birth: forge.birth().epoch, hash };
            forge.superblock.table = TableRoot { page, levels: root.levels + 1 };
        }
        forge.superblock.roots[0].table = forge.superblock.table;
        forge.seal_map();
        forge.seal_superblock();
        forge.bytes
    }),
    ("the root page is in the log", Wrong, |mut forge| {
        forge.seal_pages(|_, _| {});
        let block = forge.superblock.log_start;
        let bytes = forge.block(forge.superblock.table.page.block).to_vec();
        forge.write(block, &bytes);
        forge.superblock.table.page.block = block;
        forge.superblock.roots[0].table = forge.superblock.table;
        forge.seal_map();
        forge.seal_superblock();
        forge.bytes
    }),
    ("next node id is in use", Finds(Code::CounterWrong), |forge| {
        superblock(forge, |superblock| superblock.next_node = NodeId(4))
    }),
    ("next node id is the last", Clean, |forge| {
        superblock(forge, |superblock| superblock.next_node = NodeId(u64::MAX))
    }),
    ("next node id is beyond the table", Clean, |forge| {
        superblock(forge, |superblock| superblock.next_node = NodeId(1 << 62))
    }),
    // Known: a writer does not look whether a fresh zone is empty, so directories made here share their
    // zone with others. That would cost a lookup for each file that is made; the checker tells.
    ("next zone id is in use", Finds(Code::CounterWrong), |forge| {
        superblock(forge, |superblock| superblock.next_zone = ZoneId(3))
    }),
    ("next zone id is 0", Wrong, |forge| {
        superblock(forge, |superblock| superblock.next_zone = ZoneId(0))
    }),
    ("next zone id is the last", Clean, |forge| {
        superblock(forge, |superblock| superblock.next_zone = ZoneId(u64::MAX))
    }),
    ("next inode is in use", Finds(Code::CounterWrong), |forge| {
        superblock(forge, |superblock| superblock.next_ino = FIRST_INO)
    }),
    ("next inode is the last", Clean, |forge| {
        superblock(forge, |superblock| superblock.next_ino = Ino(u64::MAX))
    }),
    ("next inode is 0", Wrong, |forge| {
        superblock(forge, |superblock| superblock.next_ino = Ino(0))
    }),
    ("first group is 0", Wrong, |forge| superblock(forge, |superblock| superblock.first_group = 0)),
    ("next MSN is 0", Wrong, |forge| superblock(forge, |superblock| superblock.next_msn = Msn(0))),
    ("next MSN is the last", Clean, |forge| {
        superblock(forge, |superblock| superblock.next_msn = Msn(u64::MAX))
    }),
    ("next MSN is almost the last", Clean, |forge| {
        superblock(forge, |superblock| superblock.next_msn = Msn(u64::MAX - 7))
    }),
    ("the log begins at its last unit", Clean, |forge| {
        superblock(forge, |superblock| superblock.log_head = superblock.log_units - 1)
    }),
    ("the log begins behind its last unit", Wrong, |forge| {
        superblock(forge, |superblock| superblock.log_head = superblock.log_units)
    }),
    ("the number of groups is used up", Clean, |forge| {
        superblock(forge, |superblock| superblock.first_group = u64::MAX)
    }),
    ("the number of groups is almost used up", Clean, |forge| {
        superblock(forge, |superblock| superblock.first_group = u64::MAX - 2)
    }),
    ("the last epoch but one", Clean, |forge| epoch_becomes(forge, u64::MAX - 1)),
    ("the last epoch", Wrong, |forge| epoch_becomes(forge, u64::MAX)),
    ("epoch 0", Wrong, |forge| epoch_becomes(forge, 0)),
    ("the greatest nodes and leaves", Clean, |forge| {
        superblock(forge, |superblock| {
            superblock.node_size = 64 << 20;
            superblock.leaf_size = 16 << 20;
            superblock.basement_size = 4 << 20;
            superblock.fanout = 1024;
        })
    }),
    ("the greatest basements in the smallest leaves", Clean, |forge| {
        superblock(forge, |superblock| {
            superblock.node_size = 4096;
            superblock.leaf_size = 4096;
            superblock.basement_size = 4 << 20;
            superblock.fanout = 1024;
        })
    }),
    ("the smallest nodes and the greatest fanout", Clean, |forge| {
        superblock(forge, |superblock| {
            superblock.basement_size = 512;
            superblock.fanout = 1024;
        })
    }),
    ("great nodes of small leaves", Clean, |forge| {
        superblock(forge, |superblock| superblock.node_size = 256 << 10)
    }),
    ("a fanout of 0", Wrong, |forge| superblock(forge, |superblock| superblock.fanout = 0)),
    ("any zone bounds", Clean, |forge| {
        superblock(forge, |superblock| {
            superblock.zone_min = u64::MAX;
            superblock.zone_max = 1;
        })
    }),
    ("used blocks are wrong", Finds(Code::MapWrong), |forge| {
        superblock(forge, |superblock| superblock.used_blocks = u64::MAX)
    }),
    ("a wall time at the end of time", Clean, |forge| {
        superblock(forge, |superblock| {
            superblock.wall = Time { secs: i64::MAX, nanos: 999_999_999 };
        })
    }),
    ("two superblocks of one epoch", Finds(Code::SlotInvalid), |forge| {
        let slot = 2 * (forge.superblock.birth.epoch.0 % 16) as u32 + 1;
        let block = forge.ring_block(slot);
        let other = Superblock { slot, next_ino: Ino(1 << 40), ..forge.superblock.clone() };
        let mut forge = Forge::new(forge.seal());
        let other = Superblock {
            table: forge.superblock.table,
            roots: forge.superblock.roots.clone(),
            map_hash: forge.superblock.map_hash,
            ..other
        };
        forge.write(block, &other.encode());
        forge.bytes
    }),
    ("superblocks of 16 epochs", Clean, |mut forge| {
        let newest = forge.superblock.clone();
        forge.bytes = forge.clone().seal();
        let sealed = Forge::new(forge.bytes.clone()).superblock;
        for epoch in 100..116 {
            forge.superblock = sealed.clone();
            forge.superblock.birth.epoch = Epoch(epoch);
            forge.superblock.roots[0].epoch = Epoch(epoch);
            forge.seal_superblock();
        }
        assert!(newest.birth.epoch < Epoch(100));
        forge.bytes
    }),
    ("the map says that the fixed regions are free", Finds(Code::BlockUnmarked), |mut forge| {
        let end = forge.superblock.map_start.0 + 2;
        let blocks = forge.superblock.image_blocks;
        forge.mark(0..end, false);
        forge.mark(blocks - 16..blocks, false);
        forge.seal()
    }),
    ("the map says that everything is free", Finds(Code::BlockUnmarked), |mut forge| {
        forge.mark(0..forge.superblock.image_blocks, false);
        forge.seal()
    }),
    ("the map says that everything is used", Finds(Code::BlockLost), |mut forge| {
        forge.mark(0..forge.superblock.image_blocks, true);
        forge.seal()
    }),
    ("the map says that the nodes are free", Finds(Code::BlockUnmarked), |mut forge| {
        let start = forge.superblock.map_start.0 + 2;
        forge.mark(start..forge.superblock.image_blocks - 16, false);
        forge.seal()
    }),
    ("the map speaks of blocks past the end", Wrong, |mut forge| {
        let blocks = forge.superblock.image_blocks;
        forge.mark(blocks..blocks + 1, true);
        forge.seal()
    }),
];

// The log.

const LOG: &[Case] = &[
    ("a record that uses all zones and inodes up", Wrong, |mut forge| {
        let message = insert(DATA, key(&[1; 16]), vec![1]);
        let record = forge.record(forge.superblock.next_msn.0, vec![message]);
        let record = Record { next_zone: ZoneId(u64::MAX), next_ino: Ino(u64::MAX), ..record };
        forge.group(forge.superblock.log_head, forge.superblock.first_group, &[record]);
        forge.seal()
    }),
    ("records that use all MSNs up", Finds(Code::LogTorn), |mut forge| {
        forge.superblock.next_msn = Msn(u64::MAX - 2);
        let message = insert(DATA, key(&[1; 16]), vec![1]);
        forge.log(vec![message; 6]);
        forge.seal()
    }),
    ("a record of the last MSN", Finds(Code::LogTorn), |mut forge| {
        forge.superblock.next_msn = Msn(u64::MAX);
        forge.log(vec![insert(DATA, key(&[1; 16]), vec![1])]);
        forge.seal()
    }),
    ("the last group", Finds(Code::LogTorn), |mut forge| {
        forge.superblock.first_group = u64::MAX;
        forge.log(vec![insert(DATA, key(&[1; 16]), vec![1])]);
        forge.seal()
    }),
    ("a group of the epoch after the last", Wrong, |mut forge| {
        forge.superblock.birth.epoch = Epoch(u64::MAX);
        forge.superblock.roots[0].epoch = Epoch(u64::MAX);
        forge.log(vec![insert(DATA, key(&[1; 16]), vec![1])]);
        forge.seal()
    }),
    ("a log that is full", Wrong, |mut forge| {
        let mut unit = forge.superblock.log_head;
        let end = unit + forge.superblock.log_units;
        let mut number = forge.superblock.first_group;
        let mut lsn = forge.superblock.next_msn.0;
        while unit < end {
            let place = key(&[&[9; 8][..], &number.to_be_bytes()].concat());
            let record = forge.record(lsn, vec![insert(DATA, place, vec![1; 3000])]);
            unit = forge.group(unit, number, &[record]);
            (number, lsn) = (number + 1, lsn + 1);
        }
        forge.seal()
    }),
    ("a log full of headers that claim all of it", Clean, |mut forge| {
        let record = forge.record(1, vec![insert(DATA, key(&[1; 16]), vec![1])]);
        for unit in 1..forge.superblock.log_units {
            let unit = forge.superblock.log_head + unit;
            forge.group(unit, forge.superblock.first_group + 1, std::slice::from_ref(&record));
            let at = forge.superblock.log_start.0 + unit % forge.superblock.log_units;
            let at = BlockNr(at).byte() as usize;
            let bytes = forge.superblock.log_units as u32 * BLOCK_SIZE as u32;
            forge.bytes[at + 92..at + 96].copy_from_slice(&bytes.to_le_bytes());
        }
        forge.seal()
    }),
    ("a log full of groups that vouch for one another", Finds(Code::LogDamaged), |mut forge| {
        for unit in 1..forge.superblock.log_units {
            let lsn = forge.superblock.next_msn.0 + 1;
            let record = forge.record(lsn, vec![insert(DATA, key(&[1; 16]), vec![1])]);
            let mut writer = GroupWriter::default();
            writer.push(&record);
            let number = forge.superblock.first_group + unit;
            let group = writer.seal(forge.birth(), Nonce(0), number, number - 1);
            let unit = (forge.superblock.log_head + unit) % forge.superblock.log_units;
            forge.write(BlockNr(forge.superblock.log_start.0 + unit), &group);
        }
        forge.seal()
    }),
    ("keys of 1024 bytes", Wrong, |forge| {
        logged(
            forge,
            vec![
                insert(META, key(&[0xff; 1024]), vec![1]),
                insert(DATA, key(&[0xff; 1024]), vec![1]),
                insert(META, key(&[0; 1024]), vec![1]),
            ],
        )
    }),
    ("empty keys", Wrong, |forge| {
        logged(forge, vec![insert(META, key(&[]), vec![1]), insert(DATA, key(&[]), vec![1])])
    }),
    ("everything is deleted", Wrong, |forge| {
        let all = |tree| RecordMessage::RangeDelete(tree, key(&[]), key(&[0xff; 1024]));
        logged(forge, vec![all(META), all(DATA)])
    }),
    ("all data is deleted, and then some", Finds(Code::LogReplayed), |forge| {
        let mut messages = vec![RecordMessage::RangeDelete(DATA, key(&[]), key(&[0xff; 1024]))];
        for number in 0..80u64 {
            let place = key(&[&[9; 8][..], &number.to_be_bytes()].concat());
            messages.push(insert(DATA, place.clone(), vec![1; 1000]));
            messages.push(RecordMessage::RangeDelete(DATA, place.clone(), place.successor()));
        }
        logged(forge, messages)
    }),
    ("values that are no inodes", Wrong, |forge| {
        let values = [vec![], vec![1; 10], vec![2; 24], vec![9; 200]];
        let place = |at: usize| root().child(format!("new-{at}").as_bytes()).encode();
        let values = values.into_iter().enumerate();
        logged(forge, values.map(|(at, value)| insert(META, place(at), value)).collect())
    }),
    ("more data than the image has room for", Wrong, |mut forge| {
        let mut unit = forge.superblock.log_head;
        let mut number = forge.superblock.first_group;
        let mut lsn = forge.superblock.next_msn.0;
        let used: Vec<u64> =
            (0..forge.superblock.image_blocks - 16).filter(|b| !forge.is_used(*b)).collect();
        // Nothing is left but two blocks.
        used.iter().skip(2).for_each(|block| forge.mark(*block..*block + 1, true));
        for _ in 0..3 {
            let place = |at: u64| key(&[number.to_be_bytes(), at.to_be_bytes()].concat());
            let messages = (0..8).map(|at| insert(DATA, place(at), vec![at as u8 + 1; 4096]));
            let record = forge.record(lsn, messages.collect());
            unit = forge.group(unit, number, &[record]);
            (number, lsn) = (number + 1, lsn + 8);
        }
        forge.seal()
    }),
];

// The file system.

const SCHEMA: &[Case] = &[
    ("two directories that are in one another", Finds(Code::DirectoryUnreachable), |forge| {
        let messages = [directory(500, b"a", 501, 500), directory(501, b"b", 500, 501)];
        committed(raised(forge), messages.concat())
    }),
    ("two directories that are in one another, and in the root", Wrong, |forge| {
        let messages = [
            directory(0, b"new-way", 500, 501),
            directory(500, b"a", 501, 500),
            directory(501, b"new-way", 500, 501),
        ];
        committed(raised(forge), messages.concat())
    }),
    ("a cycle of directories in the log", Wrong, |forge| {
        let messages = [
            directory(0, b"new-way", 500, 501),
            directory(500, b"a", 501, 500),
            directory(501, b"new-way", 500, 501),
        ];
        logged(raised(forge), messages.concat())
    }),
    ("a directory that is its own parent", Wrong, |forge| {
        let messages = [directory(0, b"new-self", 500, 500), directory(500, b"x", 500, 500)];
        committed(raised(forge), messages.concat())
    }),
    ("the root directory is in itself", Wrong, |forge| {
        let message = refer(&root().child(b"new-root"), FileType::Directory, 1, 0);
        committed(forge, vec![message])
    }),
    ("the root directory has a parent", Finds(Code::ZoneWrong), |forge| {
        let parent = Some(Parent { zone: ROOT_ZONE, name: b"x".to_vec() });
        committed(forge, vec![put(&root(), &Inode { parent, ..inode(FileType::Directory, 1) })])
    }),
    ("the root directory is a file", Wrong, |forge| {
        committed(forge, vec![put(&root(), &inode(FileType::Regular, 1))])
    }),
    ("the root directory is a reference", Wrong, |forge| {
        committed(forge, vec![refer(&root(), FileType::Directory, 1, 0)])
    }),
    ("one directory with two names", Finds(Code::ZoneWrong), |forge| {
        let messages = [directory(0, b"new-a", 500, 0), directory(0, b"new-b", 500, 0)];
        committed(raised(forge), messages.concat())
    }),
    ("two directories with one inode number", Finds(Code::InodeTwice), |forge| {
        let mut messages = directory(0, b"new-a", 500, 0);
        messages.extend(directory(0, b"new-b", 501, 0));
        let place = root().child(b"new-b");
        messages.push(refer(&place, FileType::Directory, 1500, 501));
        let parent = Some(Parent { zone: ROOT_ZONE, name: b"new-b".to_vec() });
        messages.push(put(&zone(501), &Inode { parent, ..inode(FileType::Directory, 1500) }));
        committed(raised(forge), messages)
    }),
    ("a reference to a zone that is missing", Finds(Code::ZoneWrong), |forge| {
        let message = refer(&root().child(b"new-0"), FileType::Directory, 1500, 500);
        committed(raised(forge), vec![message])
    }),
    ("a name \"..\"", Finds(Code::KeyInvalid), |forge| {
        let place = [&[0; 8][..], b"\x01..\0"].concat();
        committed(
            raised(forge),
            vec![insert(META, key(&place), inode(FileType::Fifo, 600).encode())],
        )
    }),
    ("a name with a slash", Finds(Code::KeyInvalid), |forge| {
        let place = [&[0; 8][..], b"\x01../../etc/passwd\0"].concat();
        committed(
            raised(forge),
            vec![insert(META, key(&place), inode(FileType::Fifo, 600).encode())],
        )
    }),
    ("a name with escapes", Wrong, |forge| {
        let place = root().child(b"new-\x1b[2J\n\xff\x01\x02");
        committed(
            raised(forge),
            vec![put(&place, &Inode { links: 0, ..inode(FileType::Fifo, 600) })],
        )
    }),
    ("a parent named \"..\"", Wrong, |forge| {
        let parent = Some(Parent { zone: ROOT_ZONE, name: b"..".to_vec() });
        let reference = refer(&root().child(b"new-0"), FileType::Directory, 600, 500);
        let inode = Inode { parent, ..inode(FileType::Directory, 600) };
        committed(raised(forge), vec![reference, put(&zone(500), &inode)])
    }),
    ("an attribute without an owner", Finds(Code::XattrLost), |forge| {
        let place = root().child(b"new-0").with_xattr(b"user.x");
        committed(forge, vec![insert(META, place.encode(), vec![1; 10])])
    }),
    ("a link to nowhere and everywhere", Wrong, |forge| {
        let target = b"/\0../\x1b[2J".to_vec();
        let size = target.len() as u64;
        let link = Inode { target, size, links: 7, ..inode(FileType::Symlink, 600) };
        committed(raised(forge), vec![put(&root().child(b"new-link"), &link)])
    }),
    ("a file of 8 EiB", Clean, |forge| {
        let file = Inode {
            size: i64::MAX as u64,
            data_zone: Some(ZoneId(500)),
            ..inode(FileType::Regular, 600)
        };
        let prefix = 500u64.to_be_bytes();
        let last = i64::MAX as u64 / 4096;
        let messages = vec![
            put(&root().child(b"new-0"), &file),
            insert(DATA, data_key(&prefix, 0), vec![1; 4096]),
            insert(DATA, data_key(&prefix, last), vec![1; 4095]),
        ];
        committed(raised(forge), messages)
    }),
    ("blocks past the end of a file", Finds(Code::DataWrong), |forge| {
        let file =
            Inode { size: 5000, data_zone: Some(ZoneId(500)), ..inode(FileType::Regular, 600) };
        let prefix = 500u64.to_be_bytes();
        let messages = vec![
            put(&root().child(b"new-0"), &file),
            insert(DATA, data_key(&prefix, 0), vec![1; 65536]),
            insert(DATA, data_key(&prefix, 1), vec![1; 905]),
            insert(DATA, data_key(&prefix, u64::MAX), vec![1; 1]),
            insert(DATA, data_key(&prefix, u64::MAX / 4096), vec![1; 1]),
        ];
        committed(raised(forge), messages)
    }),
    ("an empty block of a file", Finds(Code::DataWrong), |forge| {
        let file =
            Inode { size: 5000, data_zone: Some(ZoneId(500)), ..inode(FileType::Regular, 600) };
        let place = data_key(&500u64.to_be_bytes(), 0);
        let messages = vec![put(&root().child(b"new-0"), &file), insert(DATA, place, vec![])];
        committed(raised(forge), messages)
    }),
    ("two files with one data zone", Finds(Code::ZoneWrong), |forge| {
        let file = |ino| Inode {
            size: 4096,
            data_zone: Some(ZoneId(500)),
            ..inode(FileType::Regular, ino)
        };
        let messages = vec![
            put(&root().child(b"new-0"), &file(600)),
            put(&root().child(b"new-1"), &file(601)),
            insert(DATA, data_key(&500u64.to_be_bytes(), 0), vec![1; 4096]),
        ];
        committed(raised(forge), messages)
    }),
    (
        "directories within directories of one zone, linked wrongly",
        Finds(Code::LinksWrong),
        |forge| {
            // The key of the innermost has 1024 bytes, so nothing has a name in it.
            let mut place = root();
            let mut messages = Vec::new();
            for length in [255, 255, 255, 243] {
                place = place.child(&vec![b'd'; length]);
                messages
                    .push(put(&place, &inode(FileType::Directory, 600 + messages.len() as u64)));
            }
            assert_eq!(place.encode().len(), 1024);
            committed(raised(forge), messages)
        },
    ),
    ("a file of 1024 bytes of key without a zone", Finds(Code::LinksWrong), |forge| {
        let mut place = root();
        let mut messages = Vec::new();
        for length in [255, 255, 255] {
            place = place.child(&vec![b'd'; length]);
            messages.push(put(&place, &inode(FileType::Directory, 600 + messages.len() as u64)));
        }
        place = place.child(&[b'f'; 243]);
        let file = Inode { size: 4096, ..inode(FileType::Regular, 700) };
        messages.push(put(&place, &file));
        committed(raised(forge), messages)
    }),
    ("inodes with no links, and with too many", Finds(Code::LinksWrong), |forge| {
        let file = |ino, links| Inode { links, ..inode(FileType::Regular, ino) };
        let messages = vec![
            put(&root().child(b"new-0"), &file(600, 0)),
            put(&root().child(b"new-1"), &file(601, u32::MAX)),
        ];
        committed(raised(forge), messages)
    }),
    ("a root directory with as many links as there can be", Finds(Code::LinksWrong), |forge| {
        let full = Inode { links: u32::MAX, ..inode(FileType::Directory, 1) };
        committed(forge, vec![put(&root(), &full)])
    }),
    ("directories a thousand deep", Wrong, |forge| {
        let mut messages = Vec::new();
        for depth in 0..1000 {
            let from = if depth == 0 { 0 } else { 499 + depth };
            messages.extend(directory(from, &[b'n'; 255], 500 + depth, from));
        }
        committed(raised(forge), messages)
    }),
];

// What is done with each case.

/// The greatest amount of memory that the process has held so far, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Does a little of everything; what is refused is refused.
fn work(device: std::sync::Arc<dyn betr_core::device::Device>) -> Result<()> {
    let volume = open(device, Mode::ReadWrite, tight(), 4)?.0;
    let mut fs = Fs::open(volume, clock(9000));
    let root = fs.root()?;
    let attributes = Attributes::at(Time::default());
    let first = fs.list(&root).unwrap_or_default();
    for round in 0..3 {
        let name = |at: usize| format!("new-{}", at + 10 * round).into_bytes();
        for at in 0..10 {
            let kind = if at % 4 == 3 { FileType::Directory } else { FileType::Regular };
            let Ok(made) = fs.make(&root, &name(at), New::of(kind, attributes)) else { continue };
            let _ = fs.write(&made, 100, &Bytes::from(vec![at as u8 + 1; 1500 * at]));
            let _ = fs.write(&made, 1 << 40, &Bytes::from(vec![at as u8 + 1; 15]));
            let _ = fs.set_xattrs(&made, &[(b"user.x".to_vec(), vec![3; 300])]);
            let _ = fs.make(&made, b"below", New::of(kind, attributes));
        }
        let _ = fs.volume_mut().sync();
        for entry in first.iter().skip(round).step_by(3) {
            let Ok(object) = fs.lookup(&root, &entry.name) else { continue };
            let _ = fs.list(&object);
            let _ = fs.make(&object, &[b'l'; 255], New::of(FileType::Directory, attributes));
            let _ = fs.set_attributes(&object, Changes { perm: Some(0o700), ..Changes::default() });
            let _ = fs.write(&object, 5, &Bytes::from(vec![5; 5000]));
            let _ = fs.truncate(&object, 3);
            let _ = fs.link(&object, &root, &[b"l-", &entry.name[..]].concat());
            let directory = fs.lookup(&root, &name(3)).unwrap_or_else(|_| root.clone());
            let _ = fs.rename(&root, &entry.name, &directory, b"moved");
            let _ = fs.rename(&root, &name(3), &object, b"moved");
            let _ = fs.unlink(&root, &entry.name);
            let _ = fs.rmdir(&root, &entry.name);
        }
        let _ = fs.checkpoint();
    }
    let mut walk = Walk::new(fs.root()?);
    while let Ok(Some(visit)) = walk.next(&fs) {
        let Visit::Object(_, object) = visit else { continue };
        let _ = fs.find(&object, &[b'l'; 255]);
        let _ = fs.set_xattrs(&object, &[(vec![b'x'; 255], vec![3; 300])]);
        let _ = fs.make(&object, &[b'm'; 255], New::of(FileType::Symlink, attributes));
        let _ = fs.write(&object, 70_000, &Bytes::from(vec![5; 5000]));
        let _ = fs.truncate(&object, 69_000);
    }
    fs.checkpoint()
}

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    args: betr_dump::Args,
}

/// Dumps what can be dumped.
fn dump(bytes: &[u8]) {
    let path = std::env::temp_dir().join(format!(
        "betr-crafted-{}-{:?}.img",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::write(&path, bytes).unwrap();
    let image = path.to_str().unwrap();
    for words in [
        &["super"][..],
        &["table"],
        &["tree"],
        &["node", "1"],
        &["node", "2"],
        &["log"],
        &["path", "/"],
    ] {
        let line = [&["dump", image][..], words].concat();
        let args = <Line as clap::Parser>::try_parse_from(line).unwrap().args;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let _ = betr_dump::run(&args, &mut betr_cli::Io::plain(&mut out, &mut err));
    }
    let _ = std::fs::remove_file(&path);
}

/// All of a case; what is wrong with it is a panic.
fn run(says: Says, bytes: Vec<u8>) {
    let device = Forge::device(bytes.clone());
    let report = check(&device, CheckOptions { data: true, slot: None }, &mut ());
    let codes: Vec<Code> = report.findings.iter().map(|finding| finding.code).collect();
    let right = match says {
        Clean => report.is_clean(),
        Wrong => !report.is_clean(),
        Finds(code) => codes.contains(&code),
    };
    assert!(right, "expected {says:?}: {:?}", report.findings.iter().take(9).collect::<Vec<_>>());
    let read = super::hostile::read_all(device.clone());
    assert!(!matches!(says, Clean) || read.is_ok(), "{read:?}");
    dump(&bytes);
    let _ = work(device.clone());
    // Whatever came of it can be looked at as well.
    check(&device, CheckOptions { data: true, slot: None }, &mut ());
    let _ = super::hostile::read_all(device);
}

fn run_all(cases: &'static [Case]) {
    let sound = Forge::new(super::hostile::image(IMAGE));
    let only = std::env::var("BETR_CASE").unwrap_or_default();
    let mut failed = Vec::new();
    for (name, says, make) in cases.iter().filter(|case| case.0.contains(&only)) {
        let (send, receive) = channel();
        let forge = sound.clone();
        let before = peak_kib();
        let thread = std::thread::spawn(move || {
            run(*says, make(forge));
            let _ = send.send(());
        });
        let result = receive.recv_timeout(PATIENCE);
        let text = match result {
            Err(RecvTimeoutError::Timeout) => "takes too long".to_string(),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => match thread.join() {
                Ok(()) if peak_kib() <= MEMORY_KIB.max(before) => continue,
                Ok(()) => format!("took {} KiB of memory", peak_kib()),
                Err(panic) => {
                    match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
                        (Some(text), _) => text.clone(),
                        (None, Some(text)) => text.to_string(),
                        (None, None) => "panics".to_string(),
                    }
                }
            },
        };
        failed.push(format!("{name}: {text}"));
    }
    assert!(failed.is_empty(), "{} of {} cases:\n{}", failed.len(), cases.len(), failed.join("\n"));
}

#[test]
fn crafted_nodes() {
    run_all(NODES);
}

#[test]
fn crafted_leaves() {
    run_all(LEAVES);
}

#[test]
fn crafted_runs() {
    run_all(RUNS);
}

#[test]
fn crafted_tables_and_superblocks() {
    run_all(TABLE);
}

#[test]
fn crafted_logs() {
    run_all(LOG);
}

#[test]
fn crafted_file_systems() {
    run_all(SCHEMA);
}
