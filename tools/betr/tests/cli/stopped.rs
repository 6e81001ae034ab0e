//! A `betr mkfs` that is stopped, or whose source changes, in the middle: nothing appears.
//!
//! That it is reading a file is seen in /proc. A build that ends before it could be caught is tried again.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::*;

/// Starts a build of `tree`, and catches it while it reads `tree/a-large`; none if it was too fast.
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

/// Does something to builds in the middle, over what is there already or nothing, until one of them
/// ends without success; everything must be as before. Returns how it ended.
fn interrupted(old: Option<&str>, act: impl Fn(&Path, &Child)) -> Output {
    let (_guard, dir) = scratch();
    let (tree, out) = (dir.join("tree"), dir.join("out"));
    let image = out.join("t.img");
    fs::create_dir(&tree).unwrap();
    fs::create_dir(&out).unwrap();
    for _ in 0..50 {
        fs::write(tree.join("a-large"), vec![7; 48 << 20]).unwrap();
        fs::write(tree.join("z-small"), "small").unwrap();
        match old {
            Some(text) => fs::write(&image, text).unwrap(),
            None => fs::remove_file(&image).unwrap_or(()),
        }
        let Some(child) = caught_reading(&tree, &image) else { continue };
        act(&tree, &child);
        let output = child.wait_with_output().unwrap();
        if output.status.success() {
            continue;
        }
        match old {
            Some(text) => assert!(fs::read(&image).unwrap() == text.as_bytes()),
            None => assert!(!image.exists()),
        }
        assert_eq!(names(&out).len(), old.iter().len(), "{:?}", names(&out));
        return output;
    }
    panic!("no build was slow enough to be caught");
}

#[test]
fn a_signal_leaves_what_was_there() {
    for (signal, old) in [
        (Signal::INT, None),
        (Signal::TERM, None),
        (Signal::KILL, None),
        (Signal::HUP, Some("precious")),
        (Signal::KILL, Some("precious")),
    ] {
        let output = interrupted(old, |_, child| {
            // It may have ended by itself.
            let _ = kill_process(Pid::from_child(child), signal);
        });
        assert_eq!(output.status.signal(), Some(signal.as_raw()));
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
        ("z-small", |tree| fs::remove_file(tree.join("z-small")).unwrap()),
    ];
    for (name, change) in changes {
        let output = interrupted(Some("precious"), |tree, _| change(tree));
        let (_, err) = text(&output);
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(err.contains(name), "{err}");
    }
}
