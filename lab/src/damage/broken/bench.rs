//! The sound image, and tools to break it.

use std::sync::Arc;

use bytes::Bytes;

use super::missing;
use crate::damage::{Damage, Verb, reseal};
use crate::explore::Random;
use betr_core::device::{Device, MemoryDevice};
use betr_core::disk::Disk;
use betr_core::error::Result;
use betr_core::format::*;
use betr_core::fs::{Attributes, Clock, Fs, New};
use betr_core::ids::*;
use betr_core::space::Bitmap;
use betr_core::space::map::load_bits;
use betr_core::store::{CacheBudget, Geometry};
use betr_core::volume::*;
use betr_offline::anatomy::{Above, Anatomy, Kind, Part};

/// The smallest image with space to work in.
const IMAGE_BYTES: u64 = 2 << 20;
/// Small nodes: deep trees from few files.
const GEOMETRY: Geometry =
    Geometry { node_size: 4096, leaf_size: 4096, basement_size: 1024, fanout: 4 };
/// 1 MiB: directories count bytes, and none is split.
const ZONES: ZoneSizes = ZoneSizes { min: 0, max: 1 << 20 };
const CACHE: CacheBudget = CacheBudget { total_bytes: 2 << 20, dirty_bytes: 1 << 20 };
/// 16 KiB: writes of this size are bound late.
const LATE_BYTES: usize = 16 << 10;

/// An image that is being broken.
pub(super) struct Bench {
    memory: Arc<MemoryDevice>,
    /// The length of the image.
    len: usize,
    /// The last nonce, so that the same image results each time.
    nonce: u64,
}

fn nonces(first: u64) -> NonceSource {
    let mut next = first;
    Box::new(move || {
        next += 1;
        next
    })
}

fn clock(start: i64) -> Clock {
    let mut secs = start;
    Box::new(move || {
        secs += 1;
        Time { secs, nanos: 0 }
    })
}

impl Bench {
    /// The sound image: directories, small and large files, a link, attributes, a FIFO with two names; with
    /// checkpoints, and messages pending in upper nodes.
    pub(super) fn new() -> Result<Bench> {
        let memory = Arc::new(MemoryDevice::new(IMAGE_BYTES));
        let options = CreateOptions {
            label: "broken".into(),
            log_bytes: 128 << 10,
            geometry: GEOMETRY,
            zones: ZONES,
            cache: CACHE,
            ..CreateOptions::new(*b"broken on demand", memory.len(), nonces(0))
        };
        let volume = Volume::create(memory.clone(), options)?;
        let mut fs = Fs::format(volume, clock(0), Attributes::at(Time::default()))?;
        fs.checkpoint()?;
        drop(fs);
        let mut bench = Bench { memory, len: IMAGE_BYTES as usize, nonce: 100 };
        bench.work(|fs| {
            let root = fs.root()?;
            let attributes = Attributes::at(fs.now());
            let directory = fs.make(&root, b"dir", New::of(FileType::Directory, attributes))?;
            for number in 0..24u64 {
                let name = format!("file-{number:02}");
                let at = if number % 2 == 0 { &root } else { &directory };
                write(fs, at, name.as_bytes(), 300 + 40 * number as usize)?;
            }
            write(fs, &root, b"large", 3 * BLOCK_SIZE)?;
            let fifo = fs.make(&root, b"fifo", New::of(FileType::Fifo, attributes))?;
            fs.link(&fifo, &directory, b"fifo too")?;
            let mut link = New::of(FileType::Symlink, attributes);
            link.target = b"dir/file-01".to_vec();
            fs.make(&root, b"link", link)?;
            fs.set_xattrs(&directory, &[(b"user.note".to_vec(), b"of a directory".to_vec())])
        })?;
        bench.work(|fs| {
            let root = fs.root()?;
            (0..4u64).try_for_each(|number| {
                let name = format!("file-{number:02}, later");
                write(fs, &root, name.as_bytes(), 200)
            })?;
            let large = fs.lookup(&root, b"large")?;
            fs.write(&large, 0, &Bytes::from_static(b"later"))
        })?;
        Ok(bench)
    }

