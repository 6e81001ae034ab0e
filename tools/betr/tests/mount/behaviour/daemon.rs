//! The process behind the mount: how it begins, goes on in the background, and ends.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use crate::fixture::{Manifest, Mounted, betr, betr_only, is_mounted, run};

/// What the arguments of a mount make of an image that is not mounted.
fn mounts(command: &mut Command, mount: &Mounted) {
    let begun = Instant::now();
    let status = command.status().unwrap();
    assert!(status.success(), "{status}");
    assert!(begun.elapsed() < Duration::from_secs(20), "it does not go to the background");
    // It works as soon as the command has ended.
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
        run("umount", [mount.point()]);
        // Whoever opens the image next waits until the daemon is done with it.
        if round % 2 == 0 {
            mount.fsck();
        }
    }
    let names = betr(["ls"]).arg(mount.image()).output().unwrap().stdout;
    assert_eq!(String::from_utf8(names).unwrap().matches("round-").count(), 5);

    // As mount(8) calls it, from another directory, with words in its order.
    let helper = mount.beside("mount.betr");
    symlink(crate::fixture::BETR, &helper).unwrap();
    let mut command = Command::new(&helper);
    command.current_dir(mount.beside("")).args(["t.img", "mnt", "-o", "rw,noatime"]);
    mounts(&mut command, &mount);
    fs::remove_file(mount.at("round-0")).unwrap();
    run("umount", [mount.point()]);
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
    // The image is the source, and the type says whose it is.
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
