//! Snapshots of the output of `betr replay` for a small fixed log; and the moments that it makes match the history that
//! it lists.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use betr_cli::Io;
use betr_core::check::CATALOG;
use betr_core::device::{Device, MemoryDevice};
use betr_core::format::{FileType, Op};
use betr_core::fs::{Attributes, Fs, New, Over};
use betr_core::ids::Time;
use betr_core::volume::Mode;
use betr_lab::damage::make_broken;
use betr_offline::history::tell;
use betr_tests::{clock, create, made, open, tight, tiny};
use bytes::Bytes;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: betr_replay::Args,
}

/// A checkpoint; then a log with a group for one file, a group with late-bound values, some of them obsolete at once,
/// and a group of renames.
fn image(dir: &Path) -> PathBuf {
    let device = Arc::new(MemoryDevice::new(2 << 20));
    let volume = create(device.clone(), tiny(), tight(), 1).unwrap();
    let attributes = Attributes { perm: 0o755, ..Attributes::at(Time { secs: 1_000, nanos: 7 }) };
    let mut fs = Fs::format(volume, clock(0), attributes).unwrap();
    let root = fs.root().unwrap();
    let new = |kind| New::of(kind, attributes);
    let old = fs.make(&root, b"old", new(FileType::Directory)).unwrap();
    let kept = fs.make(&old, b"kept", new(FileType::Regular)).unwrap();
    fs.write(&kept, 0, &Bytes::from_static(b"as it was")).unwrap();
    fs.checkpoint().unwrap();
    drop((root, old, kept));
    drop(fs);
    let volume = open(device.clone(), Mode::ReadWrite, tight(), 2).unwrap().0;
    let mut fs = Fs::open(volume, clock(2_000));
    let root = fs.root().unwrap();
    fs.make(&root, b"first", new(FileType::Regular)).unwrap();
    fs.volume_mut().sync().unwrap();
    let big = fs.make(&root, b"big", new(FileType::Regular)).unwrap();
    fs.write(&big, 0, &Bytes::from(vec![b'a'; 40_000])).unwrap();
    fs.write(&big, 10, &Bytes::from_static(b"patch")).unwrap();
    fs.write(&big, 4096, &Bytes::from(vec![b'b'; 20_480])).unwrap();
    fs.truncate(&big, 30_000).unwrap();
    fs.volume_mut().sync().unwrap();
    let kept = fs.resolve(b"/old/kept").unwrap();
    fs.set_xattrs(&kept, &[(b"user.note\n".to_vec(), b"x".to_vec())]).unwrap();
    fs.rename(&root, b"old", &root, b"new", Over::Replace).unwrap();
    let dir_now = fs.resolve(b"/new").unwrap();
    fs.link(&kept, &dir_now, b"second").unwrap();
    fs.write(&kept, 0, &Bytes::from_static(b"AS")).unwrap();
    fs.unlink(&root, b"big").unwrap();
    fs.volume_mut().sync().unwrap();
    let path = dir.join("fixed.img");
    std::fs::write(&path, device.snapshot()).unwrap();
    path
}

/// The output of a verb without the directory of the image, and its exit code.
fn replay(image: &Path, words: &[&str]) -> (String, u8) {
    let line = ["replay", image.to_str().unwrap()].iter().chain(words).copied().collect::<Vec<_>>();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = Line::try_parse_from(line).unwrap().args;
    let exit = betr_replay::run(&args, &mut Io::plain(&mut out, &mut err));
    let exit = exit.unwrap_or_else(|failure| {
        err.extend_from_slice(failure.message.as_bytes());
        failure.exit
    });
    let text = String::from_utf8([out, err].concat()).unwrap();
    let dir = image.parent().unwrap().to_str().unwrap();
    (text.replace(dir, "DIR"), exit.code())
}