    /// The finished image.
    pub(super) fn finish(self) -> Vec<u8> {
        let mut bytes = self.memory.snapshot();
        bytes.truncate(self.len);
        bytes
    }

    /// Shortens the image.
    pub(super) fn truncate(&mut self, by: usize) {
        self.len -= by;
    }

    pub(super) fn device(&self) -> Arc<dyn Device> {
        self.memory.clone()
    }

    pub(super) fn disk(&self) -> Disk {
        Disk::new(self.device())
    }

    pub(super) fn anatomy(&self) -> Result<Anatomy> {
        Anatomy::of(&self.device())
    }

    /// The volume, open for changes.
    pub(super) fn volume(&mut self) -> Result<Volume> {
        self.nonce += 100;
        let options = OpenOptions {
            cache: CACHE,
            late_bytes: LATE_BYTES,
            ..OpenOptions::new(Mode::ReadWrite, nonces(self.nonce))
        };
        Ok(Volume::open(self.device(), options)?.0)
    }

    /// The file system, open for changes.
    pub(super) fn fs(&mut self) -> Result<Fs> {
        let start = self.nonce as i64;
        Ok(Fs::open(self.volume()?, clock(start)))
    }

    /// Changes files, and makes a checkpoint.
    pub(super) fn work(&mut self, work: impl FnOnce(&mut Fs) -> Result<()>) -> Result<()> {
        let mut fs = self.fs()?;
        work(&mut fs)?;
        fs.checkpoint()
    }

    /// Commits messages that no file system would make.
    pub(super) fn send(&mut self, messages: Vec<RecordMessage>) -> Result<()> {
        let mut volume = self.volume()?;
        volume.commit(Transaction { op: Op::Raw, wall: Time::default(), messages })?;
        volume.checkpoint()
    }

    /// The inode at a key of the metadata index.
    pub(super) fn get(&mut self, key: &Key) -> Result<Inode> {
        let value = self.volume()?.get(TreeId::Metadata, key)?;
        match value.map(|value| MetaValue::decode(&value, None)) {
            Some(Ok(MetaValue::Inode(inode))) => Ok(inode),
            _ => Err(missing("such inode")),
        }
    }

    /// Flips a bit of a field, without resealing.
    pub(super) fn flip(&self, part: &str, field: &str) -> Result<()> {
        let anatomy = self.anatomy()?;
        let part = anatomy.find(part)?;
        let bytes = part.fields(&self.disk())?.into_iter().find(|found| found.name == field);
        let bytes = bytes.ok_or_else(|| missing(field))?.bytes;
        let damage = Damage { part, bytes, verb: Verb::FirstBit, sealed: false };
        damage.inflict(&self.device(), &anatomy).map(drop)
    }

    /// Sets a number in a field, and reseals.
    pub(super) fn set(
        &self,
        part: &str,
        field: &str,
        number: impl FnOnce(u64) -> u64,
    ) -> Result<()> {
        let anatomy = self.anatomy()?;
        let part = anatomy.find(part)?;
        let disk = self.disk();
        let found = part.fields(&disk)?.into_iter().find(|found| found.name == field);
        let at = found.ok_or_else(|| missing(field))?.bytes;
        let mut bytes = [0; 8];
        let before = part.read(&disk, 0)?;
        bytes[..at.len()].copy_from_slice(&before[at.clone()]);
        let after = number(u64::from_le_bytes(bytes)).to_le_bytes();
        self.write(&anatomy, part, at.start, &after[..at.len()])
    }

    /// Writes bytes into all copies of a structure, and reseals.
    pub(super) fn write(
        &self,
        anatomy: &Anatomy,
        part: &Part,
        at: usize,
        bytes: &[u8],
    ) -> Result<()> {
        let disk = self.disk();
        for copy in 0..part.copies.len() {
            let mut all = part.read(&disk, copy)?;
            all[at..at + bytes.len()].copy_from_slice(bytes);
            part.write(&disk, copy, &all)?;
        }
        reseal(&disk, anatomy, part)
    }

