//! `betr mkfs`: sizes, refusals, and the state after a failure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use betr_cli::skip::{need, program};
use predicates::prelude::*;

use crate::support::*;
use crate::tree::set_mode;

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

#[test]
fn sizes_are_read_with_their_units() {
    let (_guard, dir) = scratch();
    for (size, bytes) in [
        ("2M", 2 << 20),
        ("2097152", 2 << 20),
        ("2MiB", 2 << 20),
        ("2MB", 1_998_848),
        ("512b", 2 << 20),
        ("4096s", 2 << 20),
        ("2048k", 2 << 20),
        ("2097153", 2 << 20),
        ("1M", 1 << 20),
        ("1T", 1 << 40),
    ] {
        let image = dir.join(size);
        run(&format!("mkfs IMG {size}"), &image, &dir, 0);
        assert_eq!(fs::metadata(&image).unwrap().len(), bytes, "{size}");
        run("fsck -fn IMG", &image, &dir, 0);
    }
    for size in ["2X", "", "1.5M", "0", "1020K", "17T"] {
        let image = dir.join("refused");
        let (out, err) = run(&format!("mkfs IMG {size}"), &image, &dir, 1);
        assert!(out.is_empty() && !err.is_empty() && !image.exists(), "{size}: {out}{err}");
    }
    // Without a size: that of the existing file.
    let image = dir.join("there");
    fs::File::create(&image).unwrap().set_len(3 << 20).unwrap();
    run("mkfs IMG", &image, &dir, 0);
    assert_eq!(fs::metadata(&image).unwrap().len(), 3 << 20);
}

#[test]
fn what_holds_data_is_replaced_with_force_alone() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    fs::write(dir.join("data"), "precious").unwrap();
    let mut found = vec![(image, "a betr file system"), (dir.join("data"), "data")];
    let mkfs = program("mkfs.ext4");
    if need("mkfs.ext4", mkfs.is_some()) {
        let path = dir.join("ext4");
        fs::File::create(&path).unwrap().set_len(4 << 20).unwrap();
        let made = Command::new(mkfs.unwrap()).args(["-q", "-F", "-L", "old"]).arg(&path).status();
        assert!(made.unwrap().success());
        found.push((path, "an ext4 file system labelled \"old\""));
    }
    for (image, what) in found {
        age(&image);
        let before = fingerprint(&image);
        for line in ["mkfs IMG 2M", "mkfs -q IMG 2M", "mkfs --json IMG 2M -d DIR/folder"] {
            let (out, err) = run(line, &image, &dir, 1);
            assert!(out.is_empty() && err.contains("-f"), "betr {line}: {err}");
            assert!(err.contains(&format!("already holds {what}")), "betr {line}: {err}");
        }
        // A later failure keeps the old image, too.
        run("mkfs -f IMG 2M -d DIR/none", &image, &dir, 1);
        run("mkfs -f IMG 64K", &image, &dir, 1);
        assert!(fingerprint(&image) == before, "{image:?} was written to");
        run("mkfs -f IMG 2M -L new", &image, &dir, 0);
        let (out, _) = run("fsck -fn IMG", &image, &dir, 0);
        assert!(out.starts_with("new: clean"), "{out}");
    }
}

#[test]
fn wrong_options_are_refused_before_anything_is_made() {
    let (_guard, dir) = scratch();
    let image = dir.join("t.img");
    let long = "x".repeat(65);
    let two_bytes_each = "é".repeat(33);
    let mkfs = |options: &[&str]| {
        let mut command = betr(["mkfs".as_ref(), image.as_os_str()]);
        command.arg("64M").args(options);
        command
    };
    for (options, expected) in [
        (&["-L", &long][..], "64 bytes"),
        (&["-L", &two_bytes_each], "64 bytes"),
        (&["-U", "nonsense"], "neither a UUID"),
        (&["-U", "01234567-89ab-cdef-0123-456789abcde"], "-U"),
        (&["--node-size", "2K"], "--node-size"),
        (&["--node-size", "5000"], "power of two"),
        (&["--node-size", "512K"], "1/256"),
        (&["--node-size", "128M"], "--node-size"),
        (&["--basement-size", "1"], "--basement-size"),
        (&["--basement-size", "1G"], "--basement-size"),
        (&["--log-size", "nonsense"], "log-size"),
    ] {
        mkfs(options).assert().code(1).stdout("").stderr(predicate::str::contains(expected));
    }
    for (options, expected) in
        [(&["--log-size", "1"], "a log has"), (&["--log-size", "60M"], "too small")]
    {
        mkfs(options).assert().code(1).stdout("").stderr(predicate::str::contains(expected));
    }
    assert!(names(&dir).is_empty());
    for options in [
        &["-L", &long[..64], "-U", UUID][..],
        &["-f", "-U", "clear", "--node-size", "4K", "--basement-size", "512"],
        &["-f", "--node-size", "256K", "--basement-size", "4M", "--log-size", "64K"],
    ] {
        mkfs(options).assert().success();
        run("fsck -fn IMG", &image, &dir, 0);
    }
    run("mkfs IMG", &dir.join("none"), &dir, 1);
    let (_, err) = run("mkfs DIR/no/such/t.img 2M", &image, &dir, 1);
    assert!(err.contains("there is no directory"), "{err}");
}

