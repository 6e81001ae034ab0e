//! Recognising file systems made by the programs of other projects.

use betr_cli::{probe, skip};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;

/// Makes a file system with `program` and returns the description of the recognised format.
fn made_by(program: &str, args: &[&str], len: u64) -> Option<String> {
    let Some(path) = skip::program(program) else {
        skip::need(&format!("the program {program}"), false);
        return None;
    };
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let file = File::options().read(true).write(true).create_new(true).open(&image).unwrap();
    file.set_len(len).unwrap();
    let output = Command::new(path).args(args).arg(&image).output().unwrap();
    assert!(output.status.success(), "{program}: {output:?}");
    let read = |at: u64, buffer: &mut [u8]| file.read_exact_at(buffer, at);
    Some(probe::probe(&read, len).expect(program).to_string())
}

#[test]
fn file_systems_of_others_are_recognised() {
    let cases: [(&str, &[&str], u64, &str); 7] = [
        ("mkfs.ext4", &["-q", "-L", "home"], 16, "ext4 file system labelled \"home\""),
        ("mkfs.ext3", &["-q"], 16, "ext3 file system"),
        ("mkfs.ext2", &["-q"], 16, "ext2 file system"),
        ("mkfs.btrfs", &["-q", "-L", "tree"], 256, "btrfs file system labelled \"tree\""),
        ("mkfs.xfs", &["-q", "-L", "data"], 512, "xfs file system labelled \"data\""),
        ("mkfs.vfat", &["-n", "STICK"], 16, "vfat file system labelled \"STICK\""),
        ("mkswap", &["-L", "more"], 16, "swap area labelled \"more\""),
    ];
    for (program, args, mebibytes, expected) in cases {
        if let Some(found) = made_by(program, args, mebibytes << 20) {
            assert_eq!(found, expected, "{program}");
        }
    }
}
