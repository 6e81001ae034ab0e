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
//! The trees differ in what they are good for. In [`TreeId::Data`] values of exactly 4096 bytes lie on
//! their own in blocks, and rows of them, under keys whose last eight bytes count up, are bound late: large
//! writes reach the device once. In [`TreeId::Metadata`] there are counters.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::device::Device;
use crate::error::Result;
use crate::format::{Action, Key, Op, RecordMessage, Update};
use crate::ids::*;
use crate::store::{CacheBudget, Geometry};
use crate::tree::Cursor;
use crate::tuning::{BATCH_ALONE, BATCH_PIECE};
use crate::volume::{
    Content, CreateOptions, Mode, NonceSource, OpenOptions, Recovery, Transaction, Volume,
};

/// An open image of keys and values.
///
/// What is committed can be read at once. It is durable after [`Kv::sync`] or [`Kv::checkpoint`]; a
/// recovery brings back a prefix of the batches, all that were synced among them.
pub struct Kv {
    volume: Volume,
}

/// How an image is made and opened.
pub struct KvOptions {
    /// How much memory the cache may take.
    pub cache: CacheBudget,
    /// The sizes that shape the trees of a new image; nothing for those that suit its size.
    pub geometry: Option<Geometry>,
    /// The length of a new image's log, in bytes; nothing for a share of the image.
    pub log_bytes: Option<u64>,
    /// Fresh numbers, none of which this image has seen before.
    pub nonces: NonceSource,
}

impl KvOptions {
    /// The usual sizes.
    pub fn new(nonces: NonceSource) -> KvOptions {
        KvOptions { cache: CacheBudget::default(), geometry: None, log_bytes: None, nonces }
    }
}

/// Changes that are made together, in order. Keys and values are copied into few pieces of memory; long
/// values can be handed over as they are.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    messages: Vec<RecordMessage>,
    arena: BytesMut,
    scratch: Vec<u8>,
}

impl Batch {
    /// One without changes.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// The same with room for so many.
    pub fn with_capacity(changes: usize) -> Batch {
        Batch { messages: Vec::with_capacity(changes), ..Batch::default() }
    }

    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// How many changes there are.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Gives `key`, of at most 1024 bytes, a value of at most 64 KiB.
    pub fn insert(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
        let value = self.keep(value);
        self.push(tree, key, Action::Insert(value));
    }

    /// The same with a value that is not copied.
    pub fn insert_shared(&mut self, tree: TreeId, key: &[u8], value: Bytes) {
        self.push(tree, key, Action::Insert(value));
    }

    /// Removes `key`, if it is there.
    pub fn delete(&mut self, tree: TreeId, key: &[u8]) {
        self.push(tree, key, Action::Delete);
    }

    /// Removes all keys from `lo` up to, but without, `hi`: one message, however many they are. A range
    /// without keys is none.
    pub fn delete_range(&mut self, tree: TreeId, lo: &[u8], hi: &[u8]) {
        if lo < hi {
            let (lo, hi) = (Key::new(self.keep(lo)), Key::new(self.keep(hi)));
            self.messages.push(RecordMessage::RangeDelete(tree, lo, hi));
        }
    }

    /// Writes `bytes` over the value of `key` at `offset`; the value grows as needed, with zeros. Nothing
    /// happens where there is no value, unless `create`: then it is made.
    pub fn patch(&mut self, tree: TreeId, key: &[u8], offset: usize, bytes: &[u8], create: bool) {
        let mut encoded = std::mem::take(&mut self.scratch);
        Update::encode_patch(&mut encoded, offset, bytes, create);
        let update = Update::trusted(self.keep(&encoded));
        self.scratch = encoded;
        self.push(tree, key, Action::Update(update));
    }

    /// Cuts the value of `key` to `len` bytes, if it has more.
    pub fn trim(&mut self, tree: TreeId, key: &[u8], len: usize) {
        self.push(tree, key, Action::Update(Update::trim(len)));
    }

    /// Adds `delta`, wrapping around, to the little-endian number in the eight bytes at `offset`, a multiple
    /// of eight, of the value of `key` in the metadata tree, if it has them.
    pub fn add(&mut self, key: &[u8], offset: usize, delta: i64) {
        self.push(TreeId::Metadata, key, Action::Update(Update::add(offset, delta)));
    }

    fn push(&mut self, tree: TreeId, key: &[u8], action: Action) {
        let key = Key::new(self.keep(key));
        self.messages.push(RecordMessage::Point(tree, key, action));
    }

    /// A copy of some bytes.
    fn keep(&mut self, bytes: &[u8]) -> Bytes {
        // What is long stays in memory as it is, and must not keep other things there.
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
    /// Makes an empty image over `device`, which is overwritten, and opens it. With the same name and nonces
    /// the same changes make the same bytes.
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

    /// Opens an image, and recovers what its log holds.
    pub fn open(device: Arc<dyn Device>, mode: Mode, options: KvOptions) -> Result<(Kv, Recovery)> {
        let KvOptions { cache, nonces, .. } = options;
        let content = Some(Content::Keys);
        let options = OpenOptions { cache, content, ..OpenOptions::new(mode, nonces) };
        let (volume, recovery) = Volume::open(device, options)?;
        Ok((Kv { volume }, recovery))
    }

    /// Makes all changes of a batch, or, if there is an error, none of them.
    ///
    /// A large batch is brought into the trees beside its caller, once it is in the log: whoever reads next waits for that,
    /// and what goes wrong with it, such as a node that cannot be read, is the next call's error. What the log holds of such a
    /// batch after a sync a recovery brings back.
    pub fn commit(&mut self, batch: Batch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let Batch { messages, .. } = batch;
        let transaction = Transaction { op: Op::Raw, wall: Time::default(), messages };
        self.volume.commit(transaction).map(|_| ())
    }

    /// Makes every batch so far durable, through the log: one flush of the device.
    pub fn sync(&mut self) -> Result<()> {
        self.volume.sync()
    }

    /// Makes every batch so far durable, through the trees: then the log is empty.
    pub fn checkpoint(&mut self) -> Result<()> {
        self.volume.checkpoint()
    }

    /// Moves everything that is pending down to the leaves, after which a checkpoint gives back the space of all
    /// that was deleted, and a scan meets no message. It rewrites each leaf that something is pending for.
    pub fn drain(&mut self) -> Result<()> {
        self.volume.drain()
    }

    /// Drops some of the leaves that range deletes cover as a whole, without reading them; a checkpoint drops all that are left.
    /// Whether there may be more.
    pub fn prune_some(&mut self) -> Result<bool> {
        self.volume.prune_some()
    }

    /// The value of `key`.
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Bytes>> {
        self.volume.get(tree, key)
    }

    /// The entries from `lo` up to, but without, `hi`, or to the end, in the order of their keys; an
    /// iterator that can be taken from both ends.
    pub fn range(&self, tree: TreeId, lo: &[u8], hi: Option<&[u8]>) -> Cursor<'_> {
        self.volume.cursor(tree, Key::copied(lo), hi.map(Key::copied))
    }

    /// The volume beneath: its counters, its superblock, its nodes.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }
}
