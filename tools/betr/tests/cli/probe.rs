//! `betr probe`: its output is compared with that of blkid(8), if that is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use betr_cli::skip::{need, program};
use betr_core::format::{IDENTITY_AT, Seal};
use serde_json::Value;

use crate::support::*;

const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";

/// An image of 2 MiB with this label.
fn labelled(dir: &Path, label: &str) -> std::path::PathBuf {
    let image = dir.join("t.img");
    let _ = fs::remove_file(&image);
    betr(["mkfs", "-q", "-L", label, "-U", UUID]).arg(&image).arg("2M").assert().success();
    image
}

/// Probes a file. The exit code must be `code`; if that is not 0, standard output must be empty.
fn probe(line: &str, image: &Path, code: i32) -> (String, String) {
    let (out, err) = run(&format!("probe {line} IMG"), image, image, code);
    assert!(code == 0 || out.is_empty(), "{out}");
    (out, err)
}

#[test]
fn an_image_in_every_form() {
    let (_guard, dir) = scratch();
    let image = labelled(&dir, "a b\"$c\\é");
    let name = image.display().to_string();
    let out = |line: &str| probe(line, &image, 0).0;
    assert_eq!(
        out(""),
        format!(
            "{name}: LABEL=\"a b\\\"$c\\\\é\" UUID=\"{UUID}\" VERSION=\"27\" BLOCK_SIZE=\"4096\" \
             FSSIZE=\"2097152\" TYPE=\"betr\" USAGE=\"filesystem\"\n"
        )
    );
    assert_eq!(
        out("-o export"),
        format!(
            "DEVNAME={name}\nLABEL=a\\ b\\\"\\$c\\\\é\nUUID={UUID}\nVERSION=27\nBLOCK_SIZE=4096\n\
             FSSIZE=2097152\nTYPE=betr\nUSAGE=filesystem\n"
        )
    );
    assert_eq!(
        out("--output udev"),
        format!(
            "ID_FS_LABEL=a_b\"$c\\é\nID_FS_LABEL_ENC=a\\x20b\\x22\\x24c\\x5cé\nID_FS_UUID={UUID}\n\
             ID_FS_UUID_ENC={UUID}\nID_FS_VERSION=27\nID_FS_BLOCK_SIZE=4096\nID_FS_FSSIZE=2097152\n\
             ID_FS_TYPE=betr\nID_FS_USAGE=filesystem\n"
        )
    );
    assert_eq!(out("-o value -s TYPE -s LABEL"), "a b\"$c\\é\nbetr\n");
    assert_eq!(out("-o export -s TYPE"), format!("DEVNAME={name}\nTYPE=betr\n"));
    assert_eq!(out("-s NO_SUCH_TAG"), "");
    let value: Value = serde_json::from_str(&out("--json")).unwrap();
    assert_eq!(value["schema"], "betr.probe");
    assert_eq!(value["devices"][0]["label"]["bytes"], "6120622224635cc3a9");
    assert_eq!(value["devices"][0]["type"], "betr");
    assert_eq!(value["devices"][0]["fssize"], 2 << 20);
}

#[test]
fn what_is_not_set_is_not_there_and_nothing_reaches_the_terminal() {
    let (_guard, dir) = scratch();
    let image = labelled(&dir, "");
    run("mkfs -fq IMG 2M -U clear", &image, &dir, 0);
    let (out, _) = probe("-o export", &image, 0);
    assert!(!out.contains("LABEL") && !out.contains("UUID"), "{out}");
    let image = labelled(&dir, "\u{1b}[31m\nTYPE=ext4 \u{202e}");
    for form in ["full", "export", "udev", "value"] {
        let (out, _) = probe(&format!("-o {form}"), &image, 0);
        let lines = if form == "full" { 1 } else { 7 };
        assert!(
            !out.contains(['\u{1b}', '\u{202e}']) && out.lines().count() >= lines,
            "{form}: {out}"
        );
        assert!(!out.lines().any(|line| line.starts_with("TYPE=ext4")), "{form}: {out}");
    }
}

