//! Path operands: the syntax of pathnames (POSIX.1-2017, 4.13).
//!
//! An operand is the path as the user typed it. Slashes separate its components. A trailing slash requires a directory, and
//! so do `.`, `..` and `/` as the last component.
//!
//! This module does not resolve paths. In an image [`crate::fs::Fs::look_up`] and [`crate::fs::Fs::slot`] do, and on the host
//! the kernel. In particular `..` is never removed here: the component before it may be a symbolic link, no directory, or
//! missing.

/// A path as the user typed it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Operand {
    bytes: Vec<u8>,
}

/// The last component of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last<'p> {
    /// The path is `/`, or empty.
    Root,
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// A name.
    Name(&'p [u8]),
}

impl Operand {
    /// An operand of these bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Operand {
        Operand { bytes: bytes.into() }
    }

    /// The bytes as typed.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether the path is empty. An empty path never resolves.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether it begins with a slash.
    pub fn is_absolute(&self) -> bool {
        self.bytes.starts_with(b"/")
    }

    /// Whether the path resolves only to a directory: it has a trailing slash, or its last component is no name.
    pub fn wants_directory(&self) -> bool {
        self.bytes.ends_with(b"/") || !matches!(self.last(), Last::Name(_))
    }

    /// The components, `.` and `..` among them.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.bytes.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
    }

    /// The last component.
    pub fn last(&self) -> Last<'_> {
        match self.components().next_back() {
            None => Last::Root,
            Some(b".") => Last::Dot,
            Some(b"..") => Last::DotDot,
            Some(name) => Last::Name(name),
        }
    }

    /// The path of the parent directory, and the last component. `None` if that is no name.
    pub fn split(&self) -> Option<(&[u8], &[u8])> {
        let Last::Name(name) = self.last() else { return None };
        let end = self.bytes.iter().rposition(|byte| *byte != b'/')? + 1 - name.len();
        let directory = match self.bytes[..end].iter().rposition(|byte| *byte != b'/') {
            Some(last) => &self.bytes[..=last],
            None if end > 0 => b"/",
            None => b".",
        };
        Some((directory, name))
    }

    /// The path relative to `directory`; an absolute path stays.
    pub fn below(&self, directory: &[u8]) -> Operand {
        match self.is_absolute() || self.is_empty() {
            true => self.clone(),
            false => Operand::new([directory, b"/", &self.bytes].concat()),
        }
    }

    /// The absolute path for messages: without repeated and trailing slashes, and without `.`. It keeps `..`.
    pub fn shown(&self) -> Vec<u8> {
        let names: Vec<&[u8]> = self.components().filter(|name| *name != b".").collect();
        [b"/", &names.join(&b'/')[..]].concat()
    }

    /// The same, if no component is `..`: then the names alone say where the object is.
    pub fn plain(&self) -> Option<Vec<u8>> {
        self.components().all(|name| name != b"..").then(|| self.shown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_end_of_a_path_asks_for() {
        for (path, last, directory, split) in [
            ("/", Last::Root, true, None),
            ("//", Last::Root, true, None),
            ("a", Last::Name(b"a"), false, Some((".", "a"))),
            ("a/", Last::Name(b"a"), true, Some((".", "a"))),
            ("/a", Last::Name(b"a"), false, Some(("/", "a"))),
            ("/a//", Last::Name(b"a"), true, Some(("/", "a"))),
            ("/a/b", Last::Name(b"b"), false, Some(("/a", "b"))),
            ("/a/./b/", Last::Name(b"b"), true, Some(("/a/.", "b"))),
            ("../b", Last::Name(b"b"), false, Some(("..", "b"))),
            (".", Last::Dot, true, None),
            ("/a/.", Last::Dot, true, None),
            ("/a/./", Last::Dot, true, None),
            ("/a/..", Last::DotDot, true, None),
            ("..", Last::DotDot, true, None),
            ("...", Last::Name(b"..."), false, Some((".", "..."))),
            (".a", Last::Name(b".a"), false, Some((".", ".a"))),
        ] {
            let operand = Operand::new(path);
            assert_eq!(operand.last(), last, "{path}");
            assert_eq!(operand.wants_directory(), directory, "{path}");
            let split = split.map(|(above, name)| (above.as_bytes(), name.as_bytes()));
            assert_eq!(operand.split(), split, "{path}");
        }
        assert!(Operand::new("").is_empty() && Operand::new("").split().is_none());
    }

    #[test]
    fn paths_are_shown_without_what_says_nothing() {
        for (path, shown, plain) in [
            ("/", "/", true),
            ("a/./b//", "/a/b", true),
            ("/a/../b/.", "/a/../b", false),
            ("/..", "/..", false),
        ] {
            let operand = Operand::new(path);
            assert_eq!(operand.shown(), shown.as_bytes());
            assert_eq!(operand.plain(), plain.then(|| shown.as_bytes().to_vec()));
        }
        assert_eq!(Operand::new("b/").below(b"/a").bytes(), b"/a/b/");
        assert_eq!(Operand::new("/b").below(b"/a").bytes(), b"/b");
        assert!(Operand::new("").below(b"/a").is_empty());
    }
}
