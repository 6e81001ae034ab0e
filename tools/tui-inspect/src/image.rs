//! The image that is looked at, at one moment; what is costly to find out is kept with it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use betr_cli::volume::clock_now;
use betr_cli::{Failure, moment, show};
use betr_core::Error;
use betr_core::check::Report;
use betr_core::device::Device;
use betr_core::disk::Disk;
use betr_core::format::{Identity, Magic, Seal, Superblock};
use betr_core::fs::{Fs, open_as_of};
use betr_core::ids::{BLOCK_SIZE, Epoch};
use betr_core::log::Region;
use betr_core::store::CacheBudget;
use betr_core::table::Table;
use betr_core::volume::{
    Found, Mode, Moment, OpenOptions, Ring, Volume, identity_again, raised, read_identity,
};
use betr_offline::anatomy::{Area, Ground};
use parking_lot::Mutex;

use crate::work::{Watched, Work};

/// The cache for looking things up.
const CACHE: usize = 24 << 20;

/// Where the bytes come from.
#[derive(Clone)]
pub(crate) enum Source {
    /// A file or block device, and a plan laid over it.
    File { path: PathBuf, overlay: Option<PathBuf> },
    /// Memory: an image that was made to be shown.
    Memory { name: String, device: Arc<dyn Device> },
}

/// An image at a moment.
pub(crate) struct Image {
    pub source: Source,
    /// The moment that was asked for; nothing for the newest checkpoint, and its log besides.
    pub moment: Option<Moment>,
    /// The image as it is.
    device: Arc<dyn Device>,
    /// The structures of the moment: those of the image, or what a replay makes of them in memory.
    settled: Arc<dyn Device>,
    pub superblock: Option<Superblock>,
    /// Where a snapshot is shown, the superblock of the volume that it is of.
    live: Option<Superblock>,
    pub identity: Option<Identity>,
    /// The superblock that stands on the device: that of the moment, or the one behind which a replay began.
    pub origin: Option<Superblock>,
    /// Where the moment is found; nothing if none was asked for.
    pub found: Option<Found>,
    /// What a user should know of the moment.
    pub notes: Vec<String>,
    /// What is damaged already where one comes in.
    pub damage: Vec<String>,
    /// Whether the log holds records.
    pub is_dirty: bool,
    ground: OnceLock<Arc<Ground>>,
    files: Mutex<Option<Arc<Files>>>,
    pulse: Pulse,
    pub report: Mutex<Option<Arc<Report>>>,
}

/// The file system of a moment, and the device that it reads from.
struct Files {
    fs: Fs,
    gate: Arc<Watched>,
}

/// Why there is no image.
type Opened = Result<Image, Failure>;

impl Source {
    /// The image as errors and the header call it.
    pub(crate) fn name(&self) -> String {
        match self {
            Source::File { path, .. } => show::path(path),
            Source::Memory { name, .. } => name.clone(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Source::File { path, .. } => path,
            Source::Memory { name, .. } => Path::new(name),
        }
    }

    pub(crate) fn overlay(&self) -> Option<&Path> {
        match self {
            Source::File { overlay, .. } => overlay.as_deref(),
            Source::Memory { .. } => None,
        }
    }

    /// The bytes. Nothing is locked: an image may change while it is looked at, which is noticed.
    fn device(&self) -> Result<Arc<dyn Device>, Failure> {
        let (path, overlay) = match self {
            Source::Memory { device, .. } => return Ok(device.clone()),
            Source::File { path, overlay } => (path, overlay),
        };
        let device = betr_cli::image::look(path)?.device();
        match overlay {
            Some(overlay) => betr_cli::plan::lay_over(device, path, overlay),
            None => Ok(device),
        }
    }
}

impl Image {
    /// Opens an image: a number of reads that does not depend on what is in it, unless a moment is asked for that takes
    /// a replay. Damage is said, and as much as there is is shown.
    pub(crate) fn open(source: Source, moment: Option<Moment>, work: &Arc<Work>) -> Opened {
        let gate = Watched::shared(source.device()?);
        gate.serve(Some(work));
        let opened = Image::open_on(gate.clone(), source, moment);
        gate.serve(None);
        opened
    }

