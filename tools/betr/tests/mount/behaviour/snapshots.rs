//! Snapshots of a mounted image: taken and dropped through its server, mounted by themselves.

use std::fs;
use std::process::Output;

use rustix::io::Errno;

use super::refused;
use crate::fixture::{Manifest, Mounted, betr, betr_only};

fn snapshot(words: &[&str], place: &std::path::Path, names: &[&str], code: i32) -> String {
    let line = words.iter().map(|word| (*word).to_owned());
    let line = ["snapshot".to_owned()].into_iter().chain(line);
    let line = line.chain([place.to_str().unwrap().to_owned()]);
    let line = line.chain(names.iter().map(|name| (*name).to_owned()));
    let Output { status, stdout, stderr } = betr(line.collect::<Vec<_>>()).output().unwrap();
    let (out, err) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert_eq!(status.code(), Some(code), "{words:?} {names:?}: {out}{err}");
    out + &err
}

#[test]
fn a_mounted_image_has_snapshots_taken_and_dropped() {
    if !betr_only() {
        return;
    }
    let Some(mut mount) = Mounted::sized("", 64 << 20) else { return };
    let point = mount.point().to_owned();
    fs::create_dir(mount.at("dir")).unwrap();
    fs::write(mount.at("dir/file"), vec![7; 3 << 20]).unwrap();
    let then = Manifest::of(&point);
    // What has been written and not synced is in it.
    snapshot(&["create"], &point, &["then"], 0);
    fs::write(mount.at("dir/file"), vec![8; 1 << 20]).unwrap();
    fs::rename(mount.at("dir"), mount.at("other")).unwrap();
    let error = snapshot(&["create"], &point, &["then"], 1);
    assert!(error.contains("there is a snapshot 'then' already"), "{error}");
    snapshot(&["create", "-q"], &point.join("other"), &["later"], 0);
    fs::remove_file(mount.at("other/file")).unwrap();
    snapshot(&["rename"], &point, &["later", "late"], 0);
    let list = snapshot(&["list"], &point, &[], 0);
    let names: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(names, ["then", "late"], "{list}");
    let shown = snapshot(&["show"], &point, &["then"], 0);
    assert!(shown.contains("Refers to: 3") && shown.contains("if it is dropped"), "{shown}");
    // The image itself is the server's.
    let error = snapshot(&["list"], mount.image(), &[], 1);
    assert!(error.contains("mounted") || error.contains("use"), "{error}");
    mount.unmount();
    mount.fsck();

    mount.mount("ro,snapshot=then");
    then.assert_same(&Manifest::of(mount.point()));
    refused(Errno::ROFS, fs::write(mount.at("new"), ""));
    let error = snapshot(&["create"], mount.point(), &["another"], 1);
    assert!(error.contains("read-only"), "{error}");
    mount.unmount();

    mount.mount("");
    assert_eq!(fs::read_dir(mount.at("other")).unwrap().count(), 0);
    let out = snapshot(&["drop"], mount.point(), &["then", "late"], 0);
    assert!(out.contains("dropped 'then', 'late'"), "{out}");
    assert_eq!(snapshot(&["list"], mount.point(), &[], 0), "");
    mount.settle();
}
