//! Damaged and hostile archives, and files that are none: each gives an error with its place, and no crash.

use std::io::{Cursor, Read};

use betr_copy::tar::{EXTENSION_MAX, Input};

use crate::build::*;

/// Archives that must not be read, and the text of the error.
fn cases() -> Vec<(Vec<u8>, &'static str)> {
    let file = || Tar::default().file(b"first", b"1");
    let header = |header: Header| file().header(header).end();
    let pax = |records: &[(&[u8], &[u8])]| {
        file().pax(b'x', records).header(Header::new(b"n", b'0', 0)).end()
    };
    let raw = |records: &[u8]| {
        let extended = Header::new(b"pax", b'x', records.len() as u64);
        file().header(extended).data(records).file(b"n", b"").end()
    };
    let old = |pairs: &[u8], size: &[u8]| {
        let sparse = Header::gnu(b"holes", b'S', 3).with(386, pairs).with(483, size);
        file().header(sparse).data(b"abc").end()
    };
    let front = |map: &[u8], size: u64| {
        let records: [(&[u8], &[u8]); 3] = [
            (b"GNU.sparse.major", b"1"),
            (b"GNU.sparse.realsize", b"10"),
            (b"GNU.sparse.name", b"holes"),
        ];
        let tar = file().pax(b'x', &records).header(Header::new(b"h", b'0', size));
        tar.data(map).data(b"abc").end()
    };
    let mut damaged = file().file(b"second", b"2").end();
    damaged[1024] ^= 1;
    let mut lone = file().0;
    lone.extend([0; 512]);
    lone.extend(file().end());
    let long = vec![b'1'; 600];
    vec![
        (damaged, "byte 1024: checksum of the header: expected "),
        (lone, "byte 1024: end of the archive: expected two blocks of zeros, found one"),
        (file().0, "byte 1024: header: expected a member or two blocks of zeros, found the end"),
        (file().pax(b'x', &[]).end(), "byte 1536: header: expected a member, found the end"),
        (header(Header::new(b"../up", b'0', 0)), "member '../up': name: expected no way up"),
        (header(Header::new(b"a/../../b", b'0', 0)), "member 'a/../../b': name"),
        (
            header(Header::new(b"", b'0', 0)),
            "byte 1024, member '': name: expected a name, found none",
        ),
        (header(Header::new(b"n", b'1', 0).link(b"../x")), "member 'n': target of the hard link"),
        (header(Header::new(b"n", b'1', 0)), "member 'n': target of the hard link"),
        (header(Header::new(b"n", b'2', 0)), "member 'n': target of the symbolic link"),
        (header(Header::new(b"n", b'M', 0)), "member 'n': type of the member: expected one of"),
        (header(Header::new(b"n", b'0', 0).with(108, b"12x4567\0")), "owner in the header"),
        (header(Header::new(b"n", b'0', 0).with(108, &[0xff; 8])), "owner in the header"),
        (header(Header::new(b"n", b'0', 0).with(124, &[0xff; 12])), "size in the header"),
        (
            header(Header::new(b"n", b'0', 0).with(124, b"\x80\0\0\0\x80\0\0\0\0\0\0\0")),
            "size in the",
        ),
        (header(Header::new(b"n", b'0', 0).with(136, b"\xbf1234567890")), "time in the header"),
        (header(Header::new(b"n", b'3', 0).with(329, b"9999999\0")), "major number"),
        (pax(&[(b"path", b"a\0b")]), "member 'a\\x00b': name: expected no zero bytes"),
        (pax(&[(b"size", b"-1")]), "byte 1536: pax record size: expected a number below 2^63"),
        (pax(&[(b"mtime", b"soon")]), "pax record mtime: expected a time in seconds, found 'soon'"),
        (raw(b"8 uid=1\n8 uid=12"), "byte 1544: pax record: expected a newline"),
        (raw(b"99 uid=1\n"), "byte 1536: pax record: expected a length of 3 to 9"),
        (raw(&long), "pax record: expected a length and a blank"),
        (pax(&[(b"GNU.sparse.size", b"5")]), "member 'n': sparse file: expected a map"),
        (pax(&[(b"GNU.sparse.major", b"2"), (b"GNU.sparse.size", b"5")]), "found 2.0"),
        (pax(&[(b"GNU.sparse.map", b"0,1")]), "sparse file: expected its size, found none"),
        (pax(&[(b"SCHILY.realsize", b"5")]), "SCHILY.realsize"),
        (
            old(b"00000000005\x0000000000003\0", b"00000000007\0"),
            "member 'holes': map of the sparse file",
        ),
        (old(b"00000000005\x0000000000002\0", b"00000000017\0"), "expected 3 bytes of data"),
        (
            old(b"00000000005\x0000000000002\x0000000000001\x0000000000001\0", b"00000000017\0"),
            "expected order, from 7 on, found 1 bytes at 1",
        ),
        (old(&[0xbf; 24], b"00000000017\0"), "segment of a sparse file"),
        (
            front(b"1\n0\n3\n", 515 - 512),
            "map in front of the data of the sparse file: expected an end",
        ),
        (
            front(b"2\n0\n3\n", 515),
            "map in front of the data of the sparse file: expected a decimal",
        ),
        (front(b"1\n8\n3\n", 515), "expected data within its 10 bytes"),
        (front(b"99999999\n", 515), "expected at most 1048576 segments"),
        (header(Header::new(b"x", b'x', EXTENSION_MAX + 1)), "extended header: expected at most"),
        (header(Header::new(b"x", b'L', 10 << 30)), "extended header: expected at most"),
        (
            header(Header::new(b"x", b'0', 1 << 32)),
            "byte 2536, member 'x': the archive is cut off: expected 1000 bytes",
        ),
    ]
}

