//! `replay timeline`: exports the history for tools that sort file events by time.

use std::ops::ControlFlow;

use betr_cli::{Exit, Failure, Io, JsonList, time};
use betr_core::device::Device;
use betr_core::format::{FileType, Inode, Op};
use betr_core::text::Printable;
use betr_offline::history::{Act, Event, Touched};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::filter::Filter;
use crate::{Log, event};

/// Bytes per hashing step.
const STEP: usize = 1 << 20;

/// What `timeline` takes.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    filter: Filter,
    /// body: a line for each path of a record, as mactime (The Sleuth Kit) reads it, with the times that the record set (all
    /// of the inode's where attributes were set, which times may be among);
    /// csv: a line for each, with a header; json
    #[arg(long, value_name = "FORMAT", default_value = "body")]
    format: Format,
    /// Do not hash the image. Its SHA-256 stands at the beginning otherwise, for the chain of custody
    #[arg(long)]
    no_hash: bool,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Body,
    Csv,
    Json,
}

impl Args {
    pub(crate) fn run(&self, log: &Log, io: &mut Io) -> Result<Exit, Failure> {
        let hash = match self.no_hash {
            true => None,
            false => Some(hash_of(&*log.device).map_err(|error| {
                Failure::failed(format!("{}: cannot be hashed: {error}", log.name()))
            })?),
        };
        let mut list = None;
        match self.format {
            Format::Body => {
                if let Some(hash) = &hash {
                    // mactime skips a line without times.
                    writeln!(io.out, "0|(sha256 of the image: {hash})|0||0|0|0|0|0|0|0")?;
                }
            }
            Format::Csv => {
                if let Some(hash) = &hash {
                    writeln!(io.out, "# sha256 of the image: {hash}")?;
                }
                writeln!(io.out, "time,lsn,operation,path,inode,mode,uid,gid,size")?;
            }
            Format::Json => {
                let fields = json!({ "image_sha256": hash });
                list = Some(JsonList::with("betr.replay.timeline", 1, fields, "events"));
            }
        }
        let survey = log.tell(|told| {
            if !self.filter.admits(told) || told.record.op.is_hidden() {
                return Ok(ControlFlow::Continue(()));
            }
            for path in told.paths() {
                let of_path = |touched: &&Touched| told.path(touched) == path;
                let known = told.touched.iter().filter(of_path);
                let known = known.filter_map(|touched| touched.inode.as_ref()).next_back();
                match &mut list {
                    Some(list) => {
                        let inode = known.map(|inode| {
                            json!({
                                "inode": inode.ino.0, "type": inode.kind.name(), "mode": inode.perm,
                                "uid": inode.uid, "gid": inode.gid, "size": inode.size,
                            })
                        });
                        let at = time::format_utc(told.record.wall.secs, told.record.wall.nanos);
                        list.push(io, &json!({
                            "time": at, "lsn": told.record.lsn.0, "operation": told.record.op.name(),
                            "path": event::path_json(&path), "object": inode,
                        }))?;
                    }
                    None if self.format == Format::Csv => writeln!(io.out, "{}", csv(told, &path, known))?,
                    None => writeln!(io.out, "{}", body(told, &path, known))?,
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        list.map_or(Ok(()), |list| list.end(io))?;
        log.end(&survey, io)
    }
}

/// The SHA-256 of a whole image.
fn hash_of(device: &dyn Device) -> std::io::Result<String> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; STEP];
    let mut at = 0;
    while at < device.len() {
        let count = buffer.len().min(usize::try_from(device.len() - at).unwrap_or(usize::MAX));
        device.read_at(at, &mut buffer[..count])?;
        hasher.update(&buffer[..count]);
        at += count as u64;
    }
    Ok(betr_cli::json::hex(&hasher.finalize()))
}

/// A line MD5|name|inode|mode|UID|GID|size|atime|mtime|ctime|crtime. Times that the record did not set are 0.
fn body(told: &Event<'_>, path: &[u8], inode: Option<&Inode>) -> String {
    let (record, wall) = (told.record, told.record.wall.secs);
    let set = |is_set: bool| if is_set { wall } else { 0 };
    // A program may have set any time, so the times of the inode are printed.
    if let (Op::SetAttributes, Some(inode)) = (record.op, inode) {
        return body_line(
            told,
            path,
            Some(inode),
            [inode.accessed.secs, inode.modified.secs, wall, inode.born.secs],
        );
    }
    let (accessed, modified, born) = match record.op {
        Op::Create | Op::Mkdir | Op::Symlink | Op::Mknod => {
            // Creating an entry in an existing directory only changes the directory's contents; its birth time stays.
            (true, true, told.touched.iter().any(|touched| touched.act == Act::Put))
        }
        Op::Write | Op::Truncate | Op::Allocate | Op::RemoveTree => (false, true, false),
        _ => (false, false, false),
    };
    body_line(told, path, inode, [set(accessed), set(modified), wall, set(born)])
}

fn body_line(
    told: &Event<'_>,
    path: &[u8],
    inode: Option<&Inode>,
    [accessed, modified, changed, born]: [i64; 4],
) -> String {
    let record = told.record;
    // A vertical bar would end the field.
    let name = Printable(path).to_string().replace('|', "\\x7c");
    let (ino, mode, uid, gid, size) = inode.map_or((0, String::new(), 0, 0, 0), |inode| {
        (inode.ino.0, mode_of(inode), inode.uid, inode.gid, inode.size)
    });
    format!(
        "0|{name} ({} {})|{ino}|{mode}|{uid}|{gid}|{size}|{accessed}|{modified}|{changed}|{born}",
        record.op.name(),
        record.lsn
    )
}

/// Type and permissions in the bodyfile format, as in ls(1).
fn mode_of(inode: &Inode) -> String {
    let kind = match inode.kind {
        FileType::Regular => 'r',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::BlockDevice => 'b',
        FileType::CharDevice => 'c',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
    };
    let bits = "rwxrwxrwx".chars().enumerate();
    let mut bits: Vec<char> =
        bits.map(|(at, c)| if inode.perm & (0o400 >> at) != 0 { c } else { '-' }).collect();
    for (at, special, mark) in [(2, 0o4000, 's'), (5, 0o2000, 's'), (8, 0o1000, 't')] {
        if inode.perm & special != 0 {
            bits[at] = if bits[at] == 'x' { mark } else { mark.to_ascii_uppercase() };
        }
    }
    let bits: String = bits.into_iter().collect();
    format!("{kind}/{kind}{bits}")
}

fn csv(told: &Event<'_>, path: &[u8], inode: Option<&Inode>) -> String {
    let record = told.record;
    let at = time::format_utc(record.wall.secs, record.wall.nanos);
    let path = Printable(path).to_string().replace('"', "\"\"");
    let object = inode.map_or(",,,,".to_owned(), |inode| {
        format!("{},{:04o},{},{},{}", inode.ino, inode.perm, inode.uid, inode.gid, inode.size)
    });
    format!("{at},{},{},\"{path}\",{object}", record.lsn.0, record.op.name())
}
