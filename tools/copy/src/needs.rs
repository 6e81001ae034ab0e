//! Counts what the contents of a new image need, before it is created.
//!
//! The count depends only on the bytes of files: so the size of an image does not depend on the holes of its source.

use std::collections::BTreeMap;

use rayon::prelude::*;

use crate::host::{Excludes, Kind, Links, Meta, Source};
use crate::tar::{Archive, ArchiveLinks, Member, What};
use betr_core::fs::components;

use crate::fill::NextPiece;
use crate::put::trimmed;
use crate::{CopyError, join, tally};

const BLOCK: usize = 4096;
/// Files of up to 64 KiB count with their full size: opening each one would take longer than a few zero blocks are
/// worth.
const SMALL: u64 = 64 << 10;
/// 64 directories are counted at once, on all cores. Not measured.
const AT_ONCE: usize = 64;
/// The size of reads, in bytes.
const PIECE: usize = 1 << 20;

/// Counts for the contents of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Names below the root.
    pub names: u64,
    /// The total length of these names, in bytes.
    pub names_bytes: u64,
    /// Blocks of files that are not all zeros, in bytes.
    pub file_bytes: u64,
    /// Bytes of symbolic link targets, and of names and values of extended attributes.
    pub other_bytes: u64,
}

impl Needs {
    /// Counts a tree, without excluded objects, and finds its hard links.
    pub fn of_tree(source: &Source) -> Result<(Needs, Links), CopyError> {
        let (mut counter, mut links) = (Counter::default(), Links::default());
        let root = source.root()?;
        links.note(&root);
        counter.object(&root);
        if root.kind != Kind::Directory {
            counter.tree_file(source, b"", &root)?;
            return Ok((counter.needs, links));
        }
        let mut waiting = vec![Vec::new()];
        while !waiting.is_empty() {
            let some = waiting.split_off(waiting.len().saturating_sub(AT_ONCE));
            let counted: Vec<_> =
                some.into_par_iter().map(|path| Counted::of(source, path)).collect();
            for counted in counted {
                let Counted { needs, below, linked } = counted?;
                counter.needs = counter.needs.plus(needs);
                waiting.extend(below);
                for (path, meta) in linked {
                    if links.note(&meta) == 1 {
                        counter.object(&meta);
                        counter.tree_file(source, &path, &meta)?;
                    }
                }
            }
        }
        Ok((counter.needs, links))
    }

    /// Counts the members of an archive, which is read to its end. Members that later ones replace count, too.
    pub fn of_archive(archive: &mut Archive, excludes: &Excludes) -> Result<Needs, CopyError> {
        let mut counter = Counter::default();
        // Excluded files: a hard link to one of them may not be excluded.
        let mut excluded: BTreeMap<Vec<u8>, Needs> = BTreeMap::new();
        while let Some(Member { path, what, .. }) = archive.next_member()? {
            let is_excluded = excludes.covers(&path);
            if !is_excluded {
                counter.name(components(&path).last().unwrap_or_default());
            }
            let before = counter.needs;
            match what {
                What::Object(meta) => {
                    counter.object(&meta);
                    counter.file(&meta, &mut |piece| Ok(archive.next_segment(piece)?))?;
                    if is_excluded {
                        excluded.insert(path, counter.needs.without(before));
                        counter.needs = before;
                    }
                }
                What::Link { to, .. } if !is_excluded => {
                    if let Some(needs) = excluded.remove(&to) {
                        counter.needs = counter.needs.plus(needs);
                    }
                }
                What::Link { .. } => {}
            }
        }
        Ok(counter.needs)
    }
}

/// The hard links of an archive, which is read to its end.
pub fn archive_links(
    archive: &mut Archive,
    excludes: &Excludes,
) -> Result<ArchiveLinks, CopyError> {
    let mut links = ArchiveLinks::default();
    while let Some(member) = archive.next_member()? {
        links.note(&member, excludes);
    }
    Ok(links)
}

impl Needs {
    fn plus(self, more: Needs) -> Needs {
        Needs {
            names: self.names + more.names,
            names_bytes: self.names_bytes + more.names_bytes,
            file_bytes: self.file_bytes.saturating_add(more.file_bytes),
            other_bytes: self.other_bytes + more.other_bytes,
        }
    }

