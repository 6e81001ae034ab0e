//! Rollback to a snapshot while the volume is mounted: no handle may be open, and the kernel's caches are invalidated
//! afterwards.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use betr_core::error::{Error, Result};
use betr_core::fs::{Fs, ROOT_INO};
use betr_core::volume::HoldChange;
use fuser::INodeNo;
use parking_lot::RwLockWriteGuard;

use crate::server::Server;

/// Waits 1 second for handles to be closed: the kernel sends RELEASE asynchronously.
const CLOSING: Duration = Duration::from_secs(1);
/// Interval between checks for open handles.
const LOOK: Duration = Duration::from_millis(10);

type Names = BTreeSet<Vec<u8>>;

impl Server {
    /// Makes the volume the state that a snapshot keeps.
    pub(crate) fn roll_back(&self, change: &HoldChange) -> Result<()> {
        let alone = self.wait_for_closing()?;
        let mut names = Names::new();
        // If the root cannot be read, the kernel has no names in it either.
        let _ = self.shared.read(|fs| add_names(fs, &mut names));
        let done = self.shared.change_holds(change);
        let is_refusal = matches!(done, Err(Error::Input(_) | Error::NoSpace { .. }));
        // The checkpoint may run out of space after the trees were switched; then the volume has failed.
        if is_refusal && !self.shared.has_failed() {
            return done;
        }
        // The trees may have been switched, so objects of the old state are stale.
        let known = self.inodes.make_stale();
        // Pending times of access of stale inodes.
        self.accesses.lock().clear();
        let entered = self.shared.read(|fs| {
            self.inodes.enter(&fs.root()?, 0);
            add_names(fs, &mut names)
        });
        // Until the kernel's caches are invalidated, opening a file must not keep its cached pages.
        self.is_telling.store(true, Ordering::SeqCst);
        drop(alone);
        // Invalidating an entry of the root makes the kernel forget everything below it.
        let root = INodeNo(ROOT_INO.0);
        names.iter().for_each(|name| self.tell_gone(root, OsStr::from_bytes(name)));
        known.into_iter().for_each(|ino| self.tell_stale(ino));
        self.is_telling.store(false, Ordering::SeqCst);
        done.and(entered)
    }
}

impl Server {
    /// Waits until nothing of the mount is open, and locks other requests out.
    fn wait_for_closing(&self) -> Result<RwLockWriteGuard<'_, ()>> {
        let begun = Instant::now();
        loop {
            if self.spares_opens() {
                // Only what the kernel has forgotten is known not to be in use.
                let mut names = Names::new();
                let _ = self.shared.read(|fs| add_names(fs, &mut names));
                let root = INodeNo(ROOT_INO.0);
                names.iter().for_each(|name| self.tell_gone(root, OsStr::from_bytes(name)));
            }
            let alone = self.requests.write();
            let (inodes, opens) = self.inodes.counts();
            // The root stays.
            if opens == 0 && (inodes == 1 || !self.spares_opens()) {
                return Ok(alone);
            }
            drop(alone);
            if begun.elapsed() >= CLOSING {
                let open = "files or directories of the mount are open";
                if !self.spares_opens() {
                    return Err(Error::Input(open.into()));
                }
                let tops = self.inodes.tops();
                self.look_up_again(tops.into_iter().map(|name| OsString::from_vec(name).into()));
                let text = format!("{open}, or the working directory of a process");
                return Err(Error::Input(text));
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Adds the names in the root directory.
fn add_names(fs: &Fs, names: &mut Names) -> Result<()> {
    let mut listing = fs.listing(&fs.root()?, None)?;
    while let Some(entry) = fs.next_entry(&mut listing)? {
        names.insert(entry.name);
    }
    Ok(())
}
