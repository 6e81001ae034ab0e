//! `betr dev crash`: runs the crash explorer. Prints a table, and the smallest failure if there is one.
//!
//! Everything happens in memory; only `--keep` writes, namely the image of a failure.

use std::path::{Path, PathBuf};

use betr_cli::{Exit, Failure, Io, show};
use betr_lab::explore::{self, Exploration, Flaw, Options, Tally, Workload};
use serde_json::{Value, json};

const STEPS: &str = "Steps of a script, one a line: mkdir PATH; create PATH; symlink PATH TARGET; \
mkfifo PATH; write PATH OFFSET LENGTH SEED; truncate PATH SIZE; unlink PATH; rmdir PATH; rename FROM TO; \
link PATH NEW; setxattr PATH NAME LENGTH SEED; rmxattr PATH NAME; chmod PATH MODE; sync; checkpoint; \
reopen; crash SEED. Contents follow from the seed, and are zeros if it is 'zeros'. A line that begins with # is a \
comment.";

/// Cut the power everywhere in a workload, and see what recovers
///
/// Workloads are run in memory, and every write and flush is recorded. For each moment the states are built
/// that a power cut may leave: what was flushed is there; each write since is there, lost or torn. Each
/// state must pass the checker and recover to what the file system was after some operation, not before
/// the last that was acknowledged; and so it must when the power is cut again while it recovers. A
/// failure is reduced to few steps, and printed with what became of each write. The same options always
/// give the same result.
#[derive(clap::Args, Debug)]
#[command(after_help = STEPS)]
pub(crate) struct Args {
    /// Explore only this workload; may be given several times
    #[arg(long, value_name = "NAME")]
    workload: Vec<String>,
    /// Explore the steps in a file, one a line; with --workload on the volume of that workload
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Decides the steps of the workloads, and which states are taken where there are too many
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many distinct states to look at, in each workload, at most
    #[arg(long, value_name = "N", default_value_t = 2000)]
    states: u64,
    /// Go on, with other seeds, until all workloads together have this many distinct states
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    at_least: u64,
    /// Write the image of a failure to this file, which must not exist
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Put a mistake into the workloads' writes, to see that it is found
    #[arg(long, value_name = "FLAW")]
    flaw: Option<Mistake>,
    /// Recover each distinct state, even where nothing that a recovery reads is new
    #[arg(long)]
    thorough: bool,
    /// List the workloads
    #[arg(long, conflicts_with_all = ["workload", "script", "keep", "flaw"])]
    list: bool,
    /// Print the steps of the workloads instead of exploring them
    #[arg(long, conflicts_with_all = ["list", "keep", "flaw", "json"])]
    print: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Mistakes that can be put in.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Mistake {
    /// A superblock is written without a flush after what it refers to
    SuperblockUnfenced,
    /// A sync returns before its log group is durable
    SyncUnflushed,
}

pub(crate) fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let workloads = workloads(args)?;
    if args.list {
        return list(&workloads, args.json, io);
    }
    if args.print {
        for workload in &workloads {
            writeln!(io.out, "# {}, seed {}", workload.name, args.seed)?;
            write!(io.out, "{}", explore::print(&workload.steps(args.seed)))?;
        }
        return Ok(Exit::DONE);
    }
    let options = Options {
        states: args.states,
        at_least: args.at_least,
        seed: args.seed,
        flaw: match args.flaw {
            None => Flaw::None,
            Some(Mistake::SuperblockUnfenced) => Flaw::SuperblockUnfenced,
            Some(Mistake::SyncUnflushed) => Flaw::SyncUnflushed,
        },
        shortcuts: !args.thorough,
        ..Options::default()
    };
    if let Some(path) = args.keep.as_ref().filter(|path| path.symlink_metadata().is_ok()) {
        return Err(Failure::failed(format!("{} exists already", show::path(path))));
    }
    let found = explore::explore(&workloads, options);
    if args.json {
        io.json("betr.dev.crash", 1, document(&found))?;
    } else {
        table(&found, io)?;
        if let Some(failure) = &found.failure {
            explain(failure, io)?;
        }
    }
    let Some(failure) = &found.failure else { return Ok(Exit::DONE) };
    if let Some(path) = args.keep.as_ref().filter(|_| failure.state.is_some()) {
        keep(path, failure, args.json, io)?;
    }
    Ok(Exit::FAILED)
}

/// The requested workloads.
fn workloads(args: &Args) -> Result<Vec<Workload>, Failure> {
    let named = named(args)?;
    let Some(path) = &args.script else { return Ok(named) };
    let failed =
        |what: &dyn std::fmt::Display| Failure::failed(format!("{}: {what}", show::path(path)));
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    let mut script = Workload::script(explore::parse(&text).map_err(|error| failed(&error))?);
    if let (Some(workload), false) = (named.first(), args.workload.is_empty()) {
        script.setup = workload.setup;
    }
    Ok(vec![script])
}

