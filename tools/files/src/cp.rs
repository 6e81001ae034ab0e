//! `betr cp`: copies files and trees into an image, out of it, and within it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use betr_cli::view::{PastArgs, View};
use betr_cli::{Exit, Failure, Io, show, time};
use betr_copy::host::{Excludes, Kind, Source};
use betr_copy::{CopyError, ExportInto, Exported, ImportLinks, ImportOptions, Owners, import_over};
use betr_core::error::Refusal;
use betr_core::format::FileType;
use betr_core::fs::{CopyLinks, CopyStopped, CopyTo, LastLink, Object, Slot};
use betr_core::path::{Last, Operand};
use betr_core::volume::Mode;

use crate::session::entry_of;
use crate::{Command, Session, copy_failure};

/// Copy files into an image, out of it, or within it
///
/// Paths with a colon before them are those of the image: `betr cp IMAGE file :/dir` copies into it, `betr cp IMAGE
/// :/dir/file .` out of it. The last path is the new name, or a directory to copy the others into. Of a directory whose path
/// ends in '.' or '..' the contents are copied into that directory. Symbolic links are followed, or with -r copied
/// themselves. Owners, permissions, times, extended attributes, holes and links are kept as far as the permissions of the process allow.
///
/// An existing file of the image is replaced. A directory is merged into an existing one, whose attributes stay. No file of the
/// host is replaced. If the host refuses a detail, such as an owner, that is a warning, and the exit code is 1. A copy into the
/// image is made as a whole, or not at all.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Copy directories with everything in them
    #[arg(short, long, visible_short_aliases = ['R', 'a'])]
    recursive: bool,
    /// Whether files that are copied within the image share their contents with the originals until one of both changes;
    /// small files are always copied
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_value = "auto", default_missing_value = "auto")]
    reflink: Reflink,
    #[command(flatten)]
    image: PastArgs,
    /// What to copy, and at the end the new name or the directory
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "DEST"])]
    paths: Vec<PathBuf>,
}

/// Whether copies share contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Reflink {
    /// Where that is possible
    Auto,
    /// Never
    Never,
}

/// A path of the image or of the host.
enum Side {
    Image(PathBuf),
    Host(PathBuf),
}

fn side(path: &Path) -> Side {
    match path.as_os_str().as_bytes() {
        [b':', rest @ ..] => Side::Image(OsStr::from_bytes(rest).into()),
        _ => Side::Host(path.into()),
    }
}

impl Command for Args {
    fn image(&self) -> (View<'_>, Mode) {
        let into = self.paths.last().is_some_and(|dest| matches!(side(dest), Side::Image(_)));
        (self.image.view(), if into { Mode::ReadWrite } else { Mode::ReadOnly })
    }

    fn act(&self, session: &mut Session, io: &mut Io) -> Result<Exit, Failure> {
        let Some((dest, sources)) = self.paths.split_last() else { return Ok(Exit::DONE) };
        match side(dest) {
            Side::Image(dest) => self.bring_in(session, sources, &session.operand(&dest)),
            Side::Host(dest) => self.take_out(session, sources, &dest, io),
        }
    }
}

/// An object to copy into an image.
enum Original {
    Image(Object),
    Host(Box<Source>, betr_copy::host::Links, Kind),
}

/// The destination of one source.
enum Dest {
    /// An existing directory, which takes the entries of the source.
    Into(Object),
    Slot(Slot),
}

/// One source and its destination; the path is for errors.
struct Job {
    original: Original,
    dest: Dest,
    path: Operand,
}

impl Args {
    fn bring_in(
        &self,
        session: &mut Session,
        sources: &[PathBuf],
        dest: &Operand,
    ) -> Result<Exit, Failure> {
        let epoch = time::source_date_epoch().map_err(Failure::usage)?;
        let into = session.directory_at(dest)?.map(|found| found.object);
        if into.is_none() && sources.len() > 1 {
            return Err(session.refused(dest, Refusal::NotADirectory));
        }
        let mut jobs = Vec::new();
        let mut links = CopyLinks::default();
        for source in sources {
            let (original, name) = self.original(session, source)?;
            jobs.push(job(session, original, name.as_deref(), dest, into.as_ref())?);
        }
        drop(into);
        let trees = jobs.iter().filter_map(|job: &Job| match &job.original {
            Original::Host(_, links, _) => Some(links),
            Original::Image(_) => None,
        });
        let mut imported = ImportLinks::of(trees);
        let image = session.image().to_owned();
        session.change(|fs| {
            let since = fs.since_now();
            for Job { original, dest, path } in jobs {
                let at = |below: &[u8], error: betr_core::Error| {
                    let path = crate::session::below(&path.shown(), below);
                    crate::at_path(&image, &path, &error)
                };
                let to = match &dest {
                    Dest::Into(directory) => CopyTo::Into(directory),
                    Dest::Slot(slot) => CopyTo::Entry(&slot.directory, &slot.name),
                };
                match original {
                    Original::Image(original) => {
                        let shares = self.reflink == Reflink::Auto;
                        fs.copy_over(&original, to, since, &mut links, shares)
                            .map_err(|CopyStopped { path, error }| at(&path, error))?;
                    }
                    Original::Host(source, ..) => {
                        let options = ImportOptions { epoch, owners: Owners::default() };
                        import_over(fs, &source, &mut imported, to, since, options).map_err(
                            |error| match error {
                                CopyError::Refused { path, refusal } => at(&path, refusal.into()),
                                error => copy_failure(&image, error),
                            },
                        )?;
                    }
                }
            }
            Ok(Exit::DONE)
        })
    }