#[test]
fn others_are_known_by_type() {
    let (_guard, dir) = scratch();
    let file = dir.join("other.img");
    let device = |bytes: &[(usize, &[u8])]| {
        let mut all = vec![0; 1 << 20];
        for (at, magic) in bytes {
            all[*at..*at + magic.len()].copy_from_slice(magic);
        }
        fs::write(&file, all).unwrap();
    };
    let btrfs: (usize, &[u8]) = (0x10040, b"_BHRfS_M");
    for (at, magic, name) in [
        (0x10040, &b"_BHRfS_M"[..], "btrfs"),
        (0, b"XFSB", "xfs"),
        (0, b"hsqs", "squashfs"),
        (4086, b"SWAPSPACE2", "swap"),
        (0, b"LUKS\xba\xbe\0\x02", "crypto_LUKS"),
        (536, b"LVM2 001", "LVM2_member"),
        (0x438, b"\x53\xef", "ext2"),
    ] {
        device(&[(at, magic)]);
        assert_eq!(probe("-o value", &file, 0).0, format!("{name}\n"));
        assert_eq!(probe("-o udev", &file, 0).0, format!("ID_FS_TYPE={name}\n"));
    }
    device(&[btrfs, (0, b"XFSB")]);
    let (_, err) = probe("-o export", &file, 8);
    assert!(err.contains("ambivalent: it holds btrfs, xfs"), "{err}");
    // A partition table or an archive is not a file system.
    device(&[(510, b"\x55\xaa")]);
    assert_eq!(probe("", &file, 2), Default::default());
    device(&[(510, b"\x55\xaa"), btrfs]);
    assert_eq!(probe("-o value", &file, 0).0, "btrfs\n");
}

#[test]
fn what_is_left_of_another_file_system_is_ambivalent() {
    let (_guard, dir) = scratch();
    let image = labelled(&dir, "both");
    let mut bytes = fs::read(&image).unwrap();
    bytes[..4].copy_from_slice(b"XFSB");
    fs::write(&image, &bytes).unwrap();
    let (_, err) = probe("", &image, 8);
    assert!(err.contains("t.img: ambivalent: it holds betr, xfs"), "{err}");
    // An identity block that does not verify is ignored.
    bytes[IDENTITY_AT as usize + 100] ^= 1;
    fs::write(&image, &bytes).unwrap();
    assert_eq!(probe("-o value", &image, 0).0, "xfs\n");
    bytes[..4].fill(0);
    fs::write(&image, &bytes).unwrap();
    assert_eq!(probe("", &image, 2), Default::default());
}

#[test]
fn a_newer_version_is_known_for_what_it_is() {
    let (_guard, dir) = scratch();
    let image = labelled(&dir, "newer");
    let mut bytes = fs::read(&image).unwrap();
    let identity = &mut bytes[IDENTITY_AT as usize..][..4096];
    identity[72] += 1;
    Seal::close(identity);
    fs::write(&image, &bytes).unwrap();
    let (out, _) = probe("-o export", &image, 0);
    assert!(out.ends_with("TYPE=betr\nUSAGE=filesystem\n") && !out.contains("LABEL"), "{out}");
}

#[test]
fn it_ends_as_blkid_does() {
    let (_guard, dir) = scratch();
    let image = labelled(&dir, "some");
    for (name, bytes) in
        [("empty", 0), ("tiny", 1), ("almost", IDENTITY_AT + 8), ("zeros", 1 << 20)]
    {
        let file = dir.join(name);
        fs::write(&file, vec![0; bytes as usize]).unwrap();
        assert_eq!(probe("", &file, 2), Default::default(), "{name}");
    }
    // The file ends right after the magic.
    let mut bytes = fs::read(&image).unwrap();
    bytes.truncate(IDENTITY_AT as usize + 8);
    fs::write(dir.join("almost"), bytes).unwrap();
    probe("", &dir.join("almost"), 2);
    for (path, said) in
        [("none", "does not exist"), ("folder", "is a directory"), ("pipe", "pipe (FIFO)")]
    {
        let _ = fs::create_dir(dir.join("folder"));
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        let _ = rustix::fs::mknodat(rustix::fs::CWD, dir.join("pipe"), kind, mode, 0);
        let (_, err) = probe("", &dir.join(path), 2);
        assert!(err.contains(said), "{err}");
    }
    // One recognised device of several suffices, and the failing ones are named.
    let (out, err) = run("probe -o export DIR/none IMG DIR/zeros IMG", &image, &dir, 0);
    assert_eq!(out.matches("TYPE=betr\n").count(), 2);
    assert!(out.contains("\n\nDEVNAME=") && err.contains("none does not exist"), "{out}{err}");
    for line in ["-o nonsense", "--json -o udev", "--nonsense"] {
        probe(line, &image, 4);
    }
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let status = Command::new(BETR).arg("probe").arg(&image).stdout(full).status().unwrap();
    assert_eq!(status.code(), Some(4));
}

