//! `betr salvage`: the files from damaged images, the report of the rest, and that the image is unchanged.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use betr_core::device::FileDevice;
use betr_core::format::{Action, Inode, Key, LeafHead, MetaKey, MetaValue, Op, RecordMessage};
use betr_core::fs::ROOT_ZONE;
use betr_core::ids::{Ino, Time, TreeId};
use betr_core::volume::{Mode, OpenOptions, Transaction, Volume};
use serde_json::Value;

use crate::fsck::{slot_at, structures, superblock};
use crate::support::*;
use crate::tree::{assert_same, plant};

/// Damages the small image. Returns it, and an export that was made before.
fn damaged(dir: &Path, damage: impl FnOnce(&mut Vec<u8>)) -> (PathBuf, PathBuf) {
    let image = small_image(dir);
    run("export -q IMG DIR/before", &image, dir, 0);
    let mut bytes = fs::read(&image).unwrap();
    let sound = bytes.clone();
    damage(&mut bytes);
    assert!(bytes != sound, "the damage did not land");
    fs::write(&image, &bytes).unwrap();
    age(&image);
    (image, dir.join("before"))
}

/// Salvages into `out`. The image must be unchanged, and the reports as JSON and of a dry run must be the same.
fn salvage(image: &Path, dir: &Path, code: i32) -> (String, Vec<Value>) {
    let before = fingerprint(image);
    let there = names(dir);
    let (text, err) = run("salvage IMG DIR/out", image, dir, code);
    assert_eq!(err, "");
    let (again, _) = run("salvage -n IMG", image, dir, code);
    assert_eq!(again, text);
    let (json, _) = run("salvage -n --json IMG", image, dir, code);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["schema"], &json["version"]), (&"betr.salvage".into(), &1.into()));
    let entries = json["entries"].as_array().unwrap().clone();
    let summary = entries.last().unwrap();
    assert_eq!(summary["kind"], "summary");
    let line = format!(
        ": {} complete, {} partial, {} lost, {} bytes\n",
        summary["complete"], summary["partial"], summary["lost"], summary["bytes"]
    );
    assert!(text.ends_with(&line), "{text}");
    for kind in ["partial", "lost"] {
        let count = entries.iter().filter(|entry| entry["kind"] == kind).count();
        assert_eq!(summary[kind], count, "{kind}: {json:#}");
    }
    for note in json["notes"].as_array().unwrap() {
        assert!(text.contains(note.as_str().unwrap()), "{text}");
    }
    assert!(fingerprint(image) == before, "the image was written to");
    let mut after = names(dir);
    after.retain(|name| name != "out");
    assert_eq!(after, there);
    (text, entries)
}

/// Zeroes all leaves of a tree.
fn zero_leaves(bytes: &mut [u8], tree: TreeId) {
    for (_, at) in structures(bytes).into_iter().filter(|(code, _)| *code == "N01") {
        let len = u32::from_le_bytes(bytes[at + 96..at + 100].try_into().unwrap());
        let head = LeafHead::decode(&bytes[at..at + len as usize], None);
        if head.is_ok_and(|(_, head)| head.tree == tree) {
            bytes[at..at + 4096].fill(0);
        }
    }
}

fn entry<'e>(entries: &'e [Value], path: &str) -> &'e Value {
    let found = entries.iter().find(|entry| entry["path"] == path);
    found.unwrap_or_else(|| panic!("{path}: {entries:#?}"))
}

#[test]
fn a_sound_image_comes_out_as_a_whole() {
    let (_guard, dir) = scratch();
    let image = dir.join("t.img");
    fs::create_dir(dir.join("tree")).unwrap();
    plant(&dir.join("tree"));
    run("mkfs -q -d DIR/tree IMG 32M", &image, &dir, 0);
    age(&image);
    run("export -q IMG DIR/export", &image, &dir, 0);
    let (text, entries) = salvage(&image, &dir, 0);
    assert_eq!((text.lines().count(), entries.len()), (1, 1), "{text}");
    assert_same(&dir.join("export"), &dir.join("out"));
    assert_same(&dir.join("tree"), &dir.join("out"));
    // The report of every name, and a part of the tree.
    let (text, _) = run("salvage -nv IMG", &image, &dir, 0);
    assert!(text.contains("/file-4097: complete\n"), "{text}");
    run("salvage --only /sub IMG DIR/sub", &image, &dir, 0);
    assert_same(&dir.join("export/sub"), &dir.join("sub"));
    run("salvage --only /file-4097 IMG DIR/one", &image, &dir, 0);
    assert!(fs::read(dir.join("one")).unwrap() == pattern(4097));
}

