//! Scripts: operations by path, one for each line.
//!
//! ```text
//! # a comment
//! mkdir /d
//! create /d/f
//! write /d/f 4096 20000 7      at 4096, 20,000 bytes that follow from the seed 7
//! write /d/f 0 8192 zeros
//! symlink /d/s some/where
//! sync
//! snapshot monday
//! drop-snapshot monday
//! roll-back monday
//! crash 12                     the seed 12 decides which unflushed writes survive
//! ```
//!
//! Names are escaped as everywhere in output, a space as `\x20`; a single dash stands for no bytes. A step may be one
//! that POSIX refuses.

use std::fmt;

use betr_core::fs::Allocate;
use betr_core::text::{printable, unprintable};

use super::Random;

/// The path of an object.
pub type Path = Vec<u8>;

/// 128 blocks: as many from as many on end below 1 MiB, so they are copied at once.
const BLOCKS_MAX: u64 = 128;

/// The longest write, in bytes.
const LEN_MAX: usize = 16 << 20;

/// The content of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Zeros.
    Zeros,
    /// Bytes that follow from a seed.
    Seed(u64),
}

/// An operation, or an event between operations.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Step {
    Mkdir(Path),
    Create(Path),
    /// The link and its target.
    Symlink(Path, Vec<u8>),
    Mkfifo(Path),
    Write {
        path: Path,
        offset: u64,
        len: usize,
        fill: Fill,
    },
    Truncate(Path, u64),
    /// Copies whole blocks, or up to the end of the file, to the same offset in another one.
    CopyBlocks {
        from: Path,
        to: Path,
        first: u64,
        count: u64,
    },
    /// Clones a directory: the original, and the new path.
    CloneDirectory(Path, Path),
    Unlink(Path),
    Rmdir(Path),
    /// From the first path to the second.
    Rename(Path, Path),
    /// As `Rename`; the second path must not exist.
    RenameNew(Path, Path),
    /// Exchanges the objects of two paths.
    Exchange(Path, Path),
    /// Removes a directory with everything below it, or another object.
    RemoveTree(Path),
    Allocate {
        path: Path,
        what: Allocate,
        offset: u64,
        len: u64,
        keep_size: bool,
    },
    /// The existing path, and the new name.
    Link(Path, Path),
    SetXattr {
        path: Path,
        name: Vec<u8>,
        len: usize,
        fill: Fill,
    },
    RemoveXattr(Path, Vec<u8>),
    Chmod(Path, u32),
    /// Makes the keys of an object boundaries of nodes in both trees, and allows merges again. Changes no content.
    Carve(Path),
    /// Takes a handle of an object, which keeps it when its name is removed.
    Hold(Path),
    /// Drops all handles.
    Release,
    /// Acknowledges all earlier steps, by the log.
    Sync,
    /// Acknowledges all earlier steps, by a checkpoint.
    Checkpoint,
    /// Takes a snapshot of this name, with a checkpoint.
    Snapshot(String),
    /// Drops the snapshot of this name, in pieces.
    DropSnapshot(String),
    /// Rolls back to the snapshot of this name, and drops younger ones.
    RollBack(String),
    /// Closes the volume without a sync, and opens it again.
    Reopen,
    /// Cuts the power, and opens the volume again. The seed determines the fate of each write that was not flushed.
    Crash(u64),
}

/// The error of a line that is no step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ScriptError {
    /// The line, from 1.
    pub line: usize,
    /// The fault.
    pub what: String,
}

impl Fill {
    /// `len` bytes.
    pub fn bytes(self, len: usize) -> Vec<u8> {
        match self {
            Fill::Zeros => vec![0; len],
            Fill::Seed(seed) => {
                let mut random = Random::new(seed);
                let mut bytes = Vec::with_capacity(len + 8);
                while bytes.len() < len {
                    bytes.extend((random.next() ^ random.next() << 40).to_le_bytes());
                }
                bytes.truncate(len);
                bytes
            }
        }
    }
}

/// The steps of a script.
pub fn parse(text: &str) -> Result<Vec<Step>, ScriptError> {
    let mut steps = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let failed = |what| ScriptError { line: at + 1, what };
        steps.push(Words(line.split_ascii_whitespace()).step().map_err(failed)?);
    }
    Ok(steps)
}

