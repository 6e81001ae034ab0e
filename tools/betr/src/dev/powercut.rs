//! `betr dev powercut`: works on an image, and cuts the power during a write.
//!
//! The work goes to an overlay in memory, which records every write and flush. The cut happens while the last log
//! group is in flight: flushed writes survive; each later write is lost, complete or torn, as the seed determines.
//! The result is written into the image.

use std::path::PathBuf;
use std::sync::Arc;

use betr_cli::image::Access;
use betr_cli::volume::{clock_now, failure, nonces, open_device};
use betr_cli::{Exit, Failure, Io, show};
use betr_core::device::OverlayDevice;
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Fs, New, Object};
use betr_core::volume::{LATE_BYTES, Mode, OpenOptions, Volume};
use betr_lab::explore::devices::{Event, Fate, RecordingDevice, cut_power};
use bytes::Bytes;

/// The directory for the files.
pub(crate) const DIRECTORY: &[u8] = b"powercut";
/// The default number of files.
pub(crate) const FILES: u32 = 42;
/// Files written between two syncs.
const FILES_A_SYNC: u32 = 4;
/// One file in 10 is large enough to be bound late.
const LARGE_EVERY: u32 = 10;

/// Work on an image, and cut the power in the middle of writing
///
/// Makes files in the directory /powercut of the image, with a sync after every fourth, and cuts the
/// power while the last sync is under way. Every tenth file is large, and bound late. The image is left as
/// the cut leaves it.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Decides what becomes of the writes that were under way
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many files to make
    #[arg(long, default_value_t = FILES)]
    files: u32,
    /// The image
    image: PathBuf,
}

pub(crate) fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let device = open_device(&args.image, Access::Write)?;
    let overlay = Arc::new(OverlayDevice::new(device.clone()));
    let recorder = Arc::new(RecordingDevice::new(overlay));
    let failed = |error: betr_core::Error| failure(&args.image, Some(&device), &error);
    let options = OpenOptions::new(Mode::ReadWrite, nonces()?);
    let (volume, _) = Volume::open(recorder.clone(), options).map_err(failed)?;
    let mut fs = Fs::open(volume, Box::new(clock_now));
    work(&mut fs, args.files).map_err(failed)?;
    drop(fs);
    let acknowledged = acknowledged(args.files);

    let events = recorder.events();
    // The cut happens during the last flush.
    let cut = events.iter().rposition(|event| *event == Event::Flush).unwrap_or(events.len());
    let mut fates = Fates { state: args.seed, seen: [0; 3] };
    cut_power(&*device, &events[..cut], |_| fates.next())
        .and_then(|()| device.flush())
        .map_err(|error| Failure::failed(format!("{}: {error}", show::path(&args.image))))?;
    let [lost, whole, torn] = fates.seen;
    writeln!(
        io.out,
        "{} files made, {acknowledged} of them synced when the power was cut",
        args.files
    )?;
    writeln!(io.out, "writes under way: {lost} lost, {whole} arrived, {torn} torn")?;
    Ok(Exit::DONE)
}

/// How many of the files were synced before the power cut.
pub(crate) fn acknowledged(files: u32) -> u32 {
    files.saturating_sub(1) / FILES_A_SYNC * FILES_A_SYNC
}

/// Writes the files, with a sync after every fourth and after the last.
fn work(fs: &mut Fs, files: u32) -> betr_core::Result<()> {
    let root = fs.root()?;
    let attributes = Attributes { perm: 0o755, ..Attributes::at(fs.now()) };
    let directory = fs.make(&root, DIRECTORY, New::of(FileType::Directory, attributes))?;
    fs.volume_mut().sync()?;
    for number in 0..files {
        write_file(fs, &directory, number)?;
        if (number + 1) % FILES_A_SYNC == 0 || number + 1 == files {
            fs.volume_mut().sync()?;
        }
    }
    Ok(())
}

fn write_file(fs: &mut Fs, directory: &Object, number: u32) -> betr_core::Result<()> {
    let attributes = Attributes { perm: 0o644, ..Attributes::at(fs.now()) };
    let name = file_name(number);
    let file = fs.make(directory, name.as_bytes(), New::of(FileType::Regular, attributes))?;
    fs.write(&file, 0, &Bytes::from(contents(number)))?;
    Ok(())
}

/// The name of a file.
pub(crate) fn file_name(number: u32) -> String {
    format!("file-{number:04}")
}

/// The contents of a file.
pub(crate) fn contents(number: u32) -> Vec<u8> {
    let line = format!("This is file {number} of the work before the power cut.\n");
    let large = number % LARGE_EVERY == LARGE_EVERY - 1;
    let bytes = if large { LATE_BYTES } else { 40 * line.len() } + number as usize * line.len();
    line.repeat(bytes.div_ceil(line.len())).into_bytes()
}

/// Decides the fate of each write from a seed.
struct Fates {
    state: u64,
    /// Counts of lost, complete and torn writes.
    seen: [u32; 3],
}

impl Fates {
    fn next(&mut self) -> Fate {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let (kind, mask) = ((self.state >> 33) % 3, self.state >> 5);
        self.seen[kind as usize] += 1;
        match kind {
            0 => Fate::Lost,
            1 => Fate::Whole,
            _ => Fate::Torn(mask),
        }
    }
}
