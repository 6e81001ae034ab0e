//! Why a plan is, as it stands in its file; and a plan as JSON, for review.

use std::fmt;
use std::path::Path;

use betr_cli::{Failure, Io, JsonList, show};
use betr_core::check::{Code, Report};
use betr_core::format::{Change, IDENTITY_AT, Magic, PlanHeader};
use betr_core::ids::{BLOCK_SIZE, BlockNr, Hash};
use betr_core::mend::Repair;
use betr_core::plan::{Plan, Standing};
use serde_json::{Map, Value, json};

use crate::show::{findings, loss, repair};
use crate::undo::found;

/// So many bytes of a list are kept with a plan; of the others only their number.
const LIST_MAX: usize = 2 << 20;

/// What an explanation says.
const FIELDS: [&str; 4] = ["findings", "repair", "losses", "left"];

/// What was found, what is repaired, what is lost by it, and what is left.
pub struct Explanation(Map<String, Value>);

impl Explanation {
    /// Of a check, and of a repair and the check after it.
    pub fn of(report: &Report, repaired: Option<(&Repair, &Report)>) -> Explanation {
        let mut fields = Map::new();
        fields.insert("findings".into(), some(findings(report)));
        if let Some((done, again)) = repaired {
            let mut repair = repair(done);
            for list in ["changes", "losses", "missing"] {
                if let Some(list) = repair["mended"].get_mut(list) {
                    *list = some(list.take());
                }
            }
            fields.insert("repair".into(), repair);
            fields.insert("losses".into(), some(losses(report, done)));
            fields.insert("left".into(), some(findings(again)));
        }
        Explanation(fields)
    }

    /// As a plan has it. One that nobody understands says nothing.
    pub fn in_words(words: &str) -> Explanation {
        let mut fields: Map<String, Value> = serde_json::from_str(words).unwrap_or_default();
        fields.retain(|name, _| FIELDS.contains(&name.as_str()));
        Explanation(fields)
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Value::Object(self.0.clone()))
    }
}

/// As much of a list as there is room for; the last says how many more there are.
fn some(list: Value) -> Value {
    let Value::Array(list) = list else { return list };
    let all = list.len();
    let mut room = LIST_MAX;
    let fits = |item: &Value| {
        room = room.saturating_sub(item.to_string().len());
        room > 0
    };
    let mut list: Vec<Value> = list.into_iter().take_while(fits).collect();
    if list.len() < all {
        list.push(json!({ "more": all - list.len() }));
    }
    Value::Array(list)
}

/// What was durable once, and is given up.
fn losses(report: &Report, done: &Repair) -> Value {
    let lost = report.findings.iter().filter(|finding| finding.code == Code::CheckpointLost);
    let checkpoints = lost.map(|finding| {
        json!({ "what": "everything that this checkpoint had beyond the one before it", "which": finding.detail })
    });
    let mended = done.mended.iter().flat_map(|mended| &mended.losses);
    checkpoints.chain(mended.map(loss)).collect()
}

/// Prints a plan, or that there is nothing to change.
pub(crate) fn print(
    path: &Path,
    plan: Option<(&Plan, Standing)>,
    explanation: &Explanation,
    io: &mut Io,
) -> Result<(), Failure> {
    let mut fields = Map::new();
    fields.insert("image".into(), show::path(path).into());
    fields.extend(explanation.0.clone());
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

/// What a block belongs to, by its place, or by what it begins with; nothing if neither says it.
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
