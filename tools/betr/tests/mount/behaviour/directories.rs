//! Reading directories: large ones, ones that change meanwhile, and seeking.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, RawDir, unlinkat};

use crate::fixture::Mounted;

/// Creates a number of empty files.
fn fill(dir: &Path, count: usize) {
    fs::create_dir_all(dir).unwrap();
    for number in 0..count {
        File::create_new(dir.join(format!("entry-{number}"))).unwrap();
    }
}

/// The names in a directory, each of which must be listed once.
fn names(dir: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(dir).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(names.insert(name.clone()), "{name} comes twice");
    }
    names
}

#[test]
fn entries_are_deleted_while_they_are_read() {
    const COUNT: usize = 20_000;
    let Some(mut mount) = Mounted::new("") else { return };
    let path = mount.at("dir");
    fill(&path, COUNT);
    assert_eq!(names(&path).len(), COUNT);

    // Of every three entries read, the second is deleted, with the one that was created before it.
    let dir = File::open(&path).unwrap();
    let mut buffer = Vec::with_capacity(4096);
    let (mut seen, mut deleted) = (HashMap::new(), BTreeSet::new());
    let mut entries = RawDir::new(&dir, buffer.spare_capacity_mut());
    let mut turn = 0;
    while let Some(entry) = entries.next() {
        let name = entry.unwrap().file_name().to_str().unwrap().to_owned();
        let Some(number) = name.strip_prefix("entry-") else { continue };
        let before = number.parse::<usize>().unwrap().checked_sub(1);
        *seen.entry(name.clone()).or_insert(0) += 1;
        turn += 1;
        if turn % 3 != 1 {
            continue;
        }
        let before = before.map(|number| format!("entry-{number}"));
        for name in before.into_iter().chain([name]) {
            if deleted.insert(name.clone()) {
                unlinkat(&dir, name.as_str(), AtFlags::empty()).unwrap();
            }
        }
    }
    assert!(deleted.len() > COUNT / 3);
    for number in 0..COUNT {
        let name = format!("entry-{number}");
        let times = seen.get(&name).copied().unwrap_or(0);
        let fine = times == 1 || times == 0 && deleted.contains(&name);
        assert!(fine, "{name} came {times} times; deleted: {}", deleted.contains(&name));
    }
    assert_eq!(names(&path).len(), COUNT - deleted.len());
    drop(dir);
    mount.remount();
    assert_eq!(names(&mount.at("dir")).len(), COUNT - deleted.len());

    // As rm -r does: until the directory is empty.
    fs::remove_dir_all(mount.at("dir")).unwrap();
    mount.settle();
}

#[test]
fn a_place_in_a_directory_is_found_again() {
    const COUNT: usize = 3000;
    let Some(mount) = Mounted::new("") else { return };
    let path = mount.at("dir");
    fill(&path, COUNT);
    // Reading continues after the entry whose position is given.
    let mut dir = Dir::new(File::open(&path).unwrap()).unwrap();
    let mut order = Vec::new();
    while let Some(entry) = dir.read() {
        let entry = entry.unwrap();
        order.push((entry.file_name().to_owned(), entry.offset()));
    }
    assert_eq!(order.len(), COUNT + 2);
    let places: BTreeSet<i64> = order.iter().map(|(_, place)| *place).collect();
    assert_eq!(places.len(), order.len(), "two entries have one place");
    for index in (0..order.len() - 1).step_by(97).chain([0, order.len() - 2]).rev() {
        dir.seek(order[index].1).unwrap();
        let next = dir.read().unwrap().unwrap();
        assert_eq!(next.file_name(), order[index + 1].0.as_c_str());
    }
    dir.seek(order.last().unwrap().1).unwrap();
    assert!(dir.read().is_none());

    // Positions stay valid when other entries are deleted, even the one before.
    let (kept, place) = (order[1501].0.clone(), order[1500].1);
    for index in (0..order.len()).filter(|index| index % 2 == 0) {
        let name = &order[index].0;
        if !name.to_bytes().starts_with(b".") && *name != kept {
            unlinkat(File::open(&path).unwrap(), name, AtFlags::empty()).unwrap();
        }
    }
    dir.seek(place).unwrap();
    assert_eq!(dir.read().unwrap().unwrap().file_name(), kept.as_c_str());

    // After a rewind, a listing shows new entries.
    File::create_new(path.join("new")).unwrap();
    dir.rewind();
    let again: Vec<_> = dir.map(|entry| entry.unwrap().file_name().to_owned()).collect();
    assert!(again.iter().any(|name| name.as_c_str() == c"new"));
}

