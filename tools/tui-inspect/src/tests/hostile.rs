//! Hostile images, failing devices, and the limit on reads before the first frame.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use betr_core::check::CATALOG;
use betr_core::fs::Fs;
use betr_core::ids::Time;
use betr_core::volume::{Mode, OpenOptions, Volume};
use betr_lab::damage::make_broken;

use super::*;

/// Visits every screen and moves around on each.
fn walk(image: &Arc<Image>) {
    for screen in Screen::ALL {
        let mut model = begin(image, screen, (132, 43));
        press(&mut model, "jj\tj\tjG\n\x1bx=r");
        drop(frame(&model));
    }
}

#[test]
fn every_problem_can_be_looked_at() {
    for problem in CATALOG {
        let Some(bytes) = make_broken(problem.code).unwrap() else { continue };
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from(bytes));
        let source = Source::Memory { name: "broken.img".into(), device };
        match Image::open(source, None, &Arc::default()) {
            Ok(image) => {
                let image = Arc::new(image);
                let mut model = begin(&image, Screen::Findings, (132, 43));
                press(&mut model, "d");
                let findings = frame(&model);
                assert!(findings.contains(problem.name), "{}: {findings}", problem.name);
                walk(&image);
            }
            Err(failure) => assert!(failure.message.contains("broken.img"), "{}", failure.message),
        }
    }
}

/// A device that counts reads and fails them after a given number.
struct Failing {
    below: Arc<dyn Device>,
    reads: AtomicU64,
    bytes: AtomicU64,
    after: u64,
}

impl Failing {
    fn over(bytes: Vec<u8>, after: u64) -> Arc<Failing> {
        let below: Arc<dyn Device> = Arc::new(MemoryDevice::from(bytes));
        Arc::new(Failing { below, reads: AtomicU64::new(0), bytes: AtomicU64::new(0), after })
    }
}

