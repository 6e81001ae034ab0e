//! The formats: fixed examples as committed bytes, and properties of every encoder and decoder.
//!
//! decode(encode(x)) = x. Any other bytes that decode, after their hash is corrected, encode to the same bytes: every
//! value has exactly one encoding.

use betr_core::format::*;
use betr_core::ids::*;
use betr_tests::Random;
use bytes::Bytes;

/// Bytes as lines of hexadecimal; lines of zeros are left out.
fn hex(bytes: &[u8]) -> String {
    let mut text = format!("{} bytes\n", bytes.len());
    for (index, line) in bytes.chunks(16).enumerate() {
        if line.iter().any(|byte| *byte != 0) {
            let digits: String = line.iter().map(|byte| format!("{byte:02x}")).collect();
            text.push_str(&format!("{:06x} {digits}\n", index * 16));
        }
    }
    text
}

fn birth() -> Birth {
    Birth {
        volume: VolumeId(*b"volume id vector"),
        epoch: Epoch(7),
        nonce: Nonce(0x0123_4567_89ab_cdef),
    }
}

fn pointer(n: u64) -> PagePointer {
    PagePointer { block: BlockNr(1000 + n), birth: Epoch(n), hash: Hash([n as u8; 32]) }
}

fn superblock() -> Superblock {
    let table = TableRoot { page: pointer(5), levels: 2 };
    Superblock {
        birth: birth(),
        slot: 14,
        features: Features { compatible: 1, read_only: 2, incompatible: 4 },
        node_size: 65536,
        leaf_size: 16384,
        basement_size: 4096,
        fanout: 64,
        image_blocks: 4096,
        log_start: BlockNr(64),
        log_units: 64,
        log_head: 3,
        first_group: 12,
        dying: 0,
        map: segments(),
        map_pages: 1,
        map_hash: Hash([9; 32]),
        table,
        next_node: NodeId(33),
        next: NextNumbers { zone: ZoneId(44), ino: Ino(55), tag: Tag(77) },
        next_msn: Msn(66),
        zones: ZoneSizes { min: 1 << 15, max: 1 << 17 },
        wall: Time { secs: 1_700_000_000, nanos: 5 },
        used_blocks: 321,
        log_epoch: Epoch(6),
        log_nonce: Nonce(77),
        inflow: Inflow { bytes: 99, growth: Growth { messages: 3, bytes: 88 } },
        nodes: 9,
        holds: HoldsRoot {
            held: 2,
            going: 1,
            newest: Epoch(6),
            blocks: 777,
            dead: DeadList { newest: Some(table.page), records: 5, blocks: 55 },
            pages: std::array::from_fn(|at| (at != 1).then_some(table.page)),
        },
        prunes: vec![
            PruneRange { tree: TreeId::Metadata, lo: Key::default(), hi: Key::copied(&[7; 64]) },
            PruneRange { tree: TreeId::Data, lo: Key::copied(b"a"), hi: Key::copied(b"b") },
        ],
    }
}

fn segments() -> Segments {
    let grown = Segment { start: BlockNr(1024), pages: 2 };
    Segments::one(BlockNr(128), 1).and(grown).unwrap()
}

fn leaf_head() -> LeafHead {
    let basement = |offset, (blocks_at, blocks), first: &'static [u8]| BasementRef {
        offset,
        bytes: 100,
        small_at: offset + 100,
        small: 60,
        blocks_at,
        blocks,
        entries: 3,
        hash: Hash([3; 32]),
        first,
    };
    LeafHead {
        id: NodeId(9),
        tree: TreeId::Data,
        write_seq: 4,
        leaf_bytes: 12288,
        bounds: Bounds { lo: Key::copied(b"b"), hi: Some(Key::copied(b"q")) },
        basements: [basement(188, (4096, 0), b"b"), basement(348, (4096, 2), b"k")]
            .into_iter()
            .collect(),
        padding: 3,
    }
}

fn section() -> KeySection {
    let lengths = [4096, 10, 0, 700, 4096, 3];
    let chunks = chunks_of(TreeId::Data, lengths.into_iter()).1;
    let keys: Vec<String> = (0..lengths.len()).map(|at| format!("key-{at:03}")).collect();
    let entries = keys.iter().zip(lengths).map(|(key, len)| (key.as_bytes(), len));
    let chunks = chunks.into_iter().map(|bytes| (bytes, Hash([1; 32])));
    KeySection::new(TreeId::Data, placed_chunks(TreeId::Data, chunks).collect(), entries)
}

