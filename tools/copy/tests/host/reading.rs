//! Reading: order, links, files that change, and objects that must not be read.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use betr_copy::host::{HostError, Kind, Meta, Source};

use crate::common::{data, is_root, set_times, skipped};

fn meta_of(source: &Source, name: &str) -> Meta {
    let entries = source.list(b"").unwrap();
    let entry = entries.into_iter().find(|e| e.name == name.as_bytes());
    entry.unwrap().meta
}

#[test]
fn names_are_sorted_as_bytes() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["b", "a", "B", "é", "a.b", "a-b", "10", "9"] {
        fs::write(dir.path().join(name), b"").unwrap();
    }
    let source = Source::open(dir.path()).unwrap();
    let names: Vec<_> = source.list(b"").unwrap().into_iter().map(|e| e.name).collect();
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(names, sorted);
    assert_eq!(names.len(), 8);
}

#[test]
fn a_directory_of_many_names_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..3000 {
        fs::write(dir.path().join(format!("{number:0100}")), b"").unwrap();
    }
    let source = Source::open(dir.path()).unwrap();
    assert_eq!(source.list(b"").unwrap().len(), 3000);
}

#[test]
fn the_root_may_be_a_link_to_a_directory_only() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("real")).unwrap();
    fs::write(dir.path().join("file"), b"12345").unwrap();
    symlink("real", dir.path().join("to dir")).unwrap();
    symlink("file", dir.path().join("to file")).unwrap();
    symlink("gone", dir.path().join("to nothing")).unwrap();
    let kind = |name: &str| Source::open(&dir.path().join(name)).unwrap().root().unwrap().kind;
    assert_eq!(kind("to dir"), Kind::Directory);
    assert_eq!(kind("to file"), Kind::Symlink(b"file".to_vec()));
    assert_eq!(kind("to nothing"), Kind::Symlink(b"gone".to_vec()));
    assert_eq!(kind("file"), Kind::File);
    for bad in ["missing", "file/", "file/x", "missing/x", ""] {
        let path = if bad.is_empty() { "".into() } else { dir.path().join(bad) };
        let error = Source::open(&path).unwrap_err();
        assert!(error.to_string().contains("cannot open"), "{bad}: {error}");
    }
}

#[test]
fn a_single_file_is_a_source() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), b"12345").unwrap();
    let source = Source::open(&dir.path().join("file")).unwrap();
    let meta = source.root().unwrap();
    assert_eq!(data(&source, b"", &meta).1, b"12345");
    assert_eq!(source.links().unwrap().iter().count(), 0);
    fs::hard_link(dir.path().join("file"), dir.path().join("other")).unwrap();
    assert_eq!(source.links().unwrap().iter().map(|(_, names)| names).collect::<Vec<_>>(), [1]);
    assert!(source.list(b"").is_err());
    assert!(source.reader(b"file", &meta).is_err());
}

#[test]
fn links_below_the_root_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("tree/dir")).unwrap();
    fs::write(dir.path().join("secret"), b"x").unwrap();
    symlink("..", dir.path().join("tree/up")).unwrap();
    symlink("dir", dir.path().join("tree/link")).unwrap();
    let source = Source::open(&dir.path().join("tree")).unwrap();
    for path in ["up", "link", "up/secret", "..", "dir/../..", "/etc", "dir/", "."] {
        assert!(source.list(path.as_bytes()).is_err(), "{path}");
    }
    let secret = Source::open(&dir.path().join("secret")).unwrap().root().unwrap();
    for path in ["up/secret", "../secret"] {
        assert!(source.reader(path.as_bytes(), &secret).is_err(), "{path}");
    }
}

/// Lists a file, changes it with `change`, and returns the result of reading it.
fn read_after(change: impl FnOnce(&Path)) -> Result<(), HostError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, vec![1; 10_000]).unwrap();
    set_times(&path, (1000, 0), (1000, 0));
    let source = Source::open(dir.path()).unwrap();
    let meta = meta_of(&source, "file");
    change(&path);
    source.reader(b"file", &meta)?.finish()
}

