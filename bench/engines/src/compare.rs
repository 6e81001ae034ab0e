//! Runs all engines by turns, each in a process of its own, and gathers what they say.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::args::{Compare, Load};
use crate::child::data_bytes;
use crate::disk;
use crate::proc::Machine;
use crate::record::Record;
use crate::report;

/// Everything that was measured, and what it was measured with.
#[derive(Serialize)]
struct Results<'a> {
    machine: Machine,
    load: &'a Load,
    runs: u32,
    records: &'a [Record],
}

/// Compares the engines, prints tables, and writes the file if one is wanted.
pub fn run(args: &Compare) -> Result<()> {
    ensure!(args.load.keys > 0, "there must be keys");
    let dir = disk::make_dir(args.dir.as_deref(), data_bytes(args.load.keys))?;
    let mut records = Vec::new();
    let outcome = all_runs(args, dir.path(), &mut records);
    // What was measured before something failed is not lost.
    print!("{}", report::report(args, &records));
    outcome?;
    dir.close().context("cannot remove the directory of the databases")
}

fn all_runs(args: &Compare, dir: &Path, records: &mut Vec<Record>) -> Result<()> {
    for run in 1..=args.runs {
        for engine in &args.engines {
            let dir = dir.join(format!("{engine}-{run}"));
            let outcome = one_run(&args.load, engine, run, &dir, records);
            if dir.exists() {
                fs::remove_dir_all(&dir).context("cannot remove a database")?;
            }
            save(args, records)?;
            outcome.with_context(|| format!("run {run} of {engine} failed"))?;
            // The next engine finds a disk that has nothing left to do.
            rustix::fs::sync();
        }
    }
    Ok(())
}

/// Writes what was measured so far to the file that is wanted: a long comparison may be interrupted.
fn save(args: &Compare, records: &[Record]) -> Result<()> {
    let Some(path) = &args.json else { return Ok(()) };
    let results = Results { machine: Machine::this()?, load: &args.load, runs: args.runs, records };
    let text = serde_json::to_string_pretty(&results)? + "\n";
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn one_run(load: &Load, engine: &str, run: u32, dir: &Path, to: &mut Vec<Record>) -> Result<()> {
    let phases: Vec<_> = load.phases.iter().map(|phase| phase.to_string()).collect();
    let mut child = Command::new(std::env::current_exe()?)
        .args(["child", "--engine", engine, "--run", &run.to_string()])
        .args(["--keys", &load.keys.to_string(), "--cache", &load.cache.to_string()])
        .args(["--seed", &load.seed.to_string(), "--phases", &phases.join(",")])
        .arg("--dir")
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start a process")?;
    let out = child.stdout.take().context("the process has no output")?;
    for line in BufReader::new(out).lines() {
        to.push(serde_json::from_str(&line?).context("the process says something else")?);
    }
    let status = child.wait()?;
    ensure!(status.success(), "the process ended with {status}");
    Ok(())
}
