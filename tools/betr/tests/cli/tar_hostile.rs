//! Archives that are extreme or malicious: imported completely, or not at all.

use std::fs;
use std::path::Path;

use betr_copy::host::{Kind, Meta, Time};
use betr_copy::tar::{Segments, Writer};

use crate::support::*;

type Archive = Writer<Vec<u8>>;

fn meta(kind: Kind, secs: i64) -> Meta {
    let time = Time { secs, nanos: 5 };
    Meta { uid: 11, gid: 12, ..Meta::new(kind, 0o751, time) }
}

fn directory(tar: &mut Archive, name: &[u8], secs: i64) {
    tar.object(name, &meta(Kind::Directory, secs)).unwrap();
}

fn file(tar: &mut Archive, name: &[u8], data: &[u8]) {
    let meta = Meta { size: data.len() as u64, ..meta(Kind::File, 100) };
    tar.file(name, &meta, &Segments::whole(meta.size)).unwrap();
    tar.data(data).unwrap();
}

fn link(tar: &mut Archive, name: &[u8], to: &[u8]) {
    tar.link(name, to, &meta(Kind::File, 100)).unwrap();
}

fn symlink(tar: &mut Archive, name: &[u8], to: &[u8]) {
    tar.object(name, &meta(Kind::Symlink(to.to_vec()), 100)).unwrap();
}

/// Writes `dir/x.tar` with some members.
fn pack(dir: &Path, members: impl FnOnce(&mut Archive)) {
    let mut tar = Writer::new(Vec::new());
    members(&mut tar);
    fs::write(dir.join("x.tar"), tar.finish().unwrap()).unwrap();
}

#[test]
fn members_come_in_any_order_and_replace_each_other() {
    let (_guard, dir) = scratch();
    let image = dir.join("t.img");
    pack(&dir, |tar| {
        file(tar, b"/etc/passwd", b"old");
        file(tar, b"./a//b/./c", b"c");
        directory(tar, b"a/", 50);
        file(tar, b"a/late", b"late");
        file(tar, b"etc/passwd", b"new, and longer");
        directory(tar, b"turns", 60);
        symlink(tar, b"turns", b"etc");
        symlink(tar, b"link", b"etc");
        directory(tar, b"link", 70);
        file(tar, b"link/in", b"in");
        file(tar, b"one", b"1");
        link(tar, b"two", b"./one");
        link(tar, b"one", b"two");
        file(tar, b"one", b"11");
        link(tar, b"new/place/three", b"/two");
        let xattrs =
            vec![(b"user.old".to_vec(), b"x".to_vec()), (b"user.b".to_vec(), b"1".to_vec())];
        tar.object(b"again", &Meta { xattrs, ..meta(Kind::Directory, 80) }).unwrap();
        let xattrs = vec![(b"user.b".to_vec(), b"2".to_vec())];
        tar.object(b"again", &Meta { xattrs, perm: 0o700, ..meta(Kind::Directory, 90) }).unwrap();
        directory(tar, b".", 40);
        file(tar, b"last", b"");
    });
    run("mkfs -q IMG -d DIR/x.tar", &image, &dir, 0);
    run("fsck -fn --data IMG", &image, &dir, 0);
    let listing = "a\na/b\na/b/c\na/late\nagain\netc\netc/passwd\nlast\nlink\nlink/in\nnew\nnew/place\n\
                   new/place/three\none\nturns\ntwo\n";
    let (out, _) = run("ls -R IMG", &image, &dir, 0);
    let mut found: Vec<&str> = out.lines().collect();
    found.sort_unstable();
    assert_eq!(found, listing.lines().collect::<Vec<_>>());
    let (out, _) = run("cat IMG /etc/passwd /one /two /new/place/three", &image, &dir, 0);
    assert_eq!(out, "new, and longer1111");
    for (path, expected) in [
        ("/", "Modified: 1970-01-01T00:00:40.000000005Z"),
        ("/a", "Modified: 1970-01-01T00:00:50.000000005Z"),
        ("/a", "Owner: 11:12"),
        // Directories that no member describes.
        ("/a/b", "Modified: 1970-01-01T00:01:40.000000005Z"),
        ("/a/b", "Mode: 0755"),
        ("/etc", "Owner: 0:0"),
        ("/link", "Modified: 1970-01-01T00:01:10.000000005Z"),
        ("/turns", "Target: etc"),
        ("/one", "Links: 1"),
        ("/two", "Links: 2"),
        ("/again", "Mode: 0700"),
        ("/again", "Xattr: user.b = 2"),
    ] {
        let (out, _) = run(&format!("stat IMG {path}"), &image, &dir, 0);
        assert!(out.contains(expected), "{path}: {expected}: {out}");
    }
    assert!(!run("stat IMG /again", &image, &dir, 0).0.contains("user.old"));
}

