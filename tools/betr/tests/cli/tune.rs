//! `betr tune` changes the label and the UUID of an image, and nothing else.

use std::fs;
use std::path::Path;

use betr_core::format::IDENTITY_AT;

use crate::support::*;

const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";

fn probed(image: &Path, tag: &str) -> String {
    run(&format!("probe -o value -s {tag} IMG"), image, image, 0).0.trim_end().to_owned()
}

#[test]
fn a_new_label_and_a_new_uuid() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let before = fs::read(&image).unwrap();
    let (out, err) = run(&format!("tune IMG -L renamed -U {UUID}"), &image, &dir, 0);
    assert_eq!((out, err), (format!("Label: renamed\n UUID: {UUID}\n"), String::new()));
    assert_eq!((probed(&image, "LABEL"), probed(&image, "UUID")), ("renamed".into(), UUID.into()));
    let after = fs::read(&image).unwrap();
    let at = IDENTITY_AT as usize;
    assert!(before[..at] == after[..at] && before[at + 512..] == after[at + 512..]);
    // The volume id stays, so everything verifies.
    assert_eq!(before[at + 40..at + 56], after[at + 40..at + 56]);
    let (out, _) = run("fsck -fn --data IMG", &image, &dir, 0);
    assert!(out.starts_with("renamed: clean"), "{out}");
    assert_eq!(run("cat IMG /hello", &image, &dir, 0).0, "hello\n");
}

#[test]
fn each_alone_leaves_the_other() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    run(&format!("tune -q IMG -U {UUID}"), &image, &dir, 0);
    run(&format!("tune -q IMG -L {}", "x".repeat(64)), &image, &dir, 0);
    assert_eq!((probed(&image, "LABEL"), probed(&image, "UUID")), ("x".repeat(64), UUID.into()));
    run("tune -q IMG -U random", &image, &dir, 0);
    let random = probed(&image, "UUID");
    assert!(random.len() == 36 && random != UUID, "{random}");
    run("tune -q IMG -U clear", &image, &dir, 0);
    assert_eq!(probed(&image, "UUID"), "");
    betr(["tune", "-q", "-L", ""]).arg(&image).assert().success().stdout("").stderr("");
    assert_eq!(probed(&image, "LABEL"), "");
}

#[test]
fn nothing_is_written_where_nothing_changes() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    run("tune -q IMG -L same", &image, &dir, 0);
    age(&image);
    let before = fingerprint(&image);
    let (out, _) = run("tune --json IMG -L same", &image, &dir, 0);
    assert!(out.contains("\"changed\": false") && out.contains("\"label\": \"same\""), "{out}");
    assert!(fingerprint(&image) == before);
}

#[test]
fn what_mkfs_refuses_it_refuses_too() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let before = fingerprint(&image);
    let (long, accents) = ("x".repeat(65), "é".repeat(33));
    for (option, value, said) in [
        ("-L", &*long, "at most 64 bytes"),
        ("-L", &accents, "at most 64 bytes"),
        ("-U", "nonsense", "neither a UUID"),
        ("-U", "", "neither a UUID"),
    ] {
        for (tool, code) in [("tune", 2), ("mkfs", 1)] {
            let output = betr([tool, option, value]).arg(&image).output().unwrap();
            let (out, err) = text(&output);
            assert_eq!((output.status.code(), &*out), (Some(code), ""), "{tool} {option}: {err}");
            assert!(err.contains(said) && err.contains(option), "{tool} {option}: {err}");
        }
    }
    run("tune IMG", &image, &dir, 2);
    assert!(fingerprint(&image) == before);
}

#[test]
fn a_label_reaches_no_terminal_as_it_is() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let assert = betr(["tune", "-L", "a\u{1b}[2Jb"]).arg(&image).assert().success();
    assert.stdout("Label: a\\x1b[2Jb\n UUID: ".to_owned() + &probed(&image, "UUID") + "\n");
}
