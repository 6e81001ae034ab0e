//! Ranges on the command line: of keys, `k#1:00..k#1:0f`, and of numbers, `3..9`.

use betr_core::address::Address;
use betr_core::format::Key;
use betr_core::ids::TreeId;
use betr_core::text::Printable;

/// A range of keys of an index: `lo` included, `hi` excluded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The index.
    pub tree: TreeId,
    /// The first key, included.
    pub lo: Key,
    /// The end of the range, excluded.
    pub hi: Key,
}

impl Keys {
    /// Whether the range `lo..hi` of an index overlaps this one.
    pub fn overlap(&self, tree: TreeId, lo: &Key, hi: &Key) -> bool {
        self.tree == tree && *lo < self.hi && self.lo < *hi
    }
}

/// Parses one key, or a half-open range `LO..HI`.
pub fn parse_keys(text: &str) -> Result<Keys, String> {
    let key = |text: &str| match text.parse()? {
        Address::Key(tree, key) => Ok((tree, key)),
        _ => Err("expected k#1:HEX or k#2:HEX".to_owned()),
    };
    match text.split_once("..") {
        None => key(text).map(|(tree, lo)| Keys { tree, hi: lo.successor(), lo }),
        Some((lo, hi)) => match (key(lo)?, key(hi)?) {
            ((a, lo), (b, hi)) if a == b => Ok(Keys { tree: a, lo, hi }),
            _ => Err("both keys must be of one index".into()),
        },
    }
}

/// Parses one number, or a range of numbers that includes both ends: `3`, `3..9`, `3..`, `..9`. Each number may have
/// the prefix `l:`.
pub fn parse_numbers(text: &str) -> Result<(u64, u64), String> {
    let number = |text: &str, open: u64| match text.strip_prefix("l:").unwrap_or(text) {
        "" => Ok(open),
        digits => {
            digits.parse().map_err(|_| format!("{} is no number", Printable(text.as_bytes())))
        }
    };
    match text.split_once("..") {
        Some((first, last)) => Ok((number(first, 0)?, number(last, u64::MAX)?)),
        None if text.is_empty() => Err("expected a number, or A..B".into()),
        None => number(text, 0).map(|number| (number, number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_others_refused() {
        assert_eq!(parse_numbers("3"), Ok((3, 3)));
        assert_eq!(parse_numbers("l:3..l:9"), Ok((3, 9)));
        assert_eq!(parse_numbers("..9"), Ok((0, 9)));
        assert_eq!(parse_numbers("3.."), Ok((3, u64::MAX)));
        for wrong in ["", "x", "3..x", "-1", "n:3"] {
            assert!(parse_numbers(wrong).is_err(), "{wrong:?}");
        }
        let keys = parse_keys("k#1:00..k#1:02").unwrap();
        let [a, b, c] = [&[0][..], &[1], &[2]].map(Key::copied);
        assert!(keys.overlap(TreeId::Metadata, &b, &c) && keys.overlap(TreeId::Metadata, &a, &b));
        assert!(!keys.overlap(TreeId::Data, &b, &c));
        assert!(!keys.overlap(TreeId::Metadata, &c, &c.successor()));
        assert_eq!(parse_keys("k#2:01").unwrap().hi, b.successor());
        for wrong in ["", "k#1:00..k#2:01", "k#1:00..", "n:1", "/a"] {
            assert!(parse_keys(wrong).is_err(), "{wrong:?}");
        }
    }
}
