//! How much leaves may grow when pending messages reach them: space that must be free until then.

use std::ops::{Add, AddAssign, Sub, SubAssign};

use super::message::Kind;
use crate::ids::Height;

/// 64 bytes: the most that an entry takes in a leaf besides its key and value, for its entry in a key section and a
/// chunk.
pub(super) const ENTRY_BYTES: u64 = 64;

/// Growth of leaves, as a number of messages and of bytes. Each message may extend a leaf into another block, however
/// short it is; messages for one leaf do so together at most once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// Messages that may make a leaf grow.
    pub messages: u64,
    /// Bytes that they may take there beyond their bytes in buffers.
    pub bytes: u64,
}

impl Growth {
    /// Growth by one message: `key` and `value` are the bytes of its key and of its value or update; `made` is the
    /// greatest length to which an update extends a value. A value frees its bytes in a buffer. A delete makes no leaf
    /// grow, nor does an update that only trims and adds.
    pub fn of(kind: Kind, key: usize, value: usize, made: usize) -> Growth {
        let more = match kind {
            Kind::Insert => 0,
            Kind::Update if made > 0 => made.saturating_sub(value),
            Kind::Update | Kind::Delete => return Growth::default(),
        };
        Growth { messages: 1, bytes: ENTRY_BYTES + (key + more) as u64 }
    }

    /// The growth by messages for one child of a node of this height: at height 1 they reach a single leaf.
    pub fn at(self, height: Height) -> Growth {
        let most = if height == Height(1) { 1 } else { u64::MAX };
        Growth { messages: self.messages.min(most), ..self }
    }
}

/// The inflow: what leaves need when all pending messages are flushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inflow {
    /// Bytes of slices and of messages in open runs. They split leaves, which wastes parts of blocks.
    pub bytes: u64,
    /// How much leaves may grow.
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
        // A corrupt image may state less than there is, which the checker finds.
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
