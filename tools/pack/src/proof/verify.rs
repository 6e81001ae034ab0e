//! `betr verify`: verifies an image against a root hash, including all file contents.

use betr_cli::progress::CheckMeter;
use betr_cli::view::ImageArgs;
use betr_cli::volume::open_view;
use betr_cli::{Exit, Failure, Io, show};
use betr_core::check::{CheckOptions, Severity, check};
use betr_core::disk::Disk;
use betr_core::ids::Hash;

use crate::proof::{EXIT_CODES, checkpoint, parse_hash};

/// Verify that an image has a root hash, and everything that it stands for
///
/// The root hash, which 'betr info' prints, stands for all names, attributes and contents of the last checkpoint of an image.
/// It is compared with that of the image, and then all hashes are computed afresh, down to the contents of files, as 'betr fsck
/// -fn --data' does. What is only in the log has no part in it.
#[derive(clap::Args, Debug)]
#[command(after_help = EXIT_CODES.to_string())]
pub struct Args {
    /// The root hash, from a trusted source
    #[arg(long, value_name = "HASH", value_parser = parse_hash)]
    root: Hash,
    #[command(flatten)]
    image: ImageArgs,
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let path = args.image.path();
    let name = show::path(path);
    let device = open_view(args.image.view())?;
    let superblock = checkpoint(&Disk::new(device.clone()), path, "verify", io)?;
    let (root, epoch) = (superblock.table.page.hash, superblock.birth.epoch.0);
    if root != args.root {
        return Err(Failure::failed(format!(
            "{name}: it is another image, or another state of it: expected root {}, found {root} in epoch {epoch}",
            args.root
        )));
    }
    let report = check(&device, CheckOptions::ALL, &mut CheckMeter::new(true, false));
    let is_bad = |severity| severity > Severity::Note;
    let mut bad = report.findings.iter().filter(|finding| is_bad(finding.code.severity()));
    if let Some(first) = bad.next() {
        return Err(Failure::damaged(format!(
            "{name}: the root is {root}, but not all of it verifies: {} problems, the first at {}: {}\n\
             Run 'betr fsck -fn --data {name}' to see all damage.",
            bad.count() + 1,
            first.place,
            first.detail
        )));
    }
    let counts = report.counts;
    writeln!(
        io.out,
        "{name}: root {root} in epoch {epoch}: {} inodes and {} blocks of files verify",
        counts.inodes, counts.file_blocks
    )?;
    Ok(Exit::DONE)
}
