//! Problems of the schema: entries that no file system would make.

use bytes::Bytes;

use super::bench::Bench;
use betr_core::error::Result;
use betr_core::format::*;
use betr_core::fs::{FIRST_ZONE, ORPHAN_ZONE, ROOT_ZONE, small_name, xattr_bytes};
use betr_core::ids::*;

fn root() -> MetaKey {
    MetaKey::root(ROOT_ZONE)
}

fn put(key: Key, value: impl Into<Bytes>) -> RecordMessage {
    RecordMessage::Point(TreeId::Metadata, key, Action::Insert(value.into()))
}

fn update(key: Key, update: Update) -> RecordMessage {
    RecordMessage::Point(TreeId::Metadata, key, Action::Update(update))
}

pub(super) fn key_invalid(bench: &mut Bench) -> Result<()> {
    bench.send(vec![put(Key::copied(b"no key"), b"value".to_vec())])
}

pub(super) fn value_malformed(bench: &mut Bench) -> Result<()> {
    bench.send(vec![put(root().child(b"strange").encode(), b"no inode".to_vec())])
}

/// The inode of an object with two names is lost; both references remain.
pub(super) fn zone_wrong(bench: &mut Bench) -> Result<()> {
    let key = MetaKey::root(fifo_zone(bench)?).encode();
    bench.send(vec![RecordMessage::Point(TreeId::Metadata, key, Action::Delete)])
}

fn fifo_zone(bench: &mut Bench) -> Result<ZoneId> {
    let value = bench.volume()?.get(TreeId::Metadata, &root().child(b"fifo").encode())?;
    match value.map(|value| MetaValue::decode(&value, None)) {
        Some(Ok(MetaValue::ZoneRef(reference))) => Ok(reference.zone),
        _ => Err(super::missing("file with two names")),
    }
}

pub(super) fn links_wrong(bench: &mut Bench) -> Result<()> {
    let key = root().child(b"large").encode();
    bench.send(vec![update(key, Update::patch(LINKS_AT, &3u32.to_le_bytes(), false))])
}

pub(super) fn directory_unreachable(bench: &mut Bench) -> Result<()> {
    let inode = bench.get(&root().child(b"link").encode())?;
    let ino = next_ino(bench)?;
    bench.set("super", "next inode", |next| next + 1)?;
    let key = root().child(b"nowhere").child(b"link").encode();
    bench.send(vec![put(key, Inode { ino, ..inode }.encode())])
}

fn next_ino(bench: &mut Bench) -> Result<Ino> {
    Ok(bench.volume()?.superblock().next.ino)
}

pub(super) fn data_wrong(bench: &mut Bench) -> Result<()> {
    let prefix = root().child(b"no such file").encode();
    let value = Action::Insert(Bytes::from_static(b"contents"));
    bench.send(vec![RecordMessage::Point(TreeId::Data, data_key(&prefix, 0), value)])
}

/// A block is missing from a file without the flag for holes.
pub(super) fn holes_unflagged(bench: &mut Bench) -> Result<()> {
    let key = root().child(b"large").encode();
    let prefix = match bench.get(&key)?.data_zone {
        Some(zone) => zone.0.to_be_bytes().to_vec(),
        None => key.to_vec(),
    };
    bench.send(vec![RecordMessage::Point(TreeId::Data, data_key(&prefix, 1), Action::Delete)])
}

pub(super) fn counter_wrong(bench: &mut Bench) -> Result<()> {
    bench.set("super", "next inode", |next| next - 1)
}

pub(super) fn inode_twice(bench: &mut Bench) -> Result<()> {
    let key = root().child(b"link").encode();
    let (link, large) = (bench.get(&key)?, bench.get(&root().child(b"large").encode())?);
    bench.send(vec![put(key, Inode { ino: large.ino, ..link }.encode())])
}

/// The attribute counts in its directory, as if its owner existed.
pub(super) fn xattr_lost(bench: &mut Bench) -> Result<()> {
    let (name, value) = (b"user.lost", b"value");
    let key = root().child(b"no such file").with_xattr(name).encode();
    let more = xattr_bytes(name, value.len()) as i64;
    bench.send(vec![
        put(key, value.to_vec()),
        update(root().encode(), Update::add(META_SUM_AT, more)),
    ])
}

pub(super) fn sums_wrong(bench: &mut Bench) -> Result<()> {
    bench.send(vec![update(root().encode(), Update::add(META_SUM_AT, 1))])
}

/// A lower zone maximum makes directories too large.
pub(super) fn zone_too_large(bench: &mut Bench) -> Result<()> {
    bench.set("super", "zone minimum", |_| 0)?;
    bench.set("super", "zone maximum", |_| 13_000)
}

pub(super) fn zone_too_small(bench: &mut Bench) -> Result<()> {
    let place = MetaKey::root(ORPHAN_ZONE).with_xattr(&small_name(ZoneId(FIRST_ZONE.0 + 1000)));
    bench.send(vec![put(place.encode(), ROOT_ZONE.0.to_le_bytes().to_vec())])
}

pub(super) fn orphan_left(bench: &mut Bench) -> Result<()> {
    let mut fs = bench.fs()?;
    let directory = fs.root()?;
    let file = fs.lookup(&directory, b"large")?;
    fs.unlink(&directory, b"large")?;
    fs.checkpoint()?;
    drop(fs);
    drop(file);
    Ok(())
}
