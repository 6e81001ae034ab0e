//! Memory use of the commands that process many files.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use betr_copy::host::{Kind, Meta, Time};
use betr_copy::tar::Writer;

use crate::support::*;

/// An image with a number of entries in one directory.
fn image(dir: &Path, entries: u64) -> std::path::PathBuf {
    let time = Time { secs: 1_000_000_000, nanos: 0 };
    let mut archive = Writer::new(Vec::new());
    for number in 0..entries {
        let name = format!("directory/entry-{number:07}");
        archive.object(name.as_bytes(), &Meta::new(Kind::Fifo, 0o600, time)).unwrap();
    }
    fs::write(dir.join("entries.tar"), archive.finish().unwrap()).unwrap();
    let image = dir.join(format!("{entries}.img"));
    run("mkfs -q IMG 256M -d DIR/entries.tar", &image, dir, 0);
    image
}

/// The peak memory of a running process, in KiB.
fn high_water(child: &Child) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// The peak memory of a command, in KiB, and the number of lines that it has printed. A command that ends before it
/// is observed runs again.
fn peak(line: &str, image: &Path, dir: &Path) -> (u64, usize) {
    let mut runs = std::iter::repeat_with(|| observe(line, image, dir)).take(20);
    runs.find(|(peak, _)| *peak > 2000).expect("a run that can be looked at")
}

fn observe(line: &str, image: &Path, dir: &Path) -> (u64, usize) {
    let out = dir.join("out");
    let mut child = Command::new(BETR)
        .args(words(line, image, dir))
        .stdout(Stdio::from(fs::File::create(&out).unwrap()))
        .spawn()
        .unwrap();
    let mut peak = 0;
    let status = loop {
        peak = high_water(&child).unwrap_or(0).max(peak);
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_micros(100));
    };
    assert!(status.success(), "betr {line}");
    (peak, fs::read(out).unwrap().iter().filter(|byte| **byte == b'\n').count())
}

#[test]
fn no_command_remembers_every_entry() {
    let (_guard, dir) = scratch();
    let (few, many) = (1000, 100_000);
    let [small, large] = [few, many].map(|entries| image(&dir, entries));
    for line in [
        "ls IMG /directory",
        "ls -l IMG /directory",
        "ls -lR IMG",
        "ls --json IMG /directory",
        "find IMG",
        "find -l IMG --uid 0",
        "find --json IMG",
    ] {
        let (little, lines) = peak(line, &small, &dir);
        assert!(lines as u64 >= few, "betr {line}: {little} KiB, {lines} lines");
        let (much, lines) = peak(line, &large, &dir);
        assert!(lines as u64 >= many, "betr {line}: {lines} lines");
        assert!(much <= little + (32 << 10), "betr {line}: {much} KiB, {little} for {few} entries");
    }
    let [(little, _), (much, _)] = [&small, &large].map(|image| peak("du IMG", image, &dir));
    assert!(much <= little + (32 << 10), "betr du: {much} KiB, {little} for {few} entries");
}
