//! `betr status`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::fixture::{Mounted, betr, betr_only};

pub(super) fn status(place: &Path) -> Value {
    let output = betr(["status", "--json"]).arg(place).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The count of an operation.
pub(super) fn count(status: &Value, name: &str) -> u64 {
    let operations = status["operations"].as_array().unwrap();
    let found = operations.iter().find(|operation| operation["operation"] == name);
    found.map_or(0, |operation| operation["count"].as_u64().unwrap())
}

#[test]
fn it_counts_what_it_is_asked() {
    if !betr_only() {
        return;
    }
    let Some(mount) = Mounted::new("") else { return };
    fs::create_dir(mount.at("dir")).unwrap();
    let before = status(mount.point());
    assert_eq!((&before["schema"], &before["version"]), (&"betr.status".into(), &1.into()));
    assert_eq!(before["image"], mount.image().to_str().unwrap());
    assert_eq!((&before["read_only"], &before["errors"]), (&false.into(), &0.into()));
    let file = fs::File::create_new(mount.at("dir/file")).unwrap();
    // Files are opened without a request, directories are not.
    let directory = fs::File::open(mount.at("dir")).unwrap();
    rustix::fs::Dir::read_from(&directory).unwrap().next();
    for block in 0..10 {
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 5000], block * 5000).unwrap();
    }
    file.sync_all().unwrap();
    // The command accepts any path on the mount.
    let after = status(&mount.at("dir"));
    for (name, least) in [("make", 1), ("write", 10), ("fsync", 1)] {
        let grown = count(&after, name) - count(&before, name);
        assert!(grown >= least, "{name}: {grown}");
    }
    let number = |said: &Value, at: &str| said.pointer(at).unwrap().as_u64().unwrap();
    assert!(number(&after, "/open") >= 1 && number(&after, "/inodes") >= 3);
    assert!(number(&after, "/device/flushes") > number(&before, "/device/flushes"));
    assert!(number(&after, "/cache/bytes") <= number(&after, "/cache/budget_bytes"));
    assert!(number(&after, "/log/used_bytes") <= number(&after, "/log/bytes"));
    assert!(!after["levels"].as_array().unwrap().is_empty());
    drop((file, directory));

    let text = betr(["status"]).arg(mount.point()).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("read-write") && text.contains("fsync"), "{text}");
}

#[test]
fn who_follows_hears_of_it_until_the_mount_ends() {
    if !betr_only() {
        return;
    }
    let Some(mut mount) = Mounted::new("") else { return };
    let mut follower = betr(["status", "--follow"]);
    let mut follower = follower.arg(mount.point()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(line["schema"], "betr.status");
    }
    mount.unmount();
    assert!(lines.all(|line| line.is_ok()));
    assert!(follower.wait().unwrap().success());
}

#[test]
fn where_nothing_is_mounted_it_says_so() {
    if !betr_only() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let output = betr(["status"]).arg(place.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("nothing of betr is mounted here"), "{said}");
}
