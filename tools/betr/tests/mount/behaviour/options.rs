//! The options of a mount.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};

use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat, setxattr};
use rustix::io::Errno;

use super::refused;
use crate::fixture::{
    BETR, Manifest, Mounted, NOBODY, as_user, betr, betr_only, program, run, unmount,
};

#[test]
fn read_only_means_it() {
    let Some(mut mount) = Mounted::sized("", 64 << 20) else { return };
    fs::create_dir_all(mount.at("dir/sub")).unwrap();
    fs::write(mount.at("file"), "content").unwrap();
    symlink("file", mount.at("link")).unwrap();
    let before = Manifest::of(mount.point());
    mount.unmount();
    let image = mount.image().to_owned();
    let state = || (fs::read(&image).unwrap(), fs::metadata(&image).unwrap().modified().unwrap());
    let untouched = state();
    mount.mount("ro");
    let at = |name: &str| mount.at(name);
    before.assert_same(&Manifest::of(mount.point()));
    refused(Errno::ROFS, fs::write(at("file"), ""));
    refused(Errno::ROFS, fs::write(at("new"), ""));
    refused(Errno::ROFS, File::options().append(true).open(at("file")));
    refused(Errno::ROFS, rustix::fs::access(at("file"), rustix::fs::Access::WRITE_OK));
    refused(Errno::ROFS, fs::create_dir(at("new")));
    refused(Errno::ROFS, symlink("x", at("new")));
    refused(Errno::ROFS, fs::hard_link(at("file"), at("new")));
    refused(Errno::ROFS, mknodat(CWD, at("new"), FileType::Fifo, Mode::RUSR, 0));
    refused(Errno::ROFS, fs::rename(at("file"), at("new")));
    refused(Errno::ROFS, fs::remove_file(at("file")));
    refused(Errno::ROFS, fs::remove_dir(at("dir/sub")));
    refused(Errno::ROFS, rustix::fs::chmod(at("file"), Mode::RUSR));
    refused(Errno::ROFS, std::os::unix::fs::chown(at("file"), Some(1), None));
    refused(Errno::ROFS, setxattr(at("file"), "user.a", b"", XattrFlags::empty()));
    let file = File::open(at("file")).unwrap();
    refused(Errno::ROFS, file.set_modified(std::time::SystemTime::now()));
    file.sync_all().unwrap();
    drop(file);
    before.assert_same(&Manifest::of(mount.point()));
    mount.unmount();
    // The bytes and times of the image are unchanged.
    assert!(state() == untouched);
    mount.fsck();
}

#[test]
fn a_read_only_mount_shares_the_image_with_readers() {
    if !betr_only() {
        return;
    }
    let Some(mut mount) = Mounted::new("") else { return };
    fs::write(mount.at("file"), "content").unwrap();
    mount.unmount();
    mount.mount("ro");
    let said = betr(["cat"]).arg(mount.image()).arg("/file").output().unwrap();
    assert!(said.status.success() && said.stdout == b"content", "{said:?}");
    // Writers are refused.
    let said = betr(["mkdir"]).arg(mount.image()).arg("/new").output().unwrap();
    assert!(!said.status.success());
    assert_eq!(fs::read_to_string(mount.at("file")).unwrap(), "content");
}

#[test]
fn a_plan_can_be_mounted() {
    if !betr_only() {
        return;
    }
    let Some(mut mount) = Mounted::sized("", 64 << 20) else { return };
    fs::write(mount.at("file"), "content").unwrap();
    mount.unmount();
    // An unused slot of the superblock ring.
    let image = File::options().write(true).open(mount.image()).unwrap();
    image.write_all_at(&[0xa5; 4096], (40 << 12) + 4096).unwrap();
    drop(image);
    let before = fs::read(mount.image()).unwrap();
    let plan = mount.beside("plan");
    let said = betr(["fsck", "-y", "--overlay"]).args([&plan, mount.image()]).output().unwrap();
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    let option = format!("overlay={}", plan.display());
    // The option requires ro, and an existing plan.
    for words in [option.clone(), format!("ro,{option}-not")] {
        let mut command = betr(["mount", "-o", &words]);
        let said = command.args([mount.image(), mount.point()]).output().unwrap();
        let text = String::from_utf8_lossy(&said.stderr);
        assert!(!said.status.success() && text.contains("plan"), "{said:?}");
    }
    mount.mount(&format!("ro,{option}"));
    assert_eq!(fs::read_to_string(mount.at("file")).unwrap(), "content");
    refused(Errno::ROFS, fs::write(mount.at("new"), ""));
    mount.unmount();
    assert!(fs::read(mount.image()).unwrap() == before);
}