/// The built-in workloads with the given names, or all.
fn named(args: &Args) -> Result<Vec<Workload>, Failure> {
    let mut all = Workload::all();
    let names: Vec<&str> = all.iter().map(|workload| workload.name).collect();
    if let Some(unknown) = args.workload.iter().find(|name| !names.contains(&name.as_str())) {
        let unknown = show::bytes(unknown.as_bytes());
        let names = names.join(", ");
        return Err(Failure::usage(format!("there is no workload '{unknown}', only {names}")));
    }
    all.retain(|w| args.workload.is_empty() || args.workload.iter().any(|name| name == w.name));
    Ok(all)
}

fn list(workloads: &[Workload], as_json: bool, io: &mut Io) -> Result<Exit, Failure> {
    if as_json {
        let one = |workload: &Workload| json!({"name": workload.name, "about": workload.about});
        let all: Value = workloads.iter().map(one).collect();
        io.json("betr.dev.crash.workloads", 1, json!({ "workloads": all }))?;
    } else {
        for workload in workloads {
            writeln!(io.out, "{:<10} {}", workload.name, workload.about)?;
        }
    }
    Ok(Exit::DONE)
}

/// A column of the table: its title, and its value.
type Column = (&'static str, fn(&Tally) -> u64);

const COLUMNS: [Column; 11] = [
    ("steps", |tally| tally.steps),
    ("events", |tally| tally.events),
    ("checkpoints", |tally| tally.checkpoints),
    ("log-wraps", |tally| tally.wraps),
    ("states", |tally| tally.states),
    ("distinct", |tally| tally.distinct),
    ("inside", |tally| tally.inside),
    ("recovered", |tally| tally.recovered),
    ("groups", |tally| tally.groups),
    ("torn-tails", |tally| tally.torn),
    ("stories", |tally| tally.stories),
];

fn table(found: &Exploration, io: &mut Io) -> Result<(), Failure> {
    write!(io.out, "{:<10}", "workload")?;
    for (title, _) in COLUMNS {
        write!(io.out, "  {title:>8}")?;
    }
    let mut sum = Tally::default();
    for (name, tally) in &found.tallies {
        row(name, tally, io)?;
        sum += tally;
    }
    row("all", &sum, io)?;
    writeln!(io.out)?;
    writeln!(io.out, "{:>10} distinct states, over all workloads", found.distinct)?;
    for (rule, count) in &sum.rules {
        writeln!(io.out, "{count:>10} × {rule}")?;
    }
    Ok(())
}

fn row(name: &str, tally: &Tally, io: &mut Io) -> Result<(), Failure> {
    write!(io.out, "\n{name:<10}")?;
    for (title, number) in COLUMNS {
        let width = title.len().max(8);
        write!(io.out, "  {:>width$}", number(tally))?;
    }
    Ok(())
}

fn explain(failure: &explore::Failure, io: &mut Io) -> Result<(), Failure> {
    let explore::Failure { workload, seed, steps, description, verdict, .. } = failure;
    writeln!(io.out, "\nworkload {workload}, seed {seed}, fails: {verdict}")?;
    for line in description {
        writeln!(io.out, "{line}")?;
    }
    writeln!(io.out, "the steps, for --script FILE --workload {workload} --seed {seed}:")?;
    Ok(write!(io.out, "{}", explore::print(steps))?)
}

fn document(found: &Exploration) -> Value {
    let numbers = |tally: &Tally| {
        let columns =
            COLUMNS.iter().map(|(title, number)| (title.replace('-', "_"), number(tally)));
        columns.map(|(title, number)| (title, Value::from(number))).collect::<Value>()
    };
    let one = |(name, tally): &(&str, Tally)| json!({ "name": name, "counts": numbers(tally), "rules": tally.rules });
    let mut value = json!({
        "sound": found.failure.is_none(),
        "distinct": found.distinct,
        "workloads": found.tallies.iter().map(one).collect::<Value>(),
    });
    if let Some(failure) = &found.failure {
        value["failure"] = json!({
            "workload": failure.workload,
            "seed": failure.seed,
            "verdict": failure.verdict,
            "description": failure.description,
            "script": failure.steps.iter().map(ToString::to_string).collect::<Value>(),
        });
    }
    value
}

/// Writes the image of a failure into a new file.
fn keep(path: &Path, failure: &explore::Failure, quiet: bool, io: &mut Io) -> Result<(), Failure> {
    let failed = |error| Failure::failed(format!("{}: {error}", show::path(path)));
    let mut file = std::fs::File::create_new(path).map_err(failed)?;
    std::io::Write::write_all(&mut file, &failure.image).map_err(failed)?;
    if !quiet {
        writeln!(io.out, "the image is in {}", show::path(path))?;
    }
    Ok(())
}
