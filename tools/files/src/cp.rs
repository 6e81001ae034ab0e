//! `betr cp`: files and trees into an image, out of it, and within it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use betr_cli::view::{PastArgs, View};
use betr_cli::{Exit, Failure, Io, show, time};
use betr_copy::{ImportOptions, Owners, import_entry};
use betr_core::error::Refusal;
use betr_core::volume::Mode;
use betr_host::{Excludes, Source};

use crate::session::Target;
use crate::{Command, Session, copy_failure};

/// Copy files into an image, out of it, or within it
///
/// Paths with a colon before them are those of the image: `betr cp IMAGE file :/dir` copies into it, `betr cp IMAGE
/// :/dir/file .` out of it. The last path is the new name, or a directory to copy the others into. Owners,
/// permissions, times, extended attributes, holes and links are kept as far as whoever copies may. A file of the image
/// that has the new name is replaced; one of the host is not. What is copied into the image is there as a whole, or not
/// at all.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Copy directories with everything in them
    #[arg(short, long, visible_short_aliases = ['R', 'a'])]
    recursive: bool,
    #[command(flatten)]
    image: PastArgs,
    /// What to copy, and at the end the new name or the directory
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "DEST"])]
    paths: Vec<PathBuf>,
}

/// Where a path leads.
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
            Side::Image(dest) => self.bring_in(session, sources, &dest),
            Side::Host(dest) => {
                for source in sources {
                    let Side::Image(source) = side(source) else {
                        return Err(Failure::usage(
                            "no path is one of the image; put a colon before those, as in :/etc/fstab",
                        ));
                    };
                    self.out(session, &source, &dest, sources.len() > 1, io)?;
                }
                Ok(Exit::DONE)
            }
        }
    }
}

impl Args {
    fn bring_in(
        &self,
        session: &mut Session,
        sources: &[PathBuf],
        dest: &Path,
    ) -> Result<Exit, Failure> {
        let host = |error: betr_host::HostError| Failure::failed(error.to_string());
        let epoch = time::source_date_epoch().map_err(Failure::usage)?;
        let stripped: Vec<PathBuf> = sources
            .iter()
            .map(|source| match side(source) {
                Side::Image(path) | Side::Host(path) => path,
            })
            .collect();
        let mut copies = Vec::new();
        for (source, (path, dest)) in sources.iter().zip(session.targets(&stripped, dest)?) {
            let target = session.target_of(&dest)?;
            let at = session.at(&target.path);
            let from = match side(source) {
                Side::Image(path) => {
                    let original = session.resolve(&path)?;
                    self.check(original.is_directory(), &session.absolute(&path))?;
                    From::Image(original)
                }
                Side::Host(_) => {
                    let source = Source::open(path).map_err(host)?;
                    let survey = source.survey().map_err(host)?;
                    let root = source.root().map_err(host)?;
                    let directory = root.kind == betr_host::Kind::Directory;
                    self.check(directory, path.as_os_str().as_bytes())?;
                    From::Host(Box::new(source), survey)
                }
            };
            if let Some(found) = &target.found
                && (found.is_directory() || from.is_directory())
            {
                return Err(at(Refusal::Exists.into()));
            }
            if let (From::Image(original), Some(found)) = (&from, &target.found)
                && original == found
            {
                return Err(Failure::failed(format!(
                    "{}: the same file",
                    crate::session::shown(&dest)
                )));
            }
            copies.push((from, target, at));
        }
        let image = session.image().to_owned();
        session.change(|fs| {
            for (from, target, at) in copies {
                let Target { directory, name, found, .. } = target;
                let replaces = found.is_some();
                drop(found);
                if replaces {
                    fs.unlink(&directory, &name).map_err(&at)?;
                }
                match from {
                    From::Image(original) => {
                        fs.copy(&original, &directory, &name).map_err(&at)?;
                    }
                    From::Host(source, survey) => {
                        let options = ImportOptions { epoch, owners: Owners::default() };
                        import_entry(fs, &source, &survey, &directory, &name, options)
                            .map_err(|error| copy_failure(&image, error))?;
                    }
                }
            }
            Ok(Exit::DONE)
        })
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

    fn out(
        &self,
        session: &Session,
        source: &Path,
        dest: &Path,
        several: bool,
        io: &mut Io,
    ) -> Result<(), Failure> {
        let path = session.absolute(source);
        let start = session.resolve(source)?;
        self.check(start.is_directory(), &path)?;
        let into = std::fs::metadata(dest).is_ok_and(|meta| meta.is_dir());
        if several && !into {
            return Err(Failure::failed(format!("{}: not a directory", show::path(dest))));
        }
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let dest = if into { dest.join(OsStr::from_bytes(name)) } else { dest.to_owned() };
        let done = betr_copy::export(session.fs(), start, &dest, &Excludes::default())
            .map_err(|error| copy_failure(session.image(), error))?;
        for warning in &done.warnings {
            io.note(&format!("betr cp: warning: {warning}"))?;
        }
        Ok(())
    }
}

/// What is copied into an image.
enum From {
    Image(betr_core::fs::Object),
    Host(Box<Source>, betr_host::Survey),
}

impl From {
    fn is_directory(&self) -> bool {
        match self {
            From::Image(object) => object.is_directory(),
            From::Host(source, _) => {
                source.root().is_ok_and(|root| root.kind == betr_host::Kind::Directory)
            }
        }
    }
}
