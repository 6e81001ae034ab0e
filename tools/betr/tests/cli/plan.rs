//! Plans of repairs: created beside an image, inspected, applied, and undone.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::fsck::{block, slot_at, superblock};
use crate::support::*;

/// An image with garbage in one slot of its superblock ring.
fn dirty_image(dir: &Path) -> PathBuf {
    let image = small_image(dir);
    let mut bytes = fs::read(&image).unwrap();
    let at = slot_at(&bytes, 9);
    bytes[at..at + 4096].copy_from_slice(&pattern(4096));
    fs::write(&image, &bytes).unwrap();
    age(&image);
    image
}

/// An image whose newest checkpoint is lost, and the slot to start from.
fn lost_image(dir: &Path) -> (PathBuf, u64) {
    let image = small_image(dir);
    run("import IMG DIR/file /imported", &image, dir, 0);
    let mut bytes = fs::read(&image).unwrap();
    let (_, newest) = superblock(&bytes);
    for slot in [newest.slot & !1, newest.slot | 1] {
        let at = slot_at(&bytes, slot);
        bytes[at + 100] ^= 1;
    }
    fs::write(&image, &bytes).unwrap();
    age(&image);
    (image, (newest.birth.epoch.0 - 1) % 16 * 2)
}

/// A disk that becomes full during a repair, where the repair is tried or where its plan is stored: the image is
/// unchanged, and the error names the place.
#[test]
fn a_repair_without_room_leaves_the_image_alone() {
    let (_guard, dir) = scratch();
    let (image, out) = (dirty_image(&dir), dir.join("out"));
    fs::create_dir(&out).unwrap();
    let before = fingerprint(&image);
    let scripts = [
        (r#"TMPDIR="$1" "$0" fsck -fy "$2""#, "a temporary file in "),
        (r#""$0" fsck -fy --overlay "$1/plan" "$2""#, "/out"),
        (r#""$0" fsck -fy --undo "$1/undo" "$2""#, "/out/undo: "),
    ];
    for (script, place) in scripts {
        let Some((listed, err, code)) = in_tmpfs(4096, &out, script, &image) else { return };
        assert_eq!((listed.as_str(), code), ("", Some(8)), "{script}: {err}");
        assert!(err.contains("No space left on device") && err.contains(place), "{script}: {err}");
        assert!(fingerprint(&image) == before, "{script}: the image has changed");
    }
}

#[test]
fn a_repair_beside_an_image_leaves_it_alone() {
    let (_guard, dir) = scratch();
    let image = dirty_image(&dir);
    let before = fingerprint(&image);
    let (out, err) = run("fsck -y --overlay DIR/plan IMG", &image, &dir, 1);
    assert!(out.contains(": S01: ") && out.contains("the image is as it was"), "{out}");
    assert!(out.contains("small.img: repaired in ") && err.is_empty(), "{out}{err}");
    assert!(out.lines().last().unwrap().contains(": clean, "), "{out}");
    // Seen through the plan the image is clean, and needs no replay.
    let (out, _) = run("fsck -fn --overlay DIR/plan IMG", &image, &dir, 0);
    assert!(out.contains(": clean, ") && out.lines().count() == 1, "{out}");
    run("fsck -fn IMG", &image, &dir, 4);
    // An existing plan is not overwritten.
    let plan = fingerprint(&dir.join("plan"));
    for line in ["fsck -y --overlay DIR/plan IMG", "fsck -p --plan --overlay DIR/plan IMG"] {
        let (out, err) = run(line, &image, &dir, 8);
        assert!(out.is_empty() && err.contains("plan is there already"), "betr {line}: {err}");
    }
    assert!(fingerprint(&dir.join("plan")) == plan && fingerprint(&image) == before);
    assert_eq!(names(&dir), ["file", "folder", "plan", "small.img"]);
}

#[test]
fn an_image_that_may_not_be_written_is_repaired_beside_it() {
    let (_guard, dir) = scratch();
    let image = dirty_image(&dir);
    let lock = fs::File::open(&image).unwrap();
    lock.lock_shared().unwrap();
    run("fsck -p IMG", &image, &dir, 8);
    run("fsck -p --overlay DIR/plan IMG", &image, &dir, 1);
    run("fsck --apply DIR/plan IMG", &image, &dir, 8);
}

#[test]
fn a_plan_is_applied_and_taken_back() {
    let (_guard, dir) = scratch();
    let image = dirty_image(&dir);
    let before = fs::read(&image).unwrap();
    run("fsck -y --overlay DIR/plan IMG", &image, &dir, 1);
    let (out, err) = run("fsck --apply DIR/plan --undo DIR/back IMG", &image, &dir, 1);
    assert!(out.contains(": applied ") && out.contains("betr undo "), "{out}");
    assert!(
        out.ends_with(" blocks\n") && out.contains(": clean, ") && err.is_empty(),
        "{out}{err}"
    );
    let repaired = fs::read(&image).unwrap();
    assert!(block(&repaired, slot_at(&repaired, 9)).iter().all(|byte| *byte == 0));
    run("fsck -fn IMG", &image, &dir, 0);

    // A second run has nothing to do. The same command keeps the existing inverse, and writes no other.
    let (out, _) = run("fsck --apply DIR/plan IMG", &image, &dir, 0);
    assert!(out.contains("nothing to do"), "{out}");
    assert!(fs::read(&image).unwrap() == repaired);
    let (_, err) = run("fsck --apply DIR/plan -z DIR/other IMG", &image, &dir, 0);
    assert!(err.contains("other was not written") && !dir.join("other").exists(), "{err}");

    let (out, _) = run("undo IMG DIR/back", &image, &dir, 0);
    assert!(out.contains(": undone: "), "{out}");
    assert!(fs::read(&image).unwrap() == before);
    let (out, _) = run("undo IMG DIR/back", &image, &dir, 0);
    assert!(out.contains("nothing to do"), "{out}");
    run("fsck --apply DIR/plan --undo DIR/back IMG", &image, &dir, 1);
    assert!(fs::read(&image).unwrap() == repaired);
    // The plan itself also serves to undo.
    run("undo IMG DIR/plan", &image, &dir, 0);
    assert!(fs::read(&image).unwrap() == before);
    // A file that is not a plan is not overwritten, and then nothing is applied.
    fs::write(dir.join("mine"), "mine").unwrap();
    let (_, err) = run("fsck --apply DIR/plan --undo DIR/mine IMG", &image, &dir, 8);
    assert!(err.contains("mine is there already") && err.contains("nothing was written"), "{err}");
    assert!(fs::read(&image).unwrap() == before);
    // An undo plan is refused, with the right command.
    let (_, err) = run("fsck --apply DIR/back IMG", &image, &dir, 8);
    assert!(err.contains("betr undo"), "{err}");
}

#[test]
fn a_repair_keeps_what_takes_it_back() {
    for line in ["fsck -y -z DIR/back IMG", "fsck -p --undo DIR/back IMG"] {
        let (_guard, dir) = scratch();
        let image = dirty_image(&dir);
        let before = fs::read(&image).unwrap();
        let (out, _) = run(line, &image, &dir, 1);
        assert!(out.contains("back' takes it back"), "{out}");
        run("fsck -fn IMG", &image, &dir, 0);
        run("undo IMG DIR/back", &image, &dir, 0);
        assert!(fs::read(&image).unwrap() == before, "betr {line}");
        // It is not overwritten.
        run(line, &image, &dir, 8);
        assert!(fs::read(&image).unwrap() == before);
    }
}

#[test]
fn what_was_cut_off_goes_on() {
    let (_guard, dir) = scratch();
    let image = dirty_image(&dir);
    let before = fs::read(&image).unwrap();
    run("fsck -y --overlay DIR/plan IMG", &image, &dir, 1);
    run("fsck --apply DIR/plan --undo DIR/back IMG", &image, &dir, 1);
    let after = fs::read(&image).unwrap();
    // Only one sector of the first group has been written.
    run("undo IMG DIR/back", &image, &dir, 0);
    let plan: Value = serde_json::from_str(&run("fsck --plan IMG", &image, &dir, 4).0).unwrap();
    assert!(plan["groups"].as_u64().unwrap() > 1, "{plan}");
    let at = plan["changes"][0]["block"].as_u64().unwrap() as usize * 4096;
    assert!(before[at..at + 512] != after[at..at + 512]);
    let mut torn = before.clone();
    torn[at..at + 512].copy_from_slice(&after[at..at + 512]);
    fs::write(&image, &torn).unwrap();
    let (out, _) = run("fsck --apply DIR/plan --undo DIR/back IMG", &image, &dir, 1);
    assert!(out.contains("half applied: goes on with group "), "{out}");
    assert!(fs::read(&image).unwrap() == after);
    fs::write(&image, &torn).unwrap();
    let (out, _) = run("undo IMG DIR/back", &image, &dir, 0);
    assert!(out.contains("half applied: goes on with group "), "{out}");
    assert!(fs::read(&image).unwrap() == before);
}

#[test]
fn an_image_that_the_plan_is_not_for_stays_as_it_is() {
    let (_guard, dir) = scratch();
    let image = dirty_image(&dir);
    run("fsck -y --overlay DIR/plan IMG", &image, &dir, 1);
    run("fsck -y --undo DIR/back IMG", &image, &dir, 1);
    let other = dir.join("other.img");
    run("mkfs -q IMG 2M", &other, &dir, 0);
    let longer = dir.join("longer.img");
    fs::copy(&image, &longer).unwrap();
    fs::File::options().write(true).open(&longer).unwrap().set_len(4 << 20).unwrap();
    // Repaired in another way, and changed since.
    run("mkdir IMG /since", &image, &dir, 0);
    for image in [&image, &other, &longer] {
        let before = fs::read(image).unwrap();
        for (line, code) in [
            ("fsck --apply DIR/plan IMG", 8),
            ("fsck --apply DIR/plan -z DIR/new IMG", 8),
            ("fsck -fn --overlay DIR/plan IMG", 8),
            ("undo IMG DIR/back", 1),
            ("undo IMG DIR/plan", 1),
        ] {
            let (out, err) = run(line, image, &dir, code);
            assert!(out.is_empty() && err.contains("not for this image"), "betr {line}: {err}");
            assert!(err.contains("which nothing else may have changed since"), "{err}");
            assert!(fs::read(image).unwrap() == before, "betr {line}");
        }
        assert!(!dir.join("new").exists());
    }
}

#[test]
fn what_is_no_plan_is_named() {
    let (_guard, dir) = scratch();
    let image = dirty_image(&dir);
    run("fsck -y --overlay DIR/plan IMG", &image, &dir, 1);
    let sound = fs::read(dir.join("plan")).unwrap();
    let before = fingerprint(&image);
    let mut flipped = sound.clone();
    flipped[sound.len() - 1] ^= 1;
    let short = sound[..sound.len() - 1].to_vec();
    fs::create_dir(dir.join("directory")).unwrap();
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, dir.join("pipe"), kind, mode, 0).unwrap();
    for (name, bytes) in
        [("empty", vec![]), ("noise", pattern(20_000)), ("flipped", flipped), ("short", short)]
    {
        fs::write(dir.join(name), bytes).unwrap();
    }
    for name in ["empty", "noise", "flipped", "short", "directory", "pipe", "missing", "small.img"]
    {
        for (line, code) in [
            (format!("fsck --apply DIR/{name} IMG"), 8),
            (format!("fsck -n --overlay DIR/{name} IMG"), 8),
            (format!("undo IMG DIR/{name}"), 1),
        ] {
            let (out, err) = run(&line, &image, &dir, code);
            assert!(out.is_empty() && err.contains(&format!("/{name}")), "betr {line}: {err}");
            assert!(err.contains("expected") && err.lines().count() == 1, "betr {line}: {err}");
        }
    }
    assert!(fingerprint(&image) == before);
}

#[test]
fn without_a_repair_there_is_no_file() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    age(&image);
    for line in [
        "fsck -y --overlay DIR/new IMG",
        "fsck -fp --overlay DIR/new IMG",
        "fsck -y -z DIR/new IMG",
        "fsck --plan --overlay DIR/new IMG",
    ] {
        let (_, err) = run(line, &image, &dir, 0);
        assert!(err.contains("nothing to repair") && err.contains("new was not written"), "{err}");
    }
    let (out, _) = run("fsck -f --plan IMG", &image, &dir, 0);
    let plan: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&plan["findings"], &plan["changes"]), (&Value::Array(vec![]), &plan["findings"]));
    // An image that cannot be repaired has no plan.
    let (_guard, dir) = scratch();
    let image = dir.join("broken.img");
    run("dev make-broken S03 IMG", &image, &dir, 0);
    let before = fingerprint(&image);
    for line in ["fsck -fy --overlay DIR/new IMG", "fsck -fy -z DIR/new IMG", "fsck -f --plan IMG"]
    {
        let (out, err) = run(line, &image, &dir, 4);
        assert!(out.contains("S03") && err.contains("nothing was written"), "{out}{err}");
    }
    assert!(!dir.join("new").exists() && before == fingerprint(&image));
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let (_guard, dir) = scratch();
    let image = dirty_image(&dir);
    for line in [
        "fsck -n --plan IMG",
        "fsck -n --undo DIR/x IMG",
        "fsck -y --overlay DIR/x --undo DIR/y IMG",
        "fsck --plan -z DIR/y IMG",
        "fsck -y --apply DIR/x IMG",
        "fsck --apply DIR/x --overlay DIR/x IMG",
        "fsck --apply DIR/x -b 2 IMG",
    ] {
        let (_, err) = run(line, &image, &dir, 16);
        assert!(err.contains("cannot be used with"), "betr {line}: {err}");
    }
}

