//! `betr ls`: the entries of directories.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use betr_cli::view::{PastArgs, View};
use betr_cli::{Exit, Failure, Io, JsonList, json, time};
use betr_core::format::{FileType, Inode};
use betr_core::fs::{DirEntry, Fs, LastLink, Object, Visit, Walk};
use betr_core::text::{Printable, printable};
use betr_core::volume::Mode;
use serde_json::{Value, json};

use crate::{Command, Session};

/// List the entries of directories of an image
///
/// A symbolic link to a directory is followed; with -l, -d or --json it is shown itself.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Show type and permissions, links, owner, size and time of last modification
    #[arg(short = 'l')]
    long: bool,
    /// List everything below, too
    #[arg(short = 'R')]
    recursive: bool,
    /// Show directories themselves, not what is in them
    #[arg(short, long)]
    directory: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    image: PastArgs,
    /// Directories of the image, or files
    #[arg(default_value = ".")]
    paths: Vec<PathBuf>,
}

impl Command for Args {
    fn image(&self) -> (View<'_>, Mode) {
        (self.image.view(), Mode::ReadOnly)
    }

    fn act(&self, session: &mut Session, io: &mut Io) -> Result<Exit, Failure> {
        let list = self.json.then(|| JsonList::new("betr.ls", 1, "entries"));
        let mut listing = Listing { args: self, io, list };
        for path in &self.paths {
            // As with ls(1), a title separates the listings of several paths.
            let title = self.paths.len() > 1 && !self.json && !self.directory;
            listing.path(session, path, title)?;
        }
        listing.finish()
    }
}

struct Listing<'l, 'i> {
    args: &'l Args,
    io: &'l mut Io<'i>,
    /// The array of entries, for JSON output.
    list: Option<JsonList>,
}

impl Listing<'_, '_> {
    fn path(&mut self, session: &Session, path: &Path, title: bool) -> Result<(), Failure> {
        let operand = session.operand(path);
        let (mut start, fs) = (session.look_up(&operand, LastLink::Keep)?.object, session.fs());
        // POSIX: without -l and -d a symbolic link to a directory is followed.
        if start.kind() == FileType::Symlink
            && !(self.args.long || self.args.directory || self.args.json)
            && let Some(found) = session.directory_at(&operand)?
        {
            start = found.object;
        }
        let at_image = session.at_image();
        let name = path.as_os_str().as_bytes();
        if !start.is_directory() || self.args.directory {
            return self.show(name, &start);
        }
        if title {
            writeln!(self.io.out, "{}:", Printable(name))?;
        }
        if !self.args.recursive {
            let mut scan = fs.listing(&start, None).map_err(&at_image)?;
            while let Some(entry) = fs.next_entry(&mut scan).map_err(&at_image)? {
                self.entry(fs, entry.name.clone(), entry, &at_image)?;
            }
            return Ok(());
        }
        let mut walk = Walk::new(start);
        while let Some(visit) = walk.next(fs).map_err(&at_image)? {
            match visit {
                Visit::Enter(path, directory) if !path.is_empty() => {
                    self.show(&path, &directory)?
                }
                Visit::Entry(path, entry) => self.entry(fs, path, entry, &at_image)?,
                Visit::Again(path, _) => return Err(crate::below_itself(&path)),
                Visit::Enter(..) | Visit::Leave(..) => {}
            }
        }
        Ok(())
    }

    /// Prints an entry. Its inode is read only if the output needs it.
    fn entry(
        &mut self,
        fs: &Fs,
        path: Vec<u8>,
        entry: DirEntry,
        at_image: impl Fn(betr_core::Error) -> Failure,
    ) -> Result<(), Failure> {
        if self.args.long || self.args.json {
            let object = fs.entry_object(entry).map_err(at_image)?;
            return self.show(&path, &object);
        }
        writeln!(self.io.out, "{}", Printable(&path))?;
        Ok(())
    }

    fn show(&mut self, path: &[u8], object: &Object) -> Result<(), Failure> {
        if let Some(list) = &mut self.list {
            list.push(self.io, &entry_json(path, &object.inode()))?;
        } else if self.args.long {
            writeln!(self.io.out, "{}", long_line(path, &object.inode()))?;
        } else {
            writeln!(self.io.out, "{}", Printable(path))?;
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

/// The fields of an inode as JSON.
pub(crate) fn entry_json(path: &[u8], inode: &Inode) -> Value {
    let stamp = |t: betr_core::ids::Time| time::format_utc(t.secs, t.nanos);
    let mut entry = json!({
        "path": json::text(path, &printable(path)),
        "type": inode.kind.name(),
        "inode": inode.ino.0,
        "permissions": format!("{:04o}", inode.perm),
        "links": inode.links,
        "uid": inode.uid,
        "gid": inode.gid,
        "size": inode.size,
        "accessed": stamp(inode.accessed),
        "modified": stamp(inode.modified),
        "changed": stamp(inode.changed),
        "born": stamp(inode.born),
    });
    if inode.kind == FileType::Symlink {
        entry["target"] = json::text(&inode.target, &printable(&inode.target));
    }
    if matches!(inode.kind, FileType::CharDevice | FileType::BlockDevice) {
        entry["device"] = json!({ "major": inode.device.0, "minor": inode.device.1 });
    }
    entry
}

pub(crate) fn long_line(path: &[u8], inode: &Inode) -> String {
    let size = match inode.kind {
        FileType::CharDevice | FileType::BlockDevice => {
            format!("{}, {}", inode.device.0, inode.device.1)
        }
        _ => inode.size.to_string(),
    };
    let time = time::format_utc(inode.modified.secs, inode.modified.nanos);
    let target = match inode.kind {
        FileType::Symlink => format!(" -> {}", Printable(&inode.target)),
        _ => String::new(),
    };
    format!(
        "{} {:>3} {:>5} {:>5} {:>12} {time} {}{target}",
        mode_text(inode),
        inode.links,
        inode.uid,
        inode.gid,
        size,
        Printable(path),
    )
}

/// Type and permissions as `ls -l` shows them.
pub(crate) fn mode_text(inode: &Inode) -> String {
    let mut text = String::from(inode.kind.letter());
    let specials = [(0o4000, 's', 'S'), (0o2000, 's', 'S'), (0o1000, 't', 'T')];
    for (shift, (special, with, without)) in [6, 3, 0].into_iter().zip(specials) {
        let bits = inode.perm >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (inode.perm & special != 0, bits & 1 != 0) {
            (true, true) => with,
            (true, false) => without,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}
