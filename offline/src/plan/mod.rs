//! Repair plans: the changes of a repair as a file, to be reviewed, applied, and reverted.
//!
//! A repair runs on a view of the image ([`PlanningDevice`](crate::device::PlanningDevice)), and its changes are
//! written to a plan (`format/SPEC.md`, section 15). A plan can be viewed over the unchanged image ([`PlanView`]),
//! applied to exactly that image ([`apply`]), and inverted ([`Plan::write_inverse`]).
//!
//! Applying writes group by group, with a flush after each, as the repair itself would. So a power cut leaves a state
//! that the repair could have left, too, and [`locate`] finds how far a plan has been applied: the next [`apply`]
//! continues there. Nothing is written to an image in any other state.

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
