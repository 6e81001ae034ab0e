//! What a sound image is made of: every structure that the newest superblock leads to, where its bytes are, how
//! they are verified, and where their hash is said again.
//!
//! Whoever looks at bytes asks here what they are; whoever damages them on purpose (`betr_lab::damage`) asks which
//! hashes speak of them. Names are addresses:
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
//! n:ID/basement:B/chunk:C           values of it that have one hash
//! n:ID/basement:B/value:E           one of them
//! n:ID/run:R                        the header of a run
//! n:ID/run:R/slice:S                messages for one child
//! n:ID/run:R/slice:S/value:M        the value or the update of one of them
//! n:ID/run:R/ranges                 range messages
//! …/padding                         what is zero up to the end of the blocks
//! scatter:BLOCK                     a map of an image that lies scattered
//! s:NAME/table:LEVEL/INDEX          a page of the table of a snapshot, which neither the live volume nor a younger one has
//! s:NAME/n:ID/…                     a node of it, alike
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
    /// The pages of the space map that count, in their order.
    map: Vec<usize>,
}

impl Anatomy {
    /// Takes a sound image apart. Memory is proportional to the number of its structures.
    pub fn of(device: &Arc<dyn Device>) -> Result<Anatomy> {
        walk::walk(&Disk::new(device.clone()))
    }

    /// The structures of one node, of a sound or of a damaged image.
    pub fn of_node(disk: &Disk, id: NodeId, entry: &Entry) -> Result<Vec<Part>> {
        walk::node(disk, id, entry)
    }

    /// All of them; what a structure hangs from stands before it.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The pages of the space map that count, in their order.
    pub fn map(&self) -> impl Iterator<Item = &Part> {
        self.map.iter().map(|page| &self.parts[*page])
    }

    /// The structure of this name.
    pub fn find(&self, name: &str) -> Result<&Part> {
        let found = self.parts.iter().find(|part| part.name == name);
        found.ok_or_else(|| Error::Input(format!("there is no structure '{name}'")))
    }
}
