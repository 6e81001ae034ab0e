//! Tar archives into images and out of them, exchanged with GNU tar.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use betr_cli::skip::{need, program};
use predicates::prelude::*;
use serde_json::Value;

use crate::support::*;
use crate::tree::{assert_same, plant, set_mode, set_times, set_xattr};

/// Options that make GNU tar store and restore all metadata.
const ALL: [&str; 4] = ["--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner"];

/// GNU tar, if it is installed.
fn gnu_tar() -> Option<PathBuf> {
    let tar = program("tar").filter(|tar| {
        let version = Command::new(tar).arg("--version").output();
        version.is_ok_and(|output| output.stdout.starts_with(b"tar (GNU tar)"))
    });
    need("GNU tar", tar.is_some()).then_some(tar).flatten()
}

/// A tree with every kind of object that an archive can hold.
fn planted(dir: &Path) -> PathBuf {
    let tree = dir.join("tree");
    fs::create_dir(&tree).unwrap();
    plant(&tree);
    fs::remove_file(tree.join("kinds/socket")).unwrap();
    set_times(&tree.join("kinds"), 3, 4);
    need("user extended attributes here", set_xattr(&tree.join("one"), "user.probe", b"\0\n=\xff"));
    tree
}

/// Creates `dir/name` from a tree with GNU tar.
fn pack(tar: &Path, tree: &Path, name: &str, options: &[&str]) -> PathBuf {
    let archive = tree.parent().unwrap().join(name);
    let mut command = Command::new(tar);
    command.args(options).args([Path::new("-cf"), &archive, Path::new("-C"), tree, Path::new(".")]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{:?}", text(&output));
    archive
}

/// Runs a command line with a file as its standard input.
fn run_with(line: &str, input: &Path, image: &Path, code: i32) -> (String, String) {
    let mut command = Command::new(BETR);
    command.args(words(line, image, input.parent().unwrap())).env_remove("SOURCE_DATE_EPOCH");
    let output = command.stdin(fs::File::open(input).unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(code), "betr {line}: {:?}", text(&output));
    text(&output)
}

/// Exports an image, or a path in it, to a file as an archive.
fn export(image: &Path, path: &str, archive: &Path) -> String {
    let output = betr([Path::new("export"), image, Path::new(path), Path::new("-")]).output();
    let output = output.unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{err}");
    fs::write(archive, output.stdout).unwrap();
    err
}

/// The description of all objects in an image, without values that depend on the image.
fn described(image: &Path, dir: &Path) -> Vec<Value> {
    let (out, _) = run("ls -lR --json IMG", image, dir, 0);
    let listing: Value = serde_json::from_str(&out).unwrap();
    let mut entries = listing["entries"].as_array().unwrap().clone();
    for entry in &mut entries {
        let entry = entry.as_object_mut().unwrap();
        for own in ["inode", "changed", "born"] {
            entry.remove(own).unwrap();
        }
        if let Some(path) = entry["path"].as_str() {
            let line = [Path::new("stat"), Path::new("--json"), image, Path::new(path)];
            let output = betr(line).output().unwrap();
            let value: Value = serde_json::from_slice(&output.stdout).unwrap();
            entry.insert("xattrs".into(), value["objects"][0]["xattrs"].clone());
        }
    }
    let (out, _) = run("stat --json IMG /", image, dir, 0);
    let root: Value = serde_json::from_str(&out).unwrap();
    let root = &root["objects"][0];
    for field in ["permissions", "uid", "gid", "links", "accessed", "modified", "xattrs"] {
        entries.push(root[field].clone());
    }
    entries
}

#[test]
fn what_gnu_tar_packs_is_kept() {
    let (_guard, dir) = scratch();
    let Some(tar) = gnu_tar() else { return };
    let (tree, image) = (planted(&dir), dir.join("t.img"));
    let options = [&ALL[..], &["-S", "--format=posix"]].concat();
    let archive = pack(&tar, &tree, "tree.tar", &options);
    let check = |path: &str, out: &str| {
        run("fsck -fn --data IMG", &image, &dir, 0);
        run(&format!("export IMG {path} DIR/{out}"), &image, &dir, 0);
        assert_same(&tree, &dir.join(out));
    };
    run("mkfs -q IMG -d DIR/tree.tar", &image, &dir, 0);
    check("/", "one");
    run_with("mkfs -qf IMG 64M -d -", &archive, &image, 0);
    check("/", "two");
    run("import IMG --tar DIR/tree.tar /copy", &image, &dir, 0);
    check("/copy", "three");
    let (out, _) = run_with("import IMG - /sub/copy", &archive, &image, 0);
    assert!(out.contains("1 more links") || out.contains("more links"), "{out}");
    check("/sub/copy", "four");
    // Without `--tar` an archive is imported as a file.
    run("import IMG DIR/tree.tar /tree.tar", &image, &dir, 0);
    run("export IMG /tree.tar DIR/same.tar", &image, &dir, 0);
    assert!(fs::read(&archive).unwrap() == fs::read(dir.join("same.tar")).unwrap());
    // A named pipe.
    let fifo = dir.join("pipe");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut cat = Command::new("sh")
        .args(["-c", "cat <\"$0\" >\"$1\""])
        .args([&archive, &fifo])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    run("mkfs -qf IMG 64M -d DIR/pipe", &image, &dir, 0);
    assert!(cat.wait().unwrap().success());
    check("/", "five");
}

#[test]
fn every_format_of_gnu_tar_is_read() {
    let (_guard, dir) = scratch();
    let Some(tar) = gnu_tar() else { return };
    let (tree, image) = (dir.join("tree"), dir.join("t.img"));
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::write(tree.join("sub/file"), pattern(10_000)).unwrap();
    fs::hard_link(tree.join("sub/file"), tree.join("again")).unwrap();
    std::os::unix::fs::symlink("again", tree.join("link")).unwrap();
    let holes = fs::File::create(tree.join("holes")).unwrap();
    for at in 0..60u64 {
        std::os::unix::fs::FileExt::write_all_at(&holes, b"data", at * 50_000).unwrap();
    }
    holes.set_len(4_000_000).unwrap();
    set_mode(&tree.join("again"), 0o640);
    let paths: Vec<PathBuf> = ["again", "link", "holes", "sub", ""].map(PathBuf::from).into();
    paths.iter().for_each(|path| set_times(&tree.join(path), 1_000_000_000, 0));
    for (number, options) in [
        &["--format=v7"][..],
        &["--format=ustar"],
        &["--format=oldgnu", "-S"],
        &["--format=gnu", "-S"],
        &["--format=posix", "-S", "--sparse-version=0.0"],
        &["--format=posix", "-S", "--sparse-version=0.1"],
        &["--format=posix", "-S", "--sparse-version=1.0"],
        &["--format=posix", "--pax-option=uid=7,comment=x"],
    ]
    .into_iter()
    .enumerate()
    {
        pack(&tar, &tree, "tree.tar", options);
        run("mkfs -qf IMG -d DIR/tree.tar", &image, &dir, 0);
        let mut out = dir.join(format!("out-{number}"));
        run(&format!("export IMG DIR/out-{number}"), &image, &dir, 0);
        if options.len() > 1 && options[1].starts_with("--pax") {
            // A global header gives all members an owner.
            let (listing, _) = run("ls -lR IMG", &image, &dir, 0);
            assert!(listing.lines().all(|line| line.contains("     7 ")), "{listing}");
            continue;
        }
        assert_same(&tree, &out);
        out.push("holes");
        use std::os::unix::fs::MetadataExt;
        assert!(fs::metadata(&out).unwrap().blocks() * 512 < 1_000_000, "{options:?}");
    }
}

#[test]
fn what_is_exported_comes_back_the_same() {
    let (_guard, dir) = scratch();
    let tree = dir.join("tree");
    fs::create_dir(&tree).unwrap();
    plant(&tree);
    let [first, second] = ["first.img", "second.img"].map(|name| dir.join(name));
    let [one, two] = ["one.tar", "two.tar"].map(|name| dir.join(name));
    run("mkfs -q IMG 64M -d DIR/tree", &first, &dir, 0);
    let warnings = export(&first, "/", &one);
    assert_eq!(
        warnings, "betr export: warning: 'kinds/socket': a socket is left out\n",
        "{warnings}"
    );
    run("mkfs -q IMG -d DIR/one.tar", &second, &dir, 0);
    run("fsck -fn --data IMG", &second, &dir, 0);
    let without_socket = |entry: &Value| entry["path"] != "kinds/socket";
    let mut expected = described(&first, &dir);
    expected.retain(without_socket);
    let found = described(&second, &dir);
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
    // The archive depends only on the files.
    assert_eq!(export(&second, "/", &two), "");
    assert!(fs::read(&one).unwrap() == fs::read(&two).unwrap());
    assert!(fs::metadata(&one).unwrap().len() < 8 << 20, "holes are holes");
    // Parts of a tree.
    export(&first, "/sub", &one);
    run("import IMG --tar DIR/one.tar /again", &second, &dir, 0);
    run("export IMG /again DIR/again", &second, &dir, 0);
    assert_same(&tree.join("sub"), &dir.join("again"));
    export(&first, "/file-4097", &one);
    run("import IMG --tar DIR/one.tar /single", &second, &dir, 0);
    run("export IMG /single/file-4097 DIR/single", &second, &dir, 0);
    assert_same(&tree.join("file-4097"), &dir.join("single"));
}

#[test]
fn gnu_tar_reads_what_is_exported() {
    let (_guard, dir) = scratch();
    let Some(tar) = gnu_tar() else { return };
    let (tree, image, out) = (planted(&dir), dir.join("t.img"), dir.join("out"));
    run("mkfs -q IMG 64M -d DIR/tree", &image, &dir, 0);
    let archive = dir.join("t.tar");
    export(&image, "/", &archive);
    fs::create_dir(&out).unwrap();
    let mut command = Command::new(&tar);
    command.args(ALL).args([Path::new("-xpf"), &archive, Path::new("-C"), &out]);
    let output = command.output().unwrap();
    let (_, err) = text(&output);
    assert!(output.status.success(), "{err}");
    // Files have their owners; the only warnings concern odd times.
    let complaints: Vec<&str> = err.lines().filter(|line| !line.contains("time stamp")).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
    assert_same(&tree, &out);
    for name in ["sparse", "hole"] {
        use std::os::unix::fs::MetadataExt;
        let meta = fs::metadata(out.join(name)).unwrap();
        assert!(meta.blocks() * 512 <= 64 << 10, "{name} takes {} blocks", meta.blocks());
    }
}

#[test]
fn a_file_of_holes_takes_no_room_in_an_archive() {
    use std::os::unix::fs::MetadataExt;
    let (_guard, dir) = scratch();
    let (tree, image, archive) = (dir.join("tree"), dir.join("t.img"), dir.join("t.tar"));
    fs::create_dir(&tree).unwrap();
    fs::File::create(tree.join("hole")).unwrap().set_len(4 << 30).unwrap();
    run("mkfs -q IMG 16M -d DIR/tree", &image, &dir, 0);
    export(&image, "/", &archive);
    assert!(fs::metadata(&archive).unwrap().len() <= 10_240);
    run("mkfs -qf IMG 16M -d DIR/t.tar", &image, &dir, 0);
    let (out, _) = run("ls -l IMG /hole", &image, &dir, 0);
    assert!(out.contains(" 4294967296 "), "{out}");
    let Some(tar) = gnu_tar() else { return };
    let out = dir.join("out");
    fs::create_dir(&out).unwrap();
    let mut command = Command::new(&tar);
    command.args([Path::new("-xf"), &archive, Path::new("-C"), &out]);
    assert!(command.status().unwrap().success());
    let meta = fs::metadata(out.join("hole")).unwrap();
    assert_eq!((meta.len(), meta.blocks()), (4 << 30, 0));
}

#[test]
fn times_that_no_host_can_hold_are_kept() {
    let (_guard, dir) = scratch();
    let Some(tar) = gnu_tar() else { return };
    let image = dir.join("t.img");
    fs::create_dir(dir.join("tree")).unwrap();
    fs::write(dir.join("tree/f"), "").unwrap();
    for (mtime, expected) in [
        ("2500-01-02 03:04:05.000000006 UTC", "2500-01-02T03:04:05.000000006Z"),
        ("1969-12-31 23:59:59.5 UTC", "1969-12-31T23:59:59.500000000Z"),
        ("1903-01-01 UTC", "1903-01-01T00:00:00.000000000Z"),
    ] {
        let option = format!("--mtime={mtime}");
        pack(&tar, &dir.join("tree"), "x.tar", &[&option, "--format=posix"]);
        run("mkfs -qf IMG -d DIR/x.tar", &image, &dir, 0);
        let archive = dir.join("y.tar");
        export(&image, "/", &archive);
        run("mkfs -qf IMG -d DIR/y.tar", &image, &dir, 0);
        let (out, _) = run("stat IMG / /f", &image, &dir, 0);
        assert_eq!(out.matches(&format!("Modified: {expected}")).count(), 2, "{out}");
    }
}

#[test]
fn a_fixed_date_makes_the_image_of_an_archive_the_same() {
    let (_guard, dir) = scratch();
    let Some(tar) = gnu_tar() else { return };
    let tree = dir.join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::write(tree.join("a/b/c"), pattern(5000)).unwrap();
    pack(&tar, &tree, "tree.tar", &[]);
    let build = |name: &str| {
        let mut command = betr(["mkfs", "-q", "-U", "clear", "-d"]);
        command.arg(dir.join("tree.tar")).arg(dir.join(name)).arg("16M");
        command.env("SOURCE_DATE_EPOCH", "1000000000").assert().success();
        fingerprint(&dir.join(name)).0
    };
    assert_eq!(build("a.img"), build("b.img"));
    let (out, _) = run("stat IMG / /a/b/c", &dir.join("a.img"), &dir, 0);
    assert_eq!(out.matches("2001-09-09T01:46:40.000000000Z").count(), 8, "{out}");
}

#[test]
fn an_archive_is_not_for_a_terminal() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let Some(script) = program("script").filter(|_| need("script", true)) else {
        need("script of util-linux", false);
        return;
    };
    let line = format!("{BETR} export {} -", image.display());
    let output = Command::new(&script).args(["-qec", &line, "/dev/null"]).output().unwrap();
    let (out, _) = text(&output);
    assert!(out.contains("an archive is not for a terminal"), "{out}");
    assert_eq!(output.status.code(), Some(2));
    let line = format!("{BETR} import {} - /new", image.display());
    let output = Command::new(&script).args(["-qec", &line, "/dev/null"]).output().unwrap();
    let (out, _) = text(&output);
    assert!(out.contains("standard input") && out.contains("is a terminal"), "{out}");
}

#[test]
fn a_size_is_needed_where_it_cannot_be_known() {
    let (_guard, dir) = scratch();
    let image = dir.join("t.img");
    fs::write(dir.join("empty.tar"), [0; 10_240]).unwrap();
    let (_, err) = run_with("mkfs IMG -d -", &dir.join("empty.tar"), &image, 1);
    assert!(err.contains("give a SIZE") && err.contains("pipe"), "{err}");
    assert!(!image.exists());
    run_with("mkfs -q IMG 2M -d -", &dir.join("empty.tar"), &image, 0);
    betr(words("ls IMG", &image, &dir)).assert().success().stdout(predicate::str::is_empty());
    for (line, code) in [
        ("mkfs -qf IMG -d DIR/empty.tar --exclude-caches", 1),
        ("import --exclude-caches --tar IMG DIR/empty.tar /new", 2),
    ] {
        let (_, err) = run(line, &image, &dir, code);
        assert!(err.contains("not for archives"), "{err}");
    }
    run("mkfs -qf IMG -d DIR/empty.tar", &image, &dir, 0);
    let (out, _) = run("stat IMG /", &image, &dir, 0);
    assert!(out.contains("Mode: 0755") && out.contains("Owner: 0:0"), "{out}");
}
