//! The inodes that the kernel references, each with its lookup count, and the open handles.
//!
//! An inode keeps its object while its lookup count is above 0. An object that loses its last name while it is not
//! open is deleted at once; only its attributes stay, for requests that still arrive. Otherwise every deleted file
//! would first become an orphan, and be deleted in a second step.

use std::collections::HashMap;
use std::sync::Arc;

use betr_core::format::{FileType, Inode};
use betr_core::fs::Object;
use betr_core::ids::Ino;
use parking_lot::Mutex;

use crate::directory::OpenDirectory;
use crate::errno::{Answer, Errno};

/// All known inodes and all open handles.
#[derive(Default)]
pub(crate) struct Inodes(Mutex<Tables>);

#[derive(Default)]
struct Tables {
    inodes: HashMap<Ino, Tracked>,
    open: HashMap<u64, Arc<Open>>,
    next_handle: u64,
}

struct Tracked {
    state: State,
    /// Lookups minus those that FORGET requests have returned.
    lookups: u64,
    /// Open handles.
    opens: u64,
    /// Whether a reply with attributes of the directory was sent since the last change of it.
    told: bool,
}

enum State {
    Live(Object),
    /// It has no name and is not open; its last attributes.
    Gone(Arc<Inode>),
    /// The volume was rolled back after the lookup.
    Stale,
}

/// An open file or directory.
pub(crate) struct Open {
    pub object: Object,
    /// Opened with `O_NOATIME`: reading leaves the time of access unchanged.
    pub noatime: bool,
    /// Whether the file may have capabilities, which a write must remove.
    pub capable: Mutex<bool>,
    /// The position in an open directory; `None` for a file.
    pub directory: Option<Mutex<OpenDirectory>>,
}

/// The state of an inode that is not stale.
pub(crate) enum Known {
    Object(Object),
    Gone(Arc<Inode>),
}

impl Inodes {
    /// Counts a lookup of an object.
    pub(crate) fn enter(&self, object: &Object) {
        let mut tables = self.0.lock();
        let fresh =
            || Tracked { state: State::Live(object.clone()), lookups: 0, opens: 0, told: true };
        let node = tables.inodes.entry(object.ino()).or_insert_with(fresh);
        node.lookups += 1;
        if let State::Stale = node.state {
            (node.state, node.told) = (State::Live(object.clone()), true);
        }
    }

    /// Takes `lookups` off the lookup count. Removes the inode at 0, and returns its object.
    pub(crate) fn forget(&self, ino: Ino, lookups: u64) -> Option<Object> {
        let mut tables = self.0.lock();
        let node = tables.inodes.get_mut(&ino)?;
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups > 0 {
            return None;
        }
        match tables.inodes.remove(&ino)?.state {
            State::Live(object) => Some(object),
            State::Gone(_) | State::Stale => None,
        }
    }

    /// The state of an inode. Fails with ESTALE if it is unknown or stale.
    pub(crate) fn known(&self, ino: Ino) -> Answer<Known> {
        match self.0.lock().inodes.get(&ino).map(|node| &node.state) {
            Some(State::Live(object)) => Ok(Known::Object(object.clone())),
            Some(State::Gone(inode)) => Ok(Known::Gone(inode.clone())),
            Some(State::Stale) | None => Err(Errno::ESTALE),
        }
    }

    /// The object of an inode; an error if it has been deleted.
    pub(crate) fn object(&self, ino: Ino) -> Answer<Object> {
        match self.known(ino)? {
            Known::Object(object) => Ok(object),
            Known::Gone(inode) => Err(gone(&inode)),
        }
    }

    /// Notes that a reply carries the attributes of a directory.
    pub(crate) fn tells(&self, ino: Ino) {
        if let Some(node) = self.0.lock().inodes.get_mut(&ino) {
            node.told = true;
        }
    }