#[test]
fn what_cannot_be_taken_in_leaves_nothing() {
    let (_guard, dir) = scratch();
    let (image, new) = (small_image(&dir), dir.join("out/new.img"));
    fs::create_dir(dir.join("out")).unwrap();
    run("export IMG DIR/before", &image, &dir, 0);
    type Members = fn(&mut Archive);
    let cases: [(Members, &[&str]); 9] = [
        (|tar| file(tar, b"../escape", b""), &["x.tar: byte ", "../escape", "no way up"]),
        (|tar| link(tar, b"l", b"none"), &["l: ", "'none'", "does not come before"]),
        (|tar| (directory(tar, b"d", 1), link(tar, b"l", b"d")).1, &["l: ", "a directory"]),
        (|tar| (file(tar, b"f", b""), file(tar, b"f/g", b"")).1, &["f: ", "in the way"]),
        (|tar| (symlink(tar, b"s", b"/etc"), file(tar, b"s/f", b"")).1, &["s: ", "in the way"]),
        (|tar| (file(tar, b"d/f", b""), file(tar, b"d", b"")).1, &["d: ", "not empty"]),
        (|tar| file(tar, &[b'n'; 256], b""), &["nnnn", "name too long"]),
        (|tar| file(tar, b"large", &pattern(4 << 20)), &["no space left"]),
        (
            |tar| {
                let xattrs = vec![(b"user.x".to_vec(), vec![0; 70_000])];
                tar.object(b"d", &Meta { xattrs, ..meta(Kind::Directory, 1) }).unwrap();
            },
            &["d: ", "extended attribute", "too large"],
        ),
    ];
    for (members, expected) in cases {
        pack(&dir, |tar| {
            file(tar, b"first", b"first");
            members(tar);
            file(tar, b"last", b"last");
        });
        for (line, image) in
            [("mkfs -q IMG 2M -d DIR/x.tar", &new), ("import IMG --tar DIR/x.tar /new", &image)]
        {
            let (out, err) = run(line, image, &dir, 1);
            assert!(out.is_empty() && expected.iter().all(|text| err.contains(text)), "{err}");
        }
        assert!(names(&dir.join("out")).is_empty());
    }
    run("fsck -fn --data IMG", &image, &dir, 0);
    run("export IMG DIR/after", &image, &dir, 0);
    crate::tree::assert_same(&dir.join("before"), &dir.join("after"));
}

#[test]
fn an_archive_that_is_cut_off_or_compressed_leaves_nothing() {
    let (_guard, dir) = scratch();
    let (image, archive) = (dir.join("out/t.img"), dir.join("x.tar"));
    fs::create_dir(dir.join("out")).unwrap();
    pack(&dir, |tar| {
        file(tar, b"first", &pattern(5000));
        file(tar, b"second", &pattern(5000));
    });
    let whole = fs::read(&archive).unwrap();
    for len in [100, 512, 700, 5632, 6144, 8000, 11_264] {
        fs::write(&archive, &whole[..len]).unwrap();
        let (out, err) = run("mkfs IMG 2M -d DIR/x.tar", &image, &dir, 1);
        assert!(out.is_empty() && err.contains("x.tar: "), "{err}");
        let input = fs::File::open(&archive).unwrap();
        let mut command = std::process::Command::new(BETR);
        let command = command.args(words("mkfs IMG 2M -d -", &image, &dir)).stdin(input);
        let output = command.output().unwrap();
        let (out, err) = text(&output);
        assert_eq!(output.status.code(), Some(1));
        assert!(out.is_empty() && err.contains("standard input: "), "{err}");
        assert!(names(&dir.join("out")).is_empty(), "{len}");
    }
    for (magic, program) in
        [(&b"\x1f\x9d"[..], "zcat"), (b"BZh", "bzcat"), (b"\x04\x22\x4d\x18", "lz4cat")]
    {
        fs::write(&archive, [magic, &whole].concat()).unwrap();
        let (_, err) = run("mkfs IMG -d DIR/x.tar", &image, &dir, 1);
        let expected = format!("{program} {} | betr mkfs IMAGE SIZE -d -", archive.display());
        assert!(err.contains(&expected), "{err}");
        let image = small_image(&dir);
        let (_, err) = run("import IMG --tar DIR/x.tar /new", &image, &dir, 1);
        let expected = format!("{program} {} | betr import IMAGE - DEST", archive.display());
        assert!(err.contains(&expected), "{err}");
    }
    fs::write(&archive, "no archive").unwrap();
    let (_, err) = run("mkfs IMG -d DIR/x.tar", &image, &dir, 1);
    assert!(err.contains("not a tar archive"), "{err}");
}

