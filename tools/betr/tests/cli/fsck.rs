//! `betr fsck`: modes, exit codes, findings in damaged images, repairs, progress.

use std::fs;
use std::path::Path;
use std::process::Command;

use betr_core::format::{IDENTITY_AT, Magic, PageBody, Superblock, TablePage};
use betr_core::ids::{BLOCK_SIZE, BlockNr};
use betr_core::space::slot_block;
use serde_json::Value;

use crate::support::*;

/// The byte offset of a slot of the superblock ring.
pub(crate) fn slot_at(bytes: &[u8], slot: u32) -> usize {
    let blocks = (bytes.len() / BLOCK_SIZE) as u64;
    slot_block([BlockNr(32), BlockNr(blocks - 16)], slot).byte() as usize
}

/// The block at a byte offset.
pub(crate) fn block(bytes: &[u8], at: usize) -> &[u8] {
    &bytes[at..at + BLOCK_SIZE]
}

/// The superblock in use, and its byte offset.
pub(crate) fn superblock(bytes: &[u8]) -> (usize, Superblock) {
    let slots = (0..32).map(|slot| slot_at(bytes, slot));
    let valid = slots.filter_map(|at| Some((at, Superblock::decode(block(bytes, at), None).ok()?)));
    valid.max_by_key(|(_, superblock)| superblock.birth.epoch).unwrap()
}

/// The byte offsets of the structures of an image, each with the code of the finding when it does not verify.
pub(crate) fn structures(bytes: &[u8]) -> Vec<(&'static str, usize)> {
    let (_, superblock) = superblock(bytes);
    // The first slot of its pair: a power cut may tear the second.
    let slot = slot_at(bytes, superblock.slot & !1);
    let table = superblock.table.page.block.byte() as usize;
    let (_, page) = TablePage::decode(block(bytes, table), None).unwrap();
    let PageBody::Entries(entries) = page.body else { panic!("a small image has one page") };
    let map = superblock.map.start().byte() as usize;
    let maps = [map, map + BLOCK_SIZE];
    let map = maps.into_iter().find(|at| Magic::of(block(bytes, *at)) == Some(Magic::SpaceMap));
    let mut all =
        vec![("S01", slot), ("I01", IDENTITY_AT as usize), ("M01", map.unwrap()), ("T01", table)];
    all.extend(entries.iter().flatten().map(|e| ("N01", e.extent.start.byte() as usize)));
    assert!(all.len() >= 6, "both trees have a node");
    all
}

/// Flips one bit of the image.
fn flip(image: &Path, sound: &[u8], byte: usize, bit: u8) {
    let mut bytes = sound.to_vec();
    bytes[byte] ^= 1 << bit;
    fs::write(image, &bytes).unwrap();
}

#[test]
fn a_clean_image_gets_one_line() {
    let (_guard, dir) = scratch();
    let image = dir.join("t.img");
    run("mkfs -q -L data IMG 2M", &image, &dir, 0);
    for line in ["fsck -n IMG", "fsck -p IMG", "fsck -y IMG", "fsck -fn IMG", "fsck -fp IMG"] {
        let (out, err) = run(line, &image, &dir, 0);
        assert!(out.starts_with("data: clean, ") && out.lines().count() == 1, "betr {line}: {out}");
        assert_eq!(err, "");
    }
    let (out, _) = run("fsck -fnv IMG", &image, &dir, 0);
    assert!(out.contains("inodes") && out.lines().count() > 3, "{out}");
    // Without a label the output names the image.
    let (out, _) = run("fsck -n IMG", &small_image(&dir), &dir, 0);
    assert!(out.contains("small.img: clean, "), "{out}");
}

#[test]
fn modes_exclude_each_other() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    for line in ["fsck -n -p IMG", "fsck -n -y IMG", "fsck -p -y IMG", "fsck -nfa IMG"] {
        let (out, err) = run(line, &image, &dir, 16);
        assert!(out.is_empty() && err.contains("cannot be used with"), "betr {line}: {err}");
    }
    for line in ["fsck -n -C nonsense IMG", "fsck -n -C 77 IMG", "fsck -n -b x IMG"] {
        run(line, &image, &dir, 16);
    }
    run("fsck -n -C -3 IMG", &image, &dir, 0);
}

