//! `--apply`: writes a plan to the image for which it was made.

use std::path::Path;
use std::sync::Arc;

use betr_cli::image::Access;
use betr_cli::plan::{self as sidecar, refused};
use betr_cli::trial::Explanation;
use betr_cli::volume::{failure, open_device};
use betr_cli::{Exit, Failure, Io, show as text};
use betr_core::Error;
use betr_core::check::check;
use betr_core::device::Device;
use betr_core::format::PlanKind;
use betr_offline::plan::{Plan, Standing, apply, locate};

use crate::plan;
use crate::progress::Meter;
use crate::show::Applied;
use crate::{Args, outcome, show};

pub(crate) fn run(args: &Args, path: &Path, file: &Path, io: &mut Io) -> Result<Exit, Failure> {
    let plan = sidecar::open(file)?;
    if plan.header().kind == PlanKind::Undo {
        let (image, file) = (text::path(path), text::path(file));
        let text = format!("{file} takes a repair back: use 'betr undo {image} {file}'");
        return Err(Failure::failed(text));
    }
    if args.plan {
        let device = open_device(path, Access::Read)?;
        let standing = locate(&plan, &*device).map_err(|error| refused(path, file, &error))?;
        let explanation = Explanation::in_words(plan.explanation());
        plan::print(path, Some((&plan, standing)), &explanation, io)?;
        return Ok(Exit::DONE);
    }
    let device = open_device(path, Access::Write)?;
    let standing = apply_with_undo(path, &device, &plan, Some(file), args.undo.as_deref())?;
    let mut meter = Meter::new(args.progress, path, !args.json)?;
    let report = check(&device, args.options(), &mut meter);
    drop(meter);
    let undo = args.undo.as_deref().filter(|_| standing != Standing::Whole);
    let applied = Applied { file, plan: &plan, standing, undo };
    show::applied(args.verbose, args.json, path, &report, applied, io)?;
    if let Some(file) = args.undo.as_ref().filter(|_| undo.is_none()) {
        io.note(&format!("Nothing was changed: {} was not written.", text::path(file)))?;
    }
    let corrected = standing != Standing::Whole && plan.header().corrects;
    Ok(outcome(&report) | if corrected { Exit::CORRECTED } else { Exit::DONE })
}

/// Applies a plan, after its inverse was written to `undo` if requested. `file` is the path of the plan itself.
pub(crate) fn apply_with_undo(
    path: &Path,
    device: &Arc<dyn Device>,
    plan: &Plan,
    file: Option<&Path>,
    undo: Option<&Path>,
) -> Result<Standing, Failure> {
    let shown = file.unwrap_or(Path::new("the repair"));
    let standing = locate(plan, &**device).map_err(|error| refused(path, shown, &error))?;
    if standing == Standing::Whole {
        return Ok(standing);
    }
    if let Some(undo) = undo {
        sidecar::keep_inverse(plan, path, undo)?;
    }
    apply(plan, &**device).map_err(|error| half_done(path, file, undo, &error))
}

/// The failure after which the image may be changed in part.
fn half_done(path: &Path, file: Option<&Path>, undo: Option<&Path>, error: &Error) -> Failure {
    let image = text::path(path);
    let mut failure = failure(path, None, error);
    failure.message += "\nThe repair may be there in part: ";
    failure.message += &match file {
        Some(file) => {
            format!("'betr fsck --apply {} {image}' goes on with it", text::path(file))
        }
        None => format!("'betr fsck -y {image}' makes it anew"),
    };
    if let Some(undo) = undo {
        let undo = text::path(undo);
        failure.message += &format!(", 'betr undo {image} {undo}' takes it back");
    }
    failure.message += ".";
    failure
}
