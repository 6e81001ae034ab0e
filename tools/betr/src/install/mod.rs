//! `betr install`: installs the binary, links with its other names, and files for the system's programs.
//!
//! All paths are examined before the first file is written: a file that betr did not install is an error, unless it
//! is to be replaced. Each file is replaced atomically. A second run changes nothing.

mod place;
mod plan;
mod record;

use std::path::{Path, PathBuf};

use betr_cli::{Exit, Failure, Io, json, show};
use serde_json::{Value, json};

use place::{State, put, state_of};
use plan::{Item, What, items};
use record::{RECORD, Record};

/// Install this program
///
/// Puts the program into bin; links into sbin, by which mkfs(8) and fsck(8) find it; and below share and lib the
/// manual, completions for bash, zsh and fish, a magic file for "file -m", and a rule for udev. What is
/// installed is written down in share/betr/installed, so that later versions know what they may replace;
/// "sha256sum -c" reads it.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Below this directory, such as /usr/local
    #[arg(long, value_name = "DIR")]
    prefix: PathBuf,
    /// Take this directory for the root of the system, as builders of packages do
    #[arg(long, value_name = "DIR")]
    destdir: Option<PathBuf>,
    /// Only say what would be done
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print nothing on standard output
    #[arg(short, long)]
    quiet: bool,
    /// Replace files that are not from betr, too
    #[arg(short, long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let prefix = absolute(&args.prefix)?;
    let root = match &args.destdir {
        None => prefix.clone(),
        Some(destdir) => absolute(destdir)?.join(prefix.strip_prefix("/").unwrap_or(&prefix)),
    };
    let items = items(&prefix)?;
    let record = Record::read(&root.join(RECORD));
    let states = examine(args, &root, &items, &record)?;
    if !args.dry_run {
        let new = Record::of(&items);
        for (item, state) in items.iter().zip(&states) {
            if *state != State::Same {
                place(&root.join(&item.path), &item.what)?;
            }
        }
        if new != record {
            place(&root.join(RECORD), &What::file(new.text().into_bytes()))?;
        }
    }
    report(args, &root, &items, &states, io)?;
    Ok(Exit::DONE)
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path)
        .map_err(|error| Failure::usage(format!("{}: {error}", show::path(path))))
}

/// Examines the path of each item. Fails with a list of all files that must not be replaced.
fn examine(
    args: &Args,
    root: &Path,
    items: &[Item],
    record: &Record,
) -> Result<Vec<State>, Failure> {
    let mut states = Vec::new();
    let mut refused = Vec::new();
    for item in items {
        let path = root.join(&item.path);
        let state = state_of(&path, item, record)
            .map_err(|error| Failure::failed(format!("{}: {error}", show::path(&path))))?;
        match state {
            State::Directory => refused.push(format!("{} is a directory", show::path(&path))),
            State::Foreign if !args.force => {
                refused.push(format!("{} is not from betr", show::path(&path)));
            }
            _ => {}
        }
        states.push(state);
    }
    if refused.is_empty() {
        return Ok(states);
    }
    refused
        .push("nothing was installed: move these away, or replace files with --force".to_owned());
    Err(Failure::failed(refused.join("\n")))
}

fn place(path: &Path, what: &What) -> Result<(), Failure> {
    put(path, what).map_err(|error| Failure::failed(format!("{}: {error}", show::path(path))))
}

fn report(
    args: &Args,
    root: &Path,
    items: &[Item],
    states: &[State],
    io: &mut Io,
) -> Result<(), Failure> {
    let all = items.iter().zip(states).map(|(item, state)| {
        let done = match state {
            State::Absent => "installed",
            State::Same => "unchanged",
            State::Own | State::Foreign | State::Directory => "replaced",
        };
        (root.join(&item.path), done)
    });
    if args.json {
        let one = |(path, done): (PathBuf, &str)| {
            let path = json::text(path.as_os_str().as_encoded_bytes(), &show::path(&path));
            json!({ "path": path, "state": done })
        };
        let files: Value = all.map(one).collect();
        return Ok(io.json(
            "betr.install",
            1,
            json!({ "dry_run": args.dry_run, "files": files }),
        )?);
    }
    if args.quiet {
        return Ok(());
    }
    for (path, done) in all {
        let note = if args.dry_run && done != "unchanged" { " (not done: dry run)" } else { "" };
        writeln!(io.out, "{done} {}{note}", show::path(&path))?;
    }
    Ok(())
}
