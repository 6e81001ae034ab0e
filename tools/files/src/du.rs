//! `betr du`: how much files take, by directory.

use std::collections::HashSet;
use std::path::PathBuf;

use betr_cli::size::human;
use betr_cli::view::{PastArgs, View};
use betr_cli::{Exit, Failure, Io, JsonList, json};
use betr_core::format::FileType;
use betr_core::fs::{Fs, LastLink, Object, Visit, Walk};
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
    /// Show directories no deeper than so many levels
    #[arg(short = 'd', long, value_name = "LEVELS")]
    max_depth: Option<usize>,
    /// Count sizes, in bytes, instead of what is stored
    #[arg(short = 'b', long)]
    bytes: bool,
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
        let mut sums = vec![0];
        let mut list = self.json.then(|| JsonList::new("betr.du", 1, "entries"));
        if !start.is_directory() {
            let bytes = self.bytes_of(fs, &start, &mut seen).map_err(&at_image)?;
            self.show(&top, bytes, io, &mut list)?;
        } else {
            let mut walk = Walk::new(start);
            while let Some(visit) = walk.next(fs).map_err(&at_image)? {
                match visit {
                    Visit::Enter(..) => sums.push(0),
                    Visit::Entry(_, entry) => {
                        let object = fs.entry_object(entry).map_err(&at_image)?;
                        let bytes = self.bytes_of(fs, &object, &mut seen).map_err(&at_image)?;
                        if let Some(sum) = sums.last_mut() {
                            *sum += bytes;
                        }
                    }
                    Visit::Leave(path, _) => {
                        let bytes = sums.pop().unwrap_or(0);
                        if let Some(above) = sums.last_mut() {
                            *above += bytes;
                        }
                        let depth = sums.len() - 1;
                        let max = if self.summarize { Some(0) } else { self.max_depth };
                        if max.is_none_or(|max| depth <= max) {
                            self.show(&below(&top, &path), bytes, io, &mut list)?;
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

impl Args {
    fn bytes_of(
        &self,
        fs: &Fs,
        object: &Object,
        seen: &mut HashSet<Ino>,
    ) -> betr_core::Result<u128> {
        let inode = object.inode();
        if inode.kind != FileType::Regular || (inode.links > 1 && !seen.insert(inode.ino)) {
            return Ok(0);
        }
        if self.bytes { Ok(inode.size.into()) } else { fs.stored_bytes(object).map(u128::from) }
    }

    fn show(
        &self,
        path: &[u8],
        bytes: u128,
        io: &mut Io,
        list: &mut Option<JsonList>,
    ) -> Result<(), Failure> {
        if let Some(list) = list {
            // Files of 8 EiB may be many.
            let bytes = u64::try_from(bytes).map_or_else(|_| bytes.to_string().into(), Value::from);
            let entry = json!({ "path": json::text(path, &printable(path)), "bytes": bytes });
            return Ok(list.push(io, &entry)?);
        }
        let size = match (self.human_readable, self.bytes) {
            (true, _) => human(u64::try_from(bytes).unwrap_or(u64::MAX)),
            (false, true) => bytes.to_string(),
            (false, false) => bytes.div_ceil(1024).to_string(),
        };
        writeln!(io.out, "{size}\t{}", shown(path))?;
        Ok(())
    }
}
