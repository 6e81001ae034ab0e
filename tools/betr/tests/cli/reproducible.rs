//! The same tree with the same UUID and `SOURCE_DATE_EPOCH` gives the same image, however and wherever the tree was
//! created.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::support::*;
use crate::tree::{set_mode, set_times, set_xattr};

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// A tree that does not depend on the order in which it is created.
fn grow(root: &Path, reversed: bool) {
    let mut names: Vec<String> = (0..40).map(|i| format!("d{}/e{}/f{i}", i % 3, i % 5)).collect();
    if reversed {
        names.reverse();
    }
    for name in &names {
        fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        fs::write(root.join(name), pattern(name.len() * 997)).unwrap();
        set_mode(&root.join(name), 0o640);
    }
    let (first, second) = if reversed { ("l1", "l2") } else { ("l2", "l1") };
    fs::write(root.join(first), "linked").unwrap();
    fs::hard_link(root.join(first), root.join(second)).unwrap();
    set_mode(&root.join(first), 0o600);
    symlink("f0", root.join("s")).unwrap();
    match reversed {
        // As written zeros, and as a hole.
        true => fs::write(root.join("zeros"), vec![0; 20_000]).unwrap(),
        false => fs::File::create(root.join("zeros")).unwrap().set_len(20_000).unwrap(),
    }
    set_mode(&root.join("zeros"), 0o644);
    let mut xattrs = [("user.a", b"1"), ("user.b", b"2"), ("user.c", b"3")];
    if reversed {
        xattrs.reverse();
    }
    for (name, value) in xattrs {
        set_xattr(&root.join("l1"), name, value);
    }
    let mut paths: Vec<_> = crate::tree::read(root).into_keys().collect();
    paths.reverse();
    for path in paths {
        let path = root.join(String::from_utf8(path).unwrap());
        if path.is_dir() {
            set_mode(&path, 0o755);
        }
        set_times(&path, 1_600_000_000, 123_456_789);
    }
}

#[test]
fn the_same_tree_gives_the_same_bytes() {
    let (_guard, dir) = scratch();
    let build = |name: &str, tree: &str, umask: &str, zone: &str, fixed: bool| {
        let script = format!("umask {umask}; exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, BETR, "mkfs", "-L", "same", "-q", name, "16M"]);
        command.args(["-d", tree]).current_dir(&dir).env("TZ", zone);
        if fixed {
            command.args(["-U", UUID]).env("SOURCE_DATE_EPOCH", "1500000000");
        } else {
            command.env_remove("SOURCE_DATE_EPOCH");
        }
        assert!(command.status().unwrap().success());
        fingerprint(&dir.join(name)).0
    };
    grow(&dir.join("one"), false);
    grow(&dir.join("deep/in/another"), true);
    let first = build("a.img", "one", "022", "UTC", true);
    let second = build("b.img", "deep/in/another", "077", "Pacific/Auckland", true);
    assert_eq!(first, second);
    let (out, _) = run("stat --json IMG /l1", &dir.join("a.img"), &dir, 0);
    assert_eq!(out.matches("\"2017-07-14T02:40:00.000000000Z\"").count(), 4, "{out}");
    run("fsck -fn IMG", &dir.join("b.img"), &dir, 0);
    assert_ne!(
        build("c.img", "one", "022", "UTC", false),
        build("d.img", "one", "022", "UTC", false)
    );
    betr(["mkfs", "-n", "x.img", "2M"]).env("SOURCE_DATE_EPOCH", "soon").assert().code(1);
}

#[test]
fn the_same_edits_give_the_same_bytes() {
    let (_guard, dir) = scratch();
    grow(&dir.join("tree"), false);
    let edit = |name: &str, fixed: bool| {
        let image = dir.join(name);
        for line in [
            &format!("mkfs -q -U {UUID} IMG 16M -d DIR/tree")[..],
            "import -q IMG DIR/tree /more",
            "rm -r IMG /d1",
            "mv IMG /more/d0 /moved",
            "chmod IMG 600 /l1",
            "cp -r IMG :/moved :/copy",
        ] {
            let mut command = betr(words(line, &image, &dir));
            match fixed {
                true => command.env("SOURCE_DATE_EPOCH", "1700000000"),
                false => command.env_remove("SOURCE_DATE_EPOCH"),
            };
            command.assert().success();
        }
        run("fsck -fn --data IMG", &image, &dir, 0);
        fingerprint(&image).0
    };
    assert_eq!(edit("a.img", true), edit("b.img", true));
    assert_ne!(edit("c.img", false), edit("d.img", false));
}
