//! Reading and writing the contents of files.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use betr_core::error::Result;
use betr_core::fs::{Allocate, Fs, Seek};
use betr_core::ids::Ino;
use bytes::Bytes;
use fuser::{INodeNo, InitFlags};
use parking_lot::Mutex;

use super::Caller;
use super::attributes::drop_set_ids;
use crate::errno::{Answer, Errno};
use crate::inodes::Open;
use crate::server::Server;

/// Flags of open(2).
const O_ACCMODE: i32 = 3;
const O_RDONLY: i32 = 0;
const O_WRONLY: i32 = 1;
const O_NOATIME: i32 = 0o1_000_000;
/// Modes of fallocate(2).
const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;

impl Server {
    /// Lets the kernel open and close files without a request, if it can: on a mount that is read-only for ever a
    /// handle has nothing to remember. What is never removed needs no handle to live on, and times of access stay.
    pub(crate) fn spare_opens(&self, capabilities: InitFlags) {
        let spares =
            self.options.read_only && capabilities.contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        self.spares_opens.store(spares, Ordering::Relaxed);
    }

    /// Opens a file. Returns the handle, and whether the kernel may keep its cached pages. After ENOSYS the kernel sends
    /// no OPEN and RELEASE any more, and all files have the handle 0.
    pub(crate) fn open(&self, ino: Ino, flags: i32) -> Answer<(u64, bool)> {
        if self.spares_opens.load(Ordering::Relaxed) {
            return Err(Errno::ENOSYS);
        }
        let writes = flags & O_ACCMODE != O_RDONLY;
        if writes && self.is_read_only() {
            return Err(Errno::EROFS);
        }
        let object = self.object(ino)?;
        let noatime = flags & O_NOATIME != 0;
        // Reads from the kernel's cache do not reach the server, and could not update the time of access.
        let keeps = noatime || flags & O_ACCMODE == O_WRONLY || !self.is_access_due(&object);
        let keeps = keeps && !self.is_telling.load(Ordering::SeqCst);
        drop(object);
        // The first write checks for capabilities.
        let capable = Mutex::new(writes);
        let open = |object| Open { object, noatime, capable, directory: None };
        Ok((self.inodes.open(ino, open)?, keeps))
    }

    /// An open file, for a reader: by its handle, or without one by its inode.
    fn opened(&self, ino: Ino, handle: u64) -> Answer<Arc<Open>> {
        if handle != 0 {
            return self.inodes.opened(handle);
        }
        let (object, capable) = (self.object(ino)?, Mutex::new(false));
        Ok(Arc::new(Open { object, noatime: false, capable, directory: None }))
    }

    /// Reads from an open file of any tree.
    pub(crate) fn read_node(
        self: &Arc<Server>,
        node: INodeNo,
        handle: u64,
        offset: u64,
        len: usize,
    ) -> Answer<Vec<u8>> {
        let at = self.at(node)?;
        at.server.read_at(at.ino, handle, offset, len)
    }

    fn read_at(&self, ino: Ino, handle: u64, offset: u64, len: usize) -> Answer<Vec<u8>> {
        let open = self.opened(ino, handle)?;
        let bytes = self.read(|fs| fs.read(&open.object, offset, len))?;
        if !open.noatime {
            self.accessed(&open.object);
        }
        Ok(bytes)
    }

    /// Writes to an open file; `by` is the caller if its write drops set-user-ID and set-group-ID.
    pub(crate) fn write_at(
        &self,
        handle: u64,
        offset: u64,
        bytes: &Bytes,
        by: Option<Caller>,
    ) -> Answer<()> {
        let open = self.inodes.opened(handle)?;
        self.change(|fs| {
            self.settle_rights(fs, &open, by)?;
            fs.write_in_pieces(&open.object, offset, bytes)
        })
    }

    /// Drops set-user-ID, set-group-ID and capabilities before a write. The kernel leaves this to the server
    /// (`FUSE_HANDLE_KILLPRIV_V2`) and does not know the result, so changed attributes are invalidated.
    fn settle_rights(&self, fs: &mut Fs, open: &Open, by: Option<Caller>) -> Result<()> {
        let perm = open.object.inode().perm;
        if let Some(by) = by {
            drop_set_ids(fs, by, &open.object)?;
        }
        if open.object.inode().perm != perm {
            self.tell_changed(open.object.ino());
        }
        if *open.capable.lock() {
            self.drop_capabilities(fs, &open.object)?;
            *open.capable.lock() = false;
        }
        Ok(())
    }

    /// Reserves, punches or zeroes a range of an open file.
    pub(crate) fn allocate(
        &self,
        by: Caller,
        handle: u64,
        offset: u64,
        len: u64,
        mode: i32,
    ) -> Answer<()> {
        let open = self.inodes.opened(handle)?;
        let what = match mode & !KEEP_SIZE {
            0 => Allocate::Reserve,
            PUNCH_HOLE => Allocate::Punch,
            ZERO_RANGE => Allocate::Zero,
            _ => return Err(Errno::EOPNOTSUPP),
        };
        self.change(|fs| {
            self.settle_rights(fs, &open, Some(by).filter(|by| !by.is_root()))?;
            fs.allocate(&open.object, what, offset, len, mode & KEEP_SIZE != 0)
        })
    }

    /// The next offset with data, or with a hole.
    pub(crate) fn seek(&self, (ino, handle): (Ino, u64), offset: i64, what: Seek) -> Answer<i64> {
        let open = self.opened(ino, handle)?;
        let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
        let found = self.read(|fs| fs.seek(&open.object, offset, what))?;
        i64::try_from(found).map_err(|_| Errno::EOVERFLOW)
    }

    /// Copies between open files, and returns the number of bytes. Whole blocks at equal offsets are shared, and holes of
    /// whole blocks stay holes.
    pub(crate) fn copy(
        &self,
        by: Caller,
        (from, from_at): (u64, u64),
        (to, to_at): (u64, u64),
        len: u64,
    ) -> Answer<u64> {
        let (from, to) = (self.inodes.opened(from)?, self.inodes.opened(to)?);
        let (mut done, mut shares) = (0, true);
        while done < len {
            let copied = self.change(|fs| {
                let [from_at, to_at] = [from_at, to_at].map(|at| at.saturating_add(done));
                if from_at < from.object.inode().size {
                    self.settle_rights(fs, &to, Some(by).filter(|by| !by.is_root()))?;
                }
                let (from, to) = ((&from.object, from_at), (&to.object, to_at));
                fs.copy_range(from, to, len - done, &mut shares)
            });
            match copied {
                Ok(0) => break,
                Ok(copied) => done += copied,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        self.accessed(&from.object);
        Ok(done)
    }
}