    /// Notes a change of a directory. Returns whether a reply since the last change carries its attributes: that
    /// reply may still be in flight, and the kernel would take the old attributes for current ones.
    pub(crate) fn changed(&self, ino: Ino) -> bool {
        let mut tables = self.0.lock();
        tables.inodes.get_mut(&ino).is_some_and(|node| std::mem::take(&mut node.told))
    }

    /// Drops an object before it loses its last name, unless it is open: only its attributes stay. Returns whether it
    /// was dropped; [`Inodes::keep`] undoes it.
    pub(crate) fn let_go(&self, object: &Object) -> bool {
        let mut tables = self.0.lock();
        let Some(node) = tables.inodes.get_mut(&object.ino()) else { return false };
        if node.opens > 0 {
            return false;
        }
        let inode = Inode { links: 0, ..Inode::clone(&object.inode()) };
        let before = std::mem::replace(&mut node.state, State::Gone(Arc::new(inode)));
        drop(tables);
        drop(before);
        true
    }

    /// Restores an object after [`Inodes::let_go`], because it kept its name.
    pub(crate) fn keep(&self, object: &Object) {
        if let Some(node) = self.0.lock().inodes.get_mut(&object.ino()) {
            node.state = State::Live(object.clone());
        }
    }

    /// Opens an inode, and returns the handle.
    pub(crate) fn open(&self, ino: Ino, open: impl FnOnce(Object) -> Open) -> Answer<u64> {
        let mut tables = self.0.lock();
        let node = tables.inodes.get_mut(&ino).ok_or(Errno::ESTALE)?;
        let object = match &node.state {
            State::Live(object) => object,
            State::Gone(inode) => return Err(gone(inode)),
            State::Stale => return Err(Errno::ESTALE),
        };
        node.opens += 1;
        let open = Arc::new(open(object.clone()));
        tables.next_handle += 1;
        let handle = tables.next_handle;
        tables.open.insert(handle, open);
        Ok(handle)
    }

    /// The open file or directory of a handle.
    pub(crate) fn opened(&self, handle: u64) -> Answer<Arc<Open>> {
        self.0.lock().open.get(&handle).cloned().ok_or(Errno::EBADF)
    }

    /// Closes a handle.
    pub(crate) fn close(&self, handle: u64) {
        let mut tables = self.0.lock();
        let Some(open) = tables.open.remove(&handle) else { return };
        if let Some(node) = tables.inodes.get_mut(&open.object.ino()) {
            node.opens = node.opens.saturating_sub(1);
        }
        // Dropped outside the lock.
        drop(tables);
        drop(open);
    }

    /// Notes that an open file may now have capabilities.
    pub(crate) fn capable(&self, ino: Ino) {
        let tables = self.0.lock();
        let of_file = tables.open.values().filter(|open| open.object.ino() == ino);
        of_file.for_each(|open| *open.capable.lock() = true);
    }

    /// Makes all inodes stale, after a rollback. Returns their numbers.
    pub(crate) fn make_stale(&self) -> Vec<Ino> {
        let mut tables = self.0.lock();
        let inodes = tables.inodes.values_mut();
        let gone: Vec<State> =
            inodes.map(|node| std::mem::replace(&mut node.state, State::Stale)).collect();
        let known = tables.inodes.keys().copied().collect();
        // Dropped outside the lock.
        drop(tables);
        drop(gone);
        known
    }

    /// Drops all inodes and handles, after the last request.
    pub(crate) fn clear(&self) {
        let tables = std::mem::take(&mut *self.0.lock());
        drop(tables);
    }

    /// Counts of inodes and of open handles.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let tables = self.0.lock();
        (tables.inodes.len(), tables.open.len())
    }
}

/// The error for a deleted inode. A rename may have put another file under its name; with ESTALE the kernel looks the
/// name up again. A directory gives ENOENT.
fn gone(inode: &Inode) -> Errno {
    match inode.kind {
        FileType::Directory => Errno::ENOENT,
        _ => Errno::ESTALE,
    }
}
