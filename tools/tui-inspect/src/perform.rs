//! Carries out effects in other threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use betr_cli::{Io, JsonList};
use serde_json::json;

use crate::image::Image;
use crate::model::{Effect, Msg, Wrote};
use crate::query::{Filtered, Query, find, run, write_overlay};
use crate::sheet::Sheet;
use crate::spot::Spot;

/// The message after a panic: a bug of betr that costs one answer, not the session.
const MISTAKE: &str = "this is a mistake of betr: please report it, with the image if you can";

/// Carries out an effect; returns the resulting event.
pub(crate) fn perform(effect: Effect) -> Option<Msg> {
    match effect {
        Effect::Ask { generation, query, image, work } => {
            Some(Msg::Answer(generation, guarded(|| run(&query, &image, &work))))
        }
        Effect::Find { generation, sheet, text, from, back, work } => {
            let found = guarded(|| Ok(find(&sheet, &text, from, back, &work)));
            Some(Msg::Found(generation, found))
        }
        Effect::Filter { generation, sheet, text, work } => {
            let filtered = guarded(|| Ok(Arc::new(Filtered::of(&sheet, &text, &work))));
            Some(Msg::Filtered(generation, text, filtered))
        }
        Effect::Open { generation, source, moment, work } => {
            let open = || Image::open(source, moment, &work).map_err(|failure| failure.message);
            Some(Msg::Opened(generation, guarded(open).map(Arc::new)))
        }
        Effect::Save { path, query, sheet, spot } => {
            Some(Msg::Wrote(Wrote::Json, guarded(|| save(path, &query, &sheet, &spot))))
        }
        Effect::WriteOverlay { planned, path } => {
            let wrote = guarded(|| write_overlay(&planned, &path));
            Some(Msg::Wrote(Wrote::Overlay, wrote.map(|()| path)))
        }
        Effect::Copy(_) | Effect::Quit => None,
    }
}

fn guarded<T>(what: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(what)).unwrap_or_else(|_| Err(MISTAKE.into()))
}

/// Saves the content of a pane as JSON to a path that must not exist.
fn save(path: PathBuf, query: &Query, sheet: &Sheet, spot: &Spot) -> Result<PathBuf, String> {
    let name = betr_cli::show::path(&path);
    let failed = |error: std::io::Error| format!("{name}: {error}");
    let new = betr_cli::image::create_new(&path)
        .map_err(|error| betr_cli::Failure::from(error).message)?;
    let mut file = std::io::BufWriter::new(&*new.file);
    let mut nothing = std::io::sink();
    let mut io = Io::plain(&mut file, &mut nothing);
    let notes: Vec<&str> = sheet.notes.iter().map(|note| note.text.as_str()).collect();
    let fields = json!({ "view": query.title(), "address": spot.to_string(), "title": sheet.title, "notes": notes });
    let mut list = JsonList::with("betr.inspect", 1, fields, "rows");
    for at in 0..sheet.len() {
        list.push(&mut io, &sheet.object(at)).map_err(failed)?;
    }
    list.end(&mut io).map_err(failed)?;
    std::io::Write::flush(&mut file).map_err(failed)?;
    drop(file);
    new.commit().map_err(|error| betr_cli::Failure::from(error).message)?;
    Ok(path)
}
