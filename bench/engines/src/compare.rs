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
use crate::phase::{Contents, Phase};
use crate::proc::Machine;
use crate::record::Record;
use crate::report;

/// glibc gives threads arenas of their own, and each keeps what was freed in it: what a closed database or a thread that is
/// idle needed would count as what the engine needs now.
const ONE_ARENA: (&str, &str) = ("MALLOC_ARENA_MAX", "1");

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
    let databases = if args.by_phase { args.engines.len() } else { 1 };
    let dir = disk::make_dir(args.dir.as_deref(), data_bytes(args.load.keys), databases)?;
    let mut records = Vec::new();
    let outcome = if args.by_phase {
        by_phase(args, dir.path(), &mut records)
    } else {
        by_run(args, dir.path(), &mut records)
    };
    // What was measured before something failed is not lost.
    print!("{}", report::report(args, &records));
    outcome?;
    dir.close().context("cannot remove the directory of the databases")
}

/// Each run of an engine has a database of its own, and does all phases.
fn by_run(args: &Compare, dir: &Path, records: &mut Vec<Record>) -> Result<()> {
    for run in 1..=args.runs {
        for engine in &args.engines {
            let dir = dir.join(format!("{engine}-{run}"));
            let part = Part { phases: &args.load.phases, holds: Contents::Nothing, run };
            let outcome = part.measure(args, engine, &dir, records);
            if dir.exists() {
                fs::remove_dir_all(&dir).context("cannot remove a database")?;
            }
            outcome?;
        }
    }
    Ok(())
}

/// Each engine has one database, and engines take turns with each phase.
fn by_phase(args: &Compare, dir: &Path, records: &mut Vec<Record>) -> Result<()> {
    let mut phases = args.load.phases.clone();
    phases.sort_unstable();
    phases.dedup();
    let mut holds = vec![Contents::Nothing; args.engines.len()];
    for phase in phases {
        let runs = if phase.can_be_repeated() { args.runs } else { 1 };
        for run in 1..=runs {
            for (engine, holds) in args.engines.iter().zip(&mut holds) {
                let part = Part { phases: &[phase], holds: *holds, run };
                part.measure(args, engine, &dir.join(engine), records)?;
                *holds = Contents::after(phase);
            }
        }
    }
    Ok(())
}

/// What a process is started for.
struct Part<'a> {
    phases: &'a [Phase],
    /// What the database holds already.
    holds: Contents,
    run: u32,
}

impl Part<'_> {
    /// Lets an engine do it, and keeps what was measured, whether or not it succeeds.
    fn measure(
        &self,
        args: &Compare,
        engine: &str,
        dir: &Path,
        records: &mut Vec<Record>,
    ) -> Result<()> {
        let outcome = self.done_by(engine, &args.load, dir, records);
        save(args, records)?;
        // The next engine finds a disk that has nothing left to do.
        rustix::fs::sync();
        outcome.with_context(|| format!("run {} of {engine} failed", self.run))
    }

    fn done_by(&self, engine: &str, load: &Load, dir: &Path, to: &mut Vec<Record>) -> Result<()> {
        let phases: Vec<_> = self.phases.iter().map(|phase| phase.to_string()).collect();
        let mut child = Command::new(std::env::current_exe()?)
            .env(ONE_ARENA.0, ONE_ARENA.1)
            .args(["child", "--engine", engine, "--run", &self.run.to_string()])
            .args(["--keys", &load.keys.to_string(), "--cache", &load.cache.to_string()])
            .args(["--seed", &load.seed.to_string(), "--phases", &phases.join(",")])
            .args(["--holds", &self.holds.to_string(), "--dir"])
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
}

/// Writes what was measured so far to the file that is wanted: a long comparison may be interrupted.
fn save(args: &Compare, records: &[Record]) -> Result<()> {
    let Some(path) = &args.json else { return Ok(()) };
    let results = Results { machine: Machine::this()?, load: &args.load, runs: args.runs, records };
    let text = serde_json::to_string_pretty(&results)? + "\n";
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
