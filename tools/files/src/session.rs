//! An image that commands work on: one of them, or, in a shell, one after another.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use betr_cli::image::OpenImage;
use betr_cli::view::View;
use betr_cli::volume::{OpenFs, failure, open_fs};
use betr_cli::{Failure, Io};
use betr_core::error::Refusal;
use betr_core::fs::{Fs, Object, components};
use betr_core::text::Printable;
use betr_core::volume::Mode;

/// For so many blocks that a command has freed it is worth while to give them back at once.
const WORTH_BLOCKS: u64 = 256;

/// An open image.
pub(crate) struct Session {
    image: PathBuf,
    mode: Mode,
    /// It, and the lock on it; nothing only while it is opened again.
    open: Option<(OpenImage, Fs)>,
    /// Whether something that was acknowledged is missing in what it shows.
    pub is_damaged: bool,
    /// Whether changes wait for the end of the command that makes them.
    collects: bool,
    /// The directory that relative paths begin in; empty for the root.
    pub directory: Vec<u8>,
}

impl Session {
    /// Opens the image; what a user should know of what it shows goes to standard error.
    pub fn open(view: View<'_>, mode: Mode, io: &mut Io) -> Result<Session, Failure> {
        let OpenFs { lock, fs, notes, is_damaged } = open_fs(view, mode)?;
        for note in notes {
            io.note(&format!("{}: {note}", betr_cli::show::path(view.image)))?;
        }
        let image = view.image.to_owned();
        let (open, directory) = (Some((lock, fs)), Vec::new());
        Ok(Session { image, mode, open, is_damaged, collects: false, directory })
    }

    /// The image's path.
    pub fn image(&self) -> &Path {
        &self.image
    }

    pub fn fs(&self) -> &Fs {
        &self.open.as_ref().expect("it is open between commands").1
    }

    /// Changes the image, all at once: when this returns, either everything is durable, or, with an error or
    /// after a power cut, nothing has changed.
    pub fn change<T>(
        &mut self,
        act: impl FnOnce(&mut Fs) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let changed = self.try_change(act);
        if changed.is_err() {
            // What is not durable goes with the volume.
            self.collects = false;
            let lock = self.open.take().map(|(lock, _)| lock);
            drop(lock);
            let OpenFs { lock, fs, .. } = open_fs(self.image.as_path().into(), self.mode)?;
            self.open = Some((lock, fs));
        }
        changed
    }

    fn try_change<T>(
        &mut self,
        act: impl FnOnce(&mut Fs) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (_, fs) = self.open.as_mut().expect("it is open between commands");
        let at_image = |error: betr_core::Error| failure(&self.image, None, &error);
        if !self.collects {
            // What the log holds becomes durable first; from then on nothing is, until all is there.
            fs.checkpoint().map_err(at_image)?;
            fs.volume_mut().stop_logging().map_err(at_image)?;
            self.collects = true;
        }
        let before = fs.volume().next_msn();
        let done = act(fs)?;
        if fs.volume().next_msn() != before {
            fs.checkpoint().map_err(at_image)?;
            // What has been deleted takes no room in the image file when the command ends.
            for _ in 0..2 {
                if fs.volume().held_blocks() >= WORTH_BLOCKS {
                    fs.checkpoint().map_err(at_image)?;
                }
            }
        }
        Ok(done)
    }

    /// A path from the root on, without `.` and `..`.
    pub fn absolute(&self, path: &Path) -> Vec<u8> {
        let bytes = path.as_os_str().as_bytes();
        let start: &[u8] = if bytes.starts_with(b"/") { b"" } else { &self.directory };
        let mut names: Vec<&[u8]> = Vec::new();
        for name in components(start).chain(components(bytes)) {
            match name {
                b".." => drop(names.pop()),
                name => names.push(name),
            }
        }
        [b"/", &names.join(&b'/')[..]].concat()
    }

    /// What a path leads to.
    pub fn resolve(&self, path: &Path) -> Result<Object, Failure> {
        let path = self.absolute(path);
        self.fs().resolve(&path).map_err(self.at(&path))
    }

    /// What to say of an error about a path.
    pub fn at(&self, path: &[u8]) -> impl Fn(betr_core::Error) -> Failure + use<> {
        let (image, path) = (self.image.clone(), path.to_vec());
        move |error| crate::at_path(&image, &path, &error)
    }

    /// What to say of an error that is not about a path.
    pub fn at_image(&self) -> impl Fn(betr_core::Error) -> Failure + use<> {
        let image = self.image.clone();
        move |error| failure(&image, None, &error)
    }

    /// What to say where something is refused.
    pub fn refused(&self, path: &[u8], refusal: Refusal) -> Failure {
        self.at(path)(refusal.into())
    }
}

/// Where something is to be put: its directory, its name, and what is there.
pub(crate) struct Target {
    pub path: Vec<u8>,
    pub directory: Object,
    pub name: Vec<u8>,
    pub found: Option<Object>,
}

impl Session {
    /// Where a path leads, all but its last component of which must be there.
    pub fn target(&self, path: &Path) -> Result<Target, Failure> {
        self.target_at(self.absolute(path))
    }

    fn target_at(&self, path: Vec<u8>) -> Result<Target, Failure> {
        let at = self.at(&path);
        let (directory, name) = self.fs().resolve_parent(&path).map_err(&at)?;
        let name = name.to_vec();
        let found = self.fs().find(&directory, &name).map_err(&at)?;
        Ok(Target { directory, name, found, path })
    }

    /// Where each of some sources goes: into the directory `dest`, or to `dest` itself if there is one source alone,
    /// and no such directory.
    pub fn targets<'s>(
        &self,
        sources: &'s [PathBuf],
        dest: &Path,
    ) -> Result<Vec<(&'s Path, Vec<u8>)>, Failure> {
        let path = self.absolute(dest);
        let into = match self.fs().resolve(&path) {
            Ok(object) => object.is_directory(),
            Err(betr_core::Error::Refused(_)) => false,
            Err(error) => return Err(self.at(&path)(error)),
        };
        if !into && sources.len() > 1 {
            return Err(self.refused(&path, Refusal::NotADirectory));
        }
        let target = |source: &'s PathBuf| {
            let Some(name) = last_name(source).filter(|_| into) else {
                return (source.as_path(), path.clone());
            };
            let directory = path.strip_suffix(b"/").unwrap_or(&path);
            (source.as_path(), [directory, b"/", name].concat())
        };
        Ok(sources.iter().map(target).collect())
    }

    /// Where an absolute path leads; see [`Session::target`].
    pub fn target_of(&self, path: &[u8]) -> Result<Target, Failure> {
        self.target_at(path.to_vec())
    }
}

/// The last component of a path.
fn last_name(path: &Path) -> Option<&[u8]> {
    components(path.as_os_str().as_bytes()).last()
}

/// A path as an error or a listing shows it.
pub(crate) fn shown(path: &[u8]) -> String {
    Printable(path).to_string()
}

/// The path of what is at `path` below `top`.
pub(crate) fn below(top: &[u8], path: &[u8]) -> Vec<u8> {
    match (top, path) {
        (top, b"") => top.to_vec(),
        (b"/", path) => [b"/", path].concat(),
        (top, path) => [top, b"/", path].concat(),
    }
}
