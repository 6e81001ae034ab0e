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

    mount.mount("ro");
    let plan = snapshot(&["prune", "-n", "--keep-last", "1"], mount.point(), &[], 0);
    assert!(plan.contains("1 would be kept, 1 dropped"), "{plan}");
    let error = snapshot(&["prune", "--keep-last", "1"], mount.point(), &[], 1);
    assert!(error.contains("read-only"), "{error}");
    mount.unmount();

    mount.mount("");
    assert_eq!(fs::read_dir(mount.at("other")).unwrap().count(), 0);
    let out = snapshot(&["drop"], mount.point(), &["then", "late"], 0);
    assert!(out.contains("dropped 'then', 'late'"), "{out}");
    assert_eq!(snapshot(&["list"], mount.point(), &[], 0), "");
    mount.settle();
}

#[test]
fn a_mounted_image_has_its_snapshots_pruned() {
    if !betr_only() {
        return;
    }
    let Some(mut mount) = Mounted::sized("", 64 << 20) else { return };
    for name in ["auto-1", "by-hand", "auto-2", "auto-3"] {
        fs::write(mount.at("file"), name.repeat(100_000)).unwrap();
        snapshot(&["create"], mount.point(), &[name], 0);
    }
    snapshot(&["keep"], mount.point(), &["auto-1"], 0);
    let words = ["prune", "--prefix", "auto-", "--keep-last", "1"];
    let before = snapshot(&["list"], mount.point(), &[], 0);
    let plan = snapshot(&[&words[..], &["-n"]].concat(), mount.point(), &[], 0);
    assert_eq!(snapshot(&["list"], mount.point(), &[], 0), before);
    let done = snapshot(&words, mount.point(), &[], 0);
    assert!(done.contains("2 kept, 1 dropped, "), "{done}");
    let rows = |out: &str| -> Vec<String> {
        out.lines().filter(|line| line.contains("auto-")).map(str::to_owned).collect()
    };
    assert_eq!(rows(&plan), rows(&done));
    let list = snapshot(&["list"], mount.point(), &[], 0);
    let named = |name: &str| list.lines().any(|line| line.contains(name));
    assert!(named("auto-1") && named("by-hand") && named("auto-3"), "{list}");
    assert!(!named("auto-2"), "{list}");
    mount.settle();
}

#[test]
fn a_mounted_image_goes_back_to_a_snapshot() {
    if !betr_only() {
        return;
    }
    let Some(mut mount) = Mounted::sized("", 64 << 20) else { return };
    let point = mount.point().to_owned();
    fs::create_dir_all(mount.at("dir/below")).unwrap();
    fs::write(mount.at("dir/below/file"), vec![7; 300_000]).unwrap();
    fs::write(mount.at("goes"), "goes").unwrap();
    fs::hard_link(mount.at("goes"), mount.at("dir/stays")).unwrap();
    let then = Manifest::of(&point);
    snapshot(&["create"], &point, &["then"], 0);
    // The kernel knows all of this, and that there is no 'goes'.
    fs::write(mount.at("dir/below/file"), vec![8; 100_000]).unwrap();
    fs::remove_file(mount.at("goes")).unwrap();
    fs::rename(mount.at("dir"), mount.at("other")).unwrap();
    fs::write(mount.at("new"), "new").unwrap();
    refused(Errno::NOENT, fs::metadata(mount.at("goes")));
    refused(Errno::NOENT, fs::metadata(mount.at("dir/below/file")));
    snapshot(&["create"], &point, &["late"], 0);
    let before = Manifest::of(&point);

    let error = snapshot(&["rollback"], &point, &["then"], 1);
    assert!(error.contains("have to be dropped before that or with it: 'late'"), "{error}");
    let open = fs::File::open(mount.at("new")).unwrap();
    let error = snapshot(&["rollback", "--drop-younger"], &point, &["then"], 1);
    assert!(error.contains("files or directories of the mount are open"), "{error}");
    before.assert_same(&Manifest::of(&point));
    drop(open);
    let out = snapshot(&["rollback", "--drop-younger"], &point, &["then"], 0);
    assert!(out.contains("is now what it was when 'then' was taken; dropped 'late'"), "{out}");
    then.assert_same(&Manifest::of(&point));
    assert_eq!(fs::read(mount.at("dir/below/file")).unwrap(), vec![7; 300_000]);
    refused(Errno::NOENT, fs::metadata(mount.at("new")));
    assert!(snapshot(&["list"], &point, &[], 0).contains("then"));
    // And it goes on from there.
    fs::write(mount.at("dir/below/file"), "after").unwrap();
    fs::write(mount.at("dir/another"), "another").unwrap();
    let after = Manifest::of(&point);
    mount.unmount();
    mount.fsck();
    mount.mount("");
    after.assert_same(&Manifest::of(mount.point()));
    snapshot(&["rollback"], mount.point(), &["then"], 0);
    then.assert_same(&Manifest::of(mount.point()));
    mount.settle();
}

#[test]
fn a_rollback_while_others_work_loses_nothing_and_confuses_nobody() {
    if !betr_only() {
        return;
    }
    let Some(mut mount) = Mounted::sized("", 64 << 20) else { return };
    let point = mount.point().to_owned();
    fs::create_dir_all(mount.at("dir")).unwrap();
    for number in 0..20 {
        fs::write(mount.at(&format!("dir/{number}")), format!("then {number}")).unwrap();
    }
    snapshot(&["create"], &point, &["then"], 0);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let mut back = 0;
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let (stop, point) = (&stop, &point);
            scope.spawn(move || {
                let mut turn = 0u64;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    turn += 1;
                    let path = point.join(format!("dir/{}", turn % 20));
                    // A file is what it was, or what a worker made of it, or zeros while it is cut short; where it is being gone back over
                    // it may be stale.
                    match fs::read_to_string(&path) {
                        Ok(text) => assert!(
                            text.bytes().all(|byte| byte == 0)
                                || text.starts_with("then ")
                                || text.starts_with("by "),
                            "{text}"
                        ),
                        Err(error) => assert!(
                            matches!(
                                Errno::from_io_error(&error),
                                Some(Errno::STALE | Errno::NOENT | Errno::IO)
                            ),
                            "{error}"
                        ),
                    }
                    let _ = fs::write(&path, format!("by {worker}"));
                    let _ = fs::write(point.join(format!("new-{worker}-{}", turn % 7)), "by");
                    std::thread::sleep(std::time::Duration::from_millis(turn % 5));
                }
            });
        }
        for _ in 0..40 {
            let output = betr(["snapshot", "rollback", point.to_str().unwrap(), "then"]);
            let output = { output }.output().unwrap();
            back += i32::from(output.status.success());
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    println!("{back} of 40 rollbacks");
    snapshot(&["rollback"], &point, &["then"], 0);
    assert_eq!(fs::read_dir(&point).unwrap().count(), 1);
    for number in 0..20 {
        let text = fs::read_to_string(mount.at(&format!("dir/{number}"))).unwrap();
        assert_eq!(text, format!("then {number}"));
    }
    mount.settle();
}
