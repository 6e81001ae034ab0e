//! By how much leaves may grow when pending messages come to them: room that must be free until then.

use std::ops::{Add, AddAssign, Sub, SubAssign};

use super::message::Kind;
use crate::ids::Height;

/// What an entry takes in a leaf besides its key and value, at the most: 64 bytes for an entry of a key section and a chunk.
pub(super) const ENTRY_BYTES: u64 = 64;

/// Growth of leaves, as messages and as bytes: a message may take a leaf beyond the end of a block, however short it is. Messages
/// for one leaf do that once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// Messages that may need room in a leaf.
    pub messages: u64,
    /// How many bytes more than in buffers they may take there.
    pub bytes: u64,
}

impl Growth {
    /// Growth by one message: `key` and `value` are the bytes of its key and of its value or update, `made` the greatest length
    /// to which an update fills a value up. A value leaves the room that it took in a buffer. A delete makes leaves no longer, nor does an update that only cuts
    /// and adds.
    pub fn of(kind: Kind, key: usize, value: usize, made: usize) -> Growth {
        let more = match kind {
            Kind::Insert => 0,
            Kind::Update if made > 0 => made.saturating_sub(value),
            Kind::Update | Kind::Delete => return Growth::default(),
        };
        Growth { messages: 1, bytes: ENTRY_BYTES + (key + more) as u64 }
    }

    /// Of messages for one child of a node of this height: at height 1 they come to one leaf.
    pub fn at(self, height: Height) -> Growth {
        let most = if height == Height(1) { 1 } else { u64::MAX };
        Growth { messages: self.messages.min(most), ..self }
    }
}

/// What comes to leaves when all that is pending moves down, as far as they need room for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inflow {
    /// Bytes of slices, or of messages that are not sealed yet. They divide leaves, which wastes parts of blocks.
    pub bytes: u64,
    /// By how much leaves may grow.
    pub growth: Growth,
}

impl Add for Inflow {
    type Output = Inflow;

    fn add(self, other: Inflow) -> Inflow {
        let bytes = self.bytes.saturating_add(other.bytes);
        Inflow { bytes, growth: self.growth + other.growth }
    }
}

impl Sub for Inflow {
    type Output = Inflow;

    fn sub(self, other: Inflow) -> Inflow {
        let bytes = self.bytes.saturating_sub(other.bytes);
        Inflow { bytes, growth: self.growth - other.growth }
    }
}

impl AddAssign for Inflow {
    fn add_assign(&mut self, other: Inflow) {
        *self = *self + other;
    }
}

impl SubAssign for Inflow {
    fn sub_assign(&mut self, other: Inflow) {
        *self = *self - other;
    }
}

impl std::iter::Sum for Inflow {
    fn sum<I: Iterator<Item = Inflow>>(all: I) -> Inflow {
        all.fold(Inflow::default(), Inflow::add)
    }
}

impl Add for Growth {
    type Output = Growth;

    fn add(self, other: Growth) -> Growth {
        let messages = self.messages.saturating_add(other.messages);
        Growth { messages, bytes: self.bytes.saturating_add(other.bytes) }
    }
}

impl Sub for Growth {
    type Output = Growth;

    fn sub(self, other: Growth) -> Growth {
        // An image may state less than there is, which the checker finds.
        let messages = self.messages.saturating_sub(other.messages);
        Growth { messages, bytes: self.bytes.saturating_sub(other.bytes) }
    }
}

impl AddAssign for Growth {
    fn add_assign(&mut self, other: Growth) {
        *self = *self + other;
    }
}

impl SubAssign for Growth {
    fn sub_assign(&mut self, other: Growth) {
        *self = *self - other;
    }
}

impl std::iter::Sum for Growth {
    fn sum<I: Iterator<Item = Growth>>(all: I) -> Growth {
        all.fold(Growth::default(), Growth::add)
    }
}
