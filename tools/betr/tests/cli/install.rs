//! `betr install`: the installed files, the files that it leaves unchanged, and that the system's own programs then
//! find and recognise betr.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use betr_cli::skip::{need, program};
use serde_json::Value;

use crate::support::*;

const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";

/// Every file below a directory, by its path within, sorted.
fn files(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(below) = waiting.pop() {
        for name in names(&below) {
            let path = below.join(name);
            match path.symlink_metadata().unwrap().is_dir() {
                true => waiting.push(path),
                false => found.push(path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned()),
            }
        }
    }
    found.sort();
    found
}

fn install(line: &str, dir: &Path, code: i32) -> (String, String) {
    run(&format!("install {line}"), dir, dir, code)
}

/// An installation below `dir`.
fn installed(dir: &Path) -> PathBuf {
    let (out, err) = install("--prefix DIR/p -q", dir, 0);
    assert_eq!((out, err), (String::new(), String::new()));
    dir.join("p")
}

#[test]
fn everything_is_where_the_system_looks_for_it() {
    let (_guard, dir) = scratch();
    let (out, err) = install("--prefix DIR/p", &dir, 0);
    let prefix = dir.join("p");
    let found = files(&prefix);
    for name in [
        "bin/betr",
        "sbin/mkfs.betr",
        "sbin/fsck.betr",
        "sbin/mount.betr",
        "sbin/mount.fuse.betr",
        "share/man/man1/betr.1",
        "share/man/man1/betr-ls.1",
        "share/man/man8/fsck.betr.8",
        "share/bash-completion/completions/betr",
        "share/zsh/site-functions/_betr",
        "share/fish/vendor_completions.d/betr.fish",
        "share/betr/magic",
        "share/betr/installed",
        "lib/udev/rules.d/61-betr.rules",
    ] {
        assert!(found.iter().any(|path| path == name), "{name}");
    }
    // All files but the record are reported, and there are no others.
    let reported = out.lines().map(|line| line.strip_prefix("installed ").unwrap());
    let mut reported: Vec<_> =
        reported.map(|path| path.strip_prefix(prefix.to_str().unwrap()).unwrap()).collect();
    reported.push("/share/betr/installed");
    reported.sort();
    assert_eq!(reported, found.iter().map(|path| format!("/{path}")).collect::<Vec<_>>());
    assert_eq!(err, "");
    assert_eq!(fs::metadata(prefix.join("bin/betr")).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(fs::read_link(prefix.join("sbin/fsck.betr")).unwrap(), Path::new("../bin/betr"));
    let rules = fs::read_to_string(prefix.join("lib/udev/rules.d/61-betr.rules")).unwrap();
    let import =
        format!("IMPORT{{program}}=\"{}/bin/betr probe --output udev $devnode\"", prefix.display());
    assert!(rules.contains(&import), "{rules}");
}

#[test]
fn a_second_run_changes_nothing_and_a_repair_only_what_is_missing() {
    let (_guard, dir) = scratch();
    let prefix = installed(&dir);
    let marker = prefix.join("bin/betr");
    age(&marker);
    let (out, _) = install("--prefix DIR/p", &dir, 0);
    assert!(out.lines().all(|line| line.starts_with("unchanged ")), "{out}");
    let before = fingerprint(&marker);
    fs::remove_file(prefix.join("sbin/mkfs.betr")).unwrap();
    let (out, _) = install("--prefix DIR/p --json", &dir, 0);
    let value: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(value["schema"], "betr.install");
    let done = value["files"].as_array().unwrap();
    let done: Vec<_> = done.iter().filter(|file| file["state"] != "unchanged").collect();
    assert_eq!(done.len(), 1, "{out}");
    assert!(done[0]["path"].as_str().unwrap().ends_with("sbin/mkfs.betr"));
    assert!(fingerprint(&marker) == before);
}

#[test]
fn what_is_not_its_own_stays_unless_forced() {
    let (_guard, dir) = scratch();
    let prefix = dir.join("p");
    fs::create_dir_all(prefix.join("bin")).unwrap();
    fs::create_dir_all(prefix.join("sbin")).unwrap();
    fs::write(prefix.join("bin/betr"), "something else").unwrap();
    symlink("/bin/true", prefix.join("sbin/fsck.betr")).unwrap();
    let before = files(&prefix);
    for line in ["--prefix DIR/p", "--prefix DIR/p -n"] {
        let (out, err) = install(line, &dir, 1);
        assert_eq!(out, "");
        assert!(
            err.contains("bin/betr is not from betr") && err.contains("sbin/fsck.betr is not"),
            "{err}"
        );
        assert_eq!(files(&prefix), before);
    }
    let (out, _) = install("--prefix DIR/p --force", &dir, 0);
    assert_eq!(out.matches("replaced ").count(), 2, "{out}");
    assert!(fs::read(prefix.join("bin/betr")).unwrap() == fs::read(BETR).unwrap());
    // Nothing replaces a directory.
    fs::remove_file(prefix.join("share/betr/magic")).unwrap();
    fs::create_dir(prefix.join("share/betr/magic")).unwrap();
    let (_, err) = install("--prefix DIR/p --force", &dir, 1);
    assert!(err.contains("share/betr/magic is a directory"), "{err}");
}

#[test]
fn another_version_is_replaced_and_what_somebody_changed_is_not() {
    let (_guard, dir) = scratch();
    let prefix = installed(&dir);
    let (page, record) =
        (prefix.join("share/man/man1/betr.1"), prefix.join("share/betr/installed"));
    fs::write(&page, "another version").unwrap();
    let (_, err) = install("--prefix DIR/p", &dir, 1);
    assert!(err.contains("man1/betr.1 is not from betr"), "{err}");
    // As the version that installed it would have recorded it.
    let hash = fingerprint(&page).0;
    let line = |line: &str| match line.ends_with("man1/betr.1") {
        true => format!("{hash}  share/man/man1/betr.1\n"),
        false => format!("{line}\n"),
    };
    let lines: String = fs::read_to_string(&record).unwrap().lines().map(line).collect();
    fs::write(&record, lines).unwrap();
    let (out, _) = install("--prefix DIR/p", &dir, 0);
    assert!(out.contains(&format!("replaced {}\n", page.display())), "{out}");
    assert!(install("--prefix DIR/p", &dir, 0).0.lines().all(|line| line.starts_with("unchanged")));
    // A malformed record permits no replacement.
    fs::write(&page, "another version").unwrap();
    fs::write(&record, b"\xff garbage").unwrap();
    install("--prefix DIR/p", &dir, 1);
}

#[test]
fn the_record_is_what_sha256sum_reads() {
    let (_guard, dir) = scratch();
    let prefix = installed(&dir);
    let sum = program("sha256sum");
    if !need("sha256sum", sum.is_some()) {
        return;
    }
    let mut command = Command::new(sum.unwrap());
    let command = command.args(["-c", "--quiet", "share/betr/installed"]).current_dir(&prefix);
    assert!(command.status().unwrap().success());
}

#[test]
fn packages_are_built_below_another_root() {
    let (_guard, dir) = scratch();
    let (out, _) = install("--prefix /usr --destdir DIR/stage --dry-run", &dir, 0);
    assert!(out.contains("/stage/usr/bin/betr (not done: dry run)"), "{out}");
    assert!(names(&dir).is_empty());
    install("--prefix /usr --destdir DIR/stage -q", &dir, 0);
    let root = dir.join("stage/usr");
    assert!(root.join("bin/betr").exists());
    let rules = fs::read_to_string(root.join("lib/udev/rules.d/61-betr.rules")).unwrap();
    assert!(rules.contains("\"/usr/bin/betr probe"), "{rules}");
}

#[test]
fn what_cannot_be_written_is_named() {
    let (_guard, dir) = scratch();
    fs::write(dir.join("file"), "").unwrap();
    let (_, err) = install("--prefix DIR/file/p", &dir, 1);
    assert!(err.contains("file/p/bin/betr"), "{err}");
    install("", &dir, 2);
    install("--prefix", &dir, 2);
}

#[test]
fn the_front_ends_of_the_system_find_what_is_installed() {
    let (_guard, dir) = scratch();
    let (prefix, image) = (installed(&dir), dir.join("t.img"));
    let (mkfs, fsck) = (program("mkfs"), program("fsck"));
    if !need("mkfs and fsck of util-linux", mkfs.is_some() && fsck.is_some()) {
        return;
    }
    let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", prefix.join("sbin").display());
    let run = |program: &Path, line: &str| {
        let mut command = Command::new(program);
        let output = command.args(words(line, &image, &dir)).env("PATH", &path).output().unwrap();
        (output.status.code(), format!("{:?}", text(&output)))
    };
    let (mkfs, fsck) = (mkfs.unwrap(), fsck.unwrap());
    let (code, both) = run(&mkfs, "-t betr -L installed IMG 2M");
    assert!(code == Some(0) && both.contains("Label: installed"), "{both}");
    let (code, both) = run(&fsck, "-t betr -T -a IMG");
    assert!(code == Some(0) && both.contains("installed: clean"), "{both}");
}

#[test]
fn file_knows_an_image() {
    let (_guard, dir) = scratch();
    let magic = installed(&dir).join("share/betr/magic");
    let file = program("file");
    if !need("file", file.is_some()) {
        return;
    }
    let file = file.unwrap();
    let told = |name: &str, mkfs: &str| {
        let image = dir.join(name);
        run(&format!("mkfs -q IMG 2M -U {UUID} {mkfs}"), &image, &dir, 0);
        let output =
            Command::new(&file).arg("-b").arg("-m").arg(&magic).arg(&image).output().unwrap();
        let (out, err) = text(&output);
        assert!(output.status.success() && err.is_empty(), "{out}{err}");
        out
    };
    let expected = format!(
        "betr file system image, version 27, label \"disk\", UUID={UUID}, 512 blocks of 4096 bytes\n"
    );
    assert_eq!(told("a.img", "-L disk"), expected);
    assert_eq!(told("b.img", ""), expected.replace(", label \"disk\"", ""));
    let long = "x".repeat(64);
    assert!(told("c.img", &format!("-L {long}")).contains(&format!("label \"{long}\",")));
}
