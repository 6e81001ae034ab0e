//! What a check found, as text and as JSON.

use std::path::Path;

use betr_cli::size::human;
use betr_cli::{Failure, Io, show};
use betr_core::check::{Finding, Repair, Report, Severity};
use betr_core::ids::BLOCK_SIZE;
use betr_core::text::Printable;
use serde_json::{Value, json};

/// The line of a volume that was closed cleanly.
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

/// Everything that was found; and, after a repair, what was done and what is left.
pub(crate) fn report(
    verbose: bool,
    json: bool,
    path: &Path,
    report: &Report,
    repaired: Option<(Repair, &Report)>,
    io: &mut Io,
) -> Result<(), Failure> {
    if json {
        return Ok(io.json("betr.fsck", 1, document(path, report, repaired))?);
    }
    let name = name(path, report);
    for finding in &report.findings {
        writeln!(io.out, "{name}: {}", line(finding))?;
    }
    let last = match repaired {
        None => report,
        Some((done, again)) => {
            writeln!(
                io.out,
                "{name}: repaired: {} log records made durable, {} superblock slots written afresh",
                done.replayed, done.slots_mended
            )?;
            for finding in &again.findings {
                writeln!(io.out, "{name}: still: {}", line(finding))?;
            }
            again
        }
    };
    if verbose {
        numbers(last, io)?;
    }
    let counts = last.counts;
    let verdict = if last.is_clean() { "clean" } else { "DAMAGED" };
    writeln!(
        io.out,
        "{name}: {verdict}, {} inodes, {}/{} blocks",
        counts.inodes, counts.used_blocks, counts.image_blocks
    )?;
    Ok(())
}

fn line(finding: &Finding) -> String {
    let problem = finding.code.problem();
    format!("{}: {} at {}: {}", problem.name, problem.title, finding.place, finding.detail)
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

/// The label where there is one, else the file.
fn name(path: &Path, report: &Report) -> String {
    match report.label.is_empty() {
        true => show::path(path),
        false => Printable(report.label.as_bytes()).to_string(),
    }
}

fn document(path: &Path, report: &Report, repaired: Option<(Repair, &Report)>) -> Value {
    let mut value = json!({
        "image": show::path(path),
        "clean": repaired.map_or(report.is_clean(), |(_, again)| again.is_clean()),
        "findings": findings(report),
        "counts": counts(report),
    });
    if let Some((done, again)) = repaired {
        value["repair"] = json!({
            "log_records": done.replayed,
            "superblock_slots": done.slots_mended,
            "left": findings(again),
        });
    }
    value
}

/// Numbers about what was checked; nothing if only the fixed places were looked at.
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

fn findings(report: &Report) -> Value {
    let one = |finding: &Finding| {
        let problem = finding.code.problem();
        json!({
            "code": problem.name,
            "severity": match problem.severity { Severity::Note => "note", Severity::Error => "error" },
            "title": problem.title,
            "place": finding.place.to_string(),
            "detail": finding.detail,
        })
    };
    report.findings.iter().map(one).collect()
}