#[test]
fn an_image_that_is_mounted_is_left_alone() {
    if !betr_only() {
        return;
    }
    let Some(mount) = Mounted::new("") else { return };
    let second = mount.beside("second");
    fs::create_dir(&second).unwrap();
    let link = mount.beside("link.img");
    symlink("t.img", &link).unwrap();
    for image in [mount.image(), &link] {
        for args in [&["mount", "-f"][..], &["mount"], &["mount", "-o", "ro"]] {
            let said = betr(args).args([image, &second]).output().unwrap();
            let err = String::from_utf8(said.stderr).unwrap();
            assert!(!said.status.success(), "mounted twice");
            assert!(err.contains(mount.point().to_str().unwrap()), "{err}");
        }
        for tool in [&["mkdir"][..], &["rm"], &["touch"]] {
            let said = betr(tool).arg(image).arg("/x").output().unwrap();
            let err = String::from_utf8(said.stderr).unwrap();
            assert!(!said.status.success(), "{tool:?} changed it");
            assert!(err.contains(mount.point().to_str().unwrap()), "{err}");
        }
    }
    fs::write(mount.at("file"), "works").unwrap();
}

#[test]
fn an_image_may_stand_within_another_file() {
    let Some(mut mount) = Mounted::new("") else { return };
    fs::write(mount.at("file"), "content").unwrap();
    mount.unmount();
    // Moved to an offset in its file: the bytes before it must stay unchanged.
    let moved = mount.beside("moved.img");
    let copy = |from: &std::path::Path, to: &std::path::Path, word: &str| {
        let words = [format!("if={}", from.display()), format!("of={}", to.display())];
        run(
            "dd",
            words.iter().map(String::as_str).chain(["bs=1M", "conv=sparse", "status=none", word]),
        );
    };
    copy(mount.image(), &moved, "seek=3");
    let length = fs::metadata(mount.image()).unwrap().size();
    let file = File::options().write(true).open(&moved).unwrap();
    file.set_len(length + (3 << 20)).unwrap();
    file.write_all_at(&[0xee; 3 << 20], 0).unwrap();
    drop(file);
    fs::rename(&moved, mount.image()).unwrap();
    mount.mount("offset=3145728");
    assert_eq!(fs::read_to_string(mount.at("file")).unwrap(), "content");
    fs::write(mount.at("other"), "more").unwrap();
    mount.remount();
    assert_eq!(fs::read_to_string(mount.at("other")).unwrap(), "more");
    mount.unmount();
    let mut before = vec![0; 3 << 20];
    File::open(mount.image()).unwrap().read_exact_at(&mut before, 0).unwrap();
    assert!(before.iter().all(|byte| *byte == 0xee));
    copy(mount.image(), &moved, "skip=3");
    fs::rename(&moved, mount.image()).unwrap();
    mount.fsck();
}

#[test]
fn everything_can_be_shown_as_somebody_elses() {
    if !betr_only() {
        return;
    }
    let Some(mut mount) = Mounted::new("") else { return };
    fs::write(mount.at("file"), "").unwrap();
    std::os::unix::fs::chown(mount.at("file"), Some(5), Some(6)).unwrap();
    mount.unmount();
    mount.mount("uid=1234,gid=4321");
    for name in [".", "file"] {
        let meta = fs::metadata(mount.at(name)).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (1234, 4321), "{name}");
    }
    mount.unmount();
    mount.mount("");
    let meta = fs::metadata(mount.at("file")).unwrap();
    assert_eq!((meta.uid(), meta.gid()), (5, 6));
}

