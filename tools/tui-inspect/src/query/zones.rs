//! Zones: their content, their counters, and their sizes relative to C0 and C1.

use std::sync::Arc;

use betr_cli::size::{human, human_limit};
use betr_core::address::Address;
use betr_core::format::ZoneSizes;
use betr_core::fs::{ORPHAN_ZONE, Zone, ZoneKind, zone_path};
use betr_core::ids::ZoneId;
use betr_core::text::printable;

use super::text;
use crate::image::Image;
use crate::sheet::{Cell, Role, Row, Sheet, column, fact, numbers, rest};
use crate::spot::Spot;
use crate::words::number;
use crate::work::Work;

/// The most bytes of a path that are shown.
const PATH_SHOWN: usize = 4096;

/// Lists the zones, one per row.
pub(super) fn zones(image: &Image, work: &Arc<Work>) -> Result<Sheet, String> {
    image.files(work, |fs| {
        let (zones, sizes) = (fs.zones().map_err(text)?, fs.zone_sizes());
        let rows = (0..zones.len()).map(|at| row(&zones, at, sizes)).collect();
        let columns = vec![
            column("zone", 8),
            column("above", 8),
            column("kind", 9),
            numbers("entries", 8),
            numbers("metadata", 10),
            numbers("files", 12),
            column("", 9),
            rest("path"),
        ];
        let title = format!(
            "{} zones of {} to {}",
            number(zones.len() as u64),
            human(sizes.min),
            human_limit(sizes.max)
        );
        Ok(Sheet::new(title, columns, rows))
    })
}

fn row(zones: &[Zone], at: usize, sizes: ZoneSizes) -> Row {
    let zone = &zones[at];
    let mark = match () {
        () if zone.is_miscounted(sizes) => Cell::new(Role::Bad, "COUNTERS"),
        () if zone.above.is_none() && at > 1 => Cell::new(Role::Bad, "NO PARENT"),
        () if zone.small => Cell::new(Role::Warn, "to merge"),
        () if zone.above.is_some()
            && zone.kind != ZoneKind::Links
            && sizes.are_above(zone.counted) =>
        {
            Cell::new(Role::Dim, "small")
        }
        () if zone.above.is_some()
            && zone.kind != ZoneKind::Links
            && sizes.are_below(zone.counted) =>
        {
            Cell::new(Role::Dim, "large")
        }
        () => Cell::default(),
    };
    let (path, is_whole) = path_of(zones, at);
    let cells = vec![
        Cell::from(zone.id.to_string()),
        Cell::from(zone.above.map_or("-".into(), |above| above.to_string())),
        Cell::from(kind(zone)),
        Cell::from(number(zone.entries)),
        Cell::from(number(zone.counted.meta)),
        Cell::from(number(zone.counted.data)),
        mark,
        Cell::from(printable(&path)),
    ];
    let here = Spot::At(Address::Zone(zone.id));
    let path = is_whole.then(|| Spot::At(Address::Path(path)));
    // Enter opens the content of the zone.
    Row::of(cells).to(path.into_iter().chain([here]))
}

fn kind(zone: &Zone) -> &'static str {
    match zone.kind {
        ZoneKind::Directory => "directory",
        ZoneKind::Links => "links",
        ZoneKind::Data => "data",
    }
}

/// The path of a zone, and whether it is a path of the file system.
fn path_of(zones: &[Zone], at: usize) -> (Vec<u8>, bool) {
    if zones[at].id == ORPHAN_ZONE {
        return (b"(orphans)".to_vec(), false);
    }
    match zone_path(zones, at, PATH_SHOWN) {
        Some(path) if path.whole => (path.path, true),
        Some(path) => ([b"...".to_vec(), path.path].concat(), false),
        None => (b"(goes round in circles)".to_vec(), false),
    }
}

/// The details of a zone.
pub(super) fn zone(image: &Image, id: ZoneId, work: &Arc<Work>) -> Result<Sheet, String> {
    image.files(work, |fs| {
        let (zones, sizes) = (fs.zones().map_err(text)?, fs.zone_sizes());
        let at = zones
            .binary_search_by_key(&id, |zone| zone.id)
            .map_err(|_| format!("there is no zone {id}"))?;
        let zone = &zones[at];
        let (path, is_whole) = path_of(&zones, at);
        let role = if is_whole { Role::Link } else { Role::Plain };
        let shown = Cell::new(role, printable(&path));
        let mut rows = vec![
            fact("path", shown).to(is_whole.then(|| Spot::At(Address::Path(path)))),
            fact("kind", kind(zone)),
            fact("inode", zone.ino.0.to_string()),
            fact("entries", number(zone.entries)),
        ];
        if let Some(above) = zone.above {
            rows.push(
                fact("zone above", Cell::new(Role::Link, above))
                    .to([Spot::At(Address::Zone(above))]),
            );
        }
        let counters = [
            ("metadata bytes", zone.counted.meta, zone.stated.meta),
            ("file bytes", zone.counted.data, zone.stated.data),
        ];
        for (name, counted, stated) in counters {
            let cell = match counted == stated {
                _ if !sizes.count_bytes() && stated == 0 => Cell::from(number(counted)),
                true => Cell::from(format!("{}, as its counter says", number(counted))),
                false => Cell::new(
                    Role::Bad,
                    format!("{} counted, {} stated", number(counted), number(stated)),
                ),
            };
            rows.push(fact(name, cell));
        }
        rows.push(fact("may hold", format!("{} to {}", human(sizes.min), human_limit(sizes.max))));
        let below = zones.iter().filter(|other| other.above == Some(id));
        for other in below.take(100) {
            let cell = Cell::new(Role::Link, format!("{}  {}", other.id, printable(&other.path)));
            rows.push(fact("zone below", cell).to([Spot::At(Address::Zone(other.id))]));
        }
        Ok(Sheet::facts(format!("zone {id}"), rows))
    })
}
