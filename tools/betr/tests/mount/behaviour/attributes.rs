//! Extended attributes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{
    XattrFlags, getxattr, getxattr_query, lgetxattr, listxattr, listxattr_query, lsetxattr,
    removexattr, setxattr,
};
use rustix::io::Errno;

use super::refused;
use crate::fixture::{Mounted, NOBODY, Random, System, as_user, said, system};

fn set(path: &Path, name: &str, value: &[u8]) -> rustix::io::Result<()> {
    setxattr(path, name, value, XattrFlags::empty())
}

fn get(path: &Path, name: &str) -> rustix::io::Result<Vec<u8>> {
    let mut value = vec![0; 65_536];
    let len = getxattr(path, name, &mut value)?;
    value.truncate(len);
    Ok(value)
}

fn list(path: &Path) -> BTreeSet<String> {
    let mut names = vec![0; 65_536];
    let len = listxattr(path, &mut names).unwrap();
    let names = names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| String::from_utf8(name.to_vec()).unwrap()).collect()
}

#[test]
fn attributes_of_all_classes_are_kept() {
    let Some(mut mount) = Mounted::new("") else { return };
    fs::create_dir(mount.at("dir")).unwrap();
    fs::write(mount.at("file"), "").unwrap();
    let names = ["user.a", "user.empty", "trusted.b", "security.c"];
    for name in ["dir", "file"] {
        let path = mount.at(name);
        assert_eq!(list(&path), BTreeSet::new());
        for attribute in names {
            let value = if attribute == "user.empty" { vec![] } else { b"\0\xff\n=".repeat(100) };
            set(&path, attribute, &value).unwrap();
            assert_eq!(get(&path, attribute), Ok(value));
        }
        assert_eq!(list(&path), BTreeSet::from(names.map(String::from)));
    }
    mount.settle();
    assert_eq!(list(&mount.at("dir")), BTreeSet::from(names.map(String::from)));
    for attribute in names {
        removexattr(mount.at("dir"), attribute).unwrap();
    }
    assert_eq!(list(&mount.at("dir")), BTreeSet::new());
    mount.settle();
}

#[test]
fn attributes_are_made_and_replaced_as_asked() {
    let Some(mount) = Mounted::new("") else { return };
    let path = mount.at("file");
    fs::write(&path, "").unwrap();
    let flagged = |name: &str, flags| setxattr(&path, name, b"value", flags);
    refused(Errno::NODATA, get(&path, "user.a"));
    refused(Errno::NODATA, flagged("user.a", XattrFlags::REPLACE));
    flagged("user.a", XattrFlags::CREATE).unwrap();
    refused(Errno::EXIST, flagged("user.a", XattrFlags::CREATE));
    flagged("user.a", XattrFlags::REPLACE).unwrap();
    refused(Errno::NODATA, removexattr(&path, "user.b"));
    refused(Errno::NOENT, get(&mount.at("none"), "user.a"));
    // Queries of lengths, and buffers that are too small.
    assert_eq!(getxattr_query(&path, "user.a"), Ok(5));
    refused(Errno::RANGE, getxattr(&path, "user.a", &mut [0_u8; 4][..]));
    assert_eq!(listxattr_query(&path), Ok(7));
    refused(Errno::RANGE, listxattr(&path, &mut [0_u8; 6][..]));
    // Names without a known class, or too long.
    refused(Errno::OPNOTSUPP, set(&path, "noclass", b""));
    refused(Errno::OPNOTSUPP, set(&path, "nothing.a", b""));
    refused(Errno::INVAL, set(&path, "user.", b""));
    set(&path, &format!("user.{}", "n".repeat(250)), b"").unwrap();
    refused(Errno::RANGE, set(&path, &format!("user.{}", "n".repeat(251)), b""));
}

#[test]
fn large_and_many_attributes_are_kept() {
    let Some(mut mount) = Mounted::new("") else { return };
    let mut random = Random::new(7, 0);
    let path = mount.at("file");
    fs::write(&path, "").unwrap();
    // On ext4 all attributes of a file must fit into one block; the kernel's limit is 64 KiB for each.
    let (count, len) = if system() == System::Betr { (400, 65_536) } else { (30, 1500) };
    let large = random.bytes(len);
    set(&path, "user.large", &large).unwrap();
    for number in 0..count {
        set(&path, &format!("user.many{number}"), format!("value {number}").as_bytes()).unwrap();
    }
    for number in (0..count).step_by(3) {
        set(&path, &format!("user.many{number}"), b"changed").unwrap();
    }
    mount.settle();
    let path = mount.at("file");
    assert_eq!(list(&path).len(), count + 1);
    assert!(get(&path, "user.large") == Ok(large));
    assert_eq!(get(&path, "user.many3").unwrap(), b"changed");
    assert_eq!(get(&path, "user.many4").unwrap(), b"value 4");
    fs::hard_link(&path, mount.at("second")).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(list(&mount.at("second")).len(), count + 1);
    fs::remove_file(mount.at("second")).unwrap();
    mount.settle();
}

