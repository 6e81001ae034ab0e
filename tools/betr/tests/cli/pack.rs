//! `betr pack` and `betr unpack`: a check of the unpacked image gives the same findings, file contents are left out,
//! and a malformed pack gives no image.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::support::*;

/// The output of a check of an image, with the values of the data index, and its exit code; hashes that were found
/// are masked. The image always has the same name.
fn check(image: &Path) -> (Option<i32>, String) {
    let fsck = ["fsck", "-fn", "--data", "t.img"];
    let output = betr(fsck).current_dir(image.parent().unwrap()).output().unwrap();
    let (out, err) = text(&output);
    let out = out + &err;
    let lines = out.lines().map(|line| line.split(", computed ").next().unwrap_or(line));
    (output.status.code(), lines.collect::<Vec<_>>().join("\n"))
}

/// Packs an image, and unpacks it in a directory of its own. Returns the new image, and the length of the pack.
fn through(options: &str, image: &Path, dir: &Path) -> (PathBuf, u64) {
    let folder = dir.join("unpacked");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    run(&format!("pack -q {options} IMG DIR/unpacked/t.pack"), image, dir, 0);
    run("unpack -q DIR/unpacked/t.pack DIR/unpacked/t.img", image, dir, 0);
    (folder.join("t.img"), fs::metadata(folder.join("t.pack")).unwrap().len())
}

/// An image with a large file, small ones, and directories, under the name that [`check`] uses.
fn image(dir: &Path) -> PathBuf {
    let tree = dir.join("tree/sub");
    fs::create_dir_all(&tree).unwrap();
    fs::write(tree.join("large"), pattern(40 << 20)).unwrap();
    fs::write(tree.join("odd"), pattern(100_001)).unwrap();
    fs::write(tree.join("small"), "nobody else's business\n".repeat(40)).unwrap();
    fs::write(dir.join("tree/at-the-root"), "a secret\n").unwrap();
    let image = dir.join("t.img");
    run("mkfs -q IMG 64M -d DIR/tree", &image, dir, 0);
    image
}

fn has(image: &Path, text: &[u8]) -> bool {
    fs::read(image).unwrap().windows(text.len()).any(|window| window == text)
}

#[test]
fn what_is_unpacked_is_the_image_without_contents() {
    let (_guard, dir) = scratch();
    let image = image(&dir);
    let (unpacked, bytes) = through("", &image, &dir);
    assert_eq!(check(&image).0, Some(0));
    assert_eq!(check(&unpacked), check(&image));
    let [whole, meta] = [&image, &unpacked].map(|image| fs::metadata(image).unwrap());
    assert_eq!(meta.len(), whole.len());
    assert!(bytes * 100 < whole.len() && meta.blocks() * 10 < whole.blocks(), "{bytes}");
    assert_eq!(run("ls -lR IMG", &unpacked, &dir, 0), run("ls -lR IMG", &image, &dir, 0));
    assert_eq!(run("dump IMG tree", &unpacked, &dir, 0), run("dump IMG tree", &image, &dir, 0));
    for contents in ["a secret", "nobody else's business"] {
        assert!(has(&image, contents.as_bytes()) && !has(&unpacked, contents.as_bytes()));
    }
    assert!(has(&unpacked, b"at-the-root"));
    let (out, _) = run("cat IMG /at-the-root", &unpacked, &dir, 0);
    assert_eq!(out, "\0".repeat("a secret\n".len()));
    // Packing the unpacked image again gives the same.
    let (again, _) = through("", &unpacked.clone(), &dir.join("unpacked"));
    assert!(fs::read(again).unwrap() == fs::read(unpacked).unwrap());
    let list = "unpack -qf --originals DIR/list DIR/unpacked/t.pack DIR/new.img";
    run(list, &image, &dir, 0);
    let list = fs::read_to_string(dir.join("list")).unwrap();
    let blocks = list.lines().filter(|line| line.starts_with("b:0x") && line.contains(" 4096 "));
    assert!(blocks.count() > 10_000);
    // With `--data` nothing is missing.
    let (unpacked, _) = through("--data", &image, &dir);
    run("fsck -fn --data IMG", &unpacked, &dir, 0);
    run("export -q IMG DIR/out", &unpacked, &dir, 0);
    crate::tree::assert_same(&dir.join("out"), &dir.join("tree"));
}

#[test]
fn streams_and_files_that_are_there() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let (out, _) = run("pack IMG DIR/t.pack", &image, &dir, 0);
    let end = " originals remain, by which known contents can be confirmed\n";
    assert!(
        out.contains("t.pack: ") && out.contains(", zeros for ") && out.ends_with(end),
        "{out}"
    );
    let pack = fs::read(dir.join("t.pack")).unwrap();
    let again = betr(words("pack IMG -", &image, &dir)).output().unwrap();
    assert!(again.status.success() && again.stdout == pack && again.stderr.is_empty());
    let (_, err) = run("pack IMG DIR/t.pack", &image, &dir, 1);
    assert!(err.contains("t.pack is there already"), "{err}");
    run("pack -f IMG DIR/t.pack", &image, &dir, 0);
    assert!(fs::read(dir.join("t.pack")).unwrap() == pack);
    let new = dir.join("new.img");
    let stdin = |line: &str| betr(words(line, &new, &dir)).write_stdin(pack.clone()).assert();
    let out = stdin("unpack - IMG").success().get_output().stdout.clone();
    assert!(String::from_utf8(out).unwrap().contains("with zeros for contents of files"));
    let before = fingerprint(&new);
    stdin("unpack - IMG").code(1).stderr(predicates::str::contains("already holds"));
    stdin("unpack - DIR/none/new.img").code(1);
    assert!(fingerprint(&new) == before);
    stdin("unpack -qf - IMG").success().stdout("");
    let (_, err) = run("unpack IMG DIR/other.img", &image, &dir, 3);
    assert!(err.contains("magic, at byte 0: expected \\xbeBETRpk"), "{err}");
    let (_, err) = run("pack DIR/file DIR/none.pack", &image, &dir, 3);
    assert!(err.contains("not a betr image"), "{err}");
    assert!(!dir.join("other.img").exists() && !dir.join("none.pack").exists());
}

