//! The model: a file system in memory that takes the same steps.
//!
//! Clones share nodes and blocks, so that a state can be kept for each operation. Contents are stored as the blocks
//! that are not all zero, each without trailing zeros, since the model does not care how zeros are stored. Times and
//! inode numbers are not modelled.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::{Path, Step};
use betr_core::error::Refusal;
use betr_core::format::limits::{
    FILE_BLOCK, FILE_MAX, NAME_MAX, SYMLINK_MAX, VALUE_MAX, XATTR_NAME_MAX,
};
use betr_core::format::{FileType, is_hold_name, is_name};
use betr_core::fs::{Allocate, Over, components};

const BLOCK: u64 = FILE_BLOCK as u64;
/// The node of the root directory.
pub(super) const ROOT: usize = 0;

/// A file system in memory.
#[derive(Clone, Debug)]
pub struct Model {
    nodes: BTreeMap<usize, Arc<ModelNode>>,
    next: usize,
    /// Nodes with handles.
    held: Vec<usize>,
    /// The state of each snapshot.
    snapshots: BTreeMap<String, Arc<Model>>,
    /// Number of snapshots taken so far.
    taken: u64,
}

/// An object of the model.
#[derive(Clone, Debug)]
pub(super) struct ModelNode {
    pub kind: FileType,
    pub perm: u32,
    pub links: u32,
    /// Whether it has or had several links.
    pub shared: bool,
    pub size: u64,
    pub blocks: BTreeMap<u64, Arc<[u8]>>,
    pub target: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Arc<[u8]>>,
    pub entries: BTreeMap<Vec<u8>, usize>,
}

type Answer<T> = Result<T, Refusal>;

impl Default for Model {
    fn default() -> Model {
        Model::new()
    }
}

impl Model {
    /// A new file system: an empty root directory.
    pub fn new() -> Model {
        let root = Arc::new(ModelNode::new(FileType::Directory));
        Model {
            nodes: BTreeMap::from([(ROOT, root)]),
            next: ROOT + 1,
            held: Vec::new(),
            snapshots: BTreeMap::new(),
            taken: 0,
        }
    }

    /// Takes a step. Steps that are no operations change nothing.
    pub fn apply(&mut self, step: &Step) -> Answer<()> {
        match step {
            Step::Mkdir(path) => self.make(path, FileType::Directory, b""),
            Step::Create(path) => self.make(path, FileType::Regular, b""),
            Step::Symlink(path, target) => self.make(path, FileType::Symlink, target),
            Step::Mkfifo(path) => self.make(path, FileType::Fifo, b""),
            Step::Write { path, offset, len, fill } => self.write(path, *offset, &fill.bytes(*len)),
            Step::Truncate(path, size) => self.truncate(path, *size),
            Step::CopyBlocks { from, to, first, count } => {
                self.copy_blocks(from, to, *first..first + count)
            }
            Step::CloneDirectory(from, to) => self.clone_directory(from, to),
            Step::Unlink(path) => self.unlink(path),
            Step::Rmdir(path) => self.rmdir(path),
            Step::Rename(from, to) => self.rename(from, to, Over::Replace),
            Step::RenameNew(from, to) => self.rename(from, to, Over::Refuse),
            Step::Exchange(from, to) => self.rename(from, to, Over::Exchange),
            Step::RemoveTree(path) => self.remove_tree(path),
            Step::Allocate { path, what, offset, len, keep_size } => {
                self.allocate(path, *what, *offset, *len, *keep_size)
            }
            Step::Link(from, to) => self.link(from, to),
            Step::SetXattr { path, name, len, fill } => {
                self.set_xattr(path, name, fill.bytes(*len).into())
            }
            Step::RemoveXattr(path, name) => self.remove_xattr(path, name),
            Step::Chmod(path, perm) => {
                let at = self.resolve(path)?;
                self.edit(at).perm = perm & 0o7777;
                Ok(())
            }
            Step::Carve(path) => self.resolve(path).map(drop),
            Step::Hold(path) => {
                let at = self.resolve(path)?;
                self.held.push(at);
                Ok(())
            }
            Step::Release => {
                self.release();
                Ok(())
            }
            Step::Snapshot(name) => self.snapshot(name),
            Step::DropSnapshot(name) => match self.snapshots.remove(name) {
                Some(_) => Ok(()),
                None => Err(Refusal::NotFound),
            },
            Step::RollBack(name) => self.roll_back(name),
            Step::Sync | Step::Checkpoint | Step::Reopen | Step::Crash(_) => Ok(()),
        }
    }