#[test]
fn there_is_room_for_so_many_attributes() {
    let Some(mut mount) = Mounted::new("") else { return };
    let path = mount.at("file");
    fs::write(&path, "").unwrap();
    let name = |number: usize| format!("user.{number:0>200}");
    let full = |number: &usize| set(&path, &name(*number), b"") == Err(Errno::NOSPC);
    let count = (0..1000).find(full).expect("an end to the attributes");
    assert!(count > 10 && list(&path).len() == count, "{count}");
    // Attributes can be replaced, and the file renamed; removed ones make space.
    set(&path, &name(0), b"").unwrap();
    fs::rename(&path, mount.at("moved")).unwrap();
    let path = mount.at("moved");
    rustix::fs::removexattr(&path, name(1)).unwrap();
    set(&path, &name(count), b"").unwrap();
    if system() == System::Betr {
        // Values have a limit of their own.
        fs::write(mount.at("large"), "").unwrap();
        let value = vec![7; 65_536];
        let large = mount.at("large");
        let full = (0..1000).find(|number| set(&large, &name(*number), &value).is_err());
        assert_eq!(full, Some(255));
    }
    mount.settle();
}

#[test]
fn attributes_of_users_are_for_files_and_directories() {
    let Some(mut mount) = Mounted::new("allow_other") else { return };
    fs::write(mount.at("file"), "").unwrap();
    symlink("file", mount.at("link")).unwrap();
    let fifo = mount.at("fifo");
    let (cwd, kind) = (rustix::fs::CWD, rustix::fs::FileType::Fifo);
    rustix::fs::mknodat(cwd, &fifo, kind, rustix::fs::Mode::RUSR, 0).unwrap();
    let to_link = |name| lsetxattr(mount.at("link"), name, b"of the link", XattrFlags::empty());
    refused(Errno::PERM, to_link("user.a"));
    refused(Errno::PERM, set(&fifo, "user.a", b""));
    to_link("trusted.a").unwrap();
    set(&fifo, "trusted.a", b"of the fifo").unwrap();
    let mut value = [0; 20];
    assert_eq!(lgetxattr(mount.at("link"), "trusted.a", &mut value), Ok(11));
    refused(Errno::NODATA, get(&mount.at("link"), "trusted.a"));

    // Without permission for the file its attributes are inaccessible; trusted ones are root's.
    let path = mount.at("file");
    set(&path, "trusted.a", b"root's").unwrap();
    set(&path, "user.a", b"everybody's").unwrap();
    as_user(NOBODY, NOBODY, || {
        refused(Errno::ACCESS, set(&path, "user.b", b""));
        refused(Errno::PERM, set(&path, "trusted.b", b""));
        refused(Errno::NODATA, get(&path, "trusted.a"));
        assert_eq!(list(&path), BTreeSet::from(["user.a".to_owned()]));
        assert_eq!(get(&path, "user.a").unwrap(), b"everybody's");
    });
    rustix::fs::chmod(&path, rustix::fs::Mode::RUSR).unwrap();
    as_user(NOBODY, NOBODY, || refused(Errno::ACCESS, get(&path, "user.a")));
    mount.settle();
}

#[test]
fn getfattr_and_setfattr_agree() {
    let Some(mount) = Mounted::new("") else { return };
    if crate::fixture::program("setfattr").is_none() {
        return;
    }
    fs::write(mount.at("file"), "").unwrap();
    said("setfattr", mount.point(), ["-n", "user.text", "-v", "hello", "file"]);
    said("setfattr", mount.point(), ["-n", "user.bytes", "-v", "0x00ff", "file"]);
    let dump = said("getfattr", mount.point(), ["-d", "-e", "hex", "file"]);
    assert!(dump.contains("user.text=0x68656c6c6f\n") && dump.contains("user.bytes=0x00ff\n"));
}