fn slice_of(messages: &[(Key, Message)]) -> Vec<u8> {
    let mut w = Writer::default();
    let greatest = messages.iter().map(|(_, message)| message.msn).max();
    let messages = messages.iter().map(|(key, message)| MessageRef::of(key, message));
    encode_slice(&mut w, greatest.unwrap_or_default(), messages);
    w.finish()
}

/// An update with every kind of change.
fn update() -> Update {
    let patch = Update::patch(30, b"bytes", false).after(&Update::trim(20));
    let add = Update::add(16, -9).after(&patch);
    Update::patch(3, b"more", true).after(&add)
}

fn messages() -> Vec<(Key, Message)> {
    let insert = |value: &[u8]| Action::Insert(Bytes::copy_from_slice(value));
    let message = |key: &[u8], msn, action| (Key::copied(key), Message { msn: Msn(msn), action });
    vec![
        message(b"alpha", 5, insert(b"one")),
        message(b"alphabet", 3, Action::Delete),
        message(b"beta", 9, insert(b"")),
        message(b"gamma", 7, Action::Update(update())),
    ]
}

fn ranges() -> Vec<RangeDelete> {
    let range = |msn, lo: &[u8], hi: &[u8]| RangeDelete {
        msn: Msn(msn),
        lo: Key::copied(lo),
        hi: Key::copied(hi),
    };
    vec![range(4, b"a", b"c"), range(8, b"c", b"cc"), range(2, b"x", b"y")]
}

fn internal_head() -> InternalHead {
    let child = |id, pivot: &[u8]| ChildRef {
        id: NodeId(id),
        first_run: RunSeq(1),
        pivot: Key::copied(pivot),
        lens: None,
    };
    let section =
        |offset| SectionRef { offset, bytes: 50, count: 2, greatest: Msn(8), hash: Hash([2; 32]) };
    let mut list = SliceList::default();
    list.push(1, &[], Growth { messages: 1, bytes: 99 }, section(178), |filters| {
        push_filter(filters, [&b"anchor"[..], b"animal"].into_iter(), 2);
    });
    // A second slice for the same child: it has a first key.
    list.push(1, b"mi", Growth::default(), section(228), |filters| {
        push_filter(filters, [&b"mile"[..], b"mist"].into_iter(), 2);
    });
    let (slices, filters) = list.finish();
    let run = RunRef {
        seq: RunSeq(2),
        extent: Extent { start: BlockNr(700), blocks: 1 },
        bytes: 300,
        birth: Epoch(6),
        header_hash: Hash([4; 32]),
        ranges: section(128),
        slices,
        filters,
    };
    InternalHead {
        id: NodeId(1),
        tree: TreeId::Metadata,
        height: Height(1),
        write_seq: 2,
        next_run: RunSeq(3),
        bounds: Bounds::default(),
        children: vec![
            child(20, b""),
            ChildRef {
                lens: Lens::new(Key::copied(b"m"), Key::copied(b"older")),
                ..child(21, b"m")
            },
            child(22, b"n"),
        ],
        runs: vec![run],
    }
}

fn record(lsn: u64) -> Record {
    let point = |tree, key: &[u8], action| RecordMessage::Point(tree, Key::copied(key), action);
    Record {
        lsn: Lsn(lsn),
        op: Op::Rename,
        wall: Time { secs: -5, nanos: 999_999_999 },
        next: NextNumbers { zone: ZoneId(8), ino: Ino(9), tag: Tag(10) },
        messages: vec![
            point(TreeId::Metadata, b"from", Action::Delete),
            point(TreeId::Metadata, b"to", Action::Insert(Bytes::from_static(b"value"))),
            RecordMessage::RangeDelete(TreeId::Data, Key::copied(b"a"), Key::copied(b"b")),
        ],
    }
}

fn bindings() -> Vec<Binding> {
    let range = |first, count| MsnRange { first: Msn(first), count };
    let extent = Extent { start: BlockNr(900), blocks: 3 };
    let node = NodeId(12);
    let leaf = BoundLeaf {
        node,
        extent,
        head_bytes: 700,
        birth: Epoch(8),
        hash: Hash([6; 32]),
        map: Hash::default(),
    };
    let (offset, bytes, count) = (128, 9000, 2);
    let (hash, map) = (Hash([7; 32]), Hash::default());
    let slice = BoundSlice { node, extent, offset, bytes, count, hash, map };
    let inline = Bytes::from_static(b"a value that stands in the log");
    vec![
        Binding { values: vec![range(106, 2), range(113, 1)], to: Target::Leaf(leaf) },
        Binding { values: vec![range(108, 2)], to: Target::Slice(slice) },
        Binding { values: vec![range(110, 1)], to: Target::Inline(inline) },
        Binding { values: vec![range(111, 1)], to: Target::Null },
    ]
}

