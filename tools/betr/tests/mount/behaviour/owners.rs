//! Owners of objects, and permissions.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::refused;
use crate::fixture::{Mounted, NOBODY, as_user, said};

/// Another unprivileged user.
const OTHER: u32 = 12_345;

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn owner(path: &Path) -> (u32, u32) {
    let meta = fs::symlink_metadata(path).unwrap();
    (meta.uid(), meta.gid())
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// A mount with a directory that all users may write to.
fn shared() -> Option<Mounted> {
    let mount = Mounted::new("allow_other")?;
    fs::create_dir(mount.at("shared")).unwrap();
    chmod(&mount.at("shared"), 0o777);
    Some(mount)
}

#[test]
fn objects_belong_to_who_made_them() {
    let Some(mut mount) = shared() else { return };
    let at = |name: &str| mount.at("shared").join(name);
    as_user(NOBODY, OTHER, || {
        fs::create_dir(at("dir")).unwrap();
        fs::write(at("dir/file"), "").unwrap();
        symlink("file", at("dir/link")).unwrap();
        let (cwd, kind) = (rustix::fs::CWD, rustix::fs::FileType::Fifo);
        rustix::fs::mknodat(cwd, at("dir/fifo"), kind, rustix::fs::Mode::RUSR, 0).unwrap();
    });
    for name in ["dir", "dir/file", "dir/link", "dir/fifo"] {
        assert_eq!(owner(&at(name)), (NOBODY, OTHER), "{name}");
    }
    // Root can change owners, of links themselves, too; -1 leaves one of the two unchanged.
    chown(at("dir/file"), Some(1), None).unwrap();
    std::os::unix::fs::lchown(at("dir/link"), Some(u32::MAX - 1), Some(3)).unwrap();
    assert_eq!(owner(&at("dir/file")), (1, OTHER));
    assert_eq!(owner(&at("dir/link")), (u32::MAX - 1, 3));
    mount.settle();
}

#[test]
fn modes_are_obeyed() {
    let Some(mount) = shared() else { return };
    let at = |name: &str| mount.at("shared").join(name);
    fs::write(at("private"), "root's").unwrap();
    chmod(&at("private"), 0o600);
    fs::write(at("readable"), "all's").unwrap();
    chmod(&at("readable"), 0o644);
    fs::create_dir_all(at("closed/sub")).unwrap();
    fs::write(at("closed/file"), "").unwrap();
    chmod(&at("closed"), 0o700);
    fs::create_dir(at("blind")).unwrap();
    fs::write(at("blind/file"), "known").unwrap();
    chmod(&at("blind"), 0o711);
    as_user(NOBODY, NOBODY, || {
        refused(Errno::ACCESS, fs::read(at("private")));
        assert_eq!(fs::read_to_string(at("readable")).unwrap(), "all's");
        refused(Errno::ACCESS, fs::OpenOptions::new().append(true).open(at("readable")));
        refused(Errno::ACCESS, fs::metadata(at("closed/file")));
        refused(Errno::ACCESS, fs::read_dir(at("blind")));
        assert_eq!(fs::read_to_string(at("blind/file")).unwrap(), "known");
        refused(Errno::ACCESS, fs::write(at("blind/new"), ""));
        refused(Errno::ACCESS, fs::remove_file(at("blind/file")));
        refused(Errno::ACCESS, fs::rename(at("blind/file"), at("file")));
        refused(
            Errno::PERM,
            fs::set_permissions(at("readable"), fs::Permissions::from_mode(0o666)),
        );
        refused(Errno::PERM, chown(at("readable"), Some(NOBODY), None));
        // The directory is writable for all, so its entries can be removed.
        fs::remove_file(at("private")).unwrap();
        // Execution requires the permission, for files and directories.
        refused(Errno::ACCESS, rustix::fs::access(at("readable"), rustix::fs::Access::EXEC_OK));
        refused(Errno::ACCESS, rustix::fs::access(at("readable"), rustix::fs::Access::WRITE_OK));
        // Owners can deny themselves access; an open file stays usable.
        let mut file = fs::File::create(at("own")).unwrap();
        chmod(&at("own"), 0);
        refused(Errno::ACCESS, fs::read(at("own")));
        file.write_all(b"still open").unwrap();
        chown(at("own"), None, Some(NOBODY)).unwrap();
        refused(Errno::PERM, chown(at("own"), Some(OTHER), None));
        refused(Errno::PERM, chown(at("own"), None, Some(OTHER)));
    });
    assert_eq!(fs::read_to_string(at("own")).unwrap(), "still open");
    refused(Errno::ACCESS, std::process::Command::new(at("readable")).status());
}

#[test]
fn programs_run_and_the_umask_counts() {
    let Some(mount) = shared() else { return };
    fs::write(
        mount.at("script"),
        "#!/bin/sh\numask 027\nmkdir \"$1/d\" && : >\"$1/f\" && exec /bin/true\n",
    )
    .unwrap();
    chmod(&mount.at("script"), 0o755);
    fs::copy("/bin/true", mount.at("true")).unwrap();
    said(mount.at("script").to_str().unwrap(), mount.point(), ["shared"]);
    said(mount.at("true").to_str().unwrap(), mount.point(), [""; 0]);
    assert_eq!((mode(&mount.at("shared/d")), mode(&mount.at("shared/f"))), (0o750, 0o640));
}

#[test]
fn a_group_is_inherited_from_a_directory_that_says_so() {
    let Some(mut mount) = shared() else { return };
    let at = |name: &str| mount.at("shared").join(name);
    fs::create_dir(at("group")).unwrap();
    chown(at("group"), None, Some(777)).unwrap();
    chmod(&at("group"), 0o2777);
    as_user(NOBODY, NOBODY, || {
        fs::write(at("group/file"), "").unwrap();
        fs::create_dir(at("group/sub")).unwrap();
        fs::write(at("group/sub/file"), "").unwrap();
        symlink("file", at("group/link")).unwrap();
    });
    for name in ["group/file", "group/sub", "group/sub/file", "group/link"] {
        assert_eq!(owner(&at(name)), (NOBODY, 777), "{name}");
    }
    assert_eq!(mode(&at("group/sub")) & 0o2000, 0o2000);
    assert_eq!(mode(&at("group/file")) & 0o2000, 0);
    // A user outside the group cannot set set-group-ID.
    as_user(NOBODY, NOBODY, || chmod(&at("group/file"), 0o2755));
    assert_eq!(mode(&at("group/file")), 0o755);
    mount.settle();
}

#[test]
fn in_a_sticky_directory_only_owners_remove() {
    let Some(mut mount) = shared() else { return };
    chmod(&mount.at("shared"), 0o1777);
    let at = |name: &str| mount.at("shared").join(name);
    as_user(NOBODY, NOBODY, || {
        fs::write(at("file"), "").unwrap();
        fs::create_dir(at("dir")).unwrap();
    });
    as_user(OTHER, OTHER, || {
        fs::write(at("own"), "").unwrap();
        refused(Errno::PERM, fs::remove_file(at("file")));
        refused(Errno::PERM, fs::remove_dir(at("dir")));
        refused(Errno::PERM, fs::rename(at("file"), at("moved")));
        refused(Errno::PERM, fs::rename(at("own"), at("file")));
        fs::rename(at("own"), at("renamed")).unwrap();
        fs::remove_file(at("renamed")).unwrap();
    });
    as_user(NOBODY, NOBODY, || {
        fs::rename(at("file"), at("moved")).unwrap();
        fs::remove_file(at("moved")).unwrap();
    });
    // The owner of the directory can remove its entries.
    chown(mount.at("shared"), Some(OTHER), None).unwrap();
    as_user(OTHER, OTHER, || fs::remove_dir(at("dir")).unwrap());
    mount.settle();
}

#[test]
fn who_changes_a_program_takes_its_powers_away() {
    let Some(mut mount) = shared() else { return };
    let at = |name: &str| mount.at("shared").join(name);
    for (name, by_root) in [("written", false), ("cut", false), ("given", true)] {
        fs::write(at(name), "program").unwrap();
        chown(at(name), Some(OTHER), Some(OTHER)).unwrap();
        chmod(&at(name), 0o6777);
        let change = || match name {
            "written" => {
                fs::OpenOptions::new().append(true).open(at(name)).unwrap().write_all(b"x").unwrap()
            }
            "cut" => fs::OpenOptions::new().write(true).open(at(name)).unwrap().set_len(3).unwrap(),
            _ => chown(at(name), Some(7), Some(7)).unwrap(),
        };
        if by_root {
            change()
        } else {
            as_user(NOBODY, NOBODY, change)
        }
        assert_eq!(mode(&at(name)), 0o777, "{name}");
    }
    // Capabilities may be set again while the file is open.
    fs::write(at("open"), "program").unwrap();
    chmod(&at("open"), 0o777);
    let open = || fs::OpenOptions::new().write(true).open(at("open")).unwrap();
    let file = as_user(NOBODY, NOBODY, open);
    for round in 0..3 {
        chmod(&at("open"), 0o6777);
        assert_eq!(mode(&at("open")), 0o6777);
        as_user(NOBODY, NOBODY, || match round {
            0 => (&file).write_all(b"x").unwrap(),
            1 => rustix::fs::ftruncate(&file, 2).unwrap(),
            _ => {
                let flags = rustix::fs::FallocateFlags::ZERO_RANGE;
                rustix::fs::fallocate(&file, flags, 0, 1).unwrap();
            }
        });
        assert_eq!(mode(&at("open")), 0o777, "round {round}");
    }
    drop(file);
    mount.settle();
}

/// A write by another user than root clears set-user-ID, and clears set-group-ID if the group may execute the file or
/// the user is not in the group.
#[test]
fn who_changes_a_file_takes_its_powers() {
    let Some(mut mount) = Mounted::new("allow_other") else { return };
    type Change<'a> = dyn Fn(&fs::File) + Sync + 'a;
    let allocate = |file: &fs::File, flags| rustix::fs::fallocate(file, flags, 0, 20_000).unwrap();
    let changes: [(&str, &Change<'_>); 6] = [
        ("write", &|file| file.write_all_at(b"x", 0).unwrap()),
        ("append", &|file| file.write_all_at(b"x", 9000).unwrap()),
        ("cut", &|file| file.set_len(1).unwrap()),
        ("lengthen", &|file| file.set_len(99_999).unwrap()),
        ("reserve", &|file| allocate(file, FallocateFlags::empty())),
        ("punch", &|file| allocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE)),
    ];
    for mode in [0o6666, 0o6766, 0o6676, 0o6667, 0o6777, 0o2666, 0o2676, 0o4777] {
        for group in [NOBODY, 777] {
            for (name, change) in changes {
                let path = mount.at(&format!("{name}-{mode:o}-{group}"));
                fs::write(&path, [7; 9000]).unwrap();
                chown(&path, Some(0), Some(777)).unwrap();
                chmod(&path, mode);
                as_user(NOBODY, group, || {
                    change(&fs::File::options().write(true).open(&path).unwrap());
                });
                let stays = if group == 777 && mode & 0o010 == 0 { 0o2777 } else { 0o777 };
                assert_eq!(self::mode(&path), mode & stays, "{name}, {mode:o}, group {group}");
            }
        }
    }
    mount.settle();
}
