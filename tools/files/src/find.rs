//! `betr find`: lists objects below a path that match given conditions.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use betr_cli::size::parse_size;
use betr_cli::view::{PastArgs, View};
use betr_cli::{Exit, Failure, Io, JsonList};
use betr_core::format::FileType;
use betr_core::fs::{LastLink, Object, Visit, Walk};
use betr_core::ids::Ino;
use betr_core::volume::Mode;
use clap::ValueEnum;
use globset::{GlobBuilder, GlobMatcher};

use crate::ls::{entry_json, long_line};
use crate::session::{below, shown};
use crate::{Command, Session};

/// Find files of an image
///
/// Of each directory its files come first, and then the directories in it, each with what it holds: that is the order
/// of the index, which is read once. What is found answers to all that is asked for.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Their names match this pattern: *, ?, [a-z] and {a,b}
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    name: Option<GlobMatcher>,
    /// They are of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<Kind>,
    /// They have at least this many bytes
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    min_size: Option<u64>,
    /// They have at most this many bytes
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_size: Option<u64>,
    /// They have this inode number
    #[arg(long, value_name = "NUMBER")]
    inode: Option<u64>,
    /// They belong to this user
    #[arg(long)]
    uid: Option<u32>,
    /// They belong to this group
    #[arg(long)]
    gid: Option<u32>,
    /// They are at most this many levels below the path
    #[arg(long, value_name = "LEVELS")]
    max_depth: Option<usize>,
    /// Show what ls -l shows
    #[arg(short, long)]
    long: bool,
    /// End each path with a zero byte, and show it as it is
    #[arg(short = '0', long, conflicts_with_all = ["long", "json"])]
    null: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "long")]
    json: bool,
    #[command(flatten)]
    image: PastArgs,
    /// Where to look
    #[arg(default_value = "/")]
    path: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// Regular files
    F,
    /// Directories
    D,
    /// Symbolic links
    L,
    /// Block devices
    B,
    /// Character devices
    C,
    /// Named pipes
    P,
    /// Sockets
    S,
}

fn glob(text: &str) -> Result<GlobMatcher, String> {
    let glob = GlobBuilder::new(text).literal_separator(false).build();
    Ok(glob.map_err(|error| error.to_string())?.compile_matcher())
}

impl Command for Args {
    fn image(&self) -> (View<'_>, Mode) {
        (self.image.view(), Mode::ReadOnly)
    }

    fn act(&self, session: &mut Session, io: &mut Io) -> Result<Exit, Failure> {
        let path = session.operand(&self.path);
        let start = session.look_up(&path, LastLink::Keep)?.object;
        let at_image = session.at_image();
        let fs = session.fs();
        let top = path.shown();
        let list = self.json.then(|| JsonList::new("betr.find", 1, "entries"));
        let mut found = Found { args: self, top, io, list };
        if !start.is_directory() {
            let object = || Ok(start.clone());
            found.look(b"", start.kind(), start.ino(), object)?;
            return found.finish();
        }
        let mut walk = Walk::new(start);
        while let Some(visit) = walk.next(fs).map_err(&at_image)? {
            match visit {
                Visit::Enter(path, directory) => {
                    let (kind, ino) = (directory.kind(), directory.ino());
                    let depth = depth_of(&path);
                    found.look(&path, kind, ino, || Ok(directory))?;
                    if self.max_depth.is_some_and(|max| depth >= max) {
                        walk.skip();
                    }
                }
                Visit::Entry(path, entry) => {
                    let (kind, ino) = (entry.kind, entry.ino);
                    found.look(&path, kind, ino, || fs.entry_object(entry).map_err(&at_image))?;
                }
                Visit::Leave(..) => {}
                Visit::Again(path, _) => return Err(crate::below_itself(&path)),
            }
        }
        found.finish()
    }
}

fn depth_of(path: &[u8]) -> usize {
    if path.is_empty() { 0 } else { 1 + path.iter().filter(|byte| **byte == b'/').count() }
}

struct Found<'f, 'i> {
    args: &'f Args,
    /// The path of the start.
    top: Vec<u8>,
    io: &'f mut Io<'i>,
    /// The array of entries, for JSON output.
    list: Option<JsonList>,
}

impl Found<'_, '_> {
    /// Tests an object. The inode is read only if a condition or the output needs it.
    fn look(
        &mut self,
        path: &[u8],
        kind: FileType,
        ino: Ino,
        object: impl FnOnce() -> Result<Object, Failure>,
    ) -> Result<(), Failure> {
        let args = self.args;
        let whole = below(&self.top, path);
        let name = whole.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let fits = args.kind.is_none_or(|wanted| type_of(wanted) == kind)
            && args.inode.is_none_or(|wanted| wanted == ino.0)
            && args.name.as_ref().is_none_or(|glob| glob.is_match(OsStr::from_bytes(name)));
        if !fits {
            return Ok(());
        }
        let sized = args.min_size.is_some() || args.max_size.is_some();
        let owned = args.uid.is_some() || args.gid.is_some();
        if sized || owned || args.long || args.json {
            let inode = object()?.inode();
            let size = inode.size;
            let fits = args.min_size.is_none_or(|min| size >= min)
                && args.max_size.is_none_or(|max| size <= max)
                && args.uid.is_none_or(|uid| uid == inode.uid)
                && args.gid.is_none_or(|gid| gid == inode.gid);
            if !fits {
                return Ok(());
            }
            if let Some(list) = &mut self.list {
                list.push(self.io, &entry_json(&whole, &inode))?;
                return Ok(());
            }
            if args.long {
                writeln!(self.io.out, "{}", long_line(&whole, &inode))?;
                return Ok(());
            }
        }
        if args.null {
            self.io.out.write_all(&whole)?;
            self.io.out.write_all(&[0])?;
        } else {
            writeln!(self.io.out, "{}", shown(&whole))?;
        }
        Ok(())
    }

    fn finish(self) -> Result<Exit, Failure> {
        if let Some(list) = self.list {
            list.end(self.io)?;
        }
        Ok(Exit::DONE)
    }
}

fn type_of(kind: Kind) -> FileType {
    match kind {
        Kind::F => FileType::Regular,
        Kind::D => FileType::Directory,
        Kind::L => FileType::Symlink,
        Kind::B => FileType::BlockDevice,
        Kind::C => FileType::CharDevice,
        Kind::P => FileType::Fifo,
        Kind::S => FileType::Socket,
    }
}
