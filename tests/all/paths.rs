//! Path resolution compared with the kernel: `openat2` with `RESOLVE_IN_ROOT` on the same tree of the host must give
//! the same results and errors.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use betr_core::Error;
use betr_core::device::MemoryDevice;
use betr_core::error::Refusal;
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Fs, LastLink, New, Object};
use betr_core::ids::Time;
use betr_core::path::Operand;
use betr_tests::{Random, made, rounds, tiny};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, openat2, statx};
use rustix::io::Errno;

/// The same tree in an image and on the host.
struct Trees {
    fs: Fs,
    root: fs::File,
    /// The path of each inode number of the host.
    places: HashMap<u64, PathBuf>,
    _guard: tempfile::TempDir,
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const TARGETS: [&str; 12] =
    ["a", "b/", "../a", "/", "/a/b", ".", "..", "c/../d", "nothing", "/b/.", "//a", "d/."];

impl Trees {
    fn grow(random: &mut Random) -> Trees {
        let guard = tempfile::tempdir().unwrap();
        let mut fs = made(Arc::new(MemoryDevice::new(32 << 20)), tiny());
        let mut places = HashMap::new();
        let mut directories = vec![(PathBuf::new(), fs.root().unwrap())];
        note(&mut places, guard.path(), Path::new(""));
        for _ in 0..24 {
            let at = random.below(directories.len() as u64) as usize;
            let (above, directory) = directories[at].clone();
            let name = NAMES[random.below(4) as usize];
            let path = above.join(name);
            if fs.find(&directory, name.as_bytes()).unwrap().is_some() {
                continue;
            }
            let host = guard.path().join(&path);
            let mut make = |kind, target: &str| -> Object {
                let attributes = Attributes::at(Time::default());
                let new = New { target: target.into(), ..New::of(kind, attributes) };
                fs.make(&directory, name.as_bytes(), new).unwrap()
            };
            match random.below(5) {
                0 | 1 => {
                    fs::create_dir(&host).unwrap();
                    directories.push((path.clone(), make(FileType::Directory, "")));
                }
                2 => {
                    fs::write(&host, "").unwrap();
                    make(FileType::Regular, "");
                }
                _ => {
                    let target = TARGETS[random.below(TARGETS.len() as u64) as usize];
                    symlink(target, &host).unwrap();
                    make(FileType::Symlink, target);
                }
            }
            note(&mut places, guard.path(), &path);
        }
        let root = fs::File::open(guard.path()).unwrap();
        Trees { fs, root, places, _guard: guard }
    }

    /// The path to which the kernel resolves an operand.
    fn of_host(&self, path: &str, last: LastLink) -> Result<PathBuf, Refusal> {
        let nofollow = if last == LastLink::Keep { OFlags::NOFOLLOW } else { OFlags::empty() };
        let flags = OFlags::PATH | OFlags::CLOEXEC | nofollow;
        let opened = openat2(&self.root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT);
        let file = opened.map_err(|errno| match errno {
            Errno::NOENT => Refusal::NotFound,
            Errno::NOTDIR => Refusal::NotADirectory,
            Errno::LOOP => Refusal::TooManyLevels,
            other => panic!("{path}: {other}"),
        })?;
        let stat = statx(&file, "", AtFlags::EMPTY_PATH, rustix::fs::StatxFlags::INO).unwrap();
        Ok(self.places[&stat.stx_ino].clone())
    }

