//! The binary: dispatches to the tools, by subcommand or by the name of the program.

mod completions;
mod demo;
mod dev;
mod install;
mod man;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use betr_cli::codes::GENERAL;
use betr_cli::{Exit, ExitCodes, Failure, Io};
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

const EXIT_CODES: ExitCodes = ExitCodes {
    note: "mkfs ends with 0 or 1, fsck and probe with the codes of fsck(8) and blkid(8). If the reader closes \
           the output early, data (cat, export, pack, prove) is a failure, and a listing is none.",
    ..GENERAL
};

/// Other names of the binary, the tool for each, and an extra argument for it.
const NAMES: [(&str, &str, Option<&str>); 4] = [
    ("mkfs.betr", "mkfs", None),
    ("fsck.betr", "fsck", None),
    ("mount.betr", "mount", Some("--helper")),
    ("mount.fuse.betr", "mount", Some("--helper")),
];

/// A file system in an image, built on Bε-trees, and its tools
#[derive(Parser, Debug)]
#[command(name = "betr", version, propagate_version = true)]
#[command(max_term_width = 100, after_help = EXIT_CODES.to_string())]
struct Betr {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Subcommand, Debug)]
enum Tool {
    Mkfs(betr_mkfs::Args),
    Fsck(betr_fsck::Args),
    Undo(betr_fsck::undo::Args),
    Salvage(betr_fsck::salvage::Args),
    Mount(betr_mount::Args),
    Status(betr_mount::status::Args),
    #[command(flatten)]
    Files(betr_files::Verb),
    Shell(betr_files::shell::Args),
    Info(betr_volume::info::Args),
    Probe(betr_volume::probe::Args),
    Tune(betr_volume::tune::Args),
    Resize(betr_volume::resize::Args),
    Snapshot(betr_volume::snapshot::Args),
    Send(betr_volume::transfer::send::Args),
    Receive(betr_volume::transfer::receive::Args),
    Dump(betr_dump::Args),
    Diff(betr_dump::diff::Args),
    Explain(betr_dump::explain::Args),
    Replay(betr_replay::Args),
    Inspect(betr_tui_inspect::Args),
    Pack(betr_pack::Args),
    Unpack(betr_pack::unpack::Args),
    Verify(betr_pack::proof::verify::Args),
    Prove(betr_pack::proof::prove::Args),
    VerifyProof(betr_pack::proof::verify_proof::Args),
    Demo(demo::Args),
    Install(install::Args),
    Man(man::Args),
    Completions(completions::Args),
    #[command(subcommand)]
    Dev(dev::Dev),
}

impl Tool {
    fn run(&self, io: &mut Io) -> Result<Exit, Failure> {
        match self {
            Tool::Mkfs(args) => betr_mkfs::run(args, io),
            Tool::Fsck(args) => betr_fsck::run(args, io),
            Tool::Undo(args) => betr_fsck::undo::run(args, io),
            Tool::Salvage(args) => betr_fsck::salvage::run(args, io),
            Tool::Mount(args) => betr_mount::run(args, io),
            Tool::Status(args) => betr_mount::status::run(args, io),
            Tool::Files(verb) => verb.run(io),
            Tool::Shell(args) => args.run(io),
            Tool::Info(args) => betr_volume::info::run(args, io),
            Tool::Probe(args) => betr_volume::probe::run(args, io),
            Tool::Tune(args) => betr_volume::tune::run(args, io),
            Tool::Resize(args) => betr_volume::resize::run(args, io),
            Tool::Snapshot(args) => betr_volume::snapshot::run(args, io),
            Tool::Send(args) => betr_volume::transfer::send::run(args, io),
            Tool::Receive(args) => betr_volume::transfer::receive::run(args, io),
            Tool::Dump(args) => betr_dump::run(args, io),
            Tool::Diff(args) => betr_dump::diff::run(args, io),
            Tool::Explain(args) => betr_dump::explain::run(args, io),
            Tool::Replay(args) => betr_replay::run(args, io),
            Tool::Inspect(args) => betr_tui_inspect::run(args, io),
            Tool::Pack(args) => betr_pack::run(args, io),
            Tool::Unpack(args) => betr_pack::unpack::run(args, io),
            Tool::Verify(args) => betr_pack::proof::verify::run(args, io),
            Tool::Prove(args) => betr_pack::proof::prove::run(args, io),
            Tool::VerifyProof(args) => betr_pack::proof::verify_proof::run(args, io),
            Tool::Demo(args) => demo::run(args, io, command),
            Tool::Install(args) => install::run(args, io),
            Tool::Man(args) => man::run(args, io),
            Tool::Completions(args) => completions::run(args, io),
            Tool::Dev(dev) => dev.run(io),
        }
    }
}