    fn snapshot(&mut self, name: &str) -> Answer<()> {
        if !is_hold_name(name) {
            return Err(Refusal::Invalid);
        }
        if self.snapshots.contains_key(name) {
            return Err(Refusal::Exists);
        }
        self.taken += 1;
        let kept = Model { held: Vec::new(), snapshots: BTreeMap::new(), ..self.clone() };
        self.snapshots.insert(name.to_owned(), Arc::new(kept));
        Ok(())
    }

    fn roll_back(&mut self, name: &str) -> Answer<()> {
        let back = match self.snapshots.get(name) {
            Some(kept) => Model::clone(kept),
            None if is_hold_name(name) => return Err(Refusal::NotFound),
            None => return Err(Refusal::Invalid),
        };
        self.snapshots.retain(|_, kept| kept.taken <= back.taken);
        let (snapshots, taken) = (std::mem::take(&mut self.snapshots), self.taken);
        *self = Model { snapshots, taken, ..back };
        Ok(())
    }

    /// The state of each snapshot, by name.
    pub(super) fn snapshots(&self) -> &BTreeMap<String, Arc<Model>> {
        &self.snapshots
    }

    /// Drops all handles.
    pub(super) fn release(&mut self) {
        self.held.clear();
    }

    /// Copies an object with everything below it. Several names of one object become several names of its copy.
    pub(super) fn copy(&mut self, from: &[u8], to: &[u8]) -> Answer<()> {
        let original = self.resolve(from)?;
        let (directory, name) = self.resolve_parent(to)?;
        check_name(name)?;
        if self.is_directory(original) && self.is_below(directory, original) {
            return Err(Refusal::Invalid);
        }
        if self.find(directory, name)?.is_some() {
            return Err(Refusal::Exists);
        }
        let mut copies = BTreeMap::new();
        let mut waiting = vec![(original, directory, name.to_vec())];
        while let Some((original, directory, name)) = waiting.pop() {
            if let Some(copy) = copies.get(&original) {
                self.edit(*copy).links += 1;
                self.put(directory, &name, *copy);
                continue;
            }
            let mut node = self.node(original).clone();
            (node.shared, node.links) = (node.links > 1, ModelNode::new(node.kind).links);
            let copy = self.next;
            copies.insert(original, copy);
            waiting.extend(
                std::mem::take(&mut node.entries).into_iter().map(|(name, at)| (at, copy, name)),
            );
            self.nodes.insert(copy, Arc::new(node));
            self.put(directory, &name, copy);
            self.next += 1;
        }
        Ok(())
    }

    /// The paths of all objects, or of all directories; the root first.
    pub fn paths(&self, directories: bool) -> Vec<Path> {
        let mut found = vec![(b"/".to_vec(), ROOT)];
        let mut at = 0;
        while at < found.len() {
            let (path, node) = found[at].clone();
            for (name, child) in &self.node(node).entries {
                if !directories || self.node(*child).kind == FileType::Directory {
                    found.push((join(&path, name), *child));
                }
            }
            at += 1;
        }
        found.into_iter().map(|(path, _)| path).collect()
    }

    /// Up to `len` bytes of the regular file at `path`, from `offset` on.
    pub fn read(&self, path: &[u8], offset: u64, len: usize) -> Answer<Vec<u8>> {
        let at = self.resolve(path)?;
        let node = self.regular(at)?;
        let end = offset.saturating_add(len as u64).min(node.size);
        if offset >= end {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; (end - offset) as usize];
        for (number, block) in node.blocks.range(offset / BLOCK..end.div_ceil(BLOCK)) {
            let start = number * BLOCK;
            let from = start.max(offset);
            let to = (start + block.len() as u64).min(end);
            if from < to {
                let source = &block[(from - start) as usize..(to - start) as usize];
                bytes[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
            }
        }
        Ok(bytes)
    }

    pub(super) fn node(&self, at: usize) -> &ModelNode {
        self.nodes.get(&at).expect("an entry leads to a node")
    }

    fn edit(&mut self, at: usize) -> &mut ModelNode {
        Arc::make_mut(self.nodes.get_mut(&at).expect("an entry leads to a node"))
    }

    fn is_directory(&self, at: usize) -> bool {
        self.node(at).kind == FileType::Directory
    }

    fn find(&self, directory: usize, name: &[u8]) -> Answer<Option<usize>> {
        if !self.is_directory(directory) {
            return Err(Refusal::NotADirectory);
        }
        check_name(name)?;
        Ok(self.node(directory).entries.get(name).copied())
    }

    fn lookup(&self, directory: usize, name: &[u8]) -> Answer<usize> {
        self.find(directory, name)?.ok_or(Refusal::NotFound)
    }

    fn resolve(&self, path: &[u8]) -> Answer<usize> {
        components(path).try_fold(ROOT, |at, name| self.lookup(at, name))
    }

    fn resolve_parent<'p>(&self, path: &'p [u8]) -> Answer<(usize, &'p [u8])> {
        let mut names: Vec<&[u8]> = components(path).collect();
        let last = names.pop().ok_or(Refusal::Invalid)?;
        let parent = names.into_iter().try_fold(ROOT, |at, name| self.lookup(at, name))?;
        Ok((parent, last))
    }

