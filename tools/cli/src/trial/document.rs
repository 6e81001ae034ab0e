//! Findings of a check and results of a repair as JSON.

use betr_core::Place;
use betr_core::check::{Finding, Repairable, Report, Severity};
use betr_core::format::Key;
use betr_core::mend::{Change, Loss, Mended, Missing, MissingPart, Repair};
use betr_core::text::Printable;
use serde_json::{Value, json};

/// The findings of a check.
pub fn findings(report: &Report) -> Value {
    let one = |finding: &Finding| {
        let problem = finding.code.problem();
        json!({
            "code": problem.name,
            "severity": match problem.severity { Severity::Note => "note", Severity::Error => "error" },
            "title": problem.title,
            "rule": problem.rule,
            "repairable": match problem.repairable {
                Repairable::Nothing | Repairable::Safely => "safely",
                Repairable::WithLoss => "with loss",
                Repairable::No => "no",
            },
            "place": finding.place.to_string(),
            "detail": finding.detail,
        })
    };
    report.findings.iter().map(one).collect()
}

/// The changes and losses of the mender.
fn mended(mended: &Mended) -> Value {
    let change =
        |change: &Change| json!({ "place": change.place.to_string(), "what": change.what });
    json!({
        "nodes": mended.nodes,
        "changes": mended.changes.iter().map(change).collect::<Vec<_>>(),
        "losses": mended.losses.iter().map(loss).collect::<Vec<_>>(),
        "missing": mended.missing.iter().map(missing).collect::<Vec<_>>(),
        "more_missing": mended.more_missing,
    })
}

/// A path at which bytes or entries are missing.
fn missing(missing: &Missing) -> Value {
    let path = Printable(&missing.path).to_string();
    match missing.what {
        MissingPart::Bytes { first, last } => json!({ "path": path, "first": first, "last": last }),
        MissingPart::Entries => json!({ "path": path, "entries": true }),
        MissingPart::Attributes => json!({ "path": path, "attributes": true }),
    }
}

/// A key range that the mender could not save.
pub(super) fn loss(loss: &Loss) -> Value {
    let key = |key: &Key| Place::Key(loss.tree, key.to_vec()).to_string();
    json!({
        "tree": loss.tree.to_string(),
        "from": key(&loss.keys.lo),
        "to": loss.keys.hi.as_ref().map(key),
        "pending_only": loss.pending,
        "why": loss.why,
    })
}

/// The results of a repair.
pub fn repair(done: &Repair) -> Value {
    json!({
        "log_records": done.replayed,
        "superblock_slots": done.slots_mended,
        "orphans": done.orphans,
        "zones_split": done.split,
        "mended": done.mended.as_ref().map(mended),
    })
}
