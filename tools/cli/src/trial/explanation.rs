//! Why a plan is, as it stands in its file.

use std::fmt;

use betr_core::check::{Code, Report};
use betr_core::mend::Repair;
use serde_json::{Map, Value, json};

use super::document::{findings, loss, repair};

/// The most bytes of a list that a plan keeps; of the rest only the count.
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

    /// As a plan has it. An unknown one says nothing.
    pub fn in_words(words: &str) -> Explanation {
        let mut fields: Map<String, Value> = serde_json::from_str(words).unwrap_or_default();
        fields.retain(|name, _| FIELDS.contains(&name.as_str()));
        Explanation(fields)
    }

    /// The fields, as JSON has them.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.0
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
