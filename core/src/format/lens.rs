//! The lens of an edge: a part of a tree that is seen under another prefix (BetrFS 0.5).
//!
//! A node has its own key space. On the way through an edge with a lens the prefix `to` of keys is replaced by `from`,
//! and on the way back up again. So one node can be a part of several ranges.

use super::key::{Bounds, Key};

/// Replaces a prefix of keys: `to` above the edge, `from` below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lens {
    to: Key,
    from: Key,
}

impl Lens {
    /// A lens that shows the keys that begin with `from` as keys that begin with `to`. `None` if there is none: keys
    /// must not grow on the way up, and both prefixes need keys behind them.
    pub fn new(to: Key, from: Key) -> Option<Lens> {
        let grows = to.len() > from.len();
        let has_end = |prefix: &Key| prefix.iter().any(|byte| *byte < 0xff);
        (!grows && to != from && has_end(&to) && has_end(&from)).then_some(Lens { to, from })
    }

    /// A lens that shows the keys that begin with `from` as a range of their own: neither prefix begins with the other
    /// one.
    pub fn of_ranges(to: Key, from: Key) -> Option<Lens> {
        let are_apart = !to.starts_with(&from) && !from.starts_with(&to);
        are_apart.then(|| Lens::new(to, from)).flatten()
    }

    /// The range above the edge that begins with `to`.
    pub fn range_above(&self) -> Bounds {
        Bounds { lo: self.to.clone(), hi: prefix_end(&self.to) }
    }

    /// The range below the edge that begins with `from`.
    pub fn range_below(&self) -> Bounds {
        Bounds { lo: self.from.clone(), hi: prefix_end(&self.from) }
    }

    /// The prefix above the edge.
    pub fn to(&self) -> &Key {
        &self.to
    }

    /// The prefix below the edge.
    pub fn from(&self) -> &Key {
        &self.from
    }

    /// The key below the edge of one above it, which begins with `to`. It may be longer than any stored key.
    pub fn down(&self, key: &[u8]) -> Key {
        swapped(key, &self.to, &self.from)
    }

    /// The key above the edge of one below it, which begins with `from`.
    pub fn up(&self, key: &[u8]) -> Key {
        swapped(key, &self.from, &self.to)
    }

    /// The range below the edge of one above it, all of whose keys begin with `to`.
    pub fn bounds_down(&self, bounds: &Bounds) -> Bounds {
        Bounds { lo: self.down(&bounds.lo), hi: bounds.hi.as_deref().map(|hi| self.end_down(hi)) }
    }

    /// The range above the edge of one below it, all of whose keys begin with `from`.
    pub fn bounds_up(&self, bounds: &Bounds) -> Bounds {
        Bounds { lo: self.up(&bounds.lo), hi: bounds.hi.as_deref().map(|hi| self.end_up(hi)) }
    }

    /// The end of a range below the edge of one above it. The end of all keys with the prefix has another one.
    pub fn end_down(&self, end: &[u8]) -> Key {
        end_swapped(end, &self.to, &self.from)
    }

    /// The end of a range above the edge of one below it.
    pub fn end_up(&self, end: &[u8]) -> Key {
        end_swapped(end, &self.from, &self.to)
    }

    /// Whether all keys of `bounds`, above the edge, begin with `to`.
    pub fn spans(&self, bounds: &Bounds) -> bool {
        let end = prefix_end(&self.to);
        let is_inside = |hi: &Key| end.as_ref().is_none_or(|end| hi <= end);
        bounds.lo.starts_with(&self.to) && bounds.hi.as_ref().is_some_and(is_inside)
    }

    /// This lens, and behind it another one: what a path through both edges replaces.
    pub fn then(&self, below: &Lens) -> Joined {
        let lens = if let Some(rest) = below.to.strip_prefix(&self.from[..]) {
            (joined(&self.to, rest), below.from.clone())
        } else if let Some(rest) = self.from.strip_prefix(&below.to[..]) {
            (self.to.clone(), joined(&below.from, rest))
        } else {
            return Joined::Never;
        };
        match lens {
            (to, from) if to == from => Joined::Nothing,
            (to, from) => Lens::new(to, from).map_or(Joined::Never, Joined::Lens),
        }
    }
}

