//! Compares two file systems, path by path: two images, or two moments of one.
//!
//! Both trees are walked in step, in the order of names. Two states of one image share nodes, or one follows from the
//! other by log records. Then the keys in which they may differ can be known, and only their objects are read.

mod entries;
mod places;
mod touched;

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::ops::{ControlFlow, Range};

use betr_core::error::{Error, Result};
use betr_core::format::limits::FILE_BLOCK;
use betr_core::format::{FileType, data_key};
use betr_core::fs::{DirEntry, Fs, Listing, Object, Visit, Walk, data_prefix};
use betr_core::ids::Ino;
use betr_core::node::RangeSet;
pub use entries::{Differing, DifferingEntries};
use places::Places;
pub use touched::{Touched, touched};

/// 32 blocks, a quarter of a leaf of the usual size: for fewer, no leaf is prefetched, which would take longer.
const FEW_BLOCKS: u64 = 32;

/// A path that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The path, from the root on.
    pub path: Vec<u8>,
    /// The difference.
    pub what: What,
}

/// How a path differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It is in the second only.
    Added(FileType),
    /// It is in the first only.
    Removed(FileType),
    /// It is in both, with these differences.
    Changed(Vec<Aspect>),
}

/// A property in which two objects differ: first and second value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aspect {
    /// The type.
    Type(FileType, FileType),
    /// The permissions.
    Mode(u32, u32),
    /// User and group.
    Owner((u32, u32), (u32, u32)),
    /// The number of links.
    Links(u32, u32),
    /// The size in bytes.
    Size(u64, u64),
    /// The time of the last modification of contents.
    Modified,
    /// Major and minor number.
    Device((u32, u32), (u32, u32)),
    /// The target of a symbolic link.
    Target,
    /// An extended attribute, by its name.
    Xattr(Vec<u8>),
    /// The contents: the first differing byte, and the number of differing blocks.
    Contents {
        /// The first byte.
        first: u64,
        /// Blocks of 4096 bytes.
        blocks: u64,
    },
}

/// One of the two file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first.
    First,
    /// The second.
    Second,
}

/// An error that ended a comparison early.
#[derive(Debug)]
pub struct Unread {
    /// The file system.
    pub side: Side,
    /// The error.
    pub error: Error,
}

/// Compares everything below the roots of two file systems; `show` may stop it.
///
/// `touched` are the keys in which they may differ, if known.
pub fn compare(
    a: &Fs,
    b: &Fs,
    touched: Option<&Touched>,
    show: &mut dyn FnMut(Change) -> ControlFlow<()>,
) -> Result<()> {
    compare_sides(a, b, touched, show).map_err(|unread| unread.error)
}

/// As [`compare`], for two images: an error says which of them is unreadable.
pub fn compare_sides(
    a: &Fs,
    b: &Fs,
    touched: Option<&Touched>,
    show: &mut dyn FnMut(Change) -> ControlFlow<()>,
) -> SideResult<()> {
    let (a, b) = (Half { fs: a, side: Side::First }, Half { fs: b, side: Side::Second });
    // The walk may work without the blocks that are unreadable here.
    let places = touched.and_then(|touched| Places::of(a, b, touched).ok()).flatten();
    let touched = touched.map(|[_, data]| data);
    let mut comparison = Comparison { a, b, touched, places, show, seen: HashSet::new() };
    let mut waiting = VecDeque::from([(Vec::new(), a.read(Fs::root)?, b.read(Fs::root)?)]);
    while let Some((path, x, y)) = waiting.pop_front() {
        let walked = match comparison.objects(&path, &x, &y)? {
            ControlFlow::Break(()) => return Ok(()),
            ControlFlow::Continue(()) if x.is_directory() && y.is_directory() => {
                comparison.directories(&path, &x, &y, &mut waiting)?
            }
            ControlFlow::Continue(()) => continue,
        };
        if walked.is_break() {
            break;
        }
    }
    Ok(())
}

/// The result of reading one of them.
type SideResult<T> = std::result::Result<T, Unread>;

/// One of the two file systems; errors state which.
#[derive(Clone, Copy)]
struct Half<'c> {
    fs: &'c Fs,
    side: Side,
}

