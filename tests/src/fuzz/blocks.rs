//! Structures of one block, from which all others are reached.

use betr_core::format::{
    DeadPage, HoldsPage, Identity, Magic, MapPage, ScatterMap, Superblock, TablePage,
};

use super::Input;
use super::structure::sealed;

/// Identity blocks, and slots of the superblock ring.
pub fn superblock(bytes: &[u8]) -> bool {
    let Some(input) = Input::of(bytes, 2) else { return false };
    match input.which {
        0 => sealed(&input, Magic::Identity, Identity::decode, Identity::encode).is_some(),
        _ => sealed(&input, Magic::Superblock, Superblock::decode, Superblock::encode).is_some(),
    }
}

/// Pages of the allocation table, slots of the space map, scatter maps, and pages of snapshots and of dead lists.
pub fn table(bytes: &[u8]) -> bool {
    let Some(input) = Input::of(bytes, 5) else { return false };
    match input.which {
        0 => sealed(&input, Magic::TablePage, TablePage::decode, |(seal, page)| {
            page.encode(seal.birth).0
        })
        .is_some(),
        1 => sealed(&input, Magic::SpaceMap, MapPage::decode, |(seal, page)| {
            page.encode(seal.birth).0
        })
        .is_some(),
        2 => sealed(&input, Magic::ScatterMap, ScatterMap::decode, |(seal, map)| {
            map.encode(seal.birth).0
        })
        .is_some(),
        3 => sealed(&input, Magic::HoldsPage, HoldsPage::decode, |(seal, page)| {
            page.encode(seal.birth).0
        })
        .is_some(),
        _ => sealed(&input, Magic::DeadPage, DeadPage::decode, |(seal, page)| {
            page.encode(seal.birth).0
        })
        .is_some(),
    }
}