/// The script of these steps.
pub fn print(steps: &[Step]) -> String {
    steps.iter().map(|step| format!("{step}\n")).collect()
}

/// The remaining words of a line.
struct Words<'l>(std::str::SplitAsciiWhitespace<'l>);

impl Words<'_> {
    fn step(&mut self) -> Result<Step, String> {
        let verb = self.word("a step")?;
        let step = match verb {
            "mkdir" => Step::Mkdir(self.path()?),
            "create" => Step::Create(self.path()?),
            "symlink" => Step::Symlink(self.path()?, self.bytes("a target")?),
            "mkfifo" => Step::Mkfifo(self.path()?),
            "write" => Step::Write {
                path: self.path()?,
                offset: self.number("an offset")?,
                len: self.len()?,
                fill: self.fill()?,
            },
            "truncate" => Step::Truncate(self.path()?, self.number("a size")?),
            "copy-blocks" => Step::CopyBlocks {
                from: self.path()?,
                to: self.path()?,
                first: self.block()?,
                count: self.block()?,
            },
            "clone-directory" => Step::CloneDirectory(self.path()?, self.path()?),
            "unlink" => Step::Unlink(self.path()?),
            "rmdir" => Step::Rmdir(self.path()?),
            "rename" => Step::Rename(self.path()?, self.path()?),
            "rename-new" => Step::RenameNew(self.path()?, self.path()?),
            "exchange" => Step::Exchange(self.path()?, self.path()?),
            "remove-tree" => Step::RemoveTree(self.path()?),
            "reserve" => self.allocate(Allocate::Reserve, false)?,
            "punch" => self.allocate(Allocate::Punch, true)?,
            "zero" => self.allocate(Allocate::Zero, false)?,
            "zero-within" => self.allocate(Allocate::Zero, true)?,
            "link" => Step::Link(self.path()?, self.path()?),
            "setxattr" => Step::SetXattr {
                path: self.path()?,
                name: self.bytes("a name")?,
                len: self.len()?,
                fill: self.fill()?,
            },
            "rmxattr" => Step::RemoveXattr(self.path()?, self.bytes("a name")?),
            "chmod" => Step::Chmod(self.path()?, self.mode()?),
            "carve" => Step::Carve(self.path()?),
            "hold" => Step::Hold(self.path()?),
            "release" => Step::Release,
            "sync" => Step::Sync,
            "checkpoint" => Step::Checkpoint,
            "snapshot" => Step::Snapshot(self.name()?),
            "drop-snapshot" => Step::DropSnapshot(self.name()?),
            "roll-back" => Step::RollBack(self.name()?),
            "reopen" => Step::Reopen,
            "crash" => Step::Crash(self.number("a seed")?),
            other => return Err(format!("'{other}' is no step")),
        };
        match self.0.next() {
            None => Ok(step),
            Some(word) => Err(format!("'{word}' is too much")),
        }
    }

    fn allocate(&mut self, what: Allocate, keep_size: bool) -> Result<Step, String> {
        let (path, offset) = (self.path()?, self.number("an offset")?);
        Ok(Step::Allocate { path, what, offset, len: self.number("a length")?, keep_size })
    }

    fn word(&mut self, what: &str) -> Result<&str, String> {
        self.0.next().ok_or_else(|| format!("{what} is missing"))
    }

    fn bytes(&mut self, what: &str) -> Result<Vec<u8>, String> {
        match self.word(what)? {
            "-" => Ok(Vec::new()),
            word => unprintable(word).ok_or_else(|| format!("'{word}' has a malformed escape")),
        }
    }

    fn path(&mut self) -> Result<Path, String> {
        let path = self.bytes("a path")?;
        match path.starts_with(b"/") {
            true => Ok(path),
            false => Err(format!("'{}' does not begin with a slash", printable(&path))),
        }
    }

    fn name(&mut self) -> Result<String, String> {
        String::from_utf8(self.bytes("a name")?).map_err(|_| "a name is UTF-8".into())
    }

    fn number(&mut self, what: &str) -> Result<u64, String> {
        let word = self.word(what)?;
        word.parse().map_err(|_| format!("'{word}' is not {what}"))
    }

    fn len(&mut self) -> Result<usize, String> {
        let len = self.number("a length")?;
        let len = usize::try_from(len).ok().filter(|len| *len <= LEN_MAX);
        len.ok_or_else(|| format!("a length is at most {LEN_MAX}"))
    }

    fn block(&mut self) -> Result<u64, String> {
        let block = self.number("a number of blocks")?;
        match block <= BLOCKS_MAX {
            true => Ok(block),
            false => Err(format!("a number of blocks is at most {BLOCKS_MAX}")),
        }
    }

    fn fill(&mut self) -> Result<Fill, String> {
        match self.word("a seed")? {
            "zeros" => Ok(Fill::Zeros),
            word => word.parse().map(Fill::Seed).map_err(|_| format!("'{word}' is not a seed")),
        }
    }

    fn mode(&mut self) -> Result<u32, String> {
        let word = self.word("a mode")?;
        let mode = u32::from_str_radix(word, 8).ok().filter(|mode| *mode <= 0o7777);
        mode.ok_or_else(|| format!("'{word}' is not a mode in octal"))
    }
}

