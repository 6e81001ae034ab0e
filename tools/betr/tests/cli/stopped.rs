//! A `betr mkfs` that is killed, or whose source changes, while it runs: no image appears.
//!
//! /proc shows that it reads a file. A run that ends before its source could be changed is repeated.

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::*;

/// Starts mkfs on `tree`, and waits until it reads `tree/a-large`; `None` if it was too fast.
fn caught_reading(tree: &Path, image: &Path) -> Option<Child> {
    let mut command = Command::new(BETR);
    command.args(words("mkfs -f IMG 96M -d DIR/tree", image, tree.parent().unwrap()));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let large = tree.join("a-large");
    let reads = |entry: fs::DirEntry| fs::read_link(entry.path()).is_ok_and(|to| to == large);
    let fds = format!("/proc/{}/fd", child.id());
    while child.try_wait().unwrap().is_none() {
        if fs::read_dir(&fds).into_iter().flatten().flatten().any(reads) {
            return Some(child);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    None
}

/// Changes the source during mkfs, over an existing image, until a run fails. Everything must be unchanged. Returns
/// how it ended.
fn disturbed(change: impl Fn(&Path)) -> Output {
    let (_guard, dir) = scratch();
    let (tree, out) = (dir.join("tree"), dir.join("out"));
    let image = out.join("t.img");
    fs::create_dir(&tree).unwrap();
    fs::create_dir(&out).unwrap();
    for _ in 0..50 {
        fs::write(tree.join("a-large"), vec![7; 48 << 20]).unwrap();
        // Smaller files are read ahead.
        fs::write(tree.join("z-later"), vec![8; 2 << 20]).unwrap();
        fs::write(&image, "precious").unwrap();
        let Some(child) = caught_reading(&tree, &image) else { continue };
        change(&tree);
        let output = child.wait_with_output().unwrap();
        if output.status.success() {
            continue;
        }
        assert!(fs::read(&image).unwrap() == b"precious");
        assert_eq!(names(&out).len(), 1, "{:?}", names(&out));
        return output;
    }
    panic!("no build was slow enough to be caught");
}

/// Starts mkfs on an archive from a pipe, and waits until it has read half of it.
fn half_way(archive: &[u8], image: &Path) -> (Child, ChildStdin) {
    // A shell in the background makes its children ignore signals.
    let mut command = Command::new("env");
    command.arg("--default-signal").arg(BETR);
    command.args(words("mkfs -f IMG 96M -d -", image, image.parent().unwrap()));
    let command = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&archive[..archive.len() / 2]).unwrap();
    (child, input)
}

#[test]
fn a_signal_leaves_what_was_there() {
    let (_guard, dir) = scratch();
    let (tree, out) = (dir.join("tree"), dir.join("out"));
    let image = out.join("t.img");
    fs::create_dir(&tree).unwrap();
    fs::create_dir(&out).unwrap();
    fs::write(tree.join("a-large"), vec![7; 8 << 20]).unwrap();
    let archive = Command::new("tar").arg("-cC").arg(&tree).arg(".").output().unwrap().stdout;
    assert!(archive.len() > 8 << 20);

    for (signal, old) in [
        (Signal::INT, None),
        (Signal::TERM, None),
        (Signal::KILL, None),
        (Signal::HUP, Some("precious")),
        (Signal::KILL, Some("precious")),
    ] {
        match old {
            Some(text) => fs::write(&image, text).unwrap(),
            None => assert!(!image.exists()),
        }
        let (mut child, input) = half_way(&archive, &image);
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()));
        drop(input);
        assert_eq!(fs::read(&image).ok().as_deref(), old.map(str::as_bytes));
        assert_eq!(names(&out).len(), old.iter().len(), "{:?}", names(&out));
    }
}

#[test]
fn a_source_that_changes_is_noticed() {
    use std::os::unix::fs::FileExt;
    fn open(tree: &Path) -> fs::File {
        fs::File::options().write(true).open(tree.join("a-large")).unwrap()
    }
    type Change = fn(&Path);
    let changes: [(&str, Change); 3] = [
        ("a-large", |tree| open(tree).set_len(5).unwrap()),
        ("a-large", |tree| open(tree).write_all_at(b"new", 40 << 20).unwrap()),
        ("z-later", |tree| fs::remove_file(tree.join("z-later")).unwrap()),
    ];
    for (name, change) in changes {
        let output = disturbed(change);
        let (_, err) = text(&output);
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(err.contains(name), "{err}");
    }
}
