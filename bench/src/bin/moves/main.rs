//! What a rename to another directory costs by the size of a file, and of a directory, as in BetrFS 0.4: time, and what
//! the device is asked for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use betr_core::Result;
use betr_core::device::FileDevice;
use betr_core::disk::IoCounts;
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Clock, Fs, New, Object, Over};
use betr_core::ids::Time;
use betr_core::volume::{CreateOptions, Mode, NonceSource, OpenOptions, Volume};
use betr_lab::explore::Random;
use bytes::Bytes;
use clap::Parser;

/// Rename files and directories of growing sizes, each with a sync
#[derive(Parser)]
struct Args {
    /// Objects of each size, which are renamed one after another
    #[arg(long, default_value_t = 16)]
    objects: u64,
    /// The largest size, in KiB
    #[arg(long, default_value_t = 64 << 10)]
    kib: u64,
    /// Where the image stands for that time
    #[arg(long, default_value = ".")]
    dir: std::path::PathBuf,
}

const KIB: u64 = 1 << 10;

struct Bench {
    fs: Fs,
    random: Random,
    objects: u64,
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let bytes = (64 << 20) + 8 * args.objects * args.kib * KIB;
    println!(
        "{:>10} {:>9}  µs: median {:>8} {:>7} {:>7} {:>8} {:>9}",
        "KiB", "kind", "worst", "reads", "writes", "flushes", "KiB out"
    );
    for kind in [FileType::Regular, FileType::Directory] {
        let mut kib = 4;
        while kib <= args.kib {
            let file = tempfile::tempfile_in(&args.dir)?;
            file.set_len(bytes)?;
            let mut bench = Bench::new(file, bytes, args.objects)?;
            bench.run(kind, kib)?;
            kib *= 4;
        }
    }
    Ok(())
}

fn attributes() -> Attributes {
    Attributes::at(Time::default())
}

fn clock() -> Clock {
    Box::new(Time::default)
}

fn nonces(mut last: u64) -> NonceSource {
    Box::new(move || {
        last += 1;
        last
    })
}

impl Bench {
    fn new(file: std::fs::File, bytes: u64, objects: u64) -> Result<Bench> {
        let device = Arc::new(FileDevice::new(file, bytes));
        let options = CreateOptions::new([1; 16], bytes, nonces(1));
        Fs::format(Volume::create(device.clone(), options)?, clock(), attributes())?
            .checkpoint()?;
        let options = OpenOptions::new(Mode::ReadWrite, nonces(1 << 32));
        let fs = Fs::open(Volume::open(device, options)?.0, clock());
        Ok(Bench { fs, random: Random::new(1), objects })
    }

    fn make(&mut self, directory: &Object, name: &str, kind: FileType) -> Result<Object> {
        self.fs.make(directory, name.as_bytes(), New::of(kind, attributes()))
    }

    fn file(&mut self, directory: &Object, name: &str, kib: u64) -> Result<()> {
        let file = self.make(directory, name, FileType::Regular)?;
        let mut at = 0;
        while at < kib * KIB {
            let len = (kib * KIB - at).min(1 << 20);
            let data = Bytes::from(self.random.bytes(len as usize));
            self.fs.write(&file, at, &data)?;
            at += len;
        }
        Ok(())
    }

    /// Objects of this size among small files, renamed after a checkpoint.
    fn run(&mut self, kind: FileType, kib: u64) -> Result<()> {
        let root = self.fs.root()?;
        let from = self.make(&root, "from", FileType::Directory)?;
        let to = self.make(&root, "to", FileType::Directory)?;
        for number in 0..self.objects {
            self.file(&from, &format!("{number:03} beside"), 4)?;
            let name = format!("{number:03} moved");
            match kind {
                FileType::Directory => {
                    let directory = self.make(&from, &name, FileType::Directory)?;
                    for inner in 0..kib.div_ceil(16) {
                        self.file(&directory, &format!("file {inner:06}"), kib.min(16))?;
                    }
                }
                _ => self.file(&from, &name, kib)?,
            }
        }
        self.fs.checkpoint()?;
        // The first group of an epoch has a fence before it.
        self.file(&root, "fence", 4)?;
        self.fs.volume_mut().sync()?;
        let before = self.fs.volume().io_counts();
        let mut times = Vec::new();
        for number in 0..self.objects {
            let name = format!("{number:03} moved");
            let start = Instant::now();
            self.fs.rename(&from, name.as_bytes(), &to, name.as_bytes(), Over::Replace)?;
            self.fs.volume_mut().sync()?;
            times.push(start.elapsed());
        }
        self.show(kind, kib, &mut times, before);
        Ok(())
    }

    fn show(&self, kind: FileType, kib: u64, times: &mut [Duration], before: IoCounts) {
        let after = self.fs.volume().io_counts();
        times.sort();
        let each = |count: u64| count as f64 / self.objects as f64;
        println!(
            "{kib:>10} {:>9} {:>11} {:>8} {:>7.1} {:>7.1} {:>8.1} {:>9.1}",
            kind.name(),
            times[times.len() / 2].as_micros(),
            times[times.len() - 1].as_micros(),
            each(after.reads - before.reads),
            each(after.writes - before.writes),
            each(after.flushes - before.flushes),
            each(after.written_bytes - before.written_bytes) / KIB as f64,
        );
    }
}
