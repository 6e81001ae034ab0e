//! The findings of a check, as text and as JSON.

use std::path::Path;

use betr_cli::plan::extent_of;
use betr_cli::size::human;
use betr_cli::trial::{findings, repair};
use betr_cli::{Failure, Io, show};
use betr_core::Place;
use betr_core::check::{Finding, Report};
use betr_core::format::Features;
use betr_core::ids::BLOCK_SIZE;
use betr_core::log::{End, Survey};
use betr_core::mend::{Missing, MissingPart, Repair};
use betr_core::text::Printable;
use betr_offline::plan::{Plan, Standing};
use serde_json::{Value, json};

use crate::undo::{found, goes_on};

/// The most possible losses that are listed in text.
const SHOWN: usize = 100;

/// A repair: its changes, the remaining findings, and the plan.
#[derive(Clone, Copy)]
pub(crate) struct Repaired<'a> {
    pub done: &'a Repair,
    pub again: &'a Report,
    pub plan: &'a Plan,
    /// The plan file, if the image itself was not changed.
    pub overlay: Option<&'a Path>,
    /// The file that undoes the repair.
    pub undo: Option<&'a Path>,
}

/// A plan that has been applied.
pub(crate) struct Applied<'a> {
    pub file: &'a Path,
    pub plan: &'a Plan,
    /// The state of the image before: untouched, half or whole.
    pub standing: Standing,
    /// The file that undoes the plan.
    pub undo: Option<&'a Path>,
}

/// Prints the line for a volume that was closed cleanly.
pub(crate) fn one_line(
    path: &Path,
    report: &Report,
    io: &mut Io,
    json: bool,
) -> Result<(), Failure> {
    if json {
        return Ok(io.json("betr.fsck", 1, document(path, report, None))?);
    }
    let name = name(path, report);
    let blocks = report.superblock.as_ref().map_or((0, 0), |s| (s.used_blocks, s.image_blocks));
    writeln!(io.out, "{name}: clean, {}/{} blocks", blocks.0, blocks.1)?;
    Ok(())
}

/// Prints all findings, and after a repair its changes and the remaining findings.
pub(crate) fn report(
    verbose: bool,
    json: bool,
    path: &Path,
    report: &Report,
    repaired: Option<Repaired>,
    io: &mut Io,
) -> Result<(), Failure> {
    if json {
        return Ok(io.json("betr.fsck", 1, document(path, report, repaired))?);
    }
    let name = name(path, report);
    // The findings were printed before the repair was written.
    if repaired.is_none() {
        findings_of(&name, verbose, report, io)?;
    }
    let last = match repaired {
        None => report,
        Some(Repaired { done, again, plan, overlay, undo }) => {
            let place = overlay.map_or(String::new(), |file| format!(" in {}", show::path(file)));
            writeln!(
                io.out,
                "{name}: repaired{place}: {} log records made durable, {} slots written afresh",
                done.replayed, done.slots_mended
            )?;
            if done.orphans > 0 {
                writeln!(io.out, "{name}: {} files without a name deleted", done.orphans)?;
            }
            if done.split > 0 {
                let split = done.split;
                writeln!(io.out, "{name}: {split} directories or files given zones of their own")?;
            }
            if overlay.is_some() {
                let extent = extent_of(plan);
                writeln!(io.out, "{name}: {extent} would change; the image is as it was")?;
            }
            taken_back(&name, path, undo, io)?;
            for finding in &again.findings {
                writeln!(io.out, "{name}: still: {}", line(finding))?;
            }
            again
        }
    };
    verdict(&name, verbose, last, io)
}

/// Prints the findings and the planned changes before the repair is written, so that the user learns of losses before
/// they happen.
pub(crate) fn before_repair(
    verbose: bool,
    path: &Path,
    report: &Report,
    done: &Repair,
    io: &mut Io,
) -> Result<(), Failure> {
    let name = name(path, report);
    findings_of(&name, verbose, report, io)?;
    if let Some(mended) = &done.mended {
        writeln!(io.out, "{name}: {} nodes are made anew", mended.nodes)?;
        for change in &mended.changes {
            writeln!(io.out, "{name}: {}: {}", change.place, change.what)?;
        }
        for loss in &mended.losses {
            writeln!(io.out, "{name}: lost: {loss}")?;
        }
        for Missing { path, what } in mended.missing.iter().take(SHOWN) {
            let what = match what {
                MissingPart::Bytes { first, last } => format!("bytes {first} to {last}"),
                MissingPart::Entries => "entries of the directory".into(),
                MissingPart::Attributes => "owner, permissions, times and attributes".into(),
            };
            writeln!(io.out, "{name}: may be lost: {}: {what}", Printable(path))?;
        }
        if let more @ 1.. = mended.missing.len().saturating_sub(SHOWN) {
            let least = if mended.more_missing { "at least " } else { "" };
            writeln!(io.out, "{name}: may be lost: {least}{more} places more, see --json")?;
        }
    }
    Ok(io.out.flush()?)
}

