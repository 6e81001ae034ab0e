//! Listing directories.

use betr_core::error::{Error, Refusal};
use betr_core::fs::{DirEntry, Fs};
use betr_core::ids::Ino;
use fuser::{FileAttr, FileType};

use super::Caller;
use crate::attr;
use crate::directory::{DOTS, OpenDirectory};
use crate::errno::Answer;
use crate::server::Server;

/// An entry of a listing; `next` is the cookie of the next entry.
pub(crate) struct Listed<'l> {
    pub ino: Ino,
    pub kind: FileType,
    pub name: &'l [u8],
    pub next: u64,
}

/// An entry with attributes.
pub(crate) struct ListedPlus<'l> {
    pub attr: FileAttr,
    pub name: &'l [u8],
    pub next: u64,
}

/// Whether the reply has room for more entries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Left,
    Full,
}

impl Server {
    /// Opens a directory.
    pub(crate) fn open_directory(&self, ino: Ino) -> Answer<u64> {
        self.inodes.open_directory(ino)
    }

    /// Lists an open directory from a cookie until the reply is full.
    pub(crate) fn list(
        &self,
        handle: u64,
        from: u64,
        mut add: impl FnMut(Listed<'_>) -> Room,
    ) -> Answer<()> {
        let open = self.inodes.opened(handle)?;
        for (at, ino, name) in self.dots(&open, from) {
            if add(Listed { ino, kind: FileType::Directory, name, next: at + 1 }) == Room::Full {
                return Ok(());
            }
        }
        self.entries(&open, from, |_, entry, next| {
            let (ino, kind) = (entry.ino, attr::kind(entry.kind));
            Ok(add(Listed { ino, kind, name: &entry.name, next }))
        })
    }

    /// Lists with attributes; counts a lookup of each entry except `.` and `..`.
    pub(crate) fn list_plus(
        &self,
        by: Caller,
        handle: u64,
        from: u64,
        mut add: impl FnMut(ListedPlus<'_>) -> Room,
    ) -> Answer<()> {
        let open = self.inodes.opened(handle)?;
        for (at, ino, name) in self.dots(&open, from) {
            // The kernel ignores the attributes of `.` and `..`.
            let inode = open.object.inode();
            let mut attr = attr::attributes(&inode, 0, &self.options);
            attr.ino = fuser::INodeNo(ino.0);
            if add(ListedPlus { attr, name, next: at + 1 }) == Room::Full {
                return Ok(());
            }
        }
        let mut entered = Vec::new();
        let done = self.entries(&open, from, |fs, entry, next| {
            let object = fs.entry_object(entry.clone())?;
            let attr = self.attributes_of(by, fs, &object)?;
            let room = add(ListedPlus { attr, name: &entry.name, next });
            if room == Room::Left {
                self.inodes.enter(&object, by.thread);
                entered.push(object.ino());
            }
            Ok(room)
        });
        // The reply is an error without entries, so the counted lookups are undone.
        done.inspect_err(|_| entered.into_iter().for_each(|ino| self.forget(ino, 1)))
    }

    /// `.` and `..`, if at or after the cookie `from`. A removed directory has no entries.
    fn dots(&self, open: &OpenDirectory, from: u64) -> Vec<(u64, Ino, &'static [u8])> {
        if open.object.is_orphan() {
            return Vec::new();
        }
        let own = open.object.ino();
        let above = open.object.up().map_or(own, |(above, _)| above.ino());
        let dots: [(u64, Ino, &'static [u8]); DOTS as usize] = [(0, own, b"."), (1, above, b"..")];
        dots.into_iter().filter(|(at, ..)| *at >= from).collect()
    }

    fn entries(
        &self,
        open: &OpenDirectory,
        from: u64,
        mut add: impl FnMut(&Fs, &DirEntry, u64) -> betr_core::Result<Room>,
    ) -> Answer<()> {
        let mut directory = open.position.lock();
        self.read(|fs| {
            directory.seek(fs, &open.object, from)?;
            while let Some(entry) = directory.read(fs)? {
                match add(fs, &entry, directory.next() + 1) {
                    Ok(Room::Left) => directory.took(&entry),
                    Ok(Room::Full) => {
                        directory.leave(entry);
                        break;
                    }
                    // It was removed after the listing read it.
                    Err(Error::Refused(Refusal::NotFound)) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })?;
        drop(directory);
        if from == 0 {
            self.accessed(&open.object);
        }
        Ok(())
    }
}