    fn of_image(&self, path: &str, last: LastLink) -> Result<PathBuf, Refusal> {
        match self.fs.look_up(&Operand::new(path), last) {
            Ok(found) => {
                // The canonical path resolves to the same object.
                assert_eq!(self.fs.resolve(&found.path).unwrap(), found.object, "{path}");
                let path = String::from_utf8(found.path).unwrap();
                Ok(PathBuf::from(path.trim_start_matches('/')))
            }
            Err(Error::Refused(refusal)) => Err(refusal),
            Err(error) => panic!("{path}: {error}"),
        }
    }
}

fn note(places: &mut HashMap<u64, PathBuf>, root: &Path, path: &Path) {
    use std::os::unix::fs::MetadataExt;
    let meta = fs::symlink_metadata(root.join(path)).unwrap();
    places.insert(meta.ino(), path.to_owned());
}

#[test]
fn paths_lead_where_the_kernel_says() {
    for seed in 0..rounds(30) {
        let mut random = Random::new(seed);
        let trees = Trees::grow(&mut random);
        if trees.of_host("/", LastLink::Keep).is_err() {
            // An old kernel or a sandbox lacks openat2(2).
            betr_cli::skip::need("openat2(2)", false);
            return;
        }
        for _ in 0..400 {
            let mut path = String::new();
            for _ in 0..random.below(6) {
                path.push_str(["/", "/", "//", "/./"][random.below(4) as usize]);
                path.push_str(["a", "b", "c", "d", "..", "nothing"][random.below(6) as usize]);
            }
            path.push_str(["", "", "/", "/.", "/..", "//"][random.below(6) as usize]);
            for last in [LastLink::Keep, LastLink::Follow] {
                let (host, image) = (trees.of_host(&path, last), trees.of_image(&path, last));
                assert_eq!(image, host, "seed {seed}, {path:?}, {last:?}");
            }
        }
    }
}

#[test]
fn slots_are_where_something_would_be_made() {
    let mut fs = made(Arc::new(MemoryDevice::new(32 << 20)), tiny());
    let root = fs.root().unwrap();
    let attributes = Attributes::at(Time::default());
    let mut make = |name: &str, kind, target: &str| {
        let new = New { target: target.into(), ..New::of(kind, attributes) };
        drop(fs.make(&root, name.as_bytes(), new).unwrap());
    };
    make("dir", FileType::Directory, "");
    make("file", FileType::Regular, "");
    make("to-dir", FileType::Symlink, "dir");
    make("to-file", FileType::Symlink, "/file");
    make("to-new", FileType::Symlink, "dir/new");
    use FileType::*;
    for (path, kind, kept, followed) in [
        ("/new", Regular, Ok("/new"), Ok("/new")),
        ("/new/", Directory, Ok("/new"), Ok("/new")),
        ("/new/", Regular, Err(Refusal::NotADirectory), Err(Refusal::NotADirectory)),
        ("/new/.", Directory, Err(Refusal::NotFound), Err(Refusal::NotFound)),
        ("/to-dir/new", Regular, Ok("/dir/new"), Ok("/dir/new")),
        ("/to-new", Regular, Err(Refusal::Exists), Ok("/dir/new")),
        ("/to-file", Regular, Err(Refusal::Exists), Err(Refusal::Exists)),
        ("/file/new", Regular, Err(Refusal::NotADirectory), Err(Refusal::NotADirectory)),
        ("/dir/..", Directory, Err(Refusal::Exists), Err(Refusal::IsADirectory)),
        ("/", Directory, Err(Refusal::Exists), Err(Refusal::IsADirectory)),
        ("", Regular, Err(Refusal::NotFound), Err(Refusal::NotFound)),
        ("/no/new", Regular, Err(Refusal::NotFound), Err(Refusal::NotFound)),
    ] {
        let operand = Operand::new(path);
        let slots = [fs.slot(&operand), fs.slot_behind(&operand)];
        for (slot, expected) in slots.into_iter().zip([kept, followed]) {
            let vacant = slot.and_then(|slot| slot.vacant(kind).map(|()| slot.path));
            match (vacant, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected.as_bytes(), "{path}"),
                (Err(Error::Refused(found)), Err(expected)) => {
                    assert_eq!(found, expected, "{path}");
                }
                (found, expected) => panic!("{path}: {found:?}, expected {expected:?}"),
            }
        }
    }
    // The entry is the symbolic link itself, which is not a directory.
    let slot = fs.slot(&Operand::new("/to-dir/")).unwrap();
    assert!(matches!(slot.existing(), Err(Error::Refused(Refusal::NotADirectory))));
    let slot = fs.slot(&Operand::new("/to-dir")).unwrap();
    assert_eq!(slot.existing().unwrap().0, Symlink);
}
