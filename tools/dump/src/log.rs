//! The log: groups that count, and why there are no more.

use betr_cli::volume::failure;
use betr_cli::{Failure, Io};
use betr_core::format::Group;
use betr_core::ids::BLOCK_SIZE;
use betr_core::log::{End, LogReader, Region, scan};
use betr_core::text::Printable;
use serde_json::json;

use crate::Image;
use crate::structure::Output;

/// Shows every group that continues the superblock.
pub(crate) fn show(image: &Image, output: &mut Output, io: &mut Io) -> Result<(), Failure> {
    let at_image = |error: betr_core::Error| failure(&image.path, Some(&image.device), &error);
    let survey = scan(&image.disk, &image.superblock).map_err(at_image)?;
    let region = Region::of(&image.superblock);
    let mut reader = LogReader::new(&image.disk, &image.superblock);
    while let Ok(scanned) = reader.next().map_err(at_image)? {
        let title = format!("log group {}", scanned.group.number);
        let at = region.byte(scanned.unit);
        output.structure(io, &title, at, &scanned.bytes, |trace| {
            Group::decode(&scanned.bytes, trace)
        })?;
    }
    let end = match &survey.end {
        End::Clean => "the log ends here: what follows is not of this epoch".to_owned(),
        End::Torn { byte, why } => format!("torn tail at b:{byte:#x}: {why}"),
        damage => {
            output.damaged = true;
            damage.damage().map_or_else(String::new, |error| error.to_string())
        }
    };
    output.damaged |= survey.damage().is_some();
    let text = format!(
        "{} groups, {} records, {} of {} bytes; {end}",
        survey.groups,
        survey.records,
        survey.units(&image.superblock) * BLOCK_SIZE as u64,
        region.units * BLOCK_SIZE as u64
    );
    output.line(io, text, || {
        json!({
            "groups": survey.groups, "records": survey.records, "end": Printable(end.as_bytes()).to_string(),
        })
    })
}
