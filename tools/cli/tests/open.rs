//! Opening images: accepted and refused files, and the messages of refusals.

use betr_cli::image::{Access, OpenError, create, open};
use betr_cli::skip;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

fn image(dir: &Path, len: u64) -> PathBuf {
    let path = dir.join("disk.img");
    File::create(&path).unwrap().set_len(len).unwrap();
    path
}

/// Serializes the tests. A child process briefly holds the locks of all open files between fork and exec, and a search
/// for a free loop device may open one that another test holds.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the message of the refusal, which must name the file.
fn refused<T: std::fmt::Debug>(result: Result<T, OpenError>, path: &Path) -> String {
    let message = result.unwrap_err().to_string();
    assert!(message.contains(path.file_name().unwrap().to_str().unwrap()), "{message}");
    message
}

#[test]
fn a_file_is_opened_with_its_length() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), 12345);
    symlink(&path, dir.path().join("link")).unwrap();
    for access in [Access::Read, Access::Write] {
        let opened = open(dir.path().join("link"), access).unwrap();
        assert_eq!((opened.len, opened.is_block_device), (12345, false));
    }
}

#[test]
fn what_is_no_image_is_refused_at_once() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status();
    if !skip::need("the program mkfifo", made.is_ok_and(|status| status.success())) {
        return;
    }
    let socket = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let cases = [
        (dir.path(), "a directory"),
        (&fifo, "a pipe (FIFO)"),
        (&socket, "a socket"),
        (Path::new("/dev/null"), "a character device"),
        (&dir.path().join("none"), "does not exist"),
    ];
    for (path, expected) in cases {
        for access in [Access::Read, Access::Write] {
            let message = refused(open(path, access), path);
            assert!(message.contains(expected), "{message}");
        }
        if path.exists() {
            let message = refused(create(path, 4096, true), path);
            assert!(message.contains(expected), "{message}");
        }
    }
}

#[test]
fn readers_share_and_writers_do_not() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), 4096);
    let me = format!("process {} (", std::process::id());

    let reader = open(&path, Access::Read).unwrap();
    open(&path, Access::Read).unwrap();
    let message = refused(open(&path, Access::Write), &path);
    assert!(message.contains(&me), "{message}");
    assert!(message.contains("nothing else uses it"), "{message}");
    drop(reader);

    let writer = open(&path, Access::Write).unwrap();
    for result in [open(&path, Access::Read), open(&path, Access::Write)] {
        let message = refused(result, &path);
        assert!(message.contains(&me), "{message}");
    }
    let message = refused(create(&path, 4096, true), &path);
    assert!(message.contains(&me), "{message}");
    drop(writer);
    open(&path, Access::Write).unwrap();
}

#[test]
fn the_holder_in_another_process_is_named() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), 4096);
    if !skip::need("the program flock", skip::program("flock").is_some()) {
        return;
    }
    // The child prints that it holds the lock, then keeps it until its standard input ends.
    let mut child = Command::new(skip::program("flock").unwrap())
        .args(["--no-fork", "-x"])
        .arg(&path)
        .args(["sh", "-c", "echo locked; read line"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut byte = [0];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut byte).unwrap();
    let message = refused(open(&path, Access::Read), &path);
    assert!(message.contains(&format!("process {} (sh)", child.id())), "{message}");
    drop(child.stdin.take());
    child.wait().unwrap();
    open(&path, Access::Write).unwrap();
}

#[test]
fn an_odd_name_cannot_disturb_the_terminal() {
    let _alone = alone();
    let message = open("/nowhere/\x1b[2Jx\n", Access::Read).unwrap_err().to_string();
    assert!(message.starts_with("/nowhere/\\x1b[2Jx\\x0a does not exist"), "{message}");
}

/// A loop device that is detached on drop, even if the test fails.
struct Loop(String);

impl Loop {
    fn attach(path: &Path) -> Option<Loop> {
        let losetup = skip::program("losetup")?;
        let output = Command::new(losetup).args(["-f", "--show"]).arg(path).output().ok()?;
        let device = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        (output.status.success() && !device.is_empty()).then_some(Loop(device))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new(skip::program("losetup").unwrap()).args(["-d", &self.0]).status();
    }
}

/// A mount that is unmounted on drop.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// An image of 4 MiB in its own directory with a loop device on it; `None`, with a note, if loop devices are
/// unavailable.
fn attached() -> Option<(tempfile::TempDir, PathBuf, Loop)> {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), 4 << 20);
    let device = Loop::attach(&path);
    skip::need("loop devices (root, losetup)", device.is_some());
    Some((dir, path, device?))
}