/// A reply with attributes of a directory that crosses a change of it must not stay in the kernel's cache.
#[test]
fn what_is_said_of_a_directory_is_never_old() {
    let Some(mut mount) = Mounted::new("") else { return };
    let dir = mount.at("dir");
    fs::create_dir(&dir).unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = std::os::unix::fs::MetadataExt::nlink(&fs::metadata(&dir).unwrap());
                    let _ = fs::read_dir(mount.point()).unwrap().count();
                }
            });
        }
        for number in 0..2000 {
            fs::create_dir(dir.join(number.to_string())).unwrap();
            let links = std::os::unix::fs::MetadataExt::nlink(&fs::metadata(&dir).unwrap());
            assert_eq!(links, number + 3);
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    mount.settle();
}

#[test]
fn entries_have_their_types_and_numbers() {
    use std::os::unix::fs::{DirEntryExt, MetadataExt, symlink};
    let Some(mount) = Mounted::new("") else { return };
    fs::create_dir(mount.at("dir")).unwrap();
    fs::write(mount.at("file"), "").unwrap();
    symlink("file", mount.at("link")).unwrap();
    for entry in fs::read_dir(mount.point()).unwrap().map(Result::unwrap) {
        let meta = fs::symlink_metadata(entry.path()).unwrap();
        assert_eq!(entry.ino(), meta.ino());
        assert_eq!(entry.file_type().unwrap(), meta.file_type());
    }
    // `.` and `..` have the right inode numbers, too.
    let dir = File::open(mount.at("dir")).unwrap();
    let (own, parent) = (dir.metadata().unwrap().ino(), fs::metadata(mount.point()).unwrap().ino());
    let mut dots = HashMap::new();
    for entry in Dir::new(dir).unwrap().map(Result::unwrap) {
        dots.insert(entry.file_name().to_owned(), entry.ino());
    }
    assert_eq!(dots, HashMap::from([(c".".to_owned(), own), (c"..".to_owned(), parent)]));
    let up = fs::metadata(mount.at("dir/..")).unwrap().ino();
    assert_eq!(up, parent);
}

#[test]
fn entries_that_are_made_while_it_is_read_do_no_harm() {
    const COUNT: usize = 2000;
    let Some(mut mount) = Mounted::new("") else { return };
    let path = mount.at("dir");
    fill(&path, COUNT);
    let dir = File::open(&path).unwrap();
    let mut buffer = Vec::with_capacity(2048);
    let mut entries = RawDir::new(&dir, buffer.spare_capacity_mut());
    let (mut seen, mut made) = (HashMap::new(), 0);
    while let Some(entry) = entries.next() {
        let name = entry.unwrap().file_name().to_str().unwrap().to_owned();
        *seen.entry(name).or_insert(0) += 1;
        // Creating more entries than are read would make this endless.
        if made < COUNT {
            made += 1;
            File::create_new(path.join(format!("{made}-made"))).unwrap();
        }
    }
    let twice: Vec<_> = seen.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert!((0..COUNT).all(|number| seen.contains_key(&format!("entry-{number}"))));
    assert_eq!(names(&path).len(), COUNT + made);
    drop(dir);
    mount.settle();
}
