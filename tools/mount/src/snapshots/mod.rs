//! The snapshots of a mount, below `.betr/snapshots` in its root (`-o snapshots`).
//!
//! Each snapshot is a separate tree: a read-only [`Server`] over a volume that `Volume::open_hold` opens. Its inode
//! numbers carry the [`Tag`] of the tree, and stay the same until the unmount. The first request below the root of a
//! snapshot opens it; it is closed when the kernel has forgotten its inodes. Beyond [`OPEN_MAX`] open snapshots, the
//! tender evicts the least recently used from the kernel's cache.
//!
//! Two invariants:
//!
//! 1. A snapshot is dropped only when the kernel references none of its inodes ([`Snapshots::let_go`]): its blocks
//!    are no longer read.
//! 2. No request waits for a thread in [`Snapshots::tell_gone`]: there the kernel waits for all lookups in the
//!    directory to be answered.

mod above;
mod commands;
mod numbers;
mod trees;

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use betr_cli::Failure;
use betr_cli::volume::clock_now;
use betr_core::format::{Hold, HoldsRoot};
use betr_core::fs::{Fs, ROOT_INO};
use betr_core::ids::{Epoch, Ino, Time};
use betr_core::store::CacheBudget;
use fuser::INodeNo;
use parking_lot::{Condvar, Mutex};

pub(crate) use above::TTL;
use numbers::Tag;
pub(crate) use trees::At;

use crate::errno::{Answer, Errno};
use crate::options::{CACHE_MIN, Options};
use crate::server::Server;

/// 8 snapshots, with 8 MiB of cache each (64 MiB together), stay open while none of their inodes is in use.
const OPEN_MAX: usize = 8;
/// The kernel forgets an unused inode within milliseconds of an invalidation; 1 second allows for a busy machine.
const FORGET_TIMEOUT: Duration = Duration::from_secs(1);

/// The snapshots of a mount.
pub(crate) struct Snapshots {
    /// The time of the mount, and the owner of the directories above the snapshots.
    made: Time,
    owner: (u32, u32),
    known: Mutex<Known>,
    /// Signalled when the kernel has forgotten an inode.
    forgotten: Condvar,
    /// Held while a snapshot is opened.
    opening: Mutex<()>,
}

#[derive(Default)]
struct Known {
    /// The existing snapshots, the oldest first, and the holds root of the superblock that they were read from.
    holds: Arc<Vec<Hold>>,
    root: HoldsRoot,
    tags: HashMap<Epoch, Tag>,
    trees: HashMap<Tag, Tree>,
    /// The last tag assigned.
    last: Option<Tag>,
    /// Snapshots that are being dropped: lookups do not find them.
    going: BTreeSet<Epoch>,
    /// Counts requests for trees: the clock for the least recently used one.
    uses: u64,
}

/// A snapshot that has a tag.
struct Tree {
    epoch: Epoch,
    /// References of the kernel to its root.
    lookups: u64,
    /// Its server, while it is open. Its table of inodes holds one reference to the root, which is not the kernel's.
    server: Option<Arc<Server>>,
    /// `Known::uses` at the last request.
    used: u64,
}

impl Tree {
    /// Takes the server, if the kernel references nothing below the root and no handle is open.
    fn close(&mut self) -> Option<Arc<Server>> {
        self.server.take_if(|server| server.inodes.counts() == (1, 0))
    }

    /// Whether the kernel has no reference to it.
    fn is_forgotten(&self) -> bool {
        self.lookups == 0 && self.server.is_none()
    }
}

/// Snapshots that are being dropped. When this guard is dropped, lookups find the remaining ones again.
pub(crate) struct Released<'s> {
    snapshots: &'s Snapshots,
    epochs: BTreeSet<Epoch>,
}

impl Released<'_> {
    /// All have been dropped: releases their tags.
    pub(crate) fn dropped(self) {
        let mut known = self.snapshots.known.lock();
        for epoch in &self.epochs {
            if let Some(tag) = known.tags.remove(epoch) {
                known.trees.remove(&tag);
            }
        }
    }
}

impl Drop for Released<'_> {
    fn drop(&mut self) {
        let mut known = self.snapshots.known.lock();
        known.going.retain(|epoch| !self.epochs.contains(epoch));
    }
}

/// Checks that a file system can be mounted with its snapshots shown.
pub(crate) fn check(fs: &Fs, options: &Options) -> Result<(), Failure> {
    let refused = |why: &str| Failure::failed(format!("{}: -o snapshots: {why}", options.shown()));
    let failed = |error: betr_core::Error| refused(&error.to_string());
    let root = fs.root().map_err(failed)?;
    if fs.find(&root, above::TOP_NAME.as_bytes()).map_err(failed)?.is_some() {
        return Err(refused(
            "its root has an entry '.betr', which would be hidden: rename that, or mount without",
        ));
    }
    Ok(())
}

