//! Checks leaves and passes on their entries at the same time, so that each is read once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use super::leaf::EntrySink;
use super::nodes::{Nodes, Pass};
use super::schema::{Entry, Files, NextLeaf, Source, Stored};
use crate::error::Result;
use crate::format::{Action, Key};
use crate::ids::*;
use crate::store::Store;
use crate::tree::{Sum, lay_over, pending};

/// Passes on the entries of leaves that verify; none of others.
pub(super) struct Checked<'c, 'e> {
    pass: &'c Pass<'e>,
    nodes: Mutex<&'c mut Nodes>,
    is_whole: AtomicBool,
}

impl<'c, 'e> Checked<'c, 'e> {
    /// Checks leaves of `pass` that own their blocks. Findings go to `nodes`.
    pub(super) fn new(pass: &'c Pass<'e>, nodes: &'c mut Nodes) -> Checked<'c, 'e> {
        Checked { pass, nodes: Mutex::new(nodes), is_whole: AtomicBool::new(true) }
    }

    /// Whether all leaves so far verified.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Relaxed)
    }

    fn check(&self, id: NodeId, told: &mut EntrySink<'_>) {
        let found = self.pass.node(id).map(|node| self.pass.check_leaf(node, told));
        if !found.as_ref().is_some_and(|(_, found)| found.is_whole) {
            self.is_whole.store(false, Ordering::Relaxed);
        }
        if let Some((checker, found)) = found {
            let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
            nodes.add(checker, found.summary);
        }
    }
}

impl Source for Checked<'_, '_> {
    fn announce(&self, leaf: &NextLeaf) {
        if let Some((_, entry)) = self.pass.node(leaf.id) {
            self.pass.announce(entry);
        }
    }

    fn metadata(&self, store: &Store, leaf: NextLeaf) -> Result<Vec<Entry>> {
        let pending = pending(store, TreeId::Metadata, &leaf.bounds)?;
        if pending.is_empty() {
            let mut entries = Vec::new();
            self.check(leaf.id, &mut |key, value, _| entries.push(Entry::new(key, value)));
            return Ok(entries);
        }
        let mut stored: Vec<(Key, Bytes)> = Vec::new();
        self.check(leaf.id, &mut |key, value, _| stored.push((key, value)));
        let entries = lay_over(stored, &pending, Action::apply).into_iter();
        Ok(entries.map(|(key, value)| Entry::new(key, value)).collect())
    }

    fn data(&self, store: &Store, leaf: NextLeaf) -> Result<Vec<Stored>> {
        let pending = pending(store, TreeId::Data, &leaf.bounds)?;
        if pending.is_empty() {
            let mut files = Files::default();
            self.check(leaf.id, &mut |key, _, len| files.add(&key, len));
            return Ok(files.into_stored(&leaf.bounds));
        }
        let mut stored = Vec::new();
        self.check(leaf.id, &mut |key, _, len| stored.push((key, len)));
        let after = |action: &Action, len: Option<&usize>| action.apply_len(len.copied());
        let keys = lay_over(stored, &pending, after).into_iter();
        Ok(keys.map(|(key, len)| Stored::Block(key, len)).collect())
    }
}
