//! Memory-mapped files.

use std::fs;
use std::os::unix::fs::FileExt;

use rustix::fs::OFlags;

use crate::fixture::{Mapping, Mounted, Share, can_map, open, said, write_beside_readers};

fn mounted() -> Option<Mounted> {
    can_map().then(|| Mounted::new("")).flatten()
}

#[test]
fn a_shared_mapping_is_the_file() {
    let Some(mut mount) = mounted() else { return };
    let path = mount.at("file");
    let mut expected = vec![b'a'; 20_000];
    fs::write(&path, &expected).unwrap();
    let mut mapping = Mapping::new(&path, 20_000, Share::Shared);
    let mut second = Mapping::new(&path, 20_000, Share::Shared);
    assert!(mapping.read(0, 20_000) == expected);
    // Reads and other mappings see the change at once.
    mapping.write(5000, &[b'b'; 8000]);
    expected[5000..13_000].fill(b'b');
    assert!(fs::read(&path).unwrap() == expected);
    assert!(second.read(0, 20_000) == expected);
    // A mapping sees writes through the file.
    let file = open(&path, OFlags::empty());
    file.write_all_at(b"written", 300).unwrap();
    expected[300..307].copy_from_slice(b"written");
    assert_eq!(mapping.read(298, 11), b"aawrittenaa");
    mapping.write(4000, b"synced");
    expected[4000..4006].copy_from_slice(b"synced");
    mapping.sync();
    // Unmapped without msync, the changes are kept, too.
    second.write(19_990, b"unsynced");
    expected[19_990..19_998].copy_from_slice(b"unsynced");
    drop((mapping, second, file));
    mount.settle();
    assert!(fs::read(mount.at("file")).unwrap() == expected);
}

/// A completed asynchronous direct write leaves no older page in the page cache (xfstests generic/451).
#[test]
fn direct_writes_leave_no_stale_pages() {
    let Some(mut mount) = mounted() else { return };
    let path = mount.at("file");
    fs::write(&path, vec![0; 1 << 20]).unwrap();
    write_beside_readers(&path, 1 << 20, 200).unwrap();
    mount.settle();
    let bytes = fs::read(mount.at("file")).unwrap();
    assert!(bytes.len() == 1 << 20 && bytes.iter().all(|byte| *byte == 1));
}

#[test]
fn a_mapping_of_a_hole_fills_it() {
    let Some(mut mount) = mounted() else { return };
    const LEN: usize = 3_000_001;
    let path = mount.at("file");
    let file = open(&path, OFlags::empty());
    file.set_len(LEN as u64).unwrap();
    let mut expected = vec![0; LEN];
    let mut mapping = Mapping::new(&path, LEN, Share::Shared);
    assert!(mapping.read(0, LEN) == expected);
    mapping.write(2_000_000, b"11111");
    expected[2_000_000..2_000_005].fill(b'1');
    mapping.write(LEN - 1, b"2");
    expected[LEN - 1] = b'2';
    // A mapping sees a hole that is punched in the file.
    let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, flags, 1_999_000, 1002).unwrap();
    expected[2_000_000..2_000_002].fill(0);
    assert_eq!(mapping.read(1_999_998, 8), [0, 0, 0, 0, b'1', b'1', b'1', 0]);
    drop((mapping, file));
    mount.settle();
    assert!(fs::read(mount.at("file")).unwrap() == expected);
}

#[test]
fn what_is_mapped_behind_the_end_is_not_the_files() {
    let Some(mut mount) = mounted() else { return };
    let path = mount.at("file");
    fs::write(&path, "short").unwrap();
    let mut mapping = Mapping::new(&path, 4096, Share::Shared);
    assert_eq!(mapping.read(0, 10), b"short\0\0\0\0\0");
    mapping.write(3, b"rt, and more");
    mapping.sync();
    drop(mapping);
    assert_eq!(fs::read_to_string(&path).unwrap(), "short");
    let file = open(&path, OFlags::empty());
    file.set_len(10).unwrap();
    drop(file);
    mount.settle();
    assert_eq!(fs::read(mount.at("file")).unwrap(), b"short\0\0\0\0\0");
}

#[test]
fn a_private_mapping_changes_nothing() {
    let Some(mut mount) = mounted() else { return };
    fs::write(mount.at("file"), vec![b'a'; 10_000]).unwrap();
    let mut mapping = Mapping::new(&mount.at("file"), 10_000, Share::Private);
    mapping.write(5000, b"private");
    assert_eq!(mapping.read(4999, 9), b"aprivatea");
    assert!(fs::read(mount.at("file")).unwrap() == vec![b'a'; 10_000]);
    drop(mapping);
    // Programs are mapped like this, and their data segments are written to.
    fs::copy("/bin/true", mount.at("true")).unwrap();
    for _ in 0..3 {
        said(mount.at("true").to_str().unwrap(), mount.point(), [""; 0]);
        mount.remount();
    }
    assert!(fs::read(mount.at("true")).unwrap() == fs::read("/bin/true").unwrap());
    assert!(fs::read(mount.at("file")).unwrap() == vec![b'a'; 10_000]);
}
