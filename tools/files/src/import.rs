//! `betr import`: a file or tree of the host, or a tar archive, into the image.

use std::path::{Path, PathBuf};

use betr_cli::view::View;
use betr_cli::{Exit, Failure, Io, time};
use betr_copy::{
    CopyError, ExcludeArgs, ImportOptions, OwnerArgs, archive_links, empty_directory,
    import_archive, import_entry,
};
use betr_core::format::FileType;
use betr_core::volume::Mode;
use betr_host::{Excludes, Links, Source};
use betr_tar::{Archive, ArchiveLinks};

use crate::{Command, Session, copy_failure};

/// Copy a file or directory, or the contents of a tar archive, into an image
///
/// All of it becomes durable at once: after an error, or a power cut, the image is what it was before.
///
/// Of an archive, DEST becomes the directory that all members are in. Archives are read in the formats v7, ustar,
/// GNU and pax, with extended attributes, access control lists and sparse files, but not compressed. Of owners
/// and groups the numbers count, not the names. Directories that are missing in an archive are made for root
/// with permissions 0755; a member that comes again replaces the former; a name that leads upwards ('..') is an
/// error.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// SOURCE is a tar archive, whose contents are imported
    #[arg(long)]
    tar: bool,
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
    /// What it becomes: a path of the image that does not exist, in a directory that does
    dest: PathBuf,
}

/// What is imported.
enum Contents {
    Tree(Source, Links),
    Archive(Box<Archive>, ArchiveLinks, Excludes),
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
        let target = session.vacant(&session.operand(&self.dest), kind)?;
        let image = session.image().to_owned();
        let done = session.change(|fs| {
            let done = match &mut contents {
                Contents::Tree(source, links) => {
                    import_entry(fs, source, links, &target.directory, &target.name, options)
                }
                Contents::Archive(archive, links, excludes) => {
                    let root = empty_directory(fs, &target.directory, &target.name);
                    root.and_then(|root| {
                        import_archive(
                            fs,
                            archive,
                            &root,
                            links,
                            excludes,
                            options,
                            &mut |warning| {
                                // Whether it could be shown does not matter to the image.
                                let _ = io.note(&format!("betr import: warning: {warning}"));
                            },
                        )
                    })
                }
            };
            done.map_err(|error| copy_failure(&image, error))
        })?;
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
    Ok(root.kind == betr_host::Kind::Directory)
}

fn open(args: &Args) -> Result<Contents, Failure> {
    let excludes = args.excludes.excludes().map_err(Failure::usage)?;
    let is_stdin = args.source == Path::new("-");
    if !is_stdin && !args.tar {
        let host = |error: betr_host::HostError| Failure::failed(error.to_string());
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
