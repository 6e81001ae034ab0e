//! The lookup. Proving and verifying share it, so that both read exactly the same bytes.

use std::sync::Arc;

use betr_core::Result;
use betr_core::device::Device;
use betr_core::error::{Error, Refusal};
use betr_core::format::{FileType, Inode};
use betr_core::fs::{Fs, LastLink, Object};
use betr_core::ids::{BLOCK_SIZE, BlockNr, Hash, Time};
use betr_core::path::Operand;
use betr_core::store::CacheBudget;
use betr_core::volume::Volume;

/// The cache in bytes (12 MiB); each node is read only once.
const CACHE: usize = 12 << 20;

/// The file system below a root page.
pub(crate) fn open(device: Arc<dyn Device>, block: BlockNr, root: Hash) -> Result<Fs> {
    let volume = Volume::of_root(device, block, root, CacheBudget::of(CACHE))?;
    Ok(Fs::open(volume, Box::new(Time::default)))
}

/// The object at a path; `None` if there is none.
pub(crate) fn find(fs: &Fs, path: &[u8]) -> Result<Option<Object>> {
    match fs.resolve(path) {
        Ok(object) => Ok(Some(object)),
        Err(Error::Refused(Refusal::NotFound | Refusal::NotADirectory)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Passes the stored blocks of a regular file to `each`, in order, with their offsets. Missing blocks are zeros in the
/// file; the keys that are read prove that they are missing.
pub(crate) fn contents<E: From<Error>>(
    fs: &Fs,
    object: &Object,
    mut each: impl FnMut(u64, &[u8]) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let inode = object.inode();
    if inode.kind != FileType::Regular {
        return Ok(());
    }
    let mut keys = fs.keys_within(object, 0, inode.size.div_ceil(BLOCK_SIZE as u64));
    while let Some(block) = fs.next_key(object, &mut keys)? {
        // Blocks are read one by one, so that nothing beside them is read.
        let at = block * BLOCK_SIZE as u64;
        each(at, &fs.read(object, at, BLOCK_SIZE)?)?;
    }
    Ok(())
}

/// The canonical path of an operand, as a proof claims it. If the object does not exist, the longest part that exists is
/// resolved, and the other names are appended; `None` if `..` is among them.
pub(crate) fn claimed(fs: &Fs, operand: &Operand) -> Result<Option<Vec<u8>>> {
    let names: Vec<&[u8]> = operand.components().filter(|name| *name != b".").collect();
    let absent =
        |error: &Error| matches!(error, Error::Refused(Refusal::NotFound | Refusal::NotADirectory));
    for end in (0..=names.len()).rev() {
        let part = Operand::new([b"/", &names[..end].join(&b'/')[..]].concat());
        // The last component is not followed, because the proof is about it. Earlier components are.
        let last = if end == names.len() { LastLink::Keep } else { LastLink::Follow };
        let found = match fs.look_up(&part, last) {
            Ok(found) => found,
            Err(error) if absent(&error) => continue,
            Err(error) => return Err(error),
        };
        let rest = &names[end..];
        if rest.iter().any(|name| *name == b"..") {
            return Ok(None);
        }
        let rest: Vec<u8> = rest.iter().flat_map(|name| [b"/", *name].concat()).collect();
        let path = if found.path == b"/" && !rest.is_empty() { Vec::new() } else { found.path };
        return Ok(Some([path, rest].concat()));
    }
    Ok(Operand::new("/").plain())
}

/// Describes an inode.
pub(crate) fn describe(inode: &Inode) -> String {
    let what = match inode.kind {
        FileType::Regular => format!("a regular file of {} bytes", inode.size),
        FileType::Symlink => {
            format!("a symbolic link to {}", betr_core::text::printable(&inode.target))
        }
        kind => format!("a {}", kind.name()),
    };
    format!("{what}, mode {:04o}, owner {}:{}", inode.perm, inode.uid, inode.gid)
}