    /// Opens a source. Returns the last component of its path, too, if it is a name.
    fn original(
        &self,
        session: &Session,
        source: &Path,
    ) -> Result<(Original, Option<Vec<u8>>), Failure> {
        let (original, operand) = match side(source) {
            Side::Image(path) => {
                let path = session.operand(&path);
                (Original::Image(session.look_up(&path, self.last_link())?.object), path)
            }
            Side::Host(path) => {
                let host = |error: betr_copy::host::HostError| Failure::failed(error.to_string());
                let source = match self.recursive {
                    true => Source::open_link(&path),
                    false => Source::open_followed(&path),
                };
                let source = source.map_err(host)?;
                let links = source.links().map_err(host)?;
                let kind = source.root().map_err(host)?.kind;
                let operand = Operand::new(path.as_os_str().as_bytes());
                (Original::Host(Box::new(source), links, kind), operand)
            }
        };
        self.check(original.kind() == FileType::Directory, operand.bytes())?;
        let name = match operand.last() {
            Last::Name(name) => Some(name.to_vec()),
            Last::Root | Last::Dot | Last::DotDot => None,
        };
        Ok((original, name))
    }

    /// With `-r` symbolic links are copied, otherwise followed.
    fn last_link(&self) -> LastLink {
        if self.recursive { LastLink::Keep } else { LastLink::Follow }
    }

    fn check(&self, directory: bool, path: &[u8]) -> Result<(), Failure> {
        match directory && !self.recursive {
            true => Err(Failure::failed(format!(
                "{}: is a directory: -r copies it with everything in it",
                crate::session::shown(path)
            ))),
            false => Ok(()),
        }
    }

    fn take_out(
        &self,
        session: &Session,
        sources: &[PathBuf],
        dest: &Path,
        io: &mut Io,
    ) -> Result<Exit, Failure> {
        let failed = |error| copy_failure(session.image(), error);
        let mut starts = Vec::new();
        for source in sources {
            let Side::Image(source) = side(source) else {
                return Err(Failure::usage(
                    "no path is one of the image; put a colon before those, as in :/etc/fstab",
                ));
            };
            let source = session.operand(&source);
            let start = session.look_up(&source, self.last_link())?.object;
            self.check(start.is_directory(), source.bytes())?;
            starts.push((source, start));
        }
        let into = std::fs::metadata(dest).is_ok_and(|meta| meta.is_dir());
        if starts.len() > 1 && !into {
            return Err(Failure::failed(format!("{}: not a directory", show::path(dest))));
        }
        let fs = session.fs();
        if !into {
            let Some((_, start)) = starts.pop() else { return Ok(Exit::DONE) };
            let done = betr_copy::export(fs, start, dest, &Excludes::default());
            return told(&done.map_err(failed)?, io);
        }
        let mut export = ExportInto::new(fs, dest).map_err(failed)?;
        let mut exit = Exit::DONE;
        for (source, start) in starts {
            let place = match source.last() {
                Last::Name(name) => dest.join(OsStr::from_bytes(name)),
                Last::Root | Last::Dot | Last::DotDot => {
                    export.entries(start).map_err(failed)?;
                    continue;
                }
            };
            match place.symlink_metadata() {
                // An existing empty directory may receive another one.
                Ok(_) => {
                    let done = betr_copy::export(fs, start, &place, &Excludes::default());
                    exit = worse(exit, told(&done.map_err(failed)?, io)?);
                }
                Err(_) => {
                    let name = place.file_name().unwrap_or_default().as_bytes();
                    export.entry(start, name).map_err(failed)?;
                }
            }
        }
        Ok(worse(exit, told(&export.done(), io)?))
    }
}

/// The first exit code, unless it means success.
fn worse(first: Exit, second: Exit) -> Exit {
    if first == Exit::DONE { second } else { first }
}

/// Prints the details that the host refused.
fn told(done: &Exported, io: &mut Io) -> Result<Exit, Failure> {
    for warning in &done.warnings {
        io.note(&format!("betr cp: warning: {warning}"))?;
    }
    Ok(crate::exit_of(done))
}

/// Resolves the destination of a source.
fn job(
    session: &Session,
    original: Original,
    name: Option<&[u8]>,
    dest: &Operand,
    into: Option<&Object>,
) -> Result<Job, Failure> {
    let path = match (into, name) {
        (Some(directory), None) => {
            let dest_object = Dest::Into(directory.clone());
            return Ok(Job { original, dest: dest_object, path: dest.clone() });
        }
        (Some(_), Some(name)) => entry_of(dest, name),
        (None, _) => dest.clone(),
    };
    let at = session.at(&path);
    // A regular file is written through a symbolic link. Other types replace the link.
    let kind = original.kind();
    let slot = match kind {
        FileType::Regular => session.fs().slot_behind(&path),
        _ => session.fs().slot(&path),
    };
    let slot = slot.and_then(|slot| slot.takes(kind).map(|()| slot)).map_err(&at)?;
    if let (Original::Image(original), Some((_, ino))) = (&original, slot.found)
        && original.ino() == ino
        && !original.is_directory()
    {
        let text = format!("{}: the same file", crate::session::shown(&path.shown()));
        return Err(Failure::failed(text));
    }
    Ok(Job { original, dest: Dest::Slot(slot), path })
}

impl Original {
    fn kind(&self) -> FileType {
        match self {
            Original::Image(object) => object.kind(),
            Original::Host(_, _, kind) => betr_copy::file_type(kind),
        }
    }
}
