//! The requests of the kernel, and the answers to them.
//!
//! Everything that a request means is in [`crate::requests`]; here it is taken apart, counted and answered. What changes
//! something goes through the [`Lane`].

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use betr_core::format::{FileType, limits};
use betr_core::fs::Seek;
use betr_core::ids::{BLOCK_SIZE, Ino};
use betr_core::volume::Blocks;
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileAttr, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use crate::attr;
use crate::counters::Kind;
use crate::errno::{Answer, Errno};
use crate::lane::Lane;
use crate::place::CHANGERS;
use crate::requests::{Caller, Listed, ListedPlus, Make, Room, Set};
use crate::server::Server;

/// Nobody but the kernel that asks changes anything: what it knows stays true.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// The most bytes that are read or written by one request.
const TRANSFER: u32 = 1 << 20;
/// What the kernel has cached of a file stays good when it is opened again.
const KEPT: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE;
/// What lseek(2) looks for.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// Answers the requests of the kernel.
pub(crate) struct Adapter {
    server: Arc<Server>,
    lane: Lane,
}

fn ino(ino: INodeNo) -> Ino {
    Ino(ino.0)
}

fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), thread: request.pid() }
}

/// Inode numbers are given out once.
const GENERATION: Generation = Generation(0);

/// Carries out and counts an operation.
fn count<T>(
    server: &Server,
    kind: Kind,
    bytes: usize,
    act: impl FnOnce(&Server) -> Answer<T>,
) -> Answer<T> {
    let timed = server.counters.time(kind);
    timed.bytes(bytes);
    let _request = server.requests.read();
    let done = catch_unwind(AssertUnwindSafe(|| act(server)));
    done.unwrap_or_else(|_| Err(server.panicked())).inspect_err(|_| timed.failed())
}

impl Adapter {
    pub fn new(server: Arc<Server>) -> Adapter {
        Adapter { server, lane: Lane::new(CHANGERS) }
    }

    /// Carries out an operation that changes nothing.
    fn count<T>(&self, kind: Kind, act: impl FnOnce(&Server) -> Answer<T>) -> Answer<T> {
        count(&self.server, kind, 0, act)
    }

    /// Carries out one that changes something, or waits until everything is durable: now, or in another thread.
    fn change<T: 'static, R: Send + 'static>(
        &self,
        kind: Kind,
        reply: R,
        answer: fn(R, Answer<T>),
        act: impl FnOnce(&Server) -> Answer<T> + Send + 'static,
    ) {
        self.change_bytes(kind, 0, reply, answer, act);
    }

    fn change_bytes<T: 'static, R: Send + 'static>(
        &self,
        kind: Kind,
        bytes: usize,
        reply: R,
        answer: fn(R, Answer<T>),
        act: impl FnOnce(&Server) -> Answer<T> + Send + 'static,
    ) {
        let server = self.server.clone();
        self.lane.run(move || answer(reply, count(&server, kind, bytes, act)));
    }

    fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        make: Make,
        reply: ReplyEntry,
    ) {
        let (by, parent, name) = (caller(request), ino(parent), owned(name));
        let act = move |server: &Server| server.make(by, parent, &name, make);
        self.change(Kind::Make, reply, entry, act);
    }
}

fn owned(name: &OsStr) -> Vec<u8> {
    name.as_bytes().to_vec()
}

fn empty(reply: ReplyEmpty, done: Answer<()>) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

fn attributes(reply: ReplyAttr, done: Answer<FileAttr>) {
    match done {
        Ok(attr) => reply.attr(&TTL, &attr),
        Err(errno) => reply.error(errno),
    }
}

fn entry(reply: ReplyEntry, done: Answer<FileAttr>) {
    match done {
        Ok(attr) => reply.entry(&TTL, &attr, GENERATION),
        Err(errno) => reply.error(errno),
    }
}

fn data(reply: ReplyData, done: Answer<Vec<u8>>) {
    match done {
        Ok(bytes) => reply.data(&bytes),
        Err(errno) => reply.error(errno),
    }
}

fn created(reply: ReplyCreate, done: Answer<(FileAttr, u64)>) {
    match done {
        Ok((attr, handle)) => reply.created(&TTL, &attr, GENERATION, FileHandle(handle), KEPT),
        Err(errno) => reply.error(errno),
    }
}

fn written(reply: ReplyWrite, done: Answer<u32>) {
    match done {
        Ok(bytes) => reply.written(bytes),
        Err(errno) => reply.error(errno),
    }
}