#[test]
fn a_dry_run_makes_nothing_and_quiet_says_nothing() {
    let (_guard, dir) = scratch();
    let image = dir.join("t.img");
    fs::create_dir(dir.join("folder")).unwrap();
    for line in ["mkfs -n IMG 2M", "mkfs --dry-run IMG -d DIR/folder", "mkfs -n --json IMG 2M"] {
        let (out, _) = run(line, &image, &dir, 0);
        assert!(out.contains("t.img"), "{out}");
        assert_eq!(names(&dir), ["folder"], "betr {line}");
    }
    for line in ["mkfs -q IMG 2M", "mkfs -qf IMG -d DIR/folder", "mkfs -qnf IMG 2M"] {
        assert_eq!(run(line, &image, &dir, 0), (String::new(), String::new()), "betr {line}");
    }
    // A dry run is refused where a real one is.
    let (_, err) = run("mkfs -n IMG 2M", &image, &dir, 1);
    assert!(err.contains("already holds"), "{err}");
}

#[test]
fn the_uuid_is_the_same_wherever_it_is_shown() {
    let (_guard, dir) = scratch();
    let image = dir.join("t.img");
    for line in [&format!("mkfs -U {UUID} IMG 2M"), "info IMG", "info --json IMG"] {
        let (out, _) = run(line, &image, &dir, 0);
        assert!(out.contains(UUID), "betr {line}: {out}");
    }
}

#[test]
fn a_source_that_cannot_be_read_leaves_nothing() {
    let (_guard, dir) = scratch();
    let image = dir.join("out/t.img");
    fs::create_dir_all(dir.join("tree/sub")).unwrap();
    fs::create_dir(dir.join("out")).unwrap();
    fs::write(dir.join("tree/sub/secret"), "secret").unwrap();
    let (_, err) = run("mkfs IMG -d DIR/none", &image, &dir, 1);
    assert!(err.contains("none") && names(&dir.join("out")).is_empty(), "{err}");
    for (path, mode) in [("tree/sub/secret", 0), ("tree/sub", 0), ("tree", 0)] {
        set_mode(&dir, 0o755);
        set_mode(&dir.join("out"), 0o777);
        set_mode(&dir.join(path), mode);
        let Some(mut process) = powerless(&dir) else { return };
        let output = process.args(words("mkfs IMG -d DIR/tree", &image, &dir)).output().unwrap();
        set_mode(&dir.join(path), 0o755);
        let (out, err) = text(&output);
        assert_eq!(output.status.code(), Some(1), "{out}{err}");
        assert!(err.contains(path) && err.contains("Permission denied"), "{err}");
        assert!(out.is_empty() && names(&dir.join("out")).is_empty(), "{out}");
    }
}

#[test]
fn a_target_without_room_leaves_nothing() {
    let (_guard, dir) = scratch();
    fs::create_dir_all(dir.join("tree")).unwrap();
    fs::create_dir_all(dir.join("out")).unwrap();
    fs::write(dir.join("tree/large"), pattern(6 << 20)).unwrap();
    let image = dir.join("out/t.img");
    for line in ["mkfs IMG 4M -d DIR/tree", "mkfs IMG 1M -d DIR/tree", "mkfs IMG 6M -d DIR/tree"] {
        let (out, err) = run(line, &image, &dir, 1);
        assert!(out.is_empty() && err.contains("the contents do not fit"), "betr {line}: {err}");
        assert!(names(&dir.join("out")).is_empty());
    }
    let shell = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script, BETR]).args([dir.join("out"), dir.join("tree")]);
        command
    };
    // A limit on the size of files, as an error and as a signal.
    for script in [format!("trap '' XFSZ; {LIMITED}"), LIMITED.to_owned()] {
        let output = shell(&script).output().unwrap();
        let (out, err) = text(&output);
        assert!(out.is_empty() && !output.status.success(), "{out}{err}");
        assert!(output.status.code().is_none() || err.contains("File too large"), "{err}");
        assert!(names(&dir.join("out")).is_empty());
    }
    // A host file system that becomes full before the image is complete.
    let mkfs = r#""$0" mkfs "$1/t.img" -d "$2""#;
    if let Some((listed, err, code)) = in_tmpfs(4 << 20, &dir.join("out"), mkfs, &dir.join("tree"))
    {
        assert_eq!((listed.as_str(), code), ("", Some(1)), "{err}");
        assert!(err.contains("No space left on device"), "{err}");
    }
}

