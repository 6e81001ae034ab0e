//! Imports a tar archive into an image.
//!
//! An existing object with the name of a member is replaced, as tar does: a directory keeps its entries, and gets new
//! attributes.

use crate::host::{Excludes, Kind};
use crate::tar::{Archive, ArchiveLinks, Member, What};
use betr_core::fs::{Fs, Object};
use betr_core::text::Brief;

use crate::fill::{Clash, Data, Fill, Making};
use crate::{CopyError, ImportOptions, Imported};

/// Options of an import from an archive.
pub struct ArchiveOptions<'o> {
    /// Its hard links, if they are known before it is read.
    pub links: &'o ArchiveLinks,
    /// Patterns of members that are left out.
    pub excludes: &'o Excludes,
    /// Owners and times.
    pub options: ImportOptions,
    /// Whether it is a layer of a container image, in which whiteouts remove existing objects.
    pub is_layer: bool,
}

/// Imports the members of `archive`, except excluded ones, into `root`, a directory of the image. An empty `root`
/// that no member describes gets owner and group 0, as the options map them. Existing objects are replaced, as tar
/// does. `warn` receives warnings about metadata that could not be kept.
pub fn import_archive(
    fs: &mut Fs,
    archive: &mut Archive,
    root: &Object,
    how: ArchiveOptions<'_>,
    warn: &mut dyn FnMut(String),
) -> Result<Imported, CopyError> {
    let ArchiveOptions { links, excludes, options, is_layer } = how;
    let is_new = fs.list(root)?.is_empty();
    let clash = if is_layer { Clash::Layer } else { Clash::Replace };
    let fill = Fill::new(fs, root.clone(), clash, options);
    let mut unpack = Unpack { fill, archive, links, excludes, root_is_known: false };
    unpack.fill.put.done.directories += 1;
    while let Some(member) = unpack.archive.next_member()? {
        unpack.member(member, warn)?;
    }
    if is_new && !unpack.root_is_known {
        unpack.fill.own_root()?;
    }
    unpack.fill.end()?;
    Ok(unpack.fill.put.done)
}

struct Unpack<'u> {
    fill: Fill<'u>,
    archive: &'u mut Archive,
    links: &'u ArchiveLinks,
    excludes: &'u Excludes,
    /// Whether a member described the root.
    root_is_known: bool,
}

impl Unpack<'_> {
    fn member(&mut self, member: Member, warn: &mut dyn FnMut(String)) -> Result<(), CopyError> {
        let Member { mut path, what, warnings } = member;
        let links = self.links.of(&path);
        let mut shared = links.is_some();
        if self.excludes.covers(&path) {
            // If it has a hard link that is not excluded, it is created under that name.
            let Some(links) = links else { return Ok(()) };
            path.clone_from(&links.first);
            shared = links.count > 1;
        }
        if self.fill.is_whiteout(&path)? {
            return Ok(());
        }
        for warning in &warnings {
            warn(format!("{}: '{}': {warning}", self.archive.name(), Brief(&path)));
        }
        match what {
            What::Object(meta) if path.is_empty() => {
                self.root_is_known = true;
                self.fill.set_root(&meta)
            }
            What::Object(meta) => {
                let Unpack { fill, archive, .. } = self;
                let shared = shared && meta.kind != Kind::Directory;
                let making = Making { path: &path, meta: &meta, shared };
                let mut next = |piece: &mut [u8]| Ok(archive.next_segment(piece)?);
                fill.object(making, Data::Pieces(&mut next)).map(drop)
            }
            What::Link { to, size, modified } => {
                let object = self.target(&path, &to)?;
                let Unpack { fill, archive, .. } = self;
                fill.link(&path, &object, modified)?;
                match size {
                    0 => Ok(()),
                    _ => fill.rewrite(&path, size, &object, &mut |piece| {
                        Ok(archive.next_segment(piece)?)
                    }),
                }
            }
        }
    }

    /// The object that a hard link at `path` refers to.
    fn target(&self, path: &[u8], to: &[u8]) -> Result<Object, CopyError> {
        let is_excluded = self.excludes.covers(to);
        let to = match self.links.of(to).filter(|_| is_excluded) {
            Some(links) => &links.first,
            None => to,
        };
        let link = format!("is a hard link to '{}'", Brief(to));
        match self.fill.resolve(path, to)? {
            Some(object) if !object.is_directory() => Ok(object),
            Some(_) => Err(CopyError::unfit(path, format!("{link}, a directory"))),
            None if is_excluded => {
                let why = "which is excluded: its contents are known only where the archive is a file, \
                           which can be read twice";
                Err(CopyError::unfit(path, format!("{link}, {why}")))
            }
            None => Err(CopyError::unfit(path, format!("{link}, which does not come before it"))),
        }
    }
}