/// Whoever asks with a size of 0 wants to know the size.
fn xattr(reply: ReplyXattr, size: u32, done: Answer<Vec<u8>>) {
    match done {
        Ok(bytes) if size == 0 => reply.size(bytes.len() as u32),
        Ok(bytes) if bytes.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(bytes) => reply.data(&bytes),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without `FUSE_ASYNC_DIO`: with it, the kernel does not drop the pages that were read into its cache while an
        // asynchronous direct write was on its way, and they stay stale (xfstests generic/451).
        let wanted = InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_POSIX_ACL
            | InitFlags::FUSE_DONT_MASK;
        // Who has an old kernel does without.
        let _ = config.add_capabilities(wanted & config.capabilities());
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

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.count(Kind::Lookup, |server| server.lookup(ino(parent), name.as_bytes()));
        match found {
            Ok(Some(attr)) => reply.entry(&TTL, &attr, GENERATION),
            // The kernel remembers, too, that there is nothing.
            Ok(None) => reply.entry(&TTL, &attr::nothing(), GENERATION),
            Err(errno) => reply.error(errno),
        }
    }

    fn forget(&self, _: &Request, node: INodeNo, lookups: u64) {
        self.server.forget(ino(node), lookups);
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        attributes(reply, self.count(Kind::Getattr, |server| server.attributes(ino(node))));
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
        let act = move |server: &Server| server.set(by, ino(node), set);
        self.change(Kind::Setattr, reply, attributes, act);
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        data(reply, self.count(Kind::Readlink, |server| server.target(ino(node))));
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

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = owned(name);
        let act = move |server: &Server| server.unlink(ino(parent), &name);
        self.change(Kind::Unlink, reply, empty, act);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = owned(name);
        let act = move |server: &Server| server.rmdir(ino(parent), &name);
        self.change(Kind::Rmdir, reply, empty, act);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (name, new_name) = (owned(name), owned(new_name));
        let act = move |server: &Server| {
            server.rename((ino(parent), &name), (ino(new_parent), &new_name), flags)
        };
        self.change(Kind::Rename, reply, empty, act);
    }

    fn link(&self, _: &Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = owned(name);
        let act = move |server: &Server| server.link(ino(node), ino(parent), &name);
        self.change(Kind::Link, reply, entry, act);
    }

    fn open(&self, _: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let open = self.count(Kind::Open, |server| server.open(ino(node), flags.0));
        match open {
            Ok((handle, true)) => reply.opened(FileHandle(handle), KEPT),
            Ok((handle, false)) => reply.opened(FileHandle(handle), FopenFlags::empty()),
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
        let kind = FileType::Regular;
        let make = Make { kind, mode, umask, device: (0, 0), target: Vec::new() };
        let (by, name) = (caller(request), owned(name));
        self.change(Kind::Make, reply, created, move |server| {
            let attr = server.make(by, ino(parent), &name, make)?;
            let open = server.open(ino(attr.ino), flags);
            // Then the kernel has not been told of it.
            let (handle, _) = open.inspect_err(|_| server.forget(ino(attr.ino), 1))?;
            Ok((attr, handle))
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let size = size as usize;
        let read = |server: &Server| server.read_at(handle.0, offset, size);
        data(reply, count(&self.server, Kind::Read, size, read));
    }

    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
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
        self.change_bytes(Kind::Write, bytes.len(), reply, written, move |server| {
            server.write_at(handle.0, offset, &bytes, by)?;
            Ok(bytes.len() as u32)
        });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Nothing is left to be done when a file is closed: the kernel need not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.server.nodes.close(handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.change(Kind::Fsync, reply, empty, Server::sync);
    }

    fn opendir(&self, _: &Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let open = self.count(Kind::Opendir, |server| server.open_directory(ino(node)));
        // The kernel must not keep a listing: a cookie means something to the handle that gave it alone.
        match open {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let done = self.count(Kind::Readdir, |server| {
            server.list(handle.0, offset, |listed| {
                let Listed { ino, kind, name, next } = listed;
                room(reply.add(INodeNo(ino.0), next, kind, OsStr::from_bytes(name)))
            })
        });
        match done {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let done = self.count(Kind::Readdir, |server| {
            server.list_plus(handle.0, offset, |listed| {
                let ListedPlus { attr, name, next } = listed;
                let name = OsStr::from_bytes(name);
                room(reply.add(attr.ino, next, name, &TTL, &attr, GENERATION))
            })
        });
        match done {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.server.nodes.close(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.change(Kind::Fsync, reply, empty, Server::sync);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.count(Kind::Statfs, Server::room) {
            Ok(Blocks { total, free, available }) => {
                let (block, name) = (BLOCK_SIZE as u32, limits::NAME_MAX as u32);
                // There are as many inodes as there is room for: nobody counts them (as on btrfs).
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
        let act = move |server: &Server| server.set_xattr(by, ino(node), &name, &value, flags);
        self.change(Kind::Xattr, reply, empty, act);
    }

    fn getxattr(&self, _: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = name.as_bytes();
        xattr(reply, size, self.count(Kind::Xattr, |server| server.xattr(ino(node), name)));
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let by = caller(request);
        xattr(reply, size, self.count(Kind::Xattr, |server| server.xattrs(by, ino(node))));
    }

    fn removexattr(&self, _: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = owned(name);
        let act = move |server: &Server| server.remove_xattr(ino(node), &name);
        self.change(Kind::Xattr, reply, empty, act);
    }

    fn fallocate(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let by = caller(request);
        let act = move |server: &Server| server.allocate(by, handle.0, offset, len, mode);
        self.change(Kind::Allocate, reply, empty, act);
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let what = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        match self.count(Kind::Seek, |server| server.seek(handle.0, offset, what)) {
            Ok(offset) => reply.offset(offset),
            Err(errno) => reply.error(errno),
        }
    }

    fn copy_file_range(
        &self,
        request: &Request,
        _: INodeNo,
        from: FileHandle,
        from_at: u64,
        _: INodeNo,
        to: FileHandle,
        to_at: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let by = caller(request);
        // The answer has 32 bits.
        let len = len.min(1 << 30);
        self.change(Kind::Copy, reply, written, move |server| {
            Ok(server.copy(by, (from.0, from_at), (to.0, to_at), len)? as u32)
        });
    }
}

fn room(full: bool) -> Room {
    if full { Room::Full } else { Room::Left }
}
