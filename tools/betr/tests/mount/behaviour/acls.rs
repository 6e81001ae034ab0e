//! POSIX access control lists, as setfacl(1) and getfacl(1) show them.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;

use super::refused;
use crate::fixture::{Mounted, NOBODY, as_user, program, run, said};

/// A mount, if setfacl and getfacl are installed.
fn mounted() -> Option<Mounted> {
    let programs = program("setfacl").is_some() && program("getfacl").is_some();
    programs.then(|| Mounted::new("allow_other")).flatten()
}

/// The lines of a list, with numeric ids.
fn acl(mount: &Mounted, name: &str) -> Vec<String> {
    let out = said("getfacl", mount.point(), ["-c", "-n", "-E", name]);
    out.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn set(mount: &Mounted, args: &[&str]) {
    said("setfacl", mount.point(), args);
}

#[test]
fn a_list_decides_who_may() {
    let Some(mut mount) = mounted() else { return };
    let file = mount.at("file");
    fs::write(&file, "secret").unwrap();
    rustix::fs::chmod(&file, rustix::fs::Mode::from(0o600)).unwrap();
    as_user(NOBODY, NOBODY, || refused(Errno::ACCESS, fs::read(&file)));

    set(&mount, &["-m", "u:65534:r", "file"]);
    let expected = ["user::rw-", "user:65534:r--", "group::---", "mask::r--", "other::---"];
    assert_eq!(acl(&mount, "file"), expected);
    // The group bits show the mask.
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
    as_user(NOBODY, NOBODY, || {
        assert_eq!(fs::read_to_string(&file).unwrap(), "secret");
        refused(Errno::ACCESS, fs::write(&file, ""));
    });
    mount.settle();
    assert_eq!(acl(&mount, "file"), expected);
    // chmod sets the mask.
    let file = mount.at("file");
    rustix::fs::chmod(&file, rustix::fs::Mode::from(0o600)).unwrap();
    assert!(acl(&mount, "file").contains(&"mask::---".to_owned()));
    as_user(NOBODY, NOBODY, || refused(Errno::ACCESS, fs::read(&file)));
    set(&mount, &["-m", "g:65534:rw,m::rw", "file"]);
    as_user(12345, NOBODY, || fs::write(&file, "by the group").unwrap());
    // Only the owner may change a list.
    as_user(12345, NOBODY, || {
        refused(Errno::PERM, rustix::fs::removexattr(&file, "system.posix_acl_access"));
    });
    set(&mount, &["-b", "file"]);
    assert_eq!(acl(&mount, "file"), ["user::rw-", "group::---", "other::---"]);
    mount.settle();
}

/// As with chmod, setting a list clears set-group-ID on a file if the caller is not in its group.
#[test]
fn who_is_not_of_the_group_cannot_keep_its_powers_with_a_list() {
    let Some(mut mount) = mounted() else { return };
    for (name, group, kept) in [("other", 777, false), ("own", NOBODY, true), ("root", 777, true)] {
        let file = mount.at(name);
        fs::write(&file, "").unwrap();
        std::os::unix::fs::chown(&file, Some(NOBODY), Some(group)).unwrap();
        rustix::fs::chmod(&file, rustix::fs::Mode::from(0o2755)).unwrap();
        let list = || {
            let acl = posix_acl(&[(1, 7, !0), (2, 4, 5), (4, 5, !0), (16, 5, !0), (32, 5, !0)]);
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&file, "system.posix_acl_access", &acl, flags).unwrap();
        };
        match name {
            "root" => list(),
            _ => as_user(NOBODY, NOBODY, list),
        }
        let mode = fs::metadata(&file).unwrap().mode() & 0o7777;
        assert_eq!(mode, if kept { 0o2755 } else { 0o755 }, "{name}");
    }
    // Supplementary groups count as well.
    let file = mount.at("further");
    fs::write(&file, "").unwrap();
    std::os::unix::fs::chown(&file, Some(NOBODY), Some(777)).unwrap();
    rustix::fs::chmod(&file, rustix::fs::Mode::from(0o2755)).unwrap();
    let who = ["--reuid=65534", "--regid=65534", "--groups=5,777", "setfacl", "-m", "u:5:r"];
    said("setpriv", mount.point(), who.into_iter().chain(["further"]));
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o2755);
    mount.settle();
}

