//! Import and export preserve types, modes, owners, links, sizes, contents, times and extended attributes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use betr_cli::skip::need;
use predicates::prelude::*;
use serde_json::Value;

use crate::support::*;
use crate::tree::{assert_same, plant, read, set_xattr};

/// The most data, in bytes, to copy of the machine's own files.
const REAL_BYTES: u64 = 16 << 20;

/// A planted tree in `dir`.
fn planted(dir: &Path) -> PathBuf {
    let tree = dir.join("tree");
    fs::create_dir(&tree).unwrap();
    plant(&tree);
    need("user extended attributes here", set_xattr(&tree.join("one"), "user.probe", b"x"));
    tree
}

#[test]
fn everything_survives_mkfs_and_export() {
    let (_guard, dir) = scratch();
    let (tree, image) = (planted(&dir), dir.join("t.img"));
    run("mkfs -q IMG 64M -d DIR/tree", &image, &dir, 0);
    run("fsck -fn --data IMG", &image, &dir, 0);
    run("export IMG DIR/out", &image, &dir, 0);
    assert_same(&tree, &dir.join("out"));
    // The source tree is unchanged, too; and a hole is a hole again.
    for name in ["sparse", "hole", "zeros"] {
        let meta = fs::metadata(dir.join("out").join(name)).unwrap();
        assert!(meta.blocks() * 512 <= 64 << 10, "{name} takes {} blocks", meta.blocks());
    }
    // An existing empty directory serves as the destination.
    fs::create_dir(dir.join("ready")).unwrap();
    run("export IMG DIR/ready", &image, &dir, 0);
    assert_same(&tree, &dir.join("ready"));
}

#[test]
fn an_image_without_a_size_is_large_enough() {
    let (_guard, dir) = scratch();
    let (tree, image) = (planted(&dir), dir.join("t.img"));
    // mkfs would make the image large enough for a giant hole.
    fs::remove_file(tree.join("hole")).unwrap();
    run("mkfs -q IMG -d DIR/tree", &image, &dir, 0);
    run("fsck -fn IMG", &image, &dir, 0);
    run("export IMG DIR/out", &image, &dir, 0);
    assert_same(&tree, &dir.join("out"));
}

#[test]
fn everything_survives_import_and_export_of_one_path() {
    let (_guard, dir) = scratch();
    let (tree, image) = (planted(&dir), small_image(&dir));
    run("mkfs -qf IMG 64M", &image, &dir, 0);
    run("import IMG DIR/tree /copy", &image, &dir, 0);
    run("import IMG DIR/file-3145728 /lonely", &image, &tree, 0);
    run("import IMG DIR/link /copy/empty/l", &image, &tree, 0);
    run("import IMG DIR/kinds/fifo /pipe", &image, &tree, 0);
    run("fsck -fn --data IMG", &image, &dir, 0);
    run("export IMG /copy/empty/l DIR/l", &image, &dir, 0);
    assert_same(&tree.join("link"), &dir.join("l"));
    run("export IMG /lonely DIR/lonely", &image, &dir, 0);
    assert_same(&tree.join("file-3145728"), &dir.join("lonely"));
    run("export IMG /pipe DIR/pipe", &image, &dir, 0);
    assert_same(&tree.join("kinds/fifo"), &dir.join("pipe"));
    run("export IMG /copy/sub DIR/sub", &image, &dir, 0);
    assert_same(&tree.join("sub"), &dir.join("sub"));
    // Without the entry that was added to the copy.
    run("export IMG /copy DIR/out", &image, &dir, 0);
    fs::remove_file(dir.join("out/empty/l")).unwrap();
    let times = fs::metadata(tree.join("empty")).unwrap();
    crate::tree::set_times(&dir.join("out/empty"), times.mtime(), times.mtime_nsec());
    assert_same(&tree, &dir.join("out"));
}

