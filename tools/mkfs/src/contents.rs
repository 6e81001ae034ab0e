//! What an image is filled with.

use std::path::Path;

use betr_cli::Failure;
use betr_copy::{CopyError, ImportOptions, Imported, import_archive, import_tree, root_attributes};
use betr_core::fs::{Attributes, Fs};
use betr_host::{Excludes, Source, Survey};
use betr_tar::{Archive, TarError};

/// How another program's archive is handed over.
const PIPED: &str = "betr mkfs IMAGE SIZE -d -";

/// A tree of the host, or an archive.
pub(crate) enum Contents {
    Tree(Source, Survey),
    /// With a survey, if it can be read twice.
    Archive(Box<Archive>, Excludes, Option<Survey>),
}

impl Contents {
    /// Opens a directory or an archive; `-` is an archive on standard input.
    pub fn open(path: &Path, excludes: Excludes, caches: bool) -> Result<Contents, Failure> {
        let bad = |error: TarError| Failure::failed(error.explain(PIPED));
        let archive = |archive: Result<Archive, TarError>, excludes, survey| {
            if caches {
                return Err(Failure::usage("--exclude-caches is not for archives"));
            }
            Ok(Contents::Archive(Box::new(archive.map_err(bad)?), excludes, survey))
        };
        if path.as_os_str() == "-" {
            return archive(Archive::stdin(), excludes, None);
        }
        match std::fs::metadata(path) {
            Ok(meta) if meta.is_file() => {
                let mut first = Archive::open(path).map_err(bad)?;
                let survey = betr_tar::survey(&mut first, &excludes).map_err(bad)?;
                archive(Archive::open(path), excludes, Some(survey))
            }
            Ok(meta) if !meta.is_dir() => archive(Archive::open(path), excludes, None),
            // What cannot be looked at is reported as a tree that cannot be opened.
            _ => {
                let host = |error: betr_host::HostError| Failure::failed(error.to_string());
                let source = Source::open(path).map_err(host)?;
                let source = source.exclude_caches(caches).exclude(excludes);
                let survey = source.survey().map_err(host)?;
                Ok(Contents::Tree(source, survey))
            }
        }
    }

    /// What there is, as far as that is known before it is read.
    pub fn survey(&self) -> Option<&Survey> {
        match self {
            Contents::Tree(_, survey) => Some(survey),
            Contents::Archive(_, _, survey) => survey.as_ref(),
        }
    }

    /// What the root of an image begins with; `empty` is for one that nothing is said of.
    pub fn root(&self, options: ImportOptions, empty: Attributes) -> Result<Attributes, CopyError> {
        match self {
            Contents::Tree(source, _) => root_attributes(&source.root()?, options),
            // An archive may say it later.
            Contents::Archive(..) => Ok(empty),
        }
    }

    /// Fills the empty file system. `warn` is told what could not be kept.
    pub fn import(
        &mut self,
        fs: &mut Fs,
        options: ImportOptions,
        warn: &mut dyn FnMut(String),
    ) -> Result<Imported, CopyError> {
        let root = fs.root()?;
        match self {
            Contents::Tree(source, survey) => import_tree(fs, source, survey, &root, options),
            Contents::Archive(archive, excludes, _) => {
                import_archive(fs, archive, &root, excludes, options, warn)
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
