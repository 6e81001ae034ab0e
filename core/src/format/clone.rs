//! Range clones of the log: a range of keys is shown under another prefix as well.
//!
//! The second part of such a message:
//!
//! ```text
//!  0  from length      2
//!  2  start length     2
//!  4  from                 the prefix of the keys that are cloned; the key of the message is that of the new ones
//!     start                the rest behind the prefix from which keys are cloned; may be empty
//!     end                  the rest up to, but without, which they are; empty for no end
//! ```

use super::key::{Bounds, Key};
use super::lens::Lens;
use super::limits::KEY_MAX;

/// The keys `from·s` are shown as `to·s` as well, for each rest *s* from a start up to, but without, an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeClone {
    lens: Lens,
    start: Key,
    end: Option<Key>,
}

impl From<Lens> for RangeClone {
    /// Clones all keys with the prefix.
    fn from(lens: Lens) -> RangeClone {
        RangeClone { lens, start: Key::default(), end: None }
    }
}

impl RangeClone {
    /// Clones the keys whose rests behind the prefix are in `[start, end)`. `None` if there are none, or if a bound
    /// would be longer than a key.
    pub fn part(lens: Lens, start: Key, end: Option<Key>) -> Option<RangeClone> {
        let is_range = end.as_ref().is_none_or(|end| start < *end);
        let longest = start.len().max(end.as_ref().map_or(0, |end| end.len()));
        let fits = lens.from().len() + longest <= KEY_MAX;
        (is_range && fits).then_some(RangeClone { lens, start, end })
    }

    /// Its prefixes.
    pub fn lens(&self) -> &Lens {
        &self.lens
    }

    /// The keys that are cloned.
    pub fn source(&self) -> Bounds {
        self.within(self.lens.range_below())
    }

    /// The new keys.
    pub fn destination(&self) -> Bounds {
        self.within(self.lens.range_above())
    }

    fn within(&self, range: Bounds) -> Bounds {
        let at = |rest: &Key| Key::new([&range.lo[..], rest].concat());
        Bounds { lo: at(&self.start), hi: self.end.as_ref().map(at).or(range.hi) }
    }

    /// The bytes of the second part.
    pub(super) fn encoded_bytes(&self) -> usize {
        4 + self.lens.from().len() + self.start.len() + self.end.as_ref().map_or(0, |end| end.len())
    }

    /// The second part of the message.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_bytes());
        for part in [self.lens.from(), &self.start] {
            bytes.extend((part.len() as u16).to_le_bytes());
        }
        let end = self.end.as_deref().unwrap_or_default();
        [&self.lens.from()[..], &self.start, end].iter().for_each(|part| bytes.extend(*part));
        bytes
    }

    /// Parses a message from its key and its second part.
    pub(super) fn decode(to: Key, second: &[u8]) -> Option<RangeClone> {
        let (lengths, rest) = second.split_first_chunk::<4>()?;
        let [from, start] = [[lengths[0], lengths[1]], [lengths[2], lengths[3]]];
        let (from, rest) = rest.split_at_checked(u16::from_le_bytes(from).into())?;
        let (start, end) = rest.split_at_checked(u16::from_le_bytes(start).into())?;
        let lens = Lens::of_ranges(to, Key::copied(from))?;
        let end = (!end.is_empty()).then(|| Key::copied(end));
        RangeClone::part(lens, Key::copied(start), end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_what_begins_with_a_prefix_is_encoded_and_decoded() {
        let key = |text: &str| Key::copied(text.as_bytes());
        let lens = Lens::of_ranges(key("n"), key("old")).unwrap();
        for (start, end) in [("", None), ("b", None), ("", Some("b")), ("b", Some("c"))] {
            let part = RangeClone::part(lens.clone(), key(start), end.map(key)).unwrap();
            let second = part.encode();
            assert_eq!(second.len(), part.encoded_bytes());
            assert_eq!(RangeClone::decode(key("n"), &second), Some(part.clone()));
            for len in 0..4 + 3 + start.len() {
                assert_eq!(RangeClone::decode(key("n"), &second[..len]), None, "{len}");
            }
            let bounds = |prefix: &str, behind: &str| Bounds {
                lo: key(&format!("{prefix}{start}")),
                hi: Some(end.map_or(key(behind), |end| key(&format!("{prefix}{end}")))),
            };
            assert_eq!(part.source(), bounds("old", "ole"));
            assert_eq!(part.destination(), bounds("n", "o"));
        }
        assert_eq!(RangeClone::part(lens.clone(), key("b"), Some(key("b"))), None);
        assert_eq!(RangeClone::part(lens, Key::new(vec![0; KEY_MAX - 2]), None), None);
    }
}
