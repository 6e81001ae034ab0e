//! Creating images: they appear complete or not at all, and nothing is replaced by accident.

use betr_cli::image::{OpenError, create, existing_len};
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

fn names(dir: &Path) -> Vec<OsString> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn a_new_image_appears_on_commit_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new.img");
    let new = create(&path, 8192, false).unwrap();
    new.file.write_all_at(b"hello", 4096).unwrap();
    assert!(!new.is_device());
    assert!(!path.exists());
    drop(new);
    assert!(names(dir.path()).is_empty());

    let new = create(&path, 8192, false).unwrap();
    new.file.write_all_at(b"hello", 4096).unwrap();
    new.set_len(16384).unwrap();
    new.commit().unwrap();
    assert_eq!(names(dir.path()), ["new.img"]);
    let bytes = fs::read(&path).unwrap();
    assert_eq!((bytes.len(), &bytes[4096..4101]), (16384, &b"hello"[..]));
    assert_eq!(existing_len(&path).unwrap(), Some(16384));
    assert_eq!(existing_len(dir.path().join("none")).unwrap(), None);

    // The mode follows the umask, as for any new file.
    fs::write(dir.path().join("plain"), b"").unwrap();
    let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().mode();
    assert_eq!(mode("new.img"), mode("plain"));
}

#[test]
fn a_relative_path_and_a_link_to_nothing_work() {
    let dir = tempfile::tempdir().unwrap();
    symlink("target.img", dir.path().join("link.img")).unwrap();
    create(dir.path().join("link.img"), 4096, false).unwrap().commit().unwrap();
    assert_eq!(names(dir.path()), ["link.img", "target.img"]);
    assert!(dir.path().join("link.img").is_symlink());
    // Creating through the link replaces the link's target.
    create(dir.path().join("link.img"), 8192, false).unwrap().commit().unwrap();
    assert_eq!(fs::metadata(dir.path().join("target.img")).unwrap().len(), 8192);
    // A path without a directory is in the current one. The image is dropped, so no file appears.
    drop(create("never-committed.img", 4096, false).unwrap());
    assert!(!Path::new("never-committed.img").exists());
}

#[test]
fn what_appears_meanwhile_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new.img");
    let new = create(&path, 8192, true).unwrap();
    fs::write(&path, b"mine").unwrap();
    assert!(matches!(new.commit(), Err(OpenError::Appeared { .. })));
    assert_eq!(fs::read(&path).unwrap(), b"mine");

    let new = create(&path, 8192, true).unwrap();
    fs::rename(&path, dir.path().join("moved")).unwrap();
    fs::write(&path, b"other").unwrap();
    assert!(matches!(new.commit(), Err(OpenError::Replaced { .. })));
    assert_eq!(fs::read(&path).unwrap(), b"other");
    assert_eq!(names(dir.path()), ["moved", "new.img"]);
}

#[test]
fn data_is_replaced_with_force_alone_and_keeps_its_mode() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("old.img");
    let mut old = vec![0; 1 << 17];
    old[(1 << 17) - 1] = 1;
    fs::write(&path, &old).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    // As root the test uses a file of another user, otherwise the file keeps its owner.
    let owner = if fs::metadata(&path).unwrap().uid() == 0 { Some(1234) } else { None };
    std::os::unix::fs::chown(&path, owner, owner).unwrap();
    let before = fs::metadata(&path).unwrap();

    let message = create(&path, 4096, false).unwrap_err().to_string();
    assert!(message.contains("already holds data") && message.contains("-f"), "{message}");

    let new = create(&path, 4096, true).unwrap();
    new.file.write_all_at(b"new", 0).unwrap();
    assert!(fs::read(&path).unwrap() == old);
    drop(new);
    assert!(fs::read(&path).unwrap() == old);
    assert_eq!(names(dir.path()), ["old.img"]);

    let new = create(&path, 4096, true).unwrap();
    new.file.write_all_at(b"new", 0).unwrap();
    new.commit().unwrap();
    assert_eq!(names(dir.path()), ["old.img"]);
    assert_eq!(&fs::read(&path).unwrap()[..4], b"new\0");
    let after = fs::metadata(&path).unwrap();
    assert_ne!(after.ino(), before.ino());
    assert_eq!(
        (after.mode(), after.uid(), after.gid(), after.len()),
        (before.mode(), before.uid(), before.gid(), 4096)
    );
}

#[test]
fn an_image_of_zeros_needs_no_force_and_a_known_one_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("zeros.img");
    fs::write(&path, vec![0; 100_000]).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    create(&path, 1 << 20, false).unwrap().commit().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 20);

    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"\xbeBETRid\n", 65536).unwrap();
    file.write_all_at(b"my disk", 65536 + 96).unwrap();
    let message = create(&path, 4096, false).unwrap_err().to_string();
    assert!(message.contains("holds a betr file system labelled \"my disk\""), "{message}");
    // Data far beyond all signatures is found too.
    fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    file.write_all_at(b"x", (1 << 39) + 5).unwrap();
    assert!(matches!(create(&path, 4096, false), Err(OpenError::HasData { .. })));
}

#[test]
fn a_missing_directory_is_named() {
    let message = create("/no/such/place/x.img", 4096, false).unwrap_err().to_string();
    assert!(message.contains("there is no directory /no/such/place:"), "{message}");
}

/// Not a test: the child process of [`killed_it_leaves_nothing`], which kills it.
#[test]
#[ignore = "run by another test"]
fn child_that_is_killed() {
    let Some(path) = std::env::var_os("BETR_TEST_IMAGE") else {
        return;
    };
    let new = create(path, 1 << 20, true).unwrap();
    new.file.write_all_at(&[1; 4096], 0).unwrap();
    println!("ready");
    std::thread::sleep(std::time::Duration::from_secs(60));
}

#[test]
fn killed_it_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("old.img"), b"old").unwrap();
    for name in ["new.img", "old.img"] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_is_killed", "--ignored", "--nocapture"])
            .env("BETR_TEST_IMAGE", dir.path().join(name))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("ready")));
        child.kill().unwrap();
        child.wait().unwrap();
        // Without O_TMPFILE a temporary name remains; only files with the name of an image count.
        let left = names(dir.path());
        assert!(left.iter().all(|name| name == "old.img" || name.as_encoded_bytes()[0] == b'.'));
        assert_eq!(fs::read(dir.path().join("old.img")).unwrap(), b"old");
    }
}
