//! Clones of directories and files of a mounted image, by its server.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::fixture::{
    Manifest, Mounted, betr, betr_only, can_map, clone, clone_by_ioctl, helper, program, run, said,
    try_run,
};

/// A directory with small and large files, links, and a directory below.
fn fill(at: &Path) {
    fs::create_dir_all(at.join("below/deep")).unwrap();
    for number in 0..300 {
        fs::write(at.join(format!("below/file-{number}")), format!("{number}").repeat(number))
            .unwrap();
    }
    fs::write(at.join("large"), vec![7; 5_000_000]).unwrap();
    fs::hard_link(at.join("large"), at.join("below/deep/large too")).unwrap();
    symlink("below/file-3", at.join("link")).unwrap();
}

/// All paths below a directory.
fn paths(top: &Path) -> Vec<PathBuf> {
    let (mut found, mut at) = (vec![top.to_owned()], 0);
    while at < found.len() {
        if fs::symlink_metadata(&found[at]).unwrap().is_dir() {
            let entries = fs::read_dir(&found[at]).unwrap();
            let below: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
            found.extend(below);
        }
        at += 1;
    }
    found
}

#[test]
fn a_directory_of_a_mount_is_cloned_with_what_is_not_written_back_yet() {
    if !betr_only() {
        return;
    }
    let Some(mut mount) = Mounted::sized("", 128 << 20) else { return };
    let point = mount.point().to_owned();
    fill(&mount.at("src"));
    // The kernel knows that there is no such name, and has pages that it has not written back.
    assert!(fs::metadata(mount.at("one")).is_err());
    let open = OpenOptions::new().write(true).read(true).open(mount.at("src/large")).unwrap();
    open.write_all_at(b"written before the clone", 1_000_000).unwrap();
    clone(&point, "/src", "/one", 0);
    open.write_all_at(b"written behind the clone", 1_000_000).unwrap();
    let mut found = [0; 24];
    fs::File::open(mount.at("one/large")).unwrap().read_exact_at(&mut found, 1_000_000).unwrap();
    assert_eq!(&found, b"written before the clone");
    drop(open);
    // The same names, contents and links; each object with a number of its own.
    fs::write(mount.at("src/large"), vec![7; 100]).unwrap();
    clone(&point.join("src"), "src", "two", 0);
    let then = Manifest::of(&mount.at("src"));
    then.assert_same(&Manifest::of(&mount.at("two")));
    let mut numbers = HashSet::new();
    let mut names = 0;
    for path in paths(&point) {
        let meta = fs::symlink_metadata(&path).unwrap();
        numbers.insert(meta.ino());
        names += 1;
    }
    // Three times two names of the large file.
    assert_eq!(numbers.len(), names - 3);
    // Neither sees a change of the other, also after a crash: the clone was durable.
    mount.crash();
    mount.mount("");
    then.assert_same(&Manifest::of(&mount.at("two")));
    fs::remove_dir_all(mount.at("two/below")).unwrap();
    fs::write(mount.at("one/below/file-5"), "changed").unwrap();
    fs::rename(mount.at("one/below/file-6"), mount.at("two/from one")).unwrap();
    then.assert_same(&Manifest::of(&mount.at("src")));
    mount.remount();
    assert_eq!(fs::read(mount.at("one/below/file-5")).unwrap(), b"changed");
    then.assert_same(&Manifest::of(&mount.at("src")));
    // A file, and a clone into a directory.
    clone(&point, "/src/link", "/one/below", 0);
    assert_eq!(fs::read_link(mount.at("one/below/link")).unwrap(), Path::new("below/file-3"));
    clone(&point, "/src/below/file-9", "/nine", 0);
    assert_eq!(fs::read(mount.at("nine")).unwrap(), b"999999999");
    mount.settle();
}

