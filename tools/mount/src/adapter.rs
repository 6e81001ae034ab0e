//! The FUSE requests and their replies.
//!
//! The operations are in [`crate::requests`]; this module decodes, counts and answers requests. The inode number says
//! which tree a request is for: the live one, or that of a snapshot ([`crate::snapshots`]). Changes go through the
//! [`WriteQueue`].

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use betr_core::format::{FileType, limits};
use betr_core::fs::Seek;
use betr_core::ids::{BLOCK_SIZE, Ino};
use betr_core::volume::Blocks;
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileAttr, FileHandle, Filesystem, FopenFlags, INodeNo,
    InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use crate::attr;
use crate::clones;
use crate::counters::Kind;
use crate::errno::{Answer, Errno};
use crate::mountpoint::CHANGERS;
use crate::replies::{
    GENERATION, KEPT, TTL, attributes, created, data, empty, entry, room, written, xattr,
};
use crate::requests::{Caller, Listed, ListedPlus, Make, Set};
use crate::server::Server;
use crate::snapshots::{self, At};
use crate::write_queue::WriteQueue;

/// The most bytes that one request reads or writes.
const TRANSFER: u32 = 1 << 20;
/// Values of `whence` of lseek(2).
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// Answers the requests of the kernel.
pub(crate) struct Adapter {
    server: Arc<Server>,
    write_queue: WriteQueue,
}

fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), thread: request.pid() }
}

/// Runs an operation under the shared `requests` lock, and counts it.
fn run_counted<T>(
    server: &Server,
    kind: Kind,
    bytes: usize,
    act: impl FnOnce() -> Answer<T>,
) -> Answer<T> {
    let timed = server.counters.time(kind);
    timed.bytes(bytes);
    let _request = server.requests.read();
    let done = catch_unwind(AssertUnwindSafe(act));
    done.unwrap_or_else(|_| Err(server.panicked())).inspect_err(|_| timed.failed())
}

impl Adapter {
    pub(crate) fn new(server: Arc<Server>) -> Adapter {
        Adapter { server, write_queue: WriteQueue::new(CHANGERS) }
    }

    /// Runs an operation that changes nothing.
    fn look<T>(&self, kind: Kind, node: INodeNo, act: impl FnOnce(&At) -> Answer<T>) -> Answer<T> {
        run_counted(&self.server, kind, 0, || act(&self.server.at(node)?))
    }

    /// Runs an operation that changes something, or a sync, in this thread or through the queue in another. `of` is
    /// its argument.
    fn change<I: Send + 'static, T: 'static, R: Send + 'static>(
        &self,
        kind: Kind,
        of: Answer<I>,
        reply: R,
        answer: fn(R, Answer<T>),
        act: impl FnOnce(&Server, I) -> Answer<T> + Send + 'static,
    ) {
        self.change_bytes(kind, 0, of, reply, answer, act);
    }

    fn change_bytes<I: Send + 'static, T: 'static, R: Send + 'static>(
        &self,
        kind: Kind,
        bytes: usize,
        of: Answer<I>,
        reply: R,
        answer: fn(R, Answer<T>),
        act: impl FnOnce(&Server, I) -> Answer<T> + Send + 'static,
    ) {
        let server = self.server.clone();
        self.write_queue.run(move || {
            let done = run_counted(&server, kind, bytes, || of.and_then(|of| act(&server, of)));
            answer(reply, done);
        });
    }

    fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        make: Make,
        reply: ReplyEntry,
    ) {
        let (by, parent, name) =
            (caller(request), self.server.live_name(parent, name), owned(name));
        let act = move |server: &Server, parent| server.make(by, parent, &name, make);
        self.change(Kind::Make, parent, reply, entry, act);
    }

    /// Closes a file or directory, also while a rollback waits for that.
    fn close(&self, node: INodeNo, reply: ReplyEmpty, close: impl FnOnce(&At)) {
        let _timed = self.server.counters.time(Kind::Release);
        // The directories above snapshots have no handles.
        if let Ok(at) = self.server.at(node) {
            close(&at);
        }
        reply.ok();
    }

    fn sync(&self, reply: ReplyEmpty) {
        self.change(Kind::Fsync, Ok(()), reply, empty, |server, ()| server.sync());
    }
}

