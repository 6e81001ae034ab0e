//! What the requests of the kernel mean.
//!
//! A request names an inode, or what is open; each is one operation of the file system. Permissions have been checked
//! by the kernel.

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

/// Who asks: new files belong to them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub uid: u32,
    pub gid: u32,
    /// The thread that asks; 0 if it is not to be seen from here.
    pub thread: u32,
}

impl Caller {
    /// Whether they may do everything.
    fn is_root(self) -> bool {
        self.uid == 0
    }

    /// Whether a group is theirs; where that cannot be seen it is not.
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

    /// A directory has changed, whatever it was asked for.
    fn changed(&self, directory: Ino) {
        if self.inodes.changed(directory) {
            self.tell_changed(directory);
        }
    }

    /// The kernel forgets what it was told so often.
    pub(crate) fn forget(&self, ino: Ino, lookups: u64) {
        if let Some(object) = self.inodes.forget(ino, lookups)
            && object.is_orphan()
        {
            self.gives_back(object.inode().size);
        }
    }

    /// The attributes of a node.
    pub(crate) fn attributes(&self, ino: Ino) -> Answer<FileAttr> {
        match self.inodes.known(ino)? {
            Known::Gone(inode) => Ok(attr::attributes(&inode, 0, &self.options)),
            Known::Object(object) => self.read(|fs| self.attributes_of(fs, &object)),
        }
    }

    /// The attributes of an object.
    fn attributes_of(&self, fs: &Fs, object: &Object) -> betr_core::Result<FileAttr> {
        // Before they are looked at, so that a change after it is noticed.
        if object.is_directory() {
            self.inodes.tells(object.ino());
        }
        let inode = object.inode();
        let stored = match object.kind() {
            betr_core::format::FileType::Regular => fs.stored_bytes(object)?,
            _ => 0,
        };
        let mut attr = attr::attributes(&inode, stored, &self.options);
        // It waits to be changed.
        if let Some(time) = self.accesses.lock().get(&object.ino()) {
            attr.atime = attr::system_time(*time);
        }
        Ok(attr)
    }

    /// What the kernel is told of an object that it has found.
    fn enter(&self, fs: &Fs, object: &Object) -> betr_core::Result<FileAttr> {
        let attr = self.attributes_of(fs, object)?;
        self.inodes.enter(object);
        Ok(attr)
    }
}