#[test]
fn a_log_that_was_not_replayed_is() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    run("resize -q IMG 16M", &image, &dir, 0);
    run("dev powercut IMG", &image, &dir, 0);
    age(&image);
    run("export -q IMG DIR/before", &image, &dir, 0);
    salvage(&image, &dir, 0);
    assert_same(&dir.join("before"), &dir.join("out"));
}

#[test]
fn a_block_of_a_file_that_is_damaged_is_a_hole() {
    let (_guard, dir) = scratch();
    let (image, before) = damaged(&dir, |bytes| {
        let contents = &pattern(10_000)[4096..8192];
        let at = bytes.windows(4096).position(|window| window == contents).unwrap();
        bytes[at + 5] ^= 1;
    });
    let (text, entries) = salvage(&image, &dir, 3);
    assert!(text.starts_with("/sub/inner: bytes 4096 to 8191 are missing\n"), "{text}");
    assert!(text.contains(": 2 complete, 1 partial, 0 lost, 5910 bytes\n"), "{text}");
    let inner = entry(&entries, "/sub/inner");
    assert_eq!(inner["missing"], serde_json::json!([{ "first": 4096, "last": 8191 }]));
    assert_eq!((&inner["kind"], &inner["size"]), (&"partial".into(), &10_000.into()));
    let mut expected = pattern(10_000);
    expected[4096..8192].fill(0);
    assert!(fs::read(dir.join("out/sub/inner")).unwrap() == expected);
    // There is no other difference.
    for tree in [&before, &dir.join("out")] {
        fs::remove_file(tree.join("sub/inner")).unwrap();
        crate::tree::set_times(&tree.join("sub"), 1, 0);
    }
    assert_same(&before, &dir.join("out"));
}

#[test]
fn without_contents_there_are_names() {
    let (_guard, dir) = scratch();
    let (image, _) = damaged(&dir, |bytes| zero_leaves(bytes, TreeId::Data));
    let (text, entries) = salvage(&image, &dir, 3);
    assert!(text.contains("/hello: bytes 0 to 5 are missing\n"), "{text}");
    assert!(text.contains("/sub/inner: bytes 0 to 9999 are missing\n"), "{text}");
    assert!(text.contains(": 1 complete, 2 partial, 0 lost, 0 bytes\n"), "{text}");
    assert_eq!(entry(&entries, "/hello")["older"], serde_json::json!([]));
    assert_eq!(fs::read(dir.join("out/hello")).unwrap(), [0; 6]);
    assert_eq!(fs::read_link(dir.join("out/link")).unwrap(), Path::new("hello"));
}

#[test]
fn without_names_there_are_contents() {
    let (_guard, dir) = scratch();
    let (image, _) = damaged(&dir, |bytes| zero_leaves(bytes, TreeId::Metadata));
    let (text, entries) = salvage(&image, &dir, 3);
    assert!(text.contains("/: entries may be missing"), "{text}");
    assert!(text.contains(": lost: files and directories from the beginning on: "), "{text}");
    assert_eq!(entry(&entries, "/")["kind"], "lost");
    assert_eq!(entry(&entries, "/hello")["kind"], "partial");
    assert_eq!(entry(&entries, "/hello")["missing"], serde_json::json!([]));
    assert!(entry(&entries, "/hello")["what"].as_str().unwrap().contains("found"), "{text}");
    assert!(fs::read(dir.join("out/hello")).unwrap().starts_with(b"hello\n"));
    let inner = fs::read(dir.join("out/sub/inner")).unwrap();
    assert!(inner[..10_000] == pattern(10_000));
}

#[test]
fn without_a_table_page_all_is_found() {
    let (_guard, dir) = scratch();
    let (image, before) = damaged(&dir, |bytes| {
        let (_, page) = structures(bytes).into_iter().find(|(code, _)| *code == "T01").unwrap();
        bytes[page..page + 4096].fill(0);
    });
    // Whether the found nodes are the newest is unknown.
    let (text, _) = salvage(&image, &dir, 3);
    assert!(text.contains("a part of the allocation table is lost"), "{text}");
    assert!(text.contains(": 3 complete, 0 partial, 0 lost, 10006 bytes\n"), "{text}");
    assert_same(&before, &dir.join("out"));
}

