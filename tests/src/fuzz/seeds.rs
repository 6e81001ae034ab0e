//! Seeds of a fuzzer without a corpus: the structures of the sound image, as inputs of their targets.

use std::sync::Arc;

use betr_copy::host::{Kind, Meta};
use betr_copy::tar::{Segments, Writer};
use betr_core::device::Device;
use betr_core::disk::Disk;
use betr_core::format::*;
use betr_core::ids::*;
use betr_offline::anatomy::Kind as Structure;
use bytes::Bytes;

use super::image::Sound;

/// 40: the offset in a sealed structure from which a fuzzer has to find the bytes.
const HASHED_FROM: usize = 40;
/// 12 inputs for each kind of structure.
const OF_A_KIND: usize = 12;

/// One edit of each operation.
const EDITS: [&[u8]; 7] = [
    &[0x80, 200, 0, 0, 0, 1, 7, 7],
    &[1, 100, 1, 1],
    &[2, 200, 1, 220, 1],
    &[3, 30, 1, 0],
    &[4, 9, 0, 12, 0],
    &[0x85, 40, 0, 99, 0],
    &[6, 80, 0, 0],
];

/// Inputs, each with the name of its target.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let sound = Sound::image();
    let mut seeds = vec![("tar", archive()), ("plan", vec![2, 1, 2, b'y', b's', 3, 1, 7, 5, 1, 9])];
    seeds.extend(EDITS.map(|edit| ("image", edit.to_vec())));
    let device: Arc<dyn Device> = Arc::new(sound.device.fork());
    let disk = Disk::new(device);
    for part in sound.parts.all() {
        let mut bytes = part.read(&disk, 0).expect("the image has its parts");
        match part.kind {
            Structure::Identity
            | Structure::Superblock
            | Structure::MapPage
            | Structure::TablePage
            | Structure::Internal
            | Structure::Leaf
            | Structure::Run
            | Structure::ScatterMap
            | Structure::Holds
            | Structure::Dead
            | Structure::Group => {
                let (target, which) = target(part.kind);
                while target != "log" && bytes.len() == BLOCK_SIZE && bytes.last() == Some(&0) {
                    bytes.pop();
                }
                seeds.push((target, [&[which], &bytes[HASHED_FROM.min(bytes.len())..]].concat()));
            }
            Structure::Basement { tree } => {
                let tree_code = u8::from(tree == TreeId::Data);
                seeds.push(("leaf", [&[1, tree_code][..], &bytes].concat()));
                let section = KeySection::decode(&bytes, tree, None);
                let which = if tree == TreeId::Data { 2 } else { 1 };
                for entry in section.expect("a sound section").entries() {
                    seeds.push(("values", [&[which], entry.key].concat()));
                }
            }
            Structure::Slice { count } => {
                let before = [&[1][..], &(count as u16).to_le_bytes()].concat();
                seeds.push(("run", [&before[..], &bytes].concat()));
                let messages = decode_slice(&Bytes::from(bytes), count, None);
                for (_, message) in messages.expect("a sound slice") {
                    seeds.extend(of_action(&message.action).map(|seed| ("values", seed)));
                }
            }
            Structure::Ranges { count } => {
                let before = [&[2][..], &(count as u16).to_le_bytes()].concat();
                seeds.push(("run", [&before[..], &bytes].concat()));
            }
            Structure::MetaValue => seeds.push(("values", [&[0], &bytes[..]].concat())),
            Structure::Chunk | Structure::Update | Structure::Bytes | Structure::Padding => {}
        }
    }
    let mut kept: Vec<(&str, Vec<u8>)> = Vec::new();
    for seed in seeds {
        let alike = |other: &&(&str, Vec<u8>)| other.0 == seed.0 && other.1[0] == seed.1[0];
        if kept.iter().filter(alike).count() < OF_A_KIND && seed.1.len() <= 3 * BLOCK_SIZE {
            kept.push(seed);
        }
    }
    kept
}

/// The target of a structure, and its index there.
fn target(structure: Structure) -> (&'static str, u8) {
    match structure {
        Structure::Identity => ("superblock", 0),
        Structure::Superblock => ("superblock", 1),
        Structure::TablePage => ("table", 0),
        Structure::MapPage => ("table", 1),
        Structure::ScatterMap => ("table", 2),
        Structure::Holds => ("table", 3),
        Structure::Dead => ("table", 4),
        Structure::Internal => ("internal", 0),
        Structure::Leaf => ("leaf", 0),
        Structure::Run => ("run", 0),
        Structure::Group => ("log", 0),
        _ => unreachable!("{structure:?} has no seal"),
    }
}

/// An input for a value; for an update, the update twice, each after its length, and a value to change.
fn of_action(action: &Action) -> Option<Vec<u8>> {
    match action {
        Action::Insert(value) => Some([&[0], &value[..]].concat()),
        Action::Update(update) => {
            let bytes = update.bytes();
            let len = [u8::try_from(bytes.len()).ok()?];
            Some([&[3], &len[..], bytes, &len, bytes, b"what was there"].concat())
        }
        Action::Delete => None,
    }
}

fn archive() -> Vec<u8> {
    let mut writer = Writer::new(vec![0]);
    let time = betr_copy::host::Time { secs: 5, nanos: 1 };
    let meta = |kind| Meta {
        xattrs: vec![(b"user.a".to_vec(), b"b".to_vec())],
        ..Meta::new(kind, 0o640, time)
    };
    let file = Meta { size: 2000, ..meta(Kind::File) };
    let mut holes = Segments::new(2000);
    holes.push(600, 700);
    let written = writer
        .object(b"d/", &meta(Kind::Directory))
        .and_then(|()| writer.file(b"d/f", &file, &holes))
        .and_then(|()| writer.data(&[7; 100]))
        .and_then(|()| writer.link(b"l", b"d/f", &file))
        .and_then(|()| writer.object(b"s", &meta(Kind::Symlink(vec![b't'; 120]))))
        .and_then(|()| writer.finish());
    written.expect("memory can be written to")
}
