//! The use of every block.

use betr_cli::size::human;
use betr_cli::{Failure, Io, words};
use betr_core::ids::BLOCK_SIZE;
use betr_offline::anatomy::{Area, Ground, Purpose};
use serde_json::json;

use crate::Image;
use crate::structure::Output;

/// The message if a structure that names blocks cannot be read.
const UNKNOWN: &str = "what is in use is not all known";

/// Shows one line per area, and a sum per use.
pub(crate) fn show(image: &Image, output: &mut Output, io: &mut Io) -> Result<(), Failure> {
    let ground = ground(image, output, io)?;
    let mut sums: Vec<(&str, u64)> = Vec::new();
    for area in &ground.areas {
        let kind = words::use_kind(&area.purpose);
        match sums.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, sum)) => *sum += area.blocks,
            None => sums.push((kind, area.blocks)),
        }
        let text =
            format!("{:>10} {:>9}  {}", area.start, area.blocks, words::use_of(&area.purpose));
        output.line(io, text, || object(area))?;
    }
    for (kind, blocks) in sums {
        let bytes = blocks * BLOCK_SIZE as u64;
        let text = format!("{blocks:>10} blocks ({}) {kind}", human(bytes));
        output.line(io, text, || json!({ "sum_of": kind, "blocks": blocks, "bytes": bytes }))?;
    }
    Ok(())
}

/// Computes the use of every block; reports unreadable structures first.
pub(crate) fn ground(image: &Image, output: &mut Output, io: &mut Io) -> Result<Ground, Failure> {
    let ground = Ground::of(&image.disk, &image.superblock, image.live());
    for damage in &ground.damage {
        output.damage(io, UNKNOWN, damage)?;
    }
    Ok(ground)
}

/// Finds the use of one block; reports unreadable structures first.
pub(crate) fn area(
    image: &Image,
    block: u64,
    output: &mut Output,
    io: &mut Io,
) -> Result<Option<Area>, Failure> {
    let (area, damage) = Ground::of_block(&image.disk, &image.superblock, image.live(), block);
    for damage in damage {
        output.damage(io, UNKNOWN, damage)?;
    }
    Ok(area)
}

fn object(area: &Area) -> serde_json::Value {
    let (node, group) = match &area.purpose {
        Purpose::Node(id, _) | Purpose::Run(id, _) => (Some(id.0), None),
        Purpose::Bound(group) => (None, Some(*group)),
        _ => (None, None),
    };
    json!({
        "block": area.start, "blocks": area.blocks, "use": words::use_kind(&area.purpose), "node": node,
        "log_group": group,
    })
}
