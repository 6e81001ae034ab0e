//! Reading and writing extended attributes of any kind of object.
//!
//! The calls that take a file descriptor need one that is open for reading. That is impossible for a symbolic link,
//! and has side effects on a device. So all calls here use a path: `/proc/self/fd/N/name` for an entry of the open
//! directory N, without following the entry, and `/proc/self/fd/N` for the object N itself. Both go through the
//! descriptor, so no directory above can be replaced in between.
//!
//! Names are full host names. Values, access control lists included, are passed through unchanged.

use std::os::fd::BorrowedFd;

use rustix::fs::{XattrFlags, lgetxattr, llistxattr, removexattr, setxattr};
use rustix::io::Errno;

use crate::host::walk::proc_path;

/// Bytes that suffice for nearly every list of names and nearly every value.
const SMALL: usize = 1024;

/// The kernel's limit, in bytes, for a list of names and for one value.
const LARGE: usize = 65536;

/// Names and values, sorted by name.
pub(crate) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Reads the extended attributes of the entries of one directory.
pub(crate) struct XattrReader {
    prefix: Vec<u8>,
    buffer: Vec<u8>,
}

impl XattrReader {
    /// A reader for the entries of the open directory `dir`, which must stay open.
    pub(crate) fn new(dir: BorrowedFd<'_>) -> Self {
        let mut prefix = proc_path(dir).into_bytes();
        prefix.push(b'/');
        Self { prefix, buffer: vec![0; SMALL] }
    }

    /// All attributes of the entry `name`, or of the directory for `.`; none on a file system without extended
    /// attributes.
    pub(crate) fn read(&mut self, name: &[u8]) -> Result<Xattrs, Errno> {
        let path = [&self.prefix[..], name].concat();
        let names = match self.fill(|buffer| llistxattr(&path[..], buffer)) {
            Ok(0) | Err(Errno::OPNOTSUPP | Errno::NODATA) => return Ok(Vec::new()),
            Ok(length) => self.buffer[..length].to_vec(),
            Err(errno) => return Err(errno),
        };
        let mut found = Vec::new();
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            match self.fill(|buffer| lgetxattr(&path[..], name, buffer)) {
                Ok(length) => found.push((name.to_vec(), self.buffer[..length].to_vec())),
                // Removed after the list was read.
                Err(Errno::NODATA) => {}
                Err(errno) => return Err(errno),
            }
        }
        found.sort();
        Ok(found)
    }

    /// Runs `call`, and again with a large buffer if the result does not fit.
    fn fill(&mut self, call: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<usize, Errno> {
        match call(&mut self.buffer) {
            Err(Errno::RANGE) if self.buffer.len() < LARGE => {
                // The buffer stays large: other entries of the directory are probably similar.
                self.buffer.resize(LARGE, 0);
                call(&mut self.buffer)
            }
            answer => answer,
        }
    }
}

/// Sets one attribute of the object `fd`, which may be an O_PATH descriptor.
pub(crate) fn set(fd: BorrowedFd<'_>, name: &[u8], value: &[u8]) -> Result<(), Errno> {
    setxattr(proc_path(fd), name, value, XattrFlags::empty())
}

/// Removes the access control lists that `fd` inherited from its directory. Succeeds if there is none, or the file
/// system supports none.
pub(crate) fn remove_acls(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    for name in ["system.posix_acl_access", "system.posix_acl_default"] {
        match removexattr(proc_path(fd), name) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            // Only directories have a default list.
            Err(Errno::ACCESS | Errno::INVAL) if name.ends_with("default") => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