/// Each kind of problem is a question; after the answer no the image is unchanged.
#[test]
fn on_a_terminal_it_asks() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let sound = fs::read(&image).unwrap();
    let table = structures(&sound).into_iter().find(|(name, _)| *name == "T01").unwrap().1;
    flip(&image, &sound, table + 100, 0);
    let damaged = fs::read(&image).unwrap();
    let line = format!("fsck -f {}", image.display());
    let Some((code, out)) = on_terminal(&line, b"n\n", &dir) else { return };
    assert!(code == 4 && out.contains("Repair? [y]es, [n]o, [a]ll:"), "{out}");
    assert!(out.contains("T01: table page does not verify (1 x)"), "{out}");
    assert!(out.contains("Nothing was written.") && !out.contains("repaired"), "{out}");
    assert!(fs::read(&image).unwrap() == damaged);
    for keys in ["y\ny\ny\ny\ny\n", "a\n"] {
        fs::write(&image, &damaged).unwrap();
        let (code, out) = on_terminal(&line, keys.as_bytes(), &dir).unwrap();
        assert!(code == 1 && out.contains("repaired"), "{out}");
        run("fsck -fn --data IMG", &image, &dir, 0);
    }
    // There is nothing to ask.
    assert_eq!(on_terminal(&line, b"", &dir).unwrap().0, 0);
    assert_eq!(on_terminal(&format!("fsck {}-not", image.display()), b"", &dir).unwrap().0, 8);
}

/// Without a terminal fsck only checks.
#[test]
fn without_a_terminal_nothing_is_asked() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let (out, err) = run("fsck IMG", &image, &dir, 0);
    assert!(out.contains("clean") && err.is_empty(), "{out}{err}");
    let sound = fs::read(&image).unwrap();
    let table = structures(&sound).into_iter().find(|(name, _)| *name == "T01").unwrap().1;
    flip(&image, &sound, table + 100, 0);
    let (out, err) = run("fsck -f IMG", &image, &dir, 4);
    assert!(out.contains("T01") && out.contains("DAMAGED, files not looked at"), "{out}");
    assert!(err.contains("no terminal to ask on") && err.contains("-p or -y"), "{err}");
    let (_, err) = run("fsck no-such-image", &image, &dir, 8);
    assert!(err.contains("no-such-image"), "{err}");
}

#[test]
fn little_memory_finds_the_same_and_too_little_is_refused() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let sound = fs::read(&image).unwrap();
    for (_, start) in structures(&sound) {
        flip(&image, &sound, start + 97, 5);
        let much = run("fsck -fn --json IMG", &image, &dir, 4);
        assert_eq!(run("fsck -fn --json --max-mem 5M IMG", &image, &dir, 4), much);
    }
    fs::write(&image, &sound).unwrap();
    let (out, err) = run("fsck -fn --max-mem 1M IMG", &image, &dir, 8);
    assert_eq!(out, "");
    assert!(err.contains("--max-mem 1 MiB: checking") && err.contains("for bitmaps"), "{err}");
}

#[test]
fn a_flipped_bit_is_found_in_every_structure() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let sound = fs::read(&image).unwrap();
    for (code, start) in structures(&sound) {
        // Bits in the magic, the hash, the volume id, the epoch, and the contents.
        for (offset, bit) in [(0, 0), (7, 1), (20, 7), (45, 3), (56, 4), (76, 0), (97, 5)] {
            flip(&image, &sound, start + offset, bit);
            age(&image);
            let before = fingerprint(&image);
            let (out, err) = run("fsck -fn IMG", &image, &dir, 4);
            let place = format!("{code}, byte {offset}: {out}{err}");
            assert!(out.contains(&format!(": {code}: ")), "{place}");
            assert!(out.contains(": DAMAGED, "), "{place}");
            assert!(fingerprint(&image) == before, "-n wrote: {place}");
        }
    }
}

/// A power cut may leave a second slot that does not verify.
#[test]
fn what_a_power_cut_leaves_is_no_damage() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let sound = fs::read(&image).unwrap();
    let (slot, _) = superblock(&sound);
    let mut torn = sound.clone();
    torn[slot..slot + 512].fill(0x5a);
    fs::write(&image, &torn).unwrap();
    let (out, _) = run("fsck -fn IMG", &image, &dir, 0);
    assert!(out.contains(": S04: ") && out.contains(": clean, "), "{out}");
    let (out, _) = run("fsck -fp IMG", &image, &dir, 0);
    assert!(out.contains(", 1 slots written afresh"), "{out}");
    let (out, _) = run("fsck -fn IMG", &image, &dir, 0);
    assert!(!out.contains(": S04: "), "{out}");
}

