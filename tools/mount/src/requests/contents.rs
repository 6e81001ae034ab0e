//! Reading and writing the contents of files.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use betr_core::error::Result;
use betr_core::fs::{Allocate, Fs, Object, Seek};
use betr_core::ids::Ino;
use bytes::Bytes;
use fuser::{FileHandle, INodeNo, InitFlags};

use super::Caller;
use super::attributes::drop_set_ids;
use crate::errno::{Answer, Errno};
use crate::server::Server;

/// Flags of open(2).
const O_ACCMODE: i32 = 3;
const O_RDONLY: i32 = 0;
const O_WRONLY: i32 = 1;
const O_NOATIME: i32 = 0o1_000_000;
/// Handles of files: reading by this one notes the time of access,
pub(crate) const USUAL: FileHandle = FileHandle(0);
/// and by this one, opened with `O_NOATIME`, leaves it unchanged.
const NOATIME: FileHandle = FileHandle(1);
/// Modes of fallocate(2).
const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;

impl Server {
    /// Lets the kernel open and close files without a request, if it can, where an open file has nothing to remember:
    /// times of access stay, and what is removed while it is in use lives by its references. With `-o sync` a removal
    /// must not wait for the answer to whether there are any ([`Server::unlink`]).
    pub(crate) fn spare_opens(&self, capabilities: InitFlags) {
        let options = &self.options;
        let spares = options.read_only || (options.noatime && !options.sync);
        let can = capabilities.contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        self.spares_opens.store(spares && can, Ordering::Relaxed);
    }

    pub(crate) fn spares_opens(&self) -> bool {
        self.spares_opens.load(Ordering::Relaxed)
    }

    /// Opens a file. Returns its handle, and whether the kernel may keep its cached pages.
    pub(crate) fn open(&self, ino: Ino, flags: i32) -> Answer<(FileHandle, bool)> {
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
        self.inodes.open(ino)?;
        Ok((if noatime { NOATIME } else { USUAL }, keeps))
    }

    /// Reads from a file of any tree.
    pub(crate) fn read_node(
        self: &Arc<Server>,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        len: usize,
    ) -> Answer<Vec<u8>> {
        let at = self.at(node)?;
        at.server.read_at(at.ino, handle, offset, len)
    }

    fn read_at(&self, ino: Ino, handle: FileHandle, offset: u64, len: usize) -> Answer<Vec<u8>> {
        let object = self.object(ino)?;
        let bytes = self.read_contents(|fs| fs.read(&object, offset, len))?;
        if handle != NOATIME {
            self.accessed(&object);
        }
        Ok(bytes)
    }

    /// Writes to a file; `by` is the caller if its write drops set-user-ID and set-group-ID.
    pub(crate) fn write_at(
        &self,
        ino: Ino,
        offset: u64,
        bytes: &Bytes,
        by: Option<Caller>,
    ) -> Answer<()> {
        let object = self.object(ino)?;
        self.change(|fs| {
            self.settle_rights(fs, &object, by)?;
            fs.write_in_pieces(&object, offset, bytes)
        })
    }

    /// Drops set-user-ID, set-group-ID and capabilities before a write. The kernel leaves this to the server
    /// (`FUSE_HANDLE_KILLPRIV_V2`) and does not know the result, so changed attributes are invalidated.
    fn settle_rights(&self, fs: &mut Fs, object: &Object, by: Option<Caller>) -> Result<()> {
        let perm = object.inode().perm;
        if let Some(by) = by {
            drop_set_ids(fs, by, object)?;
        }
        if object.inode().perm != perm {
            self.tell_changed(object.ino());
        }
        if self.inodes.is_capable(object.ino()) {
            self.drop_capabilities(fs, object)?;
            self.inodes.set_capable(object.ino(), false);
        }
        Ok(())
    }

    /// Reserves, punches or zeroes a range of a file.
    pub(crate) fn allocate(
        &self,
        by: Caller,
        ino: Ino,
        offset: u64,
        len: u64,
        mode: i32,
    ) -> Answer<()> {
        let object = self.object(ino)?;
        let what = match mode & !KEEP_SIZE {
            0 => Allocate::Reserve,
            PUNCH_HOLE => Allocate::Punch,
            ZERO_RANGE => Allocate::Zero,
            _ => return Err(Errno::EOPNOTSUPP),
        };
        self.change(|fs| {
            self.settle_rights(fs, &object, Some(by).filter(|by| !by.is_root()))?;
            fs.allocate(&object, what, offset, len, mode & KEEP_SIZE != 0)
        })
    }

    /// The next offset with data, or with a hole.
    pub(crate) fn seek(&self, ino: Ino, offset: i64, what: Seek) -> Answer<i64> {
        let object = self.object(ino)?;
        let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
        let found = self.read_contents(|fs| fs.seek(&object, offset, what))?;
        i64::try_from(found).map_err(|_| Errno::EOVERFLOW)
    }

    /// Copies between files, and returns the number of bytes. Whole blocks at equal offsets are shared, and holes of
    /// whole blocks stay holes.
    pub(crate) fn copy(
        &self,
        by: Caller,
        (from, from_at): (Ino, u64),
        (to, to_at): (Ino, u64),
        len: u64,
    ) -> Answer<u64> {
        let (from, to) = (self.object(from)?, self.object(to)?);
        let (mut done, mut shares) = (0, true);
        while done < len {
            let copied = self.change(|fs| {
                let [from_at, to_at] = [from_at, to_at].map(|at| at.saturating_add(done));
                if from_at < from.inode().size {
                    self.settle_rights(fs, &to, Some(by).filter(|by| !by.is_root()))?;
                }
                fs.copy_range((&from, from_at), (&to, to_at), len - done, &mut shares)
            });
            match copied {
                Ok(0) => break,
                Ok(copied) => done += copied,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        self.accessed(&from);
        Ok(done)
    }
}