#[test]
fn cat_gives_the_bytes() {
    let (_guard, dir) = scratch();
    let (tree, image) = (planted(&dir), dir.join("t.img"));
    run("mkfs -q IMG 64M -d DIR/tree", &image, &dir, 0);
    for name in ["file-0", "file-1", "file-4095", "file-4096", "file-4097", "file-3145728", "zeros"]
    {
        let output = betr(words(&format!("cat IMG /{name}"), &image, &dir)).output().unwrap();
        assert!(output.status.success());
        assert!(output.stdout == fs::read(tree.join(name)).unwrap(), "{name}");
    }
    let assert =
        betr(words("cat IMG /one /sub/two /file-0 /link", &image, &dir)).assert().success();
    assert.stdout("three namesthree namesthree names");
    for (path, why) in [
        ("/sub", "is a directory"),
        ("/kinds/fifo", "invalid"),
        ("/dangling", "no such"),
        ("/none", "no such"),
        ("/one/x", "not a directory"),
    ] {
        let (out, err) = run(&format!("cat IMG {path}"), &image, &dir, 1);
        assert!(out.is_empty() && err.contains(path) && err.contains(why), "{err}");
    }
}

#[test]
fn stat_and_ls_show_what_the_host_shows() {
    let (_guard, dir) = scratch();
    let (tree, image) = (planted(&dir), dir.join("t.img"));
    run("mkfs -q IMG 64M -d DIR/tree", &image, &dir, 0);
    for (name, kind) in [
        ("file-1", "regular file"),
        ("sub", "directory"),
        ("link", "symbolic link"),
        ("kinds/fifo", "fifo"),
        ("sub/two", "regular file"),
    ] {
        let (out, _) = run(&format!("stat --json IMG /{name}"), &image, &dir, 0);
        let value: Value = serde_json::from_str(&out).unwrap();
        let object = &value["objects"][0];
        let meta = fs::symlink_metadata(tree.join(name)).unwrap();
        assert_eq!(object["path"], format!("/{name}"));
        assert_eq!(object["type"].as_str().unwrap().to_lowercase(), kind);
        if !meta.is_symlink() {
            assert_eq!(object["permissions"], format!("{:04o}", meta.mode() & 0o7777), "{name}");
        }
        assert_eq!((&object["uid"], &object["gid"]), (&meta.uid().into(), &meta.gid().into()));
        if !meta.is_dir() {
            assert_eq!(object["size"], meta.size(), "{name}");
            assert_eq!(object["links"], meta.nlink(), "{name}");
        }
    }
    let (out, _) = run("stat --json IMG /file-1", &image, &dir, 0);
    assert!(out.contains("\"modified\": \"1938-04-24T22:13:20.999999999Z\""), "{out}");
    let (out, _) = run("ls -R --json IMG", &image, &dir, 0);
    let value: Value = serde_json::from_str(&out).unwrap();
    let entries = value["entries"].as_array().unwrap();
    assert_eq!(entries.len(), read(&tree).len() - 1);
    let odd = serde_json::json!({
        "text": "names/not utf-8 \\xff\\xfe", "bytes": "6e616d65732f6e6f74207574662d3820fffe",
    });
    assert!(entries.iter().any(|entry| entry["path"] == odd), "{out}");
    for line in ["ls IMG /names", "ls -l IMG /names", "ls -lR IMG", "ls --json IMG /names"] {
        let output = betr(words(line, &image, &dir)).assert().success();
        output.stdout(predicate::str::contains('\x1b').not());
    }
    let (out, _) = run("ls IMG /names", &image, &dir, 0);
    assert_eq!(out.lines().count(), fs::read_dir(tree.join("names")).unwrap().count(), "{out}");
}

#[test]
fn import_replaces_nothing_and_fails_without_a_trace() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    age(&image);
    run("export IMG DIR/before", &image, &dir, 0);
    let before = fingerprint(&image);
    for (line, words) in [
        ("import IMG DIR/file /hello", ["/hello", "exists"]),
        ("import IMG DIR/folder /sub", ["/sub", "exists"]),
        ("import IMG DIR/file /link", ["/link", "exists"]),
        ("import IMG DIR/file /", ["/", ""]),
        ("import IMG DIR/file /none/x", ["/none/x", "no such"]),
        ("import IMG DIR/file /hello/x", ["/hello/x", "not a directory"]),
        ("import IMG DIR/none /x", ["none", "No such"]),
    ] {
        let (_, err) = run(line, &image, &dir, 1);
        assert!(words.iter().all(|word| err.contains(word)), "betr {line}: {err}");
        assert!(fingerprint(&image) == before, "betr {line} changed the image");
    }
    // More than fits into the image.
    fs::write(dir.join("large"), pattern(4 << 20)).unwrap();
    let (_, err) = run("import IMG DIR/large /large", &image, &dir, 1);
    assert!(err.contains("no space left"), "{err}");
    run("fsck -fn --data IMG", &image, &dir, 0);
    run("export IMG DIR/after", &image, &dir, 0);
    assert_same(&dir.join("before"), &dir.join("after"));
    run("import IMG DIR/file /file", &image, &dir, 0);
    let assert = betr(words("cat IMG /file /hello", &image, &dir)).assert().success();
    assert.stdout("from the host\nhello\n");
}

