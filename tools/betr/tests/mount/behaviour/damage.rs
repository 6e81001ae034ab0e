//! Effects of a damaged image on its mount.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;

use crate::fixture::{BETR, Mounted, betr, betr_only, run, unmount};

const MARK: &[u8] = b"these bytes are looked for in the image ";

fn status(place: &Path) -> Value {
    let output = betr(["status", "--json"]).arg(place).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A volume with a file with one corrupt block, and an intact file.
fn rotten() -> Option<Mounted> {
    let mut mount = Mounted::new("")?;
    fs::write(mount.at("rotten"), MARK.repeat(100_000)).unwrap();
    fs::write(mount.at("sound"), "sound").unwrap();
    mount.unmount();
    let image = fs::read(mount.image()).unwrap();
    let marked = |block: &&[u8]| block.windows(MARK.len()).any(|bytes| bytes == MARK);
    let blocks: Vec<u64> =
        (0..).zip(image.chunks(4096)).filter(|(_, b)| marked(b)).map(|(at, _)| at).collect();
    let at = blocks[blocks.len() / 2] * 4096;
    let file = fs::File::options().write(true).open(mount.image()).unwrap();
    file.write_all_at(&[0x5a; 4096], at).unwrap();
    Some(mount)
}

#[test]
fn rot_is_an_error_of_who_reads_it() {
    if !betr_only() {
        return;
    }
    let Some(mut mount) = rotten() else { return };
    mount.mount("");
    assert!(fs::read(mount.at("rotten")).is_err());
    assert_eq!(fs::read_to_string(mount.at("sound")).unwrap(), "sound");
    fs::write(mount.at("another"), "is written").unwrap();
    let said = status(mount.point());
    assert_eq!(said["read_only"], false, "{said}");
    assert!(said["errors"].as_u64().unwrap() > 0 && said["read_only_because"].is_null(), "{said}");
    let last = said["last_error"].as_str().unwrap();
    assert!(last.contains("hash does not match"), "{last}");
    let text = betr(["status"]).arg(mount.point()).output().unwrap();
    assert!(String::from_utf8(text.stdout).unwrap().contains(&format!("Last: {last}")));

    unmount(mount.point());
    assert!(!mount.end_of_daemon().unwrap().success(), "it says that there were errors");
    mount.mount("errors=remount-ro");
    assert!(fs::read(mount.at("rotten")).is_err());
    let refused = fs::write(mount.at("another"), "is not written").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(fs::read_to_string(mount.at("another")).unwrap(), "is written");
    let said = status(mount.point());
    assert_eq!(said["read_only"], true);
    assert_eq!(said["read_only_because"], said["last_error"]);
    unmount(mount.point());
    mount.end_of_daemon();
}

/// An error sets the flag in the image at once; the check at boot then reads all contents, until it finds nothing.
#[test]
fn an_error_is_noted_until_a_check_finds_nothing() {
    if !betr_only() {
        return;
    }
    let Some(mut mount) = rotten() else { return };
    let is_noted = |mount: &Mounted| {
        let output = betr(["info", "--json"]).arg(mount.image()).output().unwrap();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        said["error_met"].as_bool().unwrap()
    };
    let check = |mount: &Mounted| {
        let output = betr(["fsck", "-p"]).arg(mount.image()).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, said) = check(&mount);
    assert_eq!(code, 0, "without a note contents are not looked at: {said}");
    mount.mount("");
    assert!(fs::read(mount.at("rotten")).is_err());
    mount.crash();
    assert!(is_noted(&mount));
    let (code, said) = check(&mount);
    assert!(code == 4 && said.contains("I03") && said.contains("hash does not match"), "{said}");
    assert!(is_noted(&mount), "the file is still rotten");
    mount.mount("");
    fs::remove_file(mount.at("rotten")).unwrap();
    mount.unmount();
    let (code, said) = check(&mount);
    assert!(code == 0 && said.contains("I03"), "{said}");
    assert!(!is_noted(&mount));
    let (code, said) = check(&mount);
    assert!(code == 0 && !said.contains("I03"), "{said}");
}

/// If no log daemon listens, errors go to a file.
#[test]
fn errors_are_logged() {
    if !betr_only() || Path::new("/dev/log").exists() || !rustix::process::geteuid().is_root() {
        return;
    }
    let Some(mount) = rotten() else { return };
    run(BETR, ["mount".as_ref(), mount.image(), mount.point()]);
    assert!(fs::read(mount.at("rotten")).is_err());
    unmount(mount.point());
    let log = fs::read_to_string("/var/log/betr.log").unwrap();
    let name = mount.image().display().to_string();
    let line = log.lines().rev().find(|line| line.contains(&name)).unwrap();
    assert!(line.contains("unmount, and check it with 'betr fsck -fn'"), "{line}");
}

#[test]
fn an_image_that_must_not_be_written_is_mounted_read_only() {
    if !betr_only() {
        return;
    }
    let Some(mut mount) = Mounted::new("") else { return };
    mount.unmount();
    fs::remove_file(mount.image()).unwrap();
    run(BETR, ["dev".as_ref(), "make-broken".as_ref(), "L03".as_ref(), mount.image()]);
    let mounted = betr(["mount"]).args([mount.image(), mount.point()]).output().unwrap();
    let said = String::from_utf8(mounted.stderr).unwrap();
    assert!(mounted.status.success(), "{said}");
    assert!(said.contains("an error was met in it before"), "{said}");
    assert!(said.contains("damaged, mounted read-only: "), "{said}");
    assert!(fs::read_dir(mount.point()).unwrap().count() > 0);
    let refused = fs::write(mount.at("another"), "is not written").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    unmount(mount.point());
}
