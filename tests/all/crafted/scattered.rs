//! Crafted scatter maps: impossible chains, counts and extents.

use super::*;

/// Scatters a leaf, with one extent per block and maps of `each` extents, which `change` may falsify.
fn scattered(
    mut forge: Forge,
    each: usize,
    change: impl FnOnce(&mut Forge, BlockNr, &mut Vec<(BlockNr, ScatterMap)>),
) -> Vec<u8> {
    let (id, _) = leaf(&mut forge);
    let old = forge.entry(id).extent;
    let blocks: Vec<Vec<u8>> =
        (old.start.0..old.end().0).map(|block| forge.block(BlockNr(block)).to_vec()).collect();
    let extents: Vec<Extent> = blocks.iter().map(|block| forge.put(block)).collect();
    forge.mark(old.start.0..old.end().0, false);
    let places: Vec<BlockNr> =
        extents.chunks(each).map(|_| forge.put(&[0; BLOCK_SIZE]).start).collect();
    let next = places.iter().skip(1).map(|next| Some((*next, Hash::default()))).chain([None]);
    let maps = extents.chunks(each).zip(next);
    let maps = maps.map(|(extents, next)| ScatterMap { next, extents: extents.to_vec() });
    let mut maps: Vec<(BlockNr, ScatterMap)> = places.iter().copied().zip(maps).collect();
    change(&mut forge, old.start, &mut maps);
    for (place, map) in maps {
        let (bytes, _) = map.encode(forge.birth());
        forge.write(place, &bytes);
    }
    let extent = Extent { start: BlockNr::scattered(places[0]), blocks: old.blocks };
    forge.entry(id).extent = extent;
    forge.seal()
}

pub(super) fn sound(forge: Forge) -> Vec<u8> {
    scattered(forge, MAP_EXTENTS, |_, _, _| {})
}

pub(super) const CASES: &[Case] = &[
    ("a scattered leaf", Clean, sound),
    ("maps that are not full", Finds(Code::ScatterMapInvalid), |forge| {
        scattered(forge, 1, |_, _, _| {})
    }),
    ("maps in a circle", Finds(Code::ScatterMapInvalid), |forge| {
        scattered(forge, 1, |_, _, maps| {
            let first = maps[0].0;
            maps.last_mut().unwrap().1.next = Some((first, Hash::default()));
        })
    }),
    ("a map that is its own next", Finds(Code::ScatterMapInvalid), |forge| {
        scattered(forge, 334, |_, _, maps| {
            maps[0].1.next = Some((maps[0].0, Hash::default()));
        })
    }),
    ("a map of too few blocks", Finds(Code::ScatterMapInvalid), |forge| {
        scattered(forge, 334, |_, _, maps| maps[0].1.extents.truncate(1))
    }),
    ("a map of too many blocks", Finds(Code::ScatterMapInvalid), |forge| {
        scattered(forge, 334, |_, old, maps| {
            maps[0].1.extents.push(Extent { start: old, blocks: 1 })
        })
    }),
    ("an extent of more blocks than there are", Finds(Code::ScatterMapInvalid), |forge| {
        scattered(forge, 334, |_, _, maps| maps[0].1.extents[0].blocks = u32::MAX)
    }),
    ("an extent past the image's end", Wrong, |forge| {
        scattered(forge, 334, |_, _, maps| maps[0].1.extents[0].start = BlockNr(1 << 40))
    }),
    ("an extent in a fixed region", Finds(Code::BlockOutside), |forge| {
        scattered(forge, 334, |_, _, maps| maps[0].1.extents[0].start = BlockNr(20))
    }),
    ("an extent twice", Finds(Code::BlockTwice), |forge| {
        scattered(forge, 334, |_, _, maps| maps[0].1.extents[1] = maps[0].1.extents[0])
    }),
    ("an extent of another node", Finds(Code::BlockTwice), |forge| {
        scattered(forge, 334, |forge, _, maps| {
            maps[0].1.extents[0].start = forge.entry(META.root()).extent.start;
        })
    }),
    ("a map that is its own extent", Finds(Code::BlockTwice), |forge| {
        scattered(forge, 334, |_, _, maps| maps[0].1.extents[0].start = maps[0].0)
    }),
    ("a map without extents", Finds(Code::ScatterMapInvalid), |forge| {
        scattered(forge, 334, |_, _, maps| maps[0].1.extents.clear())
    }),
    ("a map that is no map", Finds(Code::ScatterMapInvalid), |mut forge| {
        let (id, _) = leaf(&mut forge);
        let entry = forge.entry(id);
        entry.extent.start = BlockNr::scattered(entry.extent.start);
        forge.seal()
    }),
    ("a map past the image's end", Wrong, |mut forge| {
        let (id, _) = leaf(&mut forge);
        forge.entry(id).extent.start = BlockNr::scattered(BlockNr((1 << 32) - 1));
        forge.seal()
    }),
    ("a scattered extent that begins in its middle", Finds(Code::TablePageInvalid), |mut forge| {
        let (id, _) = leaf(&mut forge);
        forge.entry(id).extent.start = BlockNr(SCATTERED + 5);
        forge.seal()
    }),
];
