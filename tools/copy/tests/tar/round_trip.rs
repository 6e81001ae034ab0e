//! The reader reads what the writer writes.

use betr_copy::host::{Kind, Meta};
use betr_copy::tar::{Segments, What, Writer};

use crate::build::*;

fn plain(kind: Kind) -> Meta {
    Meta { uid: 1, gid: 2, ..Meta::new(kind, 0o640, at(5, 0)) }
}

/// Objects that need every kind of record, and some that need none.
fn objects() -> Vec<(Vec<u8>, Meta)> {
    let long = [&[b'd'; 255][..], b"/", &[b'\xff'; 255]].concat();
    let link = |len| Kind::Symlink(vec![b'\xfe'; len]);
    let metas = [
        plain(Kind::Directory),
        plain(Kind::Fifo),
        plain(link(100)),
        plain(link(101)),
        plain(link(4095)),
        plain(Kind::CharDevice { major: 1, minor: 3 }),
        plain(Kind::BlockDevice { major: u32::MAX, minor: u32::MAX }),
        Meta { perm: 0o7777, uid: 0o7777777, gid: 0o7777777, ..plain(Kind::Fifo) },
        Meta { uid: 0o10000000, gid: u32::MAX, ..plain(Kind::Fifo) },
        Meta { mtime: at(-1, 999_999_999), atime: at(i64::MIN, 1), ..plain(Kind::Fifo) },
        Meta { mtime: at(i64::MAX, 0), atime: at(1 << 33, 0), ..plain(Kind::Fifo) },
        Meta { mtime: at((1 << 33) - 1, 0), atime: at((1 << 33) - 1, 0), ..plain(Kind::Fifo) },
        Meta {
            xattrs: vec![
                (b"user.%25=".to_vec(), b"\0\n\xff=".to_vec()),
                (b"user.\n\xff".to_vec(), Vec::new()),
                (b"user.large".to_vec(), vec![b'x'; 65_536]),
            ],
            ..plain(Kind::Fifo)
        },
    ];
    let names = [b"./a".to_vec(), vec![b'n'; 255], long, b"\n\xff".to_vec()];
    let both = metas.iter().flat_map(|meta| names.iter().map(move |name| (name, meta)));
    both.map(|(name, meta)| (name.clone(), meta.clone())).collect()
}

#[test]
fn objects_come_back() {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    for (name, meta) in objects() {
        writer.object(&name, &meta).unwrap();
        writer.link(&[&name[..], b"2"].concat(), &name, &meta).unwrap();
    }
    writer.finish().unwrap();
    assert_eq!(bytes.len() % 10_240, 0);
    let members = read(&bytes).unwrap();
    assert_eq!(members.len(), 2 * objects().len());
    for (pair, (name, meta)) in members.chunks(2).zip(objects()) {
        let path = name.strip_prefix(b"./").unwrap_or(&name);
        let size = match &meta.kind {
            Kind::Symlink(target) => target.len() as u64,
            _ => 0,
        };
        let mut xattrs = meta.xattrs.clone();
        xattrs.sort();
        let expected = Meta { size, ctime: meta.mtime, xattrs, ..meta.clone() };
        assert_eq!(pair[0].0.path, path);
        assert_eq!(pair[0].0.what, What::Object(expected));
        assert_eq!(pair[1].0.path, [path, b"2"].concat());
        let What::Link { to, size: 0, .. } = &pair[1].0.what else { panic!("{:?}", pair[1]) };
        assert_eq!(to, path);
        assert!(pair.iter().all(|(member, _)| member.warnings.is_empty()));
    }
}

#[test]
fn files_come_back_with_their_holes() {
    let long = [b'n'; 300];
    for name in [&b"n"[..], &long] {
        for (size, parts) in [
            (0, &[][..]),
            (1, &[(0, 1)]),
            (512, &[(0, 512)]),
            (700, &[(0, 700)]),
            (20_000, &[]),
            (20_000, &[(4096, 8192)]),
            (20_000, &[(0, 4096), (8192, 20_000)]),
            (20_000, &[(0, 1), (2, 3), (19_999, 20_000)]),
        ] {
            let mut segments = Segments::new(size);
            parts.iter().for_each(|(from, to)| segments.push(*from, *to));
            let mut bytes = Vec::new();
            let mut writer = Writer::new(&mut bytes);
            let meta = Meta { size, ..plain(Kind::File) };
            writer.file(name, &meta, &segments).unwrap();
            let mut expected = vec![0; size as usize];
            for (from, len) in segments.iter() {
                let range = from as usize..(from + len) as usize;
                expected[range.clone()].fill(from as u8 + 1);
                let (first, second) = expected[range].split_at(len as usize / 2);
                writer.data(first).unwrap();
                writer.data(second).unwrap();
            }
            writer.object(b"after", &plain(Kind::Directory)).unwrap();
            writer.finish().unwrap();
            let members = read(&bytes).unwrap();
            assert_eq!((&members[0].0.path[..], members.len()), (name, 2));
            assert!(members[0].1 == expected, "{size} {parts:?}");
        }
    }
}

#[test]
fn data_must_be_as_many_as_were_announced() {
    let meta = Meta { size: 5, ..plain(Kind::File) };
    let mut writer = Writer::new(Vec::new());
    writer.file(b"n", &meta, &Segments::whole(5)).unwrap();
    assert!(writer.data(b"123456").is_err());
    writer.data(b"1234").unwrap();
    assert!(writer.object(b"m", &plain(Kind::Fifo)).is_err());
    assert!(writer.finish().is_err());
    let mut writer = Writer::new(Vec::new());
    assert!(writer.object(b"n", &plain(Kind::Socket)).is_err());
    assert!(writer.object(b"n", &meta).is_err());
}

#[test]
fn headers_say_nothing_that_was_not_said() {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    writer.object(b"./", &plain(Kind::Directory)).unwrap();
    writer.finish().unwrap();
    // One header and the end: no extended header, no user names, no time of writing.
    assert_eq!(bytes.len(), 10_240);
    assert!(bytes[512..].iter().all(|byte| *byte == 0));
    assert!(bytes[265..329].iter().all(|byte| *byte == 0));
}
