//! The image being inspected, at one moment. Expensive results are cached with it.

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

/// The cache of the trees, in bytes (24 MiB).
const CACHE: usize = 24 << 20;

/// The source of the bytes.
#[derive(Clone)]
pub(crate) enum Source {
    /// A file or block device, with an optional repair plan as an overlay.
    File { path: PathBuf, overlay: Option<PathBuf> },
    /// Memory: the image of the tour or of a test.
    Memory { name: String, device: Arc<dyn Device> },
}

/// An image at a moment.
pub(crate) struct Image {
    pub source: Source,
    /// The requested moment; `None` for the newest checkpoint and its log.
    pub moment: Option<Moment>,
    /// The image as it is on the device.
    device: Arc<dyn Device>,
    /// The structures of the moment: those on the device, or those of a replay in memory.
    settled: Arc<dyn Device>,
    pub superblock: Option<Superblock>,
    /// For a snapshot, the superblock of the volume that contains it.
    live: Option<Superblock>,
    pub identity: Option<Identity>,
    /// The superblock on the device: that of the moment, or the one from which the replay began.
    pub origin: Option<Superblock>,
    /// The location of the requested moment; `None` if none was requested.
    pub found: Option<Found>,
    /// Notes for the user about the moment.
    pub notes: Vec<String>,
    /// Damage found while the image was opened.
    pub damage: Vec<String>,
    /// Whether the log holds records after the checkpoint.
    pub is_dirty: bool,
    ground: OnceLock<Arc<Ground>>,
    files: Mutex<Option<Arc<Files>>>,
    pulse: Pulse,
    pub report: Mutex<Option<Arc<Report>>>,
}

/// The file system of a moment, and the device that it reads.
struct Files {
    fs: Fs,
    gate: Arc<Watched>,
}

/// The opened image, or the reason why it cannot be opened.
type Opened = Result<Image, Failure>;

impl Source {
    /// The name of the image in errors and in the header.
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

    /// Opens the device without a lock: an image may change while it is inspected, which is detected.
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
    /// Opens an image. The number of reads does not depend on its content, unless the moment needs a replay. Damage is
    /// reported, and as much as possible is shown.
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

    /// Reaches a moment; replays the log in memory if its structures are not on the device.
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

    /// The superblock, or the message to show instead.
    pub(crate) fn superblock(&self) -> Result<&Superblock, String> {
        self.superblock.as_ref().ok_or_else(|| {
            let why = self.damage.first().map_or("", String::as_str);
            format!("no superblock leads into this image: {why}; 8 shows what a check finds, betr salvage copies out what is left")
        })
    }

    /// The structures of the moment, with reads charged to `work`.
    pub(crate) fn disk(&self, work: &Arc<Work>) -> Disk {
        Disk::new(Watched::by(self.settled.clone(), work))
    }

    /// The image as it is on the device, with reads charged to `work`.
    pub(crate) fn raw(&self, work: &Arc<Work>) -> Arc<dyn Device> {
        Watched::by(self.device.clone(), work)
    }

    /// The image as it is on the device, outside a query.
    pub(crate) fn base(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The allocation table of the moment.
    pub(crate) fn table(&self, work: &Arc<Work>) -> Result<Table, String> {
        let superblock = self.superblock()?;
        let table = Table::open(self.disk(work), superblock.birth.volume, superblock.table);
        Ok(table.sharing(superblock.features.shares()))
    }

    /// The use of every block; computed once.
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

    /// The use of a block, and the damage that hides part of it. If the whole map is not known yet, only the structures
    /// needed for this block are read.
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

    /// The nodes of the moment, without records of the log.
    pub(crate) fn shown(&self, work: &Arc<Work>) -> Result<Volume, String> {
        self.checkpoint(self.superblock()?.slot, self.disk(work).device().clone())
    }

    /// The checkpoint on the device: the moment itself, or the one from which its replay began.
    pub(crate) fn base_checkpoint(&self, work: &Arc<Work>) -> Result<Volume, String> {
        self.superblock()?;
        let slot = self.origin.as_ref().map_or(0, |origin| origin.slot);
        self.checkpoint(slot, self.raw(work))
    }

    /// The name of the snapshot that is shown, if any.
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

    /// Calls `look` with the files of the moment, with reads charged to `work`. The log is replayed once, on first use.
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

    /// Whether the image was written since it was opened.
    pub(crate) fn has_moved(&self) -> bool {
        let disk = Disk::new(self.device.clone());
        let ring = self.identity.as_ref().and_then(|identity| Ring::read(&disk, identity).ok());
        pulse(&self.source, ring.as_ref()) != self.pulse
    }
}

/// The values that a write to an image changes: the modification time of the file and the newest epoch. For a block
/// device only the epoch changes.
fn pulse(source: &Source, ring: Option<&Ring>) -> Pulse {
    let Source::File { path, .. } = source else { return (None, None) };
    let modified = std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
    (modified, ring.and_then(|ring| ring.newest().map(|newest| newest.birth.epoch)))
}

/// See [`pulse`].
type Pulse = (Option<SystemTime>, Option<Epoch>);

/// Whether a log group follows at the head of the log; reads one block.
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
