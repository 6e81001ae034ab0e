//! Readers accept any placement that the schema allows: directories and files without zones of their own.

use std::sync::Arc;

use betr_core::check::{CheckOptions, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::format::{Action, FileType, Inode, MetaKey, Op, RecordMessage, Sums, data_key};
use betr_core::fs::{Attributes, Fs, New, ROOT_ZONE, Walk};
use betr_core::ids::{Ino, Time, TreeId};
use betr_core::volume::{Mode, Transaction};
use betr_tests::{clock, create, open, tight, tiny};
use bytes::Bytes;

fn put(messages: &mut Vec<RecordMessage>, place: &MetaKey, inode: &Inode) {
    let value = Action::Insert(Bytes::from(inode.encode()));
    messages.push(RecordMessage::Point(TreeId::Metadata, place.encode(), value));
}

#[test]
fn nested_directories_within_one_zone_are_read_and_checked() {
    let device = Arc::new(MemoryDevice::new(4 << 20));
    let volume = create(device.clone(), tiny(), tight(), 1).unwrap();
    let attributes = Attributes::at(Time { secs: 5, nanos: 0 });
    let mut fs = Fs::format(volume, clock(0), attributes).unwrap();
    let root = fs.root().unwrap();
    let model = fs.make(&root, b"model", New::of(FileType::Regular, attributes)).unwrap();
    let mut volume = fs.into_volume();

    // /a and /a/b are directories of the root's zone; /a/b/file keeps its blocks under its own key.
    let at = |path: &[&str]| {
        path.iter().fold(MetaKey::root(ROOT_ZONE), |place, name| place.child(name.as_bytes()))
    };
    let mut inode = |kind, links, size| {
        let ino: Ino = volume.take_ino().unwrap();
        Inode { kind, links, size, ino, data_zone: None, ..Inode::clone(&model.inode()) }
    };
    let mut messages = Vec::new();
    // A name counts two bytes more than its length, plus 128 for the inode; files count whole blocks.
    let of = |names: &[&str]| Sums {
        meta: names.iter().map(|name| name.len() as u64 + 2 + 128).sum(),
        data: 8192,
        apart: 0,
    };
    let a = Inode { sums: of(&["b", "file"]), ..inode(FileType::Directory, 3, 0) };
    let b = Inode { sums: of(&["file"]), ..inode(FileType::Directory, 2, 0) };
    let sums = of(&["a", "b", "file", "model"]);
    put(&mut messages, &at(&["a"]), &a);
    put(&mut messages, &at(&["a", "b"]), &b);
    put(&mut messages, &at(&["a", "b", "file"]), &inode(FileType::Regular, 1, 5000));
    let root = Inode { links: 3, sums, ..Inode::clone(&root.inode()) };
    put(&mut messages, &MetaKey::root(ROOT_ZONE), &root);
    let prefix = at(&["a", "b", "file"]).encode();
    for (block, bytes) in [(0, vec![1; 4096]), (1, vec![2; 904])] {
        let value = Action::Insert(Bytes::from(bytes));
        messages.push(RecordMessage::Point(TreeId::Data, data_key(&prefix, block), value));
    }
    volume.commit(Transaction { op: Op::Raw, wall: Time::default(), messages }).unwrap();
    volume.checkpoint().unwrap();
    drop(volume);

    let state: Arc<dyn Device> = device.clone();
    let report = check(&state, CheckOptions::ALL, &mut ());
    assert!(report.findings.is_empty(), "{:?}", report.findings);

    let volume = open(device, Mode::ReadOnly, tight(), 2).unwrap().0;
    let fs = Fs::open(volume, clock(0));
    let file = fs.resolve(b"/a/b/file").unwrap();
    let contents = fs.read(&file, 0, 10_000).unwrap();
    assert_eq!((contents.len(), contents[4095], contents[4096]), (5000, 1, 2));
    let mut paths = Vec::new();
    let mut walk = Walk::new(fs.root().unwrap());
    while let Some((path, _)) = walk.next_object(&fs).unwrap() {
        paths.push(String::from_utf8(path).unwrap());
    }
    assert_eq!(paths, ["", "model", "a", "a/b", "a/b/file"]);
}
