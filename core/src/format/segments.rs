//! The segments of the space map; each growth of the volume may add one.
//!
//! ```text
//! count                  4   at least 1, at most 32
//! zero                   4
//! segments               8 each: first block 4, pages 4; the places behind the last are zero
//! ```

use std::fmt;

use super::fields::{Fields, FormatError, Writer};
use super::limits::SEGMENTS_MAX;
use crate::ids::BlockNr;

/// Consecutive pages of the space map, each with two slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The first slot of its first page.
    pub start: BlockNr,
    /// Number of pages that fit into it.
    pub pages: u32,
}

impl Segment {
    /// Number of blocks.
    pub fn blocks(self) -> u64 {
        2 * u64::from(self.pages)
    }

    /// The first block after it.
    pub fn end(self) -> BlockNr {
        BlockNr(self.start.0 + self.blocks())
    }
}

/// All segments of a space map, in the order of their blocks and pages; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segments(Vec<Segment>);

impl fmt::Display for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Segment { start, pages }) in self.iter().enumerate() {
            let apart = if index > 0 { ", " } else { "" };
            write!(f, "{apart}{pages} pages at block {start}")?;
        }
        Ok(())
    }
}

impl Segments {
    /// One segment.
    pub fn one(start: BlockNr, pages: u32) -> Segments {
        Segments(vec![Segment { start, pages }])
    }

    /// These segments and one more; `None` if the limit is reached, or if it is not behind them.
    pub fn and(&self, segment: Segment) -> Option<Segments> {
        let all = Segments(self.0.iter().copied().chain([segment]).collect());
        (all.0.len() <= SEGMENTS_MAX && self.end() <= segment.start).then_some(all)
    }

    /// All segments.
    pub fn iter(&self) -> impl Iterator<Item = Segment> + '_ {
        self.0.iter().copied()
    }

    /// Number of pages that fit into them.
    pub fn pages(&self) -> u64 {
        self.iter().map(|segment| u64::from(segment.pages)).sum()
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        2 * self.pages()
    }

    /// The first block of the first segment.
    pub fn start(&self) -> BlockNr {
        self.0[0].start
    }

    /// The first block after the first segment, where nodes begin.
    pub fn first_end(&self) -> BlockNr {
        self.0[0].end()
    }

    /// The first block after the last segment.
    pub fn end(&self) -> BlockNr {
        self.0[self.0.len() - 1].end()
    }

    /// Whether a segment overlaps these blocks.
    pub fn touch(&self, start: u64, end: u64) -> bool {
        self.iter().any(|segment| segment.start.0 < end && start < segment.end().0)
    }

    /// Whether the segments begin with those of a smaller volume.
    pub fn begin_with(&self, smaller: &Segments) -> bool {
        self.0.starts_with(&smaller.0)
    }

    /// The byte address of a slot of a page. For a page that does not fit, that of the first page.
    pub fn slot(&self, page: u64, slot: u8) -> u64 {
        let mut before = 0;
        let with = self.iter().find(|segment| {
            let has = page - before < u64::from(segment.pages);
            before += if has { 0 } else { u64::from(segment.pages) };
            has
        });
        let block = with.map_or(self.start().0, |segment| segment.start.0 + 2 * (page - before));
        BlockNr(block + u64::from(slot)).byte()
    }

    pub(super) fn decode(f: &mut Fields<'_, '_>) -> Result<Segments, FormatError> {
        let count = f.limited("map segment count", SEGMENTS_MAX)?;
        if count == 0 {
            return Err(f.wrong("map segment count", "at least 1", count));
        }
        f.zeros("reserved", 4)?;
        let mut segments: Vec<Segment> = Vec::with_capacity(count);
        for index in 0..count {
            f.enter("map segment", Some(index));
            let start = f.u32("first block")?;
            let least = segments.last().map_or(1, |before| before.end().0);
            if u64::from(start) < least {
                return Err(f.wrong("first block", format_args!("at least {least}"), start));
            }
            let pages = f.u32("pages")?;
            if pages == 0 {
                return Err(f.wrong("pages", "at least 1", pages));
            }
            segments.push(Segment { start: BlockNr(start.into()), pages });
            f.leave();
        }
        f.zeros("reserved", (SEGMENTS_MAX - count) * 8)?;
        Ok(Segments(segments))
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        let number = |value: u64| u32::try_from(value).expect("a block of an image");
        let end = w.len() + 8 + 8 * SEGMENTS_MAX;
        w.len32(self.0.len());
        w.u32(0);
        for Segment { start, pages } in &self.0 {
            w.u32(number(start.0));
            w.u32(*pages);
        }
        w.pad_to(end);
    }
}
