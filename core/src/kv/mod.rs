//! The engine on its own: two trees of keys and values, without a file system.
//!
//! ```
//! use std::sync::Arc;
//!
//! use betr_core::device::MemoryDevice;
//! use betr_core::ids::TreeId;
//! use betr_core::kv::{Batch, Kv, KvOptions};
//!
//! # fn main() -> betr_core::Result<()> {
//! // A file or block device would be a `FileDevice`. Nonces must never come twice for one image.
//! let device = Arc::new(MemoryDevice::new(16 << 20));
//! let mut nonce = 0;
//! let options = KvOptions::new(Box::new(move || {
//!     nonce += 1;
//!     nonce
//! }));
//! let mut kv = Kv::create(device, *b"a 16-byte name!!", options)?;
//!
//! // All of a batch becomes durable, or nothing of it. Nothing is read to write.
//! let mut batch = Batch::new();
//! batch.insert(TreeId::Data, b"apple", b"green");
//! batch.insert(TreeId::Data, b"banana", b"yellow");
//! batch.insert(TreeId::Data, b"cherry", b"red");
//! batch.insert(TreeId::Metadata, b"fruits", &3u64.to_le_bytes());
//! kv.commit(batch)?;
//!
//! let mut batch = Batch::new();
//! batch.patch(TreeId::Data, b"apple", 0, b"GR", false);
//! batch.delete_range(TreeId::Data, b"b", b"c");
//! batch.add(b"fruits", 0, -1);
//! kv.commit(batch)?;
//! kv.sync()?;
//!
//! assert_eq!(kv.get(TreeId::Data, b"apple")?.as_deref(), Some(&b"GReen"[..]));
//! assert_eq!(kv.get(TreeId::Metadata, b"fruits")?.as_deref(), Some(&2u64.to_le_bytes()[..]));
//! let mut cursor = kv.range(TreeId::Data, b"", None);
//! let (key, value) = cursor.next_back().expect("two are left")?;
//! assert_eq!((&*key, &*value), (&b"cherry"[..], &b"red"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! The trees have different strengths. In [`TreeId::Data`], values of exactly 4096 bytes are stored in separate blocks.
//! Consecutive ones, under keys whose last eight bytes count up, are bound late: large writes reach the device once. In
//! [`TreeId::Metadata`] there are counters.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::format::{Action, Key, Lens, Op, RecordMessage, Update, prefix_end};
use crate::ids::*;
use crate::store::{CacheBudget, Geometry};
use crate::tree::Cursor;
use crate::tuning::{BATCH_ALONE, BATCH_PIECE};
use crate::volume::{
    Content, CreateOptions, Mode, NonceSource, OpenOptions, Recovery, Transaction, Volume,
};

/// An open image of keys and values.
///
/// Committed batches can be read at once. They are durable after [`Kv::sync`] or [`Kv::checkpoint`]. A recovery
/// restores a prefix of the batches, including all that were synced.
pub struct Kv {
    volume: Volume,
}

/// Options to create and open an image.
pub struct KvOptions {
    /// The memory budget of the cache.
    pub cache: CacheBudget,
    /// The geometry of a new image; `None` chooses one by its size.
    pub geometry: Option<Geometry>,
    /// The length of a new image's log, in bytes; `None` chooses one by its size.
    pub log_bytes: Option<u64>,
    /// A source of nonces, which must never repeat for this image.
    pub nonces: NonceSource,
}

impl KvOptions {
    /// Default options.
    pub fn new(nonces: NonceSource) -> KvOptions {
        KvOptions { cache: CacheBudget::default(), geometry: None, log_bytes: None, nonces }
    }
}

