//! `betr inspect`: a terminal program that shows a Bε-tree file system.
//!
//! `model` holds the state and decides the effects of each event; it neither reads nor writes. `query` runs requests to
//! the core in other threads. `view` draws the model. Answers do not change, so drawing a frame takes only memory and
//! never waits for the device.

mod action;
mod image;
#[doc(hidden)]
pub mod measure;
mod model;
mod perform;
mod query;
mod sheet;
mod spot;
mod still;
mod terminal;
mod tour;
mod view;
mod words;
mod work;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use betr_cli::moment::parse_moment;
use betr_cli::{Exit, Failure, Io};
use betr_core::volume::Moment;

use crate::image::{Image, Source};
use crate::model::{Model, Screen};
use crate::spot::Spot;

/// Look around in an image: nodes and their buffers, the way of a key, zones, space, the log, what a check finds, and the
/// bytes of all of it
#[derive(clap::Args, Debug)]
#[command(after_help = keys())]
pub struct Args {
    /// The image
    #[arg(required_unless_present = "tour")]
    image: Option<PathBuf>,
    /// Begin at this address: n:NODE, /PATH, k#1:HEX, b:BYTE, l:RECORD, z:ZONE, f:CODE.NUMBER (as error messages have it)
    #[arg(long, value_name = "ADDRESS", value_parser = str::parse::<Spot>)]
    at: Option<Spot>,
    /// Begin on this screen
    #[arg(long, value_name = "SCREEN", value_parser = screen)]
    screen: Option<Screen>,
    /// Show the image as it was: checkpoint, now, l:LSN, t:TIME or e:EPOCH; see betr replay IMAGE list
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment)]
    as_of: Option<Moment>,
    /// Show the image as the repair in this file leaves it; see betr fsck --overlay
    #[arg(long, value_name = "PLAN")]
    overlay: Option<PathBuf>,
    /// Print one frame of this size, in columns and lines, as text, and end
    #[arg(long, value_name = "WIDTHxHEIGHT", value_parser = size)]
    screenshot: Option<(u16, u16)>,
    /// Draw with ASCII alone
    #[arg(long)]
    ascii: bool,
    /// Walk through a small image that is made in memory: how messages move, and where they wait
    #[arg(long, conflicts_with_all = ["image", "as_of", "overlay", "at", "screen"])]
    tour: bool,
    /// Begin the tour at this step
    #[arg(long, value_name = "NUMBER", requires = "tour", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=tour::STEPS as i64))]
    step: u8,
}

/// The list of keys, for the manual.
fn keys() -> String {
    let mut text = String::from("Keys:\n");
    for entry in action::ACTIONS {
        text += &format!("  {:<12} {}\n", entry.keys(), entry.help);
    }
    text
}

fn screen(text: &str) -> Result<Screen, String> {
    let found = Screen::ALL.into_iter().find(|screen| screen.name().eq_ignore_ascii_case(text));
    found.ok_or_else(|| {
        let names: Vec<String> =
            Screen::ALL.iter().map(|screen| screen.name().to_lowercase()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

fn size(text: &str) -> Result<(u16, u16), String> {
    const SIZE_MAX: u16 = 1000;
    let parts = text.split_once(['x', 'X']);
    let number = |text: &str| text.parse().ok().filter(|number| (1..=SIZE_MAX).contains(number));
    parts
        .and_then(|(width, height)| Some((number(width)?, number(height)?)))
        .ok_or_else(|| format!("expected columns and lines up to {SIZE_MAX}, as 100x30"))
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let size = args.screenshot.unwrap_or((100, 30));
    if let (Some(spot), Some(screen)) = (&args.at, args.screen)
        && !spot.goes_with(screen)
    {
        let (wanted, own) = (screen.name().to_lowercase(), spot.screen().name().to_lowercase());
        return Err(Failure::usage(format!(
            "{spot} is shown on the screen {own}, and not on {wanted}"
        )));
    }
    let (mut model, effects) = match &args.image {
        None => tour::begin(usize::from(args.step) - 1, size)?,
        Some(path) => {
            let source = Source::File { path: path.clone(), overlay: args.overlay.clone() };
            // A single frame waits for the replay. An interactive session shows the replay as a query that can be given
            // up.
            let at_once = args.as_of.clone().filter(|_| args.screenshot.is_some());
            let image = Arc::new(Image::open(source, at_once.clone(), &Arc::default())?);
            let (mut model, mut effects) = Model::begin(image, args.at.clone(), args.screen, size);
            if at_once.is_none() && args.as_of.is_some() {
                model.open_at(args.as_of.clone(), &mut effects);
            }
            (model, effects)
        }
    };
    model.is_ascii = args.ascii || !speaks_utf8(|name| std::env::var_os(name));
    model.has_color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if args.screenshot.is_some() {
        model.is_ascii = args.ascii;
        still::settle(&mut model, effects);
        io.out.write_all(still::frame(&model).as_bytes())?;
        return Ok(Exit::DONE);
    }
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
    if !io.terminal || is_dumb {
        return Err(Failure::usage(
            "inspect needs a terminal that can be drawn on; --screenshot 100x30 prints one frame",
        ));
    }
    terminal::show(model, effects)
        .map_err(|error| Failure::failed(format!("the terminal: {error}")))?;
    Ok(Exit::DONE)
}

/// Whether the locale says that the terminal shows UTF-8.
fn speaks_utf8(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(variable)
        .find(|value| !value.is_empty());
    let locale = locale.unwrap_or_default().to_string_lossy().to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