    fn without(self, before: Needs) -> Needs {
        Needs {
            file_bytes: self.file_bytes - before.file_bytes,
            other_bytes: self.other_bytes - before.other_bytes,
            ..Needs::default()
        }
    }
}

/// What the entries of a directory need, without what is below its subdirectories.
struct Counted {
    needs: Needs,
    /// The subdirectories.
    below: Vec<Vec<u8>>,
    /// Objects with several names, of which only the names are counted.
    linked: Vec<(Vec<u8>, Meta)>,
}

impl Counted {
    fn of(source: &Source, above: Vec<u8>) -> Result<Counted, CopyError> {
        let (mut counter, mut below, mut linked) = (Counter::default(), Vec::new(), Vec::new());
        for entry in source.list(&above)? {
            counter.name(&entry.name);
            let (path, meta) = (join(&above, &entry.name), entry.meta);
            if meta.kind != Kind::Directory && meta.nlink > 1 {
                linked.push((path, meta));
                continue;
            }
            counter.object(&meta);
            counter.tree_file(source, &path, &meta)?;
            if meta.kind == Kind::Directory {
                below.push(path);
            }
        }
        Ok(Counted { needs: counter.needs, below, linked })
    }
}

#[derive(Default)]
struct Counter {
    needs: Needs,
    buffer: Vec<u8>,
}

impl Counter {
    fn name(&mut self, name: &[u8]) {
        tally::object();
        self.needs.names += 1;
        self.needs.names_bytes += name.len() as u64;
    }

    /// Counts an object without its name and the contents of a file.
    fn object(&mut self, meta: &Meta) {
        let bytes: usize = meta.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.needs.other_bytes += bytes as u64;
        if let Kind::Symlink(target) = &meta.kind {
            self.needs.other_bytes += target.len() as u64;
        }
    }

    fn tree_file(&mut self, source: &Source, path: &[u8], meta: &Meta) -> Result<(), CopyError> {
        if meta.kind != Kind::File || meta.size <= SMALL {
            return self.file(meta, &mut |_| Ok(None));
        }
        let mut reader = source.reader(path, meta)?;
        self.file(meta, &mut |piece| Ok(reader.next_segment(piece)?))
    }

    /// Counts the contents of a file.
    fn file(&mut self, meta: &Meta, next: &mut NextPiece<'_>) -> Result<(), CopyError> {
        if meta.kind != Kind::File {
            return Ok(());
        }
        let bytes = match meta.size {
            0..=SMALL => meta.size.next_multiple_of(BLOCK as u64),
            _ => self.stored(next)?,
        };
        self.needs.file_bytes = self.needs.file_bytes.saturating_add(bytes);
        Ok(())
    }

    /// Bytes of the blocks that are not all zeros. Pieces come in increasing order.
    fn stored(&mut self, next: &mut NextPiece<'_>) -> Result<u64, CopyError> {
        self.buffer.resize(PIECE, 0);
        let mut blocks = 0;
        // The first block that has not been counted.
        let mut free = 0;
        while let Some((offset, len)) = next(&mut self.buffer)? {
            tally::bytes(len);
            let (mut at, mut data) = (offset, &self.buffer[..len]);
            while !data.is_empty() {
                let block = at / BLOCK as u64;
                let now = data.len().min(BLOCK - (at % BLOCK as u64) as usize);
                if block >= free && trimmed(&data[..now]) > 0 {
                    blocks += 1;
                    free = block + 1;
                }
                (at, data) = (at + now as u64, &data[now..]);
            }
        }
        Ok(blocks * BLOCK as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_count_however_they_come() {
        let mut contents = vec![0; 10 * BLOCK];
        for byte in [5, 4095, 8192, 5 * 4096 + 100, 10 * 4096 - 1] {
            contents[byte] = 1;
        }
        for step in [512, 1000, 4096, 5000, 40_960] {
            for holes in [false, true] {
                let mut pieces = contents
                    .chunks(step)
                    .enumerate()
                    .filter(|(_, piece)| !holes || trimmed(piece) > 0);
                let mut next = |buffer: &mut [u8]| {
                    Ok(pieces.next().map(|(at, piece)| {
                        buffer[..piece.len()].copy_from_slice(piece);
                        ((at * step) as u64, piece.len())
                    }))
                };
                assert_eq!(Counter::default().stored(&mut next).unwrap(), 4 * BLOCK as u64);
            }
        }
    }
}