/// Masks hashes and paths, which differ from run to run.
fn masked(json: &str, dir: &Path) -> String {
    let json = json.replace(dir.to_str().unwrap(), "DIR");
    let word = |word: &str| {
        let hash = word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        if hash { "…".to_owned() } else { word.to_owned() }
    };
    json.split('"').map(word).collect::<Vec<_>>().join("\"")
}

#[test]
fn a_plan_is_shown_for_review() {
    let (_guard, dir) = scratch();
    let image = dirty_image(&dir);
    let before = fingerprint(&image);
    let (out, err) = run("fsck --plan IMG", &image, &dir, 4);
    assert_eq!(err, "");
    assert!(fingerprint(&image) == before);
    insta::assert_snapshot!(masked(&out, &dir));
    // With a plan in a file the output is the same, except for random values.
    let (beside, _) = run("fsck -p --plan --overlay DIR/plan IMG", &image, &dir, 1);
    assert_eq!(masked(&beside, &dir), masked(&out, &dir));
    let shown: Value = serde_json::from_str(&beside).unwrap();
    // The file gives the same output, and the progress of applying it.
    assert_eq!(run("fsck --apply DIR/plan --plan IMG", &image, &dir, 0).0, beside);
    assert!(fingerprint(&image) == before);
    run("fsck --apply DIR/plan IMG", &image, &dir, 1);
    let (after, _) = run("fsck --apply DIR/plan --plan IMG", &image, &dir, 0);
    assert_eq!(after, beside.replace("\"found\": \"untouched\"", "\"found\": \"whole\""));
    let bytes = fs::read(&image).unwrap();
    let changes = shown["changes"].as_array().unwrap();
    let last = changes.last().unwrap();
    let at = last["block"].as_u64().unwrap() as usize * 4096;
    fs::write(dir.join("block"), block(&bytes, at)).unwrap();
    assert_eq!(last["new"], fingerprint(&dir.join("block")).0);
}

