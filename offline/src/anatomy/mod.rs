//! The structures of a sound image: everything reachable from the newest superblock, with its place, its verification,
//! and the places where its hash is repeated.
//!
//! Tools use it to identify bytes, and `betr_lab::damage` to find the hashes of damaged bytes. Names are addresses:
//!
//! ```text
//! identity                          the identity block
//! super                             the newest superblock, in both of its slots
//! super:SLOT                        one slot of the ring
//! map:PAGE/SLOT                     a slot of a page of the space map
//! table:LEVEL/INDEX                 a page of the allocation table
//! holds:LEVEL/INDEX                 a page of snapshots, or of pointers to such pages
//! dead:BLOCK                        a page of a dead list
//! n:ID                              the head of a node
//! n:ID/basement:B                   a key section of a leaf
//! n:ID/basement:B/chunk:C           values of it that share one hash
//! n:ID/basement:B/value:E           one of them
//! n:ID/run:R                        the header of a run
//! n:ID/run:R/slice:S                messages for one child
//! n:ID/run:R/slice:S/value:M        the value or the update of one of them
//! n:ID/run:R/ranges                 range messages
//! …/padding                         zeros up to the end of the blocks
//! scatter:BLOCK                     a map of a scattered extent
//! s:NAME/table:LEVEL/INDEX          a page of the table of a snapshot, which neither the live volume nor a younger one has
//! s:NAME/n:ID/…                     a node of it, under the same condition
//! log:GROUP                         a log group
//! log:GROUP/binding:B/…             a leaf or a slice that it binds values in
//! ```

mod fields;
mod ground;
mod part;
mod walk;

use std::sync::Arc;

pub use fields::Field;
pub use ground::{Area, Ground, Purpose, keys_at};
pub use part::{Above, Kind, Part, Seals};

use betr_core::device::Device;
use betr_core::disk::Disk;
use betr_core::error::{Error, Result};
use betr_core::format::Entry;
use betr_core::ids::NodeId;

/// The structures of an image.
#[derive(Clone, Debug)]
pub struct Anatomy {
    parts: Vec<Part>,
    /// The valid slots of the space map, in page order.
    map: Vec<usize>,
}

impl Anatomy {
    /// Lists the structures of a sound image. Memory is proportional to their number.
    pub fn of(device: &Arc<dyn Device>) -> Result<Anatomy> {
        walk::walk(&Disk::new(device.clone()))
    }

    /// The structures of one node, of a sound or of a damaged image.
    pub fn of_node(disk: &Disk, id: NodeId, entry: &Entry) -> Result<Vec<Part>> {
        walk::node(disk, id, entry)
    }

    /// All structures; each comes after the one that refers to it.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The valid slots of the space map, in page order.
    pub fn map(&self) -> impl Iterator<Item = &Part> {
        self.map.iter().map(|page| &self.parts[*page])
    }

    /// The structure of a name.
    pub fn find(&self, name: &str) -> Result<&Part> {
        let found = self.parts.iter().find(|part| part.name == name);
        found.ok_or_else(|| Error::Input(format!("there is no structure '{name}'")))
    }
}
