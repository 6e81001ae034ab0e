//! Effects of the host on a mount: its file system is full, or other processes change the file of the image.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tempfile::TempDir;

use crate::fixture::{Random, betr, betr_only, is_mounted, run, try_run, unmount};

const PATIENCE: Duration = Duration::from_secs(30);

/// An image on a small mounted file system, and its server.
struct Host {
    dir: TempDir,
    server: Option<Child>,
}

impl Host {
    /// A host of a given size, with a sparse image of 256 MiB; `None`, with a note, if mounts are not possible.
    fn new(size: &str) -> Option<Host> {
        if !betr_only() {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let host = Host { dir, server: None };
        for name in ["host", "mnt"] {
            fs::create_dir(host.path(name)).unwrap();
        }
        let options = format!("size={size}");
        let disk = host.path("host");
        run(
            "mount",
            [
                "-t".as_ref(),
                "tmpfs".as_ref(),
                "-o".as_ref(),
                options.as_ref(),
                "tmpfs".as_ref(),
                disk.as_os_str(),
            ],
        );
        let made = betr(["mkfs", "-q"]).arg(host.image()).arg("256M").status().unwrap();
        assert!(made.success());
        Some(host)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn image(&self) -> PathBuf {
        self.path("host/t.img")
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path("mnt").join(name)
    }

    fn mount(&mut self) {
        let log = File::options().create(true).append(true).open(self.path("log")).unwrap();
        let mut command = betr(["mount", "-f", "-o", "commit=1"]);
        let child = command.args([self.image(), self.path("mnt")]).stderr(Stdio::from(log)).spawn();
        self.server = Some(child.unwrap());
        wait("a mount", || is_mounted(&self.path("mnt")));
        fs::metadata(self.path("mnt")).unwrap();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    /// Unmounts. Returns whether the server ended successfully.
    fn unmount(&mut self) -> bool {
        unmount(&self.path("mnt"));
        self.server.take().unwrap().wait().unwrap().success()
    }

    fn fsck(&self) {
        let output = betr(["fsck", "-fn"]).arg(self.image()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    /// The output of `betr status`.
    fn status(&self) -> String {
        let output = betr(["status"]).arg(self.path("mnt")).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for name in ["mnt", "host"] {
            if is_mounted(&self.path(name)) {
                let _ = try_run("umount", ["-l".as_ref(), self.path(name).as_os_str()]);
            }
        }
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

#[track_caller]
fn wait(what: &str, is_there: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_there() {
        assert!(begun.elapsed() < PATIENCE, "{what} is waited for");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Fills the remaining space of a file system.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    for len in [1 << 20, 4096] {
        while file.write_all(&vec![1; len]).is_ok() {}
    }
}

#[test]
fn a_full_host_refuses_changes_until_there_is_room() {
    let Some(mut host) = Host::new("96M") else { return };
    host.mount();
    let content = Random::new(3, 0).bytes(1 << 20);
    fs::write(host.at("before"), &content).unwrap();
    File::open(host.at("before")).unwrap().sync_all().unwrap();
    for round in 0..3 {
        fill(&host.path("host/filler"));
        let mut written = Vec::new();
        let refused = (0..200).find_map(|number| {
            let path = host.at(&format!("{round}-{number}"));
            let done = File::create(&path).and_then(|mut file| {
                file.write_all(&content)?;
                written.push(path.clone());
                file.sync_all()
            });
            done.err()
        });
        let refused = refused.expect("the host is full");
        assert_eq!(Errno::from_io_error(&refused), Some(Errno::NOSPC), "{refused}");
        let made = fs::create_dir(host.at("refused")).unwrap_err();
        assert_eq!(Errno::from_io_error(&made), Some(Errno::NOSPC), "{made}");
        assert!(host.status().contains("Host: full"), "{}", host.status());
        // Accepted writes can be read, and become durable once there is space, without a sync.
        for path in &written {
            assert!(fs::read(path).unwrap() == content, "{}", path.display());
        }
        fs::remove_file(host.path("host/filler")).unwrap();
        let again = |text: &str| host.log().matches(text).count() == round + 1;
        wait("a word of it", || again("there is room again"));
        assert!(again("No space left on device"), "{}", host.log());
        assert!(host.status().contains("read-write"), "{}", host.status());
        // Unsynced changes may be lost now; changes that the server reported as durable are kept.
        host.server.as_mut().unwrap().kill().unwrap();
        host.server.take().unwrap().wait().unwrap();
        run("umount", ["-l".as_ref(), host.path("mnt").as_os_str()]);
        host.fsck();
        host.mount();
        for path in written.iter().chain([&host.at("before")]) {
            assert!(fs::read(path).unwrap() == content, "{}", path.display());
        }
        written.iter().for_each(|path| fs::remove_file(path).unwrap());
    }
    assert!(host.unmount());
    host.fsck();
}

#[test]
fn an_unmount_on_a_full_host_waits_for_room() {
    let Some(mut host) = Host::new("96M") else { return };
    host.mount();
    let content = Random::new(4, 0).bytes(3 << 20);
    fill(&host.path("host/filler"));
    fs::write(host.at("file"), &content).unwrap();
    unmount(&host.path("mnt"));
    wait("a word of it", || host.log().contains("until there is room"));
    assert!(host.server.as_mut().unwrap().try_wait().unwrap().is_none(), "{}", host.log());
    fs::remove_file(host.path("host/filler")).unwrap();
    assert!(host.server.take().unwrap().wait().unwrap().success(), "{}", host.log());
    host.fsck();
    host.mount();
    assert!(fs::read(host.at("file")).unwrap() == content);
    assert!(host.unmount());
}

#[test]
fn a_file_that_was_cut_ends_the_writing() {
    for idle in [false, true] {
        let Some(mut host) = Host::new("96M") else { return };
        host.mount();
        fs::write(host.at("file"), vec![1; 100_000]).unwrap();
        let file = File::open(host.at("file")).unwrap();
        file.sync_all().unwrap();
        File::options().write(true).open(host.image()).unwrap().set_len(1 << 20).unwrap();
        if !idle {
            fs::write(host.at("next"), vec![2; 100_000]).unwrap();
        }
        let refused = file.sync_all().unwrap_err();
        assert_eq!(Errno::from_io_error(&refused), Some(Errno::IO), "{refused}");
        let refused = fs::create_dir(host.at("dir")).unwrap_err();
        assert_eq!(Errno::from_io_error(&refused), Some(Errno::ROFS), "{refused}");
        assert!(host.status().contains("read-only"), "{}", host.status());
        let log = host.log();
        assert!(
            log.contains("has become shorter: it had 268435456 bytes, and has 1048576"),
            "{log}"
        );
        drop(file);
        assert!(!host.unmount());
        assert_eq!(fs::metadata(host.image()).unwrap().len(), 1 << 20, "nothing was written");
    }
}

#[test]
fn a_file_that_was_replaced_is_written_on() {
    let Some(mut host) = Host::new("96M") else { return };
    host.mount();
    let kept = host.path("host/kept.img");
    fs::rename(host.image(), &kept).unwrap();
    fs::write(host.at("file"), "content").unwrap();
    File::open(host.at("file")).unwrap().sync_all().unwrap();
    assert_eq!(host.log().matches("leads to nothing now").count(), 1, "{}", host.log());
    assert!(host.status().contains("leads to nothing now"), "{}", host.status());
    fs::write(host.image(), "another file").unwrap();
    for _ in 0..2 {
        fs::write(host.at("next"), "content").unwrap();
        File::open(host.at("next")).unwrap().sync_all().unwrap();
    }
    assert_eq!(host.log().matches("leads to another file now").count(), 1, "{}", host.log());
    assert!(host.status().contains("leads to another file now"), "{}", host.status());
    assert!(host.unmount(), "{}", host.log());
    assert_eq!(fs::read(host.image()).unwrap(), b"another file");
    let found = betr(["cat"]).args([kept.as_os_str(), "/next".as_ref()]).output().unwrap();
    assert_eq!(found.stdout, b"content");
}
