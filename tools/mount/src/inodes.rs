//! The inodes that the kernel references, each with its lookup count, and what is open.
//!
//! An inode keeps its object while its lookup count is above 0. Where opens are counted, an object that loses its last
//! name while it is not open is deleted at once; only its attributes stay, for requests that still arrive. Otherwise
//! every deleted file would first become an orphan, and be deleted in a second step. Where files are opened without a
//! request, [`Shared::unlink_later`](betr_core::fs::Shared::unlink_later) does the same.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use betr_core::format::{FileType, Inode};
use betr_core::fs::Object;
use betr_core::ids::Ino;
use parking_lot::Mutex;

use crate::directory::OpenDirectory;
use crate::errno::{Answer, Errno};

/// All known inodes, and all open directories.
#[derive(Default)]
pub(crate) struct Inodes(Mutex<Tables>);

#[derive(Default)]
struct Tables {
    inodes: HashMap<Ino, Tracked>,
    /// Open directories, by their handles.
    directories: HashMap<u64, Arc<OpenDirectory>>,
    /// Directories and files that are open.
    opens: usize,
    next_handle: u64,
}

struct Tracked {
    state: State,
    /// Lookups minus those that FORGET requests have returned.
    lookups: u64,
    /// How often it is open, as far as opens are requests.
    opens: u64,
    /// Whom a reply since the last change of the directory told its attributes.
    told: Told,
    /// Whether the file may have capabilities, which a write must remove.
    capable: bool,
}

enum State {
    Live(Object),
    /// It has no name and is not open; its last attributes.
    Gone(Arc<Inode>),
    /// The volume was rolled back after the lookup.
    Stale,
}

/// Whom replies have told something.
#[derive(Clone, Copy, Default)]
enum Told {
    #[default]
    None,
    /// One thread, by its number.
    One(u32),
    /// Several, or one that is not known.
    Others,
}

impl Told {
    fn one(thread: u32) -> Told {
        if thread == 0 { Told::Others } else { Told::One(thread) }
    }

    fn and(self, thread: u32) -> Told {
        match self {
            Told::None => Told::one(thread),
            Told::One(told) if told == thread => self,
            _ => Told::Others,
        }
    }

    /// Whether it is anybody but this thread.
    fn is_another(self, thread: u32) -> bool {
        match self {
            Told::None => false,
            Told::One(told) => told != thread,
            Told::Others => true,
        }
    }
}

impl Tracked {
    fn new(object: &Object, by: u32) -> Tracked {
        let state = State::Live(object.clone());
        // The first write looks for capabilities.
        Tracked { state, lookups: 0, opens: 0, told: Told::one(by), capable: true }
    }

    fn object(&self) -> Answer<&Object> {
        match &self.state {
            State::Live(object) => Ok(object),
            State::Gone(inode) => Err(gone(inode)),
            State::Stale => Err(Errno::ESTALE),
        }
    }
}

/// The state of an inode that is not stale.
pub(crate) enum Known {
    Object(Object),
    Gone(Arc<Inode>),
}

impl Inodes {
    /// Counts a lookup of an object by a thread, which is told its attributes.
    pub(crate) fn enter(&self, object: &Object, by: u32) {
        let mut tables = self.0.lock();
        let node = tables.inodes.entry(object.ino()).or_insert_with(|| Tracked::new(object, by));
        node.lookups += 1;
        if let State::Stale = node.state {
            *node =
                Tracked { lookups: node.lookups, opens: node.opens, ..Tracked::new(object, by) };
        }
    }

