//! Space: the use of each block of the image.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use betr_cli::words::use_of;
use betr_core::format::{InternalHead, LeafHead};
use betr_core::ids::{BLOCK_SIZE, Epoch, NodeId};
use betr_offline::anatomy::{Area, Ground, Purpose};

use parking_lot::Mutex;

use super::node::live;
use super::{nodes, text};
use crate::image::Image;
use crate::sheet::{Cell, Role, Row, Sheet, fact};
use crate::spot::Spot;
use crate::words;
use crate::work::Work;

/// The property that the map of the device shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    #[default]
    Owner,
    Age,
    Fill,
    Pending,
}

impl Mode {
    pub(crate) const ALL: [Mode; 4] = [Mode::Owner, Mode::Age, Mode::Fill, Mode::Pending];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Owner => "owner",
            Mode::Age => "age",
            Mode::Fill => "fill",
            Mode::Pending => "pending",
        }
    }

    /// Whether this mode needs the heads of all nodes.
    pub(crate) fn wants_heads(self) -> bool {
        matches!(self, Mode::Fill | Mode::Pending)
    }
}

/// The areas of the device.
pub(crate) struct Space {
    ground: Arc<Ground>,
    pub blocks: u64,
    epoch: Epoch,
    /// The fill of each node in tenths, and the number of messages pending in it; empty if not requested.
    heads: HashMap<NodeId, (usize, u64)>,
    /// The last result of [`Space::paint`] with its arguments: first block, blocks per cell, cells, mode.
    last: Mutex<Option<(Wanted, Arc<Vec<Paint>>)>>,
    legends: [OnceLock<Vec<Paint>>; 4],
}

/// The arguments of [`Space::paint`].
type Wanted = (u64, u64, usize, Mode);

/// A cell of the map: its letter, style and meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paint {
    pub letter: char,
    pub role: Role,
    pub name: &'static str,
}

pub(super) fn space(image: &Image, heads: bool, work: &Arc<Work>) -> Result<Space, String> {
    let superblock = image.superblock()?;
    let (blocks, epoch) = (superblock.image_blocks, superblock.birth.epoch);
    let mut space = Space {
        ground: image.ground(work)?,
        blocks,
        epoch,
        heads: HashMap::new(),
        last: Mutex::default(),
        legends: Default::default(),
    };
    if heads {
        nodes::each(image, work, |seen| {
            let fill = nodes::tenths(seen.bytes, seen.room);
            space.heads.insert(seen.id, (fill, seen.pending));
        })?;
    }
    Ok(space)
}

impl Space {
    /// Paints `count` cells from a block on, `per_cell` blocks each. A cell shows the use of most of its blocks; damage
    /// takes precedence. The last result is cached, because cursor movements do not change it.
    pub(crate) fn paint(
        &self,
        first: u64,
        per_cell: u64,
        count: usize,
        mode: Mode,
    ) -> Arc<Vec<Paint>> {
        let wanted = (first, per_cell, count, mode);
        let mut last = self.last.lock();
        if let Some((known, cells)) = &*last
            && *known == wanted
        {
            return cells.clone();
        }
        let start = |cell: usize| first.saturating_add(per_cell.saturating_mul(cell as u64));
        let cells = (0..count).take_while(|cell| start(*cell) < self.blocks);
        let cells: Arc<Vec<Paint>> =
            Arc::new(cells.map(|cell| self.cell(start(cell), per_cell, mode)).collect());
        *last = Some((wanted, cells.clone()));
        cells
    }

