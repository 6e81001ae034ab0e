//! Snapshots of a mounted image: taken and dropped through its server, mounted on their own, shown below
//! `.betr/snapshots`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat, setxattr};
use rustix::io::Errno;

use super::refused;
use crate::fixture::{Manifest, Mounted, betr, betr_only, program, run, said, unmount};

fn snapshot(words: &[&str], place: &Path, names: &[&str], code: i32) -> String {
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
    // A snapshot includes writes that were not synced.
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
    // The server has the image open, so the command cannot.
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

/// A mount that shows its snapshots.
fn showing(options: &str) -> Option<Mounted> {
    if !betr_only() {
        return None;
    }
    Mounted::sized(options, 64 << 20)
}

fn status(point: &Path) -> serde_json::Value {
    let output = betr(["status", "--json"]).arg(point).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The directory of a snapshot.
fn shown(mount: &Mounted, name: &str) -> PathBuf {
    mount.at(".betr/snapshots").join(name)
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The inode numbers of a tree.
fn numbers(root: &Path) -> BTreeSet<u64> {
    let mut found = BTreeSet::from([fs::symlink_metadata(root).unwrap().ino()]);
    for entry in fs::read_dir(root).unwrap() {
        let entry = entry.unwrap();
        let meta = entry.path().symlink_metadata().unwrap();
        // A listing and a lookup return the same number.
        assert_eq!(listed_number(&entry), meta.ino(), "{:?}", entry.path());
        match meta.is_dir() {
            true => found.extend(numbers(&entry.path())),
            false => drop(found.insert(meta.ino())),
        }
    }
    found
}

fn listed_number(entry: &fs::DirEntry) -> u64 {
    std::os::unix::fs::DirEntryExt::ino(entry)
}

/// A tree that includes a file with two names.
fn plant(root: &Path) {
    fs::create_dir_all(root.join("dir/sub")).unwrap();
    fs::write(root.join("dir/file"), vec![7; 300_000]).unwrap();
    fs::hard_link(root.join("dir/file"), root.join("again")).unwrap();
    symlink("dir/file", root.join("link")).unwrap();
    setxattr(root.join("dir"), "user.a", b"b", XattrFlags::empty()).unwrap();
}

#[test]
fn snapshots_are_shown_below_the_root() {
    let Some(mut mount) = showing("snapshots") else { return };
    let point = mount.point().to_owned();
    assert!(names(&mount.at(".betr")) == ["snapshots"] && names(&shown(&mount, "")).is_empty());
    refused(Errno::NOENT, fs::metadata(shown(&mount, "one")));
    plant(&point);
    let first = Manifest::of(&point);
    snapshot(&["create"], &point, &["one"], 0);
    // A new snapshot is visible at once.
    first.assert_same(&Manifest::of(&shown(&mount, "one")));
    fs::write(mount.at("dir/file"), vec![8; 100_000]).unwrap();
    fs::remove_file(mount.at("link")).unwrap();
    fs::rename(mount.at("dir/sub"), mount.at("moved")).unwrap();
    let second = Manifest::of(&point);
    snapshot(&["create"], &point, &["two"], 0);
    fs::remove_dir_all(mount.at("dir")).unwrap();
    assert_eq!(names(&shown(&mount, "")), ["one", "two"]);
    assert_eq!(names(&point), ["again", "moved"]);

    // Each inode has a unique number, which stays the same.
    let all = [numbers(&point), numbers(&shown(&mount, "one")), numbers(&shown(&mount, "two"))];
    let together: BTreeSet<u64> = all.iter().flatten().copied().collect();
    assert_eq!(together.len(), all.iter().map(BTreeSet::len).sum::<usize>());
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    assert_eq!(numbers(&shown(&mount, "one")), all[1]);
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    assert_eq!(device(&shown(&mount, "one/dir")), device(&point));

    // Later writes and checkpoints do not change snapshots.
    for at in 0..20 {
        fs::write(mount.at("again"), vec![at; 1 << 20]).unwrap();
        run("sync", [&point]);
    }
    first.assert_same(&Manifest::of(&shown(&mount, "one")));
    second.assert_same(&Manifest::of(&shown(&mount, "two")));
    snapshot(&["rename"], &point, &["one", "first"], 0);
    refused(Errno::NOENT, fs::metadata(shown(&mount, "one")));
    first.assert_same(&Manifest::of(&shown(&mount, "first")));
    assert_eq!(names(&shown(&mount, "")), ["first", "two"]);
    mount.settle();
    first.assert_same(&Manifest::of(&shown(&mount, "first")));
    snapshot(&["drop"], &point, &["first", "two"], 0);
    assert!(names(&shown(&mount, "")).is_empty());
    refused(Errno::NOENT, fs::metadata(shown(&mount, "first")));
    mount.unmount();
    mount.fsck();
}

#[test]
fn what_is_shown_of_snapshots_cannot_be_changed() {
    let Some(mut mount) = showing("snapshots") else { return };
    let point = mount.point().to_owned();
    plant(&point);
    for name in ["one", "two"] {
        snapshot(&["create"], &point, &[name], 0);
    }
    let before = Manifest::of(&shown(&mount, "one"));
    for directory in [shown(&mount, "one"), shown(&mount, ""), mount.at(".betr")] {
        let at = |name: &str| directory.join(name);
        refused(Errno::ROFS, fs::write(at("new"), ""));
        refused(Errno::ROFS, fs::create_dir(at("new")));
        refused(Errno::ROFS, symlink("x", at("new")));
        refused(Errno::ROFS, mknodat(CWD, at("new"), FileType::Fifo, Mode::RUSR, 0));
        refused(Errno::ROFS, rustix::fs::chmod(&directory, Mode::RUSR));
        refused(Errno::ROFS, std::os::unix::fs::chown(&directory, Some(1), None));
        refused(Errno::ROFS, setxattr(&directory, "user.a", b"", XattrFlags::empty()));
        for name in names(&directory) {
            refused(Errno::ROFS, fs::rename(at(&name), at("new")));
        }
    }
    let at = |name: &str| shown(&mount, "one").join(name);
    refused(Errno::ROFS, fs::write(at("dir/file"), ""));
    // It is opened without a request.
    let appends = File::options().append(true).open(at("dir/file"));
    refused(Errno::ROFS, appends.and_then(|mut file| file.write_all(b"more")));
    refused(Errno::ROFS, fs::remove_file(at("link")));
    refused(Errno::ROFS, fs::remove_dir(at("dir/sub")));
    refused(Errno::ROFS, fs::hard_link(at("again"), at("new")));
    refused(Errno::ROFS, rustix::fs::removexattr(at("dir"), "user.a"));
    let file = File::open(at("dir/file")).unwrap();
    refused(Errno::ROFS, file.set_modified(std::time::SystemTime::now()));
    file.sync_all().unwrap();
    drop(file);
    refused(Errno::ROFS, fs::remove_dir(mount.at(".betr")));
    refused(Errno::ROFS, fs::remove_dir(shown(&mount, "one")));
    refused(Errno::ROFS, fs::rename(mount.at(".betr"), mount.at("new")));
    refused(Errno::ROFS, fs::rename(mount.at("dir"), mount.at(".betr")));
    refused(Errno::ROFS, fs::rename(mount.at("again"), mount.at(".betr/new")));
    refused(Errno::EXIST, fs::create_dir(mount.at(".betr")));

    // No operation spans two trees.
    let trees = [point.clone(), shown(&mount, "one"), shown(&mount, "two")];
    for from in &trees {
        for to in trees.iter().filter(|to| *to != from) {
            refused(Errno::XDEV, fs::hard_link(from.join("again"), to.join("new")));
            refused(Errno::XDEV, fs::rename(from.join("again"), to.join("new")));
            refused(Errno::XDEV, fs::rename(from.join("dir"), to.join("new")));
        }
    }
    before.assert_same(&Manifest::of(&shown(&mount, "one")));

    // Old contents can be copied back.
    fs::write(mount.at("dir/file"), "broken").unwrap();
    fs::copy(at("dir/file"), mount.at("dir/file")).unwrap();
    assert!(fs::read(mount.at("dir/file")).unwrap() == vec![7; 300_000]);
    let restored = mount.at("restored");
    run("cp", ["-a".as_ref(), shown(&mount, "one").as_os_str(), restored.as_os_str()]);
    before.assert_same(&Manifest::of(&restored));
    mount.settle();
}

#[test]
fn copies_of_a_tree_have_no_snapshots_and_no_links_to_them() {
    let Some(mut mount) = showing("snapshots") else { return };
    let point = mount.point().to_owned();
    plant(&point);
    snapshot(&["create"], &point, &["x"], 0);
    let expected = Manifest::of(&point);
    let copy = mount.beside("copy");
    run("cp", ["-a".as_ref(), point.as_os_str(), copy.as_os_str()]);
    expected.assert_same(&Manifest::of(&copy));
    let listed = said("tar", &point, ["-cf", "/dev/stdout", "."].iter().chain(&["--totals"]));
    assert!(!listed.contains(".betr"), "the archive has the snapshots");

    // Both trees in one transfer: a file with two names in each must arrive with two names, not four.
    let pairs = |at: &Path| {
        for (tree, name) in [(at.to_owned(), "live"), (at.join(".betr/snapshots/x"), "snapshot")] {
            let [one, two] =
                ["dir/file", "again"].map(|name| fs::metadata(tree.join(name)).unwrap());
            assert_eq!((one.ino(), one.nlink()), (two.ino(), 2), "{name}");
        }
    };
    let both = ["dir", "again", "link", ".betr"];
    let archive = mount.beside("both.tar");
    run(
        "tar",
        ["-C", point.to_str().unwrap(), "-cf", archive.to_str().unwrap()].iter().chain(&both),
    );
    let out = mount.beside("tar");
    fs::create_dir(&out).unwrap();
    run("tar", ["-C", out.to_str().unwrap(), "-xf", archive.to_str().unwrap()]);
    pairs(&out);
    if program("rsync").is_some() {
        let out = mount.beside("rsync");
        fs::create_dir(&out).unwrap();
        let words = ["-aH", "dir", "again", "link", ".betr", out.to_str().unwrap()];
        said("rsync", &point, words);
        pairs(&out);
    }
    mount.settle();
}

#[test]
fn a_snapshot_in_use_is_not_dropped() {
    let Some(mut mount) = showing("snapshots") else { return };
    let point = mount.point().to_owned();
    plant(&point);
    for name in ["one", "two"] {
        snapshot(&["create"], &point, &[name], 0);
    }
    let number = fs::metadata(shown(&mount, "one/dir")).unwrap().ino();
    let refused_drop = || {
        let error = snapshot(&["drop"], &point, &["one", "two"], 1);
        assert!(error.contains("snapshot 'two' is in use"), "{error}");
        assert_eq!(names(&shown(&mount, "")), ["one", "two"]);
        assert_eq!(fs::metadata(shown(&mount, "one/dir")).unwrap().ino(), number);
    };
    let file = File::open(shown(&mount, "two/dir/file")).unwrap();
    refused_drop();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 299_999).unwrap();
    assert_eq!(byte, [7]);
    drop(file);
    let directory = fs::read_dir(shown(&mount, "two/dir")).unwrap();
    refused_drop();
    drop(directory);
    // A working directory is in use, although no handle is open.
    for place in ["two", "two/dir/sub"] {
        let mut waits = Command::new("cat");
        waits.current_dir(shown(&mount, place)).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = waits.spawn().unwrap();
        refused_drop();
        drop(child.stdin.take());
        child.wait().unwrap();
    }
    // Inodes that the kernel only caches do not prevent a drop.
    let first = Manifest::of(&shown(&mount, "one"));
    Manifest::of(&shown(&mount, "two")).assert_same(&first);
    snapshot(&["rename"], &point, &["two", "second"], 0);
    snapshot(&["drop"], &point, &["second"], 0);
    assert_eq!(names(&shown(&mount, "")), ["one"]);
    refused(Errno::NOENT, fs::metadata(shown(&mount, "second")));
    // Another snapshot can take the name.
    fs::write(mount.at("new"), "new").unwrap();
    snapshot(&["create"], &point, &["second"], 0);
    assert_eq!(fs::read_to_string(shown(&mount, "second/new")).unwrap(), "new");
    first.assert_same(&Manifest::of(&shown(&mount, "one")));
    mount.settle();
}

#[test]
fn many_snapshots_are_read_side_by_side() {
    let Some(mut mount) = showing("snapshots,cache=8M") else { return };
    let point = mount.point().to_owned();
    const MANY: u32 = 25;
    for at in 0..MANY {
        fs::write(mount.at("file"), format!("{at}").repeat(50_000)).unwrap();
        snapshot(&["create"], &point, &[&format!("s{at}")], 0);
    }
    let read = |at: u32| fs::read_to_string(shown(&mount, &format!("s{at}/file"))).unwrap();
    let number = |at: u32| fs::metadata(shown(&mount, &format!("s{at}/file"))).unwrap().ino();
    let numbers: Vec<u64> = (0..MANY).map(number).collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (read, number, numbers) = (&read, &number, &numbers);
            scope.spawn(move || {
                for round in 0..4 * MANY {
                    let at = (round * 7 + thread * 11) % MANY;
                    assert!(read(at) == format!("{at}").repeat(50_000), "s{at}");
                    assert_eq!(number(at), numbers[at as usize], "s{at}");
                }
            });
        }
    });
    assert_eq!(names(&shown(&mount, "")).len(), MANY as usize);
    // Only a few unused snapshots stay open, each with the root and the file.
    let begun = Instant::now();
    while status(&point)["inodes"].as_u64().unwrap() > 2 * 8 + 4 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", status(&point)["inodes"]);
        std::thread::sleep(Duration::from_millis(50));
    }
    (0..MANY).for_each(|at| assert_eq!(number(at), numbers[at as usize], "s{at}"));
    let all: Vec<String> = (0..MANY).map(|at| format!("s{at}")).collect();
    snapshot(&["drop"], &point, &all.iter().map(String::as_str).collect::<Vec<_>>(), 0);
    assert!(names(&shown(&mount, "")).is_empty());
    mount.settle();
}