#[test]
fn json_says_where_a_repair_is() {
    let (_guard, dir) = scratch();
    let image = dirty_image(&dir);
    let json = |line: &str, code: i32| -> Value {
        serde_json::from_str(&run(line, &image, &dir, code).0).unwrap()
    };
    let (plan, back) = (dir.join("plan"), dir.join("back"));
    let made = json("fsck -y --json --overlay DIR/plan IMG", 1);
    assert_eq!(made["repair"]["overlay"], plan.to_str().unwrap());
    assert_eq!((&made["repair"]["undo"], &made["clean"]), (&Value::Null, &true.into()));
    let applied = json("fsck --json --apply DIR/plan -z DIR/back IMG", 1);
    assert_eq!(applied["apply"]["found"], "untouched");
    assert_eq!(applied["apply"]["undo"], back.to_str().unwrap());
    assert_eq!(applied["apply"]["blocks"], made["repair"]["blocks"]);
    let undone = json("undo --json IMG DIR/back", 0);
    assert_eq!((&undone["schema"], &undone["found"]), (&"betr.undo".into(), &"untouched".into()));
    assert_eq!(json("undo --json IMG DIR/back", 0)["found"], "whole");
}

#[test]
fn what_only_reads_shows_the_repaired_image() {
    let (_guard, dir) = scratch();
    let (image, slot) = lost_image(&dir);
    let before = fingerprint(&image);
    run(&format!("fsck -y -b {slot} --overlay DIR/plan IMG"), &image, &dir, 1);
    let (_applied_guard, applied_dir) = scratch();
    let applied = applied_dir.join("small.img");
    fs::copy(&image, &applied).unwrap();
    fs::copy(dir.join("plan"), applied_dir.join("plan")).unwrap();
    run("fsck --apply DIR/plan IMG", &applied, &applied_dir, 1);
    for line in [
        "ls -lR IMG",
        "cat IMG /hello",
        "stat IMG / /hello",
        "find IMG /sub",
        "du IMG",
        "export IMG DIR/out",
        "cp IMG :/hello DIR/copy",
        "getfattr -d IMG /hello",
        "info IMG",
        "dump IMG",
        "dump IMG table",
        "dump IMG tree",
        "dump IMG log",
        "dump IMG zones",
        "dump IMG path /hello",
        "shell -c ls -c pwd IMG",
        "fsck -fnv IMG",
    ] {
        let words = |word: &str| word.replace("IMG", "--overlay DIR/plan IMG");
        let (shown, err) = run(&words(line), &image, &dir, 0);
        assert_eq!(err, "", "betr {line}");
        let name = |text: String, dir: &Path| text.replace(dir.to_str().unwrap(), "DIR");
        let (expected, _) = run(line, &applied, &applied_dir, 0);
        assert_eq!(name(shown, &dir), name(expected, &applied_dir), "betr {line}");
        if !line.starts_with("dump IMG") {
            let code = if line.starts_with("fsck") { 4 } else { 3 };
            let output = betr(crate::support::words(line, &image, &dir)).output().unwrap();
            assert_eq!(output.status.code(), Some(code), "betr {line}: {:?}", text(&output));
        }
    }
    crate::tree::assert_same(&dir.join("out"), &applied_dir.join("out"));
    assert_eq!(fs::read(dir.join("copy")).unwrap(), b"hello\n");
    assert!(fingerprint(&image) == before);
}

