//! `replay verify`: runs pass 1 of recovery alone.

use betr_cli::{Exit, Failure, Io};
use betr_core::disk::Disk;
use betr_core::ids::BLOCK_SIZE;
use betr_core::log::{End, Survey, scan};
use serde_json::json;

use crate::Log;

/// What `verify` takes.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(&self, log: &Log, io: &mut Io) -> Result<Exit, Failure> {
        let disk = Disk::new(log.device.clone());
        let survey = scan(&disk, &log.superblock).map_err(|error| log.failure(&error))?;
        let (end, why) = why(&survey.end);
        let bytes = survey.units(&log.superblock) * BLOCK_SIZE as u64;
        let all = log.superblock.log_units * BLOCK_SIZE as u64;
        let Survey { groups, records, unbound, bindings, bound, .. } = &survey;
        if self.json {
            let lost = survey.lost.iter().map(|lost| {
                json!({
                    "first_msn": lost.messages.first.0,
                    "values": lost.messages.count,
                    "place": lost.damage.place.to_string(),
                    "reason": lost.damage.fault.to_string(),
                })
            });
            let document = json!({
                "groups": groups,
                "records": records,
                "unbound_entries": unbound,
                "binding_entries": bindings,
                "bound": {
                    "in_leaves": bound.in_leaves, "in_runs": bound.in_runs,
                    "inline": bound.inline, "null": bound.null,
                },
                "bytes": bytes,
                "log_bytes": all,
                "end": { "byte": survey.end_byte, "reason": end, "detail": why },
                "lost": lost.collect::<serde_json::Value>(),
                "unreachable_records": survey.beyond.len(),
                "illegible_lsns": survey.illegible.iter().map(|lsns| [lsns.start.0, lsns.end.0])
                    .collect::<serde_json::Value>(),
            });
            io.json("betr.replay.verify", 1, document)?;
        } else {
            writeln!(
                io.out,
                "{groups} groups, {records} records, {bytes} of {all} bytes of the log"
            )?;
            writeln!(
                io.out,
                "{unbound} unbound entries, {bindings} binding entries: {} values in leaves, {} in runs, {} in the log, {} obsolete",
                bound.in_leaves, bound.in_runs, bound.inline, bound.null
            )?;
            writeln!(io.out, "the log ends at b:{:#x}: {why}", survey.end_byte)?;
            for lost in &survey.lost {
                let (first, count) = (lost.messages.first, lost.messages.count);
                writeln!(io.out, "lost: {count} values from message {first} on: {}", lost.damage)?;
            }
            for record in &survey.beyond {
                let sure = if record.verifies { "" } else { ", as far as it can be read" };
                writeln!(io.out, "out of reach: {} {}{sure}", record.lsn, record.op.name())?;
            }
            for lsns in &survey.illegible {
                writeln!(io.out, "illegible: from {} to before {}", lsns.start, lsns.end)?;
            }
        }
        Ok(if survey.damage().is_some() { Exit::DAMAGED } else { Exit::DONE })
    }
}

/// The reason why the log ends, in a word and in a sentence.
fn why(end: &End) -> (&'static str, String) {
    let damage = || end.damage().map_or_else(String::new, |error| error.to_string());
    match end {
        End::Clean => ("clean", "what follows is not of this epoch".into()),
        End::Torn { why, .. } => ("torn", format!("a torn tail, never acknowledged: {why}")),
        End::Damaged { .. } => ("damaged", damage()),
        End::Unreadable { .. } => ("unreadable", damage()),
        End::Superseded { .. } => ("superseded", damage()),
    }
}
