//! An open image, for one command or for all commands of a shell.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use betr_cli::view::View;
use betr_cli::volume::{OpenFs, failure, open_fs};
use betr_cli::{Failure, Io};
use betr_core::error::Refusal;
use betr_core::format::FileType;
use betr_core::fs::{Fs, LastLink, Resolved, Slot};
use betr_core::path::Operand;
use betr_core::text::Printable;
use betr_core::volume::Mode;

/// From 256 freed blocks (1 MiB) a command returns them to the host at once.
const WORTH_BLOCKS: u64 = 256;

/// An open image.
pub(crate) struct Session {
    image: PathBuf,
    mode: Mode,
    /// The file system; `None` only while the image is reopened.
    open: Option<Fs>,
    /// Whether the opened state lacks acknowledged data.
    pub is_damaged: bool,
    /// Whether changes wait in memory until the command ends, without logging.
    collects: bool,
    /// The current directory, without symbolic links, `.` and `..`; empty for the root.
    pub directory: Vec<u8>,
}

impl Session {
    /// Opens the image. Notes on the opened state go to standard error.
    pub(crate) fn open(view: View<'_>, mode: Mode, io: &mut Io) -> Result<Session, Failure> {
        let image = view.image.to_owned();
        let OpenFs { fs, notes, is_damaged } = open_fs(view, mode)?;
        for note in notes {
            io.note(&format!("{}: {note}", betr_cli::show::path(&image)))?;
        }
        let (open, directory) = (Some(fs), Vec::new());
        Ok(Session { image, mode, open, is_damaged, collects: false, directory })
    }

    /// The image's path.
    pub(crate) fn image(&self) -> &Path {
        &self.image
    }

    pub(crate) fn fs(&self) -> &Fs {
        self.open.as_ref().expect("it is open between commands")
    }

    /// Changes the image atomically: on return either everything is durable, or, after an error or a power cut,
    /// nothing has changed.
    pub(crate) fn change<T>(
        &mut self,
        act: impl FnOnce(&mut Fs) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let changed = self.try_change(act);
        if changed.is_err() {
            // Closing the volume discards changes that are not durable, and releases the lock.
            self.collects = false;
            self.open = None;
            self.open = Some(open_fs(self.image.as_path().into(), self.mode)?.fs);
        }
        changed
    }

    fn try_change<T>(
        &mut self,
        act: impl FnOnce(&mut Fs) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let fs = self.open.as_mut().expect("it is open between commands");
        let at_image = |error: betr_core::Error| failure(&self.image, None, &error);
        if !self.collects {
            // The log becomes durable first. From here on nothing is durable until the command ends.
            fs.checkpoint().map_err(at_image)?;
            fs.volume_mut().stop_logging().map_err(at_image)?;
            self.collects = true;
        }
        let before = fs.volume().next_msn();
        let done = act(fs)?;
        if fs.volume().next_msn() != before {
            fs.volume_mut().reclaim(u64::MAX).map_err(at_image)?;
            fs.checkpoint().map_err(at_image)?;
            // Two checkpoints free the blocks of deleted objects, so that the image file no longer contains them.
            for _ in 0..2 {
                if fs.volume().freed_soon_blocks() >= WORTH_BLOCKS {
                    fs.checkpoint().map_err(at_image)?;
                }
            }
        }
        Ok(done)
    }

    /// A path as the user typed it, relative to the root of the image.
    pub(crate) fn operand(&self, path: &Path) -> Operand {
        Operand::new(path.as_os_str().as_bytes()).below(&self.directory)
    }

    /// Resolves a path.
    pub(crate) fn look_up(&self, path: &Operand, last: LastLink) -> Result<Resolved, Failure> {
        self.fs().look_up(path, last).map_err(self.at(path))
    }

    /// Resolves a path to a name that does not exist, and under which an object of type `kind` can be created.
    pub(crate) fn vacant(&self, path: &Operand, kind: FileType) -> Result<Slot, Failure> {
        let slot = self.fs().slot(path);
        slot.and_then(|slot| slot.vacant(kind).map(|()| slot)).map_err(self.at(path))
    }

    /// The directory at a path, as the destination of several sources; `None` if there is none.
    pub(crate) fn directory_at(&self, path: &Operand) -> Result<Option<Resolved>, Failure> {
        match self.fs().look_up(path, LastLink::Follow) {
            Ok(found) => Ok(Some(found).filter(|found| found.object.is_directory())),
            Err(betr_core::Error::Refused(_)) => Ok(None),
            Err(error) => Err(self.at(path)(error)),
        }
    }

    /// Turns an error about a path into a message.
    pub(crate) fn at(&self, path: &Operand) -> impl Fn(betr_core::Error) -> Failure + use<> {
        let (image, mut shown) = (self.image.clone(), path.shown());
        if path.bytes().ends_with(b"/") && shown != b"/" {
            // Without the slash the message would name another path.
            shown.push(b'/');
        }
        let path = shown;
        move |error| crate::at_path(&image, &path, &error)
    }

    /// Turns an error about the image into a message.
    pub(crate) fn at_image(&self) -> impl Fn(betr_core::Error) -> Failure + use<> {
        let image = self.image.clone();
        move |error| failure(&image, None, &error)
    }

    /// The message for a refusal at a path.
    pub(crate) fn refused(&self, path: &Operand, refusal: Refusal) -> Failure {
        self.at(path)(refusal.into())
    }
}

/// The path of an entry of a directory.
pub(crate) fn entry_of(directory: &Operand, name: &[u8]) -> Operand {
    Operand::new([directory.bytes(), b"/", name].concat())
}

/// A path in printable form.
pub(crate) fn shown(path: &[u8]) -> String {
    Printable(path).to_string()
}

/// Joins the path `top` and a path below it.
pub(crate) fn below(top: &[u8], path: &[u8]) -> Vec<u8> {
    match (top, path) {
        (top, b"") => top.to_vec(),
        (b"/", path) => [b"/", path].concat(),
        (top, path) => [top, b"/", path].concat(),
    }
}