#[test]
fn deep_trees_and_odd_names_are_kept() {
    let (_guard, dir) = scratch();
    let image = dir.join("t.img");
    let mut deep = Vec::new();
    for level in 0..2000 {
        deep.extend(if level % 20 == 0 { vec![b'x'; 255] } else { vec![b'd'] });
        deep.push(b'/');
    }
    let names: [&[u8]; 7] =
        [b"new\nline", b"\xff\xfe", b"\x1b[31mred", b" ", b"...", b"GNUSparseFile.0", &[b'n'; 255]];
    pack(&dir, |tar| {
        for end in deep.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at) {
            directory(tar, &deep[..end], end as i64);
        }
        file(tar, &[&deep[..], b"bottom"].concat(), b"found");
        names.iter().for_each(|name| file(tar, name, name));
    });
    run("mkfs -q IMG -d DIR/x.tar", &image, &dir, 0);
    run("fsck -fn --data IMG", &image, &dir, 0);
    let export = || betr(words("export IMG -", &image, &dir)).output().unwrap().stdout;
    let first = export();
    fs::write(dir.join("y.tar"), &first).unwrap();
    run("mkfs -qf IMG -d DIR/y.tar", &image, &dir, 0);
    assert!(first == export());
    let (out, _) = run("ls -R IMG", &image, &dir, 0);
    assert_eq!(out.lines().count(), 2001 + names.len());
    let bottom = format!("/{}bottom", String::from_utf8(deep).unwrap());
    let output = betr([Path::new("cat"), &image, Path::new(&bottom)]).output().unwrap();
    assert_eq!(output.stdout, b"found");
}

#[test]
fn farms_of_hard_links_are_kept() {
    const LINKS: usize = 2000;
    let (_guard, dir) = scratch();
    let image = dir.join("t.img");
    pack(&dir, |tar| {
        file(tar, b"0/first", &pattern(10_000));
        let mut last = b"0/first".to_vec();
        for number in 1..LINKS {
            let name = format!("{}/{number}", number % 9).into_bytes();
            link(tar, &name, &last);
            last = name;
        }
    });
    run("mkfs -q IMG -d DIR/x.tar", &image, &dir, 0);
    run("fsck -fn --data IMG", &image, &dir, 0);
    let (out, _) = run("stat IMG /0/first", &image, &dir, 0);
    assert!(out.contains(&format!("Links: {LINKS}\n")), "{out}");
    let archive = betr(words("export IMG -", &image, &dir)).output().unwrap().stdout;
    // The contents are stored once.
    assert!(archive.len() < 512 * (LINKS + 60) + 20_000, "{}", archive.len());
    fs::write(dir.join("y.tar"), archive).unwrap();
    run("mkfs -qf IMG -d DIR/y.tar", &image, &dir, 0);
    let (out, _) = run("stat IMG /0/first", &image, &dir, 0);
    assert!(out.contains(&format!("Links: {LINKS}\n")), "{out}");
}

#[test]
fn many_attributes_are_kept() {
    let (_guard, dir) = scratch();
    let image = dir.join("t.img");
    pack(&dir, |tar| {
        let xattr = |number: usize| (format!("user.{number:03}").into_bytes(), pattern(65_536));
        let xattrs = (0..100).map(xattr).collect();
        tar.object(b"d", &Meta { xattrs, ..meta(Kind::Directory, 1) }).unwrap();
    });
    run("mkfs -q IMG 64M -d DIR/x.tar", &image, &dir, 0);
    run("fsck -fn --data IMG", &image, &dir, 0);
    let archive = betr(words("export IMG -", &image, &dir)).output().unwrap().stdout;
    fs::write(dir.join("y.tar"), &archive).unwrap();
    run("mkfs -qf IMG 64M -d DIR/y.tar", &image, &dir, 0);
    assert!(archive == betr(words("export IMG -", &image, &dir)).output().unwrap().stdout);
}
