//! Handles: what names an object while it is in use.
//!
//! A handle stays good whatever becomes of the directories above it. It knows the handle of the directory
//! that it was found in, and its name there; the key of its inode follows from that. What is the root of a
//! zone needs neither. There is one entry for an object, however many handles there are, and it has the
//! inode as it is now.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

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

/// What of an object may change.
#[derive(Clone)]
pub(super) struct State {
    pub inode: Arc<Inode>,
    /// What its blocks take as long as the inode is this one, if somebody has counted them.
    stored_bytes: Option<u64>,
    pub place: Placed,
    /// Whether it has no name any more: it goes with the last handle.
    pub orphan: bool,
}

/// Where an object is.
#[derive(Clone)]
pub(super) struct Placed {
    /// The zone that it is the root of.
    pub zone: Option<ZoneId>,
    /// A directory that it is in, and its name there. That of a zone's root may be unknown.
    pub up: Option<(Object, Arc<[u8]>)>,
}

/// The entries of all objects that have handles.
#[derive(Default)]
pub(super) struct Live {
    entries: Mutex<HashMap<Ino, Weak<Entry>>>,
    /// Orphans whose last handle has gone.
    gone: Mutex<Vec<Ino>>,
}

impl Live {
    /// The handle of an object that has one.
    pub(super) fn get(&self, ino: Ino) -> Option<Object> {
        lock(&self.entries).get(&ino).and_then(Weak::upgrade).map(Object)
    }

    /// A handle of an object. If it has one already, that counts, and only where it is may be news.
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

    /// Whether there are orphans whose last handle has gone.
    pub(super) fn has_gone(&self) -> bool {
        !lock(&self.gone).is_empty()
    }

    /// Orphans whose last handle has gone.
    pub(super) fn take_gone(&self) -> Vec<Ino> {
        std::mem::take(&mut lock(&self.gone))
    }

    /// Orphans that are to be deleted another time.
    pub(super) fn add_gone(&self, inos: Vec<Ino>) {
        lock(&self.gone).extend(inos);
    }

    /// Everything that has a handle.
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

    /// Its inode, as it is now.
    pub fn inode(&self) -> Arc<Inode> {
        self.state().inode.clone()
    }

    /// The key of its inode, as it is now.
    pub fn place(&self) -> MetaKey {
        let mut path = Vec::new();
        let mut at = self.clone();
        loop {
            let Placed { zone, up } = at.placed();
            if let Some(zone) = zone {
                path.reverse();
                return MetaKey { zone, path, xattr: None };
            }
            let (directory, name) = up.expect("what is no zone's root is in a directory");
            path.push(name.to_vec());
            at = directory;
        }
    }

    /// The zone that it is the root of.
    pub fn zone(&self) -> Option<ZoneId> {
        self.state().place.zone
    }

    /// The directory that it is in, and its name there, as far as that is known: that of an object with several
    /// names is the one that it was found under last.
    pub fn up(&self) -> Option<(Object, Arc<[u8]>)> {
        self.state().place.up.clone()
    }

    /// Whether it has no name any more.
    pub fn is_orphan(&self) -> bool {
        self.state().orphan
    }

    /// Whether it is a handle of the file system that these are of.
    pub(super) fn is_of(&self, live: &Arc<Live>) -> bool {
        Arc::ptr_eq(&self.0.live, live)
    }

    /// How many handles there are.
    pub(super) fn handles(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    pub(super) fn placed(&self) -> Placed {
        self.state().place.clone()
    }

    pub(super) fn put(&self, place: Placed) {
        // What is replaced may be the last handle of a directory.
        let old = std::mem::replace(&mut self.state().place, place);
        drop(old);
    }

    /// Where it was found may not be there any more: what is the root of a zone does not need it.
    pub(super) fn forget_up(&self) {
        let zone = self.zone();
        self.put(Placed { zone, up: None });
    }

    pub(super) fn set_inode(&self, inode: Inode) {
        let mut state = self.state();
        state.inode = Arc::new(inode);
        state.stored_bytes = None;
    }

    /// What its blocks take, if somebody has counted them since the last change.
    pub(super) fn stored_bytes(&self) -> Option<u64> {
        self.state().stored_bytes
    }

    /// Somebody has counted what its blocks take.
    pub(super) fn set_stored_bytes(&self, bytes: u64) {
        self.state().stored_bytes = Some(bytes);
    }

    pub(super) fn set_orphan(&self) {
        self.state().orphan = true;
    }

    /// It, and the directories above it, up to the root of its zone.
    pub(super) fn chain(&self) -> Vec<Object> {
        let mut chain = vec![self.clone()];
        while let Placed { zone: None, up: Some((directory, _)) } = chain[chain.len() - 1].placed()
        {
            chain.push(directory);
        }
        chain
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
        // Another may have come in its place.
        if entries.get(&self.ino).is_some_and(|entry| entry.strong_count() == 0) {
            entries.remove(&self.ino);
        }
        drop(entries);
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.orphan {
            lock(&self.live.gone).push(self.ino);
        }
        // Directories above whose last handle this was go one after another, not one within another.
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