fn findings_of(name: &str, verbose: bool, report: &Report, io: &mut Io) -> Result<(), Failure> {
    if verbose {
        passes(report, io)?;
    }
    for finding in &report.findings {
        writeln!(io.out, "{name}: {}", line(finding))?;
    }
    Ok(())
}

/// Reports that a plan was applied, and the findings of the check after it.
pub(crate) fn applied(
    verbose: bool,
    json: bool,
    path: &Path,
    report: &Report,
    applied: Applied,
    io: &mut Io,
) -> Result<(), Failure> {
    let Applied { file, plan, standing, undo } = applied;
    if json {
        let mut value = document(path, report, None);
        value["apply"] = json!({
            "plan": show::path(file),
            "found": found(standing),
            "blocks": plan.blocks(),
            "groups": plan.header().groups,
            "undo": undo.map(show::path),
        });
        return Ok(io.json("betr.fsck", 1, value)?);
    }
    let name = name(path, report);
    if let Standing::Half { next } = standing {
        writeln!(io.out, "{}", goes_on(&name, plan, next))?;
    }
    let extent = extent_of(plan);
    let file = show::path(file);
    match standing {
        Standing::Whole => {
            writeln!(io.out, "{name}: nothing to do: {extent} are as {file} leaves them already")?;
        }
        _ => writeln!(io.out, "{name}: applied {file}: {extent}")?,
    }
    taken_back(&name, path, undo, io)?;
    for finding in &report.findings {
        writeln!(io.out, "{name}: {}", line(finding))?;
    }
    verdict(&name, verbose, report, io)
}

/// Names the command that undoes the repair.
fn taken_back(name: &str, image: &Path, undo: Option<&Path>, io: &mut Io) -> Result<(), Failure> {
    if let Some(undo) = undo {
        let (image, undo) = (show::path(image), show::path(undo));
        writeln!(io.out, "{name}: 'betr undo {image} {undo}' takes it back")?;
    }
    Ok(())
}

/// Prints the last line, and statistics before it if `verbose`.
fn verdict(name: &str, verbose: bool, last: &Report, io: &mut Io) -> Result<(), Failure> {
    if verbose {
        numbers(last, io)?;
    }
    let counts = last.counts;
    let verdict = if last.is_clean() { "clean" } else { "DAMAGED" };
    let files = match counts.inodes {
        // Every file system has a root directory, so 0 inodes means that none were checked.
        0 if is_files(last) => "files not looked at".to_owned(),
        inodes => format!("{inodes} inodes"),
    };
    writeln!(
        io.out,
        "{name}: {verdict}, {files}, {}/{} blocks",
        counts.used_blocks, counts.image_blocks
    )?;
    Ok(())
}

/// Whether the volume holds a file system; true if that is unknown.
fn is_files(report: &Report) -> bool {
    let incompatible = report.superblock.as_ref().map_or(0, |found| found.features.incompatible);
    incompatible & Features::KEYS == 0
}

fn line(finding: &Finding) -> String {
    let problem = finding.code.problem();
    format!("{}: {} at {}: {}", problem.name, problem.title, finding.place, finding.detail)
}

/// Prints the results of the two passes over the log.
fn passes(report: &Report, io: &mut Io) -> Result<(), Failure> {
    let Some(log) = &report.log else { return Ok(()) };
    writeln!(
        io.out,
        "Pass 1: {} log groups, {} records, {} unbound entries, {} binding entries",
        log.groups, log.records, log.unbound, log.bindings
    )?;
    if log.bound.total() > 0 {
        let bound = log.bound;
        let (extents, bytes) = pinned(log);
        writeln!(
            io.out,
            "        {} late-bound values: {} in leaves, {} in runs, {} in the log, {} obsolete",
            bound.total(),
            bound.in_leaves,
            bound.in_runs,
            bound.inline,
            bound.null
        )?;
        let lost = log.lost_values();
        let verdict = if lost == 0 { String::new() } else { format!("; {lost} values are lost") };
        writeln!(io.out, "        {extents} extents read and pinned ({}){verdict}", human(bytes))?;
    }
    let at = Place::Byte(log.end_byte);
    match &log.end {
        End::Clean => writeln!(io.out, "        the log ends at {at}")?,
        End::Torn { why, .. } => writeln!(io.out, "        the log ends at {at}, torn: {why}")?,
        End::Damaged { .. } | End::Unreadable { .. } | End::Superseded { .. } => {
            writeln!(io.out, "        the log is damaged at {at}")?;
        }
    }
    if let Some(replay) = &report.replay {
        let each = log.operations.iter().map(|(op, count)| format!("{count} {}", op.name()));
        let each = each.collect::<Vec<_>>().join(", ");
        writeln!(io.out, "Pass 2: {} operations replayed: {each}", replay.survey.records)?;
    }
    Ok(())
}