#[test]
fn of_a_fixed_log() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    for (name, words) in [
        ("list", vec!["list"]),
        ("list_json", vec!["list", "--json", "--op", "write"]),
        ("list_bound", vec!["list", "--bound", "null"]),
        ("list_path", vec!["list", "--path", "/new/second", "--ndjson"]),
        ("verify", vec!["verify"]),
        ("verify_json", vec!["verify", "--json"]),
        ("show", vec!["show", "l:16"]),
        ("diff", vec!["diff", "-k"]),
        ("diff_json", vec!["diff", "l:30..", "--json"]),
        ("blame", vec!["blame", "/new/kept"]),
        ("blame_name", vec!["blame", "/new/kept", "--no-follow"]),
        ("blame_byte", vec!["blame", "b:0x40090"]),
        ("timeline", vec!["timeline"]),
        ("timeline_csv", vec!["timeline", "--format", "csv", "--no-hash"]),
        ("timeline_json", vec!["timeline", "--format", "json", "--op", "rename"]),
    ] {
        let (text, exit) = replay(&image, &words);
        assert_eq!(exit, 0, "{words:?}: {text}");
        insta::assert_snapshot!(format!("replay_{name}"), text);
    }
    let (text, exit) = replay(&image, &["show", "l:9999"]);
    assert_eq!(exit, 1);
    assert!(text.contains("holds no record l:9999: see"), "{text}");
}

#[test]
fn damage_is_said_and_ends_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("broken.img");
    for problem in CATALOG {
        let Ok(Some(bytes)) = make_broken(problem.code) else { continue };
        std::fs::write(&path, &bytes).unwrap();
        for words in [
            &["list"][..],
            &["verify"],
            &["diff", "-k"],
            &["timeline"],
            &["blame", "/"],
            &["blame", "b:0x40090"],
            &["show", "l:60"],
        ] {
            let (text, exit) = replay(&path, words);
            assert!([0, 1, 3].contains(&exit), "{} {words:?}: {exit}: {text}", problem.name);
        }
        assert!(std::fs::read(&path).unwrap() == bytes, "{}: the image has changed", problem.name);
    }
}

#[test]
fn an_image_is_made_of_a_moment() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path());
    let before = std::fs::read(&image).unwrap();
    let list = replay(&image, &["list", "--json"]).0;
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let rename = list["records"].as_array().unwrap().iter().find(|r| r["operation"] == "rename");
    let lsn = rename.unwrap()["lsn"].as_u64().unwrap();
    let new = dir.path().join("then.img");
    let output = ["-o", new.to_str().unwrap()];
    let names = |image: &Path| {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from(std::fs::read(image).unwrap()));
        let volume = open(device, Mode::ReadOnly, tight(), 5).unwrap().0;
        let fs = Fs::open(volume, clock(0));
        let root = fs.root().unwrap();
        let names = fs.list(&root).unwrap().into_iter().map(|entry| entry.name);
        names.map(|name| String::from_utf8(name).unwrap()).collect::<Vec<_>>().join(" ")
    };
    for (until, expected) in
        [(lsn - 1, "big first old"), (lsn, "big first new"), (u64::MAX >> 2, "")]
    {
        let moment = format!("l:{until}");
        let words = [&["apply", "--until", &moment, "-f"][..], &output].concat();
        let (text, exit) = replay(&image, &words);
        if expected.is_empty() {
            assert_eq!(exit, 1, "{text}");
            assert!(text.contains("the log ends before l:"), "{text}");
            continue;
        }
        assert_eq!(exit, 0, "{text}");
        assert_eq!(names(&new), expected);
        // The abandoned records cannot come back.
        assert!(replay(&new, &["list"]).0.starts_with("0 of 0 records"));
    }
    let words = [&["apply", "-f"][..], &output].concat();
    assert_eq!(replay(&image, &words).1, 0);
    assert_eq!(names(&new), "first new");
    assert_eq!(replay(&image, &[&["apply"][..], &output].concat()).1, 1, "it is there");
    // The image itself is changed only with --in-place.
    assert_eq!(replay(&image, &["apply", "--in-place", "--until", "l:999999"]).1, 1);
    assert!(std::fs::read(&image).unwrap() == before, "the image has changed");
    let moment = format!("l:{}", lsn - 1);
    let (text, exit) = replay(&image, &["apply", "--in-place", "--until", &moment]);
    assert_eq!(exit, 0, "{text}");
    assert_eq!(names(&image), "big first old");
    assert!(replay(&image, &["list"]).0.starts_with("0 of 0 records"));
}

