//! Creation of a volume.

use std::sync::Arc;

use super::trees::TreesHandle;
use super::{Access, Content, Counters, NonceSource, Volume};
use crate::device::Device;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::{
    Birth, Features, HoldsRoot, Identity, Inflow, NextNumbers, PagePointer, Superblock, TableRoot,
    ZoneSizes, limits,
};
use crate::holds::Holds;
use crate::ids::*;
use crate::log::{Log, Region};
use crate::space::{Layout, Space, default_log_bytes};
use crate::store::{CacheBudget, Geometry, Store};
use crate::table::Table;
use crate::tree::{self, Balance};
use crate::tuning::{LATE_BYTES, ZEROS};

/// Options for a new volume.
pub struct CreateOptions {
    /// The UUID; the internal volume id and the first nonce derive from it.
    pub uuid: [u8; 16],
    /// The label, at most 64 bytes.
    pub label: String,
    /// The length of the log, in bytes.
    pub log_bytes: u64,
    /// The sizes that shape the trees.
    pub geometry: Geometry,
    /// What the trees hold.
    pub content: Content,
    /// The zone sizes of a file system, as far as the log allows.
    pub zones: ZoneSizes,
    /// The memory budget of the cache.
    pub cache: CacheBudget,
    /// The source of the nonces of later epochs.
    pub nonces: NonceSource,
}

impl CreateOptions {
    /// A file system with default sizes for an image of `bytes`, without a label.
    pub fn new(uuid: [u8; 16], bytes: u64, nonces: NonceSource) -> CreateOptions {
        CreateOptions {
            uuid,
            label: String::new(),
            log_bytes: default_log_bytes(bytes),
            geometry: Geometry::of_image(bytes),
            content: Content::Files,
            zones: ZoneSizes::default(),
            cache: CacheBudget::default(),
            nonces,
        }
    }
}

impl Volume {
    /// Creates an empty volume on `device`, which is overwritten. The identity block is written last, so the device is
    /// no image until the first checkpoint is durable. The new volume does not log.
    pub fn create(device: Arc<dyn Device>, options: CreateOptions) -> Result<Volume> {
        let disk = Disk::new(device);
        if options.label.len() > limits::LABEL_MAX || options.label.contains('\0') {
            return Err(Error::Input(format!("a label of more than {} bytes", limits::LABEL_MAX)));
        }
        let layout = Layout::new(disk.len(), options.log_bytes)?;
        if !super::reserve::suits(options.geometry, layout.image_blocks) {
            let (node, image) = (options.geometry.node_size, disk.len());
            let text = format!("nodes of {node} bytes are too large for an image of {image} bytes");
            return Err(Error::Input(text));
        }
        let volume = VolumeId(derive(&options.uuid, "volume id"));
        let nonce = Nonce(u64::from_le_bytes(derive(&options.uuid, "first nonce")));
        let mut space = Space::empty(disk.clone(), &layout);
        for (start, blocks) in layout.fixed() {
            zero(&disk, start, blocks)?;
            space.reserve(start, blocks);
        }
        let birth = Birth { volume, epoch: Epoch(1), nonce };
        let first_node = NodeId(3);
        let table = Table::empty(disk.clone(), volume);
        let mut store =
            Store::new(disk, space, table, options.geometry, birth, first_node, options.cache);
        TreeId::ALL.into_iter().for_each(|id| tree::create(&mut store, id));
        let zones = options.zones.within(layout.log_units * BLOCK_SIZE as u64);
        let incompatible = if options.content == Content::Keys { Features::KEYS } else { 0 };
        let features = Features { incompatible, ..Features::default() };
        let superblock = Superblock { features, ..unborn(&layout, options.geometry, zones, birth) };
        let identity = Identity {
            volume,
            uuid: options.uuid,
            label: options.label,
            image_blocks: layout.image_blocks,
            ring: layout.ring,
            log_units: layout.log_units,
            map: layout.map.clone(),
            incompatible,
            error_met: false,
        };
        Ok(Volume {
            disk: store.disk.clone(),
            poison: store.poison.clone(),
            trees: TreesHandle::new(store, Balance::default()),
            log: Log::new(Region::of(&superblock), 0, 1),
            superblock,
            nonce_before: Nonce(0),
            identity,
            unidentified: true,
            nonces: options.nonces,
            is_reproducible: false,
            next_msn: Msn(1),
            next: NextNumbers::FIRST,
            late_bytes: LATE_BYTES,
            checkpoint_after: None,
            changed: None,
            latest: None,
            drained_at: Msn(0),
            deletes: 0,
            counters: Counters::default(),
            larger: None,
            unfinished: None,
            holds: Holds::default(),
            drop_blocked: None,
            deletes_passed: 0,
            taking: None,
            access: Access::ReadWrite { logged: false, fenced: false },
        })
    }
}

/// A placeholder for the superblock before the first checkpoint.
pub(super) fn unborn(
    layout: &Layout,
    geometry: Geometry,
    zones: ZoneSizes,
    birth: Birth,
) -> Superblock {
    let page = PagePointer { block: BlockNr(0), birth: Epoch(0), hash: Hash::default() };
    Superblock {
        birth: Birth { epoch: Epoch(0), nonce: Nonce(0), ..birth },
        slot: 0,
        features: Features::default(),
        node_size: geometry.node_size,
        leaf_size: geometry.leaf_size,
        basement_size: geometry.basement_size,
        fanout: geometry.fanout,
        image_blocks: layout.image_blocks,
        log_start: layout.log_start,
        log_units: layout.log_units,
        log_head: 0,
        first_group: 1,
        map: layout.map.clone(),
        map_pages: layout.map_pages(),
        map_hash: Hash::default(),
        table: TableRoot { page, levels: 1 },
        next_node: NodeId(3),
        next: NextNumbers::FIRST,
        next_msn: Msn(1),
        zones,
        wall: Time::default(),
        used_blocks: 0,
        inflow: Inflow::default(),
        nodes: 0,
        log_epoch: Epoch(0),
        log_nonce: Nonce(0),
        prunes: Vec::new(),
        dying: 0,
        holds: HoldsRoot::default(),
    }
}

/// Bytes derived from the UUID and a purpose.
fn derive<const N: usize>(uuid: &[u8; 16], purpose: &str) -> [u8; N] {
    let hash = Hash::of(&[b"betr ", &uuid[..], purpose.as_bytes()].concat());
    std::array::from_fn(|at| hash.0[at])
}

fn zero(disk: &Disk, start: BlockNr, blocks: u64) -> Result<()> {
    let zeros = vec![0; ZEROS.min(blocks as usize * BLOCK_SIZE)];
    let (mut at, end) = (start.byte(), start.byte() + blocks * BLOCK_SIZE as u64);
    while at < end {
        let len = zeros.len().min((end - at) as usize);
        disk.write(at, &zeros[..len])?;
        at += len as u64;
    }
    Ok(())
}