#[test]
fn an_import_that_does_not_fit_leaves_nothing_behind() {
    let (_guard, dir) = scratch();
    let image = dir.join("t.img");
    let many = dir.join("many");
    fs::create_dir(&many).unwrap();
    (0..40u8).for_each(|n| fs::write(many.join(n.to_string()), vec![n + 1; 100_000]).unwrap());
    fs::write(dir.join("large"), vec![7; 1_900_000]).unwrap();
    run("mkfs -q IMG 4M", &image, &dir, 0);
    run("import IMG DIR/large /first", &image, &dir, 0);
    for line in ["import IMG DIR/large /second", "import IMG DIR/many /many"] {
        let (_, err) = run(line, &image, &dir, 1);
        assert!(err.contains("no space left"), "betr {line}: {err}");
        assert_eq!(run("ls -R IMG", &image, &dir, 0).0, "first\n", "betr {line}");
        run("fsck -fn --data IMG", &image, &dir, 0);
    }
    run("export IMG /first DIR/out", &image, &dir, 0);
    assert!(fs::read(dir.join("out")).unwrap() == vec![7; 1_900_000]);
}

#[test]
fn export_replaces_nothing() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    for (line, named) in [
        ("export IMG DIR/folder", "folder"),
        ("export IMG /hello DIR/file", "file"),
        ("export IMG DIR/file", "file"),
        ("export IMG /none DIR/out", "/none"),
        ("export IMG DIR/no/such", "no"),
    ] {
        let (_, err) = run(line, &image, &dir, 1);
        assert!(err.contains(named), "betr {line}: {err}");
        assert!(!err.contains("incomplete"), "betr {line} wrote nothing, but says: {err}");
    }
    assert_eq!(names(&dir), ["file", "folder", "small.img"]);
    assert_eq!(names(&dir.join("folder")), ["below"]);
    assert_eq!(fs::read(dir.join("file")).unwrap(), b"from the host\n");
}

/// The tree itself, or the largest directory in it below the limit.
fn real_tree(root: &Path) -> Option<PathBuf> {
    let size = |path: &Path| read_size(path, 0);
    if size(root) <= REAL_BYTES {
        return Some(root.to_owned());
    }
    let children = fs::read_dir(root).ok()?.flatten().filter(|e| e.file_type().unwrap().is_dir());
    let sized = children.map(|entry| (size(&entry.path()), entry.path()));
    sized.filter(|(size, _)| *size <= REAL_BYTES).max().map(|(_, path)| path)
}

fn read_size(path: &Path, mut sum: u64) -> u64 {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        let meta = entry.metadata().unwrap();
        sum = if meta.is_dir() { read_size(&entry.path(), sum) } else { sum + meta.len() };
    }
    sum
}

#[test]
fn a_tree_of_this_machine_survives() {
    let roots = ["/usr/include", "/usr/share/doc"].map(Path::new);
    let tree = roots.iter().find(|root| root.is_dir()).and_then(|root| real_tree(root));
    if !need("/usr/include or /usr/share/doc", tree.is_some()) {
        return;
    }
    let tree = tree.unwrap();
    let (_guard, dir) = scratch();
    let image = dir.join("t.img");
    betr(["mkfs".as_ref(), image.as_os_str(), "-d".as_ref(), tree.as_os_str()]).assert().success();
    run("fsck -fn --data IMG", &image, &dir, 0);
    run("export IMG DIR/out", &image, &dir, 0);
    assert_same(&tree, &dir.join("out"));
    betr(["import".as_ref(), image.as_os_str(), tree.as_os_str(), "/".as_ref()]).assert().code(1);
}
