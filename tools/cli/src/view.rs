//! Which image a tool looks at, and how: as it is, or with a plan laid over it.
//!
//! Every tool that only reads takes its image through here, so all of them take `--overlay`.

use std::path::{Path, PathBuf};

/// The image, and how to look at it: for tools that only read.
#[derive(clap::Args, Clone, Debug)]
pub struct ImageArgs {
    /// Show the image as the repair in this file leaves it; see betr fsck --overlay
    #[arg(long, value_name = "PLAN", global = true)]
    overlay: Option<PathBuf>,
    /// The image
    image: PathBuf,
}

/// An image, and what is laid over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View<'a> {
    /// The image.
    pub image: &'a Path,
    /// The plan.
    pub overlay: Option<&'a Path>,
}

impl ImageArgs {
    /// What is looked at.
    pub fn view(&self) -> View<'_> {
        View { image: &self.image, overlay: self.overlay.as_deref() }
    }

    /// The image's path.
    pub fn path(&self) -> &Path {
        &self.image
    }
}

impl<'a> From<&'a Path> for View<'a> {
    fn from(image: &'a Path) -> View<'a> {
        View { image, overlay: None }
    }
}