#[test]
fn snapshots_are_shown_on_a_read_only_mount_and_a_name_in_the_way_is_told() {
    let Some(mut mount) = showing("") else { return };
    let point = mount.point().to_owned();
    refused(Errno::NOENT, fs::metadata(mount.at(".betr")));
    plant(&point);
    let then = Manifest::of(&point);
    snapshot(&["create"], &point, &["then"], 0);
    fs::remove_file(mount.at("link")).unwrap();
    mount.unmount();
    let bytes = fs::read(mount.image()).unwrap();
    mount.mount("ro,snapshots");
    then.assert_same(&Manifest::of(&shown(&mount, "then")));
    refused(Errno::ROFS, fs::write(mount.at(".betr/new"), ""));
    run("df", [&point, &shown(&mount, "then/dir")]);
    mount.unmount();
    assert!(fs::read(mount.image()).unwrap() == bytes, "the image has changed");

    mount.mount("snapshots,uid=7");
    let remount = |options: &str| {
        run("mount", ["-i".as_ref(), "-o".as_ref(), options.as_ref(), point.as_os_str()]);
    };
    remount("remount,ro");
    assert_eq!(fs::metadata(mount.at(".betr")).unwrap().uid(), 7);
    assert_eq!(fs::metadata(shown(&mount, "then/dir")).unwrap().uid(), 7);
    remount("remount,rw");
    fs::write(mount.at("new"), "").unwrap();
    let blocks = |path: &Path| rustix::fs::statvfs(path).unwrap().f_blocks;
    assert_eq!(blocks(&shown(&mount, "then/dir")), blocks(&point));
    mount.unmount();

    mount.mount("");
    fs::create_dir(mount.at(".betr")).unwrap();
    mount.unmount();
    let mut command = betr(["mount", "-o", "snapshots"]);
    let Output { status, stderr, .. } =
        command.args([mount.image(), mount.point()]).output().unwrap();
    let error = String::from_utf8(stderr).unwrap();
    assert!(
        !status.success() && error.contains("t.img: -o snapshots: its root has an entry '.betr'"),
        "{error}"
    );
    mount.mount("");
    assert!(names(&mount.at(".betr")).is_empty());
}

