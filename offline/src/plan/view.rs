//! A read-only view of an image after a plan.

use std::io;
use std::sync::Arc;

use super::Plan;
use super::file::Side;
use betr_core::device::{Device, checked_end};
use betr_core::error::{Error, Result};

/// A base device, with a plan laid over it.
pub struct PlanView {
    base: Arc<dyn Device>,
    plan: Plan,
}

impl PlanView {
    /// Lays a plan over the image that it was made for.
    pub fn new(base: Arc<dyn Device>, plan: Plan) -> Result<PlanView> {
        plan.verify_base(&*base)?;
        Ok(PlanView { base, plan })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

impl Device for PlanView {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        checked_end(at, buf.len(), self.len())?;
        self.base.read_at(at, buf)?;
        self.plan.lay_over(at, buf, Side::New).map_err(|error| match error {
            Error::Io { source, .. } => source,
            other => io::Error::other(other.to_string()),
        })
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        let text = "an image that a plan is laid over can only be read";
        Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, text))
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn advise_will_need(&self, at: u64, len: u64) {
        self.base.advise_will_need(at, len);
    }

    fn requires_serial_io(&self) -> bool {
        self.base.requires_serial_io()
    }
}
