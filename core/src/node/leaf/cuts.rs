//! Where a leaf that is too large is split.

use super::*;

impl Leaf {
    /// The first keys of the pieces, except the first, of an open leaf that is larger than `limit`. A leaf that is
    /// filled in order is split at its insertion point. Any other leaf is split into pieces of about one size, where
    /// neighbouring keys share the shortest prefix: between directories rather than within one, and between files.
    pub fn cuts(&self, limit: usize) -> Vec<Key> {
        let Content::Open { entries, filling, .. } = &self.content else { return Vec::new() };
        if self.bytes() <= limit || entries.len() < 2 {
            return Vec::new();
        }
        match filling.point() {
            Some(point) => self.cuts_at(entries, limit, Some(point)),
            None => self.cuts_between(entries, limit),
        }
    }

    /// Pieces as long as possible, one of which ends with `point`.
    fn cuts_at(&self, entries: &Sorted, limit: usize, point: Option<&[u8]>) -> Vec<Key> {
        let mut cuts = Vec::new();
        let mut piece = 0;
        let mut before = None;
        for entry in entries.iter() {
            let cost = entry_cost(self.tree, entry.key.len(), entry.value().len());
            if piece > 0 && (piece + cost > limit || point.is_some() && point == before) {
                cuts.push(Key::copied(entry.key));
                piece = 0;
            }
            piece += cost;
            before = Some(entry.key);
        }
        cuts
    }

    fn cuts_between(&self, entries: &Sorted, limit: usize) -> Vec<Key> {
        let bytes = self.bytes();
        // A cut may be this far from its ideal place.
        let pieces = (5 * bytes).div_ceil(4 * limit);
        let (size, slack) = (bytes / pieces, bytes / pieces / 8);
        // For each cut, the key that shares the shortest prefix with the key before it.
        let mut best: Vec<Option<(usize, &[u8])>> = vec![None; pieces - 1];
        let mut at = 0;
        let mut before: &[u8] = &[];
        for entry in entries.iter() {
            let end = (at + size / 2) / size;
            if (1..pieces).contains(&end) && at.abs_diff(end * size) <= slack {
                let common = shared_prefix(before, entry.key);
                if best[end - 1].is_none_or(|(least, _)| common < least) {
                    best[end - 1] = Some((common, entry.key));
                }
            }
            at += entry_cost(self.tree, entry.key.len(), entry.value().len());
            before = entry.key;
        }
        let cuts: Option<Vec<Key>> =
            best.into_iter().map(|cut| cut.map(|(_, key)| Key::copied(key))).collect();
        // Single entries may be as long as pieces.
        cuts.unwrap_or_else(|| self.cuts_at(entries, bytes.div_ceil(bytes.div_ceil(limit)), None))
    }
}