/// A list in the kernel's format: tag, permissions and id of each entry (linux/posix_acl_xattr.h).
fn posix_acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let entry = |(tag, perm, id): &(u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    [2u32.to_le_bytes().to_vec(), entries.iter().flat_map(entry).collect()].concat()
}

/// A missing list can be removed, and an empty list can be set.
#[test]
fn no_list_is_as_good_as_one_that_was_removed() {
    let Some(mut mount) = mounted() else { return };
    fs::create_dir(mount.at("dir")).unwrap();
    let dir = mount.at("dir");
    set(&mount, &["-m", "u:5:rwx,d:u:5:rwx", "dir"]);
    for name in ["system.posix_acl_access", "system.posix_acl_default"] {
        for _ in 0..2 {
            rustix::fs::setxattr(&dir, name, &posix_acl(&[]), rustix::fs::XattrFlags::empty())
                .unwrap();
        }
        for _ in 0..2 {
            rustix::fs::removexattr(&dir, name).unwrap();
        }
        refused(Errno::NODATA, rustix::fs::getxattr(&dir, name, &mut [0; 100]));
    }
    // The group bits keep the value that the mask gave them.
    assert_eq!(acl(&mount, "dir"), ["user::rwx", "group::rwx", "other::r-x"]);
    refused(Errno::NODATA, rustix::fs::removexattr(&dir, "user.none"));
    mount.settle();
}

#[test]
fn a_default_list_is_inherited() {
    let Some(mut mount) = mounted() else { return };
    fs::create_dir(mount.at("dir")).unwrap();
    set(&mount, &["-d", "-m", "u::rwx,u:65534:rwx,g::r-x,o::---", "dir"]);
    // The requested mode restricts the inherited list; the umask does not apply.
    let script = "umask 077; mkdir dir/sub; : >dir/file; mkfifo dir/fifo; ln -s file dir/link";
    said("sh", mount.point(), ["-c", script]);
    let entries =
        ["user::rwx", "user:65534:rwx", "group::r-x", "mask::rwx", "other::---"].map(String::from);
    let defaults = entries.clone().map(|line| format!("default:{line}"));
    assert_eq!(acl(&mount, "dir/sub"), [&entries[..], &defaults[..]].concat());
    let of_file = ["user::rw-", "user:65534:rwx", "group::r-x", "mask::rw-", "other::---"];
    for name in ["dir/file", "dir/fifo"] {
        assert_eq!(acl(&mount, name), of_file, "{name}");
        assert_eq!(fs::metadata(mount.at(name)).unwrap().mode() & 0o777, 0o660);
    }
    // Without a default list, the umask applies.
    said("sh", mount.point(), ["-c", "umask 027; mkdir plain; : >plain/file"]);
    assert_eq!(fs::metadata(mount.at("plain")).unwrap().mode() & 0o777, 0o750);
    assert_eq!(fs::metadata(mount.at("plain/file")).unwrap().mode() & 0o777, 0o640);
    mount.settle();
    assert_eq!(acl(&mount, "dir/sub"), [&entries[..], &defaults[..]].concat());
    set(&mount, &["-k", "dir/sub"]);
    assert_eq!(acl(&mount, "dir/sub"), entries);
}

#[test]
fn a_copy_keeps_its_list() {
    let Some(mount) = mounted() else { return };
    fs::create_dir(mount.at("dir")).unwrap();
    fs::write(mount.at("file"), "text").unwrap();
    set(&mount, &["-m", "u:65534:rwx,g:7:r", "file"]);
    set(&mount, &["-d", "-m", "u:65534:rwx", "dir"]);
    // Copied by cp(1) to the host and back.
    let kept = (acl(&mount, "file"), acl(&mount, "dir"));
    let outside = mount.beside("outside");
    fs::create_dir(&outside).unwrap();
    for name in ["file", "dir"] {
        run("cp", ["-a".as_ref(), mount.at(name).as_os_str(), outside.as_os_str()]);
        let (from, to) = (outside.join(name), mount.at(&format!("{name}-back")));
        run("cp", ["-a".as_ref(), from.as_os_str(), to.as_os_str()]);
    }
    assert_eq!((acl(&mount, "file-back"), acl(&mount, "dir-back")), kept);
}