/// Bytes as one word.
struct Word<'b>(&'b [u8]);

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            b"" => f.write_str("-"),
            b"-" => f.write_str("\\x2d"),
            bytes => f.write_str(&printable(bytes).replace(' ', "\\x20")),
        }
    }
}

impl fmt::Display for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fill::Zeros => f.write_str("zeros"),
            Fill::Seed(seed) => write!(f, "{seed}"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Mkdir(path) => write!(f, "mkdir {}", Word(path)),
            Step::Create(path) => write!(f, "create {}", Word(path)),
            Step::Symlink(path, target) => write!(f, "symlink {} {}", Word(path), Word(target)),
            Step::Mkfifo(path) => write!(f, "mkfifo {}", Word(path)),
            Step::Write { path, offset, len, fill } => {
                write!(f, "write {} {offset} {len} {fill}", Word(path))
            }
            Step::Truncate(path, size) => write!(f, "truncate {} {size}", Word(path)),
            Step::CopyBlocks { from, to, first, count } => {
                write!(f, "copy-blocks {} {} {first} {count}", Word(from), Word(to))
            }
            Step::CloneDirectory(from, to) => {
                write!(f, "clone-directory {} {}", Word(from), Word(to))
            }
            Step::Unlink(path) => write!(f, "unlink {}", Word(path)),
            Step::Rmdir(path) => write!(f, "rmdir {}", Word(path)),
            Step::Rename(from, to) => write!(f, "rename {} {}", Word(from), Word(to)),
            Step::RenameNew(from, to) => write!(f, "rename-new {} {}", Word(from), Word(to)),
            Step::Exchange(from, to) => write!(f, "exchange {} {}", Word(from), Word(to)),
            Step::RemoveTree(path) => write!(f, "remove-tree {}", Word(path)),
            Step::Allocate { path, what, offset, len, keep_size } => {
                let verb = match (what, keep_size) {
                    (Allocate::Reserve, _) => "reserve",
                    (Allocate::Punch, _) => "punch",
                    (Allocate::Zero, false) => "zero",
                    (Allocate::Zero, true) => "zero-within",
                };
                write!(f, "{verb} {} {offset} {len}", Word(path))
            }
            Step::Link(from, to) => write!(f, "link {} {}", Word(from), Word(to)),
            Step::SetXattr { path, name, len, fill } => {
                write!(f, "setxattr {} {} {len} {fill}", Word(path), Word(name))
            }
            Step::RemoveXattr(path, name) => write!(f, "rmxattr {} {}", Word(path), Word(name)),
            Step::Chmod(path, mode) => write!(f, "chmod {} {mode:o}", Word(path)),
            Step::Carve(path) => write!(f, "carve {}", Word(path)),
            Step::Hold(path) => write!(f, "hold {}", Word(path)),
            Step::Release => f.write_str("release"),
            Step::Sync => f.write_str("sync"),
            Step::Checkpoint => f.write_str("checkpoint"),
            Step::Snapshot(name) => write!(f, "snapshot {}", Word(name.as_bytes())),
            Step::DropSnapshot(name) => write!(f, "drop-snapshot {}", Word(name.as_bytes())),
            Step::RollBack(name) => write!(f, "roll-back {}", Word(name.as_bytes())),
            Step::Reopen => f.write_str("reopen"),
            Step::Crash(seed) => write!(f, "crash {seed}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_survives_printing() {
        let path = |text: &str| text.as_bytes().to_vec();
        let odd = b"/odd \xff\n\\#-".to_vec();
        let allocate = |what, keep_size| {
            let path = odd.clone();
            Step::Allocate { path, what, offset: 7, len: 1 << 33, keep_size }
        };
        let steps = [
            Step::Mkdir(path("/d")),
            Step::Create(odd.clone()),
            Step::Symlink(path("/-"), vec![]),
            Step::Symlink(path("/s"), path("-")),
            Step::Symlink(path("/s"), path("# no comment\u{202e}")),
            Step::Mkfifo(path("/p")),
            Step::Write { path: odd.clone(), offset: 1 << 40, len: 300_000, fill: Fill::Seed(7) },
            Step::Write { path: odd.clone(), offset: 0, len: 0, fill: Fill::Zeros },
            Step::Truncate(path("/f"), u64::MAX),
            Step::CopyBlocks { from: odd.clone(), to: path("/f"), first: 0, count: 128 },
            Step::CloneDirectory(odd.clone(), path("/d/e")),
            Step::Unlink(path("/f")),
            Step::Rmdir(path("/")),
            Step::Rename(odd.clone(), path("/d/e")),
            Step::RenameNew(odd.clone(), path("/d/e")),
            Step::Exchange(odd.clone(), path("/d/e")),
            Step::RemoveTree(path("/d")),
            allocate(Allocate::Reserve, false),
            allocate(Allocate::Punch, true),
            allocate(Allocate::Zero, true),
            allocate(Allocate::Zero, false),
            Step::Carve(odd.clone()),
            Step::Hold(odd.clone()),
            Step::Release,
            Step::Link(path("/d/e"), odd.clone()),
            Step::SetXattr { path: path("/"), name: odd.clone(), len: 3, fill: Fill::Zeros },
            Step::RemoveXattr(path("/"), vec![]),
            Step::Chmod(odd, 0o4755),
            Step::Sync,
            Step::Checkpoint,
            Step::Snapshot("one day".into()),
            Step::DropSnapshot("-".into()),
            Step::RollBack("a day".into()),
            Step::Reopen,
            Step::Crash(17),
        ];
        assert_eq!(parse(&print(&steps)).as_deref(), Ok(&steps[..]));
    }

    #[test]
    fn a_line_that_is_no_step_is_named() {
        for (line, what) in [
            ("frobnicate /a", "'frobnicate' is no step"),
            ("mkdir", "a path is missing"),
            ("mkdir a", "'a' does not begin with a slash"),
            ("mkdir /a /b", "'/b' is too much"),
            ("mkdir /\\q", "'/\\q' has a malformed escape"),
            ("write /a -1 2 3", "'-1' is not an offset"),
            ("write /a 1 99999999999 3", "a length is at most 16777216"),
            ("write /a 1 2 x", "'x' is not a seed"),
            ("copy-blocks /a /b 0 129", "a number of blocks is at most 128"),
            ("chmod /a 9", "'9' is not a mode in octal"),
        ] {
            let error = parse(&format!("# a comment\n\nsync\n  {line}\n")).unwrap_err();
            assert_eq!(error, ScriptError { line: 4, what: what.into() });
        }
    }

    #[test]
    fn contents_follow_from_the_seed() {
        assert_eq!(Fill::Zeros.bytes(3), [0; 3]);
        assert_eq!(Fill::Seed(5).bytes(1001)[..13], Fill::Seed(5).bytes(13));
        assert_ne!(Fill::Seed(5).bytes(64), Fill::Seed(6).bytes(64));
    }
}
