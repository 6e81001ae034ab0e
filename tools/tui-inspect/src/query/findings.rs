//! Findings of a check, and the meaning of each.

use std::collections::HashMap;
use std::sync::Arc;

use betr_core::check::{CheckOptions, Code, Finding, Progress, Repairable, Severity, check as run};

use crate::image::Image;
use crate::sheet::{Cell, Role, Row, Sheet, column, rest};
use crate::spot::Spot;
use crate::words::{number, some, wrap};
use crate::work::Work;

/// The width at which texts are wrapped, for a small terminal.
const WIDTH: usize = 72;

/// Reports the progress of a check.
struct Passes<'w> {
    work: &'w Work,
    all: u64,
}

impl Progress for Passes<'_> {
    fn states(&mut self, states: u32) {
        self.all = u64::from(states) * 3;
    }

    fn step(&mut self, pass: u32, done: u64, total: u64) {
        let within = done.saturating_mul(100).checked_div(total).unwrap_or(0);
        self.work.step(u64::from(pass.saturating_sub(1)) * 100 + within, self.all * 100);
    }
}

/// Checks the image and lists the findings.
pub(super) fn check(image: &Image, data: bool, work: &Arc<Work>) -> Result<Sheet, String> {
    let device = image.raw(work);
    let options = CheckOptions { data, ..CheckOptions::default() };
    let report = run(&device, options, &mut Passes { work, all: 3 });
    if work.is_cancelled() {
        return Err("given up: Enter checks again".into());
    }
    let mut counts: HashMap<Code, usize> = HashMap::new();
    let mut rows = Vec::with_capacity(report.findings.len());
    for finding in &report.findings {
        let which = counts.entry(finding.code).or_default();
        *which += 1;
        rows.push(row(finding, *which));
    }
    let errors =
        report.findings.iter().filter(|finding| finding.code.severity() == Severity::Error).count();
    let sound = if data { "sound" } else { "sound but for values, which were not read" };
    let (role, verdict) = match (errors, report.findings.len()) {
        (0, 0) => (Role::Good, format!("{sound}: nothing was found")),
        (0, notes) => (Role::Good, format!("{sound}, {}", some(notes, "note"))),
        (errors, _) => (Role::Bad, some(errors, "error")),
    };
    let counts = report.counts;
    let seen = format!(
        "{} nodes, {} inodes, {} of {} blocks in use{}",
        number(counts.nodes),
        number(counts.inodes),
        number(counts.used_blocks),
        number(counts.image_blocks),
        if data { ", all values verified" } else { "; d verifies all values, too" }
    );
    let consent = match report.repairable() {
        Repairable::Nothing => "",
        Repairable::Safely => "p previews the repair: it loses nothing",
        Repairable::WithLoss => "p previews the repair: it may lose something",
        Repairable::No => "not all of it can be repaired: betr salvage copies out what is left",
    };
    *image.report.lock() = Some(Arc::new(report));
    let columns = vec![
        column("code", 6),
        column("", 1),
        column("where", 22),
        column("what", 38),
        rest("found"),
    ];
    let sheet = Sheet::new("findings", columns, rows).note(role, verdict).note(Role::Dim, seen);
    let sheet = match &image.moment {
        Some(_) => sheet
            .note(Role::Warn, "this is the image as it is now, not as of the moment that is shown"),
        None => sheet,
    };
    Ok(if consent.is_empty() { sheet } else { sheet.note(Role::Warn, consent) })
}

fn row(finding: &Finding, which: usize) -> Row {
    let problem = finding.code.problem();
    let (mark, role) = match problem.severity {
        Severity::Note => ("i", Role::Dim),
        Severity::Error => ("!", Role::Bad),
    };
    let cells = vec![
        Cell::new(role, problem.name),
        Cell::new(role, mark),
        Cell::new(Role::Link, &finding.place),
        Cell::from(problem.title),
        Cell::from(betr_cli::show::bytes(finding.detail.as_bytes())),
    ];
    let here = Spot::Finding(finding.code, which);
    Row::of(cells).to(Spot::of_place(&finding.place).into_iter().chain([here]))
}

/// The details of a finding: its meaning, the rule it violates, and its repair.
pub(super) fn problem(image: &Image, index: usize) -> Result<Sheet, String> {
    let report = image.report.lock().clone().ok_or("nothing has been checked yet")?;
    let finding = report.findings.get(index).ok_or("there is nothing to be said")?;
    let problem = finding.code.problem();
    let consent = match problem.repairable {
        Repairable::Nothing => "nothing to repair",
        Repairable::Safely => "loses nothing (fsck -p)",
        Repairable::WithLoss => "may lose something (fsck -y)",
        Repairable::No => "none",
    };
    let spots = Spot::of_place(&finding.place);
    let mut rows = Vec::new();
    let mut put = |role, text: &str| {
        rows.extend(
            wrap(text, WIDTH)
                .into_iter()
                .map(|line| Row::line(role, line).to(spots.iter().cloned())),
        );
    };
    put(Role::Strong, problem.title);
    put(Role::Plain, &betr_cli::show::bytes(finding.detail.as_bytes()));
    put(Role::Dim, "");
    put(Role::Plain, problem.meaning);
    put(Role::Dim, &format!("Rule: format/SPEC.md, section {}", problem.rule));
    put(Role::Dim, "");
    put(Role::Strong, &format!("Repair: {consent}"));
    put(Role::Plain, problem.repair);
    put(Role::Dim, "");
    rows.extend(spots.iter().map(|spot| Row::line(Role::Link, spot).to([spot.clone()])));
    Ok(Sheet::new(format!("{} at {}", problem.name, finding.place), vec![rest("")], rows))
}
