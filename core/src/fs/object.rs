//! Handles of objects in use.
//!
//! A handle stays valid when directories above it are moved. It has a handle of its directory, and its name there; the
//! key of the inode follows from these. The root of a zone needs neither. All handles of an object share one entry,
//! which has the current inode.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use smallvec::SmallVec;

use crate::format::{FileType, Inode, MetaKey};
use crate::ids::{Ino, ZoneId};

/// A handle of an object.
#[derive(Clone)]
pub struct Object(Arc<Entry>);

struct Entry {
    ino: Ino,
    kind: FileType,
    state: Mutex<State>,
    live: Arc<Live>,
}

/// The mutable state of an object.
#[derive(Clone)]
pub(super) struct State {
    pub inode: Arc<Inode>,
    /// Bytes of its stored blocks, if they have been counted since the inode changed.
    stored_bytes: Option<u64>,
    pub place: Placed,
    /// Whether it is an orphan: it is deleted with its last handle.
    pub orphan: bool,
}

/// The place of an object.
#[derive(Clone)]
pub(super) struct Placed {
    /// The zone that it is the root of.
    pub zone: Option<ZoneId>,
    /// Its directory, and its name there. May be unknown for the root of a zone.
    pub up: Option<(Object, Arc<[u8]>)>,
}

impl Placed {
    /// The key of the inode of what is here.
    pub(super) fn key(&self) -> MetaKey {
        let mut names = SmallVec::<[Arc<[u8]>; 8]>::new();
        let mut at = self.clone();
        loop {
            if let Some(zone) = at.zone {
                names.reverse();
                return MetaKey::at(zone, &names);
            }
            let (directory, name) = at.up.expect("what is no zone's root is in a directory");
            names.push(name);
            at = directory.placed();
        }
    }
}

/// The entries of all objects with handles.
#[derive(Default)]
pub(super) struct Live {
    entries: Mutex<HashMap<Ino, Weak<Entry>>>,
    /// Orphans whose last handle has been dropped.
    gone: Mutex<Vec<Ino>>,
}

impl Live {
    /// The handle of an object, if it has one.
    pub(super) fn get(&self, ino: Ino) -> Option<Object> {
        lock(&self.entries).get(&ino).and_then(Weak::upgrade).map(Object)
    }

    /// A handle of an object. If it has one already, that is returned, and only its place may be updated.
    pub(super) fn enter(self: &Arc<Live>, inode: Inode, place: Placed) -> Object {
        let (ino, kind) = (inode.ino, inode.kind);
        let mut entries = lock(&self.entries);
        if let Some(entry) = entries.get(&ino).and_then(Weak::upgrade) {
            drop(entries);
            return Object(entry);
        }
        let state = State { inode: Arc::new(inode), stored_bytes: None, place, orphan: false };
        let entry = Entry { ino, kind, state: Mutex::new(state), live: self.clone() };
        let entry = Arc::new(entry);
        entries.insert(ino, Arc::downgrade(&entry));
        Object(entry)
    }

    /// Whether there are orphans whose last handle has been dropped.
    pub(super) fn has_gone(&self) -> bool {
        !lock(&self.gone).is_empty()
    }

    /// Takes the orphans whose last handle has been dropped.
    pub(super) fn take_gone(&self) -> Vec<Ino> {
        std::mem::take(&mut lock(&self.gone))
    }

    /// Adds orphans to be deleted later.
    pub(super) fn add_gone(&self, inos: Vec<Ino>) {
        lock(&self.gone).extend(inos);
    }

    /// All objects with handles.
    pub(super) fn all(&self) -> Vec<Object> {
        lock(&self.entries).values().filter_map(Weak::upgrade).map(Object).collect()
    }
}

impl Object {
    /// Its inode number.
    pub fn ino(&self) -> Ino {
        self.0.ino
    }

    /// Its type.
    pub fn kind(&self) -> FileType {
        self.0.kind
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.0.kind == FileType::Directory
    }

    /// Its current inode.
    pub fn inode(&self) -> Arc<Inode> {
        self.state().inode.clone()
    }

    /// The current key of its inode.
    pub fn place(&self) -> MetaKey {
        self.placed().key()
    }

    /// The zone that it is the root of.
    pub fn zone(&self) -> Option<ZoneId> {
        self.state().place.zone
    }

    /// Its directory and name there, as far as known. For an object with several names, those by which it was found
    /// last.
    pub fn up(&self) -> Option<(Object, Arc<[u8]>)> {
        self.state().place.up.clone()
    }

    /// Whether it is an orphan: it has no name.
    pub fn is_orphan(&self) -> bool {
        self.state().orphan
    }

    /// Whether it is a handle of this file system.
    pub(super) fn is_of(&self, live: &Arc<Live>) -> bool {
        Arc::ptr_eq(&self.0.live, live)
    }

    /// Number of its handles.
    pub(super) fn handles(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    pub(super) fn placed(&self) -> Placed {
        self.state().place.clone()
    }

    pub(super) fn put(&self, place: Placed) {
        // The replaced place may hold the last handle of a directory.
        let old = std::mem::replace(&mut self.state().place, place);
        drop(old);
    }

    /// Forgets its directory, which may be gone: the root of a zone does not need it.
    pub(super) fn forget_up(&self) {
        let zone = self.zone();
        self.put(Placed { zone, up: None });
    }

    pub(super) fn set_inode(&self, inode: Inode) {
        let mut state = self.state();
        state.inode = Arc::new(inode);
        state.stored_bytes = None;
    }

    /// Bytes of its stored blocks, if they have been counted since the last change.
    pub(super) fn stored_bytes(&self) -> Option<u64> {
        self.state().stored_bytes
    }

    /// Stores the byte count of its stored blocks.
    pub(super) fn set_stored_bytes(&self, bytes: u64) {
        self.state().stored_bytes = Some(bytes);
    }

    pub(super) fn set_orphan(&self) {
        self.state().orphan = true;
    }

    /// The object and the directories above it, up to the root of its zone.
    pub(super) fn chain(&self) -> Vec<Object> {
        let mut chain = vec![self.clone()];
        while let Placed { zone: None, up: Some((directory, _)) } = chain[chain.len() - 1].placed()
        {
            chain.push(directory);
        }
        chain
    }

    /// The root of its zone, or the highest known directory.
    pub(super) fn root_of_zone(&self) -> Object {
        let mut at = self.clone();
        loop {
            let above = match &at.state().place {
                Placed { zone: None, up: Some((directory, _)) } => Some(directory.clone()),
                _ => None,
            };
            match above {
                Some(directory) => at = directory,
                None => return at,
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Object) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Object {}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Object").field("ino", &self.0.ino).field("place", &self.place()).finish()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut entries = lock(&self.live.entries);
        // Another entry may have replaced this one.
        if entries.get(&self.ino).is_some_and(|entry| entry.strong_count() == 0) {
            entries.remove(&self.ino);
        }
        drop(entries);
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.orphan {
            lock(&self.live.gone).push(self.ino);
        }
        // Parent directories whose last handle this was are dropped in a loop, not by recursion.
        let mut up = state.place.up.take();
        while let Some((Object(entry), _)) = up {
            up = Arc::into_inner(entry).and_then(|mut entry| {
                let state = entry.state.get_mut().unwrap_or_else(PoisonError::into_inner);
                state.place.up.take()
            });
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
