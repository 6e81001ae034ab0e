//! `--as-of`: past states that an image still has.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::support::*;

#[test]
fn older_checkpoints_and_records_are_shown() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    fs::write(dir.join("second"), "the second one").unwrap();
    run("import IMG DIR/second /second", &image, &dir, 0);
    run("rm IMG /hello", &image, &dir, 0);
    let before = fs::read(&image).unwrap();
    assert_eq!(run("ls IMG", &image, &dir, 0).0, "link\nsecond\nsub\n");
    for moment in ["now", "checkpoint", "t:2999-01-01T00:00:00Z"] {
        let (out, err) = run(&format!("ls IMG --as-of {moment}"), &image, &dir, 0);
        assert_eq!((&*out, &*err), ("link\nsecond\nsub\n", ""), "{moment}");
    }
    // The error for a missing epoch lists the available ones.
    let (_, err) = run("ls IMG --as-of e:999", &image, &dir, 1);
    assert!(err.contains("no superblock of epoch 999 is left; the ring remembers e:"), "{err}");
    let epochs: Vec<&str> =
        err.split(&[' ', ',', '\n'][..]).filter(|w| w.starts_with("e:")).collect();
    let mut seen = Vec::new();
    for epoch in epochs {
        let line = format!("ls IMG --as-of {epoch}");
        let output = betr(words(&line, &image, &dir)).output().unwrap();
        let (out, err) = text(&output);
        match output.status.code() {
            Some(0) => {
                seen.push(out);
                // The log after this checkpoint has been overwritten.
                let line = format!("dump IMG --as-of {epoch} log");
                let (out, _) = run(&line, &image, &dir, 0);
                assert!(out.starts_with("0 groups, 0 records, "), "{line}: {out}");
            }
            // Its blocks have been overwritten, and the message says so.
            Some(3) => assert!(
                err.contains("what has been written over since is reported as damage"),
                "{err}"
            ),
            code => panic!("{line}: {code:?}: {err}"),
        }
    }
    assert!(seen.contains(&"hello\nlink\nsecond\nsub\n".to_owned()), "{seen:?}");
    let (_, err) = run("ls IMG --as-of l:1", &image, &dir, 1);
    assert!(err.contains("l:1 is in the checkpoint of epoch"), "{err}");
    let (_, err) = run("ls IMG --as-of l:999999", &image, &dir, 1);
    assert!(err.contains("the log ends before l:999999"), "{err}");
    let (_, err) = run("ls IMG --as-of t:1980-01-01T00:00:00Z", &image, &dir, 1);
    assert!(err.contains("that is too long ago; the ring remembers e:"), "{err}");
    let (_, err) = run("cp IMG --as-of now DIR/second :/third", &image, &dir, 2);
    assert!(err.contains("what was can only be read"), "{err}");
    run("ls IMG --as-of yesterday", &image, &dir, 2);
    assert!(fs::read(&image).unwrap() == before, "a look has changed the image");
}

#[test]
fn a_dump_shows_what_a_replay_makes() {
    let (_guard, dir) = scratch();
    let image = dir.join("t.img");
    run("mkfs -q IMG 64M", &image, &dir, 0);
    run("dev powercut IMG", &image, &dir, 0);
    let before = fs::read(&image).unwrap();
    let nodes = |line: &str| run(line, &image, &dir, 0).0.lines().count();
    let (plain, checkpoint) = (nodes("dump IMG tree"), nodes("dump IMG --as-of checkpoint tree"));
    assert_eq!(plain, checkpoint);
    assert!(nodes("dump IMG --as-of now tree") > checkpoint);
    let (_, err) = run("ls IMG --as-of checkpoint /powercut", &image, &dir, 1);
    assert!(err.contains("/powercut: no such file or directory"), "{err}");
    let list = run("replay IMG list --op create --json", &image, &dir, 0).0;
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let records = list["records"].as_array().unwrap();
    for at in [0, 7] {
        let lsn = records[at]["lsn"].as_u64().unwrap();
        let line = format!("ls IMG --as-of l:{lsn} /powercut");
        assert_eq!(nodes(&line), at + 1, "{line}");
    }
    assert!(fs::read(&image).unwrap() == before, "a look has changed the image");
}