/// Creates an image of `$2` in `$1` that exceeds the limit on file sizes.
const LIMITED: &str = r#"ulimit -c 0; ulimit -f 2048; exec "$0" mkfs "$1/t.img" -d "$2""#;

#[test]
fn a_block_device_is_refused_wiped_and_filled() {
    let (_guard, dir) = scratch();
    let backing = dir.join("backing");
    fs::File::create(&backing).unwrap().set_len(32 << 20).unwrap();
    fs::create_dir(dir.join("folder")).unwrap();
    fs::write(dir.join("folder/file"), "contents").unwrap();
    let tools = (program("losetup"), program("mkfs.ext4"), program("blkid"));
    let (Some(losetup), Some(mkfs_ext4), Some(blkid)) = tools else {
        need("losetup, mkfs.ext4 and blkid", false);
        return;
    };
    let attached = Command::new(&losetup).args(["-f", "--show"]).arg(&backing).output().unwrap();
    if !need("a loop device", attached.status.success()) {
        return;
    }
    let device = Loop(losetup, String::from_utf8(attached.stdout).unwrap().trim().into());
    let path = Path::new(&device.1);
    assert!(Command::new(mkfs_ext4).arg("-q").arg(path).status().unwrap().success());
    let (_, err) = run("mkfs -q IMG", path, &dir, 1);
    assert!(err.contains("ext4"), "{err}");
    run("mkfs -qf IMG -d DIR/folder", path, &dir, 0);
    run("fsck -fn --data IMG", path, &dir, 0);
    assert_eq!(run("cat IMG /file", path, &dir, 0).0, "contents");
    let probe = Command::new(blkid).arg("-p").arg(path).output().unwrap();
    assert!(!String::from_utf8_lossy(&probe.stdout).contains("ext4"));
    // While its loop device is in use, the backing file cannot be opened for writing, and vice versa.
    let (_, err) = run("fsck -p IMG", &backing, &dir, 8);
    assert!(err.contains("loop device"), "{err}");
}

/// A loop device, detached when the test ends.
struct Loop(PathBuf, String);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new(&self.0).arg("-d").arg(&self.1).status();
    }
}

#[test]
fn what_cannot_be_renamed_over_is_written_in_place() {
    let (_guard, dir) = scratch();
    let at = |name: &str| dir.join(name);
    fs::create_dir(at("folder")).unwrap();
    fs::write(at("folder/file"), "contents").unwrap();
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    let make = |image: &Path, code: i32| {
        let mut mkfs = betr(["mkfs", "-q", "-f", "-U", uuid, "-d"]);
        mkfs.arg(at("folder")).arg(image).arg("16M").env("SOURCE_DATE_EPOCH", "1700000000");
        text(mkfs.assert().code(code).get_output()).1
    };
    make(&at("expected"), 0);
    let expected = fingerprint(&at("expected")).0;

    // All hard links to a file stay links to it.
    fs::create_dir(at("shut")).unwrap();
    fs::write(at("shut/one"), pattern(20 << 20)).unwrap();
    fs::hard_link(at("shut/one"), at("two")).unwrap();
    make(&at("shut/one"), 0);
    assert_eq!(fingerprint(&at("two")).0, expected);
    run("fsck -fn IMG", &at("two"), &dir, 0);

    // A refusal leaves the file unchanged; a failure leaves no image.
    fs::remove_file(at("two")).unwrap();
    fs::hard_link(at("shut/one"), at("two")).unwrap();
    assert!(
        betr(["mkfs", "-q"]).arg(at("two")).arg("16M").output().unwrap().status.code() == Some(1)
    );
    run("mkfs -qnf IMG 16M", &at("two"), &dir, 0);
    assert_eq!(fingerprint(&at("two")).0, expected);
    fs::write(at("folder/large"), pattern(20 << 20)).unwrap();
    make(&at("two"), 1);
    run("fsck -fn IMG", &at("two"), &dir, 8);
    fs::remove_file(at("folder/large")).unwrap();
    fs::remove_file(at("two")).unwrap();

    // A directory without write permission.
    if let Some(mut nobody) = powerless(&dir) {
        crate::tree::set_mode(&at("shut/one"), 0o666);
        crate::tree::set_mode(&at("shut"), 0o555);
        nobody.args(["mkfs", "-q", "-f", "-U", uuid, "-d"]).arg(at("folder"));
        nobody.arg(at("shut/one")).arg("16M").env("SOURCE_DATE_EPOCH", "1700000000");
        let output = nobody.output().unwrap();
        assert!(output.status.success(), "{:?}", text(&output));
        crate::tree::set_mode(&at("shut"), 0o755);
        run("fsck -fn IMG", &at("shut/one"), &dir, 0);
    }

    // A file that is a mount point.
    fs::write(at("bound"), "").unwrap();
    let bind = Command::new("mount").arg("--bind").arg(at("shut/one")).arg(at("bound")).status();
    if need("bind mounts (root)", bind.is_ok_and(|status| status.success())) {
        make(&at("bound"), 0);
        assert!(Command::new("umount").arg(at("bound")).status().unwrap().success());
        assert_eq!(fingerprint(&at("shut/one")).0, expected);
    }
}

