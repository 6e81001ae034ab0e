//! Reading valid archives of every format.

use std::io::Cursor;

use betr_copy::host::{Excludes, Kind};
use betr_copy::tar::{Archive, ArchiveLinks, Input, LinksTo, What};

use crate::build::*;

#[test]
fn all_formats_have_files() {
    for header in [Header::new, Header::gnu, Header::v7] {
        let (member, contents) =
            read_one(Tar::default().header(header(b"./d/f", b'0', 3)).data(b"abc"));
        assert_eq!((&member.path[..], &contents[..]), (&b"d/f"[..], &b"abc"[..]));
        let meta = meta(&member);
        assert_eq!((&meta.kind, meta.perm, meta.uid, meta.gid), (&Kind::File, 0o644, 0o12, 0o13));
        assert_eq!((meta.size, meta.mtime, meta.atime), (3, at(64, 0), at(64, 0)));
        assert!(member.warnings.is_empty());
    }
}

#[test]
fn every_type_is_what_it_says() {
    let device = |kind| Header::new(b"n", kind, 0).with(329, b"0000003\0").with(337, b"0000005\0");
    for (header, expected) in [
        (Header::new(b"n", 0, 0), Kind::File),
        (Header::new(b"n", b'7', 0), Kind::File),
        (Header::new(b"n", b'2', 9).link(b"../to"), Kind::Symlink(b"../to".to_vec())),
        (device(b'3'), Kind::CharDevice { major: 3, minor: 5 }),
        (device(b'4'), Kind::BlockDevice { major: 3, minor: 5 }),
        (Header::new(b"n/", b'5', 9), Kind::Directory),
        (Header::new(b"n", b'6', 9), Kind::Fifo),
        (Header::v7(b"n/", 0, 0), Kind::Directory),
        (Header::new(b"n/", b'0', 0), Kind::Directory),
    ] {
        let (member, _) = read_one(Tar::default().header(header));
        assert_eq!((&member.path[..], &meta(&member).kind), (&b"n"[..], &expected));
    }
    // The list of names in an incremental archive, and a volume label, are skipped.
    let tar = Tar::default().header(Header::gnu(b"label", b'V', 0));
    let tar = tar.header(Header::gnu(b"n", b'D', 600)).data(&[b'Y'; 600]);
    assert_eq!(meta(&read_one(tar).0).kind, Kind::Directory);
    // A hard link has no data unless a pax header of its own precedes it.
    let link = Header::new(b"n", b'1', 3).link(b"./to/it");
    let what = |size| What::Link { to: b"to/it".to_vec(), size, modified: at(64, 0) };
    let (member, _) = read_one(Tar::default().header(link.clone()));
    assert_eq!(member.what, what(0));
    let (member, contents) =
        read_one(Tar::default().pax(b'x', &[(b"comment", b"")]).header(link).data(b"abc"));
    assert_eq!((member.what, &contents[..]), (what(3), &b"abc"[..]));
}

#[test]
fn numbers_may_be_large_and_times_early() {
    let header = Header::gnu(b"n", b'0', 0)
        .with(108, b"\x80\0\0\0\xff\xff\xff\xfe")
        .with(116, b"\x80\0\0\0\0\x20\0\0")
        .with(136, &[0xff; 12])
        .with(345, b"00000000007\0");
    let (member, _) = read_one(Tar::default().header(header));
    let meta = meta(&member);
    assert_eq!((meta.uid, meta.gid), (u32::MAX - 1, 1 << 21));
    assert_eq!((meta.mtime, meta.atime), (at(-1, 0), at(7, 0)));
}