/// Records that a damaged log has lost are missing in every view of the present, and all tools say so.
#[test]
fn what_is_missing_is_said() {
    let (_guard, dir) = scratch();
    let image = dir.join("t.img");
    run("dev make-broken L03 IMG", &image, &dir, 0);
    for line in ["ls IMG", "find IMG", "explain IMG /", "replay IMG diff", "export IMG DIR/out"] {
        let (_, err) = run(line, &image, &dir, 3);
        assert!(err.contains("something that was acknowledged is missing here"), "{line}: {err}");
    }
    // Before the log, nothing is missing.
    let (_, err) = run("ls IMG --as-of checkpoint", &image, &dir, 0);
    assert_eq!(err, "");
}

/// A name in the wrong form is answered with the right form.
#[test]
fn a_wrong_word_is_answered_with_the_right_one() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    for (line, text) in [
        ("dump IMG basement n:2/0", "is a word of its own, as in 'basement n:2 0'"),
        ("dump IMG node root", "expected n:ID or a number"),
        ("replay IMG list --since l:7", "expected a time with its zone"),
        ("replay IMG list --since 2026-11-23", "as 2026-11-23T10:00:00Z"),
    ] {
        let (_, err) = run(line, &image, &dir, 2);
        assert!(err.contains(text), "{line}: {err}");
    }
    for time in ["t:2026-11-23T10:00:00Z", "2026-11-23T10:00:00Z", "t:@7.5"] {
        run(&format!("replay IMG list --since {time} --before {time}"), &image, &dir, 0);
    }
    let (help, _) = run("replay IMG list --help", &image, &dir, 0);
    assert!(help.contains("t:2026-11-23T10:00:00Z"), "{help}");
}

/// The tools accept paths as they print them, with any bytes.
#[test]
fn names_are_taken_as_they_are_printed() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let names: [&[u8]; 5] =
        [b"a\xff\n", b"back\\x41", "\u{202e}gpj".as_bytes(), b"lone\\", b"two\\\\"];
    fs::create_dir(dir.join("odd")).unwrap();
    for name in names {
        fs::write(dir.join("odd").join(OsStr::from_bytes(name)), "x").unwrap();
    }
    run("import IMG DIR/odd /odd", &image, &dir, 0);
    for name in names {
        let raw = [b"/odd/", name].concat();
        let printed = betr_core::text::printable(&raw);
        let takes = |line: &str, path: &OsStr, code: i32| {
            let mut words: Vec<PathBuf> = words(line, &image, &dir);
            words.push(path.into());
            let output = betr(words).output().unwrap();
            assert_eq!(output.status.code(), Some(code), "{line} {path:?}: {:?}", text(&output));
            text(&output).0
        };
        for line in ["explain IMG", "dump IMG path", "replay IMG blame", "replay IMG list --path"] {
            let out = takes(line, printed.as_ref(), 0);
            assert!(line.ends_with("--path") || out.contains(&printed), "{line}: {out}");
        }
        takes("explain IMG", format!("k:{printed}").as_ref(), 0);
        // Unescaped, if nothing in it looks like an escape.
        let is_plain = betr_core::text::meant(&raw) == raw;
        takes("explain IMG", OsStr::from_bytes(&raw), i32::from(!is_plain));
    }
}

/// A disk that becomes full during the copy or the replay: no image is left, and the error names it.
#[test]
fn a_moment_without_room_leaves_nothing() {
    let (_guard, dir) = scratch();
    let (image, out) = (dir.join("t.img"), dir.join("out"));
    fs::create_dir(&out).unwrap();
    run("mkfs -q IMG 64M", &image, &dir, 0);
    run("dev powercut IMG", &image, &dir, 0);
    let before = fs::read(&image).unwrap();
    let used = fs::metadata(&image).unwrap().blocks() * 512;
    // During the copy; and with room for the copy, but not for the writes of the replay.
    for bytes in [used / 2, used + 8192] {
        let apply = r#""$0" replay "$2" apply -o "$1/then.img""#;
        let Some((listed, err, code)) = in_tmpfs(bytes, &out, apply, &image) else { return };
        assert_eq!((listed.as_str(), code), ("", Some(1)), "{bytes}: {err}");
        assert!(err.contains("out/then.img: "), "{bytes}: {err}");
        assert!(err.contains("No space left on device"), "{bytes}: {err}");
    }
    assert!(fs::read(&image).unwrap() == before, "the image has changed");
}