impl Snapshots {
    pub(crate) fn new(options: &Options) -> Snapshots {
        Snapshots {
            made: clock_now(),
            owner: (options.uid.unwrap_or(0), options.gid.unwrap_or(0)),
            known: Mutex::default(),
            forgotten: Condvar::new(),
            opening: Mutex::default(),
        }
    }

    /// The existing snapshots, the oldest first.
    fn holds(&self, live: &Server) -> Answer<Arc<Vec<Hold>>> {
        live.read(|fs| {
            let root = &fs.volume().superblock().holds;
            let mut known = self.known.lock();
            // The pages of holds change only when a snapshot is taken, renamed or dropped.
            if known.root.pages != root.pages {
                known.holds = Arc::new(fs.volume().holds()?);
                known.root = root.clone();
            }
            Ok(known.holds.clone())
        })
    }

    /// The snapshots that a lookup finds, each with the inode number of its root.
    fn roots(&self, live: &Server) -> Answer<Vec<(INodeNo, Hold)>> {
        let holds = self.holds(live)?;
        let mut known = self.known.lock();
        let found = holds.iter().filter_map(|hold| {
            let tag = known.tag(hold.epoch)?;
            Some((tag.number(ROOT_INO), hold.clone()))
        });
        Ok(found.collect())
    }

    /// Looks a snapshot up by name, and counts a reference of the kernel to its root.
    fn find(&self, live: &Server, name: &[u8]) -> Answer<INodeNo> {
        let holds = self.holds(live)?;
        let hold = holds.iter().find(|hold| hold.name.as_bytes() == name);
        let epoch = hold.ok_or(Errno::ENOENT)?.epoch;
        let mut known = self.known.lock();
        let tag = known.tag(epoch).ok_or(Errno::ENOENT)?;
        if let Some(tree) = known.trees.get_mut(&tag) {
            tree.lookups += 1;
        }
        Ok(tag.number(ROOT_INO))
    }

    /// Counts a reference of the kernel to the root of a snapshot.
    fn enter(&self, root: INodeNo) {
        if let Some(tree) = self.known.lock().trees.get_mut(&Tag::of(root).0) {
            tree.lookups += 1;
        }
    }

    /// The kernel drops `lookups` references to an inode.
    pub(crate) fn forget(&self, tag: Tag, ino: Ino, lookups: u64) {
        let mut known = self.known.lock();
        let Some(tree) = known.trees.get_mut(&tag) else { return };
        match &tree.server {
            _ if ino == ROOT_INO => tree.lookups = tree.lookups.saturating_sub(lookups),
            Some(server) => server.forget(ino, lookups),
            None => {}
        }
        // A request in flight holds a reference of the kernel to its inode. Without any reference no request for this
        // tree is in flight.
        let closed = if tree.lookups == 0 { tree.close() } else { None };
        self.forgotten.notify_all();
        // The server is dropped outside the lock.
        drop(known);
        drop(closed);
    }

    /// The server of a snapshot; opens the snapshot if necessary.
    pub(crate) fn server(&self, live: &Arc<Server>, tag: Tag) -> Answer<Arc<Server>> {
        let open = self.known.lock().open(tag)?;
        if let Some(server) = open {
            return Ok(server);
        }
        let _opening = self.opening.lock();
        let open = self.known.lock().open(tag)?;
        if let Some(server) = open {
            return Ok(server);
        }
        let epoch = self.known.lock().trees.get(&tag).ok_or(Errno::ESTALE)?.epoch;
        let holds = self.holds(live)?;
        let hold = holds.iter().find(|hold| hold.epoch == epoch).ok_or(Errno::ESTALE)?;
        if !numbers::fit(hold.next) {
            return Err(Errno::EOVERFLOW);
        }
        let cache = CacheBudget::of(CACHE_MIN as usize);
        let volume = live.read(|fs| fs.volume().open_hold(hold, cache))?;
        let server = Server::of_snapshot(live, &hold.name, Fs::open(volume, Box::new(clock_now)));
        server.inodes.enter(&server.read(Fs::root)?, 0);
        let server = Arc::new(server);
        let mut known = self.known.lock();
        let uses = known.uses;
        let tree = known.trees.get_mut(&tag).ok_or(Errno::ESTALE)?;
        (tree.server, tree.used) = (Some(server.clone()), uses);
        if known.trees.values().filter(|tree| tree.server.is_some()).count() > OPEN_MAX {
            live.wake_tender();
        }
        Ok(server)
    }

