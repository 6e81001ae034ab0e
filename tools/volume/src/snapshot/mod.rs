//! `betr snapshot`: takes, lists, keeps, renames and drops snapshots, and rolls back to them.

mod policy;
mod prune;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use betr_cli::image::{self, Access};
use betr_cli::size::human;
use betr_cli::snapshots::Request;
use betr_cli::volume::{clock, failure, nonces};
use betr_cli::{Exit, Failure, Io, server, show, time};
use betr_core::device::Device;
use betr_core::volume::{Mode, OpenOptions, Pruned, Volume};
use clap::Subcommand;
use serde_json::Value;

/// Keep the state of an image under a name, and look after what is kept
///
/// A snapshot is a checkpoint that stays as it is. It takes no room when it is made; later it keeps what the image does not use any
/// more. Tools that show what was in an image take --as-of s:NAME; mount takes -o ro,snapshot=NAME. A mounted image is reached through
/// its mount.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Keep the present state under a name
    Create {
        #[command(flatten)]
        quiet: Quiet,
        /// The image, or a directory of a mount of it
        image: PathBuf,
        /// The name: no '/', no '@', no control characters
        name: String,
    },
    /// List all snapshots, the oldest first
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// The image, or a directory of a mount of it
        image: PathBuf,
    },
    /// Show what a snapshot refers to, and what dropping it gives back
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// The image, or a directory of a mount of it
        image: PathBuf,
        /// The snapshot
        name: String,
    },
    /// Give a snapshot another name
    Rename {
        #[command(flatten)]
        quiet: Quiet,
        /// The image, or a directory of a mount of it
        image: PathBuf,
        /// The snapshot
        name: String,
        /// Its new name
        new: String,
    },
    /// Mark a snapshot, so that nothing but drop takes it away
    Keep {
        #[command(flatten)]
        quiet: Quiet,
        /// The image, or a directory of a mount of it
        image: PathBuf,
        /// The snapshot
        name: String,
    },
    /// Take that mark away
    Release {
        #[command(flatten)]
        quiet: Quiet,
        /// The image, or a directory of a mount of it
        image: PathBuf,
        /// The snapshot
        name: String,
    },
    /// Make the image what it was when a snapshot was taken
    ///
    /// What has changed since is lost. Snapshots that are younger have to go, and there must be leave for that; one that is kept must be
    /// released first. Of a mounted image nothing may be open. The snapshot itself stays.
    Rollback {
        #[command(flatten)]
        quiet: Quiet,
        /// Drop the snapshots that are younger
        #[arg(long)]
        drop_younger: bool,
        /// The image, or a directory of a mount of it
        image: PathBuf,
        /// The snapshot
        name: String,
    },
    /// Give snapshots up, and back to the image what they alone use
    ///
    /// None is dropped unless there are all of them, and none is in use below .betr/snapshots of a mount. A drop that is interrupted goes on with the next command that changes snapshots.
    Drop {
        #[command(flatten)]
        quiet: Quiet,
        /// The image, or a directory of a mount of it
        image: PathBuf,
        /// The snapshots
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Drop all snapshots but those that a rule keeps
    ///
    /// A snapshot stays if at least one of the --keep options keeps it. They work as those of 'restic forget': hours, days, weeks (as of
    /// ISO 8601), months and years are those of UTC, one without a snapshot is not counted, and while a rule finds fewer than N of them it
    /// keeps the oldest snapshot, too. --keep-within counts from the newest snapshot that is not in the future. What 'betr snapshot keep'
    /// has marked is counted as the others are, and never dropped.
    Prune(#[command(flatten)] prune::Args),
}

#[derive(clap::Args, Debug)]
struct Quiet {
    /// Print nothing on standard output
    #[arg(short, long)]
    quiet: bool,
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    match &args.verb {
        Verb::Create { quiet, image, name } => {
            ask(image, &Request::Create(name.clone()))?;
            tell(image, quiet, &format!("snapshot '{}' taken", shown(name)), io)
        }
        Verb::Rename { quiet, image, name, new } => {
            ask(image, &Request::Rename(name.clone(), new.clone()))?;
            tell(image, quiet, &format!("snapshot '{}' is '{}' now", shown(name), shown(new)), io)
        }
        Verb::Keep { quiet, image, name } => {
            ask(image, &Request::Keep(name.clone(), true))?;
            tell(image, quiet, &format!("snapshot '{}' is kept", shown(name)), io)
        }
        Verb::Release { quiet, image, name } => {
            ask(image, &Request::Keep(name.clone(), false))?;
            tell(image, quiet, &format!("snapshot '{}' is not kept any more", shown(name)), io)
        }
        Verb::Rollback { quiet, drop_younger, image, name } => {
            let answer = ask(image, &Request::RollBack(name.clone(), *drop_younger))?;
            let dropped = answer["dropped"].as_array().into_iter().flatten();
            let dropped: Vec<String> =
                dropped.filter_map(|name| Some(format!("'{}'", shown(name.as_str()?)))).collect();
            let dropped = match &dropped[..] {
                [] => String::new(),
                all => format!("; dropped {}", all.join(", ")),
            };
            let text = format!("is now what it was when '{}' was taken{dropped}", shown(name));
            tell(image, quiet, &text, io)
        }
        Verb::Drop { quiet, image, names } => {
            let answer = ask(image, &Request::Drop(names.clone()))?;
            let names: Vec<String> =
                names.iter().map(|name| format!("'{}'", shown(name))).collect();
            let freed = bytes(&answer, "freed_bytes");
            tell(image, quiet, &format!("dropped {}, {freed} free", names.join(", ")), io)
        }
        Verb::List { json, image } => list(image, *json, io),
        Verb::Show { json, image, name } => show_one(image, name, *json, io),
        Verb::Prune(args) => prune::run(args, io),
    }
}

fn shown(name: &str) -> String {
    show::bytes(name.as_bytes())
}

fn bytes(value: &Value, field: &str) -> String {
    human(value[field].as_u64().unwrap_or(0))
}

fn tell(path: &Path, quiet: &Quiet, text: &str, io: &mut Io) -> Result<Exit, Failure> {
    if !quiet.quiet {
        writeln!(io.out, "{}: {text}", show::path(path))?;
    }
    Ok(Exit::DONE)
}

/// Carries out a request: through the server of a mount, or on the image itself.
fn ask(path: &Path, request: &Request) -> Result<Value, Failure> {
    if path.is_dir() {
        // Changes that a rollback discards need not be written first.
        let is_written = !matches!(request, Request::RollBack(..));
        return server::ask(path, &request.value(), is_written);
    }
    let (access, mode) = match request.only_reads() {
        true => (Access::Read, Mode::Checkpoint),
        false => (Access::Write, Mode::ReadWrite),
    };
    let device: Arc<dyn Device> = image::open(path, access)?.device();
    let now = clock()?();
    let options = OpenOptions { content: None, punch: true, ..OpenOptions::new(mode, nonces()?) };
    let answer = Volume::open(device.clone(), options).and_then(|(mut volume, _)| {
        volume.note_time(now);
        let answer = request.run_on(&mut volume)?;
        if mode == Mode::ReadWrite {
            // Continues an interrupted drop, unless damage prevents that; `betr fsck` reports it then.
            while volume.can_drop() {
                let dropped = volume.drop_some();
                if volume.has_failed() {
                    dropped?;
                }
            }
            // Two checkpoints free the blocks that were given up, so that the image file no longer contains them. They do
            // nothing else, so that a drop frees exactly what `show` has said.
            for _ in 0..2 {
                if volume.freed_soon_blocks() > 0 {
                    volume.checkpoint_with(Pruned::None)?;
                }
            }
        }
        Ok(answer)
    });
    answer.map_err(|error| failure(path, Some(&device), &error))
}

fn taken(hold: &Value) -> String {
    let nanos = hold["nanoseconds"].as_u64().unwrap_or(0);
    time::format_utc(hold["seconds"].as_i64().unwrap_or(0), nanos as u32)
}

fn list(path: &Path, as_json: bool, io: &mut Io) -> Result<Exit, Failure> {
    let answer = ask(path, &Request::List)?;
    if as_json {
        io.json("betr.snapshots", 1, answer)?;
        return Ok(Exit::DONE);
    }
    for hold in answer["snapshots"].as_array().into_iter().flatten() {
        let kept = if hold["kept"] == true { "  kept" } else { "" };
        writeln!(io.out, "{}{kept}", row(hold))?;
    }
    Ok(Exit::DONE)
}

/// The line of a listing for a snapshot.
fn row(hold: &Value) -> String {
    let (epoch, name) = (hold["epoch"].as_u64().unwrap_or(0), hold["name"].as_str().unwrap_or(""));
    let (at, refers, epoch) = (taken(hold), bytes(hold, "refers_bytes"), format!("e:{epoch}"));
    format!("{at}  {epoch:>8}  {refers:>10}  {}", shown(name))
}

fn show_one(path: &Path, name: &str, as_json: bool, io: &mut Io) -> Result<Exit, Failure> {
    let hold = ask(path, &Request::Show(name.to_owned()))?;
    if as_json {
        io.json("betr.snapshot", 1, hold)?;
        return Ok(Exit::DONE);
    }
    let number = |field: &str| hold[field].as_u64().unwrap_or(0);
    let kept = if hold["kept"] == true { "yes, pruning leaves it" } else { "no" };
    writeln!(io.out, " Snapshot: {}", shown(name))?;
    writeln!(io.out, "    Taken: {}, epoch {}", taken(&hold), number("epoch"))?;
    writeln!(io.out, "     Kept: {kept}")?;
    writeln!(io.out, "Refers to: {} in {} nodes", bytes(&hold, "refers_bytes"), number("nodes"))?;
    writeln!(io.out, "    Frees: {} if it is dropped", bytes(&hold, "frees_bytes"))?;
    let root = hold["root"].as_str().unwrap_or("");
    writeln!(io.out, "     Root: {} at block {}", shown(root), number("root_block"))?;
    Ok(Exit::DONE)
}
