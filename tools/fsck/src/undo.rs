//! `betr undo`: undoes a repair.

use std::path::{Path, PathBuf};

use betr_cli::image::Access;
use betr_cli::plan::{self as sidecar, extent_of, of_file, refused};
use betr_cli::volume::open_device;
use betr_cli::{Exit, Failure, Io, show};
use betr_core::format::PlanKind;
use betr_offline::plan::{Plan, Standing, apply};
use serde_json::json;

/// Take a repair of an image back
///
/// The file is one that fsck --undo has kept, or the plan of fsck --overlay itself. Then every block that the repair has
/// changed is as it was before. Nothing else may have changed the image since. A power cut leaves it repaired,
/// or as it was before, or on the way, which the same command finishes.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The image
    image: PathBuf,
    /// What was kept of the repair
    file: PathBuf,
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let (path, file) = (&args.image, &args.file);
    let plan = sidecar::open(file)?;
    let plan = if plan.header().kind == PlanKind::Undo { plan } else { inverse(&plan, file)? };
    let device = open_device(path, Access::Write)?;
    let standing = apply(&plan, &*device).map_err(|error| refused(path, file, &error))?;
    let (name, extent) = (show::path(path), extent_of(&plan));
    if args.json {
        let value = json!({
            "image": name,
            "plan": show::path(file),
            "found": found(standing),
            "blocks": plan.blocks(),
            "groups": plan.header().groups,
        });
        io.json("betr.undo", 1, value)?;
        return Ok(Exit::DONE);
    }
    match standing {
        Standing::Untouched => {}
        Standing::Half { next } => writeln!(io.out, "{}", goes_on(&name, &plan, next))?,
        Standing::Whole => {
            writeln!(io.out, "{name}: nothing to do: {extent} are as before the repair already")?;
            return Ok(Exit::DONE);
        }
    }
    writeln!(io.out, "{name}: undone: {extent} are as before the repair")?;
    Ok(Exit::DONE)
}

/// The inverse of a plan, in a temporary file without a name.
fn inverse(plan: &Plan, path: &Path) -> Result<Plan, Failure> {
    let failed = |error: std::io::Error| {
        Failure::failed(format!("a temporary file cannot be made: {error}"))
    };
    let file = tempfile::tempfile().map_err(failed)?;
    let written = plan.write_inverse(&file);
    written.map_err(|error| Failure::failed(format!("{}: {error}", show::path(path))))?;
    of_file(file, path)
}

/// The state of the image before, in one word.
pub(crate) fn found(standing: Standing) -> &'static str {
    match standing {
        Standing::Untouched => "untouched",
        Standing::Half { .. } => "half",
        Standing::Whole => "whole",
    }
}

/// The message that an interrupted apply continues.
pub(crate) fn goes_on(name: &str, plan: &Plan, next: u32) -> String {
    let groups = plan.header().groups;
    format!("{name}: it was half applied: goes on with group {next} of {groups}")
}
