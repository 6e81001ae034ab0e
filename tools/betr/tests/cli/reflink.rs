//! Files that share blocks after `betr cp`, and what the other tools say of them.

use std::fs;
use std::path::Path;

use crate::support::*;

const LEN: usize = 6_000_000;

/// An image with a file, and a copy of it in which some bytes differ.
fn cloned(dir: &Path) -> std::path::PathBuf {
    let image = dir.join("image");
    fs::write(dir.join("data"), pattern(LEN)).unwrap();
    run("mkfs -q IMG 128M", &image, dir, 0);
    run("cp IMG DIR/data :/data", &image, dir, 0);
    let before = used(&image, dir);
    run("cp IMG :/data :/copy", &image, dir, 0);
    let more = used(&image, dir) - before;
    assert!(more < 200_000, "{more} bytes for a copy");
    image
}

/// The contents of a file of the image, at a moment.
fn content(image: &Path, dir: &Path, path: &str, moment: &str) -> Vec<u8> {
    let out = dir.join("content");
    let _ = fs::remove_file(&out);
    run(&format!("export IMG{moment} {path} DIR/content"), image, dir, 0);
    fs::read(out).unwrap()
}

#[test]
fn copies_share_blocks_until_they_change() {
    let (_guard, dir) = scratch();
    let image = cloned(&dir);
    run("cp --reflink=never IMG :/data :/whole", &image, &dir, 0);
    let all = used(&image, &dir);
    assert!(all > 2 * LEN as u64, "{all} bytes");
    run("truncate -s 3000001 IMG /copy", &image, &dir, 0);
    assert!(content(&image, &dir, "/data", "") == pattern(LEN));
    assert!(content(&image, &dir, "/whole", "") == pattern(LEN));
    assert!(content(&image, &dir, "/copy", "") == pattern(LEN)[..3_000_001]);
    run("rm IMG /data /whole", &image, &dir, 0);
    assert!(content(&image, &dir, "/copy", "") == pattern(LEN)[..3_000_001]);
    run("rm IMG /copy", &image, &dir, 0);
    assert!(used(&image, &dir) < 3_000_000);
}

#[test]
fn tools_see_through_what_is_shared() {
    let (_guard, dir) = scratch();
    let image = cloned(&dir);
    run("snapshot create -q IMG one", &image, &dir, 0);
    // Both change, the original goes, and what is left is copied once more.
    run("truncate -s 5000000 IMG /copy", &image, &dir, 0);
    run("snapshot create -q IMG two", &image, &dir, 0);
    run("mv IMG /data /moved", &image, &dir, 0);
    run("cp IMG :/copy :/again", &image, &dir, 0);
    run("rm IMG /moved", &image, &dir, 0);
    run("snapshot create -q IMG three", &image, &dir, 0);
    for (moment, path, len) in [
        ("one", "/copy", LEN),
        ("one", "/data", LEN),
        ("two", "/copy", 5_000_000),
        ("three", "/again", 5_000_000),
    ] {
        let found = content(&image, &dir, path, &format!(" --as-of s:{moment}"));
        assert!(found == pattern(LEN)[..len], "{moment} {path}");
    }
    let (out, _) = run("diff IMG IMG --a-as-of s:one --b-as-of s:two", &image, &dir, 1);
    assert!(out.contains("/copy") && !out.contains("/data"), "{out}");
    let (out, _) = run("diff IMG IMG --a-as-of s:two --b-as-of s:three", &image, &dir, 1);
    assert!(out.contains("/again") && out.contains("/data") && !out.contains("/copy"), "{out}");
    let (out, _) = run("explain IMG /again@244", &image, &dir, 0);
    assert!(out.contains("lens"), "{out}");
    for what in ["tree", "space", "stats", "all", "zones", "table"] {
        let (out, err) = run(&format!("dump IMG {what}"), &image, &dir, 0);
        assert!(!out.is_empty() && err.is_empty(), "{what}: {err}");
    }
    // What moves to another image is the same there, snapshot by snapshot.
    let other = dir.join("other");
    for (from, name) in [("", "one"), ("--from one ", "two"), ("--from two ", "three")] {
        run(&format!("send -q {from}-o DIR/{name}.stream DIR/image@{name}"), &image, &dir, 0);
        let size = if from.is_empty() { " 128M" } else { "" };
        run(&format!("receive -q -i DIR/{name}.stream IMG{size}"), &other, &dir, 0);
    }
    run("fsck -fn --data IMG", &other, &dir, 0);
    for path in ["/copy", "/again"] {
        assert!(content(&other, &dir, path, "") == pattern(LEN)[..5_000_000], "{path}");
    }
    // A pack has the structure, and a proof the bytes of a block behind a lens.
    run("pack IMG DIR/pack", &image, &dir, 0);
    let unpacked = dir.join("unpacked");
    run("unpack DIR/pack IMG", &unpacked, &dir, 0);
    run("fsck -fn IMG", &unpacked, &dir, 0);
    run("prove -o DIR/proof IMG /again", &image, &dir, 0);
    // Dropped in any order, all space comes back.
    for name in ["two", "one", "three"] {
        run(&format!("snapshot drop -q IMG {name}"), &image, &dir, 0);
    }
    run("rm IMG /copy /again", &image, &dir, 0);
    assert!(used(&image, &dir) < 3_000_000);
}
