//! Problems of snapshots.

use super::bench::Bench;
use betr_core::error::Result;
use betr_offline::anatomy::Kind;

/// Takes two snapshots, with changes after each.
fn with_snapshots(bench: &mut Bench) -> Result<()> {
    for (name, gone) in [("monday", &b"file-00"[..]), ("tuesday", b"file-02")] {
        bench.volume()?.take_hold(name)?;
        bench.work(|fs| {
            let root = fs.root()?;
            fs.unlink(&root, gone)?;
            fs.volume_mut().drain()
        })?;
    }
    Ok(())
}

pub(super) fn holds_invalid(bench: &mut Bench) -> Result<()> {
    with_snapshots(bench)?;
    bench.flip("holds:0/0", "hold 0, wall seconds")
}

pub(super) fn hold_wrong(bench: &mut Bench) -> Result<()> {
    with_snapshots(bench)?;
    bench.set("holds:0/0", "hold 0, nodes", |nodes| nodes + 1)
}

/// A record states another node id.
pub(super) fn dead_wrong(bench: &mut Bench) -> Result<()> {
    with_snapshots(bench)?;
    let page = bench.first("page of a dead list", |part| part.kind == Kind::Dead)?;
    bench.set(&page, "record 0, name", |name| name + 1)
}

pub(super) fn snapshot_damaged(bench: &mut Bench) -> Result<()> {
    with_snapshots(bench)?;
    let leaf = bench.first("leaf of a snapshot", |part| {
        part.kind == Kind::Leaf && part.name.starts_with("s:")
    })?;
    bench.flip(&leaf, "write sequence")
}
