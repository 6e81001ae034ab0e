//! The server process: its start, its work in the background, and its end.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use crate::fixture::{
    Manifest, Mounted, NOBODY, betr, betr_only, is_mounted, program, run, said, try_run, unmount,
};

/// Runs a mount command on an image that is not mounted.
fn mounts(command: &mut Command, mount: &Mounted) {
    let begun = Instant::now();
    let status = command.status().unwrap();
    assert!(status.success(), "{status}");
    assert!(begun.elapsed() < Duration::from_secs(20), "it does not go to the background");
    // The mount works as soon as the command has ended.
    assert!(is_mounted(mount.point()));
    assert_eq!(fs::read_to_string(mount.at("file")).unwrap(), "content");
}

#[test]
fn it_goes_on_in_the_background() {
    if !betr_only() {
        return;
    }
    let Some(mut mount) = Mounted::new("") else { return };
    fs::write(mount.at("file"), "content").unwrap();
    mount.unmount();
    for round in 0..5 {
        mounts(betr(["mount"]).args([mount.image(), mount.point()]), &mount);
        fs::write(mount.at(&format!("round-{round}")), "made").unwrap();
        unmount(mount.point());
        // The next program that opens the image waits until the daemon has closed it.
        if round % 2 == 0 {
            mount.fsck();
        }
    }
    let names = betr(["ls"]).arg(mount.image()).output().unwrap().stdout;
    assert_eq!(String::from_utf8(names).unwrap().matches("round-").count(), 5);

    // As mount(8) calls the helper: from another directory, with its order of arguments.
    let helper = mount.beside("mount.betr");
    symlink(crate::fixture::BETR, &helper).unwrap();
    let mut command = Command::new(&helper);
    command.current_dir(mount.beside("")).args(["t.img", "mnt", "-o", "rw,noatime"]);
    mounts(&mut command, &mount);
    fs::remove_file(mount.at("round-0")).unwrap();
    unmount(mount.point());
    mount.fsck();
}

#[test]
fn it_shows_what_is_mounted() {
    if !betr_only() {
        return;
    }
    let Some(mount) = Mounted::new("noatime") else { return };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = mounts.lines().find(|line| line.contains(mount.point().to_str().unwrap())).unwrap();
    // The image is the source, and the type names betr.
    assert!(line.contains(&format!(" - fuse.betr {} ", mount.image().display())), "{line}");
    assert!(line.contains("noatime"), "{line}");
}

#[test]
fn signals_end_it_as_an_unmount_does() {
    if !betr_only() {
        return;
    }
    let Some(mut mount) = Mounted::new("") else { return };
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let dir = mount.at(&format!("{signal:?}"));
        fs::create_dir(&dir).unwrap();
        for number in 0..50 {
            fs::write(dir.join(number.to_string()), vec![number; 20_000]).unwrap();
        }
        let before = Manifest::of(mount.point());
        kill_process(mount.daemon().unwrap(), signal).unwrap();
        let status = mount.end_of_daemon().unwrap();
        assert!(status.success(), "{signal:?}: {status}");
        assert!(!is_mounted(mount.point()), "{signal:?}");
        mount.fsck();
        mount.mount("");
        before.assert_same(&Manifest::of(mount.point()));
    }
}

/// The daemon keeps no descriptors of the shell that started it, and is not bound by its limits.
#[test]
fn it_lets_go_of_who_has_started_it() {
    if !betr_only() || program("flock").is_none() {
        return;
    }
    let Some(mut mount) = Mounted::new("") else { return };
    mount.unmount();
    let script = r#"exec 9>lock; flock 9; ulimit -S -f 4000; "$1" mount t.img mnt"#;
    let dir = mount.beside("");
    said("sh", &dir, ["-c", script, "sh", crate::fixture::BETR]);
    said("flock", &dir, ["-n", "lock", "true"]);
    fs::write(mount.at("large"), vec![7; 20 << 20]).unwrap();
    let fsync = fs::File::open(mount.at("large")).unwrap().sync_all();
    assert!(fsync.is_ok(), "{fsync:?}");
    assert_eq!(fs::read(mount.at("large")).unwrap(), vec![7; 20 << 20]);
    unmount(mount.point());
    mount.fsck();
    mount.mount("");
}

