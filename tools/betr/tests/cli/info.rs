//! `betr info`: its output for every state of the log and the superblocks.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::*;

const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";

fn made(dir: &Path, options: &str) -> std::path::PathBuf {
    let image = dir.join("t.img");
    let line = format!("mkfs -q IMG 16M -U {UUID} --log-size 512K {options}");
    let command = betr(words(&line, &image, dir)).env("SOURCE_DATE_EPOCH", "1700000000").assert();
    command.success();
    image
}

fn json(image: &Path, code: i32) -> Value {
    serde_json::from_str(&run("info --json IMG", image, image, code).0).unwrap()
}

#[test]
fn a_new_image_in_full() {
    let (_guard, dir) = scratch();
    let image = made(&dir, "-L new --zone-size inf");
    let (out, err) = run("info IMG", &image, &dir, 0);
    let value = json(&image, 0);
    let hash = value["root_hash"].as_str().unwrap();
    let volume = value["volume_id"].as_str().unwrap();
    assert_eq!((hash.len(), volume.len(), &*err), (64, 32, ""));
    let expected = format!(
        "      Image: {}
      Label: new
       UUID: {UUID}
  Volume id: {volume}
    Version: 27
   Features: none
      State: clean: the log is empty
     Errors: none met
 Block size: 4096
     Blocks: 4096 (16 MiB)
       Used: 213 (852 KiB)
       Free: 3883 (15.2 MiB)
  Available: 3611 (14.1 MiB)
  Snapshots: none
      Nodes: 64 KiB
     Leaves: 64 KiB
  Basements: 4 KiB
     Fanout: {}
   Zones C0: 0 B
   Zones C1: no limit
      Epoch: 1
 Checkpoint: 2023-11-14T22:13:20.000000000Z
  Root hash: {hash}
Superblocks: slot 3 counts; 2 valid, 30 empty
   Log size: 512 KiB
  Log holds: 0 records in 0 groups, 0 B
    Log end: at b:0x40000
",
        image.display(),
        value["fanout"],
    );
    assert_eq!(out, expected);
    assert!(value["zone_max"].is_null(), "no limit");
    assert_eq!((&value["epoch"], &value["blocks"]), (&1.into(), &4096.into()));
    let sum = value["used_blocks"].as_u64().unwrap() + value["free_blocks"].as_u64().unwrap();
    assert_eq!((value["state"].as_str().unwrap(), sum), ("clean", 4096));
}

#[test]
fn a_log_that_waits_is_described_and_replayed_by_nobody() {
    let (_guard, dir) = scratch();
    let image = made(&dir, "");
    run("dev powercut IMG", &image, &dir, 0);
    age(&image);
    let before = fingerprint(&image);
    let value = json(&image, 0);
    assert_eq!(value["state"], "needs replay");
    assert_eq!(value["log"]["end"], "torn");
    let (records, waiting) = (&value["log"]["records"], &value["log"]["waiting_bytes"]);
    assert!(records.as_u64() > Some(40) && waiting.as_u64() > Some(8192), "{value}");
    let (out, _) = run("info IMG", &image, &dir, 0);
    assert!(out.contains("State: needs replay") && out.contains("Log end: torn at b:0x"), "{out}");
    assert!(fingerprint(&image) == before);
    run("fsck -p IMG", &image, &dir, 0);
    assert_eq!(json(&image, 0)["state"], "clean");
}

#[test]
fn a_damaged_log_and_damaged_slots_are_told() {
    let (_guard, dir) = scratch();
    let image = made(&dir, "");
    run("dev powercut IMG", &image, &dir, 0);
    let sound = fs::read(&image).unwrap();
    let value = json(&image, 0);
    // A byte of the first group: the groups after it prove that it was complete.
    let mut bytes = sound.clone();
    bytes[0x40000 + 200] ^= 1;
    fs::write(&image, &bytes).unwrap();
    assert_eq!(json(&image, 3)["state"], "damaged");
    let (out, _) = run("info IMG", &image, &dir, 3);
    assert!(out.contains("State: DAMAGED"), "{out}");
    // The second slot of the newest epoch.
    let mut bytes = sound.clone();
    let slot = value["superblocks"]["slot"].as_u64().unwrap() | 1;
    let at = bytes.len() - 16 * 4096 + 4096 * (slot as usize / 2);
    bytes[at + 100] ^= 1;
    fs::write(&image, &bytes).unwrap();
    assert_eq!(json(&image, 0)["superblocks"]["invalid"], serde_json::json!([slot]));
    let (out, _) = run("info IMG", &image, &dir, 0);
    assert!(out.contains(&format!("INVALID: [{slot}]")), "{out}");
    // No valid slot.
    let (first, second) = (32 * 4096, bytes.len() - 16 * 4096);
    bytes[first..first + 16 * 4096].fill(1);
    bytes[second..].fill(1);
    fs::write(&image, &bytes).unwrap();
    let (_, err) = run("info IMG", &image, &dir, 3);
    assert!(err.contains("no superblock slot verifies"), "{err}");
}

#[test]
fn a_label_reaches_no_terminal_as_it_is() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    betr(["tune", "-q", "-L", "a\u{1b}[2Jb\n"]).arg(&image).assert().success();
    let (out, _) = run("info IMG", &image, &dir, 0);
    assert!(out.contains("Label: a\\x1b[2Jb\\x0a\n"), "{out}");
    assert_eq!(json(&image, 0)["label"]["bytes"], "611b5b324a620a");
}
