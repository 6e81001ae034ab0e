//! The output and the repairs of fsck, problem by problem: a snapshot test for each code, on an image with only this
//! problem. And damage of a field by name.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use betr_core::check::{CATALOG, Repairable};
use serde_json::Value;

use crate::support::*;

/// Runs fsck in `dir`. Appends the command, its output and its exit code to the transcript.
fn fsck(options: &str, dir: &Path, transcript: &mut String) -> i32 {
    let output = betr(["fsck", options, "--data", "broken.img"]).current_dir(dir).output().unwrap();
    let (out, err) = text(&output);
    let code = output.status.code().unwrap();
    writeln!(transcript, "$ betr fsck {options} --data broken.img\n{out}{err}[{code}]\n").unwrap();
    code
}

#[test]
fn each_problem_is_told_and_repaired_as_the_table_says() {
    for problem in CATALOG {
        let (_guard, dir) = scratch();
        let image = dir.join("broken.img");
        let made = betr(["dev", "make-broken", problem.name]).arg(&image).output().unwrap();
        if made.status.code() != Some(0) {
            assert!(text(&made).1.contains("no image has problem"), "{}", problem.name);
            continue;
        }
        let bytes = fs::read(&image).unwrap();
        let mut transcript = String::new();
        let found = fsck("-fn", &dir, &mut transcript);
        assert!(fs::read(&image).unwrap() == bytes, "{}: -n wrote", problem.name);
        let preened = fsck("-fp", &dir, &mut transcript);
        if problem.repairable > Repairable::Safely {
            assert!(fs::read(&image).unwrap() == bytes, "{}: -p wrote", problem.name);
        }
        fs::write(&image, &bytes).unwrap();
        let repaired = fsck("-fy", &dir, &mut transcript);
        let again = fsck("-fn", &dir, &mut transcript);
        insta::assert_snapshot!(format!("broken_{}", problem.name), transcript);
        let expected = match problem.repairable {
            Repairable::Nothing => (0, 0, 0, 0),
            Repairable::Safely if found == 0 => (0, 0, 0, 0),
            Repairable::Safely => (4, 1, 1, 0),
            Repairable::WithLoss => (4, 4, 1, 0),
            Repairable::No => (4, 4, 4, 4),
        };
        assert_eq!((found, preened, repaired, again), expected, "{}: {transcript}", problem.name);
    }
}

#[test]
fn a_field_is_damaged_by_name() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let before = fs::read(&image).unwrap();
    let (out, _) = run("dev damage IMG", &image, &dir, 0);
    assert!(out.contains("identity") && out.contains("n:1/basement:0/value:"), "{out}");
    let (out, _) = run("dev damage IMG n:1", &image, &dir, 0);
    assert!(out.contains("  write sequence: "), "{out}");
    assert!(fs::read(&image).unwrap() == before);
    let (out, _) = run("dev damage --json IMG super 0x15c zero", &image, &dir, 1);
    assert!(out.is_empty());
    // Without `--seal` the hashes reveal the damage; with it they verify.
    let (out, _) = run("dev damage --json IMG n:1 0x50 add", &image, &dir, 0);
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&told["field"], &told["sealed"]), (&"write sequence".into(), &false.into()));
    let (out, _) = run("fsck -fn IMG", &image, &dir, 4);
    assert!(out.contains("N01"), "{out}");
    fs::write(&image, &before).unwrap();
    run("dev damage --seal IMG n:1 0x50 add", &image, &dir, 0);
    run("fsck -fn IMG", &image, &dir, 0);
    // Damage that changes nothing is an error, and so is a missing place.
    fs::write(&image, &before).unwrap();
    for line in [
        "dev damage --seal IMG n:1 0x8 ones",
        "dev damage IMG n:1 reserved zero",
        "dev damage IMG n:999 0x8 ones",
        "dev damage IMG n:1 nothing ones",
    ] {
        let (out, err) = run(line, &image, &dir, 1);
        assert!(out.is_empty() && err.starts_with("betr: "), "betr {line}: {err}");
    }
}
