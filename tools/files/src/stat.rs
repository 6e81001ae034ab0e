//! `betr stat`: an inode and its address.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use betr_cli::view::{PastArgs, View};
use betr_cli::{Exit, Failure, Io, json, time};
use betr_core::fs::{LastLink, Object};
use betr_core::ids::{Time, TreeId};
use betr_core::text::{Printable, printable};
use betr_core::volume::Mode;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::ls::{entry_json, mode_text};
use crate::{Command, Session};

/// Show inodes of an image
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    image: PastArgs,
    /// Paths of the image
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

impl Command for Args {
    fn image(&self) -> (View<'_>, Mode) {
        (self.image.view(), Mode::ReadOnly)
    }

    fn act(&self, session: &mut Session, io: &mut Io) -> Result<Exit, Failure> {
        let mut objects = Vec::new();
        for path in &self.paths {
            let operand = session.operand(path);
            let object = session.look_up(&operand, LastLink::Keep)?.object;
            let name = path.as_os_str().as_bytes();
            let xattrs = session.fs().xattrs(&object).map_err(session.at_image())?;
            if self.json {
                let mut entry = entry_json(name, &object.inode());
                entry["place"] = address(&object).into();
                entry["xattrs"] = xattrs_json(&xattrs);
                objects.push(entry);
            } else {
                text(io, name, &object)?;
                for (name, value) in xattrs {
                    writeln!(io.out, "   Xattr: {} = {}", Printable(&name), Printable(&value))?;
                }
            }
        }
        if self.json {
            io.json("betr.stat", 1, json!({ "objects": objects }))?;
        }
        Ok(Exit::DONE)
    }
}

/// Extended attributes as JSON.
pub(crate) fn xattrs_json(xattrs: &[(Vec<u8>, Bytes)]) -> Value {
    let pair = |(name, value): &(Vec<u8>, Bytes)| json!({ "name": json::text(name, &printable(name)), "value": json::hex(value) });
    xattrs.iter().map(pair).collect()
}

/// The address of an inode: the key under which it is stored.
fn address(object: &Object) -> String {
    let key = object.place().encode().to_vec();
    betr_core::Place::Key(TreeId::Metadata, key).to_string()
}

fn text(io: &mut Io, name: &[u8], object: &Object) -> Result<(), Failure> {
    let inode = object.inode();
    let stamp = |t: Time| time::format_utc(t.secs, t.nanos);
    writeln!(io.out, "    Path: {}", Printable(name))?;
    if !inode.target.is_empty() {
        writeln!(io.out, "  Target: {}", Printable(&inode.target))?;
    }
    writeln!(io.out, "    Type: {}", inode.kind.name())?;
    writeln!(io.out, "    Size: {}", inode.size)?;
    writeln!(io.out, "    Mode: {:04o} ({})", inode.perm, mode_text(&inode))?;
    writeln!(io.out, "   Owner: {}:{}", inode.uid, inode.gid)?;
    writeln!(io.out, "   Links: {}", inode.links)?;
    writeln!(io.out, "   Inode: {}", inode.ino)?;
    writeln!(io.out, "  Device: {}, {}", inode.device.0, inode.device.1)?;
    if let Some(zone) = inode.data_zone {
        writeln!(io.out, "    Data: {zone}")?;
    }
    writeln!(io.out, "   Place: {}", address(object))?;
    writeln!(io.out, "Accessed: {}", stamp(inode.accessed))?;
    writeln!(io.out, "Modified: {}", stamp(inode.modified))?;
    writeln!(io.out, " Changed: {}", stamp(inode.changed))?;
    writeln!(io.out, "    Born: {}", stamp(inode.born))?;
    Ok(())
}