#[test]
fn long_names_come_in_every_way() {
    let name = [&[b'd'; 200][..], b"/", &[b'f'; 90]].concat();
    let zero = [&name[..], b"\0"].concat();
    let len = zero.len() as u64;
    let to = |kind| Header::gnu(b"././@LongLink", kind, len);
    let gnu = Tar::default().header(to(b'L')).data(&zero);
    assert_eq!(read_one(gnu.header(Header::gnu(b"cut", b'0', 0))).0.path, name);
    let gnu = Tar::default().header(to(b'K')).data(&zero);
    let (member, _) = read_one(gnu.header(Header::gnu(b"n", b'2', 0).link(b"cut")));
    assert_eq!(meta(&member).kind, Kind::Symlink(name.clone()));
    let pax = Tar::default().pax(b'x', &[(b"path", &name), (b"linkpath", b"to")]);
    let (member, _) = read_one(pax.header(Header::new(b"cut", b'2', 0).link(b"cut")));
    assert_eq!((&member.path, &meta(&member).kind), (&name, &Kind::Symlink(b"to".to_vec())));
    let ustar = Header::new(b"end", b'0', 0).with(345, b"the/beginning");
    assert_eq!(read_one(Tar::default().header(ustar)).0.path, b"the/beginning/end");
    // GNU's format has other fields in this place.
    let gnu = Header::gnu(b"end", b'0', 0).with(345, b"00000000001\0");
    assert_eq!(read_one(Tar::default().header(gnu)).0.path, b"end");
    // A field need not end with a zero byte.
    let full = Header::new(&[b'n'; 100], b'0', 0).with(345, &[b'p'; 155]);
    assert_eq!(read_one(Tar::default().header(full)).0.path.len(), 256);
}

#[test]
fn records_of_pax_headers_count_most() {
    let tar = Tar::default().pax(b'g', &[(b"uid", b"1"), (b"gid", b"2"), (b"comment", b"all")]);
    let tar = tar.pax(
        b'x',
        &[
            (b"hdrcharset", b"BINARY"),
            (b"path", b"\xff\n/n"),
            (b"uid", b"4294967294"),
            (b"size", b"3"),
            (b"mtime", b"-1.5"),
            (b"atime", b"16725225600.000000007"),
            (b"SCHILY.xattr.user.b", b"\0\n=\xff"),
            (b"SCHILY.xattr.user.a", b""),
            (b"RHT.security.selinux", b"u:r:t:s0"),
            (b"SCHILY.fflags", b"nodump"),
        ],
    );
    let tar = tar.header(Header::new(b"other", b'0', 0)).data(b"abc").file(b"next", b"");
    let members = read(&tar.end()).unwrap();
    let (member, contents) = &members[0];
    assert_eq!((&member.path[..], &contents[..]), (&b"\xff\n/n"[..], &b"abc"[..]));
    let found = meta(member);
    assert_eq!((found.uid, found.gid, found.size), (u32::MAX - 1, 2, 3));
    assert_eq!((found.mtime, found.atime), (at(-2, 500_000_000), at(16_725_225_600, 7)));
    let xattrs: Vec<(&[u8], &[u8])> = found.xattrs.iter().map(|(n, v)| (&n[..], &v[..])).collect();
    let expected: [(&[u8], &[u8]); 3] =
        [(b"security.selinux", b"u:r:t:s0\0"), (b"user.a", b""), (b"user.b", b"\0\n=\xff")];
    assert_eq!(xattrs, expected);
    // Records of one member do not apply to the next; global ones do.
    let next = meta(&members[1].0);
    assert_eq!((next.uid, next.gid, next.mtime, next.xattrs.len()), (1, 2, at(64, 0), 0));
}

#[test]
fn what_cannot_be_kept_is_told() {
    let tar = Tar::default().pax(
        b'x',
        &[(b"SCHILY.acl.access", b"user:lisa:rw-"), (b"LIBARCHIVE.xattr.user.a", b"YQ==")],
    );
    let (member, _) = read_one(tar.file(b"n", b""));
    assert_eq!(member.warnings.len(), 2, "{:?}", member.warnings);
}

/// A file of 20,000 bytes, `ab` at 512 and `c` at 19,999.
fn sparse() -> Vec<u8> {
    let mut contents = vec![0; 20_000];
    contents[512..514].copy_from_slice(b"ab");
    contents[19_999] = b'c';
    contents
}