/// The number of pinned extents, and their bytes.
fn pinned(log: &Survey) -> (usize, u64) {
    (log.pins.len(), log.pins.iter().map(|(_, extent)| extent.bytes()).sum())
}

fn numbers(report: &Report, io: &mut Io) -> Result<(), Failure> {
    let counts = report.counts;
    let size = |blocks: u64| human(blocks * BLOCK_SIZE as u64);
    writeln!(io.out, "{:>12} nodes, {} of them leaves", counts.nodes, counts.leaves)?;
    writeln!(io.out, "{:>12} messages pending", counts.pending)?;
    writeln!(io.out, "{:>12} inodes, {} of them directories", counts.inodes, counts.directories)?;
    writeln!(io.out, "{:>12} blocks of files", counts.file_blocks)?;
    let (used, all) = (counts.used_blocks, counts.image_blocks);
    writeln!(io.out, "{used:>12} blocks in use ({}) of {all} ({})", size(used), size(all))?;
    Ok(())
}

/// The label if there is one, else the path of the image.
fn name(path: &Path, report: &Report) -> String {
    match report.label.is_empty() {
        true => show::path(path),
        false => Printable(report.label.as_bytes()).to_string(),
    }
}

fn document(path: &Path, report: &Report, repaired: Option<Repaired>) -> Value {
    let mut value = json!({
        "image": show::path(path),
        "clean": repaired.map_or(report.is_clean(), |repaired| repaired.again.is_clean()),
        "findings": findings(report),
        "counts": counts(report),
    });
    if let Some(log) = &report.log {
        value["log"] = log_numbers(log, report);
    }
    if let Some(Repaired { done, again, plan, overlay, undo }) = repaired {
        let mut fields = repair(done);
        fields["left"] = findings(again);
        fields["blocks"] = plan.blocks().into();
        fields["overlay"] = overlay.map(show::path).into();
        fields["undo"] = undo.map(show::path).into();
        value["repair"] = fields;
    }
    value
}

/// The results of the two passes over the log, as JSON.
fn log_numbers(log: &Survey, report: &Report) -> Value {
    let (extents, bytes) = pinned(log);
    let end = match &log.end {
        End::Clean => "clean",
        End::Torn { .. } => "torn",
        End::Damaged { .. } => "damaged",
        End::Unreadable { .. } => "unreadable",
        End::Superseded { .. } => "superseded",
    };
    let operations: serde_json::Map<String, Value> =
        log.operations.iter().map(|(op, count)| (op.name().into(), json!(count))).collect();
    json!({
        "groups": log.groups,
        "records": log.records,
        "operations": operations,
        "unbound_entries": log.unbound,
        "binding_entries": log.bindings,
        "values": {
            "in_leaves": log.bound.in_leaves,
            "in_runs": log.bound.in_runs,
            "in_log": log.bound.inline,
            "obsolete": log.bound.null,
            "lost": log.lost_values(),
        },
        "pinned_extents": extents,
        "pinned_bytes": bytes,
        "end": end,
        "end_at": Place::Byte(log.end_byte).to_string(),
        "replayed": report.replay.as_ref().map(|replay| replay.survey.records),
    })
}

/// Statistics of the check; null if only fixed structures were checked.
fn counts(report: &Report) -> Value {
    let counts = report.counts;
    if counts.nodes == 0 {
        return Value::Null;
    }
    json!({
        "nodes": counts.nodes,
        "leaves": counts.leaves,
        "pending_messages": counts.pending,
        "inodes": counts.inodes,
        "directories": counts.directories,
        "file_blocks": counts.file_blocks,
        "used_blocks": counts.used_blocks,
        "blocks": counts.image_blocks,
    })
}