/// What two lenses on one path replace together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joined {
    /// A prefix.
    Lens(Lens),
    /// Nothing: keys below are as keys above.
    Nothing,
    /// No key passes both. Such a path is damage.
    Never,
}

/// The least key that is greater than all keys with a prefix; `None` if there is none.
pub fn prefix_end(prefix: &[u8]) -> Option<Key> {
    let last = prefix.iter().rposition(|byte| *byte < 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(Key::new(end))
}

fn joined(prefix: &[u8], rest: &[u8]) -> Key {
    Key::new([prefix, rest].concat())
}

fn swapped(key: &[u8], old: &[u8], new: &[u8]) -> Key {
    joined(new, key.get(old.len()..).unwrap_or_default())
}

fn end_swapped(end: &[u8], old: &[u8], new: &[u8]) -> Key {
    match end.strip_prefix(old) {
        Some(rest) => joined(new, rest),
        None => prefix_end(new).expect("a prefix of a lens has keys behind it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::copied(text.as_bytes())
    }

    fn lens(to: &str, from: &str) -> Lens {
        Lens::new(key(to), key(from)).unwrap()
    }

    #[test]
    fn keys_and_bounds_go_down_and_up_again() {
        let lens = lens("new", "older");
        for (above, below) in [("new", "older"), ("new/x", "older/x")] {
            assert_eq!(lens.down(above.as_bytes()), key(below));
            assert_eq!(lens.up(below.as_bytes()), key(above));
        }
        for (above, below) in [("new/x", "older/x"), ("nex", "oldes")] {
            let (above, below) = (
                Bounds { lo: key("new"), hi: Some(key(above)) },
                Bounds { lo: key("older"), hi: Some(key(below)) },
            );
            assert!(lens.spans(&above));
            assert_eq!(lens.bounds_down(&above), below);
            assert_eq!(lens.bounds_up(&below), above);
        }
        for (lo, hi) in [("nev", "nex"), ("new", "nez"), ("older", "oldes")] {
            assert!(!lens.spans(&Bounds { lo: key(lo), hi: Some(key(hi)) }), "{lo} to {hi}");
        }
        assert!(!lens.spans(&Bounds { lo: key("new"), hi: None }));
    }

    #[test]
    fn a_lens_never_lengthens_a_stored_key_or_does_nothing() {
        let has = |to: &[u8], from: &[u8]| Lens::new(Key::copied(to), Key::copied(from)).is_some();
        assert!(has(b"a", b"b") && has(b"a", b"bc") && has(b"\xff\0", b"\xff\xff\0"));
        assert!(!has(b"ab", b"c") && !has(b"a", b"a"));
        assert!(!has(b"\xff", b"ab") && !has(b"a", b"\xff\xff") && !has(b"", b"a"));
    }

    #[test]
    fn lenses_join_where_one_prefix_continues_the_other() {
        let join = |a: (&str, &str), b: (&str, &str)| lens(a.0, a.1).then(&lens(b.0, b.1));
        assert_eq!(
            join(("n", "old"), ("old/x", "oldest/x")),
            Joined::Lens(lens("n/x", "oldest/x"))
        );
        assert_eq!(join(("n", "old/x"), ("old", "older")), Joined::Lens(lens("n", "older/x")));
        assert_eq!(join(("n", "old"), ("old", "new")), Joined::Lens(lens("n", "new")));
        assert_eq!(join(("a", "b"), ("b", "a")), Joined::Nothing);
        assert_eq!(join(("a", "b"), ("c", "d")), Joined::Never);
        for suffix in ["", "/y"] {
            let above = key(&format!("n/x{suffix}"));
            let (first, second) = (lens("n", "old"), lens("old/x", "oldest/x"));
            let Joined::Lens(both) = first.then(&second) else { panic!("they join") };
            assert_eq!(both.down(&above), second.down(&first.down(&above)));
        }
    }

    #[test]
    fn the_end_of_a_prefix_is_the_next_prefix() {
        assert_eq!(prefix_end(b"ab"), Some(key("ac")));
        assert_eq!(prefix_end(b"a\xff\xff"), Some(key("b")));
        assert_eq!(prefix_end(b"\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }
}
