//! Writing: hostile names, existing objects, and metadata that cannot be restored.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use betr_copy::host::{HostError, Kind, Source, Target};

use crate::common::{acl, is_root, plain_meta, set_xattr, skipped};

#[test]
fn hostile_names_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut target = Target::create(&dir.path().join("to"), true).unwrap();
    target.file(b"file").unwrap();
    let long = [b'x'; 256];
    let names: [&[u8]; 11] = [
        &b".."[..],
        b".",
        b"",
        b"/",
        b"../up",
        b"a/../../up",
        b"/etc/x",
        b"a//b",
        b"a/",
        b"a\0b",
        &long,
    ];
    for name in names {
        let refused = [
            target.mkdir(name).err(),
            target.file(name).err(),
            target.symlink(name, b"x").err(),
            target.mknod(name, &Kind::Fifo, 0o600).err(),
            target.link(b"file", name).err(),
            target.link(name, b"new").err(),
        ];
        for error in refused {
            assert!(matches!(error, Some(HostError::BadName { .. })), "{name:?}: {error:?}");
        }
        if !name.is_empty() {
            assert!(target.set_meta(name, &plain_meta(Kind::File, 0o600)).is_err());
        }
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    assert_eq!(fs::read_dir(dir.path().join("to")).unwrap().count(), 1);
}

#[test]
fn links_inside_the_destination_lead_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("victim"), b"whole").unwrap();
    let mut target = Target::create(&dir.path().join("to"), true).unwrap();
    target.symlink(b"away", outside.to_str().unwrap().as_bytes()).unwrap();
    target.symlink(b"victim", outside.join("victim").to_str().unwrap().as_bytes()).unwrap();
    target.mkdir(b"dir").unwrap();
    target.symlink(b"dir/up", b"../../outside").unwrap();

    assert!(target.file(b"away/new").is_err());
    assert!(target.mkdir(b"dir/up/new").is_err());
    assert!(target.link(b"away/victim", b"stolen").is_err());
    assert!(matches!(target.file(b"victim"), Err(HostError::Exists { .. })));
    let file = plain_meta(Kind::File, 0o777);
    assert!(target.set_meta(b"away/victim", &file).is_err());
    assert!(target.set_meta(b"victim", &file).is_err());
    let link = plain_meta(Kind::Symlink(Vec::new()), 0o777);
    target.set_meta(b"victim", &link).unwrap();
    // A directory that is replaced by a link after it has been used.
    target.file(b"dir/file").unwrap();
    fs::rename(dir.path().join("to/dir"), dir.path().join("to/old")).unwrap();
    symlink(&outside, dir.path().join("to/dir")).unwrap();
    target.file(b"old/x").unwrap();
    assert!(target.file(b"dir/y").is_err());

    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(fs::read(outside.join("victim")).unwrap(), b"whole");
    assert_ne!(outside.join("victim").metadata().unwrap().mode() & 0o777, 0o777);
}

#[test]
fn nothing_that_exists_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir(path("full")).unwrap();
    fs::write(path("full/file"), b"x").unwrap();
    fs::create_dir(path("empty")).unwrap();
    symlink("empty", path("link")).unwrap();
    for name in ["full", "full/file", "link"] {
        for directory in [true, false] {
            let error = Target::create(&path(name), directory).unwrap_err();
            assert!(matches!(error, HostError::Exists { .. }), "{name}: {error}");
            assert!(error.to_string().contains("exists already"));
        }
    }
    assert!(Target::create(&path("missing/new"), true).is_err());
    assert!(Target::create(&path("missing/new"), false).is_err());
    assert!(Target::create(&path("new/"), false).is_err());

    let mut target = Target::create(&path("empty"), true).unwrap();
    assert_eq!(path("empty").metadata().unwrap().mode() & 0o7777, 0o700);
    target.mkdir(b"a").unwrap();
    assert!(matches!(target.mkdir(b"a"), Err(HostError::Exists { .. })));
    assert!(matches!(target.file(b"a"), Err(HostError::Exists { .. })));
    assert!(matches!(target.symlink(b"a", b"b"), Err(HostError::Exists { .. })));
    assert!(Target::create(&path("empty"), true).is_err());
}

#[test]
fn only_the_single_object_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let mut target = Target::create(&dir.path().join("one"), false).unwrap();
    assert!(matches!(target.file(b"other"), Err(HostError::BadName { .. })));
    let mut file = target.file(b"").unwrap();
    file.write_at(3, b"data").unwrap();
    file.finish(10).unwrap();
    let warnings = target.set_meta(b"", &plain_meta(Kind::File, 0o640)).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(fs::read(dir.path().join("one")).unwrap(), b"\0\0\0data\0\0\0");
    assert_eq!(dir.path().join("one").metadata().unwrap().mode() & 0o7777, 0o640);
    assert!(matches!(target.file(b""), Err(HostError::Exists { .. })));
}

