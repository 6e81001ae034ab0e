//! `-o remount`: changes the kernel's flags of a mount. The server goes on, and its image stays open with the same
//! access.

use std::path::Path;

use betr_cli::image::{MountedAt, what_is_mounted_at};
use betr_cli::{Exit, Failure, show};
use rustix::mount::mount_remount;

use crate::mountpoint::flags;
use crate::options::Options;
use crate::status;

/// Remounts an image with new flags.
pub(crate) fn remount(options: &Options, directory: &Path) -> Result<Exit, Failure> {
    let at = show::path(directory);
    let failed = |what: String| Failure::failed(format!("{at}: {what}"));
    let device = match what_is_mounted_at(directory) {
        Some(MountedAt { device, source, .. }) if source == options.image => device,
        _ => return Err(failed(format!("{} is not mounted here", options.shown()))),
    };
    if !options.read_only && status::is_read_only(device) != Some(false) {
        let text = "the server has the image open for reading only: unmount it, and mount it again";
        return Err(failed(text.into()));
    }
    mount_remount(directory, flags(options), "")
        .map_err(|error| failed(format!("it cannot be remounted: {error}")))?;
    Ok(Exit::DONE)
}
