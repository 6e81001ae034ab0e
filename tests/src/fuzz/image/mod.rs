//! Whole images: a sound one, with some edits, is checked, read, repaired, checked again and written to.
//!
//! - A repairable image is sound afterwards, unless there is too little space.
//! - Unless hashes were forged, a reader returns the old content or an error, and a repair reports all losses. Two
//!   cases are excluded, which no reader can detect: the complete loss of the newest checkpoint, and of the end of the
//!   log.
//! - A sound volume can be written to, and is sound afterwards; a damaged one may refuse.

mod edits;
mod parts;
mod sound;

use std::sync::Arc;

use betr_core::check::{CheckOptions, Repairable, Report, check};
use betr_core::device::Device;
use betr_core::fs::Fs;
use betr_core::ids::Time;
use betr_core::mend::{Mended, repair_all};
use betr_core::volume::Mode;
use betr_core::{Error, Result};
use betr_lab::explore::{parse, perform};

use crate::contents::{all_is_told, contents};
use crate::{clock, open, tight};
pub(super) use sound::Sound;

const ALL: CheckOptions = CheckOptions::ALL;

/// The final operations on every image.
const WORK: &str = "create /new\nwrite /new 100 3000 1\nwrite /new 0 20000 2\nsync\nwrite /large 50 9000 3\nmkdir /d\n\
    create /d/new\nrename /d/small /d/new\nunlink /link\nremove-tree /zone\nsetxattr /holes user.c 90 4\ntruncate /holes 7\n\
    clone-directory /clone /last\nwrite /last/entry-5 0 5000 5\ncopy-blocks /large /holes 0 2\nremove-tree /again\n";

/// Applies edits to an image, and tests the result.
pub fn image(bytes: &[u8]) -> bool {
    let sound = Sound::image();
    let fork = Arc::new(sound.device.fork());
    let edited: Arc<dyn Device> = fork.clone();
    let (any, raw) = edits::apply_edits(bytes, &sound.parts, &edited);
    let device: Arc<dyn Device> = Arc::new(fork.fork());
    let report = check(&device, ALL, &mut ());
    let found = contents(&device);
    let honest = raw && sees_all(&report, sound);
    if honest && let Ok(found) = &found {
        assert!(*found == sound.contents, "read as something else: {:?}", report.findings);
    }
    if report.is_clean() {
        let read = found.as_ref().err().is_none_or(is_expected);
        assert!(read, "clean, but {:?}", found.err());
    }
    match report.repairable() {
        Repairable::Nothing => works(&device),
        Repairable::No => _ = work(&device, false),
        Repairable::Safely | Repairable::WithLoss => {
            // A writer may use the image before it is repaired.
            let _ = work(&edited, report.is_clean());
            let Some(mended) = repair(&device, &report) else { return any };
            let after = match contents(&device) {
                Err(error) if is_expected(&error) => return any,
                after => after.expect("what is sound can be read"),
            };
            if honest {
                all_is_told("repaired", &sound.contents, &after, &mended);
            }
            works(&device);
        }
    }
    any
}

/// Whether the newest checkpoint and the whole log were found.
fn sees_all(report: &Report, sound: &Sound) -> bool {
    let epoch = report.superblock.as_ref().map(|superblock| superblock.birth.epoch);
    let log = report.log.as_ref();
    let same = |log: &betr_core::log::Survey| log.groups == sound.log.groups && log.lost.is_empty();
    epoch >= Some(sound.epoch) && log.is_some_and(same)
}

/// Repairs an image; returns the losses, or `None` if it cannot be repaired. Damage that only the first repair reveals,
/// and that needs more consent, gets a second repair.
fn repair(device: &Arc<dyn Device>, before: &Report) -> Option<Mended> {
    let some = |report: &Report| report.findings.iter().take(9).cloned().collect::<Vec<_>>();
    let (done, after) = match repair_all(device, before, ALL, Time::default(), Box::new(|| 7)) {
        Err(error) if is_expected(&error) => return None,
        Err(error) => panic!("{error}: {:?}", some(before)),
        Ok(done) => done,
    };
    let hidden = after.repairable() > before.repairable();
    match after.repairable() {
        Repairable::Nothing => Some(done.mended.unwrap_or_default()),
        Repairable::WithLoss if hidden => repair(device, &after),
        Repairable::No if hidden => None,
        _ => panic!("repaired {:?}: {:?}\n{done:?}", some(before), some(&after)),
    }
}

/// Whether there is too little space, no number is left by the superblock, or the superblock states a volume of keys.
fn is_expected(error: &Error) -> bool {
    let used_up = ["a number that another can follow", "one that the table has room for"];
    match error {
        Error::NoSpace { .. } => true,
        Error::Input(text) => text.contains("keys and values of a program's own"),
        Error::Corrupt(damage) => {
            let text = damage.fault.to_string();
            used_up.iter().any(|what| text.contains(what))
        }
        _ => false,
    }
}

/// Asserts that a sound volume can be written to.
fn works(device: &Arc<dyn Device>) {
    match work(device, true) {
        Err(error) if !is_expected(&error) => panic!("{error}"),
        _ => {}
    }
}

/// Writes to a volume. Operations may be refused; a sound volume must be sound afterwards.
fn work(device: &Arc<dyn Device>, is_sound: bool) -> Result<()> {
    let volume = open(device.clone(), Mode::ReadWrite, tight(), 4)?.0;
    let mut fs = Fs::open(volume, clock(5000));
    let done =
        parse(WORK).expect("a script").iter().try_for_each(|step| match perform(&mut fs, step) {
            Err(Error::Refused(_)) => Ok(()),
            Err(error) if is_sound => Err(error),
            _ => Ok(()),
        });
    let done = done.and_then(|()| fs.checkpoint());
    drop(fs);
    let after = check(device, ALL, &mut ());
    assert!(!is_sound || after.is_clean(), "written to: {:?}", after.findings);
    done
}