    /// Paints one cell, which stands for an extent of blocks.
    pub(crate) fn cell(&self, start: u64, count: u64, mode: Mode) -> Paint {
        let end = start.saturating_add(count);
        let first = self.ground.areas.partition_point(|area| area.start + area.blocks <= start);
        let mut sums: Vec<(u64, Paint)> = Vec::new();
        for area in self.ground.areas[first..].iter().take_while(|area| area.start < end) {
            let paint = self.paint_area(area, mode);
            if paint.role == Role::Bad {
                return paint;
            }
            let inside = (area.start + area.blocks).min(end) - area.start.max(start);
            match sums.iter_mut().find(|(_, known)| *known == paint) {
                Some((sum, _)) => *sum += inside,
                None => sums.push((inside, paint)),
            }
        }
        let nothing = Paint { letter: ' ', role: Role::Dim, name: "behind the volume" };
        // Of equal sums the first wins.
        let most = sums.into_iter().rev().max_by_key(|(sum, _)| *sum);
        most.map_or(nothing, |(_, paint)| paint)
    }

    fn paint_area(&self, area: &Area, mode: Mode) -> Paint {
        let of = |letter, role, name| Paint { letter, role, name };
        let owner = match &area.purpose {
            Purpose::Boot | Purpose::Reserved => of('-', Role::Dim, "reserved"),
            Purpose::Identity => of('I', Role::Strong, "identity block"),
            Purpose::Ring => of('S', Role::Strong, "superblock ring"),
            Purpose::Log => of('G', Role::Warn, "log"),
            Purpose::Map => of('M', Role::Strong, "space map"),
            Purpose::Table(..) => of('T', Role::Strong, "allocation table"),
            Purpose::Node(id, _) if !self.ground.owns_node(*id) => {
                of('X', Role::Bad, "owned twice")
            }
            Purpose::Run(id, seq) if !self.ground.owns_run(*id, *seq) => {
                of('X', Role::Bad, "owned twice")
            }
            Purpose::Node(_, entry) if entry.height.0 == 0 => of('l', Role::Good, "leaf"),
            Purpose::Node(..) => of('N', Role::Link, "internal node"),
            Purpose::Run(..) => of('r', Role::Link, "run of messages"),
            Purpose::ScatterMap => of('m', Role::Link, "scatter map"),
            Purpose::Holds(..) => of('H', Role::Strong, "snapshots"),
            Purpose::DeadList => of('D', Role::Strong, "dead list"),
            Purpose::Kept(_) => of('h', Role::Warn, "kept by snapshots alone"),
            Purpose::Bound(_) => of('P', Role::Warn, "pinned by the log"),
            Purpose::Unknown => of('?', Role::Bad, "in use for nothing known"),
            Purpose::Free => of('.', Role::Dim, "free"),
        };
        match (mode, &area.purpose) {
            (Mode::Age, Purpose::Node(_, entry)) if owner.role != Role::Bad => {
                let age = self.epoch.0.saturating_sub(entry.birth.0);
                let (letter, name) = match age {
                    0 => ('0', "this epoch"),
                    1 => ('1', "the epoch before"),
                    2..=3 => ('2', "2 to 3 epochs"),
                    4..=7 => ('3', "4 to 7 epochs"),
                    8..=15 => ('4', "8 to 15 epochs"),
                    16..=63 => ('5', "16 to 63 epochs"),
                    _ => ('6', "older"),
                };
                of(letter, if age == 0 { Role::Warn } else { Role::Good }, name)
            }
            (Mode::Fill, Purpose::Node(id, _)) if owner.role != Role::Bad => {
                match self.heads.get(id) {
                    None => of('!', Role::Bad, "does not verify"),
                    Some((fill, _)) => {
                        let digits = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9'];
                        of(
                            digits[*fill],
                            if *fill > 8 { Role::Warn } else { Role::Good },
                            "tenths full",
                        )
                    }
                }
            }
            (Mode::Pending, Purpose::Node(id, entry))
                if owner.role != Role::Bad && entry.height.0 > 0 =>
            {
                match self.heads.get(id).map(|(_, pending)| *pending) {
                    None => of('!', Role::Bad, "does not verify"),
                    Some(0) => of('0', Role::Dim, "nothing pending"),
                    Some(1..100) => of('1', Role::Good, "up to 99 messages"),
                    Some(100..10_000) => of('2', Role::Link, "up to 9 999 messages"),
                    Some(_) => of('3', Role::Warn, "10 000 messages and more"),
                }
            }
            (Mode::Owner, _) | (_, Purpose::Free | Purpose::Unknown) => owner,
            _ if owner.role == Role::Bad => owner,
            _ => of('-', Role::Dim, "something else"),
        }
    }