#[test]
fn a_clone_on_a_mount_is_refused_with_the_path_to_blame() {
    if !betr_only() {
        return;
    }
    let Some(mut mount) = Mounted::sized("snapshots", 64 << 20) else { return };
    let point = mount.point().to_owned();
    fs::create_dir(mount.at("dir")).unwrap();
    fs::write(mount.at("dir/file"), "").unwrap();
    for (source, dest, expected) in [
        ("/none", "/x", "/none: no such file or directory"),
        ("/dir", "/dir/x", "/dir/x: invalid argument"),
        ("/dir", "/dir/file", "/dir/file: file exists"),
        ("/dir", "/.betr", "/.betr: operation not permitted"),
        ("/dir", "/none/x", "/none/x: no such file or directory"),
    ] {
        let error = clone(&point, source, dest, 1);
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(paths(&point.join("dir")).len(), 2);
    // A snapshot shows its clones, under numbers that nothing else has.
    clone(&point, "/dir", "/copy", 0);
    let place = point.to_str().unwrap();
    assert!(betr(["snapshot", "create", "-q", place, "then"]).status().unwrap().success());
    clone(&point, "/copy", "/again", 0);
    let shown = point.join(".betr/snapshots/then");
    let all: Vec<_> = paths(&point).into_iter().chain(paths(&shown)).collect();
    let number = |path: &PathBuf| fs::symlink_metadata(path).unwrap().ino();
    assert_eq!(all.iter().map(number).collect::<HashSet<_>>().len(), all.len(), "{all:?}");
    mount.unmount();
    mount.mount("ro");
    let error = clone(&point, "/dir", "/x", 1);
    assert!(error.to_lowercase().contains("read-only"), "{error}");
    mount.settle();
}

#[test]
fn git_works_in_a_clone_as_in_a_copy() {
    if !betr_only() || program("git").is_none() {
        return;
    }
    let Some(mut mount) = Mounted::sized("", 256 << 20) else { return };
    let point = mount.point().to_owned();
    let repository = mount.at("repository");
    fs::create_dir(&repository).unwrap();
    let git = |at: &Path, args: &[&str]| {
        let fixed = ["-c", "user.name=n", "-c", "user.email=e@x", "-c", "gc.auto=0"];
        said("git", at, fixed.iter().chain(args).copied())
    };
    git(&repository, &["init", "-q"]);
    for round in 0..3 {
        for number in 0..100 {
            let text = format!("{round} {number}\n").repeat(number * 5);
            fs::write(repository.join(format!("f{number}")), text).unwrap();
        }
        git(&repository, &["add", "."]);
        git(&repository, &["commit", "-q", "-m", "round"]);
    }
    clone(&point, "/repository", "/cloned", 0);
    let cloned = mount.at("cloned");
    assert_eq!(git(&cloned, &["status", "--porcelain"]), "");
    git(&cloned, &["worktree", "add", "-q", "../tree", "HEAD~1"]);
    git(&cloned, &["gc", "-q", "--aggressive", "--prune=now"]);
    git(&cloned, &["fsck", "--strict"]);
    git(&repository, &["fsck", "--strict"]);
    assert_eq!(git(&repository, &["status", "--porcelain"]), "");
    assert_eq!(fs::read_to_string(mount.at("tree/f1")).unwrap(), "1 1\n".repeat(5));
    fs::remove_dir_all(&repository).unwrap();
    git(&cloned, &["fsck", "--strict"]);
    assert_eq!(git(&cloned, &["status", "--porcelain"]), "");
    mount.settle();
}

#[test]
fn programs_clone_by_an_ioctl() {
    if !betr_only() || !can_map() {
        return;
    }
    let Some(mut mount) = Mounted::sized("", 128 << 20) else { return };
    fill(&mount.at("src"));
    fs::create_dir(mount.at("into")).unwrap();
    run("sync", ["-f".as_ref(), mount.point().as_os_str()]);
    assert!(fs::metadata(mount.at("into/copy")).is_err());
    clone_by_ioctl(&mount.at("src"), &mount.at("into"), "copy").unwrap();
    let then = Manifest::of(&mount.at("src"));
    then.assert_same(&Manifest::of(&mount.at("into/copy")));
    clone_by_ioctl(&mount.at("src/below/file-7"), mount.point(), "seven").unwrap();
    assert_eq!(fs::read(mount.at("seven")).unwrap(), b"7777777");
    for (source, into, name, expected) in [
        ("src", "into", "copy", "File exists"),
        ("src", "src/below", "again", "Invalid argument"),
        ("src", "into", "a/b", "Invalid argument"),
        ("src", "into", "", "Invalid argument"),
        ("src", "seven", "x", "Not a directory"),
    ] {
        let error = clone_by_ioctl(&mount.at(source), &mount.at(into), name).unwrap_err();
        assert!(error.contains(expected), "{source} {into} {name}: {error}");
    }
    // Only root may, since nothing checks what the caller may read.
    fs::set_permissions(mount.at("into"), PermissionsExt::from_mode(0o777)).unwrap();
    let (source, into) = (mount.at("src"), mount.at("into"));
    let setpriv = ["--reuid=1000", "--regid=1000", "--clear-groups"].map(OsString::from);
    if program("setpriv").is_some() {
        let helper = helper().as_os_str().to_owned();
        let words = [helper, "clone".into(), source.into(), into.into(), "mine".into()];
        let error = try_run("setpriv", setpriv.into_iter().chain(words)).unwrap_err();
        assert!(error.contains("not permitted"), "{error}");
    }
    mount.settle();
}
