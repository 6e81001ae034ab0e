//! The source of an image's contents.

use std::path::{Path, PathBuf};

use betr_cli::Failure;
use betr_copy::host::{Excludes, Links, Source};
use betr_copy::tar::{Archive, ArchiveLinks};
use betr_copy::{
    ArchiveOptions, CopyError, ImportOptions, Imported, Needs, archive_links, import_archive,
    import_tree,
};
use betr_core::fs::Fs;

/// The command to which another program's output is piped, for messages.
const PIPED: &str = "betr mkfs IMAGE SIZE -d -";

/// A tree of the host, or an archive.
pub(crate) enum Contents {
    /// With what it needs, if that has been counted.
    Tree(Source, Links, Option<Needs>),
    /// An archive in a file, which can be read repeatedly.
    File(PathBuf, Excludes, ArchiveLinks),
    /// An archive that can be read only once.
    Stream(Box<Archive>, Excludes),
}

impl Contents {
    /// Opens a directory or an archive; `-` is an archive on standard input. With `counts` it is counted what a tree needs.
    pub(crate) fn open(
        path: &Path,
        excludes: Excludes,
        caches: bool,
        counts: bool,
    ) -> Result<Contents, Failure> {
        let failure = |error: CopyError| copy_failure(&error);
        let meta = std::fs::metadata(path);
        let is_stdin = path.as_os_str() == "-";
        // A path that cannot be examined is reported as a tree that cannot be opened.
        if !is_stdin && meta.as_ref().map_or(true, |meta| meta.is_dir()) {
            let host = |error: betr_copy::host::HostError| Failure::failed(error.to_string());
            let source = Source::open(path).map_err(host)?;
            let source = source.exclude_caches(caches).exclude(excludes);
            let (needs, links) = match counts {
                true => Needs::of_tree(&source).map(|(needs, links)| (Some(needs), links)),
                false => source.links().map(|links| (None, links)).map_err(CopyError::from),
            }
            .map_err(failure)?;
            return Ok(Contents::Tree(source, links, needs));
        }
        if caches {
            return Err(Failure::usage("--exclude-caches is not for archives"));
        }
        let opened = match is_stdin {
            true => Archive::stdin(),
            false => Archive::open(path),
        };
        let mut archive = opened.map_err(|error| failure(error.into()))?;
        if is_stdin || !meta.is_ok_and(|meta| meta.is_file()) {
            return Ok(Contents::Stream(Box::new(archive), excludes));
        }
        let links = archive_links(&mut archive, &excludes).map_err(failure)?;
        Ok(Contents::File(path.to_owned(), excludes, links))
    }

    /// Counts the space that the contents need. Reads all of them; `None` for a stream, which can be read only once.
    pub(crate) fn needs(&self) -> Result<Option<Needs>, Failure> {
        let needs = match self {
            Contents::Tree(.., Some(needs)) => return Ok(Some(*needs)),
            Contents::Tree(source, ..) => Needs::of_tree(source).map(|(needs, _)| needs),
            Contents::File(path, excludes, _) => Archive::open(path)
                .map_err(CopyError::from)
                .and_then(|mut archive| Needs::of_archive(&mut archive, excludes)),
            Contents::Stream(..) => return Ok(None),
        };
        needs.map(Some).map_err(|error| copy_failure(&error))
    }

    /// Fills the empty file system. `warn` receives warnings about metadata that could not be kept.
    pub(crate) fn import(
        &mut self,
        fs: &mut Fs,
        options: ImportOptions,
        warn: &mut dyn FnMut(String),
    ) -> Result<Imported, CopyError> {
        let root = fs.root()?;
        match self {
            Contents::Tree(source, links, _) => import_tree(fs, source, links, &root, options),
            Contents::File(path, excludes, links) => {
                let mut archive = Archive::open(path)?;
                let how = ArchiveOptions { links, excludes, options, is_layer: false };
                import_archive(fs, &mut archive, &root, how, warn)
            }
            Contents::Stream(archive, excludes) => {
                let links = &ArchiveLinks::default();
                let how = ArchiveOptions { links, excludes, options, is_layer: false };
                import_archive(fs, archive, &root, how, warn)
            }
        }
    }
}

/// An error of a copy that is not about the image.
pub(crate) fn copy_failure(error: &CopyError) -> Failure {
    Failure::failed(match error {
        CopyError::Archive(error) => error.explain(PIPED),
        other => other.to_string(),
    })
}
