//! `betr clone` on a mount.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use betr_cli::clones::{CloneFailed, CloneRequest, plan};
use betr_core::error::Refusal;
use betr_core::path::Operand;
use betr_core::text::Brief;
use fuser::INodeNo;
use serde_json::{Value, json};

use crate::errno::Errno;
use crate::server::Server;

impl Server {
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
        self.changed(slot.directory.ino());
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
