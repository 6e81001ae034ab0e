//! `betr clone` of directories, and what the other tools say of them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::*;

/// An image with a directory of several zones, of small files, a large file, hard links, a symbolic link and an extended
/// attribute.
fn image(dir: &Path) -> PathBuf {
    let tree = dir.join("tree/src");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    for number in 0..200 {
        fs::write(tree.join(format!("a/f{number}")), format!("file {number}")).unwrap();
        fs::write(tree.join(format!("a/b/g{number}")), pattern(number * 20)).unwrap();
    }
    fs::write(tree.join("large"), pattern(3_000_000)).unwrap();
    fs::hard_link(tree.join("a/f1"), tree.join("a/b/link")).unwrap();
    std::os::unix::fs::symlink("a/f2", tree.join("to f2")).unwrap();
    let image = dir.join("image");
    run("mkfs -q --zone-size 32768 -d DIR/tree IMG 64M", &image, dir, 0);
    run("setfattr -n user.x -v y IMG /src/a/f3", &image, dir, 0);
    run("chmod IMG 640 /src/a/b", &image, dir, 0);
    image
}

/// A directory of the image as an archive without its name, which is the same for the same contents and attributes.
fn archive(image: &Path, dir: &Path, path: &str) -> Vec<u8> {
    let out = dir.join("archive");
    let _ = fs::remove_dir_all(&out);
    run(&format!("export IMG {path} DIR/archive"), image, dir, 0);
    let output = std::process::Command::new("tar")
        .args(["--sort=name", "--xattrs", "--format=posix", "--pax-option=delete=?time", "-c", "."])
        .current_dir(&out)
        .output()
        .unwrap();
    assert!(output.status.success());
    output.stdout
}

#[test]
fn a_clone_is_as_the_original_until_either_changes() {
    let (_guard, dir) = scratch();
    let image = image(&dir);
    let empty = used(&image, &dir);
    let whole = archive(&image, &dir, "/src");
    run("clone IMG /src /one", &image, &dir, 0);
    run("clone IMG /one /two", &image, &dir, 0);
    let more = used(&image, &dir) - empty;
    assert!(more < 1 << 20, "{more} bytes for two clones");
    for path in ["/one", "/two"] {
        assert!(archive(&image, &dir, path) == whole, "{path}");
    }
    // Into an existing directory it goes under its own name.
    run("mkdir IMG /into", &image, &dir, 0);
    run("clone IMG /src/a /into", &image, &dir, 0);
    run("ls IMG /into/a/b/link", &image, &dir, 0);
    // No change of one is seen in the other.
    run("rm -r IMG /two/a/b", &image, &dir, 0);
    run("truncate -s 5 IMG /one/large", &image, &dir, 0);
    run("mv IMG /one/a/f7 /two/a/from-one", &image, &dir, 0);
    assert!(archive(&image, &dir, "/src") == whole);
    run("clone IMG /src /three", &image, &dir, 0);
    run("rm -r IMG /src", &image, &dir, 0);
    assert!(archive(&image, &dir, "/three") == whole);
    run("rm -r IMG /one /two /into /three", &image, &dir, 0);
    run("fsck -fn --data IMG", &image, &dir, 0);
    let (none, left) = (dir.join("none"), used(&image, &dir));
    run("mkfs -q IMG 64M", &none, &dir, 0);
    let least = used(&none, &dir);
    assert!(left < least + (1 << 20), "{left} bytes, {least} in an empty image");
}

#[test]
fn what_cannot_be_cloned_is_refused_and_nothing_changes() {
    let (_guard, dir) = scratch();
    let image = image(&dir);
    let before = archive(&image, &dir, "/");
    for (line, expected) in [
        ("clone IMG / /all", "/all: invalid argument"),
        ("clone IMG /src /src/a/again", "/src/a/again: invalid argument"),
        ("clone IMG /none /x", "/none: no such file or directory"),
        ("clone IMG /src /none/x", "/none/x: no such file or directory"),
        ("clone IMG /src /src/large", "/src/large: file exists"),
        ("clone IMG /src /", "/src: file exists"),
        ("clone IMG /src/. /src", "/src: invalid argument"),
    ] {
        let (_, err) = run(line, &image, &dir, 1);
        assert!(err.contains(expected), "{line}: {err}");
    }
    run("fsck -fn --data IMG", &image, &dir, 0);
    assert!(archive(&image, &dir, "/") == before);
}