/// Users other than root mount with fusermount3, and a signal ends that mount, too.
#[test]
fn users_mount_for_themselves() {
    if !betr_only() || program("fusermount3").is_none() {
        return;
    }
    let Some(mut mount) = Mounted::new("") else { return };
    mount.unmount();
    run(
        crate::fixture::BETR,
        ["chown".as_ref(), mount.image().as_os_str(), "65534".as_ref(), "/".as_ref()],
    );
    let (image, own) = (mount.beside("a, b\\c.img"), mount.beside("own"));
    fs::rename(mount.image(), &image).unwrap();
    fs::create_dir(&own).unwrap();
    for path in [&image, &own] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    // All users may use /dev/fuse in this namespace, which would otherwise keep mounts of other tests alive.
    let script = r#"set -e
        for other in $(grep -o '[^ ]*/betr-mount-[^ ]*/mnt' /proc/self/mountinfo); do umount -l $other; done
        mknod fuse c 10 229; chmod 666 fuse; mount --bind fuse /dev/fuse
        user="setpriv --reuid=65534 --regid=65534 --clear-groups"
        timeout 60 $user "$1" mount -f "$2" own & server=$!
        until grep -q /own /proc/self/mountinfo || ! kill -0 $server; do sleep 0.01; done
        grep /own /proc/self/mountinfo; $user sh -c 'echo written >own/file'
        kill $server; wait $server; ! grep /own /proc/self/mountinfo
        $user "$1" cat "$2" /file"#;
    let words = ["-m", "sh", "-c", script, "sh", crate::fixture::BETR].map(OsStr::new);
    let said = said("unshare", &mount.beside(""), words.into_iter().chain([image.as_os_str()]));
    assert!(said.contains(r"/a,\040b\134c.img rw"), "{said}");
    assert!(said.ends_with("\nwritten\n"), "{said}");
    fs::rename(&image, mount.image()).unwrap();
    mount.mount("");
}

/// After umount(8) has returned, the server may still hold a block device exclusively; commands wait for it.
#[test]
fn a_block_device_is_waited_for() {
    if !betr_only() || program("losetup").is_none() {
        return;
    }
    let Some(mut mount) = Mounted::new("") else { return };
    mount.unmount();
    let image = mount.image().as_os_str();
    let device = said("losetup", Path::new("/"), ["-f".as_ref(), "--show".as_ref(), image]);
    let device = LoopDevice(device.trim().into());
    for round in 0..5 {
        let mounted = betr(["mount"]).args([&device.0, mount.point()]).output().unwrap();
        assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
        for number in 0..200 {
            fs::write(mount.at(&format!("{round}-{number}")), vec![7; 50_000]).unwrap();
        }
        unmount(mount.point());
    }
    let clean = betr(["fsck", "-fn"]).arg(&device.0).output().unwrap();
    assert!(clean.status.success(), "{}", String::from_utf8_lossy(&clean.stderr));
    // The loop device is detached with the end of the server, and the image is free again.
    let mounted = betr(["mount"]).args([&device.0, mount.point()]).output().unwrap();
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    fs::write(mount.at("last"), vec![7; 5_000_000]).unwrap();
    unmount(mount.point());
    drop(device);
    mount.fsck();
    mount.mount("");
}

/// A loop device, detached when the test ends.
struct LoopDevice(PathBuf);

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = try_run("losetup", ["-d".as_ref(), self.0.as_os_str()]);
    }
}

#[test]
fn what_cannot_be_mounted_says_why() {
    if !betr_only() {
        return;
    }
    let Some(mut mount) = Mounted::new("") else { return };
    mount.unmount();
    let (file, foreign) = (mount.beside("file"), mount.beside("foreign.img"));
    fs::write(&file, "a file").unwrap();
    fs::write(&foreign, vec![7; 1 << 20]).unwrap();
    let none = mount.beside("none");
    let (image, point) = (mount.image(), mount.point());
    let cases: [(&[&str], &Path, &Path, &str); 7] = [
        (&[], &none, point, "none"),
        (&[], image, &none, "none"),
        (&[], image, &file, "file"),
        (&[], &foreign, point, "foreign.img"),
        (&["-o", "nonsense"], image, point, "nonsense"),
        (&["-o", "commit=never"], image, point, "never"),
        (&["-o", "offset=4096"], image, point, "t.img"),
    ];
    for (options, image, at, word) in cases {
        for mode in [&["mount"][..], &["mount", "-f"]] {
            let said = betr(mode).args(options).args([image, at]).output().unwrap();
            let err = String::from_utf8(said.stderr).unwrap();
            assert!(!said.status.success() && err.contains(word), "{options:?} {word}: {err}");
            assert!(!is_mounted(point), "{options:?}: mounted nevertheless");
        }
    }
    mount.mount("");
}
