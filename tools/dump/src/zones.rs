//! All zones, with their sizes relative to the limits.

use betr_cli::size::{human, human_limit, limit};
use betr_cli::volume::failure;
use betr_cli::{Failure, Io, json};
use betr_core::format::ZoneSizes;
use betr_core::fs::{ORPHAN_ZONE, Zone, ZoneKind, ZonePath, zone_path};
use betr_core::text::{Printable, printable};
use serde_json::json;

use crate::Image;
use crate::structure::Output;

/// The most bytes of a path that are shown.
const PATH_SHOWN: usize = 4096;

/// Shows one line per zone, in the order of their ids, after a replay of the log.
pub(crate) fn show(image: &Image, output: &mut Output, io: &mut Io) -> Result<(), Failure> {
    let at_image = |error: betr_core::Error| failure(&image.path, Some(&image.device), &error);
    let fs = image.replayed(output, io)?;
    let sizes = fs.zone_sizes();
    let text = format!("zones of {} to {}", human(sizes.min), human_limit(sizes.max));
    output.line(io, text, || json!({ "min": sizes.min, "max": limit(sizes.max) }))?;
    let zones = fs.zones().map_err(at_image)?;
    // Numbers in clones of directories are long.
    let width = zones.iter().map(|zone| zone.ino.to_string().len()).max().unwrap_or(0).max(7);
    if output.is_text() {
        let [zone, above, kind, inode] = ["zone", "above", "kind", "inode"];
        let [entries, meta, files] = ["entries", "metadata", "files"];
        writeln!(
            io.out,
            "{zone:>5} {above:>5} {kind:<9} {inode:>width$} {entries:>7} {meta:>9} {files:>12}        path"
        )?;
    }
    for (at, zone) in zones.iter().enumerate() {
        let path = path_of(&zones, at);
        output.line(io, line(zone, &path, sizes, width), || object(zone, &path, sizes))?;
        output.damaged |= zone.is_miscounted(sizes);
    }
    Ok(())
}

/// The path of a zone; a long one is cut to its end after an ellipsis.
fn path_of(zones: &[Zone], at: usize) -> Vec<u8> {
    if zones[at].id == ORPHAN_ZONE {
        return b"(orphans)".to_vec();
    }
    match zone_path(zones, at, PATH_SHOWN) {
        Some(ZonePath { path, whole: true }) => path,
        Some(ZonePath { path, whole: false }) => ["...".as_bytes(), &path].concat(),
        None => b"(below itself)".to_vec(),
    }
}

/// Compares the size of a zone with C0 and C1. The topmost zone and zones of inodes with several links have no limits.
fn size_of(zone: &Zone, sizes: ZoneSizes) -> &'static str {
    match zone.kind {
        _ if zone.above.is_none() || zone.kind == ZoneKind::Links => "",
        _ if sizes.are_above(zone.counted) => "small",
        _ if sizes.are_below(zone.counted) => "large",
        _ => "",
    }
}

fn kind_of(zone: &Zone) -> &'static str {
    match zone.kind {
        ZoneKind::Directory => "directory",
        ZoneKind::Links => "links",
        ZoneKind::Data => "data",
    }
}

fn line(zone: &Zone, path: &[u8], sizes: ZoneSizes, width: usize) -> String {
    let above = zone.above.map_or("-".into(), |above| above.to_string());
    let mut text = format!(
        "{:>5} {above:>5} {:<9} {:>width$} {:>7} {:>9} {:>12} {:<5}  {}",
        zone.id.to_string(),
        kind_of(zone),
        zone.ino.to_string(),
        zone.entries,
        zone.counted.meta,
        zone.counted.data,
        size_of(zone, sizes),
        Printable(path),
    );
    if zone.is_miscounted(sizes) {
        let (meta, data) = (zone.stated.meta, zone.stated.data);
        text += &format!("  (its counters say {meta} and {data})");
    }
    if zone.small {
        text += "  (to be merged)";
    }
    text
}

fn object(zone: &Zone, path: &[u8], sizes: ZoneSizes) -> serde_json::Value {
    let stated = |bytes: u64| (sizes.count_bytes() || zone.kind == ZoneKind::Data).then_some(bytes);
    json!({
        "zone": zone.id.0,
        "above": zone.above.map(|above| above.0),
        "kind": kind_of(zone),
        "inode": zone.ino.0,
        "entries": zone.entries,
        "metadata_bytes": zone.counted.meta,
        "file_bytes": zone.counted.data,
        "stated_metadata_bytes": stated(zone.stated.meta),
        "stated_file_bytes": stated(zone.stated.data),
        "size": size_of(zone, sizes),
        "to_be_merged": zone.small,
        "path": json::text(path, &printable(path)),
    })
}