#[test]
fn a_file_that_changed_before_it_was_opened() {
    let append = |path: &Path| {
        OpenOptions::new().append(true).open(path).unwrap().write_all(b"x").unwrap();
    };
    let replace = |path: &Path| {
        let other = path.with_extension("new");
        fs::write(&other, vec![1; 10_000]).unwrap();
        set_times(&other, (1000, 0), (1000, 0));
        fs::rename(other, path).unwrap();
    };
    let link = |path: &Path| {
        fs::remove_file(path).unwrap();
        symlink("/etc/passwd", path).unwrap();
    };
    let pipe = |path: &Path| {
        fs::remove_file(path).unwrap();
        crate::common::mknod(path, rustix::fs::FileType::Fifo, 0, 0);
    };
    let overwrite = |path: &Path| {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(b"x", 0).unwrap();
    };
    let hidden = |path: &Path| {
        overwrite(path);
        set_times(path, (1000, 0), (1000, 0));
    };
    let remove = |path: &Path| fs::remove_file(path).unwrap();
    assert!(read_after(|_| {}).is_ok());
    let changes: [&dyn Fn(&Path); 7] =
        [&append, &replace, &link, &pipe, &overwrite, &hidden, &remove];
    for (number, change) in changes.into_iter().enumerate() {
        let result = read_after(change);
        assert!(matches!(result, Err(HostError::Changed { .. })), "{number}: {result:?}");
    }
}

#[test]
fn a_file_that_changes_while_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, vec![1; 10_000]).unwrap();
    let source = Source::open(dir.path()).unwrap();
    let mut buffer = vec![0; 4096];

    let meta = meta_of(&source, "file");
    let mut reader = source.reader(b"file", &meta).unwrap();
    reader.next_segment(&mut buffer).unwrap();
    let file = OpenOptions::new().append(true).open(&path).unwrap();
    (&file).write_all(b"more").unwrap();
    while let Some((offset, length)) = reader.next_segment(&mut buffer).unwrap() {
        assert!(offset + length as u64 <= 10_000, "read past the size");
    }
    assert!(matches!(reader.finish(), Err(HostError::Changed { .. })));

    let meta = meta_of(&source, "file");
    let mut reader = source.reader(b"file", &meta).unwrap();
    reader.next_segment(&mut buffer).unwrap();
    file.set_len(5000).unwrap();
    reader.next_segment(&mut buffer[..904]).unwrap();
    let error = reader.next_segment(&mut buffer).unwrap_err();
    assert!(matches!(error, HostError::Changed { .. }), "{error}");
    assert!(error.to_string().contains("changed while it was read"));
}

#[test]
fn a_file_that_denies_its_data_is_noticed() {
    let Ok(source) = Source::open(Path::new("/proc/self/status")) else {
        return skipped("no /proc");
    };
    let meta = source.root().unwrap();
    let mut reader = source.reader(b"", &meta).unwrap();
    assert_eq!(reader.next_segment(&mut [0; 16]).unwrap(), None);
    assert!(matches!(reader.finish(), Err(HostError::Changed { .. })));
}

#[test]
fn reading_leaves_the_time_of_access_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("dir")).unwrap();
    fs::write(dir.path().join("dir/file"), b"data").unwrap();
    set_times(&dir.path().join("dir/file"), (10, 0), (20, 0));
    set_times(&dir.path().join("dir"), (10, 0), (20, 0));
    let source = Source::open(dir.path()).unwrap();
    let meta = source.list(b"dir").unwrap().remove(0).meta;
    data(&source, b"dir/file", &meta);
    assert_eq!(source.list(b"dir").unwrap()[0].meta, meta);
    assert_eq!(meta_of(&source, "dir").atime.secs, 10);
}

#[test]
fn what_may_not_be_read_is_an_error() {
    if is_root() {
        return skipped("root may read everything");
    }
    let dir = tempfile::tempdir().unwrap();
    let closed = dir.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::write(dir.path().join("file"), b"x").unwrap();
    let chmod = |name: &str, mode| {
        fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    chmod("closed", 0);
    chmod("file", 0);
    let source = Source::open(dir.path()).unwrap();
    let error = source.list(b"closed").unwrap_err().to_string();
    assert!(error.contains("/closed'") && error.contains("run it as root"), "{error}");
    assert!(source.links().unwrap_err().to_string().contains("/closed'"));
    let meta = meta_of(&source, "file");
    let error = source.reader(b"file", &meta).unwrap_err().to_string();
    assert!(error.contains("cannot open") && error.contains("/file'"), "{error}");
    chmod("closed", 0o700);
}
