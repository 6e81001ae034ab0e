//! `betr chmod`: permissions.

use std::path::PathBuf;

use betr_cli::view::View;
use betr_cli::{Exit, Failure, Io};
use betr_core::format::FileType;
use betr_core::fs::{Changes, LastLink};
use betr_core::volume::Mode;

use crate::{Command, Session};

/// Change the permissions of files of an image
///
/// Symbolic links have no permissions of their own: operands are followed, and links below a directory are skipped.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Change everything below, too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// The image
    image: PathBuf,
    /// In octal, or as in chmod(1): u+rw,go=rX
    #[arg(value_parser = parse, allow_hyphen_values = true)]
    mode: Change,
    /// What to change
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// A change of permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    To(u32),
    Clauses(Vec<Clause>),
}

/// A clause of a symbolic mode, such as `go+rX`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Clause {
    /// The mask of the affected bits.
    who: u32,
    op: char,
    /// The bits to set or clear, for all classes.
    bits: u32,
    /// `X`: x for directories, and for files with any x bit.
    conditional: bool,
    /// `g=u`: the mask of the class whose bits are copied.
    copied: Option<u32>,
}

const USER: u32 = 0o4700;
const GROUP: u32 = 0o2070;
const OTHER: u32 = 0o1007;

fn parse(text: &str) -> Result<Change, String> {
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return crate::make::parse_mode(text).map(Change::To);
    }
    let bad = || format!("{text:?} is no mode; expected one such as 644 or u+x,go-w");
    let mut clauses = Vec::new();
    for clause in text.split(',') {
        let ops = clause.find(['+', '-', '=']).ok_or_else(bad)?;
        let (who, mut rest) = clause.split_at(ops);
        let who = who.chars().try_fold(0, |who, letter| match letter {
            'u' => Some(who | USER),
            'g' => Some(who | GROUP),
            'o' => Some(who | OTHER),
            'a' => Some(who | USER | GROUP | OTHER),
            _ => None,
        });
        let who = match who.ok_or_else(bad)? {
            0 => USER | GROUP | OTHER,
            who => who,
        };
        while let Some(op) = rest.chars().next() {
            let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |at| at + 1);
            let mut parsed = Clause { who, op, bits: 0, conditional: false, copied: None };
            for letter in rest[1..end].chars() {
                match letter {
                    'r' => parsed.bits |= 0o444,
                    'w' => parsed.bits |= 0o222,
                    'x' => parsed.bits |= 0o111,
                    'X' => parsed.conditional = true,
                    's' => parsed.bits |= 0o6000,
                    't' => parsed.bits |= 0o1000,
                    'u' => parsed.copied = Some(6),
                    'g' => parsed.copied = Some(3),
                    'o' => parsed.copied = Some(0),
                    _ => return Err(bad()),
                }
            }
            clauses.push(parsed);
            rest = &rest[end..];
        }
    }
    Ok(Change::Clauses(clauses))
}

impl Change {
    fn applied(&self, perm: u32, directory: bool) -> u32 {
        let clauses = match self {
            Change::To(perm) => return *perm,
            Change::Clauses(clauses) => clauses,
        };
        clauses.iter().fold(perm, |perm, clause| {
            let executes = directory || perm & 0o111 != 0;
            let mut bits = clause.bits;
            if clause.conditional && executes {
                bits |= 0o111;
            }
            if let Some(shift) = clause.copied {
                bits |= (perm >> shift & 7) * 0o111;
            }
            let bits = bits & clause.who;
            match clause.op {
                '+' => perm | bits,
                '-' => perm & !bits,
                // Set-user-ID and set-group-ID of a directory stay, as with chmod(1).
                _ => {
                    let kept = if directory { 0o6000 } else { 0 };
                    perm & !(clause.who & !kept) | bits
                }
            }
        })
    }
}

impl Command for Args {
    fn image(&self) -> (View<'_>, Mode) {
        (View::from(self.image.as_path()), Mode::ReadWrite)
    }

    fn act(&self, session: &mut Session, _io: &mut Io) -> Result<Exit, Failure> {
        crate::each(session, &self.paths, LastLink::Follow, self.recursive, |fs, object| {
            let inode = object.inode();
            if inode.kind == FileType::Symlink {
                return Ok(());
            }
            let perm = Some(self.mode.applied(inode.perm, object.is_directory()));
            fs.set_attributes(object, Changes { perm, ..Changes::default() })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_those_of_chmod() {
        for (text, before, after) in [
            ("755", 0o4600, 0o755),
            ("u+x", 0o644, 0o744),
            ("+x", 0o644, 0o755),
            ("go-rwx", 0o777, 0o700),
            ("a=r", 0o4755, 0o444),
            ("u=rwx,g=u,o=g", 0o600, 0o777),
            ("u+s,g+s,+t", 0o755, 0o7755),
            ("u-s", 0o4755, 0o755),
            ("a+X", 0o644, 0o644),
            ("a+X", 0o744, 0o755),
            ("u=rw-w+x", 0o000, 0o500),
            ("o=", 0o777, 0o770),
        ] {
            let found = parse(text).unwrap().applied(before, false);
            assert_eq!(found, after, "{text}: {before:o} becomes {found:o}");
        }
        assert_eq!(parse("a+X").unwrap().applied(0o600, true), 0o711);
        assert_eq!(parse("g=rx").unwrap().applied(0o2700, true), 0o2750);
        for text in ["", "8", "17777", "u", "z+x", "u+q", "u+x,,g+x"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