#[test]
fn names_lead_nowhere_else() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    for (at, name) in ["..", ".", "a/b", "/abs", "../../out-of-it"].into_iter().enumerate() {
        let file = fs::File::options().read(true).write(true).open(&image).unwrap();
        let len = file.metadata().unwrap().len();
        let options = OpenOptions::new(Mode::ReadWrite, Box::new(move || at as u64 + 1));
        let device = Arc::new(FileDevice::new(file, len));
        let mut volume = Volume::open(device, options).unwrap().0;
        let place = MetaKey::root(ROOT_ZONE).child(b"hello").encode();
        let value = volume.get(TreeId::Metadata, &place).unwrap().unwrap();
        let MetaValue::Inode(inode) = MetaValue::decode(&value, None).unwrap() else { panic!() };
        let inode = Inode { ino: Ino(1 << 20 | at as u64), size: 0, data_zone: None, ..inode };
        let key = Key::copied(&[&[0; 8][..], &[1], name.as_bytes(), &[0]].concat());
        let action = Action::Insert(inode.encode().into());
        let messages = vec![RecordMessage::Point(TreeId::Metadata, key, action)];
        volume.commit(Transaction { op: Op::Raw, wall: Time::default(), messages }).unwrap();
        volume.checkpoint().unwrap();
    }
    age(&image);
    fs::create_dir(dir.join("inside")).unwrap();
    let before = names(&dir);
    let (text, entries) = {
        let image = image.clone();
        let inside = dir.join("inside");
        let (text, _) = run("salvage IMG DIR/out", &image, &inside, 3);
        let (json, _) = run("salvage -n --json IMG", &image, &inside, 3);
        let json: Value = serde_json::from_str(&json).unwrap();
        (text, json["entries"].as_array().unwrap().clone())
    };
    assert_eq!(names(&dir), before, "{text}");
    assert_eq!(names(&dir.join("inside")), ["out"]);
    let mut found = names(&dir.join("inside/out"));
    found.retain(|name| name != "lost+found");
    assert_eq!(found, ["hello", "link", "sub"], "{text}");
    assert!(entries.iter().filter(|entry| entry["kind"] == "lost").count() >= 5, "{text}");
}

#[test]
fn a_checkpoint_whose_superblock_is_lost_is_found() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    run("import -q IMG DIR/file /imported", &image, &dir, 0);
    let mut bytes = fs::read(&image).unwrap();
    let (_, newest) = superblock(&bytes);
    for slot in [newest.slot & !1, newest.slot | 1] {
        let at = slot_at(&bytes, slot);
        bytes[at + 100] ^= 1;
    }
    fs::write(&image, &bytes).unwrap();
    let (text, _) = salvage(&image, &dir, 0);
    let lost = format!("the superblock of epoch {} is lost", newest.birth.epoch.0);
    assert!(text.contains(&lost) && text.contains(" 0 partial, 0 lost, "), "{text}");
    assert!(fs::read(dir.join("out/sub/inner")).unwrap() == pattern(10_000));
    assert!(dir.join("out/imported").exists());
    // A slot was requested explicitly.
    let slot = (newest.birth.epoch.0 - 1) % 16 * 2;
    let (text, _) = run(&format!("salvage -n -b {slot} IMG"), &image, &dir, 0);
    assert!(text.contains(&format!("slot {slot} was chosen")), "{text}");
    let (_, err) = run(&format!("salvage -n -b {} IMG", newest.slot), &image, &dir, 3);
    assert!(err.contains("choose another"), "{err}");
}

/// If the newest superblock and the space map are lost, an older checkpoint serves, and the report says so.
#[test]
fn an_older_checkpoint_serves_and_is_said() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    run("import -q IMG DIR/file /imported", &image, &dir, 0);
    let mut bytes = fs::read(&image).unwrap();
    let (_, newest) = superblock(&bytes);
    for slot in [newest.slot & !1, newest.slot | 1] {
        let at = slot_at(&bytes, slot);
        bytes[at + 100] ^= 1;
    }
    let map = newest.map.start().byte() as usize;
    bytes[map..map + 2 * 4096].fill(0);
    fs::write(&image, &bytes).unwrap();
    let (text, _) = salvage(&image, &dir, 3);
    let older = format!("the older one of epoch {}\n", newest.birth.epoch.0 - 1);
    assert!(text.contains("the newest checkpoint is lost") && text.contains(&older), "{text}");
    // The existing files are complete.
    assert!(text.contains(" 0 partial, 0 lost, "), "{text}");
    assert!(fs::read(dir.join("out/sub/inner")).unwrap() == pattern(10_000));
}

#[test]
fn without_any_superblock_there_may_be_a_way() {
    for way in [true, false] {
        let (_guard, dir) = scratch();
        let (image, _) = damaged(&dir, |bytes| {
            let map = superblock(bytes).1.map.start().byte() as usize;
            for slot in 0..32 {
                let at = slot_at(bytes, slot);
                bytes[at..at + 4096].fill(0);
            }
            if !way {
                bytes[map..map + 2 * 4096].fill(0);
            }
        });
        if way {
            let (text, _) = salvage(&image, &dir, 0);
            assert!(text.contains(" 0 partial, 0 lost, "), "{text}");
            assert!(fs::read(dir.join("out/sub/inner")).unwrap() == pattern(10_000));
            continue;
        }
        let (out, err) = run("salvage IMG DIR/out", &image, &dir, 3);
        assert!(out.is_empty() && err.contains("no superblock slot verifies"), "{err}");
        assert!(err.contains("cannot find the trees") && !dir.join("out").exists(), "{err}");
    }
}

