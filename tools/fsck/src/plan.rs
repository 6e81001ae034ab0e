//! A plan as JSON, for review.

use std::path::Path;

use betr_cli::trial::Explanation;
use betr_cli::{Failure, Io, JsonList, show};
use betr_core::format::{Change, IDENTITY_AT, Magic, PlanHeader};
use betr_core::ids::{BLOCK_SIZE, BlockNr, Hash};
use betr_offline::plan::{Plan, Standing};
use serde_json::{Map, Value, json};

use crate::undo::found;

/// Prints a plan, or that nothing would change.
pub(crate) fn print(
    path: &Path,
    plan: Option<(&Plan, Standing)>,
    explanation: &Explanation,
    io: &mut Io,
) -> Result<(), Failure> {
    let mut fields = Map::new();
    fields.insert("image".into(), show::path(path).into());
    fields.extend(explanation.fields().clone());
    let mut put = |name: &str, value: Value| fields.insert(name.into(), value);
    if let Some((plan, standing)) = plan {
        let header = plan.header();
        put("found", found(standing).into());
        put("image_blocks", header.image_blocks.into());
        put("base_hash", header.base.to_string().into());
        put("result_hash", header.result.to_string().into());
        put("changed_blocks", plan.blocks().into());
        put("groups", header.groups.into());
    }
    let mut list = JsonList::with("betr.plan", 1, Value::Object(fields), "changes");
    let numbers =
        plan.into_iter().flat_map(|(plan, _)| (0..plan.header().changes).map(move |n| (plan, n)));
    for (plan, number) in numbers {
        let change = plan.change(number).map_err(|error| Failure::failed(error.to_string()))?;
        list.push(io, &one(&change, plan.header()))?;
    }
    Ok(list.end(io)?)
}

fn one(change: &Change, header: &PlanHeader) -> Value {
    json!({
        "group": change.group,
        "block": change.block.0,
        "part_of": part_of(change, header),
        "old": Hash::of(&change.old[..]).to_string(),
        "new": Hash::of(&change.new[..]).to_string(),
    })
}

/// The structure that contains a block, from its address or its magic; `None` if neither identifies it.
fn part_of(change: &Change, header: &PlanHeader) -> Option<String> {
    const RING: u64 = 32;
    const SLOTS: u64 = 16;
    const LOG: u64 = 64;
    let block = change.block.0;
    let within = |start: u64, blocks: u64| (start..start + blocks).contains(&block);
    if block == IDENTITY_AT / BLOCK_SIZE as u64 {
        return Some("identity block".into());
    }
    if within(RING, SLOTS) {
        return Some(format!("superblock slot {}", 2 * (block - RING)));
    }
    if let [front, ring] = &header.fixed[..] {
        if within(ring.start.0, SLOTS) {
            return Some(format!("superblock slot {}", 2 * (block - ring.start.0) + 1));
        }
        if change.block >= BlockNr(LOG) && change.block < front.end() {
            return Some("log".into());
        }
    }
    let magic = Magic::of(&change.new[..]).or_else(|| Magic::of(&change.old[..]))?;
    let name = match magic {
        Magic::TablePage => "allocation table",
        Magic::SpaceMap => "space map",
        Magic::Leaf => "leaf",
        Magic::Internal => "internal node",
        Magic::Run => "run",
        Magic::ScatterMap => "scatter map",
        Magic::HoldsPage => "snapshots",
        Magic::DeadPage => "dead list",
        Magic::Identity | Magic::Superblock | Magic::LogGroup | Magic::Plan => return None,
    };
    Some(name.into())
}
