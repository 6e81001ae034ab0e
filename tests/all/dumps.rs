//! Snapshots of the dump of a small fixed image, and the property that a dump omits no byte.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use betr_cli::Io;
use betr_core::check::{CATALOG, Code};
use betr_core::device::{Device, MemoryDevice};
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Fs, New};
use betr_core::ids::{Time, TreeId};
use betr_core::kv::{Batch, Kv, KvOptions};
use betr_core::volume::Mode;
use betr_lab::damage::make_broken;
use betr_tests::{clock, create, nonces, open, tight, tiny};
use bytes::Bytes;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: betr_dump::Args,
}

/// A file that is removed on drop.
struct Image(PathBuf);

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// An image with one checkpoint, a second one with pending messages and a range delete, and two log groups.
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

fn explained(image: &Path, words: &[&str]) -> String {
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: betr_dump::explain::Args,
    }
    let words = [&["explain", image.to_str().unwrap()], words].concat();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = Line::try_parse_from(&words).unwrap().args;
    let exit = betr_dump::explain::run(&args, &mut Io::plain(&mut out, &mut err)).unwrap();
    assert_eq!((exit.code(), &err[..]), (0, &b""[..]), "{words:?}");
    String::from_utf8(out).unwrap()
}

/// An image of keys: a range and its clone, with a key of its own, in the checkpoint; a clone of that in the log.
fn image_of_keys(name: &str) -> Image {
    let device = Arc::new(MemoryDevice::new(2 << 20));
    let options = KvOptions { geometry: Some(tiny()), ..KvOptions::new(nonces(1)) };
    let mut kv = Kv::create(device.clone(), *b"a key-value name", options).unwrap();
    let mut batch = Batch::new();
    for number in 0..40u8 {
        batch.insert(TreeId::Data, &[b"one/", &[number][..]].concat(), &[number; 300]);
    }
    kv.commit(batch).unwrap();
    kv.clone_range(TreeId::Data, b"one/", b"two/").unwrap();
    let mut batch = Batch::new();
    batch.insert(TreeId::Data, b"two/\x07", b"its own");
    kv.commit(batch).unwrap();
    kv.checkpoint().unwrap();
    kv.clone_range(TreeId::Data, b"two/", b"six/").unwrap();
    kv.rename_range(TreeId::Data, b"one/", b"old/").unwrap();
    kv.sync().unwrap();
    drop(kv);
    let path = std::env::temp_dir().join(format!("betr-dump-{name}-{}.img", std::process::id()));
    std::fs::write(&path, device.snapshot()).unwrap();
    Image(path)
}

/// Runs a dump that may find damage; returns its output and exit code.
fn dumped(image: &Path, words: &[&str]) -> (String, u8) {
    let line = ["dump", image.to_str().unwrap()].iter().chain(words).copied().collect::<Vec<_>>();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = Line::try_parse_from(line).unwrap().args;
    let exit = betr_dump::run(&args, &mut Io::plain(&mut out, &mut err));
    let exit = exit.unwrap_or_else(|failure| failure.exit);
    (String::from_utf8(out).unwrap(), exit.code())
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
        ("space", vec!["space"]),
        ("stats", vec!["stats"]),
        ("messages", vec!["messages"]),
        ("messages_filtered", vec!["messages", "--kind", "update", "--msn", "..60", "--ndjson"]),
        ("buffer", vec!["buffer", "n:2"]),
        ("basement", vec!["basement", "n:1", "0"]),
        ("key", vec!["key", "k#1:00000000000000000166696c652d303300"]),
        ("block_log", vec!["block", "b:0x40090"]),
        ("block_super", vec!["block", "b:0x20010", "--json"]),
        ("now", vec!["--as-of", "now", "tree"]),
        ("log_then", vec!["--as-of", "l:82", "log"]),
        ("stats_then", vec!["--as-of", "l:82", "stats"]),
        ("log_checkpoint", vec!["--as-of", "checkpoint", "log"]),
        ("block_then", vec!["--as-of", "l:82", "block", "b:0x40090"]),
        ("path_logged", vec!["path", "/in-the-log"]),
        ("path_json", vec!["path", "/in-the-log", "--ndjson"]),
    ] {
        insta::assert_snapshot!(format!("dump_{name}"), dump(&image.0, &words));
    }
    let table = dump(&image.0, &["table"]);
    let used: Vec<&str> = table.lines().take(40).collect();
    insta::assert_snapshot!("dump_table", used.join("\n"));
}

#[test]
fn of_cloned_ranges() {
    let image = image_of_keys("clones");
    insta::assert_snapshot!("dump_clones_tree", dump(&image.0, &["tree"]));
    let hex = |key: &[u8]| key.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for (name, key) in [("lens", &b"two/\x09"[..]), ("own", b"two/\x07"), ("logged", b"six/\x09")] {
        let key = format!("k#2:{}", hex(key));
        insta::assert_snapshot!(format!("explain_clones_{name}"), explained(&image.0, &[&key]));
    }
}

/// The extents that a dump of a node shows; adjacent extents are merged.
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
        // Adjacent extents are merged.
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

#[test]
fn what_is_explained_of_a_fixed_image() {
    let image = image("explain");
    for (name, words) in [
        ("pending", &["/another@0"][..]),
        ("range_delete", &["k#2:00000000000000000166696c652d3133000000000000000000"]),
        ("logged", &["/in-the-log"]),
        ("json", &["/file-03", "--json"]),
        ("past", &["/file-00", "--as-of", "checkpoint"]),
    ] {
        insta::assert_snapshot!(format!("explain_{name}"), explained(&image.0, words));
    }
}