#[test]
fn of_an_image_without_its_end_the_rest_comes_out() {
    for (parts, identity) in [(1, false), (1, true), (2, false)] {
        let (_guard, dir) = scratch();
        let (image, before) = damaged(&dir, |bytes| {
            if identity {
                let (_, at) =
                    structures(bytes).into_iter().find(|(code, _)| *code == "I01").unwrap();
                bytes[at..at + 4096].fill(0);
            }
            bytes.truncate(bytes.len() / 4 * (4 - parts));
        });
        // All used blocks are at the beginning.
        let (text, entries) = salvage(&image, &dir, 0);
        assert!(
            text.contains("it is shorter than it says: expected 2097152 bytes, found"),
            "{text}"
        );
        let gone = entries.iter().find(|entry| entry["kind"] == "unreadable").unwrap();
        assert_eq!(gone["last"], (2 << 20) - 1);
        assert_same(&before, &dir.join("out"));
    }
}

#[test]
fn what_the_end_held_is_told() {
    let (_guard, dir) = scratch();
    let image = dir.join("t.img");
    fs::create_dir(dir.join("tree")).unwrap();
    for number in 0..12 {
        fs::write(dir.join(format!("tree/file-{number:02}")), pattern((512 << 10) + number))
            .unwrap();
    }
    run("mkfs -q -d DIR/tree IMG 9M", &image, &dir, 0);
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.set_len((9 << 20) / 2).unwrap();
    age(&image);
    let (text, entries) = salvage(&image, &dir, 3);
    // Their names are lost. Their contents are the original ones, or reported as missing.
    let mut files = 0;
    for entry in entries.iter().filter(|entry| entry["missing"].is_array()) {
        let path = entry["path"].as_str().unwrap().trim_start_matches('/');
        let found = fs::read(dir.join("out").join(path)).unwrap();
        let mut expected = pattern(found.len());
        for range in entry["missing"].as_array().unwrap() {
            let [first, last] = ["first", "last"].map(|end| range[end].as_u64().unwrap() as usize);
            expected[first..=last].fill(0);
        }
        // The size is known only in blocks.
        let len = expected.iter().zip(&found).take_while(|(a, b)| a == b).count();
        assert!(found[len..].iter().all(|byte| *byte == 0), "{path} from {len} on: {text}");
        assert!(found.len() - len < 4096, "{path} from {len} on: {text}");
        files += 1;
    }
    assert!(files > 5 && entries.iter().any(|entry| entry["kind"] == "lost"), "{text}");
}

#[test]
fn what_is_there_is_never_written_over() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    fs::write(dir.join("folder/mine"), "mine").unwrap();
    for dest in ["folder", "file", "small.img"] {
        let (out, err) = run(&format!("salvage IMG DIR/{dest}"), &image, &dir, 1);
        assert!(out.is_empty() && err.contains(dest) && err.contains("exists already"), "{err}");
        assert!(!err.contains("incomplete"), "{err}");
    }
    assert_eq!(fs::read(dir.join("folder/mine")).unwrap(), b"mine");
    assert_eq!(names(&dir), ["file", "folder", "small.img"]);
    let (_, err) = run("salvage --only /none IMG DIR/out", &image, &dir, 1);
    assert!(err.contains("/none: no such file") && !dir.join("out").exists(), "{err}");
    let (_, err) = run("salvage IMG", &image, &dir, 2);
    assert!(err.contains("DEST"), "{err}");
    fs::create_dir(dir.join("empty")).unwrap();
    let (_, err) = run("salvage --only /hello IMG DIR/empty", &image, &dir, 1);
    assert!(err.contains("exists already") && !err.contains("incomplete"), "{err}");
    run("salvage IMG DIR/empty", &image, &dir, 0);
}

#[test]
fn it_shows_what_a_plan_would_make() {
    let (_guard, dir) = scratch();
    let (image, before) = damaged(&dir, |bytes| {
        let (_, page) = structures(bytes).into_iter().find(|(code, _)| *code == "T01").unwrap();
        bytes[page] ^= 1;
    });
    run("fsck -fy --overlay DIR/plan IMG", &image, &dir, 1);
    run("salvage -n IMG", &image, &dir, 3);
    run("salvage --overlay DIR/plan IMG DIR/out", &image, &dir, 0);
    assert_same(&before, &dir.join("out"));
}
