//! Compares a file system with the model.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::model::{Model, ROOT, join, without_zeros};
use betr_core::error::Result;
use betr_core::format::limits::FILE_BLOCK;
use betr_core::format::{FileType, Key, block_after, data_key};
use betr_core::fs::{Fs, Object, data_prefix};
use betr_core::ids::{Ino, Time};
use betr_core::text::{Printable, printable};
use betr_core::volume::{EndOfGroupValue, Mode, OpenOptions, Volume};

impl Model {
    /// The first difference between the file system and the model, by path: types, permissions, links, sizes, contents,
    /// extended attributes, targets, and which names refer to one object. Includes all snapshots, by their names.
    pub fn difference(&self, fs: &Fs) -> Result<Option<String>> {
        let found = self.difference_but(fs, &[])?;
        if found.is_some() || (self.snapshots().is_empty() && !has_snapshots(fs)) {
            return Ok(found);
        }
        let names = snapshots_of(fs)?;
        if !names.iter().eq(self.snapshots().keys()) {
            let expected: Vec<&String> = self.snapshots().keys().collect();
            return Ok(Some(format!("snapshots: expected {expected:?}, found {names:?}")));
        }
        for (name, model) in self.snapshots() {
            let device = fs.volume().store().disk.device().clone();
            let usual = OpenOptions::new(Mode::Checkpoint, Box::new(|| 0));
            let options = OpenOptions { hold: Some(name.clone()), ..usual };
            let (volume, _) = Volume::open(device, options)?;
            let kept = Fs::open(volume, Box::new(Time::default));
            if let Some(what) = model.difference_but(&kept, &[])? {
                return Ok(Some(format!("snapshot '{name}': {what}")));
            }
        }
        Ok(None)
    }

    /// As [`Model::difference`], ignoring the blocks of late-bound values that are shown as of the end of their log
    /// group.
    pub fn difference_but(
        &self,
        fs: &Fs,
        end_of_group: &[EndOfGroupValue],
    ) -> Result<Option<String>> {
        let end_of_group = end_of_group.iter().flat_map(|end_of_group| {
            (0..end_of_group.count).filter_map(|at| block_after(&end_of_group.key, at))
        });
        let mut walk = Walk {
            model: self,
            fs,
            end_of_group: end_of_group.collect(),
            known: HashMap::new(),
            inos: HashMap::new(),
        };
        let mut waiting = vec![(b"/".to_vec(), fs.root()?, ROOT)];
        while let Some((path, object, at)) = waiting.pop() {
            let found = match walk.known.get(&at) {
                Some(ino) if *ino == object.ino() => continue,
                Some(_) => Some("is not the object that another name of it leads to".into()),
                None => walk.object(&path, &object, at, &mut waiting)?,
            };
            if let Some(what) = found {
                return Ok(Some(format!("{}: {what}", Printable(&path))));
            }
        }
        Ok(None)
    }
}

fn has_snapshots(fs: &Fs) -> bool {
    fs.volume().superblock().holds.held > 0
}

/// The names of all snapshots, in order.
pub(super) fn snapshots_of(fs: &Fs) -> Result<Vec<String>> {
    let mut names: Vec<String> = fs.volume().holds()?.into_iter().map(|hold| hold.name).collect();
    names.sort();
    Ok(names)
}

struct Walk<'w> {
    model: &'w Model,
    fs: &'w Fs,
    /// Keys whose values are ignored.
    end_of_group: HashSet<Key>,
    /// The inode number of each visited node of the model.
    known: HashMap<usize, Ino>,
    inos: HashMap<Ino, usize>,
}

type Waiting = Vec<(Vec<u8>, Object, usize)>;