#[test]
fn tools_see_through_a_clone() {
    let (_guard, dir) = scratch();
    let image = image(&dir);
    run("clone IMG /src /one", &image, &dir, 0);
    run("snapshot create -q IMG one", &image, &dir, 0);
    run("rm -r IMG /one/a/b", &image, &dir, 0);
    run("clone IMG /one /two", &image, &dir, 0);
    run("cp IMG DIR/tree/src/a/f9 :/two/a/new", &image, &dir, 0);
    run("snapshot create -q IMG two", &image, &dir, 0);
    run("mv IMG /two/a/f7 /one/moved", &image, &dir, 0);
    run("mv IMG /src /one/in", &image, &dir, 0);
    run("snapshot create -q IMG three", &image, &dir, 0);
    let (out, _) = run("diff IMG IMG --a-as-of s:one --b-as-of s:two", &image, &dir, 1);
    let says = |line: &str| out.lines().any(|found| found.trim_end().starts_with(line));
    assert!(says("+ /two/a/f7") && says("- /one/a/b/g3") && !out.contains(" /src"), "{out}");
    let (out, _) = run("explain IMG /two/a/f5", &image, &dir, 0);
    assert!(out.contains("a lens: keys that begin with z:"), "{out}");
    for what in ["tree", "space", "stats", "all", "zones", "table"] {
        let (out, err) = run(&format!("dump IMG {what}"), &image, &dir, 0);
        assert!(!out.is_empty() && err.is_empty(), "{what}: {err}");
    }
    let (numbers, _) = run("find IMG / --json", &image, &dir, 0);
    assert!(!numbers.is_empty());
    // What moves to another image is the same there, snapshot by snapshot.
    let other = dir.join("other");
    for (from, name) in [("", "one"), ("--from one ", "two"), ("--from two ", "three")] {
        run(&format!("send -q {from}-o DIR/{name}.stream DIR/image@{name}"), &image, &dir, 0);
        let size = if from.is_empty() { " 64M" } else { "" };
        run(&format!("receive -q -i DIR/{name}.stream IMG{size}"), &other, &dir, 0);
    }
    run("diff IMG DIR/other", &image, &dir, 0);
    run("clone IMG /two /more", &other, &dir, 0);
    run("fsck -fn --data IMG", &other, &dir, 0);
    // A pack has the structure, and a proof what is behind a lens.
    run("pack IMG DIR/pack", &image, &dir, 0);
    let unpacked = dir.join("unpacked");
    run("unpack DIR/pack IMG", &unpacked, &dir, 0);
    run("fsck -fn IMG", &unpacked, &dir, 0);
    for (what, path) in [
        ("", "/two/a/new"),
        ("", "/two/large"),
        ("--metadata ", "/one/a/f5"),
        ("--absent ", "/two/x"),
    ] {
        let _ = fs::remove_file(dir.join("proof"));
        let (out, _) = run(&format!("prove {what}-o DIR/proof IMG {path}"), &image, &dir, 0);
        let (_, root) = out.trim_end().split_once(" of root ").unwrap_or_else(|| panic!("{out}"));
        let absent = if what.starts_with("--absent") { what } else { "" };
        run(&format!("verify-proof {absent}--root {root} DIR/proof"), &image, &dir, 0);
    }
    for name in ["two", "one", "three"] {
        run(&format!("snapshot drop -q IMG {name}"), &image, &dir, 0);
    }
    run("fsck -fn --data IMG", &image, &dir, 0);
}