/// Changes that are made atomically, in order. Keys and values are copied into a few allocations; long values can be
/// passed without a copy.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    messages: Vec<RecordMessage>,
    arena: BytesMut,
    scratch: Vec<u8>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// An empty batch with room for `changes` changes.
    pub fn with_capacity(changes: usize) -> Batch {
        Batch { messages: Vec::with_capacity(changes), ..Batch::default() }
    }

    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Number of changes.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Sets `key`, of at most 1024 bytes, to a value of at most 64 KiB.
    pub fn insert(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
        let value = self.keep(value);
        self.push(tree, key, Action::Insert(value));
    }

    /// As [`Batch::insert`], without copying the value.
    pub fn insert_shared(&mut self, tree: TreeId, key: &[u8], value: Bytes) {
        self.push(tree, key, Action::Insert(value));
    }

    /// Removes `key`, if it exists.
    pub fn delete(&mut self, tree: TreeId, key: &[u8]) {
        self.push(tree, key, Action::Delete);
    }

    /// Removes all keys from `lo` up to, but without, `hi`, by one message. An empty range adds no message.
    pub fn delete_range(&mut self, tree: TreeId, lo: &[u8], hi: &[u8]) {
        if lo < hi {
            let (lo, hi) = (Key::new(self.keep(lo)), Key::new(self.keep(hi)));
            self.messages.push(RecordMessage::RangeDelete(tree, lo, hi));
        }
    }

    /// Writes `bytes` over the value of `key` at `offset`; the value grows as needed, with zeros. An absent value stays
    /// absent unless `create`.
    pub fn patch(&mut self, tree: TreeId, key: &[u8], offset: usize, bytes: &[u8], create: bool) {
        let mut encoded = std::mem::take(&mut self.scratch);
        Update::encode_patch(&mut encoded, offset, bytes, create);
        let update = Update::trusted(self.keep(&encoded));
        self.scratch = encoded;
        self.push(tree, key, Action::Update(update));
    }

    /// Truncates the value of `key` to `len` bytes, if it is longer.
    pub fn trim(&mut self, tree: TreeId, key: &[u8], len: usize) {
        self.push(tree, key, Action::Update(Update::trim(len)));
    }

    /// Adds `delta`, wrapping around, to the little-endian number of eight bytes at `offset`, a multiple of eight, in
    /// the value of `key` in the metadata tree. Does nothing if the value is shorter.
    pub fn add(&mut self, key: &[u8], offset: usize, delta: i64) {
        self.push(TreeId::Metadata, key, Action::Update(Update::add(offset, delta)));
    }

    fn push(&mut self, tree: TreeId, key: &[u8], action: Action) {
        let key = Key::new(self.keep(key));
        self.messages.push(RecordMessage::Point(tree, key, action));
    }

    /// A copy of some bytes in the batch's memory.
    fn keep(&mut self, bytes: &[u8]) -> Bytes {
        // Long values stay in memory as they are, so they must not keep other items there.
        if bytes.len() > BATCH_ALONE {
            return Bytes::copy_from_slice(bytes);
        }
        if self.arena.capacity() - self.arena.len() < bytes.len() {
            self.arena = BytesMut::with_capacity(BATCH_PIECE.max(bytes.len()));
        }
        self.arena.extend_from_slice(bytes);
        self.arena.split().freeze()
    }
}

impl Kv {
    /// Creates an empty image on `device`, which is overwritten, and opens it. The same name, nonces and changes give
    /// the same bytes.
    pub fn create(device: Arc<dyn Device>, name: [u8; 16], mut options: KvOptions) -> Result<Kv> {
        let nonce = (options.nonces)();
        let mut create = CreateOptions {
            content: Content::Keys,
            zones: crate::format::ZoneSizes::NONE,
            cache: options.cache,
            ..CreateOptions::new(name, device.len(), Box::new(move || nonce))
        };
        create.log_bytes = options.log_bytes.unwrap_or(create.log_bytes);
        create.geometry = options.geometry.unwrap_or(create.geometry);
        let mut volume = Volume::create(device.clone(), create)?;
        volume.checkpoint()?;
        drop(volume);
        Kv::open(device, Mode::ReadWrite, options).map(|(kv, _)| kv)
    }