    /// A regular file, or the refusal.
    fn regular(&self, at: usize) -> Answer<&ModelNode> {
        let node = self.node(at);
        match node.kind {
            FileType::Regular => Ok(node),
            FileType::Directory => Err(Refusal::IsADirectory),
            _ => Err(Refusal::Invalid),
        }
    }

    fn make(&mut self, path: &[u8], kind: FileType, target: &[u8]) -> Answer<()> {
        let (parent, name) = self.resolve_parent(path)?;
        check_name(name)?;
        if self.find(parent, name)?.is_some() {
            return Err(Refusal::Exists);
        }
        if kind == FileType::Symlink {
            match target.len() {
                0 => return Err(Refusal::NotFound),
                1..=SYMLINK_MAX => {}
                _ => return Err(Refusal::NameTooLong),
            }
        }
        let node = ModelNode { target: target.to_vec(), ..ModelNode::new(kind) };
        self.nodes.insert(self.next, Arc::new(node));
        self.put(parent, name, self.next);
        self.next += 1;
        Ok(())
    }

    fn put(&mut self, directory: usize, name: &[u8], at: usize) {
        let counts = u32::from(self.is_directory(at));
        let directory = self.edit(directory);
        directory.links += counts;
        directory.entries.insert(name.to_vec(), at);
    }

    /// Removes an entry; its object stays.
    fn take(&mut self, directory: usize, name: &[u8]) {
        let Some(at) = self.edit(directory).entries.remove(name) else { return };
        self.edit(directory).links -= u32::from(self.is_directory(at));
    }

    /// Removes one link; without links the object is removed.
    fn drop_link(&mut self, at: usize) {
        let node = self.edit(at);
        if node.kind == FileType::Directory || node.links == 1 {
            self.nodes.remove(&at);
        } else {
            node.links -= 1;
        }
    }