#[test]
fn all_options_work_together() {
    let options = "rw,sync,commit=1,allow_other,noatime,nosuid,nodev";
    let Some(mut mount) = Mounted::new(options) else { return };
    fs::write(mount.at("file"), vec![7; 300_000]).unwrap();
    fs::create_dir(mount.at("dir")).unwrap();
    mount.settle();
    assert_eq!(fs::read(mount.at("file")).unwrap(), vec![7; 300_000]);
}

/// The exit codes are those of mount(8), and options without effect are reported.
#[test]
fn mount_ends_as_mount_does() {
    if !betr_only() {
        return;
    }
    let Some(mut mount) = Mounted::new("") else { return };
    mount.unmount();
    let try_with = |args: &[&str], image: &std::path::Path| {
        let said = betr(["mount"]).args(args).arg(image).arg(mount.point()).output().unwrap();
        (said.status.code().unwrap(), String::from_utf8(said.stderr).unwrap())
    };
    let image = mount.image().to_owned();
    for (args, image, code, text) in [
        (&["-o", "inode64"][..], &image, 1, "-o inode64: no such option"),
        (&["--no-such"], &image, 1, "--no-such"),
        (&["-N", "/proc/1/ns/mnt"], &image, 1, "nsenter"),
        (&[], &mount.beside("missing"), 32, "missing"),
        (&["-f"], &mount.beside("missing"), 32, "missing"),
        (&["-o", "remount"], &image, 32, "not mounted here"),
    ] {
        let (found, said) = try_with(args, image);
        assert!(found == code && said.contains(text), "{args:?}: {found}: {said}");
    }
    let (code, said) = try_with(&["-o", "rw,strictatime,umask=022,discard,acl"], &image);
    assert_eq!(code, 0, "{said}");
    for word in
        ["-o strictatime: nothing changes by that: ", "-o umask=022: nothing changes by that: "]
    {
        assert_eq!(said.matches(word).count(), 1, "{said}");
    }
    assert!(!said.contains("discard") && !said.contains("acl"), "{said}");
    unmount(mount.point());
    // The previous server may hold the image for a moment.
    mount.mount("nosymfollow");
    symlink("/etc/passwd", mount.at("link")).unwrap();
    refused(Errno::LOOP, fs::read(mount.at("link")));
}

/// A mount by root is accessible to all users, subject to permissions, unless it is restricted to root.
#[test]
fn what_root_mounts_is_there_for_all() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let Some(mut mount) = Mounted::new("") else { return };
    fs::write(mount.at("file"), "for all").unwrap();
    fs::write(mount.at("secret"), "for root").unwrap();
    rustix::fs::chmod(mount.at("secret"), Mode::RUSR).unwrap();
    as_user(NOBODY, NOBODY, || {
        assert_eq!(fs::read_to_string(mount.at("file")).unwrap(), "for all");
        refused(Errno::ACCESS, fs::read(mount.at("secret")));
    });
    if betr_only() {
        mount.unmount();
        mount.mount("noallow_other");
        as_user(NOBODY, NOBODY, || refused(Errno::ACCESS, fs::read(mount.at("file"))));
        assert_eq!(fs::read_to_string(mount.at("file")).unwrap(), "for all");
    }
}

/// A missing FUSE device is reported.
#[test]
fn a_device_that_is_missing_is_named() {
    let can = rustix::process::geteuid().is_root() && program("unshare").is_some();
    if !can || !betr_only() {
        return;
    }
    let Some(mut mount) = Mounted::new("") else { return };
    mount.unmount();
    let script = "mount -t tmpfs none /dev && exec \"$0\" mount -f \"$1\" \"$2\"";
    let mut command = std::process::Command::new("unshare");
    command.args(["-m", "sh", "-c", script, BETR]).arg(mount.image()).arg(mount.point());
    let said = command.output().unwrap();
    let text = String::from_utf8(said.stderr).unwrap();
    assert_eq!(said.status.code(), Some(32), "{text}");
    assert!(text.contains("/dev/fuse: No such file") && text.contains("modprobe fuse"), "{text}");
}
