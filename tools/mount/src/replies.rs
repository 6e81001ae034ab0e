//! Replies to the kernel.

use std::time::Duration;

use fuser::{
    FileAttr, FileHandle, FopenFlags, Generation, ReplyAttr, ReplyCreate, ReplyData, ReplyEmpty,
    ReplyEntry, ReplyWrite, ReplyXattr,
};

use crate::errno::{Answer, Errno};
use crate::requests::Room;

/// Changes go through this kernel alone, so its cached names and attributes stay valid. 24 hours.
pub(crate) const TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// The kernel keeps its cached pages of a file when the file is opened again.
pub(crate) const KEPT: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE;
/// Constant: inode numbers are not reused.
pub(crate) const GENERATION: Generation = Generation(0);

pub(crate) fn empty(reply: ReplyEmpty, done: Answer<()>) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

pub(crate) fn attributes(reply: ReplyAttr, done: Answer<FileAttr>) {
    match done {
        Ok(attr) => reply.attr(&TTL, &attr),
        Err(errno) => reply.error(errno),
    }
}

pub(crate) fn entry(reply: ReplyEntry, done: Answer<FileAttr>) {
    match done {
        Ok(attr) => reply.entry(&TTL, &attr, GENERATION),
        Err(errno) => reply.error(errno),
    }
}

pub(crate) fn data(reply: ReplyData, done: Answer<Vec<u8>>) {
    match done {
        Ok(bytes) => reply.data(&bytes),
        Err(errno) => reply.error(errno),
    }
}

pub(crate) fn created(reply: ReplyCreate, done: Answer<(FileAttr, FileHandle)>) {
    match done {
        Ok((attr, handle)) => reply.created(&TTL, &attr, GENERATION, handle, KEPT),
        Err(errno) => reply.error(errno),
    }
}

pub(crate) fn written(reply: ReplyWrite, done: Answer<u32>) {
    match done {
        Ok(bytes) => reply.written(bytes),
        Err(errno) => reply.error(errno),
    }
}

/// A request with size 0 asks for the length of the value.
pub(crate) fn xattr(reply: ReplyXattr, size: u32, done: Answer<Vec<u8>>) {
    match done {
        Ok(bytes) if size == 0 => reply.size(bytes.len() as u32),
        Ok(bytes) if bytes.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(bytes) => reply.data(&bytes),
        Err(errno) => reply.error(errno),
    }
}

pub(crate) fn room(full: bool) -> Room {
    if full { Room::Full } else { Room::Left }
}