impl Device for Failing {
    fn len(&self) -> u64 {
        self.below.len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.bytes.fetch_add(buf.len() as u64, Ordering::Relaxed);
        if self.reads.fetch_add(1, Ordering::Relaxed) >= self.after {
            return Err(io::Error::other("the cable is out"));
        }
        self.below.read_at(at, buf)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        panic!("the inspector writes");
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_device_that_fails_is_said_to() {
    for after in [40, 60, 80, 120] {
        let device = Failing::over(bytes_of(LOGGED), after);
        let source = Source::Memory { name: "failing.img".into(), device };
        if let Ok(image) = Image::open(source, None, &Arc::default()) {
            let image = Arc::new(image);
            walk(&image);
            let text = frame(&begin(&image, Screen::Node, (100, 30)));
            assert!(text.contains("the cable is out"), "{after}: {text}");
        }
    }
}

#[test]
fn the_first_frame_reads_a_bounded_number_of_blocks() {
    let reads = |bytes: Vec<u8>| {
        let device = Failing::over(bytes, u64::MAX);
        let (mut model, effects) = Model::begin(on(device.clone()), None, None, (132, 43));
        // The first frame does not wait for the slow query, which counts nodes.
        let is_quick = |effect: &Effect| match effect {
            Effect::Ask { query, .. } => query.title() != "nodes",
            _ => false,
        };
        for effect in effects.into_iter().filter(is_quick) {
            if let Some(msg) = perform(effect) {
                drop(model.update(msg));
            }
        }
        assert!(frame(&model).contains("geometry"));
        (device.reads.load(Ordering::Relaxed), device.bytes.load(Ordering::Relaxed))
    };
    let (few, bytes) = reads(bytes_of(0));
    assert!(few <= 80 && bytes <= 80 * 4096, "{few} reads, {bytes} bytes");
    let (many, bytes) = reads(bytes_of(LAST));
    assert!(many <= 80 && bytes <= 80 * 4096, "{many} reads, {bytes} bytes");
}

#[test]
fn names_cannot_take_over_the_terminal() {
    let device = Arc::new(MemoryDevice::from(bytes_of(0)));
    let options = OpenOptions::new(Mode::ReadWrite, Box::new(|| 77));
    let (volume, _) = Volume::open(device.clone(), options).unwrap();
    let mut fs = Fs::open(volume, Box::new(|| Time { secs: 1_700_000_500, nanos: 0 }));
    let root = fs.root().unwrap();
    let attributes = betr_core::fs::Attributes::at(Time::default());
    for name in [
        &b"\x1b[2J\x1b]0;owned\x07"[..],
        "\u{202e}gnp.exe".as_bytes(),
        b"\xff\xfe",
        b"line\nbreak",
        "\u{1f600}\u{3042}wide".as_bytes(),
    ] {
        let new = betr_core::fs::New::of(betr_core::format::FileType::Regular, attributes);
        let file = fs.make(&root, name, new).unwrap();
        fs.volume_mut().sync().unwrap();
        fs.write(&file, 0, &bytes::Bytes::from_static(b"\x1b[31m")).unwrap();
        fs.volume_mut().sync().unwrap();
    }
    drop(fs);
    let image = open(device.snapshot());
    for screen in Screen::ALL {
        for size in [(80, 24), (132, 43)] {
            let mut model = begin(&image, screen, size);
            for _ in 0..12 {
                let text = frame(&model);
                assert!(
                    !text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'),
                    "{text:?}"
                );
                press(&mut model, "j");
            }
        }
    }
    let text = frame(&begin(&image, Screen::Log, (132, 43)));
    assert!(text.contains("\\x1b[2J") && text.contains("\\u{202e}gnp.exe"), "{text}");
}

/// The inspector distinguishes a changed image from an unchanged one.
#[test]
fn files_that_change_are_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.img");
    std::fs::write(&path, bytes_of(0)).unwrap();
    let source = Source::File { path: path.clone(), overlay: None };
    let image = Image::open(source, None, &Arc::default())
        .unwrap_or_else(|failure| panic!("{}", failure.message));
    assert!(!image.has_moved());
    std::thread::sleep(std::time::Duration::from_millis(20));
    std::fs::write(&path, bytes_of(1)).unwrap();
    assert!(image.has_moved());
    // The changed image is opened again and shown.
    let (mut model, effects) = Model::begin(Arc::new(image), None, None, (100, 30));
    settle(&mut model, effects);
    let image = model.image.clone();
    happen(&mut model, Msg::Moved(image));
    assert!(frame(&model).contains("CHANGED"), "{}", frame(&model));
    assert!(frame(&model).contains("epoch 1"), "{}", frame(&model));
    press(&mut model, "R");
    assert!(!frame(&model).contains("CHANGED"));
    assert!(frame(&model).contains("epoch 2"), "{}", frame(&model));
    drop(disk(&model.image));
}

/// A repair is written to an overlay, viewed through it, and removed from the view; the image stays unchanged.
#[test]
fn a_repair_is_looked_at_through_an_overlay() {
    let directory = tempfile::tempdir().unwrap();
    let (path, overlay) = (directory.path().join("t.img"), directory.path().join("t.plan"));
    std::fs::write(&path, damaged()).unwrap();
    let source = Source::File { path: path.clone(), overlay: None };
    let image = Arc::new(
        Image::open(source, None, &Arc::default())
            .unwrap_or_else(|failure| panic!("{}", failure.message)),
    );
    let mut model = begin(&image, Screen::Findings, (132, 43));
    press(&mut model, "w");
    assert!(frame(&model).contains("p makes one"), "{}", frame(&model));
    press(&mut model, "pw");
    press(&mut model, overlay.to_str().unwrap());
    press(&mut model, "\n");
    let text = frame(&model);
    assert!(text.contains("OVERLAY") && text.contains("sound"), "{text}");
    assert!(overlay.exists());
    assert_eq!(std::fs::read(&path).unwrap(), damaged());
    press(&mut model, "u");
    let text = frame(&model);
    assert!(!text.contains("OVERLAY") && text.contains("1 error"), "{text}");
    // The content of a pane can be saved.
    let saved = directory.path().join("t.json");
    press(&mut model, "s");
    press(&mut model, saved.to_str().unwrap());
    press(&mut model, "\n");
    let json = std::fs::read_to_string(&saved).unwrap();
    assert!(json.contains("\"schema\": \"betr.inspect\"") && json.contains("\"code\""), "{json}");
    assert!(frame(&model).contains("saved to"), "{}", frame(&model));
}
