//! Crafted file systems: directory cycles, impossible names, sizes without blocks.

use super::*;

pub(super) const CASES: &[Case] = &[
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
    ("two objects in clones with one tag are shown alike", Finds(Code::InodeTwice), |forge| {
        let lineage = Lineage { limit: Ino(1000), tag: Tag(1) };
        let mut messages = cloned(500, b"new-a", lineage);
        messages.extend(cloned(501, b"new-b", lineage));
        for number in [500, 501] {
            messages.push(put(&zone(number).child(b"new-f"), &inode(FileType::Regular, 600)));
        }
        committed(raised(forge), messages)
    }),
    ("a stored number that the lineage would store otherwise", Finds(Code::InodeTwice), |forge| {
        let mut messages = cloned(500, b"new-a", Lineage { limit: Ino(1000), tag: Tag(1) });
        let file = inode(FileType::Regular, 2000 | 1 << 61);
        messages.push(put(&zone(500).child(b"new-f"), &file));
        committed(raised(forge), messages)
    }),
    ("a tag that was not given out", Finds(Code::CounterWrong), |forge| {
        let lineage = Lineage { limit: Ino(1000), tag: Tag(limits::TAGS_END - 1) };
        committed(raised(forge), cloned(500, b"new-a", lineage))
    }),
    ("a lineage with a limit that was not given out", Finds(Code::CounterWrong), |forge| {
        let limit = Ino(limits::INODES_END.0 - 1);
        committed(raised(forge), cloned(500, b"new-a", Lineage { limit, tag: Tag(1) }))
    }),
    ("a lineage of the root directory", Finds(Code::ZoneWrong), |forge| {
        let lineage = Lineage { limit: Ino(1000), tag: Tag(1) };
        let inode = Inode { lineage, ..inode(FileType::Directory, 1) };
        committed(raised(forge), vec![put(&root(), &inode)])
    }),
    ("a lineage without a zone", Finds(Code::ZoneWrong), |forge| {
        let lineage = Lineage { limit: Ino(1000), tag: Tag(1) };
        let inode = Inode { lineage, ..inode(FileType::Directory, 1600) };
        committed(raised(forge), vec![put(&root().child(b"new-d"), &inode)])
    }),
    ("a limit without a tag", Finds(Code::ValueMalformed), |forge| {
        let lineage = Lineage { limit: Ino(1000), tag: Tag(0) };
        committed(raised(forge), cloned(500, b"new-a", lineage))
    }),
    ("a clone of the root directory's zone without a root", Wrong, |forge| {
        let [to, from] = [500u64, 0].map(|zone| Key::copied(&zone.to_be_bytes()));
        let clone = Lens::of_ranges(to, from).unwrap();
        logged(raised(forge), vec![RecordMessage::Clone(META, clone.into())])
    }),
    ("a clone of all zones below 256", Wrong, |forge| {
        let [to, from] = [1, 0].map(|last| Key::copied(&[0, 0, 0, 0, 0, 0, last]));
        let clone = Lens::of_ranges(to, from).unwrap();
        logged(raised(forge), vec![RecordMessage::Clone(META, clone.into())])
    }),
    ("a file with two links and one name, in a directory", Finds(Code::LinksWrong), |forge| {
        let mut messages = directory(0, b"new-dir", 500, 0);
        let place = zone(500).child(b"new-f");
        messages.push(put(&place, &Inode { links: 2, ..inode(FileType::Regular, 600) }));
        committed(raised(forge), messages)
    }),
    ("an orphan that is the root directory", Wrong, |forge| {
        let name = format!("{:016x}", 1);
        let place = zone(1).child(name.as_bytes());
        committed(raised(forge), vec![refer(&place, FileType::Directory, 1, 0)])
    }),
    ("an orphan that is a directory in use", Finds(Code::ZoneWrong), |forge| {
        let mut messages = directory(0, b"new-dir", 500, 0);
        let place = zone(1).child(format!("{:016x}", 1500).as_bytes());
        messages.push(refer(&place, FileType::Directory, 1500, 500));
        messages.push(put(&zone(500).child(b"new-f"), &inode(FileType::Regular, 600)));
        committed(raised(forge), messages)
    }),
    ("an orphan that is named after another number", Finds(Code::ZoneWrong), |forge| {
        let place = zone(1).child(format!("{:016x}", 601).as_bytes());
        let file = Inode { links: 0, ..inode(FileType::Regular, 600) };
        committed(
            raised(forge),
            vec![refer(&place, FileType::Regular, 600, 500), put(&zone(500), &file)],
        )
    }),
    ("a file whose name refers to it as to a directory", Finds(Code::ZoneWrong), |forge| {
        let own = ZoneRef {
            link: LinkKind::Own,
            kind: FileType::Regular,
            ino: Ino(600),
            zone: ZoneId(500),
        };
        let place = root().child(b"new-f");
        let name = insert(META, place.encode(), own.encode());
        committed(raised(forge), vec![name, put(&zone(500), &inode(FileType::Regular, 600))])
    }),
    ("a file with inode number 0", Finds(Code::InodeTwice), |forge| {
        committed(forge, vec![put(&root().child(b"new-0"), &inode(FileType::Regular, 0))])
    }),
    ("a link to the root directory", Finds(Code::ZoneWrong), |forge| {
        let mut messages = directory(0, b"new-dir", 500, 0);
        messages.push(refer(&zone(500).child(b"new-f"), FileType::Regular, 1, 0));
        committed(raised(forge), messages)
    }),
    ("a file whose contents are in the zone of a directory", Finds(Code::ZoneWrong), |forge| {
        let mut messages = directory(0, b"new-dir", 500, 0);
        let data_zone = Some(ZoneId(500));
        let file = Inode { size: 4096, data_zone, ..inode(FileType::Regular, 600) };
        messages.push(put(&root().child(b"new-f"), &file));
        messages.push(insert(DATA, data_key(&500u64.to_be_bytes(), 0), vec![1; 4096]));
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
            sparse: true,
            ..inode(FileType::Regular, 600)
        };
        let prefix = 500u64.to_be_bytes();
        let last = i64::MAX as u64 / 4096;
        let entry = (b"new-0".len() + 2 + file.encoded_len()) as i64;
        let counted = Update::add_all(vec![(META_SUM_AT, entry), (APART_SUM_AT, 1)]);
        let counted = Action::Update(counted);
        let messages = vec![
            put(&root().child(b"new-0"), &file),
            RecordMessage::Point(META, root().encode(), counted),
            insert(DATA, data_key(&prefix, 0), vec![1; 4096]),
            insert(DATA, data_key(&prefix, last), vec![1; 4095]),
        ];
        committed(raised(forge), messages)
    }),
    ("a file with a hole that says that it has none", Finds(Code::HolesUnflagged), |forge| {
        let file = Inode { size: 9000, ..inode(FileType::Regular, 600) };
        let name = root().child(b"new-0");
        let entry = (b"new-0".len() + 2 + file.encoded_len()) as i64;
        let sums = vec![(META_SUM_AT, entry), (DATA_SUM_AT, 12288)];
        let messages = vec![
            put(&name, &file),
            RecordMessage::Point(META, root().encode(), Action::Update(Update::add_all(sums))),
            insert(DATA, data_key(&name.encode(), 0), vec![1; 4096]),
            insert(DATA, data_key(&name.encode(), 2), vec![1; 808]),
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
            // The key of the innermost directory has 1024 bytes, so it has no room for another name.
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
    // Entries that reappeared because a range delete was lost.
    ("entries below a file", Finds(Code::DirectoryUnreachable), |forge| {
        let file = root().child(b"new-file");
        let below = put(&file.child(b"below"), &inode(FileType::Regular, 701));
        let deep = put(&file.child(b"dir").child(b"deep"), &inode(FileType::Directory, 702));
        let messages = vec![put(&file, &inode(FileType::Regular, 700)), below, deep];
        committed(raised(forge), messages)
    }),
    (
        "entries below the name of a zone that has them too",
        Finds(Code::DirectoryUnreachable),
        |forge| {
            let mut messages = directory(0, b"new-dir", 500, 0);
            let contents = Inode { data_zone: Some(ZoneId(600)), ..inode(FileType::Regular, 701) };
            messages.push(put(&zone(500).child(b"file"), &contents));
            messages.push(put(&root().child(b"new-dir").child(b"file"), &contents));
            committed(raised(forge), messages)
        },
    ),
    ("a zone of a file that nothing leads to", Finds(Code::DirectoryUnreachable), |forge| {
        let file = Inode { links: 0, ..inode(FileType::Regular, 700) };
        committed(raised(forge), vec![put(&zone(500), &file)])
    }),
    ("a zone with the last number", Wrong, |forge| {
        committed(raised(forge), vec![put(&zone(u64::MAX), &inode(FileType::Directory, 700))])
    }),
    ("directories that are missing, one in another", Finds(Code::DirectoryUnreachable), |forge| {
        let mut place = root();
        for depth in 0..40 {
            place = place.child(format!("new-{depth}").as_bytes());
        }
        committed(raised(forge), vec![put(&place, &inode(FileType::Regular, 700))])
    }),
    ("an attribute of a directory that is missing", Finds(Code::XattrLost), |forge| {
        let place = root().child(b"new-dir");
        let note = insert(META, place.with_xattr(b"user.note").encode(), vec![7; 9]);
        let below = put(&place.child(b"below"), &inode(FileType::Regular, 700));
        committed(raised(forge), vec![note, below])
    }),
];
