//! `betr snapshot prune`: drops the snapshots that no rule keeps.

use std::path::PathBuf;

use betr_cli::size::human;
use betr_cli::snapshots::Request;
use betr_cli::volume::clock;
use betr_cli::{Exit, Failure, Io, show};
use betr_core::ids::{Epoch, Time};
use serde_json::{Value, json};

use super::policy::{Candidate, Period, Policy, Within};
use super::{Quiet, ask, row};

#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(flatten)]
    quiet: Quiet,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Say what would be kept and dropped, and change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Look only at snapshots with names that begin with PREFIX, and leave all others
    #[arg(long, default_value = "", hide_default_value = true)]
    prefix: String,
    #[command(flatten)]
    keep: Keep,
    /// The image, or a directory of a mount of it
    image: PathBuf,
}

/// The rules. A count of 0 is none.
#[derive(clap::Args, Debug)]
struct Keep {
    /// Keep the last N snapshots
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    keep_last: u32,
    /// Keep the newest snapshot of each of the last N hours that have one
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    keep_hourly: u32,
    /// The same of days
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    keep_daily: u32,
    /// The same of ISO weeks
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    keep_weekly: u32,
    /// The same of months
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    keep_monthly: u32,
    /// The same of years
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    keep_yearly: u32,
    /// Keep all that are less than this older than the newest, as 36h, 7d, 2w, 6m or 1y6m
    #[arg(long, value_name = "DURATION")]
    keep_within: Option<Within>,
}

impl Keep {
    fn policy(&self) -> Policy {
        let counts = [
            (Period::Snapshot, self.keep_last),
            (Period::Hour, self.keep_hourly),
            (Period::Day, self.keep_daily),
            (Period::Week, self.keep_weekly),
            (Period::Month, self.keep_monthly),
            (Period::Year, self.keep_yearly),
        ];
        Policy { counts: counts.into(), within: self.keep_within.clone() }
    }
}

/// Runs the command.
pub(super) fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let policy = args.keep.policy();
    if policy.is_empty() {
        let text = "snapshot prune: at least one --keep option above 0 is required; 'betr snapshot drop' drops by name";
        return Err(Failure::usage(text));
    }
    let answer = ask(&args.image, &Request::List)?;
    let holds = answer["snapshots"].as_array().into_iter().flatten();
    let holds: Vec<&Value> = holds.filter(|hold| name(hold).starts_with(&args.prefix)).collect();
    let candidates: Vec<Candidate> = holds.iter().map(|hold| candidate(hold)).collect();
    let reasons = policy.reasons(&candidates, clock()?());

    let dropped = holds.iter().zip(&reasons).filter(|(_, reasons)| reasons.is_empty());
    let dropped: Vec<String> = dropped.map(|(hold, _)| name(hold).to_owned()).collect();
    let counts = (holds.len() - dropped.len(), dropped.len());
    let freed = match dropped.is_empty() || args.dry_run {
        true => json!(0),
        false => ask(&args.image, &Request::Drop(dropped))?["freed_bytes"].take(),
    };
    let told = PruneReport { rows: holds.into_iter().zip(reasons).collect(), counts, freed };
    match args.json {
        true => io.json("betr.snapshot.prune", 1, told.document(args.dry_run))?,
        false if args.quiet.quiet => {}
        false => told.print(args, io)?,
    }
    Ok(Exit::DONE)
}

/// The result of a pruning.
struct PruneReport<'a> {
    /// Each snapshot, with the reasons to keep it.
    rows: Vec<(&'a Value, Vec<String>)>,
    /// How many snapshots are kept, and how many are dropped.
    counts: (usize, usize),
    freed: Value,
}

impl PruneReport<'_> {
    fn document(&self, dry_run: bool) -> Value {
        let rows = self.rows.iter().map(|(hold, reasons)| {
            let mut row = Value::clone(hold);
            row["action"] = action(reasons).into();
            row["reasons"] = reasons.as_slice().into();
            row
        });
        let (kept, dropped) = self.counts;
        json!({
            "dry_run": dry_run, "kept": kept, "dropped": dropped, "freed_bytes": self.freed,
            "snapshots": rows.collect::<Vec<_>>(),
        })
    }

    fn print(&self, args: &Args, io: &mut Io) -> Result<(), Failure> {
        for (hold, reasons) in &self.rows {
            let line = format!("{}  {}  {}", action(reasons), row(hold), reasons.join(", "));
            writeln!(io.out, "{}", line.trim_end())?;
        }
        let (image, (kept, dropped)) = (show::path(&args.image), self.counts);
        match args.dry_run {
            true => writeln!(io.out, "{image}: {kept} would be kept, {dropped} dropped")?,
            false => {
                let freed = human(self.freed.as_u64().unwrap_or(0));
                writeln!(io.out, "{image}: {kept} kept, {dropped} dropped, {freed} free")?;
            }
        }
        Ok(())
    }
}

fn action(reasons: &[String]) -> &'static str {
    if reasons.is_empty() { "drop" } else { "keep" }
}

fn name(hold: &Value) -> &str {
    hold["name"].as_str().unwrap_or("")
}

fn candidate(hold: &Value) -> Candidate {
    let number = |field: &str| hold[field].as_u64().unwrap_or(0);
    let secs = hold["seconds"].as_i64().unwrap_or(0);
    Candidate {
        epoch: Epoch(number("epoch")),
        wall: Time { secs, nanos: number("nanoseconds") as u32 },
        kept: hold["kept"] == true,
    }
}