/// Names are followed back over a replaced file, through an exchange, and with renamed directories. A record about a
/// file with several names is listed under an existing one, not under a removed one that may now name another object.
#[test]
fn records_are_told_with_a_name_that_is_there() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(2 << 20));
    let mut fs = made(device.clone(), tiny());
    let root = fs.root().unwrap();
    let new = |kind| New::of(kind, Attributes::at(Time::default()));
    let made = ["a", "b"].map(|name| {
        let file = fs.make(&root, name.as_bytes(), new(FileType::Regular)).unwrap();
        fs.link(&file, &root, format!("{name}-second").as_bytes()).unwrap();
        file
    });
    fs.checkpoint().unwrap();
    let write = |fs: &mut Fs, path: &[u8]| {
        let file = fs.resolve(path).unwrap();
        fs.write(&file, 0, &Bytes::from_static(b"x")).unwrap();
    };
    drop(made);
    // A name from the checkpoint is removed, and another one is made in the log and removed.
    fs.unlink(&root, b"a").unwrap();
    fs.make(&root, b"a", new(FileType::Directory)).unwrap();
    write(&mut fs, b"/a-second");
    let second = fs.resolve(b"/a-second").unwrap();
    fs.link(&second, &root, b"a-third").unwrap();
    write(&mut fs, b"/a-third");
    fs.unlink(&root, b"a-third").unwrap();
    write(&mut fs, b"/a-second");
    // Another file replaces a name.
    fs.make(&root, b"c", new(FileType::Regular)).unwrap();
    fs.rename(&root, b"c", &root, b"b", Over::Replace).unwrap();
    write(&mut fs, b"/b-second");
    fs.volume_mut().sync().unwrap();
    let superblock = fs.volume().superblock().clone();
    let mut told = Vec::new();
    tell(&device, &superblock, &mut |event| {
        if event.record.op == Op::Write {
            told.extend(event.paths().into_iter().map(|path| String::from_utf8(path).unwrap()));
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(told, ["/a-second", "/a-third", "/a-second", "/b-second"]);
}

#[test]
fn a_name_is_followed_back() {
    let dir = tempfile::tempdir().unwrap();
    let device = Arc::new(MemoryDevice::new(32 << 20));
    let mut fs = made(device.clone(), tiny());
    let attributes = Attributes::at(Time { secs: 1_000, nanos: 7 });
    let root = fs.root().unwrap();
    let new = |kind| New::of(kind, attributes);
    fs.make(&root, b"before the log", new(FileType::Regular)).unwrap();
    fs.volume_mut().sync().unwrap();
    let many = fs.make(&root, b"many", new(FileType::Directory)).unwrap();
    for number in 0..80 {
        fs.make(&many, format!("f{number}").as_bytes(), new(FileType::Regular)).unwrap();
    }
    for name in ["old", "conf", "conf.tmp", "a", "b"] {
        fs.make(&root, name.as_bytes(), new(FileType::Regular)).unwrap();
    }
    fs.rename(&root, b"conf.tmp", &root, b"conf", Over::Replace).unwrap();
    fs.rename(&root, b"a", &root, b"b", Over::Exchange).unwrap();
    fs.rename(&root, b"many", &root, b"moved", Over::Replace).unwrap();
    fs.volume_mut().sync().unwrap();
    let path = dir.path().join("names.img");
    std::fs::write(&path, device.snapshot()).unwrap();
    let blamed = |name: &str| {
        let (text, exit) = replay(&path, &["blame", name]);
        assert_eq!(exit, 0, "{text}");
        let lines = text.lines().filter(|line| line.starts_with("l:"));
        // Without LSN and time.
        lines.map(|line| line[43..].trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(blamed("/conf"), ["create      /conf.tmp", "rename      /conf.tmp  /conf"]);
    assert_eq!(blamed("/a"), ["create      /b", "exchange    /a  /b"]);
    assert_eq!(blamed("/moved/f7"), ["create      /many/f7", "rename      /many  /moved"]);
    let (text, exit) = replay(&path, &["apply", "--until", "l:1", "--in-place"]);
    assert_eq!(exit, 1);
    assert!(text.contains("that is before the log"), "{text}");
}