#[test]
fn damage_of_a_snapshot_is_told_and_concerns_nothing_else() {
    let Some(mut mount) = showing("snapshots") else { return };
    let point = mount.point().to_owned();
    let mark = b"what only the snapshot has ";
    fs::write(mount.at("file"), mark.repeat(20_000)).unwrap();
    fs::write(mount.at("other"), "sound").unwrap();
    snapshot(&["create"], &point, &["one"], 0);
    fs::write(mount.at("file"), "new").unwrap();
    mount.unmount();
    let image = fs::read(mount.image()).unwrap();
    // Whole blocks of the file only: its last bytes share a block with the other file.
    let marked = |block: &[u8]| {
        let marks = block.windows(mark.len()).filter(|bytes| bytes == mark).count();
        marks >= 4096 / mark.len() - 1
    };
    let file = File::options().write(true).open(mount.image()).unwrap();
    for (at, _) in (0..).zip(image.chunks(4096)).filter(|(_, block)| marked(block)) {
        file.write_all_at(&[0x5a; 4096], at * 4096).unwrap();
    }
    drop(file);

    mount.mount("snapshots");
    assert!(fs::read(shown(&mount, "one/file")).is_err());
    assert_eq!(fs::read_to_string(shown(&mount, "one/other")).unwrap(), "sound");
    fs::write(mount.at("another"), "is written").unwrap();
    let status = status(&point);
    let last = status["last_error"].as_str().unwrap();
    assert!(last.starts_with("snapshot 'one': "), "{last}");
    assert_eq!(status["read_only"], false, "{status}");
    snapshot(&["drop"], &point, &["one"], 0);
    unmount(&point);
    assert!(!mount.end_of_daemon().unwrap().success(), "it says that there were errors");
    mount.fsck();
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
    // The kernel has all of this in its caches, and that 'goes' does not exist.
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
    // Changes continue from there.
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
                    // A file has its contents in the snapshot, or those of a worker, or zeros while it is truncated.
                    // During a rollback it may be stale.
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

#[test]
fn a_rollback_takes_the_trees_of_younger_snapshots_away() {
    if !betr_only() {
        return;
    }
    let Some(mut mount) = Mounted::sized("snapshots", 64 << 20) else { return };
    let point = mount.point().to_owned();
    let shown = point.join(".betr/snapshots");
    fs::write(mount.at("file"), "one").unwrap();
    snapshot(&["create"], &point, &["one"], 0);
    fs::write(mount.at("file"), "another").unwrap();
    snapshot(&["create"], &point, &["two"], 0);
    fs::write(mount.at("file"), "the last").unwrap();
    let open = fs::File::open(shown.join("two/file")).unwrap();
    let error = snapshot(&["rollback", "--drop-younger"], &point, &["one"], 1);
    assert!(error.contains("snapshot 'two' is in use"), "{error}");
    assert_eq!(fs::read_to_string(mount.at("file")).unwrap(), "the last");
    drop(open);
    assert_eq!(fs::read_to_string(shown.join("one/file")).unwrap(), "one");
    let kept = fs::File::open(shown.join("one/file")).unwrap();
    snapshot(&["rollback", "--drop-younger"], &point, &["one"], 0);
    assert_eq!(fs::read_to_string(mount.at("file")).unwrap(), "one");
    let names: Vec<_> =
        fs::read_dir(&shown).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["one"]);
    refused(Errno::NOENT, fs::metadata(shown.join("two/file")));
    // An open file of a snapshot keeps its contents.
    assert_eq!(std::io::read_to_string(&kept).unwrap(), "one");
    drop(kept);
    mount.settle();
}