#[test]
fn what_a_plan_is_laid_over_cannot_be_changed() {
    let (_guard, dir) = scratch();
    let image = dirty_image(&dir);
    run("fsck -y --overlay DIR/plan IMG", &image, &dir, 1);
    let before = fingerprint(&image);
    for (line, code, said) in [
        ("cp --overlay DIR/plan IMG DIR/file :/new", 2, "can only be read"),
        ("mkdir --overlay DIR/plan IMG /new", 2, "unexpected argument"),
    ] {
        let (_, err) = run(line, &image, &dir, code);
        assert!(err.contains(said), "betr {line}: {err}");
    }
    let shell = |args: &[&str], code: i32, said: &str| {
        let plan = dir.join("plan");
        let args: Vec<&str> = args
            .iter()
            .map(|word| match *word {
                "PLAN" => plan.to_str().unwrap(),
                "IMG" => image.to_str().unwrap(),
                word => word,
            })
            .collect();
        let output = betr([&["shell"], &args[..]].concat()).output().unwrap();
        let streams = text(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {streams:?}");
        assert!(streams.1.contains(said), "{args:?}: {streams:?}");
    };
    shell(&["--overlay", "PLAN", "-c", "ls /", "-c", "cat /hello", "IMG"], 0, "");
    shell(&["--overlay", "PLAN", "-c", "mkdir /new", "IMG"], 1, "reading only");
    let other = dir.join("other.img");
    run("mkfs -q IMG 2M", &other, &dir, 0);
    for (line, code) in [("ls --overlay DIR/plan IMG", 1), ("info --overlay DIR/plan IMG", 1)] {
        let (_, err) = run(line, &other, &dir, code);
        assert!(err.contains("not for this image"), "{err}");
    }
    assert!(fingerprint(&image) == before);
    // Without a plan the shell opens the image for writing.
    shell(&["-c", "ls --overlay x /", "IMG"], 2, "say it to the shell");
}
