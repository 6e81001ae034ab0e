//! `betr import`: a file or tree of the host, or a tar archive, into the image.

use std::path::{Path, PathBuf};

use betr_cli::progress::Meter;
use betr_cli::view::View;
use betr_cli::{Exit, Failure, Io, time};
use betr_copy::host::{Excludes, Links, Source};
use betr_copy::tar::{Archive, ArchiveLinks};
use betr_copy::{
    ArchiveOptions, CopyError, ExcludeArgs, ImportOptions, OwnerArgs, archive_links,
    empty_directory, import_archive, import_entry, merge_tree, tally,
};
use betr_core::format::FileType;
use betr_core::fs::{Fs, Object, Slot};
use betr_core::volume::Mode;

use crate::{Command, Session, copy_failure};

/// Copy a file or directory, or the contents of a tar archive, into an image
///
/// All of it becomes durable at once: after an error, or a power cut, the image is what it was before.
///
/// Of an archive, DEST becomes the directory that all members are in. Archives are read in the formats v7, ustar,
/// GNU and pax, with extended attributes, access control lists and sparse files, also compressed by gzip, xz or zstd. Of owners
/// and groups the numbers count, not the names. Directories that are missing in an archive are made for root
/// with permissions 0755; a member that comes again replaces the former; a name that leads upwards ('..') is an
/// error.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// SOURCE is a tar archive, whose contents are imported
    #[arg(long)]
    tar: bool,
    /// If DEST is a directory, put the contents of SOURCE into it
    ///
    /// What has the same name is replaced, as tar does: a directory stays, with what is in it, and gets new attributes. A
    /// symbolic link on the way to a member of an archive is followed within DEST.
    #[arg(long)]
    merge: bool,
    /// SOURCE is a layer of a container image, a tar archive that is merged with the layers before
    ///
    /// A name that begins with '.wh.' removes what the rest of it names; '.wh..wh..opq' removes all that its directory held
    /// before this layer. What is no directory replaces a directory with everything in it.
    #[arg(long)]
    oci: bool,
    #[command(flatten)]
    excludes: ExcludeArgs,
    #[command(flatten)]
    owners: OwnerArgs,
    /// Take only the tag of directories that are tagged as caches (CACHEDIR.TAG)
    #[arg(long)]
    exclude_caches: bool,
    /// Say nothing on standard output
    #[arg(short, long)]
    quiet: bool,
    /// The image
    image: PathBuf,
    /// A file or directory of the host; "-" is a tar archive on standard input
    source: PathBuf,
    /// What it becomes: a path of the image that does not exist, in a directory that does; with --merge or --oci also a directory
    /// that exists
    dest: PathBuf,
}

/// The source of an import.
enum Contents {
    Tree(Source, Links),
    Archive(Box<Archive>, ArchiveLinks, Excludes),
}

/// The destination of an import.
enum Target {
    /// An existing directory.
    Directory(Object),
    /// A name that does not exist yet.
    Entry(Slot),
}

impl Target {
    /// The directory, created if it does not exist.
    fn directory(&self, fs: &mut Fs) -> Result<Object, CopyError> {
        match self {
            Target::Directory(directory) => Ok(directory.clone()),
            Target::Entry(slot) => empty_directory(fs, &slot.directory, &slot.name),
        }
    }
}

impl Command for Args {
    fn image(&self) -> (View<'_>, Mode) {
        (View::from(self.image.as_path()), Mode::ReadWrite)
    }

    fn act(&self, session: &mut Session, io: &mut Io) -> Result<Exit, Failure> {
        let epoch = time::source_date_epoch().map_err(Failure::usage)?;
        let options = ImportOptions { epoch, owners: self.owners.owners() };
        let mut contents = open(self)?;
        let kind = match &contents {
            Contents::Tree(source, _) if !is_directory(source)? => FileType::Regular,
            Contents::Tree(..) | Contents::Archive(..) => FileType::Directory,
        };
        let dest = session.operand(&self.dest);
        let existing = match self.merge || self.oci {
            true => session.directory_at(&dest)?.map(|found| found.object),
            false => None,
        };
        if existing.is_some() && kind != FileType::Directory {
            let name = betr_cli::show::path(&self.source);
            let why = "is no directory: 'betr cp' replaces single files";
            return Err(Failure::failed(format!("{name}: {why}")));
        }
        let target = match existing {
            Some(directory) => Target::Directory(directory),
            None => Target::Entry(session.vacant(&dest, kind)?),
        };
        let image = session.image().to_owned();
        let meter = Meter::counting(!self.quiet, "Importing", tally::so_far);
        let done = session.change(|fs| {
            let done = match (&mut contents, &target) {
                (Contents::Tree(source, links), Target::Directory(directory)) => {
                    merge_tree(fs, source, links, directory, options)
                }
                (Contents::Tree(source, links), Target::Entry(slot)) => {
                    import_entry(fs, source, links, &slot.directory, &slot.name, options)
                }
                (Contents::Archive(archive, links, excludes), target) => {
                    let how = ArchiveOptions { links, excludes, options, is_layer: self.oci };
                    target.directory(fs).and_then(|root| {
                        import_archive(fs, archive, &root, how, &mut |warning| {
                            // A failure to print the warning must not fail the import.
                            let _ = io.note(&format!("betr import: warning: {warning}"));
                        })
                    })
                }
            };
            done.map_err(|error| copy_failure(&image, error))
        })?;
        drop(meter);
        if !self.quiet {
            writeln!(
                io.out,
                "{} files of {} bytes, {} directories, {} others, {} more links",
                done.files, done.bytes, done.directories, done.others, done.links
            )?;
        }
        Ok(Exit::DONE)
    }
}

fn is_directory(source: &Source) -> Result<bool, Failure> {
    let root = source.root().map_err(|error| Failure::failed(error.to_string()))?;
    Ok(root.kind == betr_copy::host::Kind::Directory)
}

fn open(args: &Args) -> Result<Contents, Failure> {
    let excludes = args.excludes.excludes().map_err(Failure::usage)?;
    let is_stdin = args.source == Path::new("-");
    if !is_stdin && !args.tar && !args.oci {
        let host = |error: betr_copy::host::HostError| Failure::failed(error.to_string());
        let source = Source::open(&args.source).map_err(host)?;
        let source = source.exclude_caches(args.exclude_caches).exclude(excludes);
        let links = source.links().map_err(host)?;
        return Ok(Contents::Tree(source, links));
    }
    if args.exclude_caches {
        return Err(Failure::usage("--exclude-caches is not for archives"));
    }
    let failure = |error: CopyError| copy_failure(&args.image, error);
    let archive = || match is_stdin {
        true => Archive::stdin(),
        false => Archive::open(&args.source),
    };
    let archive = || archive().map_err(|error| failure(error.into()));
    let links = match !is_stdin && args.source.is_file() {
        true => archive_links(&mut archive()?, &excludes).map_err(failure)?,
        false => ArchiveLinks::default(),
    };
    Ok(Contents::Archive(Box::new(archive()?), links, excludes))
}
