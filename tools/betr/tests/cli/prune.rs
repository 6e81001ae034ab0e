//! `betr snapshot prune`: the rules that keep snapshots, and that the others are dropped.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::*;

/// 2024-01-01, a Monday, at 06:00:00 UTC.
const MONDAY: i64 = 1_704_088_800;
const HOUR: i64 = 3600;

/// An image with snapshots at the given numbers of hours after that Monday.
fn image_with(dir: &Path, snapshots: &[(&str, i64)]) -> PathBuf {
    let image = small_image(dir);
    for (name, hours) in snapshots {
        let mut create = betr(words(&format!("snapshot create IMG {name}"), &image, dir));
        create.env("SOURCE_DATE_EPOCH", (MONDAY + hours * HOUR).to_string()).assert().success();
    }
    image
}

fn listed(image: &Path) -> Vec<String> {
    let (out, _) = run("snapshot list --json IMG", image, image, 0);
    let list: Value = serde_json::from_str(&out).unwrap();
    let holds = list["snapshots"].as_array().unwrap();
    holds.iter().map(|hold| hold["name"].as_str().unwrap().to_owned()).collect()
}

const WEEK: [(&str, i64); 7] = [
    ("sun", -12),
    ("mon-1", 0),
    ("mon-2", 1),
    ("mon-3", 17),
    ("tue", 18),
    ("wed-1", 48),
    ("wed-2", 49),
];

#[test]
fn rules_say_what_is_kept() {
    let (_guard, dir) = scratch();
    let image = image_with(&dir, &WEEK);
    for (rules, kept) in [
        ("--keep-last 2", "wed-1 wed-2"),
        ("--keep-hourly 3", "tue wed-1 wed-2"),
        ("--keep-daily 3", "mon-3 tue wed-2"),
        ("--keep-daily 9", "sun mon-3 tue wed-2"),
        ("--keep-weekly 2", "sun wed-2"),
        ("--keep-monthly 1", "wed-2"),
        ("--keep-yearly 2", "sun wed-2"),
        ("--keep-within 1d", "wed-1 wed-2"),
        ("--keep-within 1d8h --keep-weekly 2 --keep-last 0", "sun tue wed-1 wed-2"),
        ("--keep-within 6m", "sun mon-1 mon-2 mon-3 tue wed-1 wed-2"),
    ] {
        let line = format!("snapshot prune --json -n IMG {rules}");
        let (out, _) = run(&line, &image, &dir, 0);
        let told: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(
            (&told["schema"], &told["dry_run"]),
            (&"betr.snapshot.prune".into(), &true.into())
        );
        let rows = told["snapshots"].as_array().unwrap();
        let named = |action: &str| -> Vec<&str> {
            let rows = rows.iter().filter(|row| row["action"] == action);
            rows.map(|row| row["name"].as_str().unwrap()).collect()
        };
        assert_eq!(named("keep").join(" "), kept, "{rules}");
        assert_eq!(told["kept"], named("keep").len(), "{rules}");
        assert_eq!(told["dropped"], named("drop").len(), "{rules}");
        assert_eq!(rows.len(), WEEK.len());
        for row in rows {
            let has_reasons = !row["reasons"].as_array().unwrap().is_empty();
            assert_eq!(has_reasons, row["action"] == "keep", "{row}");
        }
    }
}

