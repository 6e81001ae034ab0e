//! Patterns of paths that are left out of a tree.
//!
//! A pattern without a slash matches a name in any directory: `*.o`. One with a slash matches a path from the root of
//! the tree: `/build`, `usr/share/doc`, `home/**/.cache`. Everything below an excluded directory is excluded, too;
//! the root itself never is.
//!
//! `*` matches any characters of one name, a leading dot included, `?` one character, `**` between slashes any number
//! of directories, `[a-z]` and `[!a-z]` one character of a set, and `{a,b}` either alternative; `\` makes the next
//! character literal. Matching is case-sensitive. A trailing slash is ignored, and so are repeated slashes and `.`
//! components: `./a//b` is `/a/b`.

use globset::{Candidate, GlobBuilder, GlobSet};

/// Patterns of paths to leave out.
#[derive(Debug, Clone, Default)]
pub struct Excludes {
    names: GlobSet,
    paths: GlobSet,
}

impl Excludes {
    /// Compiles `patterns`; an error names the malformed one.
    pub fn new<P: AsRef<str>>(patterns: impl IntoIterator<Item = P>) -> Result<Self, String> {
        let (mut names, mut paths) = (GlobSet::builder(), GlobSet::builder());
        for pattern in patterns {
            let pattern = pattern.as_ref();
            let malformed = |why: &str| format!("the pattern '{pattern}': {why}");
            let body = pattern.strip_suffix('/').unwrap_or(pattern);
            let parts = || body.split('/').filter(|part| !matches!(*part, "" | "."));
            if parts().any(|part| part == "..") {
                return Err(malformed("'..' leads to nothing below the root of the tree"));
            }
            let path = parts().collect::<Vec<_>>().join("/");
            if path.is_empty() {
                return Err(malformed("it is empty"));
            }
            let glob =
                GlobBuilder::new(&path).literal_separator(true).backslash_escape(true).build();
            let glob = glob.map_err(|error| malformed(&error.kind().to_string()))?;
            let set = if body.contains('/') { &mut paths } else { &mut names };
            set.add(glob);
        }
        let built = |set: globset::GlobSetBuilder| set.build().map_err(|error| error.to_string());
        Ok(Self { names: built(names)?, paths: built(paths)? })
    }

    /// Whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.paths.is_empty()
    }

    /// Whether a pattern matches the object at `path` itself, a path below the root.
    pub fn matches(&self, path: &[u8]) -> bool {
        let is = |set: &GlobSet, path: &[u8]| {
            !set.is_empty() && set.is_match_candidate(&Candidate::from_bytes(path))
        };
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        !path.is_empty() && (is(&self.names, name) || is(&self.paths, path))
    }

    /// Whether a pattern matches `path` or a directory above it.
    pub fn covers(&self, path: &[u8]) -> bool {
        if self.is_empty() {
            return false;
        }
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        ends.chain([path.len()]).any(|end| self.matches(&path[..end]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_names_or_paths() {
        for (pattern, covered, others) in [
            ("a", &["a", "a/b", "c/a", "c/a/d"][..], &["b", "ab", "b/ab", ""][..]),
            ("/a", &["a", "a/b"], &["c/a", "b"]),
            ("a/", &["a", "c/a/d"], &["b"]),
            ("./a", &["a", "a/b"], &["c/a", "b"]),
            ("a//b", &["a/b", "a/b/c"], &["a", "b", "c/a/b"]),
            (".//a/./b/.", &["a/b"], &["a", "c/a/b"]),
            (".a", &[".a", "b/.a"], &["a"]),
            ("*.o", &["x.o", "d/x.o", ".o"], &["x.oo", "o"]),
            ("a/*", &["a/b", "a/.b", "a/b/c"], &["a", "c/a/b"]),
            ("a/**/b", &["a/b", "a/x/b", "a/x/y/b/c"], &["b", "a/xb"]),
            ("**/b/c", &["b/c", "a/b/c"], &["c", "xb/c"]),
            ("a?", &["ab", "x/ab"], &["a", "abc", "a/b"]),
            ("[a-c]x", &["ax", "cx"], &["dx", "Ax"]),
            ("[!a]x", &["bx"], &["ax", "b/x"]),
            ("{a,b}c", &["ac", "bc"], &["c"]),
            (r"\*", &["*"], &["a"]),
            ("-rf", &["-rf"], &["rf"]),
        ] {
            let excludes = Excludes::new([pattern]).unwrap();
            for path in covered {
                assert!(excludes.covers(path.as_bytes()), "{pattern} {path}");
            }
            for path in others {
                assert!(!excludes.covers(path.as_bytes()), "{pattern} {path}");
            }
        }
    }

    #[test]
    fn names_are_bytes() {
        let excludes = Excludes::new(["a*z", "é", "n\nl"]).unwrap();
        for path in [&b"a\xff\xfe\nz"[..], "é".as_bytes(), b"d/n\nl"] {
            assert!(excludes.covers(path), "{path:?}");
        }
        assert!(!excludes.covers(b"a\xff"));
    }

    #[test]
    fn malformed_patterns_are_named() {
        for pattern in ["", "/", "//", ".", "./", "..", "a/../b", "[a", "{a", "a\\"] {
            let error = Excludes::new(["fine", pattern]).unwrap_err();
            assert!(error.contains(&format!("'{pattern}'")), "{error}");
        }
        assert!(Excludes::new([""; 0]).unwrap().is_empty());
    }
}
