//! The image that a tool reads: as it is, with a plan applied as an overlay, or at a past moment.
//!
//! The read-only tools that take one image as their argument take it from here, and so accept `--overlay`. `diff`, `send`,
//! `probe`, `snapshot`, `fsck`, `inspect` and `mount` have options of their own.

use std::path::{Path, PathBuf};

use betr_core::volume::Moment;

use crate::moment::parse_moment;

/// The image, and how to look at it: for tools that only read.
#[derive(clap::Args, Clone, Debug)]
pub struct ImageArgs {
    /// Show the image as the repair in this file leaves it; see betr fsck --overlay
    #[arg(long, value_name = "PLAN", global = true)]
    overlay: Option<PathBuf>,
    /// The image
    image: PathBuf,
}

/// The image, and at which moment: for tools that show what was in it.
#[derive(clap::Args, Clone, Debug)]
pub struct PastArgs {
    /// Show the image as it was: at its checkpoint (without the log), now (the default), right after a record of
    /// the log (l:LSN) or a time (t:2026-11-23T10:00:00Z), as a snapshot keeps it (s:NAME), or at an older checkpoint
    /// (e:EPOCH) as far as its blocks have not been written over; see betr replay IMAGE list and betr snapshot list
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment, global = true)]
    as_of: Option<Moment>,
    #[command(flatten)]
    image: ImageArgs,
}

/// An image, its overlay, and the moment to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View<'a> {
    /// The image.
    pub image: &'a Path,
    /// The plan that is applied as an overlay.
    pub overlay: Option<&'a Path>,
    /// The moment; `None` if the tool chooses it.
    pub as_of: Option<Moment>,
}

impl ImageArgs {
    /// The image with its overlay, without a moment.
    pub fn view(&self) -> View<'_> {
        View { image: &self.image, overlay: self.overlay.as_deref(), as_of: None }
    }

    /// The path of the image.
    pub fn path(&self) -> &Path {
        &self.image
    }
}

impl PastArgs {
    /// The image with its overlay and moment.
    pub fn view(&self) -> View<'_> {
        View { as_of: self.as_of.clone(), ..self.image.view() }
    }

    /// The path of the image.
    pub fn path(&self) -> &Path {
        self.image.path()
    }
}

impl<'a> From<&'a Path> for View<'a> {
    fn from(image: &'a Path) -> View<'a> {
        View { image, overlay: None, as_of: None }
    }
}
