//! A repair that is tried on a view: the image stays as it is.

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

/// A repair, and what is left.
pub struct Trial<'r> {
    /// What was found before.
    pub before: &'r Report,
    /// What was done.
    pub done: Repair,
    /// What a check found afterwards.
    pub after: Report,
    view: Arc<PlanningDevice>,
}

impl<'r> Trial<'r> {
    /// Tries to repair what `before` found in the image on `device`, which is only read.
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

    /// In what the outcome is worse, if it is.
    pub fn worse(&self) -> Option<String> {
        betr_offline::plan::worse(self.before, &self.after).map(|worse| worse.to_string())
    }

    /// Why the plan is.
    pub fn explanation(&self) -> Explanation {
        Explanation::of(self.before, Some((&self.done, &self.after)))
    }

    /// Writes the plan; false if nothing would change.
    pub fn write(&self, file: &File) -> Result<bool> {
        let corrects = !self.before.is_clean();
        write_repair(&self.view, corrects, &self.explanation().to_string(), file)
    }
}
