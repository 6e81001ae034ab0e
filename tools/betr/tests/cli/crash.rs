//! `betr dev crash`: the table, a minimised failure, and the options.

use std::fs;

use predicates::prelude::*;
use serde_json::Value;

use crate::support::*;

/// Runs the explorer with few states, in a directory of its own.
fn crash(options: &str, code: i32) -> (String, String) {
    let (_guard, dir) = scratch();
    run(&format!("dev crash {options}"), &dir, &dir, code)
}

#[test]
fn workloads_are_listed_and_printed() {
    let (out, err) = crash("--list", 0);
    assert_eq!(err, "");
    let names: Vec<&str> = out.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.len() >= 10 && names.contains(&"large") && names.contains(&"repeat"), "{out}");
    let (out, _) = crash("--list --json", 0);
    let value: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(value["schema"], "betr.dev.crash.workloads");
    assert_eq!(value["workloads"][0]["name"], names[0]);
    let (out, _) = crash("--print --workload append --seed 3", 0);
    assert!(out.starts_with("# append, seed 3\ncreate /a\n"), "{out}");
    assert_eq!(crash("--print --workload append --seed 3", 0).0, out);
}

#[test]
fn a_sound_exploration_is_a_table_and_the_same_every_time() {
    let line = "--workload small --workload links --states 60";
    let (out, err) = crash(line, 0);
    assert_eq!(err, "");
    assert!(out.starts_with("workload "), "{out}");
    for name in ["\nsmall ", "\nlinks ", "\nall ", " × recovery: group replayed\n"] {
        assert!(out.contains(name), "{name}: {out}");
    }
    assert_eq!(crash(line, 0).0, out);
    let (out, _) = crash(&format!("{line} --json"), 0);
    let value: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&value["schema"], &value["sound"]), (&"betr.dev.crash".into(), &true.into()));
    assert!(value["workloads"][1]["counts"]["distinct"].as_u64().unwrap() >= 30);
}

#[test]
fn a_failure_is_small_can_be_seen_again_and_kept() {
    let (_guard, dir) = scratch();
    let (image, script) = (dir.join("failed.img"), dir.join("steps"));
    let line = "dev crash --workload append --states 1000 --flaw sync-unflushed";
    let (out, _) = run(&format!("{line} --keep IMG"), &image, &dir, 1);
    assert!(out.contains("workload append, seed 1, fails: "), "{out}");
    assert!(out.contains("power cut after event ") && out.contains(": lost\n"), "{out}");
    let (_, steps) = out.split_once("--seed 1:\n").unwrap();
    let (steps, last) = steps.split_once("the image is in ").unwrap();
    assert!(last.contains("failed.img") && steps.lines().count() < 12, "{out}");
    // Acknowledged changes are lost, but the file system is consistent.
    run("fsck -fn IMG", &image, &dir, 0);

    fs::write(&script, steps).unwrap();
    let (out, _) = run(&format!("{line} --json --script DIR/steps"), &image, &dir, 1);
    let value: Value = serde_json::from_str(&out).unwrap();
    let again: Vec<&str> =
        value["failure"]["script"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(again, steps.lines().collect::<Vec<_>>());
    assert_eq!(value["sound"], false);
    // Without the mutation the same steps pass.
    run("dev crash --script DIR/steps --workload append --states 200", &image, &dir, 0);

    let before = fingerprint(&image);
    let (_, err) = run(&format!("{line} --keep IMG"), &image, &dir, 1);
    assert!(err.contains("failed.img exists already"), "{err}");
    assert!(fingerprint(&image) == before);
}

#[test]
fn what_cannot_be_explored_is_said() {
    let (_guard, dir) = scratch();
    let (_, err) = run("dev crash --workload nothing", &dir, &dir, 2);
    assert!(err.contains("there is no workload 'nothing', only mix, "), "{err}");
    let (_, err) = run("dev crash --script DIR/missing", &dir, &dir, 1);
    assert!(err.contains("missing: "), "{err}");
    fs::write(dir.join("steps"), "# a comment\ncreate /f\nfly /f\n").unwrap();
    let (_, err) = run("dev crash --script DIR/steps", &dir, &dir, 1);
    assert!(err.contains("steps: line 3: 'fly' is no step"), "{err}");
    fs::write(dir.join("steps"), "").unwrap();
    run("dev crash --script DIR/steps --states 5", &dir, &dir, 0);
    for option in ["--states", "--seed x", "--flaw none", "--list --keep x", "x.img"] {
        let words = format!("dev crash {option}");
        betr(words.split(' '))
            .assert()
            .code(2)
            .stdout("")
            .stderr(predicate::str::contains("error"));
    }
    let help = betr(["dev", "crash", "--help"]).assert().success().stderr("");
    help.stdout(predicate::str::contains("--script <FILE>"));
}