    fn open_on(device: Arc<dyn Device>, source: Source, moment: Option<Moment>) -> Opened {
        let failed = |error: Error| betr_cli::volume::failure(source.path(), Some(&device), &error);
        let disk = Disk::new(device.clone());
        let mut damage = Vec::new();
        let identity = match read_identity(&disk) {
            Ok(identity) => Some(identity),
            Err(error) => {
                let again = identity_again(&disk);
                if again.is_none() && matches!(error, Error::NotAnImage(_) | Error::Unsupported(_))
                {
                    return Err(failed(error));
                }
                damage.push(error.to_string());
                again
            }
        };
        let ring = identity.as_ref().and_then(|identity| Ring::read(&disk, identity).ok());
        let superblock =
            ring.as_ref().zip(identity.as_ref()).and_then(|(ring, identity)| {
                match ring.choose(None) {
                    Ok(newest) => Some(newest.clone()),
                    Err(error) => {
                        damage.push(error.to_string());
                        raised(&disk, identity, ring).or_else(|| ring.newest().cloned())
                    }
                }
            });
        let stated = superblock.as_ref().map_or(0, |superblock| superblock.image_blocks);
        let (stated, len) = (stated.saturating_mul(BLOCK_SIZE as u64), device.len());
        if stated > len {
            damage.push(format!("the image should have {stated} bytes, and has {len}"));
        }
        let mut image = Image {
            is_dirty: superblock.as_ref().is_some_and(|superblock| is_dirty(&disk, superblock)),
            settled: device.clone(),
            device: device.clone(),
            source: source.clone(),
            moment: moment.filter(|moment| *moment != Moment::Now),
            origin: superblock.clone(),
            superblock,
            live: None,
            found: None,
            pulse: pulse(&source, ring.as_ref()),
            identity,
            notes: Vec::new(),
            damage,
            ground: OnceLock::new(),
            files: Mutex::new(None),
            report: Mutex::new(None),
        };
        if let Some(moment) = image.moment.clone() {
            image.go_to(&moment).map_err(failed)?;
        }
        Ok(image)
    }

    /// Makes the structures of a moment, in memory where they are not on the device.
    fn go_to(&mut self, as_of: &Moment) -> betr_core::Result<()> {
        let (found, notes) = moment::find(as_of, &self.device)?;
        self.notes.extend(notes);
        let options = OpenOptions { content: None, ..OpenOptions::new(found.mode, Box::new(|| 0)) };
        let opened = open_as_of(self.device.clone(), found.clone(), options, Box::new(clock_now));
        let (fs, recovery) = opened?;
        self.notes.extend(moment::note_of(&recovery));
        self.damage.extend(moment::damage_of(&recovery));
        let mut volume = fs.into_volume();
        self.origin = Some(volume.superblock().clone());
        if found.mode != Mode::Checkpoint {
            self.settled = volume.settle_in_memory()?.device().clone();
            self.notes.push("nodes are shown as a replay makes them in memory: they are not on the device like this".into());
        }
        let live = self.superblock.replace(volume.superblock().clone());
        self.live = live.filter(|_| found.snapshot.is_some());
        self.found = Some(found);
        Ok(())
    }

    pub(crate) fn len(&self) -> u64 {
        self.device.len()
    }

    /// The superblock, or what is to be said in its place.
    pub(crate) fn superblock(&self) -> Result<&Superblock, String> {
        self.superblock.as_ref().ok_or_else(|| {
            let why = self.damage.first().map_or("", String::as_str);
            format!("no superblock leads into this image: {why}; 8 shows what a check finds, betr salvage copies out what is left")
        })
    }

    /// The structures of the moment, read by some work.
    pub(crate) fn disk(&self, work: &Arc<Work>) -> Disk {
        Disk::new(Watched::by(self.settled.clone(), work))
    }

    /// The image as it is, read by some work.
    pub(crate) fn raw(&self, work: &Arc<Work>) -> Arc<dyn Device> {
        Watched::by(self.device.clone(), work)
    }

