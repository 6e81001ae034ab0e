//! `betr ls`: the entries of directories.

use std::path::PathBuf;

use betr_cli::volume::{failure, open_fs};
use betr_cli::{Exit, Failure, Io, json, time};
use betr_core::format::{FileType, Inode};
use betr_core::fs::{DirEntry, Fs, Object, Visit, Walk};
use betr_core::text::{Printable, printable};
use betr_core::volume::Mode;
use serde_json::{Value, json};

use crate::resolve;

/// List the entries of directories of an image
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Show type and permissions, links, owner, size and time of last modification
    #[arg(short = 'l')]
    long: bool,
    /// List everything below, too
    #[arg(short = 'R')]
    recursive: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The image
    image: PathBuf,
    /// A path of the image
    #[arg(default_value = "/")]
    path: PathBuf,
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let (_image, fs, _) = open_fs(&args.image, Mode::ReadOnly)?;
    let start = resolve(&fs, &args.image, &args.path)?;
    let mut listing = Listing { args, io, entries: Vec::new() };
    let damaged = |error: betr_core::Error| failure(&args.image, None, &error);
    if start.inode().kind != FileType::Directory {
        let name = std::os::unix::ffi::OsStrExt::as_bytes(args.path.as_os_str());
        listing.show(name, &start)?;
    } else if args.recursive {
        let mut walk = Walk::new(start);
        while let Some(visit) = walk.next(&fs).map_err(damaged)? {
            match visit {
                Visit::Enter(path, directory) if !path.is_empty() => {
                    listing.show(&path, &directory)?;
                }
                Visit::Entry(path, entry) => listing.entry(&fs, path, entry, damaged)?,
                Visit::Again(path, _) => {
                    let text = format!("{}: a directory that is below itself", Printable(&path));
                    return Err(Failure::damaged(text));
                }
                _ => {}
            }
        }
    } else {
        listing.directory(&fs, &start, damaged)?;
    }
    listing.finish()
}

struct Listing<'l, 'i> {
    args: &'l Args,
    io: &'l mut Io<'i>,
    entries: Vec<Value>,
}

impl Listing<'_, '_> {
    fn directory(
        &mut self,
        fs: &Fs,
        directory: &Object,
        damaged: impl Fn(betr_core::Error) -> Failure,
    ) -> Result<(), Failure> {
        let mut scan = fs.listing(directory, None).map_err(&damaged)?;
        while let Some(entry) = fs.next_entry(&mut scan).map_err(&damaged)? {
            self.entry(fs, entry.name.clone(), entry, &damaged)?;
        }
        Ok(())
    }

    /// An entry, whose inode is looked at where it is shown.
    fn entry(
        &mut self,
        fs: &Fs,
        path: Vec<u8>,
        entry: DirEntry,
        damaged: impl Fn(betr_core::Error) -> Failure,
    ) -> Result<(), Failure> {
        if self.args.long || self.args.json {
            let object = fs.entry_object(entry).map_err(damaged)?;
            return self.show(&path, &object);
        }
        writeln!(self.io.out, "{}", Printable(&path))?;
        Ok(())
    }

    fn show(&mut self, path: &[u8], object: &Object) -> Result<(), Failure> {
        if self.args.json {
            self.entries.push(entry_json(path, &object.inode()));
        } else if self.args.long {
            writeln!(self.io.out, "{}", long_line(path, &object.inode()))?;
        } else {
            writeln!(self.io.out, "{}", Printable(path))?;
        }
        Ok(())
    }

    fn finish(self) -> Result<Exit, Failure> {
        if self.args.json {
            self.io.json("betr.ls", 1, json!({ "entries": self.entries }))?;
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

fn long_line(path: &[u8], inode: &Inode) -> String {
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