#[test]
fn the_least_image_holds_its_contents_and_can_be_emptied() {
    let (_guard, dir) = scratch();
    let tree = dir.join("tree");
    fs::create_dir(&tree).unwrap();
    for number in 0..300 {
        fs::write(tree.join(number.to_string()), pattern(number * 97)).unwrap();
    }
    let mut tar = Command::new("tar");
    tar.arg("-cf").arg(dir.join("t.tar")).arg("-C").arg(&tree).arg(".");
    assert!(tar.status().unwrap().success());
    let image = dir.join("i");
    for from in ["tree", "t.tar"] {
        run(&format!("mkfs -qf IMG -d DIR/{from} --minimize"), &image, &dir, 0);
        let least = fs::metadata(&image).unwrap().len();
        run("fsck -fn --data IMG", &image, &dir, 0);
        run(&format!("mkfs -qf DIR/j -d DIR/{from} {least}"), &image, &dir, 0);
        let less = least - least / 50;
        let (_, err) = run(&format!("mkfs -qf DIR/j -d DIR/{from} {less}"), &image, &dir, 1);
        assert!(err.contains("do not fit") && err.contains("SIZE of 16 MiB"), "{err}");
        assert!(err.contains("--minimize"), "{err}");
        // It is full, but files can still be deleted.
        run("import IMG DIR/tree /more", &image, &dir, 1);
        run("rm -r IMG /1 /2 /299", &image, &dir, 0);
        run("touch IMG /new", &image, &dir, 0);
        for number in (3..299).step_by(3) {
            run(&format!("rm IMG /{number}"), &image, &dir, 0);
        }
        run("fsck -fn --data IMG", &image, &dir, 0);
    }
    run("mkfs IMG 16M -d DIR/tree --minimize", &image, &dir, 1);
    run("mkfs IMG --minimize", &image, &dir, 1);
    let mut piped = betr(["mkfs", "-qf", "-d", "-", "--minimize"]);
    let output = piped.arg(&image).write_stdin(fs::read(dir.join("t.tar")).unwrap());
    let (_, err) = text(output.assert().code(1).get_output());
    assert!(err.contains("pipe") || err.contains("SIZE"), "{err}");
}

/// Directories that grow beyond a zone are moved, which deletes where they were. `mkfs` drains these deletes, so that
/// the first `rm` does not rewrite leaves for them.
#[test]
fn no_delete_is_pending_in_a_new_image_with_contents() {
    let (_guard, dir) = scratch();
    let tree = dir.join("tree");
    for number in 0..4000 {
        let folder = tree.join(format!("{}/{}", number / 1000, number / 50 % 20));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{number}")), pattern(1500)).unwrap();
    }
    let image = dir.join("image");
    let zoned = ["mkfs", "-q", "--zone-size", "512K", "-d"];
    betr(zoned).arg(&tree).arg(&image).arg("64M").assert().success();
    let (zones, _) = run("dump IMG zones", &image, &dir, 0);
    assert_eq!(zones.matches(" z:0 directory").count(), 4, "{zones}");
    let (messages, _) = run("dump IMG messages", &image, &dir, 0);
    assert!(messages.contains(" messages") && !messages.contains(" delete "), "{messages}");
}
