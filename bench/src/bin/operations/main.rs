//! What single operations cost the processor, on a volume in memory: files that are created in directories in turns, and
//! blind writes of 4 bytes at random places of a large file. Under callgrind the difference between two counts is that of
//! the operations alone:
//!
//!     valgrind --tool=callgrind target/release/operations create --count 20000
//!     valgrind --tool=callgrind target/release/operations create --count 40000

use std::sync::Arc;
use std::time::Instant;

use betr_core::Result;
use betr_core::device::MemoryDevice;
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Fs, New};
use betr_core::ids::Time;
use betr_core::volume::{CreateOptions, Mode, OpenOptions, Volume};
use betr_lab::explore::Random;
use bytes::Bytes;
use clap::{Parser, ValueEnum};

/// Do one kind of operation many times, and then sync
#[derive(Parser)]
struct Args {
    /// What is done
    what: What,
    /// How often
    #[arg(long, default_value_t = 100_000)]
    count: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// Create files of 200 bytes, in 64 directories in turns, four levels deep
    Create,
    /// Write 4 bytes at random places of a file of 64 MiB
    Write,
}

/// 1 GiB: files of 200 bytes take a block each.
const IMAGE: u64 = 1 << 30;
const FILE: u64 = 64 << 20;
const DIRECTORIES: u64 = 64;

fn main() -> Result<()> {
    let args = Args::parse();
    // One thread, so that all instructions are on it.
    rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .use_current_thread()
        .build_global()
        .expect("one pool");
    let mut last = 0;
    let mut nonces = || {
        last += 1 << 32;
        let mut next = last;
        Box::new(move || {
            next += 1;
            next
        })
    };
    let (device, at) = (Arc::new(MemoryDevice::new(IMAGE)), Attributes::at(Time::default()));
    let options = CreateOptions::new([1; 16], IMAGE, nonces());
    let volume = Volume::create(device.clone(), options)?;
    Fs::format(volume, Box::new(Time::default), at)?.checkpoint()?;
    let volume = Volume::open(device, OpenOptions::new(Mode::ReadWrite, nonces()))?.0;
    let mut fs = Fs::open(volume, Box::new(Time::default));
    let mut parent = fs.root()?;
    for name in [&b"a"[..], b"b", b"c"] {
        parent = fs.make(&parent, name, New::of(FileType::Directory, at))?;
    }
    let mut random = Random::new(1);
    let start = match args.what {
        What::Create => {
            let mut directories = Vec::new();
            for number in 0..DIRECTORIES {
                let name = format!("directory {number}");
                directories.push(fs.make(
                    &parent,
                    name.as_bytes(),
                    New::of(FileType::Directory, at),
                )?);
            }
            let (start, contents) = (Instant::now(), Bytes::from(random.bytes(200)));
            for number in 0..args.count {
                let directory = &directories[(number % DIRECTORIES) as usize];
                let name = format!("file {number:08}");
                let file = fs.make(directory, name.as_bytes(), New::of(FileType::Regular, at))?;
                fs.write(&file, 0, &contents)?;
            }
            start
        }
        What::Write => {
            let file = fs.make(&parent, b"file", New::of(FileType::Regular, at))?;
            for part in 0..FILE >> 20 {
                fs.write(&file, part << 20, &Bytes::from(random.bytes(1 << 20)))?;
            }
            fs.checkpoint()?;
            let (start, contents) = (Instant::now(), Bytes::from_static(b"four"));
            for _ in 0..args.count {
                fs.write(&file, random.below(FILE - 4), &contents)?;
            }
            start
        }
    };
    fs.volume_mut().sync()?;
    let each = start.elapsed().as_nanos() / u128::from(args.count.max(1));
    println!("{each} ns each");
    Ok(())
}
