//! A preview of the repair: it is made on a view, checked again, and listed as changes. The image is never written. The
//! plan can be saved to a file and applied as an overlay.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use betr_cli::scratch;
use betr_cli::trial::Trial;
use betr_cli::volume::{clock_now, nonces};
use betr_core::address::Address;
use betr_core::check::{CheckOptions, Repairable};
use betr_core::format::Magic;
use betr_core::mend::MissingPart;
use betr_core::text::printable;

use super::{range, text};
use crate::image::Image;
use crate::sheet::{Cell, Role, Row, Sheet, column, rest};
use crate::spot::Spot;
use crate::words;
use crate::work::Work;

/// The most changed blocks that are listed.
const BLOCKS_MAX: u64 = 10_000;
/// The most losses that are listed.
const LOSSES_MAX: usize = 10_000;

/// A planned repair, in an unnamed temporary file.
pub(crate) struct Planned {
    file: Arc<File>,
}

/// Plans the repair of everything that the check found.
pub(super) fn preview(image: &Image, work: &Arc<Work>) -> Result<(Planned, Sheet), String> {
    let report = image.report.lock().clone().ok_or("nothing has been checked yet")?;
    match report.repairable() {
        Repairable::Nothing => return Err("there is nothing to repair".into()),
        Repairable::No => {
            return Err(
                "not all of that can be repaired; betr salvage copies out what is left".into()
            );
        }
        Repairable::Safely | Repairable::WithLoss => {}
    }
    let scratch = || scratch::for_image(image.source.path()).map_err(|failure| failure.message);
    let now = (clock_now(), nonces().map_err(|failure| failure.message)?);
    let trial = Trial::of(&image.raw(work), &report, CheckOptions::default(), now, scratch()?);
    let trial = trial.map_err(text)?;
    let (done, again) = (&trial.done, &trial.after);
    if work.is_cancelled() {
        return Err("given up".into());
    }
    if let Some(worse) = trial.worse() {
        return Err(format!("the repair would leave {worse}: it is not offered"));
    }
    let kept = scratch()?;
    let file = kept.file().clone();
    if !trial.write(&file).map_err(text)? {
        return Err("the repair would change nothing".into());
    }
    let plan = betr_cli::plan::of_file(file.clone(), image.source.path())
        .map_err(|failure| failure.message)?;
    let mut rows = Vec::new();
    let mut put = |role, mark: &str, what: String, spot: Option<Spot>| {
        rows.push(Row::of(vec![Cell::new(role, mark), Cell::new(role, what)]).to(spot));
    };
    let left = again.findings.len();
    put(
        Role::Strong,
        "=",
        format!("{} findings before, {left} after", report.findings.len()),
        None,
    );
    if done.replayed > 0 {
        put(
            Role::Good,
            "+",
            format!("{} log records are made durable", words::number(done.replayed)),
            None,
        );
    }
    if done.slots_mended > 0 {
        put(
            Role::Good,
            "+",
            format!("{} superblock slots are written afresh", done.slots_mended),
            None,
        );
    }
    if let Some(mended) = &done.mended {
        for missing in mended.missing.iter().take(LOSSES_MAX) {
            let path = Address::Path(missing.path.clone());
            let part = match missing.what {
                MissingPart::Bytes { first, last } => format!("bytes {first} to {last}"),
                MissingPart::Entries => "entries, with what was below them".into(),
                MissingPart::Attributes => "owner, permissions, times and attributes".into(),
            };
            let what = format!("LOST  {}: {part}", printable(&missing.path));
            put(Role::Bad, "-", what, Some(Spot::At(path)));
        }
        for loss in mended.losses.iter().take(LOSSES_MAX) {
            let pending = if loss.pending { "pending messages for " } else { "" };
            let what = format!(
                "LOST  {pending}{} index {}: {}",
                loss.tree,
                range(loss.tree, &loss.keys),
                loss.why
            );
            put(
                Role::Bad,
                "-",
                what,
                Some(Spot::At(Address::Key(loss.tree, loss.keys.lo.clone()))),
            );
        }
        if mended.missing.is_empty() && mended.losses.is_empty() {
            put(Role::Good, "=", "nothing is lost".into(), None);
        }
    } else {
        put(Role::Good, "=", "nothing is lost".into(), None);
    }
    for number in 0..plan.header().changes.min(BLOCKS_MAX) {
        let change = plan.change(number).map_err(text)?;
        let name = |bytes: &[u8]| {
            Magic::of(bytes).map_or("bytes".to_owned(), |magic| format!("{magic:?}"))
        };
        let (old, new) = (name(&change.old[..]), name(&change.new[..]));
        let differs =
            change.old.iter().zip(change.new.iter()).filter(|(old, new)| old != new).count();
        let byte = change.block.byte();
        let what =
            format!("b:{byte:#x}  {old} to {new}, {differs} bytes, in step {}", change.group);
        put(Role::Plain, "~", what, Some(Spot::byte(byte)));
    }
    let title = format!("repair: {}", betr_cli::plan::extent_of(&plan));
    let sheet = Sheet::new(title, vec![column("", 1), rest("what it does")], rows).note(
        Role::Warn,
        "w writes it to an overlay file and looks through that; the image stays as it is",
    );
    Ok((Planned { file }, sheet))
}

/// Saves a plan to a path that must not exist.
pub(crate) fn write_overlay(planned: &Planned, path: &Path) -> Result<(), String> {
    let new = betr_cli::plan::create(path).map_err(|failure| failure.message)?;
    let failed = |error: io::Error| format!("{}: {error}", betr_cli::show::path(path));
    let mut from = &*planned.file;
    io::Seek::rewind(&mut from).map_err(failed)?;
    io::copy(&mut from, &mut &*new.file).map_err(failed)?;
    new.commit().map_err(|error| betr_cli::Failure::from(error).message)
}