    fn write(&mut self, path: &[u8], offset: u64, data: &[u8]) -> Answer<()> {
        let at = self.resolve(path)?;
        self.regular(at)?;
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_MAX);
        let end = end.ok_or(Refusal::TooBig)?;
        if data.is_empty() {
            return Ok(());
        }
        let node = self.edit(at);
        let mut done = 0;
        while done < data.len() {
            let here = offset + done as u64;
            let within = (here % BLOCK) as usize;
            let len = (FILE_BLOCK - within).min(data.len() - done);
            node.change_block(here / BLOCK, |block| {
                block.resize(block.len().max(within + len), 0);
                block[within..within + len].copy_from_slice(&data[done..done + len]);
            });
            done += len;
        }
        node.size = node.size.max(end);
        Ok(())
    }

    fn copy_blocks(&mut self, from: &[u8], to: &[u8], blocks: Range<u64>) -> Answer<()> {
        let (from, to) = (self.resolve(from)?, self.resolve(to)?);
        self.regular(from)?;
        self.regular(to)?;
        let source = self.node(from).clone();
        let end = source.size.min(blocks.end * BLOCK);
        if blocks.start * BLOCK >= end {
            return Ok(());
        }
        let node = self.edit(to);
        for number in blocks.start..end.div_ceil(BLOCK) {
            let len = BLOCK.min(end - number * BLOCK) as usize;
            let bytes = source.blocks.get(&number).map_or(&[][..], |block| block);
            node.change_block(number, |block| {
                block.resize(block.len().max(len), 0);
                block[..bytes.len()].copy_from_slice(bytes);
                block[bytes.len()..len].fill(0);
            });
        }
        node.size = node.size.max(end);
        Ok(())
    }

    fn clone_directory(&mut self, from: &[u8], to: &[u8]) -> Answer<()> {
        let from = self.resolve(from)?;
        let (parent, name) = self.resolve_parent(to)?;
        check_name(name)?;
        if !self.is_directory(from) {
            return Err(Refusal::NotADirectory);
        }
        if self.find(parent, name)?.is_some() {
            return Err(Refusal::Exists);
        }
        if self.is_below(parent, from) {
            return Err(Refusal::Invalid);
        }
        // The clones of all that is below, each once.
        let mut clones = BTreeMap::from([(from, self.next)]);
        let mut waiting = vec![from];
        while let Some(at) = waiting.pop() {
            let mut node = ModelNode::clone(self.node(at));
            if node.kind != FileType::Directory {
                // Names elsewhere are none of the clone's.
                node.links = 0;
            }
            for below in node.entries.values_mut() {
                let next = self.next + clones.len();
                *below = *clones.entry(*below).or_insert_with_key(|original| {
                    waiting.push(*original);
                    next
                });
            }
            self.nodes.insert(clones[&at], Arc::new(node));
        }
        for clone in clones.values() {
            for below in self.node(*clone).entries.clone().values() {
                if !self.is_directory(*below) {
                    self.edit(*below).links += 1;
                }
            }
        }
        self.put(parent, name, clones[&from]);
        self.next += clones.len();
        Ok(())
    }

    fn truncate(&mut self, path: &[u8], size: u64) -> Answer<()> {
        let at = self.resolve(path)?;
        self.regular(at)?;
        if size > FILE_MAX {
            return Err(Refusal::TooBig);
        }
        let node = self.edit(at);
        drop(node.blocks.split_off(&size.div_ceil(BLOCK)));
        if !size.is_multiple_of(BLOCK) && node.blocks.contains_key(&(size / BLOCK)) {
            node.change_block(size / BLOCK, |block| block.truncate((size % BLOCK) as usize));
        }
        node.size = size;
        Ok(())
    }

    fn unlink(&mut self, path: &[u8]) -> Answer<()> {
        let (parent, name) = self.resolve_parent(path)?;
        let at = self.lookup(parent, name)?;
        if self.is_directory(at) {
            return Err(Refusal::IsADirectory);
        }
        self.take(parent, name);
        self.drop_link(at);
        Ok(())
    }

    fn rmdir(&mut self, path: &[u8]) -> Answer<()> {
        let (parent, name) = self.resolve_parent(path)?;
        let at = self.lookup(parent, name)?;
        if !self.is_directory(at) {
            return Err(Refusal::NotADirectory);
        }
        if !self.node(at).entries.is_empty() {
            return Err(Refusal::NotEmpty);
        }
        self.take(parent, name);
        self.drop_link(at);
        Ok(())
    }

    fn remove_tree(&mut self, path: &[u8]) -> Answer<()> {
        let (parent, name) = self.resolve_parent(path)?;
        let at = self.lookup(parent, name)?;
        if !self.is_directory(at) {
            return self.unlink(path);
        }
        let mut below = vec![at];
        let mut done = 0;
        while let Some(at) = below.get(done) {
            below.extend(self.node(*at).entries.values().copied().collect::<Vec<_>>());
            done += 1;
        }
        if below.iter().any(|at| self.held.contains(at) && !self.node(*at).shared) {
            return Err(Refusal::Busy);
        }
        self.take(parent, name);
        below.into_iter().for_each(|at| self.drop_link(at));
        Ok(())
    }

    fn allocate(
        &mut self,
        path: &[u8],
        what: Allocate,
        offset: u64,
        len: u64,
        keep_size: bool,
    ) -> Answer<()> {
        let at = self.resolve(path)?;
        let size = self.regular(at)?.size;
        if len == 0 || (what == Allocate::Punch && !keep_size) {
            return Err(Refusal::Invalid);
        }
        let end = offset.checked_add(len).filter(|end| *end <= FILE_MAX).ok_or(Refusal::TooBig)?;
        let node = self.edit(at);
        let cleared = offset..end.min(size);
        if what != Allocate::Reserve && !cleared.is_empty() {
            for number in cleared.start / BLOCK..cleared.end.div_ceil(BLOCK) {
                let start = number * BLOCK;
                let from = cleared.start.max(start) - start;
                let to = (cleared.end - start).min(BLOCK);
                node.change_block(number, |block| {
                    let to = block.len().min(to as usize);
                    block[(from as usize).min(to)..to].fill(0);
                });
            }
        }
        if !keep_size {
            node.size = size.max(end);
        }
        Ok(())
    }

    fn rename(&mut self, from: &[u8], to: &[u8], over: Over) -> Answer<()> {
        let (from, name) = self.resolve_parent(from)?;
        let (to, new_name) = self.resolve_parent(to)?;
        check_name(new_name)?;
        let moved = self.lookup(from, name)?;
        let replaced = self.find(to, new_name)?;
        match over {
            Over::Refuse if replaced.is_some() => return Err(Refusal::Exists),
            Over::Exchange if replaced.is_none() => return Err(Refusal::NotFound),
            _ => {}
        }
        if replaced == Some(moved) {
            return Ok(());
        }
        if self.is_directory(moved) && self.is_below(to, moved) {
            return Err(Refusal::Invalid);
        }
        if let (Over::Replace, Some(other)) = (over, replaced) {
            if self.is_directory(other) && self.is_below(from, other) {
                return Err(Refusal::NotEmpty);
            }
            match (self.is_directory(moved), self.is_directory(other)) {
                (true, false) => return Err(Refusal::NotADirectory),
                (false, true) => return Err(Refusal::IsADirectory),
                (true, true) if !self.node(other).entries.is_empty() => {
                    return Err(Refusal::NotEmpty);
                }
                _ => {}
            }
        }
        if let Some(other) = replaced {
            let exchange = over == Over::Exchange;
            if exchange && self.is_directory(other) && self.is_below(from, other) {
                return Err(Refusal::Invalid);
            }
            self.take(to, new_name);
            match exchange {
                true => {
                    self.take(from, name);
                    self.put(from, name, other);
                    self.put(to, new_name, moved);
                    return Ok(());
                }
                false => self.drop_link(other),
            }
        }
        self.take(from, name);
        self.put(to, new_name, moved);
        Ok(())
    }

    fn is_below(&self, at: usize, ancestor: usize) -> bool {
        let mut waiting = vec![ancestor];
        while let Some(node) = waiting.pop() {
            if node == at {
                return true;
            }
            waiting.extend(self.node(node).entries.values());
        }
        false
    }

    fn link(&mut self, from: &[u8], to: &[u8]) -> Answer<()> {
        let at = self.resolve(from)?;
        let (parent, name) = self.resolve_parent(to)?;
        check_name(name)?;
        if self.is_directory(at) {
            return Err(Refusal::NotPermitted);
        }
        if self.find(parent, name)?.is_some() {
            return Err(Refusal::Exists);
        }
        let node = self.edit(at);
        (node.links, node.shared) = (node.links + 1, true);
        self.put(parent, name, at);
        Ok(())
    }

    fn set_xattr(&mut self, path: &[u8], name: &[u8], value: Arc<[u8]>) -> Answer<()> {
        let at = self.resolve(path)?;
        check_xattr_name(name)?;
        if value.len() > VALUE_MAX {
            return Err(Refusal::TooBig);
        }
        self.edit(at).xattrs.insert(name.to_vec(), value);
        Ok(())
    }

    fn remove_xattr(&mut self, path: &[u8], name: &[u8]) -> Answer<()> {
        let at = self.resolve(path)?;
        check_xattr_name(name)?;
        match self.edit(at).xattrs.remove(name) {
            Some(_) => Ok(()),
            None => Err(Refusal::NoAttribute),
        }
    }
}

