//! Why a plan is, as it stands in its file; and a plan as JSON, for review.

use std::fmt;
use std::path::Path;

use betr_cli::{Failure, Io, JsonList, show};
use betr_core::check::{Code, Report};
use betr_core::format::{Change, IDENTITY_AT, Magic, PlanHeader};
use betr_core::ids::{BLOCK_SIZE, BlockNr, Hash};
use betr_core::mend::Repair;
use betr_core::plan::Plan;
use serde_json::{Map, Value, json};

use crate::show::{findings, loss, repair};

/// So many findings are kept with a plan; of others only their number.
const FINDINGS_MAX: usize = 10_000;

/// What was found, what is repaired, what is lost by it, and what is left.
pub(crate) struct Explanation(Map<String, Value>);

impl Explanation {
    /// Of a check, and of a repair and the check after it.
    pub fn of(report: &Report, repaired: Option<(&Repair, &Report)>) -> Explanation {
        let mut fields = Map::new();
        fields.insert("findings".into(), some(findings(report)));
        if let Some((done, again)) = repaired {
            fields.insert("repair".into(), repair(done));
            fields.insert("losses".into(), losses(report, done));
            fields.insert("left".into(), some(findings(again)));
        }
        Explanation(fields)
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Value::Object(self.0.clone()))
    }
}

/// At most so many of a list; the last says how many more there are.
fn some(list: Value) -> Value {
    let Value::Array(mut list) = list else { return list };
    let more = list.len().saturating_sub(FINDINGS_MAX);
    if more > 0 {
        list.truncate(FINDINGS_MAX);
        list.push(json!({ "more": more }));
    }
    Value::Array(list)
}

/// What was durable once, and is given up.
fn losses(report: &Report, done: &Repair) -> Value {
    let lost = report.findings.iter().filter(|finding| finding.code == Code::CheckpointLost);
    let checkpoints = lost.map(|finding| {
        json!({ "what": "everything that this checkpoint had beyond the one before it", "which": finding.detail })
    });
    let mended = done.mended.iter().flat_map(|mended| &mended.losses).take(FINDINGS_MAX);
    checkpoints.chain(mended.map(loss)).collect()
}

/// Whether errors had been found, as an explanation has it. One that nobody understands says nothing.
pub(crate) fn had_errors(explanation: &str) -> bool {
    let value: Value = serde_json::from_str(explanation).unwrap_or_default();
    let findings = value["findings"].as_array();
    findings.is_none_or(|findings| findings.iter().any(|finding| finding["severity"] == "error"))
}

/// Prints a plan, or that there is nothing to change.
pub(crate) fn print(
    path: &Path,
    plan: Option<&Plan>,
    explanation: &Explanation,
    io: &mut Io,
) -> Result<(), Failure> {
    let mut fields = Map::new();
    fields.insert("image".into(), show::path(path).into());
    fields.extend(explanation.0.clone());
    let mut put = |name: &str, value: Value| fields.insert(name.into(), value);
    if let Some(plan) = plan {
        let header = plan.header();
        put("image_blocks", header.image_blocks.into());
        put("base_hash", header.base.to_string().into());
        put("result_hash", header.result.to_string().into());
        put("changed_blocks", plan.blocks().into());
        put("groups", header.groups.into());
    }
    let mut list = JsonList::with("betr.plan", 1, Value::Object(fields), "changes");
    for number in 0..plan.map_or(0, |plan| plan.header().changes) {
        let Some(plan) = plan else { break };
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
        Magic::Identity | Magic::Superblock | Magic::LogGroup | Magic::Plan => return None,
    };
    Some(name.into())
}
