//! The message of every tool for a path without a valid image: missing, another kind of file, another format, another
//! version, truncated, not permitted.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use betr_cli::skip::{need, program};
use betr_core::format::{IDENTITY_AT, Seal};

use crate::contract::{TOOLS, Tool};
use crate::support::*;

/// Runs every tool on `image`. Each must end with `code`, print `expected`, name the image, and leave it unchanged.
fn refused(image: &Path, code: impl Fn(&Tool) -> i32, expected: &str) {
    let regular = fs::metadata(image).is_ok_and(|meta| meta.is_file());
    let before = regular.then(|| fingerprint(image));
    for tool in &TOOLS {
        let (_guard, dir) = scratch();
        fs::write(dir.join("file"), "x").unwrap();
        let (out, err) = run(tool.line, image, &dir, code(tool));
        let both = format!("{out}{err}");
        let name = image.file_name().unwrap().to_str().unwrap();
        assert!(both.contains(name), "betr {} does not name it: {both}", tool.line);
        assert!(both.contains(expected), "betr {}: {both}", tool.line);
        assert!(!both.contains("panicked"), "betr {}: {both}", tool.line);
        assert_eq!(names(&dir), ["file"], "betr {} left something", tool.line);
        assert!(before.is_none() || before == Some(fingerprint(image)), "betr {}", tool.line);
    }
}

/// Creates a file in `dir` with these bytes.
fn file(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    fs::write(dir.join(name), bytes).unwrap();
    dir.join(name)
}

#[test]
fn nothing_there() {
    let (_guard, dir) = scratch();
    refused(&dir.join("no.img"), |tool| tool.failed, "does not exist");
    refused(&dir.join("no/such/place.img"), |tool| tool.failed, "does not exist");
    std::os::unix::fs::symlink("nowhere", dir.join("link.img")).unwrap();
    refused(&dir.join("link.img"), |tool| tool.failed, "does not exist");
}

#[test]
fn neither_a_file_nor_a_block_device() {
    let (_guard, dir) = scratch();
    fs::create_dir(dir.join("folder.img")).unwrap();
    refused(&dir.join("folder.img"), |tool| tool.failed, "is a directory");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, dir.join("pipe.img"), kind, mode, 0).unwrap();
    refused(&dir.join("pipe.img"), |tool| tool.failed, "pipe (FIFO)");
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket.img")).unwrap();
    refused(&dir.join("socket.img"), |tool| tool.failed, "is a socket");
    refused(Path::new("/dev/null"), |tool| tool.failed, "character device");
    for name in ["folder.img", "pipe.img", "socket.img"] {
        run("mkfs IMG 2M", &dir.join(name), &dir, 1);
        run("mkfs -f IMG 2M", &dir.join(name), &dir, 1);
    }
    assert_eq!(names(&dir), ["folder.img", "pipe.img", "socket.img"]);
}

#[test]
fn no_image_at_all() {
    let (_guard, dir) = scratch();
    for (name, bytes) in [
        ("empty.img", vec![]),
        ("tiny.img", b"x".to_vec()),
        ("almost.img", vec![0; IDENTITY_AT as usize + 4095]),
        ("zeros.img", vec![0; 2 << 20]),
        ("noise.img", pattern(2 << 20)),
    ] {
        refused(&file(&dir, name, &bytes), |tool| tool.foreign, "not a betr image");
    }
}

#[test]
fn another_format_is_recognised() {
    let (_guard, dir) = scratch();
    let mut gzip = pattern(2 << 20);
    gzip[..10].copy_from_slice(b"\x1f\x8b\x08\0\0\0\0\0\0\x03");
    let image = file(&dir, "archive.gz", &gzip);
    refused(&image, |tool| tool.foreign, "not a betr image");
    refused(&image, |tool| tool.foreign, "gzip");

    let mkfs = program("mkfs.ext4");
    if !need("mkfs.ext4", mkfs.is_some()) {
        return;
    }
    let image = file(&dir, "other.img", &[]);
    fs::File::options().write(true).open(&image).unwrap().set_len(4 << 20).unwrap();
    let made = Command::new(mkfs.unwrap()).args(["-q", "-F", "-L", "my data"]).arg(&image).status();
    assert!(made.unwrap().success());
    refused(&image, |tool| tool.foreign, "ext4 file system labelled \"my data\"");
}

#[test]
fn a_newer_version_is_not_damage() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let mut bytes = fs::read(&image).unwrap();
    let identity = &mut bytes[IDENTITY_AT as usize..][..4096];
    identity[72] += 1;
    Seal::close(identity);
    fs::write(&image, &bytes).unwrap();
    refused(&image, |tool| tool.failed, "it takes the betr that made it");
}

#[test]
fn a_truncated_image_is_damaged() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let whole = fs::metadata(&image).unwrap().len();
    for len in [whole - 1, whole - 4096, whole / 2] {
        fs::File::options().write(true).open(&image).unwrap().set_len(len).unwrap();
        refused(&image, |tool| tool.damaged, &format!("expected {whole}, found {len}"));
    }
    let (out, _) = run("fsck -fn IMG", &image, &dir, 4);
    assert!(out.contains(": I02: image is shorter than it says"), "{out}");
}

#[test]
fn a_longer_file_is_as_good() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let len = fs::metadata(&image).unwrap().len();
    fs::File::options().write(true).open(&image).unwrap().set_len(len + (1 << 20)).unwrap();
    for tool in &TOOLS {
        run(tool.line, &image, &dir, 0);
    }
}

#[test]
fn what_is_not_permitted_is_named() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&image, fs::Permissions::from_mode(0o000)).unwrap();
    for tool in &TOOLS {
        let Some(mut process) = powerless(&dir) else { return };
        let output = process.args(words(tool.line, &image, &dir)).output().unwrap();
        let (out, err) = text(&output);
        assert_eq!(output.status.code(), Some(tool.failed), "betr {}: {out}{err}", tool.line);
        let verb = if tool.writes { "write to" } else { "read" };
        assert!(err.contains(&format!("small.img: cannot {verb} it")), "betr {}: {err}", tool.line);
        assert!(err.contains("Permission denied"), "betr {}: {err}", tool.line);
    }
}