    /// Takes `lookups` off the lookup count. Removes the inode at 0, and returns its object.
    pub(crate) fn forget(&self, ino: Ino, lookups: u64) -> Option<Object> {
        let mut tables = self.0.lock();
        let node = tables.inodes.get_mut(&ino)?;
        node.lookups = node.lookups.saturating_sub(lookups);
        tables.remove_unused(ino)
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

    /// Notes that a reply tells a thread the attributes of a directory.
    pub(crate) fn tells(&self, ino: Ino, by: u32) {
        if let Some(node) = self.0.lock().inodes.get_mut(&ino) {
            node.told = node.told.and(by);
        }
    }

    /// Notes a change of a directory by a thread. Returns whether a reply since the last change tells another thread its
    /// attributes: that reply may still be in flight, and the kernel would take the old attributes for current ones. A
    /// thread that makes a request has seen the replies to those before.
    pub(crate) fn changed(&self, ino: Ino, by: u32) -> bool {
        let mut tables = self.0.lock();
        let node = tables.inodes.get_mut(&ino);
        node.is_some_and(|node| std::mem::take(&mut node.told).is_another(by))
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

    /// Whether the kernel references an inode.
    pub(crate) fn knows(&self, ino: Ino) -> bool {
        self.0.lock().inodes.contains_key(&ino)
    }

    /// Counts an open file.
    pub(crate) fn open(&self, ino: Ino) -> Answer<()> {
        self.0.lock().open(ino).map(drop)
    }

    /// Counts an open directory, and returns its handle.
    pub(crate) fn open_directory(&self, ino: Ino) -> Answer<u64> {
        let mut tables = self.0.lock();
        let directory = Arc::new(OpenDirectory::new(tables.open(ino)?));
        tables.next_handle += 1;
        let handle = tables.next_handle;
        tables.directories.insert(handle, directory);
        Ok(handle)
    }

    /// The open directory of a handle.
    pub(crate) fn opened(&self, handle: u64) -> Answer<Arc<OpenDirectory>> {
        self.0.lock().directories.get(&handle).cloned().ok_or(Errno::EBADF)
    }

    /// Counts that a file was closed. Returns its object if the kernel has forgotten it.
    pub(crate) fn close(&self, ino: Ino) -> Option<Object> {
        let mut tables = self.0.lock();
        tables.opens = tables.opens.saturating_sub(1);
        let node = tables.inodes.get_mut(&ino)?;
        node.opens = node.opens.saturating_sub(1);
        tables.remove_unused(ino)
    }

    /// Closes the handle of a directory.
    pub(crate) fn close_directory(&self, ino: Ino, handle: u64) -> Option<Object> {
        let directory = self.0.lock().directories.remove(&handle);
        // Dropped outside the lock.
        drop(directory);
        self.close(ino)
    }

    /// Whether a file may have capabilities.
    pub(crate) fn is_capable(&self, ino: Ino) -> bool {
        self.0.lock().inodes.get(&ino).is_none_or(|node| node.capable)
    }

    /// Notes whether a file may have capabilities.
    pub(crate) fn set_capable(&self, ino: Ino, capable: bool) {
        if let Some(node) = self.0.lock().inodes.get_mut(&ino) {
            node.capable = capable;
        }
    }

    /// The names in the root directory below which there are inodes that the kernel references.
    pub(crate) fn tops(&self) -> BTreeSet<Vec<u8>> {
        let top = |node: &Tracked| {
            let mut up = node.object().ok()?.up();
            let mut top = None;
            while let Some((above, name)) = up {
                up = above.up();
                top = Some(name);
            }
            top.map(|name| name.to_vec())
        };
        self.0.lock().inodes.values().filter_map(top).collect()
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

    /// Counts of inodes, and of open files and directories.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let tables = self.0.lock();
        (tables.inodes.len(), tables.opens)
    }
}

impl Tables {
    fn open(&mut self, ino: Ino) -> Answer<Object> {
        let node = self.inodes.get_mut(&ino).ok_or(Errno::ESTALE)?;
        let object = node.object()?.clone();
        node.opens += 1;
        self.opens += 1;
        Ok(object)
    }

    /// Removes an inode that is neither referenced nor open, and returns its object. Threads may answer the last RELEASE
    /// of an inode behind its FORGET.
    fn remove_unused(&mut self, ino: Ino) -> Option<Object> {
        let node = self.inodes.get(&ino)?;
        if node.lookups > 0 || node.opens > 0 {
            return None;
        }
        match self.inodes.remove(&ino)?.state {
            State::Live(object) => Some(object),
            State::Gone(_) | State::Stale => None,
        }
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
