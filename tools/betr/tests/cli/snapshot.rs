//! `betr snapshot`, and the output of other tools about snapshots.

use std::fs;

use crate::support::*;

#[test]
fn a_snapshot_shows_what_was_there_and_gives_its_room_back() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    fs::write(dir.join("data"), pattern(100_000)).unwrap();
    run("import IMG DIR/data /data", &image, &dir, 0);
    let before = run("ls -lR --json IMG", &image, &dir, 0).0;
    run("snapshot create IMG monday", &image, &dir, 0);
    run("rm -r IMG /data /sub", &image, &dir, 0);
    run("cp IMG DIR/data :/other", &image, &dir, 0);
    run("snapshot create -q IMG tuesday", &image, &dir, 0);
    run("rm IMG /other", &image, &dir, 0);
    run("fsck -fn --data IMG", &image, &dir, 0);

    let after = run("ls -lR --json IMG --as-of s:monday", &image, &dir, 0);
    assert_eq!(after, (before, String::new()));
    let (out, _) = run("ls IMG --as-of s:tuesday", &image, &dir, 0);
    assert_eq!(out, "hello\nlink\nother\n");
    run("export IMG --as-of s:monday /data DIR/back", &image, &dir, 0);
    assert!(fs::read(dir.join("back")).unwrap() == pattern(100_000));
    for what in ["tree", "space", "stats", "all", "zones", "table"] {
        let (out, err) = run(&format!("dump IMG --as-of s:monday {what}"), &image, &dir, 0);
        assert!(!out.is_empty() && err.is_empty(), "{what}: {err}");
    }
    let (out, _) = run("explain IMG --as-of s:monday /hello", &image, &dir, 0);
    assert!(out.contains("hello"), "{out}");
    run("diff IMG IMG --a-as-of s:monday --b-as-of s:monday", &image, &dir, 0);
    let (out, _) = run("diff IMG IMG --a-as-of s:monday --b-as-of s:tuesday", &image, &dir, 1);
    assert!(out.contains("/data") && out.contains("/other") && !out.contains("/hello"), "{out}");

    let (out, _) = run("snapshot list IMG", &image, &dir, 0);
    let names: Vec<&str> = out.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(names, ["monday", "tuesday"], "{out}");
    run("snapshot keep IMG monday", &image, &dir, 0);
    run("snapshot rename IMG tuesday wednesday", &image, &dir, 0);
    let (out, _) = run("snapshot list --json IMG", &image, &dir, 0);
    let list: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(list["snapshots"][0]["kept"], true);
    assert_eq!(list["snapshots"][1]["name"], "wednesday");
    run("snapshot release IMG monday", &image, &dir, 0);
    let (out, _) = run("snapshot show --json IMG monday", &image, &dir, 0);
    let told: serde_json::Value = serde_json::from_str(&out).unwrap();
    let freed = told["frees_bytes"].as_u64().unwrap();
    assert!(freed > 100_000, "{out}");
    let used = || {
        let (out, _) = run("dump --json IMG super", &image, &dir, 0);
        assert!(!out.is_empty());
        let (out, _) = run("fsck -fn --json IMG", &image, &dir, 0);
        let report: serde_json::Value = serde_json::from_str(&out).unwrap();
        report["counts"]["used_blocks"].as_u64().unwrap_or_else(|| panic!("{out}")) * 4096
    };
    let before = used();
    let (out, _) = run("snapshot drop IMG monday", &image, &dir, 0);
    assert!(out.contains("dropped 'monday'"), "{out}");
    assert_eq!(before - used(), freed);
    run("fsck -fn --data IMG", &image, &dir, 0);
    let (out, _) = run("ls IMG --as-of s:wednesday", &image, &dir, 0);
    assert_eq!(out, "hello\nlink\nother\n");
    run("snapshot drop IMG wednesday", &image, &dir, 0);
    assert_eq!(run("snapshot list IMG", &image, &dir, 0).0, "");
    run("fsck -fn --data IMG", &image, &dir, 0);
}

/// A file is removed from a full image, where there is no space to drop its leaves. The first drop of a snapshot makes
/// space, and leaves this work to later commands.
#[test]
fn a_drop_on_a_full_image_frees_what_show_said() {
    let (_guard, dir) = scratch();
    let image = dir.join("image");
    for (name, bytes) in [("old", 2_000_000), ("big", 1_000_000), ("fill", 50_000), ("tiny", 2000)]
    {
        fs::write(dir.join(name), pattern(bytes)).unwrap();
    }
    run("mkfs -q IMG 16M", &image, &dir, 0);
    run("import IMG DIR/old /old", &image, &dir, 0);
    run("snapshot create IMG first", &image, &dir, 0);
    run("rm IMG /old", &image, &dir, 0);
    run("import IMG DIR/big /big", &image, &dir, 0);
    run("snapshot create IMG second", &image, &dir, 0);
    for name in ["fill", "tiny"] {
        let import = |number: u32| {
            let mut import = betr(["import"]);
            import.arg(&image).arg(dir.join(name)).arg(format!("/{name}{number}"));
            import.output().unwrap().status.success()
        };
        let made = (0..).take_while(|number| import(*number)).count();
        assert!(made > 3, "{made} {name}");
    }
    run("rm IMG /big", &image, &dir, 0);
    let field = |line: &str, name: &str| {
        let (out, _) = run(line, &image, &dir, 0);
        let value: serde_json::Value = serde_json::from_str(&out).unwrap();
        value[name].as_u64().unwrap_or_else(|| panic!("{name} in {out}"))
    };
    for name in ["first", "second"] {
        let said = field(&format!("snapshot show --json IMG {name}"), "frees_bytes") / 4096;
        assert!(said > 10, "{name}: {said}");
        let before = field("info --json IMG", "used_blocks");
        run(&format!("snapshot drop IMG {name}"), &image, &dir, 0);
        assert_eq!(before - field("info --json IMG", "used_blocks"), said, "{name}");
        run("fsck -fn IMG", &image, &dir, 0);
    }
}