#[test]
fn a_loop_device_protects_its_file_and_can_be_written_itself() {
    let _alone = alone();
    let Some((dir, path, device)) = attached() else { return };

    open(&path, Access::Read).unwrap();
    for result in [open(&path, Access::Write).map(drop), create(&path, 4096, true).map(drop)] {
        let message = refused(result, &path);
        assert!(message.contains(&format!("losetup -d {}", device.0)), "{message}");
    }
    // A second name is refused as well: inodes are compared, not names.
    let other = dir.path().join("other.img");
    fs::hard_link(&path, &other).unwrap();
    let message = refused(open(&other, Access::Write), &other);
    assert!(message.contains(&device.0), "{message}");

    let opened = open(&device.0, Access::Write).unwrap();
    assert_eq!((opened.len, opened.is_block_device), (4 << 20, true));
    let message = open(&device.0, Access::Write).unwrap_err().to_string();
    assert!(message.contains("in use"), "{message}");
    drop(opened);

    let new = create(&device.0, 1 << 20, false).unwrap();
    assert!(new.is_device());
    assert!(matches!(new.set_len(5 << 20), Err(OpenError::TooSmall { .. })));
    std::os::unix::fs::FileExt::write_all_at(&*new.file, b"data", 0).unwrap();
    new.commit().unwrap();
    assert_eq!(&fs::read(&path).unwrap()[..4], b"data");
    let message = create(&device.0, 1 << 20, false).unwrap_err().to_string();
    assert!(message.contains("holds data") && message.contains("-f"), "{message}");
    let error = create(&device.0, 5 << 20, true).map(drop).unwrap_err();
    assert!(matches!(error, OpenError::TooSmall { .. }), "{error}");
    create(&device.0, 1 << 20, true).unwrap();
}

#[test]
fn a_loop_device_is_refused_while_its_file_is_in_use() {
    let _alone = alone();
    let Some((_dir, path, device)) = attached() else { return };
    let reader = open(&path, Access::Read).unwrap();
    open(&device.0, Access::Read).unwrap();
    let wanted = [open(&device.0, Access::Write).map(drop), create(&device.0, 1, true).map(drop)];
    for result in wanted {
        let message = refused(result, &path);
        assert!(message.contains(&device.0) && message.contains("locked by process"), "{message}");
    }
    drop(reader);
    // A mount of the backing file, made before the device was attached, holds such an exclusive lock.
    let writer = File::open(&path).unwrap();
    writer.lock().unwrap();
    for access in [Access::Read, Access::Write] {
        let message = refused(open(&device.0, access), &path);
        assert!(message.contains("locked by process"), "{message}");
    }
    // A loop device on a loop device leads to the same file.
    if let Some(second) = Loop::attach(Path::new(&device.0)) {
        let message = refused(open(&second.0, Access::Write), &path);
        assert!(message.contains(&second.0), "{message}");
    }
    drop(writer);
    open(&device.0, Access::Write).unwrap();
}

#[test]
fn a_mounted_device_and_its_file_are_refused() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), 4 << 20);
    let at = dir.path().canonicalize().unwrap().join("mount point");
    fs::create_dir(&at).unwrap();
    let Some(mkfs) = skip::program("mkfs.ext4") else {
        skip::need("the program mkfs.ext4", false);
        return;
    };
    assert!(Command::new(mkfs).arg("-q").arg(&path).status().unwrap().success());
    let attached = Loop::attach(&path);
    if !skip::need("loop devices (root, losetup)", attached.is_some()) {
        return;
    }
    let device = attached.unwrap();
    let mount = Command::new("mount").args(["-t", "ext4", &device.0]).arg(&at).status();
    if !skip::need("mounting ext4", mount.is_ok_and(|status| status.success())) {
        return;
    }
    let mounted = Mounted(at.clone());
    for target in [Path::new(&device.0), &path] {
        for result in [open(target, Access::Write).map(drop), create(target, 1, true).map(drop)] {
            let message = refused(result, target);
            assert!(message.contains(&format!("mounted at {}", at.display())), "{message}");
        }
    }
    drop(mounted);
    let message = create(&device.0, 1, false).unwrap_err().to_string();
    assert!(message.contains("holds an ext4 file system"), "{message}");
}