#[test]
fn no_lock_stops_it_and_it_leaves_no_trace() {
    let (_guard, dir) = scratch();
    let image = labelled(&dir, "busy");
    age(&image);
    let before = fingerprint(&image);
    let file = fs::File::open(&image).unwrap();
    file.lock().unwrap();
    let (out, err) = probe("-o udev", &image, 0);
    assert!(out.contains("ID_FS_LABEL=busy\n") && err.is_empty(), "{out}{err}");
    assert!(fingerprint(&image) == before);
}

/// `eval` of the export form sets the variables to the exact values of the image, and executes nothing.
#[test]
fn a_shell_takes_every_label_for_what_it_is() {
    let (_guard, dir) = scratch();
    let ascii: String = (' '..='~').collect();
    let labels = [
        "x;touch pwned",
        "$(touch pwned)`touch pwned`",
        "a&touch pwned|touch pwned",
        "x\\;touch pwned",
        "~",
        "a:~:~root",
        "#comment",
        "*",
        "{a,b}",
        "'\"'\"\\",
        "é & ü",
        &ascii[..48],
        &ascii[48..],
    ];
    let shells = ["sh", "bash", "dash", "zsh", "ksh", "mksh"].map(program);
    let shells: Vec<PathBuf> = shells.into_iter().flatten().collect();
    if !need("sh(1)", !shells.is_empty()) {
        return;
    }
    for label in labels {
        let image = labelled(&dir, label);
        // The name of the image is untrusted, too.
        let odd = dir.join("t;touch pwned;.img");
        fs::rename(image, &odd).unwrap();
        let (out, _) = probe("-o export", &odd, 0);
        for shell in &shells {
            let script = r#"eval "$1"; printf '%s\n%s\n%s' "$DEVNAME" "$LABEL" "$USAGE""#;
            let found =
                Command::new(shell).args(["-c", script, "-", &out]).current_dir(&dir).output();
            let (found, err) = text(&found.unwrap());
            let expected = format!("{}\n{label}\nfilesystem", odd.display());
            assert_eq!((found, err), (expected, String::new()), "{} {label:?}", shell.display());
        }
        assert!(!dir.join("pwned").exists(), "{label:?}");
    }
}

#[test]
fn labels_are_printed_as_blkid_prints_them() {
    let (_guard, dir) = scratch();
    let (mkfs, blkid) = (program("mkfs.ext4"), program("blkid"));
    if !need("mkfs.ext4 and blkid", mkfs.is_some() && blkid.is_some()) {
        return;
    }
    let other = dir.join("ext4.img");
    for label in ["plain", "a b\"$c\\x", " x\\y/z ?", "`<>'", "a  b", "é-ü", "#+-.:=@_%&"] {
        fs::write(&other, vec![0; 4 << 20]).unwrap();
        let made =
            Command::new(mkfs.as_ref().unwrap()).args(["-qF", "-L", label]).arg(&other).status();
        assert!(made.unwrap().success());
        let image = labelled(&dir, label);
        // blkid's output of non-ASCII characters for people depends on its version and locale. For shells it leaves
        // some unsafe characters unescaped.
        let forms = match (label.is_ascii(), label.contains(['&', '?', '#', '/'])) {
            (false, _) => &["udev"][..],
            (true, true) => &["udev", "full", "value"],
            (true, false) => &["udev", "full", "value", "export"],
        };
        for form in forms {
            let asked = Command::new(blkid.as_ref().unwrap())
                .args(["-p", "-s", "LABEL", "-o", form])
                .arg(&other)
                .output();
            let expected = text(&asked.unwrap()).0.replace("ext4.img", "t.img");
            let (found, _) = probe(&format!("-s LABEL -o {form}"), &image, 0);
            assert_eq!(found.trim_end(), expected.trim_end(), "{form} of {label:?}");
        }
    }
}