#[test]
fn a_rollback_brings_back_what_was_there() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    fs::write(dir.join("data"), pattern(100_000)).unwrap();
    run("import IMG DIR/data /data", &image, &dir, 0);
    let before = run("ls -lR --json IMG", &image, &dir, 0).0;
    for name in ["one", "two", "three"] {
        run(&format!("snapshot create IMG {name}"), &image, &dir, 0);
        run(&format!("mv IMG /data /{name}"), &image, &dir, if name == "one" { 0 } else { 1 });
    }
    let bytes = fs::read(&image).unwrap();
    let (_, err) = run("snapshot rollback IMG one", &image, &dir, 1);
    assert!(err.contains("have to be dropped before that or with it: 'two', 'three'"), "{err}");
    let (_, err) = run("snapshot rollback IMG four", &image, &dir, 1);
    assert!(
        err.contains("there is no snapshot 'four'; there are 'one', 'two' and 'three'"),
        "{err}"
    );
    assert!(fs::read(&image).unwrap() == bytes, "the image has changed");
    run("snapshot keep IMG two", &image, &dir, 0);
    let (_, err) = run("snapshot rollback --drop-younger IMG one", &image, &dir, 1);
    assert!(err.contains("younger snapshots are kept: 'two'; release them first"), "{err}");
    run("snapshot release IMG two", &image, &dir, 0);
    let (out, _) = run("snapshot rollback --drop-younger IMG one", &image, &dir, 0);
    assert!(
        out.contains("is now what it was when 'one' was taken; dropped 'two', 'three'"),
        "{out}"
    );
    assert_eq!(run("ls -lR --json IMG", &image, &dir, 0).0, before);
    let (out, _) = run("snapshot list IMG", &image, &dir, 0);
    assert_eq!(out.lines().count(), 1, "{out}");
    run("fsck -fn --data IMG", &image, &dir, 0);
    run("rm IMG /data", &image, &dir, 0);
    let (out, _) = run("snapshot rollback IMG one", &image, &dir, 0);
    assert!(!out.contains("dropped"), "{out}");
    assert_eq!(run("ls -lR --json IMG", &image, &dir, 0).0, before);
    run("fsck -fn --data IMG", &image, &dir, 0);
}

#[test]
fn what_is_refused_changes_nothing() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    run("snapshot create IMG one", &image, &dir, 0);
    let before = fs::read(&image).unwrap();
    for (line, expected) in [
        ("snapshot create IMG one", "there is a snapshot 'one' already"),
        ("snapshot create IMG a/b", "without '/', '@' and control characters"),
        ("snapshot drop IMG two", "there is no snapshot 'two'; there is 'one'"),
        ("snapshot drop IMG one two", "there is no snapshot 'two'; there is 'one'"),
        ("snapshot show IMG two", "there is no snapshot 'two'"),
        ("snapshot rename IMG one .", "without '/', '@' and control characters"),
        ("ls IMG --as-of s:two", "there is no snapshot 'two'; there is 'one'"),
    ] {
        let (_, err) = run(line, &image, &dir, 1);
        assert!(err.contains(expected), "{line}: {err}");
    }
    run("ls IMG --as-of s:a/b", &image, &dir, 2);
    run("snapshot drop IMG", &image, &dir, 2);
    assert!(fs::read(&image).unwrap() == before, "the image has changed");
}

#[test]
fn du_tells_what_snapshots_use_as_well() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    fs::write(dir.join("data"), pattern(100_000)).unwrap();
    run("import IMG DIR/data /data", &image, &dir, 0);
    let du = |path: &str| -> Vec<u64> {
        let (out, _) = run(&format!("du --json --shared -s IMG {path}"), &image, &dir, 0);
        let told: serde_json::Value = serde_json::from_str(&out).unwrap();
        let of_path = &told["entries"][0];
        ["bytes", "alone_bytes", "shared_bytes"].map(|key| of_path[key].as_u64().unwrap()).to_vec()
    };
    assert_eq!(du("/data"), [102_400, 102_400, 0]);
    run("snapshot create IMG monday", &image, &dir, 0);
    assert_eq!(du("/data"), [102_400, 0, 102_400]);
    // The new data go to other leaves, or are pending in a buffer.
    run("import IMG DIR/data /other", &image, &dir, 0);
    let (data, other, all) = (du("/data"), du("/other"), du("/"));
    assert_eq!((other[0], other[2]), (102_400, 0));
    assert!(data[0] == 102_400 && data[1] + data[2] == data[0], "{data:?}");
    assert!(all[0] > 204_800 && all[1] + all[2] <= all[0], "{all:?}");
    let (out, _) = run("du --shared -s IMG /other", &image, &dir, 0);
    let expected = format!("100\t{}\t0\t/other\n", other[1] / 1024);
    assert_eq!(out, expected);
    assert_eq!(run("du -s IMG /other", &image, &dir, 0).0, "100\t/other\n");
    run("du --shared IMG --as-of s:monday", &image, &dir, 2);
    run("snapshot drop IMG monday", &image, &dir, 0);
    let data = du("/data");
    assert_eq!(data, [102_400, 102_400, 0]);
}
