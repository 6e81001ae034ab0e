//! Going back to a snapshot while the volume is mounted: nothing may be open, and the kernel has to forget all that it knows.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use betr_core::error::{Error, Result};
use betr_core::fs::{Fs, ROOT_INO};
use betr_core::volume::HoldChange;
use fuser::INodeNo;

use crate::server::Server;

/// What has been closed may be open for 1 second more: the kernel tells it in the background.
const CLOSING: Duration = Duration::from_secs(1);
/// It is looked at each 10 milliseconds.
const LOOK: Duration = Duration::from_millis(10);

type Names = BTreeSet<Vec<u8>>;

impl Server {
    /// Makes the volume what it was when a snapshot was taken.
    pub(crate) fn roll_back(&self, change: &HoldChange) -> Result<()> {
        let begun = Instant::now();
        let alone = loop {
            let alone = self.requests.write();
            if self.inodes.counts().1 == 0 {
                break alone;
            }
            drop(alone);
            if begun.elapsed() >= CLOSING {
                return Err(Error::Input("files or directories of the mount are open".into()));
            }
            std::thread::sleep(LOOK);
        };
        let mut names = Names::new();
        // A root that cannot be read has no names that the kernel could know and would not be told are stale.
        let _ = self.shared.read(|fs| add_names(fs, &mut names));
        let done = self.shared.change_holds(change);
        let is_refusal = matches!(done, Err(Error::Input(_) | Error::NoSpace { .. }));
        // The checkpoint may meet a lack of space after the trees were switched.
        if is_refusal && !self.look(|fs| fs.volume().has_failed()) {
            return done;
        }
        // Whether it is durable or not, what there were handles of is not there any more.
        let known = self.inodes.make_stale();
        // Reads of what is not there any more.
        self.accesses.lock().clear();
        let entered = self.shared.read(|fs| {
            self.inodes.enter(&fs.root()?);
            add_names(fs, &mut names)
        });
        // Until the kernel has been told, what it has cached of a file is not to be used by those who open it.
        self.is_telling.store(true, Ordering::SeqCst);
        drop(alone);
        // With an entry of the root the kernel forgets all that is below it.
        let root = INodeNo(ROOT_INO.0);
        names.iter().for_each(|name| self.tell_gone(root, OsStr::from_bytes(name)));
        known.into_iter().for_each(|ino| self.tell_stale(ino));
        self.is_telling.store(false, Ordering::SeqCst);
        done.and(entered)
    }
}

/// The names in the root directory.
fn add_names(fs: &Fs, names: &mut Names) -> Result<()> {
    let mut listing = fs.listing(&fs.root()?, None)?;
    while let Some(entry) = fs.next_entry(&mut listing)? {
        names.insert(entry.name);
    }
    Ok(())
}