fn owned(name: &OsStr) -> Vec<u8> {
    name.as_bytes().to_vec()
}

impl Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without `FUSE_ASYNC_DIO`: with it, pages read into the kernel's cache during an asynchronous direct write
        // are not dropped, and stay stale (xfstests generic/451).
        let wanted = InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_POSIX_ACL
            | InitFlags::FUSE_HAS_IOCTL_DIR
            | InitFlags::FUSE_DONT_MASK;
        // Capabilities that an old kernel lacks are left out.
        let _ = config.add_capabilities(wanted & config.capabilities());
        self.server.spare_opens(config.capabilities());
        let _ = config.set_max_write(TRANSFER);
        if let Err(most) = config.set_max_readahead(TRANSFER) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn destroy(&mut self) {
        self.server.finish();
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.as_bytes();
        if let Some(snapshots) = self.server.looks_above(parent, name) {
            let look = || snapshots.lookup(&self.server, parent, name);
            return match run_counted(&self.server, Kind::Lookup, 0, look) {
                Ok(attr) => reply.entry(&snapshots::TTL, &attr, GENERATION),
                Err(errno) => reply.error(errno),
            };
        }
        let found = self.look(Kind::Lookup, parent, |at| {
            let found = at.server.lookup(caller(request), at.ino, name)?;
            Ok(found.map(|attr| at.shown(attr)))
        });
        match found {
            Ok(Some(attr)) => reply.entry(&TTL, &attr, GENERATION),
            // Inode number 0 makes the kernel cache that the name does not exist.
            Ok(None) => reply.entry(&TTL, &attr::nothing(), GENERATION),
            Err(errno) => reply.error(errno),
        }
    }

    fn forget(&self, _: &Request, node: INodeNo, lookups: u64) {
        self.server.forget_node(node, lookups);
        if self.server.shared.end_use(Ino(node.0)) {
            let server = self.server.clone();
            self.write_queue.run(move || server.shared.settle());
        }
    }

    fn getattr(&self, request: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if let Some(snapshots) = self.server.above(node) {
            return reply.attr(&TTL, &snapshots.directory(node));
        }
        let found = self.look(Kind::Getattr, node, |at| {
            Ok(at.shown(at.server.attributes(caller(request), at.ino)?))
        });
        attributes(reply, found);
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = Set { mode, uid, gid, size, accessed, modified };
        let by = caller(request);
        let act = move |server: &Server, ino| server.set(by, ino, set);
        self.change(Kind::Setattr, self.server.live(node), reply, attributes, act);
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        data(reply, self.look(Kind::Readlink, node, |at| at.server.target(at.ino)));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let Some(kind) = attr::kind_of_mode(mode) else { return reply.error(Errno::EINVAL) };
        let device = attr::decode_device(device);
        let make = Make { kind, mode, umask, device, target: Vec::new() };
        self.make(request, parent, name, make, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let kind = FileType::Directory;
        let make = Make { kind, mode, umask, device: (0, 0), target: Vec::new() };
        self.make(request, parent, name, make, reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (kind, target) = (FileType::Symlink, owned(target.as_os_str()));
        let make = Make { kind, mode: 0o777, umask: 0, device: (0, 0), target };
        self.make(request, parent, name, make, reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (parent, name) = (self.server.live_name(parent, name), owned(name));
        let by = caller(request);
        let act = move |server: &Server, parent| server.unlink(by, parent, &name);
        self.change(Kind::Unlink, parent, reply, empty, act);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (parent, name) = (self.server.live_name(parent, name), owned(name));
        let by = caller(request);
        let act = move |server: &Server, parent| server.rmdir(by, parent, &name);
        self.change(Kind::Rmdir, parent, reply, empty, act);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let server = &self.server;
        let (from, to) = (server.live_name(parent, name), server.live_name(new_parent, new_name));
        let pair = server.live_pair((parent, new_parent), (from, to));
        let (name, new_name) = (owned(name), owned(new_name));
        let by = caller(request);
        let act = move |server: &Server, (from, to)| {
            server.rename(by, (from, &name), (to, &new_name), flags)
        };
        self.change(Kind::Rename, pair, reply, empty, act);
    }

    fn link(
        &self,
        request: &Request,
        node: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let (ino, directory) = (self.server.live(node), self.server.live_name(parent, name));
        let pair = self.server.live_pair((node, parent), (ino, directory));
        let name = owned(name);
        let by = caller(request);
        let act = move |server: &Server, (ino, directory)| server.link(by, ino, directory, &name);
        self.change(Kind::Link, pair, reply, entry, act);
    }

    fn open(&self, _: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if self.server.spares_opens() {
            // The kernel sends no OPEN and RELEASE any more, and all files have the handle 0.
            return reply.error(Errno::ENOSYS);
        }
        let open = self.look(Kind::Open, node, |at| at.server.open(at.ino, flags.0));
        match open {
            Ok((handle, true)) => reply.opened(handle, KEPT),
            Ok((handle, false)) => reply.opened(handle, FopenFlags::empty()),
            Err(errno) => reply.error(errno),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        if self.server.spares_opens() {
            // The kernel sends MKNOD instead.
            return reply.error(Errno::ENOSYS);
        }
        let kind = FileType::Regular;
        let make = Make { kind, mode, umask, device: (0, 0), target: Vec::new() };
        let (by, parent, name) =
            (caller(request), self.server.live_name(parent, name), owned(name));
        self.change(Kind::Make, parent, reply, created, move |server, parent| {
            let attr = server.make(by, parent, &name, make)?;
            let made = Ino(attr.ino.0);
            let open = server.open(made, flags);
            // The reply fails, so the kernel gets no reference to the new file.
            let (handle, _) = open.inspect_err(|_| server.forget(made, 1))?;
            Ok((attr, handle))
        });
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let size = size as usize;
        let read = || self.server.read_node(node, handle, offset, size);
        data(reply, run_counted(&self.server, Kind::Read, size, read));
    }

    fn write(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let kills = flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let by = kills.then(|| caller(request));
        let bytes = Bytes::copy_from_slice(bytes);
        let of = self.server.live(node);
        self.change_bytes(Kind::Write, bytes.len(), of, reply, written, move |server, ino| {
            server.write_at(ino, offset, &bytes, by)?;
            Ok(bytes.len() as u32)
        });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Closing a file needs no work; after ENOSYS the kernel sends no FLUSH any more.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.close(node, reply, |at| at.server.close(at.ino));
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.sync(reply);
    }

    fn opendir(&self, _: &Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.server.above(node).is_some() {
            return reply.opened(FileHandle(0), FopenFlags::empty());
        }
        let open = self.look(Kind::Opendir, node, |at| at.server.open_directory(at.ino));
        // The kernel must not cache a listing: a cookie is valid only for the handle that it comes from.
        match open {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let mut add = |node, kind, name: &[u8], next| {
            room(reply.add(node, next, kind, OsStr::from_bytes(name)))
        };
        let done = match self.server.above(node) {
            Some(snapshots) => run_counted(&self.server, Kind::Readdir, 0, || {
                snapshots.list(&self.server, node, offset, |node, name, next| {
                    add(node, fuser::FileType::Directory, name, next)
                })
            }),
            None => self.look(Kind::Readdir, node, |at| {
                at.server.list(handle.0, offset, |listed| {
                    let Listed { ino, kind, name, next } = listed;
                    add(at.number(ino), kind, name, next)
                })
            }),
        };
        match done {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        request: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mut add = |attr: FileAttr, name: &[u8], next, ttl: &Duration| {
            let name = OsStr::from_bytes(name);
            room(reply.add(attr.ino, next, name, ttl, &attr, GENERATION))
        };
        let done = match self.server.above(node) {
            Some(snapshots) => run_counted(&self.server, Kind::Readdir, 0, || {
                snapshots.list_plus(&self.server, node, offset, |listed| {
                    let ListedPlus { attr, name, next } = listed;
                    add(attr, name, next, &snapshots::TTL)
                })
            }),
            None => self.look(Kind::Readdir, node, |at| {
                at.server.list_plus(caller(request), handle.0, offset, |listed| {
                    let ListedPlus { attr, name, next } = listed;
                    add(at.shown(attr), name, next, &TTL)
                })
            }),
        };
        match done {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn releasedir(
        &self,
        _: &Request,
        node: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.close(node, reply, |at| at.server.close_directory(at.ino, handle.0));
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.sync(reply);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match run_counted(&self.server, Kind::Statfs, 0, || self.server.room()) {
            Ok(Blocks { total, free, available }) => {
                let (block, name) = (BLOCK_SIZE as u32, limits::NAME_MAX as u32);
                // As on btrfs, the count of inodes is 0: their number is limited only by space.
                reply.statfs(total, free, available, 0, 0, block, name, block);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let (by, name, value) = (caller(request), owned(name), value.to_vec());
        let act = move |server: &Server, ino| server.set_xattr(by, ino, &name, &value, flags);
        self.change(Kind::Xattr, self.server.live(node), reply, empty, act);
    }

    fn getxattr(&self, _: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if self.server.above(node).is_some() {
            return reply.error(Errno::ENODATA);
        }
        let name = name.as_bytes();
        xattr(reply, size, self.look(Kind::Xattr, node, |at| at.server.xattr(at.ino, name)));
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        if self.server.above(node).is_some() {
            return xattr(reply, size, Ok(Vec::new()));
        }
        let by = caller(request);
        xattr(reply, size, self.look(Kind::Xattr, node, |at| at.server.xattrs(by, at.ino)));
    }

    fn removexattr(&self, _: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = owned(name);
        let act = move |server: &Server, ino| server.remove_xattr(ino, &name);
        self.change(Kind::Xattr, self.server.live(node), reply, empty, act);
    }

    fn fallocate(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let by = caller(request);
        let act = move |server: &Server, ino| server.allocate(by, ino, offset, len, mode);
        self.change(Kind::Allocate, self.server.live(node), reply, empty, act);
    }

    fn lseek(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let what = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        match self.look(Kind::Seek, node, |at| at.server.seek(at.ino, offset, what)) {
            Ok(offset) => reply.offset(offset),
            Err(errno) => reply.error(errno),
        }
    }

    fn copy_file_range(
        &self,
        request: &Request,
        from_node: INodeNo,
        _: FileHandle,
        from_at: u64,
        to_node: INodeNo,
        _: FileHandle,
        to_at: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let by = caller(request);
        // The reply has 32 bits.
        let len = len.min(1 << 30);
        // Across trees the kernel copies by reading and writing.
        let numbers = (self.server.live(from_node), self.server.live(to_node));
        let pair = self.server.live_pair((from_node, to_node), numbers);
        self.change(Kind::Copy, pair, reply, written, move |server, (from, to)| {
            Ok(server.copy(by, (from, from_at), (to, to_at), len)? as u32)
        });
    }

    fn ioctl(
        &self,
        request: &Request,
        node: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        command: u32,
        argument: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        match command {
            clones::CLONE if request.uid() != 0 => return reply.error(Errno::EPERM),
            clones::CLONE => {}
            _ => return reply.error(Errno::ENOTTY),
        }
        let numbers = clones::argument(argument).and_then(|(from, name)| {
            let to = self.server.live_name(node, OsStr::from_bytes(&name));
            Ok((self.server.live_pair((from, node), (self.server.live(from), to))?, name))
        });
        let (server, by) = (self.server.clone(), caller(request));
        self.write_queue.run(move || {
            let done = run_counted(&server, Kind::Copy, 0, || {
                let ((ino, parent), name) = numbers?;
                server.clone_inode(by, ino, parent, &name).map(|()| name)
            });
            // The kernel may have cached that there is nothing of this name. It waits for requests in the directory, so no
            // thread that answers requests may wait for it.
            match done {
                // Without a thread the reply is dropped, which answers EIO.
                Ok(name) => drop(thread::Builder::new().spawn(move || {
                    server.tell_gone(node, OsStr::from_bytes(&name));
                    reply.ioctl(0, &[]);
                })),
                Err(errno) => reply.error(errno),
            }
        });
    }
}
