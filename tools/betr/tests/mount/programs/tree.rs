//! A tree with every kind of object, for copies that must be complete.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, chown, lchown, symlink};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

use crate::fixture::{Random, program, said};

/// Plants the tree in a new directory.
pub(super) fn plant(root: &Path) {
    let mut random = Random::new(20, 0);
    fs::create_dir(root).unwrap();
    for dir in 0..12 {
        let dir = root.join(format!("dir {dir}"));
        fs::create_dir_all(dir.join("below/further")).unwrap();
        for file in 0..40 {
            let size = [0, 1, 100, 4096, 10_000, 70_000][random.below(6)];
            let path = dir.join(if file % 4 == 0 { "below" } else { "" }).join(format!("f{file}"));
            fs::write(&path, random.bytes(size)).unwrap();
            rustix::fs::chmod(&path, Mode::from(0o400 + (file * 37) % 0o400)).unwrap();
            chown(&path, Some(random.below(3) as u32 * 1000), Some(file)).unwrap();
        }
    }
    let at = |name: &str| root.join(name);
    fs::write(at("large"), random.bytes(12 << 20)).unwrap();
    let sparse = File::create(at("sparse")).unwrap();
    sparse.write_all_at(b"in the middle", 5_000_000).unwrap();
    sparse.set_len(30_000_000).unwrap();
    fs::write(at("\u{e4}\n\\ *"), "an odd name").unwrap();
    for number in 0..5 {
        fs::hard_link(at("large"), at(&format!("dir {number}/large too"))).unwrap();
    }
    symlink("dir 0/f1", at("link")).unwrap();
    symlink("nowhere at all", at("dangling")).unwrap();
    lchown(at("dangling"), Some(7), Some(8)).unwrap();
    let node = |name: &str, kind, device| {
        rustix::fs::mknodat(CWD, at(name), kind, Mode::from(0o640), device).unwrap();
    };
    node("fifo", FileType::Fifo, 0);
    node("char", FileType::CharacterDevice, rustix::fs::makedev(1, 3));
    node("block", FileType::BlockDevice, rustix::fs::makedev(300, 70_000));
    let attribute = |name: &str, attribute: &str, value: &[u8]| {
        rustix::fs::lsetxattr(at(name), attribute, value, XattrFlags::empty()).unwrap();
    };
    attribute("dir 1", "user.comment", b"of a directory");
    attribute("large", "user.empty", b"");
    attribute("large", "user.bytes", &random.bytes(900));
    if program("setfacl").is_some() {
        said("setfacl", root, ["-m", "u:12:rw,g:13:r", "large"]);
        said("setfacl", root, ["-m", "u:12:rwx,d:u:14:rx", "dir 2"]);
    }
    fs::set_permissions(at("dir 3"), std::os::unix::fs::PermissionsExt::from_mode(0o3775)).unwrap();
    age(root, &mut random);
}

/// Gives everything times in the past; entries before their directory.
fn age(path: &Path, random: &mut Random) {
    if fs::symlink_metadata(path).unwrap().is_dir() {
        let mut below: Vec<_> = fs::read_dir(path).unwrap().map(|e| e.unwrap().path()).collect();
        below.sort();
        below.iter().for_each(|path| age(path, random));
    }
    let tv_sec = 1_000_000_000 + random.below(700_000_000) as i64;
    let time = Timespec { tv_sec, tv_nsec: random.below(1_000_000_000) as i64 };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}