    /// Marks blocks as in use or free in the space map, and reseals.
    pub(super) fn mark(&self, blocks: std::ops::Range<u64>, used: bool) -> Result<()> {
        let anatomy = self.anatomy()?;
        let disk = self.disk();
        let part = anatomy.map().next().ok_or_else(|| missing("space map"))?;
        let (seal, mut page) = MapPage::decode(&part.read(&disk, 0)?, None)
            .map_err(|_| missing("page of the space map"))?;
        for block in blocks {
            let byte = &mut page.bitmap[(block / 8) as usize];
            *byte = *byte & !(1 << (block % 8)) | u8::from(used) << (block % 8);
        }
        let (bytes, _) = page.encode(seal.birth);
        self.write(&anatomy, part, 0, &bytes)
    }

    /// Changes the superblock's count of used blocks.
    pub(super) fn count_used(&self, more: i64) -> Result<()> {
        self.set("super", "used blocks", |used| used.wrapping_add_signed(more))
    }

    /// The first free block.
    pub(super) fn free_block(&self) -> Result<u64> {
        let anatomy = self.anatomy()?;
        let part = anatomy.map().next().ok_or_else(|| missing("space map"))?;
        let (_, page) = MapPage::decode(&part.read(&self.disk(), 0)?, None)
            .map_err(|_| missing("page of the space map"))?;
        let mut used = Bitmap::new(IMAGE_BYTES / BLOCK_SIZE as u64);
        load_bits(&mut used, &page).map_err(|_| missing("page of the space map"))?;
        (0..used.len()).find(|block| !used.get(*block)).ok_or_else(|| missing("free block"))
    }

    /// The leaves of the data index with a right sibling, in the order of their ids.
    pub(super) fn leaves(&self) -> Result<Vec<Leaf>> {
        let anatomy = self.anatomy()?;
        let mut leaves = Vec::new();
        for part in anatomy.parts().iter().filter(|part| part.kind == Kind::Leaf) {
            let fields = part.fields(&self.disk())?;
            let holds = |name: &str, value: &str| {
                fields.iter().any(|field| field.name == name && field.value == value)
            };
            let [Above::Hash { part: page, at }] = part.above[..] else { continue };
            if holds("tree", "2") && holds("has upper bound", "1") {
                // The entry starts with extent (12 bytes) and head length (4 bytes), before the hash.
                let (name, page) = (part.name.clone(), anatomy.parts()[page].name.clone());
                leaves.push(Leaf { name, page, at: at - 16 });
            }
        }
        Ok(leaves)
    }

    /// The last of these leaves.
    pub(super) fn leaf(&self) -> Result<Leaf> {
        self.leaves()?.pop().ok_or_else(|| missing("leaf with a sibling"))
    }

    /// The extent in a leaf's table entry.
    pub(super) fn extent(&self, leaf: &Leaf) -> Result<Extent> {
        let anatomy = self.anatomy()?;
        let bytes = anatomy.find(&leaf.page)?.read(&self.disk(), 0)?;
        let start = u64::from_le_bytes(*bytes[leaf.at..].first_chunk().expect("an entry"));
        let blocks = u32::from_le_bytes(*bytes[leaf.at + 8..].first_chunk().expect("an entry"));
        Ok(Extent { start: BlockNr(start), blocks })
    }

    /// The name of the first structure that matches.
    pub(super) fn first(&self, what: &str, fits: impl Fn(&Part) -> bool) -> Result<String> {
        let anatomy = self.anatomy()?;
        let found = anatomy.parts().iter().find(|part| fits(part));
        found.map(|part| part.name.clone()).ok_or_else(|| missing(what))
    }
}

/// A leaf, and its table entry.
pub(super) struct Leaf {
    pub name: String,
    /// The page of the table.
    pub page: String,
    /// The offset of the entry in the page.
    pub at: usize,
}

/// Makes a file of `len` bytes.
pub(super) fn write(
    fs: &mut Fs,
    directory: &betr_core::fs::Object,
    name: &[u8],
    len: usize,
) -> Result<()> {
    let attributes = Attributes { perm: 0o644, ..Attributes::at(fs.now()) };
    let file = fs.make(directory, name, New::of(FileType::Regular, attributes))?;
    fs.write(&file, 0, &Bytes::from(Random::new(len as u64).bytes(len)))?;
    Ok(())
}
