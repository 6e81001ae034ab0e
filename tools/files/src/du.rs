//! `betr du`: space that files take, per directory.

use std::collections::HashSet;
use std::ops::AddAssign;
use std::path::PathBuf;

use betr_cli::size::human;
use betr_cli::view::{PastArgs, View};
use betr_cli::{Exit, Failure, Io, JsonList, json};
use betr_core::format::FileType;
use betr_core::fs::{Fs, LastLink, Object, Stored, Visit, Walk};
use betr_core::ids::Ino;
use betr_core::text::printable;
use betr_core::volume::Mode;
use serde_json::{Value, json};

use crate::session::{below, shown};
use crate::{Command, Session};

/// Show how much the files of an image take, by directory
///
/// In units of 1024 bytes: the blocks of files that are stored, without holes; a file with several names counts once.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Show the sum alone
    #[arg(short, long, conflicts_with = "max_depth")]
    summarize: bool,
    /// Show directories down to this many levels only
    #[arg(short = 'd', long, value_name = "LEVELS")]
    max_depth: Option<usize>,
    /// Count sizes, in bytes, instead of what is stored
    #[arg(short = 'b', long)]
    bytes: bool,
    /// Show two columns more: how much of it is used there alone, and how much snapshots or copies use too
    ///
    /// All are in units of 1024 bytes, rounded up. Blocks of files lie in leaves, which several files share and which are written as a
    /// whole. A block counts as shared if its leaf was written before the newest snapshot and not since, or if copies of
    /// the file led to it and the leaf was not copied since, and otherwise for the file, although the block itself may be older. A block that has not come to a leaf, but waits in a buffer, counts
    /// in neither column. So the columns do not say what removing the files gives back, nor what dropping a snapshot does: see
    /// betr snapshot show.
    #[arg(long, conflicts_with_all = ["bytes", "as_of"])]
    shared: bool,
    /// Show sizes such as 1.5 MiB
    #[arg(short = 'H', long)]
    human_readable: bool,
    /// Print JSON, in bytes
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    image: PastArgs,
    /// The directory, or file
    #[arg(default_value = "/")]
    path: PathBuf,
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
        let mut seen = HashSet::new();
        let mut sums = vec![Sum::default()];
        let mut list = self.json.then(|| JsonList::new("betr.du", 1, "entries"));
        if !start.is_directory() {
            let sum = self.sum_of(fs, &start, &mut seen).map_err(&at_image)?;
            self.show(&top, sum, io, &mut list)?;
        } else {
            let mut walk = Walk::new(start);
            while let Some(visit) = walk.next(fs).map_err(&at_image)? {
                match visit {
                    Visit::Enter(..) => sums.push(Sum::default()),
                    Visit::Entry(_, entry) => {
                        let object = fs.entry_object(entry).map_err(&at_image)?;
                        let of_file = self.sum_of(fs, &object, &mut seen).map_err(&at_image)?;
                        if let Some(sum) = sums.last_mut() {
                            *sum += of_file;
                        }
                    }
                    Visit::Leave(path, _) => {
                        let sum = sums.pop().unwrap_or_default();
                        if let Some(above) = sums.last_mut() {
                            *above += sum;
                        }
                        let depth = sums.len() - 1;
                        let max = if self.summarize { Some(0) } else { self.max_depth };
                        if max.is_none_or(|max| depth <= max) {
                            self.show(&below(&top, &path), sum, io, &mut list)?;
                        }
                    }
                    Visit::Again(path, _) => return Err(crate::below_itself(&path)),
                }
            }
        }
        if let Some(list) = list {
            list.end(io)?;
        }
        Ok(Exit::DONE)
    }
}

/// Space of files, in bytes. 128 bits, since each file may have 8 EiB.
#[derive(Clone, Copy, Default)]
struct Sum {
    all: u128,
    /// With `--shared`: the part in leaves of its own, and the part in leaves that snapshots or other files share.
    alone: u128,
    shared: u128,
}

impl AddAssign for Sum {
    fn add_assign(&mut self, other: Sum) {
        self.all += other.all;
        self.alone += other.alone;
        self.shared += other.shared;
    }
}

impl Args {
    fn sum_of(&self, fs: &Fs, object: &Object, seen: &mut HashSet<Ino>) -> betr_core::Result<Sum> {
        let inode = object.inode();
        if inode.kind != FileType::Regular || (inode.links > 1 && !seen.insert(inode.ino)) {
            return Ok(Sum::default());
        }
        if self.shared {
            let Stored { shared, alone, pending } = fs.stored_where(object)?;
            let [alone, shared, pending] = [alone, shared, pending].map(u128::from);
            return Ok(Sum { all: alone + shared + pending, alone, shared });
        }
        let bytes = if self.bytes { inode.size } else { fs.stored_bytes(object)? };
        Ok(Sum { all: bytes.into(), ..Sum::default() })
    }

    fn show(
        &self,
        path: &[u8],
        sum: Sum,
        io: &mut Io,
        list: &mut Option<JsonList>,
    ) -> Result<(), Failure> {
        if let Some(list) = list {
            let number = |bytes: u128| {
                u64::try_from(bytes).map_or_else(|_| bytes.to_string().into(), Value::from)
            };
            let path = json::text(path, &printable(path));
            let mut entry = json!({ "path": path, "bytes": number(sum.all) });
            if self.shared {
                entry["alone_bytes"] = number(sum.alone);
                entry["shared_bytes"] = number(sum.shared);
            }
            return Ok(list.push(io, &entry)?);
        }
        let size = |bytes: u128| match (self.human_readable, self.bytes) {
            (true, _) => human(u64::try_from(bytes).unwrap_or(u64::MAX)),
            (false, true) => bytes.to_string(),
            (false, false) => bytes.div_ceil(1024).to_string(),
        };
        let mut line = size(sum.all);
        if self.shared {
            line = [line, size(sum.alone), size(sum.shared)].join("\t");
        }
        writeln!(io.out, "{line}\t{}", shown(path))?;
        Ok(())
    }
}
