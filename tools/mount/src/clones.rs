//! Clones on a mount: `betr clone`, and the ioctl(2) for other programs.
//!
//! The ioctl is for root, on an open directory of the mount, where the clone will be. Its argument has 264 bytes:
//!
//! ```text
//! 0  st_ino of what to clone, which the caller has open; in the byte order of the machine   8
//! 8  name of the clone, then zeros   256
//! ```
//!
//! What the kernel has not written back is not in the clone, which is durable with the next sync: syncfs(2) before and behind
//! it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use betr_cli::clones::{CloneFailed, CloneRequest, clone_object, plan};
use betr_core::error::Refusal;
use betr_core::ids::Ino;
use betr_core::path::Operand;
use betr_core::text::Brief;
use fuser::INodeNo;
use serde_json::{Value, json};

use crate::errno::{Answer, Errno};
use crate::requests::Caller;
use crate::server::Server;

/// `_IOW(0xbe, 1, 264 bytes)`.
pub(crate) const CLONE: u32 = 0x4108_be01;
const ARGUMENT_BYTES: usize = 264;

/// The argument of the ioctl: the inode to clone, and the name of the clone.
pub(crate) fn argument(bytes: &[u8]) -> Answer<(INodeNo, Vec<u8>)> {
    match bytes.split_first_chunk() {
        Some((ino, name)) if bytes.len() == ARGUMENT_BYTES => {
            let end = name.iter().position(|byte| *byte == 0).ok_or(Errno::ENAMETOOLONG)?;
            Ok((INodeNo(u64::from_ne_bytes(*ino)), name[..end].to_vec()))
        }
        _ => Err(Errno::EINVAL),
    }
}

impl Server {
    /// Clones an object that the kernel knows into a directory.
    pub(crate) fn clone_inode(&self, by: Caller, ino: Ino, parent: Ino, name: &[u8]) -> Answer<()> {
        let (object, directory) = (self.inodes.object(ino)?, self.inodes.object(parent)?);
        let done = self.change(|fs| {
            if fs.find(&directory, name)?.is_some() {
                return Err(Refusal::Exists.into());
            }
            clone_object(fs, &object, &directory, name)
        });
        self.changed(by, parent);
        done
    }

    /// Clones a file or directory, durably. Returns the answer or the error, as JSON. What the kernel has not written back is
    /// not in the clone: `betr clone` calls syncfs(2) before.
    pub(crate) fn clone_path(&self, request: &CloneRequest) -> Value {
        let [source, dest] = [&request.source, &request.dest].map(|path| Operand::new(&**path));
        let request = self.requests.read();
        let mut failed_at = None;
        let made = self.change(|fs| {
            let made = plan(fs, &source, &dest).and_then(|planned| {
                let parent = INodeNo(planned.slot.directory.ino().0);
                match &self.snapshots {
                    Some(snapshots) if snapshots.has_name(parent, &planned.slot.name) => {
                        Err(planned.refused(Refusal::NotPermitted))
                    }
                    _ => planned.make(fs).map(|()| planned.slot),
                }
            });
            made.map_err(|CloneFailed { path, error }| {
                failed_at = Some(format!("{}: {error}", Brief(&path.shown())));
                error
            })
        });
        let slot = match made {
            Ok(slot) => slot,
            Err(errno) => {
                let text = failed_at.unwrap_or_else(|| said(errno));
                return json!({ "error": text });
            }
        };
        self.changed(Caller::default(), slot.directory.ino());
        let synced = self.sync();
        drop(request);
        // The kernel may have cached that there is nothing of this name.
        self.tell_gone(INodeNo(slot.directory.ino().0), OsStr::from_bytes(&slot.name));
        match synced {
            Ok(()) => json!({ "answer": {} }),
            Err(errno) => {
                let error = said(errno);
                json!({ "error": format!("the clone is made, but not durable yet: {error}") })
            }
        }
    }
}

/// The text of an error number.
fn said(errno: Errno) -> String {
    std::io::Error::from_raw_os_error(errno.code()).to_string()
}