    /// Closes the least recently used snapshots beyond [`OPEN_MAX`]. If the kernel has cached inodes of one, they are
    /// invalidated, and the last [`Snapshots::forget`] closes it.
    pub(crate) fn close_some(&self, live: &Server) {
        let mut known = self.known.lock();
        let open = known.trees.iter().filter(|(_, tree)| tree.server.is_some());
        let mut open: Vec<(u64, Tag)> = open.map(|(tag, tree)| (tree.used, *tag)).collect();
        open.sort_by_key(|(used, _)| *used);
        open.truncate(open.len().saturating_sub(OPEN_MAX));
        let (mut closed, mut cached) = (Vec::new(), BTreeSet::new());
        for (_, tag) in open {
            let Some(tree) = known.trees.get_mut(&tag) else { continue };
            let Some(server) = &tree.server else { continue };
            // A request in flight may add a reference of the kernel.
            if Arc::strong_count(server) > 1 {
                continue;
            }
            let (_, opens) = server.inodes.counts();
            match tree.close() {
                Some(server) => closed.push(server),
                None if opens == 0 => {
                    cached.insert(tree.epoch);
                }
                None => {}
            }
        }
        drop(known);
        drop(closed);
        if cached.is_empty() {
            return;
        }
        let Ok(holds) = self.holds(live) else { return };
        for hold in holds.iter().filter(|hold| cached.contains(&hold.epoch)) {
            self.tell_gone(live, &hold.name);
        }
    }

    /// Makes the kernel forget snapshots before they are dropped. Lookups by name fail until they are dropped, or
    /// until one turns out to be in use; the error names that one.
    pub(crate) fn let_go(&self, live: &Server, names: &[String]) -> Result<Released<'_>, String> {
        let holds = self.holds(live).map_err(|_| "the snapshots cannot be read".to_owned())?;
        let named: Vec<&Hold> = holds.iter().filter(|hold| names.contains(&hold.name)).collect();
        let mut going = Released { snapshots: self, epochs: BTreeSet::new() };
        let mut known = self.known.lock();
        for hold in &named {
            if known.is_open(hold.epoch) {
                drop(known);
                return Err(in_use(hold));
            }
            if known.going.insert(hold.epoch) {
                going.epochs.insert(hold.epoch);
            }
        }
        drop(known);
        named.iter().for_each(|hold| self.tell_gone(live, &hold.name));
        let end = Instant::now() + FORGET_TIMEOUT;
        for hold in named {
            let mut known = self.known.lock();
            while !known.is_forgotten(hold.epoch) {
                if self.forgotten.wait_until(&mut known, end).timed_out() {
                    drop(known);
                    drop(going);
                    let directory = Path::new(above::TOP_NAME).join(above::SNAPSHOTS_NAME);
                    live.look_up_again(names.iter().map(|name| directory.join(name)));
                    return Err(in_use(hold));
                }
            }
        }
        Ok(going)
    }

    /// Invalidates the name of a snapshot in the kernel's cache, with all cached inodes below it that are not in use.
    pub(crate) fn tell_gone(&self, live: &Server, name: &str) {
        live.tell_gone(above::snapshots_directory(), OsStr::new(name));
    }

    /// Counts over all snapshots: inodes that the kernel references, and open handles.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let known = self.known.lock();
        known.trees.values().fold((0, 0), |(inodes, opens), tree| {
            let of_server = tree.server.as_ref().map_or((1, 0), |server| server.inodes.counts());
            let root = usize::from(tree.lookups > 0);
            (inodes + of_server.0 - 1 + root, opens + of_server.1)
        })
    }
}

impl Known {
    /// The tag of a snapshot, assigned at first use; `None` if it is being dropped.
    fn tag(&mut self, epoch: Epoch) -> Option<Tag> {
        if self.going.contains(&epoch) {
            return None;
        }
        if let Some(tag) = self.tags.get(&epoch) {
            return Some(*tag);
        }
        // A free one exists: there are 14,335 tags, and at most 8,960 snapshots.
        let mut tag = self.last.unwrap_or(Tag::LIVE).next();
        while self.trees.contains_key(&tag) {
            tag = tag.next();
        }
        self.last = Some(tag);
        self.tags.insert(epoch, tag);
        self.trees.insert(tag, Tree { epoch, lookups: 0, server: None, used: 0 });
        Some(tag)
    }

    /// The server of a tree, if it is open. Fails with ESTALE for a tag that no tree has.
    fn open(&mut self, tag: Tag) -> Answer<Option<Arc<Server>>> {
        self.uses += 1;
        let tree = self.trees.get_mut(&tag).ok_or(Errno::ESTALE)?;
        tree.used = self.uses;
        Ok(tree.server.clone())
    }

    fn tree(&self, epoch: Epoch) -> Option<&Tree> {
        self.trees.get(self.tags.get(&epoch)?)
    }

    /// Whether a file or directory of a snapshot is open.
    fn is_open(&self, epoch: Epoch) -> bool {
        let server = self.tree(epoch).and_then(|tree| tree.server.as_ref());
        server.is_some_and(|server| server.inodes.counts().1 > 0)
    }

    fn is_forgotten(&self, epoch: Epoch) -> bool {
        self.tree(epoch).is_none_or(Tree::is_forgotten)
    }
}

fn in_use(hold: &Hold) -> String {
    format!(
        "snapshot '{}' is in use: something below .betr/snapshots/{} is open, or the working directory of a process",
        hold.name, hold.name
    )
}
