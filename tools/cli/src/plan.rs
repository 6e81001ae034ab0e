//! Repair plans as files of the host: opens, writes and applies them over an image.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use betr_core::Error;
use betr_core::device::Device;
use betr_core::format::PlanHeader;
use betr_core::ids::BLOCK_SIZE;
use betr_offline::plan::{Plan, PlanView};

use crate::image::{self, NewImage};
use crate::{Failure, show};

/// Opens the plan at `path` and verifies all of it.
pub fn open(path: &Path) -> Result<Plan, Failure> {
    let name = show::path(path);
    let expected = "expected a plan, as 'betr fsck --overlay' or '--undo' has written it";
    let host = |error| Failure::failed(format!("{name}: {error}; {expected}"));
    // Reading from a pipe would block.
    if !fs::metadata(path).map_err(host)?.is_file() {
        return Err(Failure::failed(format!("{name} is no file; {expected}")));
    }
    let file = File::open(path).map_err(host)?;
    of_file(file, path)
}

/// Opens the plan in an open file; `path` is its name in errors.
pub fn of_file(file: impl Into<Arc<File>>, path: &Path) -> Result<Plan, Failure> {
    let name = show::path(path);
    let device = image::device_of(file);
    let device = device.map_err(|error| Failure::failed(format!("{name}: {error}")))?;
    Plan::open(device).map_err(|error| {
        Failure::failed(format!(
            "{name}: the plan does not verify: {error}; expected it as 'betr fsck' has written it"
        ))
    })
}

/// Applies the plan at `path` as an overlay on an image, which is then read-only.
pub fn lay_over(
    device: Arc<dyn Device>,
    image: &Path,
    path: &Path,
) -> Result<Arc<dyn Device>, Failure> {
    let view = PlanView::new(device, open(path)?).map_err(|error| refused(image, path, &error))?;
    Ok(Arc::new(view))
}

/// Starts a file at `path`, which must not exist. The file appears when it is committed.
pub fn create(path: &Path) -> Result<NewImage, Failure> {
    Ok(image::create_new(path)?)
}

/// Writes the inverse of a plan to `path`, durably. If `path` exists, it must hold exactly that inverse, so that an
/// interrupted command can be repeated unchanged.
pub fn keep_inverse(plan: &Plan, image: &Path, path: &Path) -> Result<(), Failure> {
    let failed = |error: Error| Failure::failed(format!("{}: {error}", show::path(path)));
    if fs::symlink_metadata(path).is_ok() {
        return match open(path) {
            Ok(there) if plan.is_inverse(&there).map_err(failed)? => Ok(()),
            _ => Err(Failure::failed(format!(
                "{} is there already, and does not undo this: choose another name; nothing was written to {}",
                show::path(path),
                show::path(image)
            ))),
        };
    }
    let new = create(path)?;
    plan.write_inverse(&new.file).map_err(failed)?;
    Ok(new.commit()?)
}

/// The failure for a plan that does not fit an image.
pub fn refused(image: &Path, path: &Path, error: &Error) -> Failure {
    let (image, plan) = (show::path(image), show::path(path));
    let hint = match error {
        Error::OtherImage(_) => {
            "; use the image that it was made for, which nothing else may have changed since"
        }
        _ => "",
    };
    Failure::failed(format!("{image}: {plan}: {error}{hint}"))
}

/// The size of a plan in words: "3 blocks (12 KiB) in 2 groups".
pub fn extent_of(plan: &Plan) -> String {
    let PlanHeader { groups, .. } = plan.header();
    let blocks = plan.blocks();
    let bytes = crate::size::human(blocks * BLOCK_SIZE as u64);
    let plural = |count: u64| if count == 1 { "" } else { "s" };
    format!(
        "{blocks} block{} ({bytes}) in {groups} group{}",
        plural(blocks),
        plural(u64::from(*groups))
    )
}
