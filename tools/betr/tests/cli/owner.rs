//! Owners of imported objects.

use std::fs;
use std::path::Path;

use betr_cli::skip::need;

use crate::support::*;

/// A tree with two owners, as a directory and as an archive; `false` if it cannot be created.
fn planted(dir: &Path) -> bool {
    let tree = dir.join("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::write(tree.join("file"), "").unwrap();
    std::os::unix::fs::symlink("file", tree.join("sub/link")).unwrap();
    if !need("root, who gives files away", is_root()) {
        return false;
    }
    for (name, uid, gid) in [("", 1, 2), ("sub", 3, 4), ("file", 1000, 2000), ("sub/link", 5, 6)] {
        std::os::unix::fs::lchown(tree.join(name), Some(uid), Some(gid)).unwrap();
    }
    let image = dir.join("plain.img");
    run("mkfs -q IMG -d DIR/tree", &image, dir, 0);
    let archive = betr(words("export IMG -", &image, dir)).output().unwrap().stdout;
    fs::write(dir.join("tree.tar"), archive).unwrap();
    true
}

/// The owners of the root, the file, the directory and the link, below a path of an image.
fn owners(image: &Path, dir: &Path, below: &str) -> Vec<(u64, u64)> {
    let paths = ["", "/file", "/sub", "/sub/link"].map(|path| format!("{below}{path}"));
    let paths = paths.map(|path| if path.is_empty() { "/".to_owned() } else { path });
    let (out, _) = run(&format!("stat --json IMG {}", paths.join(" ")), image, dir, 0);
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    let objects = value["objects"].as_array().unwrap();
    let owner = |object: &serde_json::Value| {
        (object["uid"].as_u64().unwrap(), object["gid"].as_u64().unwrap())
    };
    objects.iter().map(owner).collect()
}

#[test]
fn owners_are_forced_and_moved() {
    let (_guard, dir) = scratch();
    if !planted(&dir) {
        return;
    }
    let image = dir.join("t.img");
    for (options, expected) in [
        ("", [(1, 2), (1000, 2000), (3, 4), (5, 6)]),
        ("--all-root", [(0, 0); 4]),
        ("--force-uid 7", [(7, 2), (7, 2000), (7, 4), (7, 6)]),
        ("--force-gid 8 --force-uid 4294967294", [(4_294_967_294, 8); 4]),
        (
            "--uid-offset 100000 --gid-offset -2",
            [(100_001, 0), (101_000, 1998), (100_003, 2), (100_005, 4)],
        ),
        ("--all-root --uid-offset 5", [(5, 0); 4]),
    ] {
        for source in ["tree", "tree.tar"] {
            run(&format!("mkfs -qf IMG 4M -d DIR/{source} {options}"), &image, &dir, 0);
            assert_eq!(owners(&image, &dir, ""), expected, "{options} {source}");
            let tar = if source == "tree" { "" } else { "--tar" };
            run(&format!("import {tar} {options} IMG DIR/{source} /new"), &image, &dir, 0);
            assert_eq!(owners(&image, &dir, "/new"), expected, "{options} {source}");
        }
    }
    // Without contents the root gets owner and group 0, as the options map them.
    run("mkfs -qf IMG 4M --all-root --uid-offset 9", &image, &dir, 0);
    assert!(run("stat IMG /", &image, &dir, 0).0.contains("Owner: 9:0"));
}

#[test]
fn owners_that_nobody_can_be_are_refused() {
    let (_guard, dir) = scratch();
    if !planted(&dir) {
        return;
    }
    let image = dir.join("out/t.img");
    fs::create_dir(dir.join("out")).unwrap();
    for (options, expected) in [
        ("--uid-offset 4294967295", "owner 1 cannot be moved by 4294967295"),
        ("--gid-offset -5", "group 2 cannot be moved by -5"),
        ("--uid-offset 4294966300", "file: owner 1000 cannot be moved by 4294966300"),
        ("--uid-offset -9223372036854775808", "cannot be moved"),
        ("--all-root --force-uid 1", "cannot be used with"),
        ("--force-uid root", "invalid value 'root'"),
        ("--force-uid 4294967296", "invalid value"),
    ] {
        for source in ["tree", "tree.tar"] {
            let line = format!("mkfs -q IMG 4M -d DIR/{source} {options}");
            let (_, err) = run(&line, &image, &dir, 1);
            assert!(err.contains(expected), "{line}: {err}");
            assert!(names(&dir.join("out")).is_empty());
        }
    }
}