fn group() -> Vec<u8> {
    let mut writer = GroupWriter::default();
    writer.push(&record(100));
    writer.push(&record(103));
    writer.push(&Record {
        messages: vec![
            RecordMessage::Unbound(data_key(b"\0\0\0\0\0\0\0\x05", 7), 6),
            RecordMessage::Point(TreeId::Data, Key::copied(b"k"), Action::Delete),
            RecordMessage::Unbound(data_key(b"\0\0\0\0\0\0\0\x05", 3), 1),
            RecordMessage::Point(TreeId::Metadata, Key::copied(b"k"), Action::Update(update())),
        ],
        ..record(106)
    });
    writer.seal(&bindings(), birth(), Nonce(42), 12, 11)
}

fn inode(kind: FileType) -> Inode {
    let time = |n| Time { secs: n, nanos: n.unsigned_abs() as u32 };
    let is_link = kind == FileType::Symlink;
    let target = if is_link { b"../target".to_vec() } else { Vec::new() };
    Inode {
        kind,
        perm: 0o4755,
        uid: 1000,
        gid: 100,
        links: 2,
        size: match kind {
            FileType::Symlink => target.len() as u64,
            FileType::Regular => 12345,
            _ => 0,
        },
        ino: Ino(77),
        data_zone: (kind == FileType::Regular).then_some(ZoneId(78)),
        accessed: time(-1),
        modified: time(2),
        changed: time(3),
        born: time(4),
        device: (0, 0),
        lineage: match kind {
            FileType::Directory => Lineage { limit: Ino(1 << 33), tag: Tag(1 << 17) },
            _ => Lineage::NONE,
        },
        target,
        parent: (kind == FileType::Directory)
            .then(|| Parent { zone: ZoneId(6), name: b"name".to_vec() }),
        sparse: kind == FileType::Regular,
        sums: match kind {
            FileType::Directory => Sums {
                meta: 0x1234_5678_9abc,
                data: 0x0102_0304_0506_0708,
                apart: 0x1112_1314_1516_1718,
            },
            _ => Sums::default(),
        },
    }
}

#[test]
fn vectors() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../../format/vectors");
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(all_vectors);
}