    /// The legend of the map.
    pub(crate) fn legend(&self, mode: Mode) -> &[Paint] {
        let place = Mode::ALL.iter().position(|known| *known == mode).unwrap_or(0);
        self.legends[place].get_or_init(|| {
            let mut known: Vec<Paint> = Vec::new();
            for area in &self.ground.areas {
                let mut paint = self.paint_area(area, mode);
                if mode == Mode::Fill && paint.name == "tenths full" {
                    (paint.letter, paint.role) = ('9', Role::Good);
                }
                if !known.iter().any(|other| other.name == paint.name) {
                    known.push(paint);
                }
            }
            known
        })
    }

    /// The node that owns a block.
    pub(crate) fn node_at(&self, block: u64) -> Option<NodeId> {
        match self.ground.at(block)?.purpose {
            Purpose::Node(id, _) | Purpose::Run(id, _) => Some(id),
            _ => None,
        }
    }
}

/// The area that contains a byte, and its owner.
pub(super) fn area(image: &Image, byte: u64, work: &Arc<Work>) -> Result<Sheet, String> {
    let (area, damage) = image.area(byte / BLOCK_SIZE as u64, work)?;
    let Some(area) = area else {
        return Ok(Sheet::facts(format!("b:{byte:#x}"), vec![fact("use", "behind the volume")]));
    };
    let start = area.start * BLOCK_SIZE as u64;
    let mut rows = vec![
        fact("use", use_of(&area.purpose)),
        fact("from", Cell::new(Role::Link, format!("b:{start:#x}"))).to([Spot::byte(start)]),
        fact("blocks", format!("{} ({})", words::number(area.blocks), words::blocks(area.blocks))),
    ];
    let node = match &area.purpose {
        Purpose::Node(id, entry) => Some((*id, Some(*entry))),
        Purpose::Run(id, seq) => {
            rows.push(fact("run", seq.to_string()));
            Some((*id, None))
        }
        _ => None,
    };
    if let Some((id, entry)) = node {
        rows.push(fact("node", Cell::new(Role::Link, id)).to([Spot::node(id)]));
        let entry = match entry {
            Some(entry) => entry,
            None => super::node::entry_of(&image.table(work)?, id)?,
        };
        rows.push(fact("height", entry.height.0.to_string()));
        rows.push(fact("index", entry.tree.to_string()));
        rows.push(fact("written in epoch", entry.birth.0.to_string()));
        rows.extend(fill(image, &entry, work));
    }
    for damage in &damage {
        rows.push(fact("not known", Cell::new(Role::Bad, damage)));
    }
    Ok(Sheet::facts(format!("b:{byte:#x} {}", use_of(&area.purpose)), rows))
}

/// The fill of a node, and the messages pending in it.
fn fill(image: &Image, entry: &betr_core::format::Entry, work: &Arc<Work>) -> Vec<Row> {
    let Ok(superblock) = image.superblock() else { return Vec::new() };
    let head = image.disk(work).read(entry.extent.start.byte(), entry.head_bytes as usize);
    let Ok(head) = head else { return Vec::new() };
    if entry.height.0 == 0 {
        let bytes = LeafHead::decode(&head, None).map(|(_, head)| head.leaf_bytes).map_err(text);
        return match bytes {
            Ok(bytes) => vec![fact("fill", words::bar(bytes.into(), superblock.leaf_size.into()))],
            Err(why) => vec![fact("damage", Cell::new(Role::Bad, why))],
        };
    }
    match InternalHead::decode(&head, None) {
        Ok((_, head)) => {
            let all = live(&head);
            vec![
                fact("fill", words::bar(all.bytes, superblock.node_size.into())),
                fact("pending", format!("{} messages", words::number(all.messages))),
            ]
        }
        Err(why) => vec![fact("damage", Cell::new(Role::Bad, why))],
    }
}
