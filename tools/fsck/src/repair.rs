//! A repair: made on a view, checked again, written to a plan, and applied.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use betr_cli::image::NewImage;
use betr_cli::trial::{Explanation, Trial};
use betr_cli::volume::{clock_now, failure, nonces};
use betr_cli::{Exit, Failure, Io, show as text};
use betr_core::check::{Repairable, Report};
use betr_core::device::Device;
use betr_offline::device::Scratch;
use betr_offline::plan::{Plan, Standing};

use crate::show::Repaired;
use crate::{Args, apply, outcome, plan, show};

/// Fails early if a file that the repair will create exists already.
pub(crate) fn check_new_files(args: &Args) -> Result<(), Failure> {
    let overlay = args.overlay.as_ref().filter(|_| args.repairs());
    for file in overlay.into_iter().chain(&args.undo) {
        drop(betr_cli::plan::create(file)?);
    }
    Ok(())
}

/// Reports that there is nothing to repair, and that no plan was written.
pub(crate) fn nothing_to_do(
    args: &Args,
    path: &Path,
    report: &Report,
    quick: bool,
    io: &mut Io,
) -> Result<Exit, Failure> {
    match (args.plan, quick) {
        (true, _) => plan::print(path, None, &Explanation::of(report, None), io)?,
        (false, true) => show::one_line(path, report, io, args.json)?,
        (false, false) => show::report(args.verbose, args.json, path, report, None, io)?,
    }
    no_file(args, "There is nothing to repair", io)?;
    Ok(outcome(report))
}

/// Reports that the requested files were not written.
fn no_file(args: &Args, why: &str, io: &mut Io) -> Result<(), Failure> {
    for file in args.overlay.iter().chain(&args.undo) {
        io.note(&format!("{why}: {} was not written.", text::path(file)))?;
    }
    Ok(())
}

/// Repairs the image, or makes a plan for it.
pub(crate) fn mend(
    args: &Args,
    path: &Path,
    device: &Arc<dyn Device>,
    report: &Report,
    io: &mut Io,
) -> Result<Exit, Failure> {
    match report.repairable() {
        Repairable::Safely => {}
        Repairable::WithLoss if !args.preen => {}
        Repairable::WithLoss => {
            let why = "A repair may lose something, which takes -y; nothing was written.";
            return leave(args, path, report, why, io);
        }
        Repairable::Nothing | Repairable::No => {
            let why = "This version cannot repair all of that; nothing was written. \
                       'betr salvage' copies out what is left.";
            return leave(args, path, report, why, io);
        }
    }
    let failed = |error: betr_core::Error| failure(path, None, &error);
    let scratch = scratch(args, path)?;
    let trial = Trial::of(device, report, args.options(), (clock_now(), nonces()?), scratch);
    let trial = trial.map_err(failed)?;
    if let Some(worse) = trial.worse() {
        let why = format!("The repair would leave {worse}; nothing was written.");
        return leave(args, path, report, &why, io);
    }
    let place = Place::new(args, path)?;
    if !trial.write(place.file()).map_err(failed)? {
        return leave(args, path, report, "The repair would change nothing.", io);
    }
    let plan = place.keep(args)?;
    let (done, again) = (&trial.done, &trial.after);
    if !args.plan && !args.json {
        show::before_repair(args.verbose, path, report, done, io)?;
    }
    if args.writes() {
        apply::apply_with_undo(path, device, &plan, None, args.undo.as_deref())?;
    }
    if args.plan {
        plan::print(path, Some((&plan, Standing::Untouched)), &trial.explanation(), io)?;
    } else {
        let repaired = Repaired {
            done,
            again,
            plan: &plan,
            overlay: args.overlay.as_deref(),
            undo: args.undo.as_deref(),
        };
        show::report(args.verbose, args.json, path, report, Some(repaired), io)?;
    }
    if args.plan && args.overlay.is_none() {
        return Ok(outcome(report));
    }
    let corrected = if report.is_clean() { Exit::DONE } else { Exit::CORRECTED };
    Ok(corrected | outcome(again))
}

/// Shows the findings, and the reason why they are not repaired.
fn leave(
    args: &Args,
    path: &Path,
    report: &Report,
    why: &str,
    io: &mut Io,
) -> Result<Exit, Failure> {
    match args.plan {
        true => plan::print(path, None, &Explanation::of(report, None), io)?,
        false => show::report(args.verbose, args.json, path, report, None, io)?,
    }
    if !report.is_clean() {
        io.note(why)?;
    }
    no_file(args, "There is no repair", io)?;
    Ok(outcome(report))
}

/// A scratch file for the trial repair: beside the plan if that is kept.
fn scratch(args: &Args, image: &Path) -> Result<Scratch, Failure> {
    match &args.overlay {
        Some(overlay) => betr_cli::scratch::beside(overlay),
        None => betr_cli::scratch::for_image(image),
    }
}

/// The destination of a plan.
enum Place {
    /// A named file, which appears when the plan is complete.
    Named(NewImage),
    /// A temporary file without a name.
    Nowhere(Scratch),
}

impl Place {
    fn new(args: &Args, image: &Path) -> Result<Place, Failure> {
        match &args.overlay {
            Some(path) => betr_cli::plan::create(path).map(Place::Named),
            None => scratch(args, image).map(Place::Nowhere),
        }
    }

    fn file(&self) -> &Arc<File> {
        match self {
            Place::Named(new) => &new.file,
            Place::Nowhere(scratch) => scratch.file(),
        }
    }

    /// Reads the written plan back, verifies all of it, and gives the file its name.
    fn keep(self, args: &Args) -> Result<Plan, Failure> {
        let path = args.overlay.as_deref().unwrap_or(Path::new("the plan"));
        let plan = betr_cli::plan::of_file(self.file().clone(), path)?;
        if let Place::Named(new) = self {
            new.commit()?;
        }
        Ok(plan)
    }
}