impl ModelNode {
    fn new(kind: FileType) -> ModelNode {
        ModelNode {
            kind,
            perm: if kind == FileType::Symlink { 0o777 } else { 0o600 },
            links: if kind == FileType::Directory { 2 } else { 1 },
            shared: false,
            size: 0,
            blocks: BTreeMap::new(),
            target: Vec::new(),
            xattrs: BTreeMap::new(),
            entries: BTreeMap::new(),
        }
    }

    fn change_block(&mut self, number: u64, change: impl FnOnce(&mut Vec<u8>)) {
        let mut block = self.blocks.get(&number).map_or_else(Vec::new, |block| block.to_vec());
        change(&mut block);
        match without_zeros(&block) {
            [] => drop(self.blocks.remove(&number)),
            bytes => drop(self.blocks.insert(number, bytes.into())),
        }
    }
}

/// The bytes without trailing zeros.
pub(super) fn without_zeros(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &bytes[..end]
}

/// The path of an entry of a directory.
pub(super) fn join(directory: &[u8], name: &[u8]) -> Path {
    match directory {
        b"/" => [b"/", name].concat(),
        _ => [directory, b"/", name].concat(),
    }
}

fn check_name(name: &[u8]) -> Answer<()> {
    match name.len() {
        len if len > NAME_MAX => Err(Refusal::NameTooLong),
        _ if is_name(name) => Ok(()),
        _ => Err(Refusal::Invalid),
    }
}

fn check_xattr_name(name: &[u8]) -> Answer<()> {
    match name.len() {
        len if len > XATTR_NAME_MAX => Err(Refusal::NameTooLong),
        0 => Err(Refusal::Invalid),
        _ if name.contains(&0) => Err(Refusal::Invalid),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