/// The byte range that a dump of everything covers, and the number of bytes shown twice.
fn accounted(lines: &str) -> (u64, u64) {
    let mut rows = Vec::new();
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        if let (Some(at), Some(bytes)) = (line["byte"].as_u64(), line["bytes"].as_u64()) {
            rows.push((at, at + bytes));
        }
    }
    rows.sort_unstable();
    let (mut end, mut twice) = (0, 0);
    for (from, to) in rows {
        assert!(from <= end, "nothing is said of b:{end:#x} to b:{from:#x}");
        twice += end.min(to) - from;
        end = end.max(to);
    }
    (end, twice)
}

#[test]
fn every_byte_of_an_image_is_accounted_for() {
    let image = image("all");
    let lines = dump(&image.0, &["all", "--ndjson"]);
    assert_eq!(accounted(&lines), (2 << 20, 0));
    let text = dump(&image.0, &["all"]);
    let structures = text.lines().filter(|line| line.contains("  verified")).count();
    assert!(structures > 40, "only {structures}");
}

/// Problems, and the dumps that show them.
const DAMAGED: [(&str, &[&str]); 14] = [
    ("S05", &["super"]),
    ("L02", &["log"]),
    ("M04", &["space"]),
    ("T01", &["table"]),
    ("N01", &["tree"]),
    ("N02", &["node", "n:5"]),
    ("N03", &["messages"]),
    ("N06", &["basement", "n:15", "0"]),
    ("F02", &["zones"]),
    ("F01", &["path", "/large"]),
    ("N04", &["stats"]),
    ("N05", &["buffer", "n:2"]),
    ("N07", &["block", "b:0x64010"]),
    ("T02", &["key", "k#1:0000000000000000"]),
];

/// Problems for which a summary of the dump of everything is kept as a snapshot.
const DAMAGED_ALL: [&str; 3] = ["L02", "N06", "T01"];

/// The pieces of a dump of everything, each with its place and the beginning of its verdict.
fn pieces(lines: &str) -> String {
    let mut pieces = String::new();
    for line in lines.lines().skip(1) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let place = match (line["byte"].as_u64(), line["bytes"].as_u64()) {
            (Some(byte), Some(bytes)) => format!("b:{byte:#x}+{bytes}"),
            _ => String::new(),
        };
        let title = line["structure"].as_str().unwrap();
        let verdict: String =
            line["verdict"].as_str().unwrap_or_default().chars().take(80).collect();
        pieces += format!("{title}  {place}  {verdict}").trim_end();
        pieces.push('\n');
    }
    pieces
}

#[test]
fn damage_ends_no_dump() {
    let dir = tempfile::tempdir().unwrap();
    let mut damaged = 0;
    for problem in CATALOG {
        let Ok(Some(bytes)) = make_broken(problem.code) else { continue };
        let path = dir.path().join("broken.img");
        std::fs::write(&path, &bytes).unwrap();
        let (lines, exit) = dumped(&path, &["all", "--ndjson"]);
        // An image of a newer version may be refused.
        if let Some((_, words)) = DAMAGED.iter().find(|(name, _)| *name == problem.name) {
            let (text, exit) = dumped(&path, words);
            let text = text.replace(dir.path().to_str().unwrap(), "DIR");
            insta::assert_snapshot!(
                format!("dump_damaged_{}", problem.name),
                format!("{text}exit {exit}\n")
            );
        }
        if DAMAGED_ALL.contains(&problem.name) {
            let text = format!("{}exit {exit}\n", pieces(&lines));
            insta::assert_snapshot!(format!("dump_damaged_all_{}", problem.name), text);
        }
        if problem.code == Code::FeaturesUnknown && exit == 1 {
            continue;
        }
        assert!([0, 3].contains(&exit), "{}: {exit}", problem.name);
        damaged += u64::from(exit == 3);
        let (end, _) = accounted(&lines);
        assert_eq!(end, bytes.len() as u64, "{}", problem.name);
        for verb in ["table", "tree", "space", "stats", "messages", "log"] {
            let (_, exit) = dumped(&path, &[verb]);
            assert!([0, 3].contains(&exit), "{} {verb}: {exit}", problem.name);
        }
        for byte in (0..bytes.len()).step_by(40_009) {
            let (text, exit) = dumped(&path, &["block", &format!("b:{byte:#x}")]);
            assert!([0, 3].contains(&exit), "{} b:{byte:#x}: {exit}: {text}", problem.name);
        }
    }
    assert!(damaged > 10, "only {damaged} had damage that a dump sees");
    // The property also holds for flipped bits.
    let sound = crate::hostile::image(2 << 20);
    for at in (0..sound.len()).step_by(2 * 4096 + 41).filter(|at| sound[*at] != 0) {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        let path = dir.path().join("flipped.img");
        std::fs::write(&path, &bytes).unwrap();
        let (lines, exit) = dumped(&path, &["all", "--ndjson"]);
        assert!([0, 3].contains(&exit), "b:{at:#x}: {exit}");
        assert_eq!(accounted(&lines).0, bytes.len() as u64, "b:{at:#x}");
    }
}