#[test]
fn everything_is_private_until_it_has_its_metadata() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("to");
    let mut target = Target::create(&to, true).unwrap();
    target.mkdir(b"dir").unwrap();
    target.file(b"dir/file").unwrap();
    target.mknod(b"dir/fifo", &Kind::Fifo, 0o666).unwrap();
    for path in ["", "dir", "dir/file", "dir/fifo"] {
        assert_eq!(to.join(path).metadata().unwrap().mode() & 0o077, 0, "{path}");
    }
    target.set_meta(b"", &plain_meta(Kind::Directory, 0o755)).unwrap();
    assert_eq!(to.metadata().unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn access_control_lists_are_not_inherited() {
    let dir = tempfile::tempdir().unwrap();
    if !set_xattr(dir.path(), "system.posix_acl_default", &acl()) {
        return;
    }
    let mut tree = Target::create(&dir.path().join("tree"), true).unwrap();
    tree.mkdir(b"dir").unwrap();
    tree.file(b"dir/file").unwrap();
    let mut single = Target::create(&dir.path().join("single"), false).unwrap();
    single.file(b"").unwrap();
    let file = plain_meta(Kind::File, 0o664);
    tree.set_meta(b"dir/file", &file).unwrap();
    single.set_meta(b"", &file).unwrap();
    let source = Source::open(dir.path()).unwrap();
    for path in ["", "tree", "tree/dir"] {
        for entry in source.list(path.as_bytes()).unwrap() {
            assert_eq!(entry.meta.xattrs, [], "{path}: {:?}", entry.name);
        }
    }
}

#[test]
fn data_past_the_size_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut target = Target::create(&dir.path().join("to"), true).unwrap();
    let mut file = target.file(b"file").unwrap();
    file.write_at(0, b"12345").unwrap();
    assert!(file.finish(4).is_err());
}

#[test]
fn metadata_that_cannot_be_are_not_guessed() {
    let dir = tempfile::tempdir().unwrap();
    let mut target = Target::create(&dir.path().join("to"), true).unwrap();
    target.file(b"file").unwrap();
    let mut meta = plain_meta(Kind::File, 0o600);
    meta.mtime.nanos = 1_000_000_000;
    assert!(target.set_meta(b"file", &meta).is_err());
    let device = Kind::CharDevice { major: 1 << 12, minor: 1 };
    assert!(target.mknod(b"device", &device, 0o600).unwrap().is_some());
    assert!(target.mknod(b"dir", &Kind::Directory, 0o700).is_err());

    let mut meta = plain_meta(Kind::File, 0o600);
    (meta.uid, meta.perm) = (u32::MAX, 0o4755);
    let warnings = target.set_meta(b"file", &meta).unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let mode = dir.path().join("to/file").metadata().unwrap().mode() & 0o7777;
    assert_eq!(mode, 0o755);
}

#[test]
fn times_that_the_host_cannot_hold_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let mut target = Target::create(&dir.path().join("to"), true).unwrap();
    target.file(b"file").unwrap();
    let mut meta = plain_meta(Kind::File, 0o600);
    meta.mtime.secs = 1 << 60;
    let warnings = target.set_meta(b"file", &meta).unwrap();
    let kept = dir.path().join("to/file").metadata().unwrap().mtime();
    assert_eq!(warnings.is_empty(), kept == 1 << 60, "{warnings:?}");
}

#[test]
fn what_only_root_may_restore_is_a_warning() {
    if is_root() {
        return skipped("root may restore everything");
    }
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("to");
    let mut target = Target::create(&to, true).unwrap();
    let device = Kind::BlockDevice { major: 7, minor: 0 };
    let warning = target.mknod(b"loop", &device, 0o600).unwrap().unwrap();
    assert!(warning.to_string().contains("the device 7:0 was not made"), "{warning}");
    assert!(!to.join("loop").exists());

    target.file(b"file").unwrap();
    let mut meta = plain_meta(Kind::File, 0o4444);
    (meta.uid, meta.gid) = (0, 0);
    meta.xattrs = vec![
        (b"security.capability".to_vec(), vec![0; 20]),
        (b"trusted.x".to_vec(), b"1".to_vec()),
        (b"user.x".to_vec(), b"on a file that ends read-only".to_vec()),
    ];
    let warnings = target.set_meta(b"file", &meta).unwrap();
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    let file = to.join("file").metadata().unwrap();
    assert_eq!(file.permissions().mode() & 0o7777, 0o444);
    assert_eq!(file.mtime(), 1_000_000_000);
    let mut value = [0; 64];
    assert!(rustix::fs::getxattr(to.join("file"), "user.x", &mut value[..]).is_ok());
}
