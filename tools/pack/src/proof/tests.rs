//! Proofs of an image in memory: however a proof is modified, every claim that verifies is true.

use std::fs::File;
use std::io::{Seek, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use betr_core::Result;
use betr_core::check::{CheckOptions, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::disk::Disk;
use betr_core::format::{FileType, Inode, PagePointer};
use betr_core::fs::{Attributes, Fs, New};
use betr_core::ids::{BlockNr, Hash, Time};
use betr_core::store::{CacheBudget, Geometry};
use betr_core::volume::{CreateOptions, Ring, Volume, read_identity};
use betr_offline::device::NotingDevice;
use bytes::Bytes;

use crate::proof::file::{Claim, ProofDevice, write};
use crate::proof::look;

/// The result of a lookup: the inode, and the contents if requested.
type Found = Option<(Inode, Vec<(u64, Vec<u8>)>)>;

/// An image with deep trees and pending messages.
fn image() -> (Arc<MemoryDevice>, PagePointer) {
    let device = Arc::new(MemoryDevice::new(4 << 20));
    let options = CreateOptions {
        log_bytes: 64 << 10,
        geometry: Geometry { node_size: 4096, leaf_size: 4096, basement_size: 512, fanout: 4 },
        cache: CacheBudget { total_bytes: 64 << 10, dirty_bytes: 24 << 10 },
        ..CreateOptions::new(*b"test volume uuid", device.len(), Box::new(|| 7))
    };
    let volume = Volume::create(device.clone(), options).unwrap();
    let clock = Box::new(|| Time { secs: 5, nanos: 0 });
    let mut fs = Fs::format(volume, clock, Attributes::at(Time::default())).unwrap();
    let root = fs.root().unwrap();
    let mut files = Vec::new();
    for at in 0..60u8 {
        let new = New::of(FileType::Regular, Attributes::at(Time::default()));
        let file = fs.make(&root, format!("f{at}").as_bytes(), new).unwrap();
        fs.write(&file, 0, &Bytes::from(vec![at | 1; 50 + 97 * usize::from(at)])).unwrap();
        files.push(file);
    }
    fs.checkpoint().unwrap();
    for at in [7, 20, 41] {
        fs.write(&files[at], 3, &Bytes::from_static(b"changed")).unwrap();
        fs.unlink(&root, format!("f{}", at + 1).as_bytes()).unwrap();
    }
    fs.checkpoint().unwrap();
    let device_read: Arc<dyn Device> = device.clone();
    let report = check(&device_read, CheckOptions::ALL, &mut ());
    assert!(report.is_clean() && report.counts.pending > 0, "{:?}", report.counts);
    let disk = Disk::new(device.clone());
    let ring = Ring::read(&disk, &read_identity(&disk).unwrap()).unwrap();
    (device, ring.choose(None).unwrap().table.page)
}

fn find(device: Arc<dyn Device>, claim: &Claim, root: Hash) -> Result<Found> {
    let fs = look::open(device, claim.root, root)?;
    let Some(object) = look::find(&fs, &claim.path)? else { return Ok(None) };
    let mut contents = Vec::new();
    if claim.contents {
        look::contents(&fs, &object, |at, bytes| {
            contents.push((at, bytes.to_vec()));
            Ok::<(), betr_core::Error>(())
        })?;
    }
    Ok(Some((Inode::clone(&object.inode()), contents)))
}

/// The ranges read by a lookup, and its result.
fn read(device: &Arc<MemoryDevice>, claim: &Claim, root: Hash) -> (Vec<Range<u64>>, Found) {
    let noting = Arc::new(NotingDevice::new(device.clone()));
    let found = find(noting.clone(), claim, root).unwrap();
    (noting.read(), found)
}

fn file_of(bytes: &[u8]) -> File {
    let file = rustix::fs::memfd_create("proof", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let mut file = File::from(file);
    file.write_all(bytes).unwrap();
    file
}

/// The claim and result that a proof shows; `None` if it does not verify.
fn shown(file: &File, root: Hash) -> Option<(Claim, Found)> {
    let mut file = file.try_clone().unwrap();
    file.rewind().unwrap();
    let (claim, device) = ProofDevice::open(file).ok()?;
    let found = find(Arc::new(device), &claim, root).ok()?;
    Some((claim, found))
}

#[test]
fn what_is_accepted_is_true_whatever_byte_is_flipped() {
    let (device, root) = image();
    for (path, there) in [("/f7", true), ("/f8", false)] {
        let claim = Claim { path: path.into(), contents: true, root: root.block };
        let (rows, found) = read(&device, &claim, root.hash);
        assert_eq!(found.is_some(), there, "{path}");
        let mut bytes = Vec::new();
        write(&mut bytes, &claim, &rows, &*device).unwrap();
        let file = file_of(&bytes);
        assert_eq!(shown(&file, root.hash), Some((claim.clone(), found.clone())), "{path}");
        let mut accepted = 0;
        for at in 0..bytes.len() {
            file.write_all_at(&[bytes[at] ^ 1 << (at % 8)], at as u64).unwrap();
            if let Some((claim, found)) = shown(&file, root.hash) {
                // A flip in the path or the flags makes another claim, which is accepted only if it is true as well.
                assert_eq!(found, read(&device, &claim, root.hash).1, "{path}: byte {at}");
                accepted += 1;
            }
            file.write_all_at(&bytes[at..=at], at as u64).unwrap();
        }
        // Flips that are accepted: bytes that are stored beside a value that was read, and not used.
        assert!(accepted * 4 < bytes.len(), "{path}: {accepted} of {}", bytes.len());
    }
}

#[test]
fn nothing_that_is_read_can_be_left_out() {
    let (device, root) = image();
    // Without the pending messages on the path, deleted files would still appear to exist.
    for path in ["/f7", "/f8", "/f42", "/f59"] {
        let claim = Claim { path: path.into(), contents: true, root: root.block };
        let (rows, found) = read(&device, &claim, root.hash);
        let prove = |rows: &[Range<u64>], claim: &Claim| {
            let mut bytes = Vec::new();
            write(&mut bytes, claim, rows, &*device).unwrap();
            shown(&file_of(&bytes), root.hash)
        };
        assert!(prove(&rows, &claim).is_some_and(|(_, shown)| shown == found));
        for left_out in 0..rows.len() {
            let mut rows = rows.clone();
            let gone = rows.remove(left_out);
            assert!(prove(&rows, &claim).is_none(), "{path}: without {gone:?}");
            let halves = [gone.start..gone.end - 1, gone.start + 1..gone.end];
            for half in halves.into_iter().filter(|half| !half.is_empty()) {
                rows.insert(left_out, half);
                assert!(prove(&rows, &claim).is_none(), "{path}: without an end of {gone:?}");
                rows.remove(left_out);
            }
        }
        let elsewhere = Claim { root: BlockNr(root.block.0 + 1), ..claim.clone() };
        assert!(prove(&rows, &elsewhere).is_none());
    }
}

#[test]
fn another_state_has_another_root() {
    let (device, root) = image();
    let claim = Claim { path: b"/f7".to_vec(), contents: true, root: root.block };
    let (rows, _) = read(&device, &claim, root.hash);
    let mut bytes = Vec::new();
    write(&mut bytes, &claim, &rows, &*device).unwrap();
    let file = file_of(&bytes);
    for bit in 0..256 {
        let mut other = root.hash;
        other.0[bit / 8] ^= 1 << (bit % 8);
        assert!(shown(&file, other).is_none());
    }
    // The previous checkpoint is still on the device; its root proves the earlier state.
    let disk = Disk::new(device.clone());
    let ring = Ring::read(&disk, &read_identity(&disk).unwrap()).unwrap();
    let newest = ring.choose(None).unwrap().birth.epoch;
    let older = ring.slots().iter().filter_map(|slot| slot.superblock());
    let before =
        older.filter(|older| older.birth.epoch < newest).max_by_key(|older| older.birth.epoch);
    let before = before.unwrap().table.page;
    let claim = Claim { path: b"/f8".to_vec(), root: before.block, ..claim };
    let (rows, found) = read(&device, &claim, before.hash);
    assert!(found.is_some());
    let mut bytes = Vec::new();
    write(&mut bytes, &claim, &rows, &*device).unwrap();
    assert!(shown(&file_of(&bytes), before.hash).is_some());
    assert!(shown(&file_of(&bytes), root.hash).is_none());
}