#[test]
fn a_pack_that_does_not_verify_leaves_no_image() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    run("pack -q IMG DIR/t.pack", &image, &dir, 0);
    let (pack, bad) = (fs::read(dir.join("t.pack")).unwrap(), dir.join("bad.pack"));
    let there = names(&dir);
    for (bytes, code, text) in [
        (&b""[..], 3, "bad.pack: it is empty; expected a pack"),
        (&pack[..9], 3, "does not verify: it has only 9 bytes"),
        (&pack[..pack.len() - 9], 3, "does not verify: it ends too early"),
        (&[&pack[..8], &[3, 0, 0, 0], &pack[12..]].concat(), 1, "by a newer version of betr"),
    ] {
        fs::write(&bad, bytes).unwrap();
        let (_, err) = run("unpack DIR/bad.pack DIR/new.img", &image, &dir, code);
        assert!(err.contains(text), "{err}");
        fs::remove_file(&bad).unwrap();
        assert_eq!(names(&dir), there);
    }
    for at in [3, 12, 16, 23, 30, pack.len() / 2, pack.len() - 1] {
        for cut in [false, true] {
            let mut bytes = pack.clone();
            if cut {
                bytes.truncate(at)
            } else {
                bytes[at] ^= 0x10
            }
            fs::write(&bad, bytes).unwrap();
            let (_, err) = run("unpack DIR/bad.pack DIR/new.img", &image, &dir, 3);
            assert!(err.contains("bad.pack: the pack does not verify: "), "{at}: {err}");
            fs::remove_file(&bad).unwrap();
            assert_eq!(names(&dir), there);
        }
    }
}

#[test]
fn an_end_that_is_missing_is_missing_and_what_is_behind_is_not_packed() {
    let (_guard, dir) = scratch();
    let image = dir.join("t.img");
    fs::rename(small_image(&dir), &image).unwrap();
    let len = fs::metadata(&image).unwrap().len();
    age(&image);
    let before = fingerprint(&image);
    let (_, bytes) = through("", &image, &dir);
    assert!(fingerprint(&image) == before);
    let file = fs::File::options().write(true).open(&image).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &pattern(1 << 20), len).unwrap();
    let (unpacked, longer) = through("", &image, &dir);
    assert_eq!(check(&unpacked), check(&image));
    assert!(longer < bytes + 100 && fs::metadata(unpacked).unwrap().len() == len + (1 << 20));
    for len in [len - 1, len - 4096, len / 2, 70_000] {
        file.set_len(len).unwrap();
        let (unpacked, _) = through("", &image, &dir);
        assert_eq!(check(&unpacked), check(&image), "{len}");
    }
    file.lock().unwrap();
    let (_, err) = run("pack IMG DIR/t.pack", &image, &dir, 1);
    assert!(err.contains("t.img is in use"), "{err}");
}

#[test]
fn the_log_is_packed_with_what_it_binds() {
    let (_guard, dir) = scratch();
    let image = dir.join("t.img");
    fs::create_dir(dir.join("tree")).unwrap();
    fs::write(dir.join("tree/before"), pattern(3 << 20)).unwrap();
    run("mkfs -q IMG 24M --log-size 512K -d DIR/tree", &image, &dir, 0);
    run("dev powercut IMG", &image, &dir, 0);
    let (unpacked, _) = through("", &image, &dir);
    let found = check(&image);
    assert!(found.0 == Some(0) && found.1.contains("L01"), "{found:?}");
    assert_eq!(check(&unpacked), found);
    // The log records can be replayed for real.
    run("fsck -p IMG", &unpacked, &dir, 0);
    assert_eq!(check(&unpacked).0, Some(0));
}

#[test]
fn what_does_not_verify_is_packed_only_if_that_is_asked_for() {
    let (_guard, dir) = scratch();
    let image = image(&dir);
    let bytes = fs::read(&image).unwrap();
    let secret = b"a secret";
    let at = bytes.windows(secret.len()).position(|window| window == secret).unwrap();
    let file = fs::File::options().write(true).open(&image).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"A", at as u64).unwrap();
    let found = check(&image);
    assert!(found.0 == Some(4) && found.1.contains("N06"), "{found:?}");
    let (out, err) = run("pack -f IMG DIR/t.pack", &image, &dir, 0);
    assert!(
        out.contains("t.pack: ")
            && err.contains("note: structures that do not verify: 1; they are not in"),
        "{err}"
    );
    let (unpacked, _) = through("", &image, &dir);
    assert_eq!(check(&unpacked), found);
    assert!(!has(&unpacked, b" secret"));
    let (unpacked, _) = through("--keep-damaged", &image, &dir);
    assert_eq!(check(&unpacked), found);
    assert!(has(&unpacked, b"A secret") && !has(&unpacked, b"nobody else's business"));
    run("pack --data --keep-damaged IMG DIR/u.pack", &image, &dir, 2);
}