impl Walk<'_> {
    /// The difference of an object that is visited for the first time.
    fn object(
        &mut self,
        path: &[u8],
        object: &Object,
        at: usize,
        waiting: &mut Waiting,
    ) -> Result<Option<String>> {
        self.known.insert(at, object.ino());
        if self.inos.insert(object.ino(), at).is_some() {
            return Ok(Some("is one object with another name".into()));
        }
        let (node, inode) = (self.model.node(at), object.inode());
        let size = match node.kind {
            FileType::Symlink => node.target.len() as u64,
            _ => node.size,
        };
        let differ =
            |what: &str, expected: &dyn std::fmt::Display, found: &dyn std::fmt::Display| {
                Ok(Some(format!("{what}: expected {expected}, found {found}")))
            };
        if inode.kind != node.kind {
            return differ("type", &node.kind.name(), &inode.kind.name());
        }
        if inode.perm != node.perm {
            let octal = |perm| format!("{perm:o}");
            return differ("permissions", &octal(node.perm), &octal(inode.perm));
        }
        if inode.links != node.links {
            return differ("links", &node.links, &inode.links);
        }
        if inode.size != size && node.kind != FileType::Directory {
            return differ("size", &size, &inode.size);
        }
        if inode.target != node.target {
            return differ("target", &printable(&node.target), &printable(&inode.target));
        }
        if let Some(what) = self.xattrs(object, at)? {
            return Ok(Some(what));
        }
        match node.kind {
            FileType::Regular => self.contents(object, at),
            FileType::Directory => self.entries(path, object, at, waiting),
            _ => Ok(None),
        }
    }

    fn xattrs(&self, object: &Object, at: usize) -> Result<Option<String>> {
        let mut expected = self.model.node(at).xattrs.iter();
        for (name, value) in self.fs.xattrs(object)? {
            match expected.next() {
                Some((other, wanted)) if *other == name && **wanted == *value => {}
                Some((other, _)) if *other == name => {
                    return Ok(Some(format!("attribute {}: another value", Printable(&name))));
                }
                Some((other, _)) if *other < name => {
                    return Ok(Some(format!("attribute {} is missing", Printable(other))));
                }
                _ => return Ok(Some(format!("attribute {} is too much", Printable(&name)))),
            }
        }
        Ok(expected.next().map(|(name, _)| format!("attribute {} is missing", Printable(name))))
    }

    fn contents(&self, object: &Object, at: usize) -> Result<Option<String>> {
        let differ = |offset: u64, what: &str| Ok(Some(format!("contents at {offset}: {what}")));
        let prefix = data_prefix(object);
        let matters = |block: u64| {
            self.end_of_group.is_empty() || !self.end_of_group.contains(&data_key(&prefix, block))
        };
        let mut expected = self.model.node(at).blocks.iter().filter(|(block, _)| matters(**block));
        let mut blocks = self.fs.blocks(object);
        while let Some((offset, value)) = self.fs.next_block(&mut blocks)? {
            let value = without_zeros(&value);
            if value.is_empty() || !matters(offset / FILE_BLOCK as u64) {
                continue;
            }
            match expected.next() {
                Some((block, wanted)) if block * FILE_BLOCK as u64 == offset => {
                    if **wanted != *value {
                        return differ(offset + first_difference(wanted, value), "other bytes");
                    }
                }
                Some((block, _)) if block * (FILE_BLOCK as u64) < offset => {
                    return differ(block * FILE_BLOCK as u64, "a block is missing");
                }
                _ => return differ(offset, "a block is too much"),
            }
        }
        match expected.next() {
            Some((block, _)) => differ(block * FILE_BLOCK as u64, "a block is missing"),
            None => Ok(None),
        }
    }

    fn entries(
        &self,
        path: &[u8],
        object: &Object,
        at: usize,
        waiting: &mut Waiting,
    ) -> Result<Option<String>> {
        let mut expected = self.model.node(at).entries.iter();
        for entry in self.fs.list(object)? {
            match expected.next() {
                Some((name, child)) if *name == entry.name => {
                    let path = join(path, name);
                    waiting.push((path, self.fs.entry_object(entry)?, *child));
                }
                Some((name, _)) if *name < entry.name => {
                    return Ok(Some(format!("entry {} is missing", Printable(name))));
                }
                _ => return Ok(Some(format!("entry {} is too much", Printable(&entry.name)))),
            }
        }
        Ok(expected.next().map(|(name, _)| format!("entry {} is missing", Printable(name))))
    }
}

/// The first differing byte of two different blocks.
fn first_difference(a: &Arc<[u8]>, b: &[u8]) -> u64 {
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    same as u64
}