    /// The image as it is, read without a query.
    pub(crate) fn base(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The table of the moment.
    pub(crate) fn table(&self, work: &Arc<Work>) -> Result<Table, String> {
        let superblock = self.superblock()?;
        Ok(Table::open(self.disk(work), superblock.birth.volume, superblock.table))
    }

    /// What every block is used for; found out once.
    pub(crate) fn ground(&self, work: &Arc<Work>) -> Result<Arc<Ground>, String> {
        if let Some(ground) = self.ground.get() {
            return Ok(ground.clone());
        }
        let ground = Ground::of(&self.disk(work), self.superblock()?, self.live.as_ref());
        if work.is_cancelled() {
            return Err("given up".into());
        }
        Ok(self.ground.get_or_init(|| Arc::new(ground)).clone())
    }

    /// What a block is used for, and what could not be read for that. Where not everything has been looked at yet, no more
    /// is than that takes.
    pub(crate) fn area(
        &self,
        block: u64,
        work: &Arc<Work>,
    ) -> Result<(Option<Area>, Vec<String>), String> {
        match self.ground.get() {
            Some(ground) => Ok((ground.at(block).cloned(), ground.damage.clone())),
            None => Ok(Ground::of_block(
                &self.disk(work),
                self.superblock()?,
                self.live.as_ref(),
                block,
            )),
        }
    }

    /// The nodes of the moment as they are shown, without what the log says.
    pub(crate) fn shown(&self, work: &Arc<Work>) -> Result<Volume, String> {
        self.checkpoint(self.superblock()?.slot, self.disk(work).device().clone())
    }

    /// The checkpoint on the device that the moment is, or that a replay begins at.
    pub(crate) fn base_checkpoint(&self, work: &Arc<Work>) -> Result<Volume, String> {
        self.superblock()?;
        let slot = self.origin.as_ref().map_or(0, |origin| origin.slot);
        self.checkpoint(slot, self.raw(work))
    }

    /// The name of the snapshot that is shown, if one is.
    fn snapshot(&self) -> Option<String> {
        Some(self.found.as_ref()?.snapshot.as_ref()?.to_string())
    }

    fn checkpoint(&self, slot: u32, device: Arc<dyn Device>) -> Result<Volume, String> {
        let options = OpenOptions {
            content: None,
            slot: Some(slot),
            hold: self.snapshot(),
            cache: CacheBudget::of(CACHE),
            ..OpenOptions::new(Mode::Checkpoint, Box::new(|| 0))
        };
        let opened = Volume::open(device, options);
        opened.map(|(volume, _)| volume).map_err(|error| error.to_string())
    }

    /// Has some work look into the files of the moment, with the log replayed; that is done once.
    pub(crate) fn files<T>(
        &self,
        work: &Arc<Work>,
        look: impl FnOnce(&Fs) -> Result<T, String>,
    ) -> Result<T, String> {
        let mut files = self.files.lock();
        let opened = match &*files {
            Some(opened) => opened.clone(),
            None => {
                let gate = Watched::shared(self.settled.clone());
                gate.serve(Some(work));
                let fs = self.open_files(gate.clone()).map_err(|error| error.to_string())?;
                files.insert(Arc::new(Files { fs, gate })).clone()
            }
        };
        opened.gate.serve(Some(work));
        let found = look(&opened.fs);
        opened.gate.serve(None);
        found
    }

    fn open_files(&self, device: Arc<dyn Device>) -> betr_core::Result<Fs> {
        let mode = if self.moment.is_none() { Mode::ReadOnly } else { Mode::Checkpoint };
        let slot = self.superblock.as_ref().map(|superblock| superblock.slot);
        let cache = CacheBudget::of(CACHE);
        let hold = self.snapshot();
        let options = OpenOptions { slot, hold, cache, ..OpenOptions::new(mode, Box::new(|| 0)) };
        let (volume, _) = Volume::open(device, options)?;
        Ok(Fs::open(volume, Box::new(clock_now)))
    }

    /// Whether the image was written to since it was opened.
    pub(crate) fn has_moved(&self) -> bool {
        let disk = Disk::new(self.device.clone());
        let ring = self.identity.as_ref().and_then(|identity| Ring::read(&disk, identity).ok());
        pulse(&self.source, ring.as_ref()) != self.pulse
    }
}

/// What a write to an image changes: when the file was written to, and the newest epoch (of a block device,
/// only that).
fn pulse(source: &Source, ring: Option<&Ring>) -> Pulse {
    let Source::File { path, .. } = source else { return (None, None) };
    let modified = std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
    (modified, ring.and_then(|ring| ring.newest().map(|newest| newest.birth.epoch)))
}

/// See [`pulse`].
type Pulse = (Option<SystemTime>, Option<Epoch>);

/// Whether a group stands where the log goes on: a look at one block.
fn is_dirty(disk: &Disk, superblock: &Superblock) -> bool {
    let block = disk.read(Region::of(superblock).byte(superblock.log_head), BLOCK_SIZE);
    let Ok(block) = block else { return false };
    let birth = Seal::birth_of(&block);
    Magic::of(&block) == Some(Magic::LogGroup)
        && birth.is_some_and(|birth| {
            birth.volume == superblock.birth.volume
                && (birth.epoch, birth.nonce) == (superblock.log_epoch, superblock.log_nonce)
        })
}