#[test]
fn damaged_trees_are_repaired_by_who_says_so() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let sound = fs::read(&image).unwrap();
    for (code, start) in structures(&sound).into_iter().filter(|(code, _)| "N01 T01".contains(code))
    {
        flip(&image, &sound, start + 100, 2);
        let before = fs::read(&image).unwrap();
        let (out, err) = run("fsck -fp IMG", &image, &dir, 4);
        assert!(out.contains(code) && err.contains("takes -y; nothing was written"), "{out}{err}");
        assert!(fs::read(&image).unwrap() == before, "fsck -p wrote");

        let (out, err) = run("fsck -fy --undo DIR/undo IMG", &image, &dir, 1);
        assert!(out.contains(code) && err.is_empty(), "{out}{err}");
        let (out, _) = run("fsck -fn --data IMG", &image, &dir, 0);
        assert!(out.contains(": clean, "), "{code}: {out}");
        run("ls -R IMG", &image, &dir, 0);
        run("mkdir IMG /new", &image, &dir, 0);
        if code == "T01" {
            // The repair finds the nodes again, and loses nothing.
            run("export IMG DIR/whole", &image, &dir, 0);
            assert!(fs::read(dir.join("whole/sub/inner")).unwrap() == pattern(10_000));
        }
        fs::write(&image, &before).unwrap();
        run("fsck -fy --overlay DIR/plan IMG", &image, &dir, 1);
        let (out, _) = run("fsck -fn --overlay DIR/plan IMG", &image, &dir, 0);
        assert!(out.contains(": clean, ") && fs::read(&image).unwrap() == before, "{out}");
        run("fsck --apply DIR/plan IMG", &image, &dir, 1);
        run("fsck -fn IMG", &image, &dir, 0);
        fs::remove_file(dir.join("plan")).unwrap();
        fs::remove_file(dir.join("undo")).unwrap();

        // The repair is undone, to the last byte.
        fs::write(&image, &before).unwrap();
        run("fsck -fy -z DIR/undo IMG", &image, &dir, 1);
        run("undo IMG DIR/undo", &image, &dir, 0);
        assert!(fs::read(&image).unwrap() == before);
        fs::remove_file(dir.join("undo")).unwrap();
    }
}

#[test]
fn a_superblock_slot_that_is_garbage_is_repaired() {
    for line in ["fsck -p IMG", "fsck -a IMG", "fsck -y IMG", "fsck -fp IMG", "fsck -y --json IMG"]
    {
        let (_guard, dir) = scratch();
        let image = small_image(&dir);
        run("export IMG DIR/before", &image, &dir, 0);
        let mut bytes = fs::read(&image).unwrap();
        let at = slot_at(&bytes, 9);
        assert!(block(&bytes, at).iter().all(|byte| *byte == 0), "slot 9 is not in use");
        bytes[at..at + BLOCK_SIZE].copy_from_slice(&pattern(BLOCK_SIZE));
        fs::write(&image, &bytes).unwrap();

        let (out, _) = run("fsck -fn IMG", &image, &dir, 4);
        assert!(out.contains(": S01: ") && out.contains("slot 9"), "{out}");
        assert!(fs::read(&image).unwrap() == bytes);
        run("ls IMG", &image, &dir, 0);

        let (out, err) = run(line, &image, &dir, 1);
        assert!(out.contains("S01"), "betr {line}: {out}{err}");
        let (out, _) = run("fsck -fn IMG", &image, &dir, 0);
        assert!(out.contains(": clean, ") && out.lines().count() == 1, "{out}");
        let repaired = fs::read(&image).unwrap();
        assert!(block(&repaired, at).iter().all(|byte| *byte == 0));
        run("export IMG DIR/after", &image, &dir, 0);
        crate::tree::assert_same(&dir.join("before"), &dir.join("after"));
    }
}

#[test]
fn a_lost_newest_checkpoint_is_not_hidden() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    run("import IMG DIR/file /imported", &image, &dir, 0);
    let mut bytes = fs::read(&image).unwrap();
    let (_, newest) = superblock(&bytes);
    let pair = [newest.slot & !1, newest.slot | 1].map(|slot| slot_at(&bytes, slot));

    // If one slot of the pair is corrupt, the other one serves, and the repair copies it.
    flip(&image, &bytes, pair[0] + 100, 0);
    run("cat IMG /imported", &image, &dir, 0);
    run("fsck -fn IMG", &image, &dir, 4);
    run("fsck -p IMG", &image, &dir, 1);
    run("cat IMG /imported", &image, &dir, 0);

    // Without both, no tool continues from the previous checkpoint unless requested.
    pair.iter().for_each(|at| bytes[at + 100] ^= 1);
    fs::write(&image, &bytes).unwrap();
    for line in ["ls IMG", "export IMG DIR/out"] {
        let (_, err) = run(line, &image, &dir, 3);
        assert!(err.contains("newest checkpoint is lost"), "betr {line}: {err:?}");
    }
    let (out, _) = run("fsck -p IMG", &image, &dir, 4);
    assert!(out.contains(": S05: "), "{out}");
    assert!(fs::read(&image).unwrap() == bytes);
    // Most fields of the superblock can be reconstructed.
    run("fsck -y IMG", &image, &dir, 1);
    run("fsck -fn IMG", &image, &dir, 0);
    run("cat IMG /imported", &image, &dir, 0);
    fs::write(&image, &bytes).unwrap();
    let older = (newest.birth.epoch.0 - 1) % 16 * 2;
    run(&format!("fsck -y -b {older} IMG"), &image, &dir, 1);
    run("fsck -fn IMG", &image, &dir, 0);
    run("cat IMG /hello", &image, &dir, 0);
    run("cat IMG /imported", &image, &dir, 1);
}

