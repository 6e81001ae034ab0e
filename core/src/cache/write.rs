//! Writing nodes back.

use rayon::prelude::*;

use super::Store;
use crate::device::Disk;
use crate::error::Result;
use crate::format::Entry;
use crate::ids::*;
use crate::node::{Internal, Leaf, LeafImage, Node};

/// Leaves of a batch.
const LEAVES_AT_ONCE: usize = 16;
/// Sealed runs of an internal node before they are joined.
const RUNS_MAX: usize = 16;

impl Store {
    /// Keeps the budget: writes the oldest dirty nodes and drops the oldest clean ones.
    pub fn make_room(&mut self) -> Result<()> {
        let dirty = self.dirty_bytes();
        if dirty > self.budget.dirty_bytes {
            self.write_oldest(dirty - self.budget.dirty_bytes / 2)?;
        }
        self.lock().shrink_to(self.budget.total_bytes);
        Ok(())
    }

    /// Writes all dirty nodes.
    pub fn write_all(&mut self) -> Result<()> {
        self.write_oldest(usize::MAX >> 1)
    }

    fn write_oldest(&mut self, bytes: usize) -> Result<()> {
        let nodes = self.lock().oldest_dirty(bytes);
        let (mut leaves, mut internals) = (Vec::new(), Vec::new());
        for node in &nodes {
            match &**node {
                Node::Leaf(leaf) => leaves.push(leaf),
                Node::Internal(internal) => internals.push(internal.id),
            }
        }
        self.write_leaves(&leaves)?;
        drop(nodes);
        for id in internals {
            self.write_internal(id)?;
        }
        Ok(())
    }

    /// Serialises and hashes a batch of leaves on all cores while the batch before it is written: writes
    /// to one file wait for one another, so there is nothing to gain from more than one at a time.
    fn write_leaves(&mut self, leaves: &[&Leaf]) -> Result<()> {
        let (birth, basement_size) = (self.birth, self.geometry.basement_size as usize);
        let disk = self.disk.clone();
        let mut placed: Vec<(Extent, LeafImage)> = Vec::new();
        for batch in leaves.chunks(LEAVES_AT_ONCE) {
            let first_seq = self.write_seq + 1;
            self.write_seq += batch.len() as u64;
            let image = |(at, leaf): (usize, &&Leaf)| {
                leaf.image(birth, first_seq + at as u64, basement_size)
            };
            let (images, written) = rayon::join(
                || batch.par_iter().enumerate().map(image).collect::<Vec<_>>(),
                || write_images(&disk, &placed),
            );
            written?;
            placed.clear();
            for (leaf, image) in batch.iter().zip(images) {
                let extent = self.space.allocate((image.bytes.len() / BLOCK_SIZE) as u64)?;
                let entry = self.entry(leaf.tree, Height(0), extent, image.head_bytes, image.hash);
                self.place(leaf.id, Some(entry))?;
                placed.push((extent, image));
            }
        }
        write_images(&disk, &placed)?;
        let mut cache = self.lock();
        leaves.iter().for_each(|leaf| cache.cleaned(leaf.id));
        Ok(())
    }

    fn write_internal(&mut self, id: NodeId) -> Result<()> {
        let mut freed = self.edit(id, |node, disk| {
            let Node::Internal(node) = node else {
                unreachable!("the writer chose internal nodes")
            };
            let mut freed = node.drop_dead_runs();
            if node.wants_compaction(RUNS_MAX) {
                freed.extend(node.unseal(disk)?);
            }
            Ok(freed)
        })?;
        self.seal_open_run(id)?;
        self.write_seq += 1;
        let node = self.node(id)?;
        let Node::Internal(internal) = &*node else {
            unreachable!("the writer chose internal nodes")
        };
        let (head, hash) = internal.head(self.write_seq).encode(self.birth);
        let extent = self.space.allocate(head.len().div_ceil(BLOCK_SIZE) as u64)?;
        let mut padded = head;
        let head_bytes = padded.len() as u32;
        padded.resize(extent.bytes() as usize, 0);
        self.disk.write(extent.start.byte(), &padded)?;
        let entry = self.entry(internal.tree, internal.height, extent, head_bytes, hash);
        self.place(id, Some(entry))?;
        for (extent, birth) in freed.drain(..) {
            self.space.free(extent, birth, self.birth.epoch)?;
        }
        self.lock().cleaned(id);
        Ok(())
    }

    fn seal_open_run(&mut self, id: NodeId) -> Result<()> {
        let node = self.node(id)?;
        let Node::Internal(internal) = &*node else { return Ok(()) };
        if !Internal::has_open(internal) {
            return Ok(());
        }
        let image = internal.seal_image(self.birth);
        drop(node);
        let extent = self.space.allocate((image.bytes.len() / BLOCK_SIZE) as u64)?;
        self.disk.write(extent.start.byte(), &image.bytes)?;
        self.edit(id, |node, _| {
            if let Node::Internal(internal) = node {
                internal.sealed(image, extent);
            }
            Ok(())
        })
    }

    fn entry(
        &self,
        tree: TreeId,
        height: Height,
        extent: Extent,
        head_bytes: u32,
        hash: Hash,
    ) -> Entry {
        Entry { extent, head_bytes, hash, birth: self.birth.epoch, references: 1, tree, height }
    }
}

fn write_images(disk: &Disk, images: &[(Extent, LeafImage)]) -> Result<()> {
    images.iter().try_for_each(|(extent, image)| disk.write(extent.start.byte(), &image.bytes))
}