fn all_vectors() {
    let identity = Identity {
        volume: birth().volume,
        uuid: *b"uuid of vectors!",
        label: "étiquette".into(),
        image_blocks: 4096,
        ring: [BlockNr(32), BlockNr(4080)],
        log_units: 16,
        incompatible: 0,
        map: segments(),
        error_met: false,
    };
    assert_eq!(Identity::decode(&identity.encode(), None).unwrap(), identity);
    insta::assert_snapshot!("identity", hex(&identity.encode()));
    assert_eq!(Superblock::decode(&superblock().encode(), None).unwrap(), superblock());
    insta::assert_snapshot!("superblock", hex(&superblock().encode()));

    let mut page = TablePage::empty(0, 3);
    if let PageBody::Entries(entries) = &mut page.body {
        let extent = Extent { start: BlockNr(500), blocks: 3 };
        let (tree, height) = (TreeId::Data, Height(2));
        entries[5] = Some(Entry {
            extent,
            head_bytes: 9000,
            hash: Hash([8; 32]),
            birth: Epoch(3),
            references: 1,
            tree,
            height,
        });
    }
    let (bytes, _) = page.encode(birth());
    assert_eq!(TablePage::decode(&bytes, None).unwrap().1, page);
    insta::assert_snapshot!("table_page", hex(&bytes));

    let map = ScatterMap {
        next: Some((BlockNr(77), Hash([4; 32]))),
        extents: vec![
            Extent { start: BlockNr(9), blocks: 1 },
            Extent { start: BlockNr(70), blocks: 3 },
        ],
    };
    let (bytes, _) = map.encode(birth());
    insta::assert_snapshot!("scatter_map", hex(&bytes));
    assert_eq!(ScatterMap::decode(&bytes, None).unwrap().1, map);
    let mut map = MapPage { page: 0, next_msn: Msn(77), bitmap: Box::new([0; BITS_PER_PAGE / 8]) };
    map.bitmap[0] = 0xff;
    map.bitmap[70] = 0x81;
    let (bytes, _) = map.encode(birth());
    assert_eq!(MapPage::decode(&bytes, None).unwrap().1, map);
    insta::assert_snapshot!("space_map", hex(&bytes));

    let (bytes, _) = leaf_head().encode(birth());
    assert_eq!(LeafHead::decode(&bytes, None).unwrap().1, leaf_head());
    insta::assert_snapshot!("leaf_head", hex(&bytes));
    let bytes = section().encode();
    assert_eq!(KeySection::decode(&bytes, TreeId::Data, None).unwrap(), section());
    insta::assert_snapshot!("key_section", hex(&bytes));

    let (bytes, _) = internal_head().encode(birth());
    assert_eq!(InternalHead::decode(&bytes, None).unwrap().1, internal_head());
    insta::assert_snapshot!("internal_head", hex(&bytes));
    let all = messages();
    let slice = slice_of(&all);
    assert_eq!(decode_slice(&Bytes::copy_from_slice(&slice), all.len(), None).unwrap(), all);
    let mut w = Writer::default();
    w.bytes(&slice);
    encode_ranges(&mut w, ranges().iter());
    insta::assert_snapshot!("messages", hex(w.as_slice()));
    let header = RunHeader { node: NodeId(1), seq: RunSeq(2), tree: TreeId::Metadata, bytes: 300 };
    let (bytes, _) = header.encode(birth());
    assert_eq!(RunHeader::decode(&bytes, None).unwrap().1, header);
    insta::assert_snapshot!("run_header", hex(&bytes));

    let bytes = Bytes::from(group());
    let (_, decoded) = Group::decode(&bytes.slice(..group_length(&bytes).unwrap()), None).unwrap();
    assert_eq!(decoded.records[..2], [record(100), record(103)]);
    assert_eq!(decoded.bindings, bindings());
    insta::assert_snapshot!("log_group", hex(&bytes));

    for (name, kind) in [
        ("inode_file", FileType::Regular),
        ("inode_link", FileType::Symlink),
        ("inode_directory", FileType::Directory),
    ] {
        let inode = inode(kind);
        let bytes = inode.encode();
        assert_eq!(MetaValue::decode(&bytes, None).unwrap(), MetaValue::Inode(inode));
        insta::assert_snapshot!(name, hex(&bytes));
    }
    let zone = ZoneRef { link: LinkKind::Link, kind: FileType::Fifo, ino: Ino(5), zone: ZoneId(6) };
    assert_eq!(MetaValue::decode(&zone.encode(), None).unwrap(), MetaValue::ZoneRef(zone));
    insta::assert_snapshot!("zone_reference", hex(&zone.encode()));
}

/// Changes bytes at random, corrects the hash of the seal, and lets `again` decode and encode them. Decoders must not
/// panic, and accepted bytes must be the only encoding of their value.
fn mangle(seed: u64, bytes: &[u8], sealed: bool, again: impl Fn(&[u8]) -> Option<Vec<u8>>) -> u64 {
    let mut random = Random::new(seed);
    let mut accepted = 0;
    for _ in 0..3000 {
        let mut mangled = bytes.to_vec();
        for _ in 0..1 + random.below(3) {
            let at = random.below(mangled.len() as u64) as usize;
            mangled[at] = match random.below(4) {
                0 => 0,
                1 => 0xff,
                2 => mangled[at].wrapping_add(1),
                _ => random.next() as u8,
            };
        }
        if random.below(8) == 0 {
            mangled.truncate(random.below(mangled.len() as u64) as usize);
        }
        if sealed && mangled.len() > SEAL_BYTES {
            Seal::close(&mut mangled);
        }
        if let Some(encoded) = again(&mangled) {
            accepted += 1;
            assert!(
                encoded == mangled,
                "two encodings of one thing:\n{}\n{}",
                hex(&mangled),
                hex(&encoded)
            );
        }
    }
    accepted
}