#[test]
fn contents_are_verified_when_that_is_asked_for() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let mut bytes = fs::read(&image).unwrap();
    let contents = &pattern(10_000)[..4096];
    let at = bytes.windows(4096).position(|window| window == contents).unwrap();
    bytes[at + 5] ^= 1;
    fs::write(&image, &bytes).unwrap();
    let (out, _) = run("fsck -n --data IMG", &image, &dir, 4);
    assert!(out.contains(": N06: "), "{out}");
    for line in ["cat IMG /sub/inner", "export IMG DIR/out"] {
        let (_, err) = run(line, &image, &dir, 3);
        assert!(err.contains("small.img") && err.contains("betr fsck"), "{err}");
    }
}

#[test]
fn progress_goes_to_the_descriptor_that_is_given() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let shell = |script: &str| {
        let output = Command::new("sh").args(["-c", script, BETR]).arg(&image).output().unwrap();
        assert!(output.status.success(), "{:?}", text(&output));
        text(&output).0
    };
    // Progress to a pipe; to a file; to a file that standard output goes to as well.
    let log = dir.join("log");
    let name = log.display();
    for script in [
        "\"$0\" fsck -fn -C 3 \"$1\" 3>&1 >/dev/null".to_owned(),
        format!("\"$0\" fsck -fn -C 3 \"$1\" 3>{name} >/dev/null; cat {name}"),
        format!("\"$0\" fsck -fn -C 1 \"$1\" >{name}; grep -v clean {name}"),
        format!("\"$0\" fsck -fn -C 2 \"$1\" 2>{name} >/dev/null; cat {name}"),
    ] {
        let out = shell(&script);
        let mut last = (1, 0);
        for line in out.lines() {
            let fields: Vec<&str> = line.splitn(4, ' ').collect();
            let [pass, done, total, device] = fields[..] else { panic!("{script}: {out}") };
            let [pass, done, total] = [pass, done, total].map(|n| n.parse::<u64>().unwrap());
            assert_eq!(Path::new(device), image);
            assert!(done <= total && (pass, done) >= last, "{script}: {out}");
            last = (pass, done);
        }
        assert!(out.starts_with("1 ") && last.0 > 1, "{script}: {out}");
    }
}

#[test]
fn codes_are_explained() {
    let (out, _) = run("fsck --explain S01", Path::new(""), Path::new(""), 0);
    insta::assert_snapshot!(out, @r"
    S01 (error): superblock slot does not verify
    A slot of the ring that no checkpoint was about to write holds neither zeros nor a superblock. The other slot of the same epoch serves, and repair copies it.
    Repair (-p, -y): The other slot of the same epoch is copied; where there is none the slot becomes empty.
    Rule: format/SPEC.md, section 4.2
    ");
    assert_eq!(run("fsck --explain s01", Path::new(""), Path::new(""), 0).0, out);
    let (_, err) = run("fsck --explain X99", Path::new(""), Path::new(""), 16);
    assert!(err.contains("X99") && err.contains("S01"), "{err}");
}

#[test]
fn json_says_what_the_text_says() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let json = |line: &str, code: i32| -> Value {
        serde_json::from_str(&run(line, &image, &dir, code).0).unwrap()
    };
    let clean = json("fsck -fn --json IMG", 0);
    assert_eq!((&clean["clean"], &clean["findings"]), (&true.into(), &Value::Array(vec![])));
    // The root, hello, link, sub and inner.
    assert_eq!((&clean["counts"]["inodes"], &clean["counts"]["blocks"]), (&5.into(), &512.into()));

    let sound = fs::read(&image).unwrap();
    let (_, node) = *structures(&sound).last().unwrap();
    flip(&image, &sound, node + 90, 0);
    let damaged = json("fsck -fn --json IMG", 4);
    assert_eq!(damaged["clean"], false);
    let finding = &damaged["findings"][0];
    assert_eq!((&finding["code"], &finding["severity"]), (&"N01".into(), &"error".into()));
    assert!(finding["place"].is_string() && finding["detail"].is_string());
}
