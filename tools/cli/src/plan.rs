//! Plans of repairs as files of the host: opening them, writing them, and laying them over an image.

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

/// Opens the plan at `path`, all of which is verified.
pub fn open(path: &Path) -> Result<Plan, Failure> {
    let name = show::path(path);
    let expected = "expected a plan, as 'betr fsck --overlay' or '--undo' has written it";
    let host = |error| Failure::failed(format!("{name}: {error}; {expected}"));
    // A pipe would be waited for.
    if !fs::metadata(path).map_err(host)?.is_file() {
        return Err(Failure::failed(format!("{name} is no file; {expected}")));
    }
    let file = File::open(path).map_err(host)?;
    of_file(file, path)
}

/// The plan in an open file; `path` is how errors call it.
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

/// Lays the plan at `path` over an image, which is then read-only.
pub fn lay_over(
    device: Arc<dyn Device>,
    image: &Path,
    path: &Path,
) -> Result<Arc<dyn Device>, Failure> {
    let view = PlanView::new(device, open(path)?).map_err(|error| refused(image, path, &error))?;
    Ok(Arc::new(view))
}

/// Starts a file at `path`, where nothing may be. It appears when it is committed.
pub fn create(path: &Path) -> Result<NewImage, Failure> {
    Ok(image::create_new(path)?)
}

/// Keeps at `path`, durably, what takes a plan back. What is there already must be just that: a command that was cut
/// off is called again as it was.
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

/// Why a plan and an image do not go together.
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

/// What changes, in numbers: "3 blocks in 2 groups".
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
