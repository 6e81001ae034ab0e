//! How many requests of the kernel operations take.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use serde_json::Value;

use super::status::{count, status};
use crate::fixture::{Mounted, betr_only};

const FILES: u64 = 1000;

/// The requests that the kernel waits for, by their names in `betr status`.
const KINDS: [&str; 15] = [
    "lookup", "getattr", "setattr", "make", "unlink", "rename", "link", "open", "release", "read",
    "write", "fsync", "opendir", "readdir", "xattr",
];

fn name(dir: &Path, number: u64) -> std::path::PathBuf {
    dir.join(format!("{number:04}"))
}

fn text(number: u64) -> String {
    number.to_string().repeat(50)
}

/// Lists a directory, and looks at each of its files.
fn list(dir: &Path) {
    let listed = fs::read_dir(dir).unwrap();
    assert_eq!(
        listed.filter(|entry| entry.as_ref().unwrap().metadata().unwrap().is_file()).count(),
        1000
    );
}

/// What is done [`FILES`] times, in a directory that has as many files.
type Step = (&'static str, fn(&Path, u64));

const STEPS: [Step; 8] = [
    ("read", |dir, number| {
        assert_eq!(fs::read_to_string(name(dir, number)).unwrap(), text(number))
    }),
    ("read again", |dir, number| {
        assert_eq!(fs::read_to_string(name(dir, number)).unwrap(), text(number));
    }),
    ("stat", |dir, number| {
        assert_eq!(name(dir, number).metadata().unwrap().len(), text(number).len() as u64)
    }),
    ("append", |dir, number| {
        let mut file = File::options().append(true).open(name(dir, number)).unwrap();
        file.write_all(b"more").unwrap();
    }),
    ("replace", |dir, number| fs::write(name(dir, number), b"other").unwrap()),
    ("rename", |dir, number| {
        fs::rename(name(dir, number), dir.join(format!("to{number}"))).unwrap();
        fs::rename(dir.join(format!("to{number}")), name(dir, number)).unwrap();
    }),
    ("create", |dir, number| {
        let mut file = File::create_new(dir.join(format!("new{number}"))).unwrap();
        file.write_all(b"new").unwrap();
    }),
    ("remove", |dir, number| fs::remove_file(dir.join(format!("new{number}"))).unwrap()),
];

/// The requests of a step, of each kind, more than those of `betr status` itself. Fewer than one in ten repetitions are
/// not of the step.
fn requests(mount: &Mounted, step: impl FnOnce()) -> BTreeMap<&'static str, u64> {
    let states: [Value; 2] = {
        let before = status(mount.point());
        step();
        [before, status(mount.point())]
    };
    let grown = |kind| count(&states[1], kind) - count(&states[0], kind);
    let each = KINDS.map(|kind| (kind, (grown(kind) + FILES / 2) / FILES));
    each.into_iter().filter(|(_, each)| *each > 0).collect()
}

/// The most requests of a step, with the options of the mount. What is known from a listing is read with one request where
/// opens need none: with `noatime`, the default, and on a mount for reading only. Of the five of a file that is created,
/// written and closed, two are the kernel's for its own checks: a change of a directory makes it forget the attributes of
/// that, which decide who may make the next one; and the first write to an inode asks for capabilities to remove.
const TABLE: [Row; 19] = [
    row("noatime", "read", &[("read", 1)]),
    row("noatime", "read again", &[("getattr", 1)]),
    row("noatime", "stat", &[]),
    row("noatime", "append", &[("write", 1), ("xattr", 1)]),
    row("noatime", "replace", &[("setattr", 1), ("write", 1), ("xattr", 1)]),
    row("noatime", "rename", &[("getattr", 2), ("lookup", 2), ("rename", 2)]),
    row(
        "noatime",
        "create",
        &[("getattr", 1), ("lookup", 1), ("make", 1), ("write", 1), ("xattr", 1)],
    ),
    row("noatime", "remove", &[("getattr", 1), ("unlink", 1)]),
    row("relatime", "read", &[("open", 1), ("read", 1), ("release", 1)]),
    row("relatime", "read again", &[("getattr", 1), ("open", 1), ("release", 1)]),
    row("relatime", "stat", &[]),
    row("relatime", "append", &[("open", 1), ("release", 1), ("write", 1), ("xattr", 1)]),
    row(
        "relatime",
        "replace",
        &[("open", 1), ("release", 1), ("setattr", 1), ("write", 1), ("xattr", 1)],
    ),
    row("relatime", "rename", &[("getattr", 2), ("lookup", 2), ("rename", 2)]),
    row(
        "relatime",
        "create",
        &[("getattr", 1), ("lookup", 1), ("make", 1), ("release", 1), ("write", 1), ("xattr", 1)],
    ),
    row("relatime", "remove", &[("getattr", 1), ("unlink", 1)]),
    row("ro", "read", &[("read", 1)]),
    row("ro", "read again", &[]),
    row("ro", "stat", &[]),
];

#[derive(Clone, Copy)]
struct Row {
    options: &'static str,
    what: &'static str,
    most: &'static [(&'static str, u64)],
}

const fn row(
    options: &'static str,
    what: &'static str,
    most: &'static [(&'static str, u64)],
) -> Row {
    Row { options, what, most }
}

#[test]
fn operations_take_few_requests() {
    if !betr_only() {
        return;
    }
    // Other tests drop the kernel's caches, which takes more requests.
    let mut counted = count_requests();
    for _ in 0..4 {
        if counted.is_err() {
            counted = count_requests();
        }
    }
    assert_eq!(counted, Ok(()));
}

fn count_requests() -> Result<(), String> {
    let Some(mut mount) = Mounted::new("") else { return Ok(()) };
    let dir = mount.at("dir");
    fs::create_dir(&dir).unwrap();
    let plant =
        || (0..FILES).for_each(|number| fs::write(name(&dir, number), text(number)).unwrap());
    let mut mounted = None;
    for Row { options, what, most } in TABLE {
        if mounted.replace(options) != Some(options) {
            mount.unmount();
            mount.mount("");
            plant();
            mount.unmount();
            mount.mount(options);
            list(&dir);
        }
        let step = STEPS.iter().find(|(name, _)| *name == what).unwrap().1;
        let found = requests(&mount, || (0..FILES).for_each(|number| step(&dir, number)));
        println!("{options:<9} {what:<11} {found:?}");
        for (kind, count) in found {
            let most = most.iter().find(|(name, _)| *name == kind).map_or(0, |(_, most)| *most);
            if count > most {
                return Err(format!("-o {options}, {what}: {count} {kind}, for {most}"));
            }
        }
    }
    Ok(())
}