#[test]
fn errors_name_archive_place_and_member() {
    for (bytes, expected) in cases() {
        let error = read(&bytes).unwrap_err().to_string();
        assert!(
            error.starts_with("x.tar: byte ") && error.contains(expected),
            "{expected}: {error}"
        );
    }
}

#[test]
fn what_is_no_archive_is_told_from_a_damaged_one() {
    let long = |magic: &[u8]| [magic, &[b'x'; 600]].concat();
    for (bytes, expected) in [
        (Vec::new(), "x.tar: not a tar archive: beginning: expected a block of 512 bytes, found 0"),
        (b"short".to_vec(), "not a tar archive"),
        (long(b"text"), "x.tar: not a tar archive: checksum of the header"),
        (long(b"\x1f\x9d\x90"), "x.tar: compressed with compress"),
        (b"\x1f\x9d\x90".to_vec(), "compressed with compress"),
        (long(b"\x04\x22\x4d\x18"), "compressed with lz4"),
        (long(b"BZh9"), "compressed with bzip2"),
    ] {
        let error = read(&bytes).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        let hint = error.explain("betr import IMAGE - DEST");
        let piped = hint.contains("cat x.tar | betr import IMAGE - DEST");
        assert_eq!(piped, expected.contains("compressed"), "{hint}");
    }
}

/// An archive with every kind of member.
fn everything() -> Vec<u8> {
    let tar = Tar::default().pax(b'g', &[(b"comment", b"c"), (b"SCHILY.xattr.user.g", b"g")]);
    let tar = tar.header(Header::new(b"d/", b'5', 0)).file(b"d/f", &[1; 700]);
    let records: [(&[u8], &[u8]); 4] = [
        (b"path", &[b'p'; 300]),
        (b"mtime", b"-1.5"),
        (b"SCHILY.xattr.user.a", b"\0\n"),
        (b"SCHILY.acl.access", b"user::rw-,user:1:r--,group::r--,mask::r--,other::---"),
    ];
    let tar = tar.pax(b'x', &records).file(b"p", b"x");
    let tar = tar.header(Header::gnu(b"././@LongLink", b'L', 201)).data(&[b'l'; 201]);
    let tar = tar.header(Header::gnu(b"l", b'2', 0).link(b"to"));
    let pair = b"00000000005\x0000000000002\x0000000000010\x0000000000001\0";
    let holes = Header::gnu(b"holes", b'S', 3).with(386, pair).with(483, b"00000000020\0");
    let tar = tar.header(holes).data(b"abc");
    let front: [(&[u8], &[u8]); 3] =
        [(b"GNU.sparse.major", b"1"), (b"GNU.sparse.realsize", b"99"), (b"GNU.sparse.name", b"h")];
    let tar = tar.pax(b'x', &front).header(Header::new(b"h", b'0', 515));
    let tar = tar.data(b"2\n0\n2\n50\n1\n").data(b"abc");
    tar.header(Header::new(b"hard", b'1', 0).link(b"d/f")).end()
}

#[test]
fn an_archive_cut_off_anywhere_is_an_error() {
    let whole = everything();
    assert_eq!(read(&whole).unwrap().len(), 7);
    // The archive is still complete without the last block of zeros.
    for len in (0..whole.len() - 512).step_by(19) {
        assert!(read(&whole[..len]).is_err(), "{len} of {} bytes", whole.len());
    }
}

#[test]
fn flipped_bytes_give_an_error_or_a_result() {
    let whole = everything();
    let (mut errors, mut results) = (0, 0);
    for at in 0..whole.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            match read(&bytes) {
                Ok(_) => results += 1,
                Err(_) => errors += 1,
            }
            // The same with a valid checksum.
            let block = at / 512 * 512;
            if bytes[block + 257..block + 262] == *b"ustar" {
                let header = Header(bytes[block..block + 512].try_into().unwrap()).block();
                bytes[block..block + 512].copy_from_slice(&header);
                match read(&bytes) {
                    Ok(_) => results += 1,
                    Err(_) => errors += 1,
                }
            }
        }
    }
    assert!(errors > 1000 && results > 1000, "{errors} errors, {results} results");
}

#[test]
fn a_hostile_header_takes_no_memory() {
    // 10 GiB of records, which must not be read to the end.
    let header = Tar::default().header(Header::new(b"x", b'x', 10 << 30)).0;
    let endless = Cursor::new(header).chain(std::io::repeat(b'1'));
    let error = read_from(Input::stream("endless", endless)).unwrap_err().to_string();
    assert!(error.contains("expected at most 16777216 bytes"), "{error}");
    // The same in many small headers.
    let one = Tar::default().pax(b'x', &[(b"comment", &[b'c'; 1 << 20])]).0;
    let many = Cursor::new(one.repeat(20));
    let error = read_from(Input::stream("many", many)).unwrap_err().to_string();
    assert!(error.contains("expected at most 16777216 bytes"), "{error}");
    // The same in global headers.
    let mut tar = Tar::default();
    for number in 0..20 {
        let key = format!("SCHILY.xattr.user.{number}");
        tar = tar.pax(b'g', &[(key.as_bytes(), &[b'v'; 4000])]);
    }
    let error = read(&tar.end()).unwrap_err().to_string();
    assert!(error.contains("global header: expected at most 65536 bytes"), "{error}");
}
