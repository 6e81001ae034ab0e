//! Pipes, sockets and devices are preserved, and work.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::io::Errno;

use super::refused;
use crate::fixture::{Mounted, NOBODY, as_user};

#[test]
fn a_pipe_leads_from_one_to_the_other() {
    let Some(mut mount) = Mounted::new("") else { return };
    let path = mount.at("fifo");
    mknodat(CWD, &path, FileType::Fifo, Mode::from(0o640), 0).unwrap();
    refused(Errno::EXIST, mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0));
    mount.settle();
    let meta = fs::metadata(&path).unwrap();
    assert!(meta.file_type().is_fifo() && meta.mode() & 0o777 == 0o640);
    let text = std::thread::scope(|scope| {
        scope.spawn(|| File::options().write(true).open(&path).unwrap().write_all(b"through"));
        let mut text = String::new();
        File::open(&path).unwrap().read_to_string(&mut text).unwrap();
        text
    });
    assert_eq!(text, "through");
}

#[test]
fn a_socket_is_listened_at_and_connected_to() {
    let Some(mut mount) = Mounted::new("") else { return };
    let path = mount.at("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"x").unwrap();
    let mut byte = [0];
    listener.accept().unwrap().0.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"x");
    refused(Errno::ADDRINUSE, UnixListener::bind(&path));
    drop((listener, client));
    mount.settle();
    assert!(fs::metadata(&path).unwrap().file_type().is_socket());
    refused(Errno::CONNREFUSED, UnixStream::connect(&path));
}

#[test]
fn devices_are_those_of_the_kernel() {
    let Some(mut mount) = Mounted::new("allow_other") else { return };
    let (null, zero) = (mount.at("null"), mount.at("zero"));
    mknodat(CWD, &null, FileType::CharacterDevice, Mode::from(0o666), makedev(1, 3)).unwrap();
    mknodat(CWD, &zero, FileType::CharacterDevice, Mode::from(0o666), makedev(1, 5)).unwrap();
    // Device numbers that need more than 16 bits.
    let large = makedev(4000, 0xa_bcde);
    mknodat(CWD, mount.at("large"), FileType::BlockDevice, Mode::RUSR, large).unwrap();
    mknodat(CWD, mount.at("file"), FileType::RegularFile, Mode::from(0o600), 0).unwrap();
    mount.settle();
    assert!(fs::read(&null).unwrap().is_empty());
    fs::write(&null, "gone").unwrap();
    let mut bytes = [1; 100];
    File::open(&zero).unwrap().read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, [0; 100]);
    let meta = fs::metadata(mount.at("large")).unwrap();
    assert!(meta.file_type().is_block_device() && meta.rdev() == large);
    assert!(fs::metadata(mount.at("file")).unwrap().is_file());
    // Only root can create devices.
    fs::create_dir(mount.at("dir")).unwrap();
    rustix::fs::chmod(mount.at("dir"), Mode::from(0o777)).unwrap();
    as_user(NOBODY, NOBODY, || {
        let made = mknodat(
            CWD,
            mount.at("dir/null"),
            FileType::CharacterDevice,
            Mode::RUSR,
            makedev(1, 3),
        );
        refused(Errno::PERM, made);
    });
}
