//! The names that mkfs(8), fsck(8) and mount(8) search for: the tool that the binary runs under each name.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use betr_cli::skip::{need, program};

use crate::support::*;

/// Links with all these names, in a directory of their own.
fn links(dir: &Path) -> PathBuf {
    let bin = dir.join("bin");
    std::fs::create_dir(&bin).unwrap();
    for name in ["mkfs.betr", "fsck.betr", "fsck.betr.old", "mount.betr", "mount.fuse.betr"] {
        symlink(BETR, bin.join(name)).unwrap();
    }
    bin
}

fn output(program: &Path, line: &str, image: &Path) -> Output {
    Command::new(program).args(words(line, image, image)).output().unwrap()
}

#[test]
fn the_name_stands_for_the_tool() {
    let (_guard, dir) = scratch();
    let (bin, image) = (links(&dir), dir.join("t.img"));
    let (mkfs, fsck) = (bin.join("mkfs.betr"), bin.join("fsck.betr"));
    for (program, line, code, expected) in [
        (&mkfs, "IMG 2M -L named", 0, "Label: named"),
        (&mkfs, "IMG 2M", 1, "already holds a betr file system labelled \"named\""),
        (&mkfs, "--no-such-option", 1, "Usage: betr mkfs"),
        (&mkfs, "", 1, "Usage: betr mkfs"),
        (&mkfs, "--help", 0, "Usage: betr mkfs"),
        (&mkfs, "-V", 0, "0."),
        (&fsck, "-n IMG", 0, "named: clean"),
        (&fsck, "IMG", 0, "named: clean"),
        (&fsck, "-fp IMG", 0, "named: clean"),
        (&fsck, "-a IMG", 0, "named: clean"),
        (&fsck, "-n -y IMG", 16, "Usage: betr fsck"),
        (&fsck, "--no-such-option", 16, "Usage: betr fsck"),
        (&fsck, "", 16, "Usage: betr fsck"),
        (&fsck, "-n /no/such/image", 8, "does not exist"),
        (&fsck, "--help", 0, "Usage: betr fsck"),
        (&fsck, "-V", 0, "0."),
    ] {
        let output = output(program, line, &image);
        let (out, err) = text(&output);
        assert_eq!(output.status.code(), Some(code), "{program:?} {line}: {out}{err}");
        assert!(format!("{out}{err}").contains(expected), "{program:?} {line}: {out}{err}");
    }
}

#[test]
fn any_other_name_is_betr() {
    let (_guard, dir) = scratch();
    let bin = links(&dir);
    let output = output(&bin.join("fsck.betr.old"), "ls", &dir);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).1.contains("fsck.betr.old ls"));
}

#[test]
fn the_front_ends_of_the_system_find_it() {
    let (_guard, dir) = scratch();
    let (bin, image) = (links(&dir), dir.join("t.img"));
    let (mkfs, fsck) = (program("mkfs"), program("fsck"));
    if !need("mkfs and fsck of util-linux", mkfs.is_some() && fsck.is_some()) {
        return;
    }
    let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", bin.display());
    let run = |program: &Path, line: &str| {
        let mut command = Command::new(program);
        let output = command.args(words(line, &image, &dir)).env("PATH", &path).output().unwrap();
        (output.status.code(), format!("{:?}", text(&output)))
    };
    let (mkfs, fsck) = (mkfs.unwrap(), fsck.unwrap());
    let (code, both) = run(&mkfs, "-t betr -L front IMG 2M");
    assert!(code == Some(0) && both.contains("Label: front"), "{both}");
    assert_eq!(run(&mkfs, "-t betr IMG 2M").0, Some(1));
    let (code, both) = run(&fsck, "-t betr -T -a IMG");
    assert!(code == Some(0) && both.contains("front: clean"), "{both}");
    let (code, both) = run(&fsck, "-t betr -T -n -f IMG");
    assert!(code == Some(0) && both.contains("front: clean"), "{both}");
    assert_eq!(run(&fsck, "-t betr -T -n -p IMG").0, Some(16));
    // fsck(8) passes unknown options to the checker, whose exit code it returns.
    std::fs::write(&image, b"no image").unwrap();
    assert_eq!(run(&fsck, "-t betr -T -n IMG").0, Some(8));
}

/// mount(8) searches its helpers only in /sbin; they are bound there in this mount namespace.
#[test]
fn mount_finds_it() {
    let (_guard, dir) = scratch();
    let (bin, image) = (links(&dir), dir.join("t.img"));
    let mkfs = output(&bin.join("mkfs.betr"), "IMG 16M", &image);
    assert!(mkfs.status.success(), "{:?}", text(&mkfs));
    let fuse = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    let unshare = program("unshare").is_some() && program("mount").is_some();
    if !need("root, /dev/fuse, and mount and unshare of util-linux", fuse && unshare) {
        return;
    }
    let script = "set -e; sbin=$(realpath /sbin); mkdir mnt
        mount --bind bin $sbin
        mount -t betr -o nosuid,commit=5 t.img mnt; echo written > mnt/file; grep -c 'nosuid.*fuse.betr' /proc/self/mountinfo
        mount -o remount,ro mnt; touch mnt/other 2>&1 || true; mount -o remount,rw mnt; touch mnt/other
        umount mnt; echo \"$PWD/t.img $PWD/mnt betr ro 0 2\" > fstab
        mount -T fstab $PWD/mnt; cat mnt/file; mount -o remount,rw mnt 2>&1 || true; umount mnt
        mount -t betr -o no_such_option t.img mnt 2>&1 || true; fsck.betr -fn t.img";
    let mut command = Command::new("unshare");
    let run = command.args(["-m", "sh", "-c", script]).current_dir(&dir).output().unwrap();
    let (out, err) = text(&run);
    let mut lines = out.lines();
    for expected in [
        "1",
        "touch: cannot touch 'mnt/other': Read-only file system",
        "written",
        "the server has the image open for reading only",
        "-o no_such_option: no such option",
        ": clean, ",
    ] {
        let line = lines.next().unwrap_or_default();
        assert!(line.contains(expected), "{expected}: {line}: {out}{err}");
    }
    assert!(run.status.success(), "{out}{err}");
}
