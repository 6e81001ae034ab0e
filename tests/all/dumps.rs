//! The dump of a small fixed image, reviewed and kept; and that a dump leaves no byte out.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use betr_cli::Io;
use betr_core::device::{Device, MemoryDevice};
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Fs, New};
use betr_core::ids::Time;
use betr_core::volume::Mode;
use betr_tests::{clock, create, open, tight, tiny};
use bytes::Bytes;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: betr_dump::Args,
}

/// A file that is removed when the test ends.
struct Image(PathBuf);

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// One checkpoint, a second with messages pending and a range delete, and two groups in the log.
fn image(name: &str) -> Image {
    let device = Arc::new(MemoryDevice::new(2 << 20));
    let volume = create(device.clone(), tiny(), tight(), 1).unwrap();
    let attributes = Attributes { perm: 0o644, ..Attributes::at(Time { secs: 1_000, nanos: 7 }) };
    let mut fs = Fs::format(volume, clock(0), attributes).unwrap();
    let file = |fs: &mut Fs, name: &str, bytes: usize| {
        let root = fs.root().unwrap();
        let file = fs.make(&root, name.as_bytes(), New::of(FileType::Regular, attributes)).unwrap();
        fs.write(&file, 0, &Bytes::from(vec![b'x'; bytes])).unwrap();
        file
    };
    for number in 0..14 {
        let made = file(&mut fs, &format!("file-{number:02}"), 700 * (number % 8));
        if number == 3 {
            fs.set_xattrs(&made, &[(b"user.note".to_vec(), b"odd \xff value".to_vec())]).unwrap();
        }
    }
    let target = New { target: b"file-03".to_vec(), ..New::of(FileType::Symlink, attributes) };
    let root = fs.root().unwrap();
    fs.make(&root, b"link\n", target).unwrap();
    fs.checkpoint().unwrap();
    drop(fs);
    let volume = open(device.clone(), Mode::ReadWrite, tight(), 2).unwrap().0;
    let mut fs = Fs::open(volume, clock(2_000));
    file(&mut fs, "another", 90);
    let root = fs.root().unwrap();
    fs.unlink(&root, b"file-13").unwrap();
    fs.checkpoint().unwrap();
    file(&mut fs, "in-the-log", 10);
    fs.volume_mut().sync().unwrap();
    fs.unlink(&root, b"file-00").unwrap();
    fs.volume_mut().sync().unwrap();
    let path = std::env::temp_dir().join(format!("betr-dump-{name}-{}.img", std::process::id()));
    std::fs::write(&path, device.snapshot()).unwrap();
    Image(path)
}

fn dump(image: &Path, words: &[&str]) -> String {
    let line = ["dump", image.to_str().unwrap()].iter().chain(words).copied().collect::<Vec<_>>();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = Line::try_parse_from(line).unwrap().args;
    let exit = betr_dump::run(&args, &mut Io::plain(&mut out, &mut err)).unwrap();
    assert_eq!(exit.code(), 0, "{words:?}");
    String::from_utf8(out).unwrap()
}

#[test]
fn of_a_fixed_image() {
    let image = image("fixed");
    for (name, words) in [
        ("super", vec!["super"]),
        ("zones", vec!["zones"]),
        ("tree", vec!["tree"]),
        ("root", vec!["node", "n:1"]),
        ("pending", vec!["node", "n:2"]),
        ("log", vec!["log"]),
        ("path", vec!["path", "/file-03"]),
    ] {
        insta::assert_snapshot!(format!("dump_{name}"), dump(&image.0, &words));
    }
    let table = dump(&image.0, &["table"]);
    let used: Vec<&str> = table.lines().take(40).collect();
    insta::assert_snapshot!("dump_table", used.join("\n"));
}

/// The extents that a dump of a node shows, joined where they adjoin.
fn covered(json: &str) -> Vec<(u64, u64)> {
    let document: serde_json::Value = serde_json::from_str(json).unwrap();
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    let mut pieces: Vec<(u64, u64)> = document["structures"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| (number(&s["byte"]), number(&s["byte"]) + number(&s["bytes"])))
        .collect();
    pieces.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (from, to) in pieces {
        match joined.last_mut() {
            Some(last) if from <= last.1 => {
                assert!(from == last.1 || from == to, "bytes {from:#x} are shown twice");
                last.1 = last.1.max(to);
            }
            _ => joined.push((from, to)),
        }
    }
    joined
}

#[test]
fn every_byte_of_a_node_is_shown() {
    let image = image("bytes");
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from(std::fs::read(&image.0).unwrap()));
    let volume = open(device, Mode::Checkpoint, tight(), 3).unwrap().0;
    let mut nodes = 0;
    for id in 1..volume.superblock().next_node.0 {
        let Some(entry) = volume.store().table.get(betr_core::ids::NodeId(id)).unwrap() else {
            continue;
        };
        let shown = covered(&dump(&image.0, &["--json", "node", &id.to_string()]));
        let head = (entry.extent.start.byte(), entry.extent.end().byte());
        let node = volume.store().node(betr_core::ids::NodeId(id)).unwrap();
        let mut expected = vec![head];
        if let betr_core::node::Node::Internal(internal) = &*node {
            let run = |run: &betr_core::node::Run| run.reference().extent;
            let runs = internal.runs().iter().map(run);
            expected.extend(runs.map(|extent| (extent.start.byte(), extent.end().byte())));
        }
        expected.sort_unstable();
        // Extents that adjoin on the device are shown as one.
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (from, to) in expected {
            match joined.last_mut() {
                Some(last) if last.1 == from => last.1 = to,
                _ => joined.push((from, to)),
            }
        }
        assert_eq!(shown, joined, "n:{id}");
        nodes += 1;
    }
    assert!(nodes > 5);
}