    /// Opens an image, and recovers the records of its log.
    pub fn open(device: Arc<dyn Device>, mode: Mode, options: KvOptions) -> Result<(Kv, Recovery)> {
        let KvOptions { cache, nonces, .. } = options;
        let content = Some(Content::Keys);
        let options = OpenOptions { cache, content, ..OpenOptions::new(mode, nonces) };
        let (volume, recovery) = Volume::open(device, options)?;
        Ok((Kv { volume }, recovery))
    }

    /// Makes all changes of a batch atomically: after an error, none.
    ///
    /// A large batch is injected in the background once it is in the log: the next read waits for it, and the next call
    /// returns its error, such as a node that cannot be read. After a sync, a recovery restores the logged part of such
    /// a batch.
    pub fn commit(&mut self, batch: Batch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let Batch { messages, .. } = batch;
        self.commit_as(Op::Raw, messages)
    }

    /// Makes every batch so far durable, through the log: one flush of the device.
    pub fn sync(&mut self) -> Result<()> {
        self.volume.sync()
    }

    /// Makes every batch so far durable, through the trees: then the log is empty.
    pub fn checkpoint(&mut self) -> Result<()> {
        self.volume.checkpoint()
    }

    /// Makes `destination`·s read as `source`·s, for every s, without a copy: the time does not depend on how much there
    /// is. Later changes of one do not show in the other; the first change of a part copies its nodes.
    ///
    /// No key may begin with `destination`, which must be no longer than `source`. Neither may begin with the other, and
    /// each must have a byte below 255.
    pub fn clone_range(&mut self, tree: TreeId, source: &[u8], destination: &[u8]) -> Result<()> {
        let clone = range_clone(tree, source, destination)?;
        self.commit_as(Op::Clone, vec![clone])
    }

    /// As [`Kv::clone_range`], and deletes the keys that begin with `source`, in one step: all of them begin with
    /// `destination` afterwards.
    pub fn rename_range(&mut self, tree: TreeId, source: &[u8], destination: &[u8]) -> Result<()> {
        let clone = range_clone(tree, source, destination)?;
        let end = prefix_end(source).expect("a prefix of a lens has keys behind it");
        let delete = RecordMessage::RangeDelete(tree, Key::copied(source), end);
        self.commit_as(Op::Rename, vec![clone, delete])
    }

    fn commit_as(&mut self, op: Op, messages: Vec<RecordMessage>) -> Result<()> {
        let transaction = Transaction { op, wall: Time::default(), messages };
        self.volume.commit(transaction).map(|_| ())
    }

    /// Flushes all buffers to the leaves. A checkpoint then frees the space of all deletes, and a scan meets no
    /// messages. Rewrites each leaf with pending messages.
    pub fn drain(&mut self) -> Result<()> {
        self.volume.drain()
    }

    /// Drops some of the leaves that range deletes cover entirely, without reading them; a checkpoint drops the rest.
    /// Returns whether there may be more.
    pub fn prune_some(&mut self) -> Result<bool> {
        self.volume.prune_some()
    }

    /// The value of `key`.
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Bytes>> {
        self.volume.get(tree, key)
    }

    /// The entries from `lo` up to, but without, `hi`, or to the end, in key order, as a double-ended iterator.
    pub fn range(&self, tree: TreeId, lo: &[u8], hi: Option<&[u8]>) -> Cursor<'_> {
        self.volume.cursor(tree, Key::copied(lo), hi.map(Key::copied))
    }

    /// The volume, with its counters, superblock and nodes.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }
}

fn range_clone(tree: TreeId, source: &[u8], destination: &[u8]) -> Result<RecordMessage> {
    let misuse =
        || Error::Misuse("a range cannot be cloned: the prefixes do not suit each other".into());
    let lens = Lens::of_ranges(Key::copied(destination), Key::copied(source)).ok_or_else(misuse)?;
    Ok(RecordMessage::Clone(tree, lens.into()))
}