#[test]
fn everything_has_one_encoding() {
    let birth_of = |seal: &Seal| seal.birth;
    let mut accepted = 0;
    accepted += mangle(1, &superblock().encode(), true, |bytes| {
        Some(Superblock::decode(bytes, None).ok()?.encode())
    });
    let page = TablePage::empty(0, 3).encode(birth()).0;
    accepted += mangle(2, &page, true, |bytes| {
        let (seal, page) = TablePage::decode(bytes, None).ok()?;
        Some(page.encode(birth_of(&seal)).0)
    });
    accepted += mangle(3, &leaf_head().encode(birth()).0, true, |bytes| {
        let (seal, head) = LeafHead::decode(bytes, None).ok()?;
        Some(head.encode(birth_of(&seal)).0)
    });
    let padded = |padding| LeafHead { padding, ..leaf_head() }.encode(birth()).0;
    assert!(LeafHead::decode(&padded(255), None).is_ok());
    let mut beyond = [padded(255), vec![0]].concat();
    let len = beyond.len() as u32;
    beyond[96..100].copy_from_slice(&len.to_le_bytes());
    Seal::close(&mut beyond);
    assert!(LeafHead::decode(&beyond, None).is_err_and(|e| e.to_string().contains("padding")));
    accepted += mangle(4, &internal_head().encode(birth()).0, true, |bytes| {
        let (seal, head) = InternalHead::decode(bytes, None).ok()?;
        Some(head.encode(birth_of(&seal)).0)
    });
    accepted += mangle(5, &section().encode(), false, |bytes| {
        Some(KeySection::decode(bytes, TreeId::Data, None).ok()?.encode())
    });
    let padded = |zeros: usize| [section().encode(), vec![0; zeros]].concat();
    accepted += mangle(5, &padded(SECTION_PADDING_MAX), false, |bytes| {
        Some(KeySection::decode(bytes, TreeId::Data, None).ok()?.encode())
    });
    let beyond = padded(SECTION_PADDING_MAX + 1);
    assert!(KeySection::decode(&beyond, TreeId::Data, None).is_err());
    accepted += mangle(6, &slice_of(&messages()), false, |bytes| {
        Some(slice_of(&decode_slice(&Bytes::copy_from_slice(bytes), 3, None).ok()?))
    });
    let mut w = Writer::default();
    encode_ranges(&mut w, ranges().iter());
    accepted += mangle(7, w.as_slice(), false, |bytes| {
        let mut w = Writer::default();
        encode_ranges(&mut w, decode_ranges(bytes, 3, None).ok()?.iter());
        Some(w.finish())
    });
    let group = group();
    let length = group_length(&group).unwrap();
    accepted += mangle(8, &group[..length], true, |bytes| {
        let (seal, group) = Group::decode(&Bytes::copy_from_slice(bytes), None).ok()?;
        let mut writer = GroupWriter::default();
        group.records.iter().for_each(|record| writer.push(record));
        let Group { nonce_before, number, flushed, bindings, .. } = group;
        let mut again = writer.seal(&bindings, birth_of(&seal), nonce_before, number, flushed);
        again.truncate(bytes.len());
        Some(again)
    });
    for kind in [FileType::Regular, FileType::Symlink, FileType::Directory] {
        accepted += mangle(9, &inode(kind).encode(), false, |bytes| {
            match MetaValue::decode(bytes, None).ok()? {
                MetaValue::Inode(inode) => Some(inode.encode()),
                MetaValue::ZoneRef(zone) => Some(zone.encode()),
            }
        });
    }
    assert!(accepted > 1000, "only {accepted} were accepted");
}

#[test]
fn metadata_keys_are_ordered_depth_first_with_the_entries_of_a_directory_together() {
    let root = MetaKey::root(ZoneId(3));
    let a = root.child(b"a");
    let keys = [
        root.clone(),
        root.with_xattr(b"user.x"),
        a.clone(),
        a.with_xattr(b"user.x"),
        root.child(b"a\x01"),
        root.child(b"b"),
        a.child(b"c"),
        a.child(b"c").child(b"d"),
        root.child(b"b").child(b"a"),
        MetaKey::root(ZoneId(4)),
    ];
    for pair in keys.windows(2) {
        assert!(pair[0].encode() < pair[1].encode(), "{pair:?}");
    }
    for key in &keys {
        assert_eq!(MetaKey::decode(&key.encode()).as_ref(), Some(key));
    }
    let (lo, hi) = root.entry_range();
    let inside: Vec<bool> =
        keys.iter().map(|key| lo <= key.encode() && key.encode() < hi).collect();
    assert_eq!(inside, [false, false, true, true, true, true, false, false, false, false]);
    for bad in [
        &b""[..],
        b"short",
        b"\0\0\0\0\0\0\0\x03\x01a",
        b"\0\0\0\0\0\0\0\x03\x02a\0",
        b"\0\0\0\0\0\0\0\x03\x01a/b\0",
        b"\0\0\0\0\0\0\0\x03\x01..\0",
        b"\0\0\0\0\0\0\0\x03\x07a\0",
    ] {
        assert_eq!(MetaKey::decode(bad), None, "{bad:?}");
    }
}