impl<'c> Half<'c> {
    fn read<T>(self, read: impl FnOnce(&'c Fs) -> Result<T>) -> SideResult<T> {
        read(self.fs).map_err(|error| Unread { side: self.side, error })
    }
}

struct Comparison<'c> {
    a: Half<'c>,
    b: Half<'c>,
    /// The keys of the data index in which they may differ, if that is known.
    touched: Option<&'c RangeSet>,
    /// The places in which they may differ, if that is known.
    places: Option<Places>,
    show: &'c mut dyn FnMut(Change) -> ControlFlow<()>,
    /// Directories of the first that have been entered: corrupt references may form cycles.
    seen: HashSet<Ino>,
}

type Waiting = VecDeque<(Vec<u8>, Object, Object)>;

impl Comparison<'_> {
    fn show(&mut self, path: &[u8], what: What) -> ControlFlow<()> {
        let path = if path.is_empty() { b"/".to_vec() } else { path.to_vec() };
        (self.show)(Change { path, what })
    }

    fn objects(&mut self, path: &[u8], x: &Object, y: &Object) -> SideResult<ControlFlow<()>> {
        let aspects = self.aspects(x, y)?;
        match aspects.is_empty() {
            true => Ok(ControlFlow::Continue(())),
            false => Ok(self.show(path, What::Changed(aspects))),
        }
    }

    /// Compares the entries of a directory of both. An entry of one alone is reported with everything below;
    /// subdirectories of both are queued.
    fn directories(
        &mut self,
        path: &[u8],
        x: &Object,
        y: &Object,
        waiting: &mut Waiting,
    ) -> SideResult<ControlFlow<()>> {
        if !self.seen.insert(x.ino()) {
            return Ok(ControlFlow::Continue(()));
        }
        if let Some(places) = self.places.as_ref().filter(|_| x.place() == y.place()) {
            let names = places.names(&x.place());
            return self.named(path, (x, y), names, waiting);
        }
        let mut left = Entries::of(self.a, x)?;
        let mut right = Entries::of(self.b, y)?;
        // They are compared before the next directory, which may be far away.
        let mut both = Vec::new();
        loop {
            let order = match (&left.next, &right.next) {
                (None, None) => break,
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(x), Some(y)) => x.name.cmp(&y.name),
            };
            let (x, y) = match order {
                std::cmp::Ordering::Less => (left.take()?, None),
                std::cmp::Ordering::Greater => (None, right.take()?),
                std::cmp::Ordering::Equal => (left.take()?, right.take()?),
            };
            let name = x.as_ref().or(y.as_ref()).map_or(&[][..], |entry| &entry.name);
            let path = [path, b"/", name].concat();
            let walked = match (x, y) {
                (Some(x), Some(y)) => {
                    let (x, y) = (
                        self.a.read(|fs| fs.entry_object(x))?,
                        self.b.read(|fs| fs.entry_object(y))?,
                    );
                    match x.is_directory() && y.is_directory() {
                        true => {
                            both.push((path, x, y));
                            continue;
                        }
                        false => self.pair(&path, &x, &y)?,
                    }
                }
                (Some(x), None) => self.alone(&path, self.a, x, What::Removed)?,
                (None, Some(y)) => self.alone(&path, self.b, y, What::Added)?,
                (None, None) => break,
            };
            if walked.is_break() {
                return Ok(walked);
            }
        }
        both.into_iter().rev().for_each(|directories| waiting.push_front(directories));
        Ok(ControlFlow::Continue(()))
    }

    /// Compares some entries of a directory of both; all others are equal.
    fn named(
        &mut self,
        path: &[u8],
        (x, y): (&Object, &Object),
        names: BTreeSet<Vec<u8>>,
        waiting: &mut Waiting,
    ) -> SideResult<ControlFlow<()>> {
        let mut both = Vec::new();
        for name in names {
            let path = [path, b"/", &name].concat();
            let found =
                (self.a.read(|fs| fs.find(x, &name))?, self.b.read(|fs| fs.find(y, &name))?);
            let walked = match found {
                (Some(x), Some(y)) if x.is_directory() && y.is_directory() => {
                    both.push((path, x, y));
                    continue;
                }
                (Some(x), Some(y)) => self.pair(&path, &x, &y)?,
                (Some(x), None) => self.below(&path, self.a, x, What::Removed)?,
                (None, Some(y)) => self.below(&path, self.b, y, What::Added)?,
                (None, None) => continue,
            };
            if walked.is_break() {
                return Ok(walked);
            }
        }
        both.into_iter().rev().for_each(|directories| waiting.push_front(directories));
        Ok(ControlFlow::Continue(()))
    }

    /// Compares two objects of one name that are not both directories.
    fn pair(&mut self, path: &[u8], x: &Object, y: &Object) -> SideResult<ControlFlow<()>> {
        if !x.is_directory() && !y.is_directory() {
            return self.objects(path, x, y);
        }
        // A directory in one of them is reported with everything below.
        let gone = self.below(path, self.a, x.clone(), What::Removed)?;
        match gone {
            ControlFlow::Break(()) => Ok(gone),
            ControlFlow::Continue(()) => self.below(path, self.b, y.clone(), What::Added),
        }
    }

    fn alone(
        &mut self,
        path: &[u8],
        half: Half<'_>,
        entry: DirEntry,
        what: fn(FileType) -> What,
    ) -> SideResult<ControlFlow<()>> {
        match entry.kind {
            FileType::Directory => {
                self.below(path, half, half.read(|fs| fs.entry_object(entry))?, what)
            }
            kind => Ok(self.show(path, what(kind))),
        }
    }

    /// Reports an object and everything below it.
    fn below(
        &mut self,
        path: &[u8],
        half: Half<'_>,
        object: Object,
        what: fn(FileType) -> What,
    ) -> SideResult<ControlFlow<()>> {
        if !object.is_directory() {
            return Ok(self.show(path, what(object.kind())));
        }
        let mut walk = Walk::new(object);
        while let Some(visit) = half.read(|fs| walk.next(fs))? {
            let (below, kind) = match visit {
                Visit::Enter(below, directory) => (below, directory.kind()),
                Visit::Entry(below, entry) => (below, entry.kind),
                Visit::Leave(..) | Visit::Again(..) => continue,
            };
            let path = match below.is_empty() {
                true => path.to_vec(),
                false => [path, b"/", &below].concat(),
            };
            if self.show(&path, what(kind)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn aspects(&self, x: &Object, y: &Object) -> SideResult<Vec<Aspect>> {
        let (i, j) = (x.inode(), y.inode());
        let mut aspects = Vec::new();
        let mut differ = |aspect: Aspect, is_different: bool| {
            if is_different {
                aspects.push(aspect);
            }
        };
        let is_directory = i.kind == FileType::Directory;
        differ(Aspect::Type(i.kind, j.kind), i.kind != j.kind);
        differ(Aspect::Mode(i.perm, j.perm), i.perm != j.perm);
        let owners = ((i.uid, i.gid), (j.uid, j.gid));
        differ(Aspect::Owner(owners.0, owners.1), owners.0 != owners.1);
        differ(Aspect::Links(i.links, j.links), i.links != j.links && !is_directory);
        differ(Aspect::Size(i.size, j.size), i.size != j.size && !is_directory);
        differ(Aspect::Modified, i.modified != j.modified);
        differ(Aspect::Device(i.device, j.device), i.device != j.device);
        differ(Aspect::Target, i.target != j.target);
        let (mut left, mut right) =
            (self.a.read(|fs| fs.xattrs(x))?, self.b.read(|fs| fs.xattrs(y))?);
        left.retain(|attribute| match right.iter().position(|other| other == attribute) {
            Some(at) => {
                right.swap_remove(at);
                false
            }
            None => true,
        });
        let mut names: Vec<Vec<u8>> = left.into_iter().chain(right).map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        aspects.extend(names.into_iter().map(Aspect::Xattr));
        if i.kind == FileType::Regular && j.kind == FileType::Regular {
            aspects.extend(self.contents(x, y)?);
        }
        Ok(aspects)
    }

    /// The block ranges in which the contents of a file may differ.
    fn blocks_that_may_differ(&self, x: &Object, y: &Object) -> Vec<Range<u64>> {
        let (before, after) = (data_prefix(x), data_prefix(y));
        let Some(touched) = self.touched.filter(|_| before == after) else {
            let whole = 0..u64::MAX;
            return vec![whole];
        };
        let (lo, hi) = (data_key(&after, 0), data_key(&after, u64::MAX).successor());
        let touched = touched.clip(&lo, Some(&hi)).into_iter();
        let end = x.inode().size.max(y.inode().size).div_ceil(FILE_BLOCK as u64);
        let block = |key: &[u8]| block_at(&after, key).min(end);
        touched.map(|range| block(&range.lo)..block(&range.hi)).collect()
    }

    fn contents(&self, x: &Object, y: &Object) -> SideResult<Option<Aspect>> {
        let mut found = None;
        for blocks in self.blocks_that_may_differ(x, y) {
            self.blocks(x, y, blocks, &mut found)?;
        }
        Ok(found.map(|(first, blocks)| Aspect::Contents { first, blocks }))
    }

    /// Compares some blocks of a file, and updates the first differing byte and the number of differing blocks.
    fn blocks(
        &self,
        x: &Object,
        y: &Object,
        blocks: Range<u64>,
        found: &mut Option<(u64, u64)>,
    ) -> SideResult<()> {
        let of = |half: Half<'_>, object: &Object| match blocks.end - blocks.start <= FEW_BLOCKS {
            true => half.fs.few_blocks(object, blocks.clone()),
            false => half.fs.blocks_within(object, blocks.start, blocks.end),
        };
        let (mut left, mut right) = (of(self.a, x), of(self.b, y));
        let mut first = || self.a.read(|fs| fs.next_block(&mut left));
        let mut second = || self.b.read(|fs| fs.next_block(&mut right));
        let mut next = (first()?, second()?);
        loop {
            let at = match &next {
                (None, None) => break,
                (Some((at, _)), None) | (None, Some((at, _))) => *at,
                (Some((x, _)), Some((y, _))) => *x.min(y),
            };
            let here = |block: &Option<(u64, bytes::Bytes)>| match block {
                Some((start, bytes)) if *start == at => bytes.clone(),
                _ => bytes::Bytes::new(),
            };
            let (a, b) = (here(&next.0), here(&next.1));
            if let Some(byte) = first_difference(&a, &b) {
                let (_, blocks) = found.get_or_insert((at + byte as u64, 0));
                *blocks += 1;
            }
            if next.0.as_ref().is_some_and(|(start, _)| *start == at) {
                next.0 = first()?;
            }
            if next.1.as_ref().is_some_and(|(start, _)| *start == at) {
                next.1 = second()?;
            }
        }
        Ok(())
    }
}

/// The first block of a file whose key is not less than `key`; `key` is in the file's key range.
fn block_at(prefix: &[u8], key: &[u8]) -> u64 {
    let number = key.get(prefix.len()..).unwrap_or_default();
    let mut bytes = [0; 8];
    let len = number.len().min(8);
    bytes[..len].copy_from_slice(&number[..len]);
    u64::from_be_bytes(bytes).saturating_add(u64::from(number.len() > 8))
}

/// The first differing byte of two blocks; the shorter one is extended by zeros.
fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    debug_assert!(a.len() <= FILE_BLOCK && b.len() <= FILE_BLOCK);
    if a == b {
        return None;
    }
    let at = |bytes: &[u8], byte: usize| bytes.get(byte).copied().unwrap_or(0);
    (0..a.len().max(b.len())).find(|byte| at(a, *byte) != at(b, *byte))
}

/// The entries of a directory, with the next one known.
struct Entries<'f> {
    half: Half<'f>,
    listing: Listing,
    next: Option<DirEntry>,
}

impl<'f> Entries<'f> {
    fn of(half: Half<'f>, directory: &Object) -> SideResult<Entries<'f>> {
        let mut listing = half.read(|fs| fs.listing(directory, None))?;
        let next = half.read(|fs| fs.next_entry(&mut listing))?;
        Ok(Entries { half, listing, next })
    }

    fn take(&mut self) -> SideResult<Option<DirEntry>> {
        let next = self.half.read(|fs| fs.next_entry(&mut self.listing))?;
        Ok(std::mem::replace(&mut self.next, next))
    }
}
