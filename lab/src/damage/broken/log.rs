//! Problems of the log.

use bytes::Bytes;

use super::bench::{Bench, write};
use crate::explore::Random;
use betr_core::error::Result;
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Fs, New};

/// Makes some files, each durable by its own group.
fn groups(fs: &mut Fs, count: u64) -> Result<()> {
    let root = fs.root()?;
    (0..count).try_for_each(|number| {
        let name = format!("log-{number}");
        write(fs, &root, name.as_bytes(), 100)?;
        fs.volume_mut().sync()
    })
}

pub(super) fn replayed(bench: &mut Bench) -> Result<()> {
    groups(&mut bench.fs()?, 1)
}

pub(super) fn torn(bench: &mut Bench) -> Result<()> {
    replayed(bench)?;
    let group = bench.first("log group", |part| part.name.starts_with("log:"))?;
    bench.flip(&group, "record 0, wall seconds")
}

pub(super) fn damaged(bench: &mut Bench) -> Result<()> {
    groups(&mut bench.fs()?, 2)?;
    let group = bench.first("log group", |part| part.name.starts_with("log:"))?;
    bench.flip(&group, "record 0, wall seconds")
}

pub(super) fn value_lost(bench: &mut Bench) -> Result<()> {
    let mut fs = bench.fs()?;
    let root = fs.root()?;
    groups(&mut fs, 1)?;
    let attributes = Attributes::at(fs.now());
    let file = fs.make(&root, b"bound late", New::of(FileType::Regular, attributes))?;
    fs.write(&file, 0, &Bytes::from(Random::new(7).bytes(20_000)))?;
    fs.volume_mut().sync()?;
    groups_after(&mut fs)?;
    drop((root, file, fs));
    let chunk = bench.first("value that is bound late", |part| {
        part.name.starts_with("log:") && part.name.contains("/chunk:")
    })?;
    bench.flip(&chunk, "bytes")
}

/// Adds groups that say that those before them were flushed.
fn groups_after(fs: &mut Fs) -> Result<()> {
    let root = fs.root()?;
    (0..2u64).try_for_each(|number| {
        let name = format!("after-{number}");
        write(fs, &root, name.as_bytes(), 100)?;
        fs.volume_mut().sync()
    })
}
