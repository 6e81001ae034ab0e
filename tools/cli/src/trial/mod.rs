//! A trial repair on a view: the image stays unchanged.

mod document;
mod explanation;

use std::fs::File;
use std::sync::Arc;

use betr_core::Result;
use betr_core::check::{CheckOptions, Report};
use betr_core::device::Device;
use betr_core::ids::Time;
use betr_core::mend::{Repair, repair_all};
use betr_core::volume::NonceSource;
use betr_offline::device::{PlanningDevice, Scratch};
use betr_offline::plan::write_repair;

pub use document::{findings, repair};
pub use explanation::Explanation;

/// A trial repair and the check after it.
pub struct Trial<'r> {
    /// The findings before the repair.
    pub before: &'r Report,
    /// The results of the repair.
    pub done: Repair,
    /// The findings after the repair.
    pub after: Report,
    view: Arc<PlanningDevice>,
}

impl<'r> Trial<'r> {
    /// Repairs what `before` found on a view of `device`, which is only read.
    pub fn of(
        device: &Arc<dyn Device>,
        before: &'r Report,
        options: CheckOptions,
        (wall, nonces): (Time, NonceSource),
        scratch: Scratch,
    ) -> Result<Trial<'r>> {
        let view = Arc::new(PlanningDevice::new(device.clone(), scratch));
        let seen: Arc<dyn Device> = view.clone();
        let (done, after) = repair_all(&seen, before, options, wall, nonces)?;
        Ok(Trial { before, done, after, view })
    }

    /// Says in which respect the image would be worse after the repair, if any.
    pub fn worse(&self) -> Option<String> {
        betr_offline::plan::worse(self.before, &self.after).map(|worse| worse.to_string())
    }

    /// The explanation for the plan.
    pub fn explanation(&self) -> Explanation {
        Explanation::of(self.before, Some((&self.done, &self.after)))
    }

    /// Writes the plan to `file`; returns false if the repair changes nothing.
    pub fn write(&self, file: &File) -> Result<bool> {
        let corrects = !self.before.is_clean();
        write_repair(&self.view, corrects, &self.explanation().to_string(), file)
    }
}
