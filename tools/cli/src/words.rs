//! Values and updates in words.

use betr_core::format::{LinkKind, MetaKey, MetaValue, Stage, Update, ZoneRef};
use betr_core::ids::{Time, TreeId};
use betr_core::text::Printable;

use crate::{json, time};

/// Bytes of a value that are shown.
const SHOWN: usize = 32;

/// A value, as the schema explains it, or the beginning of its bytes.
pub fn value(tree: TreeId, key: &[u8], bytes: &[u8]) -> String {
    let is_entry = || MetaKey::decode(key).is_some_and(|place| place.xattr.is_none());
    if tree == TreeId::Metadata
        && is_entry()
        && let Ok(value) = MetaValue::decode(bytes, None)
    {
        return meta(&value);
    }
    let more = if bytes.len() > SHOWN { "…" } else { "" };
    format!("{} bytes: {}{more}", bytes.len(), json::hex(&bytes[..bytes.len().min(SHOWN)]))
}

/// What an update does.
pub fn update(update: &Update) -> String {
    let stages: Vec<String> = update.stages().iter().map(stage).collect();
    stages.join("; then ")
}

/// A value of the metadata index in words.
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

/// What a part of an update does, in words.
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
