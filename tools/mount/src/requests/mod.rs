//! The operations behind the kernel's requests.
//!
//! A request names an inode or an open handle, and each is one operation of the file system. The kernel has checked
//! permissions (`default_permissions`).

mod attributes;
mod contents;
mod directories;
mod names;

pub(crate) use attributes::Set;
pub(crate) use directories::{Listed, ListedPlus, Room};
pub(crate) use names::Make;

use betr_core::fs::{Fs, Object};
use betr_core::ids::Ino;
use fuser::FileAttr;

use crate::attr;
use crate::errno::Answer;
use crate::inodes::Known;
use crate::server::Server;

/// The caller of a request, who becomes the owner of new files.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Caller {
    pub uid: u32,
    pub gid: u32,
    /// The calling thread; 0 if it is in a PID namespace that the server does not see.
    pub thread: u32,
}

impl Caller {
    /// Whether it is root.
    fn is_root(self) -> bool {
        self.uid == 0
    }

    /// Whether the caller is in a group; `false` if its groups cannot be read.
    fn is_in(self, gid: u32) -> bool {
        let status = || std::fs::read_to_string(format!("/proc/{}/status", self.thread)).ok();
        let groups =
            || status()?.lines().find_map(|line| Some(line.strip_prefix("Groups:")?.to_owned()));
        let listed =
            |groups: String| groups.split_whitespace().any(|group| group.parse() == Ok(gid));
        self.gid == gid || (self.thread != 0 && groups().is_some_and(listed))
    }
}

impl Server {
    fn object(&self, ino: Ino) -> Answer<Object> {
        self.inodes.object(ino)
    }

    /// Notes a change of a directory, made or failed, and invalidates its attributes if a reply may carry old ones.
    pub(crate) fn changed(&self, by: Caller, directory: Ino) {
        if self.inodes.changed(directory, by.thread) {
            self.tell_changed(directory);
        }
    }

    /// The kernel sends FORGET for `lookups` lookups.
    pub(crate) fn forget(&self, ino: Ino, lookups: u64) {
        self.drop_unused(self.inodes.forget(ino, lookups));
    }

    /// The kernel sends RELEASE for a file.
    pub(crate) fn close(&self, ino: Ino) {
        self.drop_unused(self.inodes.close(ino));
    }

    /// The kernel sends RELEASEDIR for a directory.
    pub(crate) fn close_directory(&self, ino: Ino, handle: u64) {
        self.drop_unused(self.inodes.close_directory(ino, handle));
    }

    /// Drops an object that the kernel no longer uses, which deletes an orphan.
    fn drop_unused(&self, object: Option<Object>) {
        if let Some(object) = object.filter(Object::is_orphan) {
            self.gives_back(object.inode().size);
        }
    }

    /// The attributes of an inode.
    pub(crate) fn attributes(&self, by: Caller, ino: Ino) -> Answer<FileAttr> {
        match self.inodes.known(ino)? {
            Known::Gone(inode) => Ok(attr::attributes(&inode, 0, &self.options)),
            Known::Object(object) => self.read(|fs| self.attributes_of(by, fs, &object)),
        }
    }

    /// The attributes of an object.
    fn attributes_of(&self, by: Caller, fs: &Fs, object: &Object) -> betr_core::Result<FileAttr> {
        // Noted before the attributes are read, so that a concurrent change invalidates them.
        if object.is_directory() {
            self.inodes.tells(object.ino(), by.thread);
        }
        let inode = object.inode();
        let stored = match object.kind() {
            betr_core::format::FileType::Regular => fs.stored_bytes(object)?,
            _ => 0,
        };
        let mut attr = attr::attributes(&inode, stored, &self.options);
        // A time of access that is not written yet.
        if let Some(time) = self.accesses.lock().get(&object.ino()) {
            attr.atime = attr::system_time(*time);
        }
        Ok(attr)
    }

    /// The attributes for the reply to a lookup; counts the lookup.
    fn enter(&self, by: Caller, fs: &Fs, object: &Object) -> betr_core::Result<FileAttr> {
        let attr = self.attributes_of(by, fs, object)?;
        self.inodes.enter(object, by.thread);
        Ok(attr)
    }
}
