//! Descriptions of values, updates, messages and block uses for display.

use betr_core::format::{LinkKind, MetaKey, MetaValue, Stage, Update, ZoneRef};
use betr_core::ids::{Time, TreeId};
use betr_core::text::Printable;
use betr_offline::anatomy::Purpose;
use betr_offline::history::{Act, Touched};

use crate::{json, time};

/// The most bytes of a value that are displayed.
const SHOWN: usize = 32;

/// Describes a value by the schema, or by its first 32 bytes in hexadecimal.
pub fn value(tree: TreeId, key: &[u8], bytes: &[u8]) -> String {
    let is_entry = || MetaKey::decode(key).is_some_and(|place| place.xattr().is_none());
    if tree == TreeId::Metadata
        && is_entry()
        && let Ok(value) = MetaValue::decode(bytes, None)
    {
        return meta(&value);
    }
    let more = if bytes.len() > SHOWN { "…" } else { "" };
    format!("{} bytes: {}{more}", bytes.len(), json::hex(&bytes[..bytes.len().min(SHOWN)]))
}

/// Describes the effect of an update.
pub fn update(update: &Update) -> String {
    let stages: Vec<String> = update.stages().iter().map(stage).collect();
    stages.join("; then ")
}

/// Describes a value of the metadata index.
fn meta(value: &MetaValue) -> String {
    let inode = match value {
        MetaValue::ZoneRef(ZoneRef { link, kind, ino, zone }) => {
            let link = match link {
                LinkKind::Own => "",
                LinkKind::Link => ", one of several links",
            };
            return format!("reference to {zone}: {}, inode {ino}{link}", kind.name());
        }
        MetaValue::Inode(inode) => inode,
    };
    let at = |time: Time| time::format_utc(time.secs, time.nanos);
    let mut text = format!(
        "inode {}: {}, mode {:04o}, owner {}:{}, links {}, size {}, modified {}, changed {}",
        inode.ino,
        inode.kind.name(),
        inode.perm,
        inode.uid,
        inode.gid,
        inode.links,
        inode.size,
        at(inode.modified),
        at(inode.changed)
    );
    if let Some(zone) = inode.data_zone {
        text += &format!(", contents in {zone}");
    }
    if !inode.target.is_empty() {
        text += &format!(", target {}", Printable(&inode.target));
    }
    text
}

/// Describes one stage of an update.
fn stage(stage: &Stage) -> String {
    let mut words = Vec::new();
    if stage.anew {
        words.push("starts anew".to_owned());
    } else if stage.create {
        words.push("makes what is absent".into());
    }
    words.extend(stage.trim.map(|len| format!("cuts to {len} bytes")));
    if stage.extend > 0 {
        words.push(format!("extends to {} bytes", stage.extend));
    }
    for (at, bytes) in &stage.pieces {
        let more = if bytes.len() > SHOWN { "…" } else { "" };
        let shown = json::hex(&bytes[..bytes.len().min(SHOWN)]);
        words.push(format!("writes {} bytes at {at}: {shown}{more}", bytes.len()));
    }
    words.extend(stage.adds.iter().map(|(at, by)| format!("adds {by} at {at}")));
    words.join(", ")
}

/// Names the effect of a message.
pub fn act(touched: &Touched) -> String {
    match &touched.act {
        Act::Put => "puts".into(),
        Act::Replace => "replaces".into(),
        Act::Remove => "removes".into(),
        Act::RemoveBelow => "removes all below".into(),
        Act::Inode => "changes the inode of".into(),
        Act::Count => "counts in".into(),
        Act::SetXattr(name) => format!("sets attribute {} of", Printable(name)),
        Act::RemoveXattr(name) if name.is_empty() => "removes all attributes of".into(),
        Act::RemoveXattr(name) => format!("removes attribute {} of", Printable(name)),
        Act::Write(first, bytes) => format!("writes {bytes} bytes from {first} on to"),
        Act::Drop(first, None) => format!("cuts from byte {first} on"),
        Act::Drop(first, Some(end)) => {
            format!("drops bytes {first} to {} of", end.saturating_sub(1))
        }
        Act::Clone => "clones keys to".into(),
        Act::Raw => "touches".into(),
    }
}

/// Names the use of a block in one or two words.
pub fn use_kind(purpose: &Purpose) -> &'static str {
    match purpose {
        Purpose::Boot => "boot area",
        Purpose::Identity => "identity block",
        Purpose::Ring => "superblock ring",
        Purpose::Reserved => "reserved",
        Purpose::Log => "log",
        Purpose::Map => "space map",
        Purpose::Table(..) => "allocation table",
        Purpose::Node(_, entry) if entry.height.0 == 0 => "leaves",
        Purpose::Node(..) => "internal nodes",
        Purpose::Run(..) => "runs",
        Purpose::ScatterMap => "scatter maps",
        Purpose::Holds(..) => "snapshots",
        Purpose::DeadList => "dead lists",
        Purpose::Kept(_) => "kept by snapshots",
        Purpose::Bound(_) => "bound by the log",
        Purpose::Unknown => "in use for something unknown",
        Purpose::Free => "free",
    }
}

/// Names the use of a block and its owner.
pub fn use_of(purpose: &Purpose) -> String {
    match purpose {
        Purpose::Table(level, index) => format!("table page {level}/{index}"),
        Purpose::Node(id, entry) if entry.height.0 == 0 => {
            format!("leaf {id}, {} index", entry.tree)
        }
        Purpose::Node(id, entry) => {
            format!("internal node {id} of height {}, {} index", entry.height, entry.tree)
        }
        Purpose::Run(id, seq) => format!("run {seq} of {id}"),
        Purpose::Holds(level, index) => format!("page {level}/{index} of snapshots"),
        Purpose::Kept(dead) => {
            let (birth, died) = (dead.birth, dead.died);
            format!("{} of {birth}, kept by snapshots since {died}", dead.owner)
        }
        Purpose::Bound(group) => format!("values that log group {group} binds"),
        other => use_kind(other).into(),
    }
}