#[test]
fn what_no_rule_keeps_is_dropped() {
    let (_guard, dir) = scratch();
    let image = image_with(&dir, &WEEK);
    run("snapshot keep IMG mon-1", &image, &dir, 0);
    let rules = "--keep-daily 2 --keep-last 1";
    age(&image);
    let before = fingerprint(&image);
    let (plan, _) = run(&format!("snapshot prune --dry-run IMG {rules}"), &image, &dir, 0);
    assert!(plan.ends_with("small.img: 3 would be kept, 4 dropped\n"), "{plan}");
    assert!(fingerprint(&image) == before, "the image has changed");
    run(&format!("snapshot prune -qn IMG {rules}"), &image, &dir, 0);

    let (out, _) = run(&format!("snapshot prune IMG {rules}"), &image, &dir, 0);
    let last = out.lines().last().unwrap();
    assert!(last.contains("small.img: 3 kept, 4 dropped, ") && last.ends_with(" free"), "{out}");
    let rows = |out: &str| out.lines().take(WEEK.len()).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(rows(&plan), rows(&out));
    let row = |at: usize| rows(&out)[at].split("  ").map(str::trim).collect::<Vec<_>>().join("|");
    assert!(row(0).starts_with("drop|2023-12-31T18:00:00.000000000Z|"), "{out}");
    assert!(row(0).ends_with("|sun"), "{out}");
    assert!(row(1).starts_with("keep|") && row(1).ends_with("|mon-1|kept by its user"), "{out}");
    assert!(row(4).ends_with("|tue|daily"), "{out}");
    assert!(row(6).ends_with("|wed-2|last, daily"), "{out}");
    assert_eq!(listed(&image), ["mon-1", "tue", "wed-2"]);
    run("fsck -fn --data IMG", &image, &dir, 0);

    // If there is nothing to drop, nothing is written.
    age(&image);
    let before = fingerprint(&image);
    run(&format!("snapshot prune IMG {rules}"), &image, &dir, 0);
    assert!(fingerprint(&image) == before, "the image has changed");
}

#[test]
fn a_prefix_leaves_other_snapshots_alone() {
    let (_guard, dir) = scratch();
    let all = [("auto-1", 0), ("hand", 1), ("auto-2", 2), ("automatic", 3), ("auto-3", 4)];
    let image = image_with(&dir, &all);
    let line = "snapshot prune IMG --prefix auto- --keep-daily 1 --keep-last 2";
    let (out, _) = run(line, &image, &dir, 0);
    assert!(!out.contains("hand") && !out.contains("automatic"), "{out}");
    assert!(out.contains("2 kept, 1 dropped"), "{out}");
    assert_eq!(listed(&image), ["hand", "auto-2", "automatic", "auto-3"]);
    let (out, _) = run("snapshot prune IMG --prefix none --keep-last 1", &image, &dir, 0);
    assert!(out.ends_with("small.img: 0 kept, 0 dropped, 0 B free\n"), "{out}");
    assert_eq!(listed(&image).len(), 4);
}

#[test]
fn a_clock_that_went_back_confuses_nothing() {
    let (_guard, dir) = scratch();
    let all = [("old", 0), ("future", 200_000), ("back-1", 24), ("back-2", 24), ("back-0", 1)];
    let image = image_with(&dir, &all);
    // The order is that of the epochs, and days are those of the wall time.
    run("snapshot prune -q IMG --keep-daily 3", &image, &dir, 0);
    assert_eq!(listed(&image), ["future", "back-2", "back-0"]);
    let mut prune = betr(words("snapshot prune IMG --keep-within 20h", &image, &dir));
    prune.env("SOURCE_DATE_EPOCH", (MONDAY + 30 * HOUR).to_string()).assert().success();
    assert_eq!(listed(&image), ["future", "back-2"]);
}

#[test]
fn without_a_rule_nothing_is_dropped() {
    let (_guard, dir) = scratch();
    let image = image_with(&dir, &[("one", 0)]);
    let before = fs::read(&image).unwrap();
    for (line, expected) in [
        ("snapshot prune IMG", "at least one --keep option above 0"),
        ("snapshot prune IMG --prefix o", "at least one --keep option above 0"),
        ("snapshot prune IMG --keep-last 0 --keep-daily 0", "at least one --keep option above 0"),
        ("snapshot prune IMG --keep-last x", "--keep-last"),
        ("snapshot prune IMG --keep-within 0d", "expected a length of time"),
        ("snapshot prune IMG --keep-within 7", "expected a length of time"),
    ] {
        let (out, err) = run(line, &image, &dir, 2);
        assert!(out.is_empty() && err.contains(expected), "{line}: {err}");
    }
    assert!(fs::read(&image).unwrap() == before, "the image has changed");
}