/// Runs one command line, given as words without the program's name.
fn command(words: &[&str], io: &mut Io) -> Result<Exit, Failure> {
    let betr = Betr::try_parse_from(["betr"].iter().chain(words))
        .map_err(|error| Failure::usage(error.to_string()))?;
    betr.tool.run(io)
}

/// Exit codes that the dispatcher uses for a tool.
struct Codes {
    /// The command line is wrong.
    usage: Exit,
    /// A failure without a specific code.
    failed: Exit,
    /// The reader closed a listing before the tool ended.
    unread: Exit,
}

/// The exit codes that callers of a tool expect.
fn codes(tool: Option<&OsString>) -> Codes {
    match tool.and_then(|tool| tool.to_str()) {
        Some("fsck") => {
            Codes { usage: Exit::FSCK_USAGE, failed: Exit::OPERATIONAL, unread: Exit::OPERATIONAL }
        }
        Some("mkfs") => Codes { usage: Exit::FAILED, failed: Exit::FAILED, unread: Exit::DONE },
        Some("diff") => Codes { usage: Exit::USAGE, failed: Exit::USAGE, unread: Exit::FAILED },
        Some("mount") => {
            Codes { usage: Exit::MOUNT_USAGE, failed: Exit::MOUNT_FAILED, unread: Exit::DONE }
        }
        Some("probe") => {
            Codes { usage: Exit::PROBE_USAGE, failed: Exit::PROBE_USAGE, unread: Exit::DONE }
        }
        _ => Codes { usage: Exit::USAGE, failed: Exit::FAILED, unread: Exit::DONE },
    }
}

fn main() -> ExitCode {
    let args = arguments(std::env::args_os().collect());
    let codes = codes(args.get(1));
    // A panic is a bug, never caused by the image; its exit code must not look like the bits of fsck.
    match std::panic::catch_unwind(|| betr(&args, &codes)) {
        Ok(exit) => exit.into(),
        Err(_) => codes.failed.into(),
    }
}

fn betr(args: &[OsString], codes: &Codes) -> Exit {
    let betr = match Betr::try_parse_from(args) {
        Ok(betr) => betr,
        Err(error) => {
            // A closed pipe is no failure for help.
            let _ = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::DONE,
                _ => codes.usage,
            };
        }
    };
    // The result of a tool counts even if its output was not read to the end.
    let mut ended = codes.unread;
    match Io::process(|io| betr.tool.run(io).inspect(|exit| ended = *exit)) {
        Ok(exit) => exit,
        // Truncated data is a failure, even if the tool itself has succeeded.
        Err(failure) if failure.cuts_data() && ended == Exit::DONE => codes.failed,
        Err(failure) if failure.is_broken_pipe() => ended,
        Err(failure) => {
            eprintln!("betr: {failure}");
            // A failed write of output has the general code 1, which fsck(8) reads as "corrected".
            if failure.exit == Exit::FAILED { codes.failed } else { failure.exit }
        }
    }
}

/// Replaces another name of the program by `betr` and the subcommand.
fn arguments(mut args: Vec<OsString>) -> Vec<OsString> {
    let name = args.first().map(Path::new).and_then(Path::file_name).and_then(OsStr::to_str);
    if let Some((_, tool, word)) = NAMES.iter().find(|(other, ..)| name == Some(*other)) {
        let words = [Some("betr"), Some(*tool), *word];
        args.splice(..1, words.into_iter().flatten().map(OsString::from));
    }
    args
}
