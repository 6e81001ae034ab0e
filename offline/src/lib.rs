//! What only offline tools use of an image: repairs that are looked at first, what every byte is, and what happened.
//!
//! The engine needs none of it. [`plan`] keeps repairs as files, [`anatomy`] says what every byte is,
//! [`history`] tells what the log says that happened, [`compare`] finds what is different between file systems,
//! [`transfer`] brings contents into another volume, and [`redact`] copies an image without contents. [`device`] has what
//! they read from and write to.

pub mod anatomy;
pub mod compare;
pub mod device;
pub mod history;
pub mod plan;
pub mod redact;
pub mod transfer;
