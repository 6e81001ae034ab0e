//! One stage of an update: decoding, encoding, and joining with a younger stage.

use super::*;

/// A stage of an update; its changes apply in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stage {
    /// Whether an absent value counts as an empty one.
    pub create: bool,
    /// Whether an existing value counts as absent, because it has been deleted before.
    pub anew: bool,
    /// The length that the value is truncated to.
    pub trim: Option<usize>,
    /// The length that the value is extended to with zeros.
    pub extend: usize,
    /// Bytes to write, by offset; in order and disjoint.
    pub pieces: Vec<(usize, Bytes)>,
    /// Deltas to add to the counters at these offsets, if the value includes them.
    pub adds: Vec<(usize, i64)>,
}

impl Stage {
    /// Decodes a stage without its pieces and adds. Passes the offset of each add.
    pub(super) fn read(
        f: &mut Fields<'_, '_>,
        mut add: impl FnMut(usize),
    ) -> Result<Stage, FormatError> {
        let flags = f.u8("flags")?;
        if flags & !(CREATE | TRIM | ANEW | EXTEND) != 0 {
            return Err(f.wrong("flags", "1, 2, 4 and 8 only", flags));
        }
        let pieces = f.length("pieces", f.left())?;
        let adds = f.length("adds", f.left())?;
        let trim = if flags & TRIM != 0 { Some(f.length("trim", BEYOND)?) } else { None };
        let extend = match flags & EXTEND != 0 {
            true => Some(f.length("extend", 2 * BEYOND)?),
            false => None,
        };
        let (create, anew) = (flags & CREATE != 0, flags & ANEW != 0);
        let mut stage = Stage { create, anew, trim, ..Stage::default() };
        let mut end = None;
        for index in 0..pieces {
            f.enter("piece", Some(index));
            let offset = f.length("offset", BEYOND)?;
            let len = f.length("length", f.left())?;
            if len == 0 || end.is_some_and(|end| offset <= end) {
                return Err(f.wrong("offset", "pieces in order, apart and not empty", offset));
            }
            f.hex("bytes", len)?;
            end = Some(offset + len);
            f.leave();
        }
        let end = end.unwrap_or(0);
        if let Some(extend) = extend.filter(|extend| *extend <= end) {
            return Err(f.wrong("extend", format_args!("more than {end}"), extend));
        }
        stage.extend = extend.unwrap_or(end);
        let mut last = None;
        for index in 0..adds {
            f.enter("add", Some(index));
            let offset = f.length("offset", BEYOND)?;
            if last.is_some_and(|last| offset <= last) {
                return Err(f.wrong("offset", "growing numbers", offset));
            }
            f.i64("delta")?;
            add(offset);
            last = Some(offset);
            f.leave();
        }
        Ok(stage)
    }

    pub(super) fn bytes_max(&self) -> usize {
        let pieces = self.pieces.iter().map(|(_, bytes)| 2 * NUMBER_MAX + bytes.len());
        STAGE_MIN + 4 * NUMBER_MAX + pieces.sum::<usize>() + (NUMBER_MAX + CELL) * self.adds.len()
    }

    /// The head of a stage with `pieces` pieces, the last of which ends at `end`, and `adds` adds.
    pub(super) fn encode_head(&self, w: &mut Writer, (pieces, end): (usize, usize), adds: usize) {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(self.create, CREATE) | flag(self.anew, ANEW);
        let extends = self.extend != end;
        w.u8(flags | flag(self.trim.is_some(), TRIM) | flag(extends, EXTEND));
        w.varint(pieces as u64);
        w.varint(adds as u64);
        if let Some(trim) = self.trim {
            w.varint(trim as u64);
        }
        if extends {
            w.varint(self.extend as u64);
        }
    }

    pub(super) fn encode(&self, w: &mut Writer) {
        let end = self.pieces.last().map_or(0, |(offset, bytes)| offset + bytes.len());
        self.encode_head(w, (self.pieces.len(), end), self.adds.len());
        for (offset, bytes) in &self.pieces {
            encode_piece(w, *offset, bytes);
        }
        for (offset, delta) in &self.adds {
            w.varint(*offset as u64);
            w.i64(*delta);
        }
    }

    /// Joins a younger stage into this one, if one stage can express both.
    pub(super) fn join(&mut self, younger: &Stage) -> bool {
        // An absent value would be created too early.
        if younger.create && !self.create || self.is_mixed_with(younger) {
            return false;
        }
        if let Some(len) = younger.trim {
            self.trim = Some(self.trim.map_or(len, |trim| trim.min(len)));
            self.extend = self.extend.min(len);
            self.pieces.retain(|(offset, _)| *offset < len);
            if let Some((offset, bytes)) = self.pieces.last_mut() {
                bytes.truncate(len - *offset);
            }
            self.adds.retain(|(offset, _)| *offset < len);
        }
        for (offset, bytes) in &younger.pieces {
            self.adds.retain(|(at, _)| *at < *offset || at + CELL > offset + bytes.len());
            self.write(*offset, bytes);
        }
        self.extend = self.extend.max(younger.extend);
        younger.adds.iter().for_each(|(offset, delta)| self.add(*offset, *delta));
        true
    }

    /// Whether the younger stage trims, writes or creates a part of a counter that this one adds to: then the order
    /// matters.
    fn is_mixed_with(&self, younger: &Stage) -> bool {
        self.adds.iter().any(|(at, _)| {
            let (start, end) = (*at, at + CELL);
            let within = |from: usize, to: usize| from <= start && end <= to;
            let cut = younger.trim.is_some_and(|len| start < len && len < end);
            let written = younger.pieces.iter().any(|(offset, bytes)| {
                let (from, to) = (*offset, offset + bytes.len());
                from < end && start < to && !within(from, to)
            });
            let made = self.extend < end && younger.extend > start;
            cut || written || made
        })
    }

    /// Writes a piece over the others, and joins it with those that it touches.
    fn write(&mut self, offset: usize, bytes: &Bytes) {
        let end = offset + bytes.len();
        let first = self.pieces.partition_point(|(at, piece)| at + piece.len() < offset);
        let last = self.pieces.partition_point(|(at, _)| *at <= end);
        if first == last {
            self.pieces.insert(first, (offset, bytes.clone()));
            return;
        }
        let start = self.pieces[first].0.min(offset);
        let (at, piece) = &self.pieces[last - 1];
        let mut joined = vec![0; end.max(at + piece.len()) - start];
        for (at, piece) in &self.pieces[first..last] {
            joined[at - start..at - start + piece.len()].copy_from_slice(piece);
        }
        joined[offset - start..end - start].copy_from_slice(bytes);
        self.pieces.splice(first..last, [(start, Bytes::from(joined))]);
    }

    fn add(&mut self, offset: usize, delta: i64) {
        let known = self
            .pieces
            .iter_mut()
            .find(|(at, piece)| *at <= offset && offset + CELL <= at + piece.len());
        if let Some((at, piece)) = known {
            let mut bytes = piece.to_vec();
            add_to(&mut bytes[offset - *at..][..CELL], delta);
            *piece = bytes.into();
            return;
        }
        match self.adds.binary_search_by_key(&offset, |(at, _)| *at) {
            Ok(at) => self.adds[at].1 = self.adds[at].1.wrapping_add(delta),
            Err(at) => self.adds.insert(at, (offset, delta)),
        }
    }
}

pub(super) fn encode_piece(w: &mut Writer, offset: usize, bytes: &[u8]) {
    w.varint(offset as u64);
    w.varint(bytes.len() as u64);
    w.bytes(bytes);
}
