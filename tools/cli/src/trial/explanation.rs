//! The explanation of a plan, as stored in its file.

use std::fmt;

use betr_core::check::{Code, Report};
use betr_core::mend::Repair;
use serde_json::{Map, Value, json};

use super::document::{findings, loss, repair};

/// A list in a plan holds at most 2 MiB; of the rest only the number is kept.
const LIST_MAX: usize = 2 << 20;

/// The fields of an explanation.
const FIELDS: [&str; 4] = ["findings", "repair", "losses", "left"];

/// An explanation: the findings, the repair, its losses, and the findings left after it.
pub struct Explanation(Map<String, Value>);

impl Explanation {
    /// The explanation of a check, or of a check, the repair, and the check after it.
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

    /// Parses the text of a plan. Unknown text and unknown fields are ignored.
    pub fn in_words(words: &str) -> Explanation {
        let mut fields: Map<String, Value> = serde_json::from_str(words).unwrap_or_default();
        fields.retain(|name, _| FIELDS.contains(&name.as_str()));
        Explanation(fields)
    }

    /// The fields as JSON.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.0
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Value::Object(self.0.clone()))
    }
}

/// The beginning of a list, at most [`LIST_MAX`] bytes; if it was cut, a last item says how many are missing.
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

/// Durable content that the repair gives up.
fn losses(report: &Report, done: &Repair) -> Value {
    let lost = report.findings.iter().filter(|finding| finding.code == Code::CheckpointLost);
    let checkpoints = lost.map(|finding| {
        json!({ "what": "everything that this checkpoint had beyond the one before it", "which": finding.detail })
    });
    let mended = done.mended.iter().flat_map(|mended| &mended.losses);
    checkpoints.chain(mended.map(loss)).collect()
}
