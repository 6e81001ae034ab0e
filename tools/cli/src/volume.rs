//! Opens the volume of an image, and translates errors of the core for the command line.

use std::path::Path;
use std::sync::Arc;

use betr_core::Error;
use betr_core::device::Device;
use betr_core::fs::{Clock, Fs, open_as_of};
use betr_core::ids::Time;
use betr_core::store::CacheBudget;
use betr_core::volume::{Mode, NonceSource, OpenOptions, Recovery, Volume};

use crate::image::{self, Access};
use crate::moment;
use crate::plan;
use crate::view::View;
use crate::{Exit, Failure, probe, show, time};

/// Opens an image as a device. The lock for `access` is held until the device is dropped.
pub fn open_device(path: &Path, access: Access) -> Result<Arc<dyn Device>, Failure> {
    Ok(image::open(path, access)?.device())
}

/// Opens an image for reading, with the overlay applied.
pub fn open_view(view: View<'_>) -> Result<Arc<dyn Device>, Failure> {
    let device = open_device(view.image, Access::Read)?;
    match view.overlay {
        Some(overlay) => plan::lay_over(device, view.image, overlay),
        None => Ok(device),
    }
}

/// The cache of a reader, in bytes (12 MiB): a listing visits each node once, so nodes need not stay in memory.
const READ_CACHE: usize = 12 << 20;

/// The open file system of an image, locked until it is dropped.
pub struct OpenFs {
    /// The file system.
    pub fs: Fs,
    /// Notes for the user about the state that is shown.
    pub notes: Vec<String>,
    /// Whether an acknowledged change is missing.
    pub is_damaged: bool,
}

impl OpenFs {
    fn new(fs: Fs, recovery: &Recovery, mut notes: Vec<String>) -> OpenFs {
        notes.extend(moment::note_of(recovery));
        let damage = moment::damage_of(recovery);
        let is_damaged = damage.is_some();
        notes.extend(damage);
        OpenFs { fs, notes, is_damaged }
    }
}

/// Opens the file system of an image. An image with an overlay, and a past moment, are read-only.
pub fn open_fs(view: View<'_>, mode: Mode) -> Result<OpenFs, Failure> {
    let (path, as_of) = (view.image, view.as_of.clone());
    if mode == Mode::ReadWrite && as_of.is_some() {
        return Err(Failure::usage("--as-of: what was can only be read"));
    }
    let device = match (mode, view.overlay) {
        (Mode::ReadWrite, None) => open_device(path, Access::Write)?,
        (Mode::ReadWrite, Some(overlay)) => {
            let overlay = show::path(overlay);
            let text = "what a plan is laid over can only be read: fsck --apply writes the plan";
            return Err(Failure::usage(format!("--overlay {overlay}: {text}")));
        }
        (Mode::ReadOnly | Mode::Checkpoint, _) => open_view(view)?,
    };
    let at_image = |error| failure(path, Some(&device), &error);
    let reproducible = time::source_date_epoch().map_err(Failure::usage)?.is_some();
    let mut options =
        OpenOptions { punch: true, reproducible, ..OpenOptions::new(mode, nonces()?) };
    if mode == Mode::ReadOnly {
        options.cache = CacheBudget::of(READ_CACHE);
    }
    let Some(as_of) = as_of else {
        let (volume, recovery) = Volume::open(device.clone(), options).map_err(at_image)?;
        return Ok(OpenFs::new(Fs::open(volume, clock()?), &recovery, Vec::new()));
    };
    let (found, notes) = moment::find(&as_of, &device).map_err(at_image)?;
    let opened = open_as_of(device.clone(), found, options, clock()?);
    let (fs, recovery) = opened.map_err(at_image)?;
    Ok(OpenFs::new(fs, &recovery, notes))
}

/// The clock of the volume: the system clock, or the fixed time of `SOURCE_DATE_EPOCH` if that is set.
pub fn clock() -> Result<Clock, Failure> {
    let epoch = time::source_date_epoch().map_err(Failure::usage)?;
    Ok(match epoch {
        Some(secs) => Box::new(move || Time { secs, nanos: 0 }),
        None => Box::new(clock_now),
    })
}

/// The current time of the system clock.
pub fn clock_now() -> Time {
    let (secs, nanos) = time::now();
    Time { secs, nanos }
}

/// Nonces from the random number generator of the system.
pub fn nonces() -> Result<NonceSource, Failure> {
    let failed = |error| Failure::failed(format!("no random numbers: {error}"));
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(failed)?;
    let mut next = u64::from_le_bytes(seed);
    Ok(Box::new(move || {
        let mut fresh = [0; 8];
        // After a first success the generator does not fail. If it does, a multiplicative step keeps nonces distinct.
        next = match getrandom::fill(&mut fresh) {
            Ok(()) => u64::from_le_bytes(fresh),
            Err(_) => next.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1),
        };
        next
    }))
}

/// Translates an error of the core into the failure of a tool that works on `path`.
pub fn failure(path: &Path, device: Option<&Arc<dyn Device>>, error: &Error) -> Failure {
    let name = show::path(path);
    match error {
        Error::NotAnImage(_) => {
            let found = device.and_then(|device| {
                probe::probe(&|at, buf: &mut [u8]| device.read_at(at, buf), device.len())
            });
            let hint = match found.filter(|found| !found.is_betr()) {
                Some(found) => format!("; this looks like {}", found.with_article()),
                None => String::new(),
            };
            Failure::damaged(format!("{name}: {error}{hint}"))
        }
        Error::Corrupt(_) => Failure::damaged(format!(
            "{name}: {error}\nRun 'betr fsck -fn {name}' to see all damage."
        )),
        Error::Unsupported(_) => Failure::failed(format!(
            "{name}: {error}: use the version of betr that made this image"
        )),
        Error::NoSpace { .. } => {
            Failure::failed(format!("{name}: {error}: make the image larger, or put less into it"))
        }
        _ => Failure::new(Exit::FAILED, format!("{name}: {error}")),
    }
}
