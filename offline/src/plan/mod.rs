//! Plans: the changes of a repair as a file, to be looked at, carried out, and taken back.
//!
//! A repair runs on a view of the image ([`PlanningDevice`](crate::device::PlanningDevice)), and what it changed is
//! written to a plan (`format/PLAN.md`). A plan can be laid over the image, which stays as it is
//! ([`PlanView`]); it can be applied to exactly that image ([`apply`]); and it can be turned around
//! ([`Plan::write_inverse`]), which takes back what it did.
//!
//! Applying writes group by group, with a flush after each, as the repair itself would have done. So a power cut leaves
//! what it could have left of the repair, and [`locate`] finds out how far a plan has come: applying it again goes on
//! from there. Nothing is written to an image that is neither as it was before, nor on that way.

mod apply;
mod base;
mod file;
mod outcome;
mod view;
mod write;

pub use apply::{Standing, apply, locate};
pub use file::Plan;
pub use outcome::{Worse, worse};
pub use view::PlanView;
pub use write::write_repair;
