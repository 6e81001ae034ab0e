//! Counting a tree before it is read.
//!
//! One pass over all names, without reading data or extended attributes, that
//! says how large an image must be and which names are hard links of each
//! other. The tree may change afterwards; a survey is an estimate then, and
//! whoever relies on it has to notice.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, StatxFlags, statx};

use crate::error::Result;
use crate::meta::device;
use crate::source::{Source, no_follow};
use crate::walk;

/// The block that [`Survey::block_bytes`] is rounded to.
const BLOCK: u64 = 4096;

/// What is in a tree, the root counted.
///
/// An object with several names in the tree is counted once, its names each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Everything else: symbolic links, devices, pipes and sockets.
    pub others: u64,
    /// Names below the root.
    pub names: u64,
    /// The length of those names together.
    pub names_bytes: u64,
    /// The size of all regular files together, holes counted.
    pub data_bytes: u64,
    /// The same with each file rounded up to whole blocks of 4096 bytes: what
    /// the data take where no two files share a block.
    pub block_bytes: u64,
    /// What of `data_bytes` the host has room reserved for: less where files
    /// have holes or are compressed, never more.
    pub allocated_bytes: u64,
    /// The length of the targets of all symbolic links together.
    pub symlink_bytes: u64,
    /// For each object other than a directory that has more than one name on
    /// its file system, by device and number: how many of them are in the tree.
    pub links: HashMap<(u64, u64), u64>,
}

impl Survey {
    /// Counts one object other than a directory.
    fn add(&mut self, dir: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<FileType> {
        let mask = StatxFlags::TYPE
            | StatxFlags::NLINK
            | StatxFlags::INO
            | StatxFlags::SIZE
            | StatxFlags::BLOCKS;
        let stat = statx(dir, name, no_follow(), mask)?;
        let kind = FileType::from_raw_mode(stat.stx_mode.into());
        if kind == FileType::Directory {
            return Ok(kind);
        }
        if stat.stx_nlink > 1 {
            let names = self.links.entry((device(&stat), stat.stx_ino)).or_default();
            *names += 1;
            if *names > 1 {
                return Ok(kind);
            }
        }
        match kind {
            FileType::RegularFile => {
                self.files += 1;
                self.data_bytes = self.data_bytes.saturating_add(stat.stx_size);
                let blocks = stat.stx_size.div_ceil(BLOCK).saturating_mul(BLOCK);
                self.block_bytes = self.block_bytes.saturating_add(blocks);
                let allocated = stat.stx_blocks.saturating_mul(512).min(stat.stx_size);
                self.allocated_bytes = self.allocated_bytes.saturating_add(allocated);
            }
            FileType::Symlink => {
                self.others += 1;
                self.symlink_bytes += stat.stx_size;
            }
            _ => self.others += 1,
        }
        Ok(kind)
    }
}

/// Counts the whole of `source`.
pub(crate) fn take(source: &Source) -> Result<Survey> {
    let mut survey = Survey::default();
    if let Some((dir, name)) = source.single() {
        survey.add(dir, name).map_err(|errno| source.io("look at", b"", errno))?;
        return Ok(survey);
    }
    // Paths and not open directories, of which a deep tree would take too many.
    let mut waiting = vec![Vec::new()];
    while let Some(path) = waiting.pop() {
        survey.directories += 1;
        let dir = source.open_directory(&path)?;
        source.for_each_name(dir.as_fd(), &path, |name, _, kind| {
            let name = name.to_bytes();
            survey.names += 1;
            survey.names_bytes += name.len() as u64;
            let kind = match kind {
                FileType::Directory => kind,
                _ => survey
                    .add(dir.as_fd(), name)
                    .map_err(|errno| source.io("look at", &walk::join(&path, name), errno))?,
            };
            if kind == FileType::Directory {
                waiting.push(walk::join(&path, name));
            }
            Ok(())
        })?;
    }
    Ok(survey)
}