#[test]
fn sparse_files_have_their_holes_in_every_format() {
    let pairs = [("00000001000", "00000000002"), ("00000047037", "00000000001")];
    let mut old = Header::gnu(b"n", b'S', 3).with(483, b"00000047040\0");
    for (at, (offset, len)) in pairs.iter().enumerate() {
        old = old.with(386 + 24 * at, format!("{offset}\0{len}\0").as_bytes());
    }
    // The same with the segments after the header.
    let mut more = [0; 512];
    for (at, (offset, len)) in pairs.iter().enumerate() {
        let pair = format!("{offset}\0{len}\0");
        more[24 * at..24 * (at + 1)].copy_from_slice(pair.as_bytes());
    }
    let extended = Header::gnu(b"n", b'S', 3).with(482, b"\x01").with(483, b"00000047040\0");
    let file = Header::new(b"GNUSparseFile.0/n", b'0', 3);
    let size: (&[u8], &[u8]) = (b"GNU.sparse.size", b"20000");
    let count: (&[u8], &[u8]) = (b"GNU.sparse.numblocks", b"2");
    let zero = [
        (&b"path"[..], &b"n"[..]),
        size,
        count,
        (b"GNU.sparse.offset", b"512"),
        (b"GNU.sparse.numbytes", b"2"),
        (b"GNU.sparse.offset", b"19999"),
        (b"GNU.sparse.numbytes", b"1"),
    ];
    let one = [size, count, (b"GNU.sparse.name", b"n"), (b"GNU.sparse.map", b"512,2,19999,1")];
    let front = [
        (&b"GNU.sparse.major"[..], &b"1"[..]),
        (b"GNU.sparse.minor", b"0"),
        (b"GNU.sparse.name", b"n"),
        (b"GNU.sparse.realsize", b"20000"),
    ];
    let map = Tar::default().data(b"3\n512\n2\n19999\n1\n20000\n0\n").0;
    let in_front = Header::new(b"GNUSparseFile.0/n", b'0', 512 + 3);
    for (name, tar) in [
        ("old", Tar::default().header(old).data(b"abc")),
        ("old, extended", Tar::default().header(extended).data(&more).data(b"abc")),
        ("0.0", Tar::default().pax(b'x', &zero).header(file.clone()).data(b"abc")),
        ("0.1", Tar::default().pax(b'x', &one).header(file).data(b"abc")),
        (
            "1.0",
            Tar::default().pax(b'x', &front).header(in_front).data(&[&map[..], b"abc"].concat()),
        ),
    ] {
        let (member, contents) = read_one(tar);
        assert_eq!((&member.path[..], meta(&member).size), (&b"n"[..], 20_000), "{name}");
        assert!(contents == sparse(), "{name}");
    }
}

#[test]
fn archives_end_with_zeros() {
    let tar = Tar::default().file(b"a", b"1");
    // The end: one block of zeros, two, a whole record, and bytes after it.
    for (zeros, rest) in [(512, 0), (1024, 0), (8704, 0), (1024, 700)] {
        let mut bytes = tar.0.clone();
        bytes.extend(vec![0; zeros]);
        bytes.extend(vec![b'x'; rest]);
        assert_eq!(read(&bytes).unwrap().len(), 1, "{zeros}");
    }
    assert!(read(&[0; 512]).unwrap().is_empty());
    assert!(read(&[0; 10_240]).unwrap().is_empty());
}

#[test]
fn pipes_and_files_give_the_same() {
    let tar = Tar::default().file(b"a", &[7; 5000]).file(b"b", &[8; 511]).end();
    let whole = read(&tar).unwrap();
    let trickle = Trickle(Cursor::new(tar.clone()));
    assert_eq!(read_from(Input::stream("pipe", trickle)).unwrap(), whole);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.tar");
    std::fs::write(&path, &tar).unwrap();
    assert_eq!(read_from(Input::open(&path).unwrap()).unwrap(), whole);
    // Data that was not requested is skipped.
    let mut archive = Archive::open(&path).unwrap();
    while archive.next_member().unwrap().is_some() {}
    assert!(Archive::open(&dir.path().join("none")).is_err());
}

#[test]
fn links_are_known_by_what_they_lead_to() {
    let mut tar = Tar::default().file(b"a", &[1; 5000]);
    for (name, to) in [(&b"x/l"[..], &b"a"[..]), (b"m", b"./a"), (b"n", b"a"), (b"o", b"c")] {
        tar = tar.header(Header::new(name, b'1', 0).link(to));
    }
    let mut archive = Archive::new(Input::stream("x.tar", Cursor::new(tar.end())));
    let (mut links, excludes) = (ArchiveLinks::default(), Excludes::new(["/x"]).unwrap());
    while let Some(member) = archive.next_member().unwrap() {
        links.note(&member, &excludes);
    }
    assert_eq!(links.of(b"a"), Some(&LinksTo { first: b"m".to_vec(), count: 2 }));
    assert_eq!(links.of(b"c"), Some(&LinksTo { first: b"o".to_vec(), count: 1 }));
    assert_eq!(links.of(b"x/l").map(|links| links.count), None);
}
