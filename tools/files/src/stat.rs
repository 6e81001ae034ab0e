//! `betr stat`: an inode, and where it stands; without a path, the volume.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use betr_cli::size::human;
use betr_cli::{Exit, Failure, Io, json, time};
use betr_core::fs::{Fs, Object};
use betr_core::ids::{BLOCK_SIZE, Time, TreeId};
use betr_core::text::{Printable, printable};
use betr_core::volume::Mode;
use bytes::Bytes;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::ls::{entry_json, mode_text};
use crate::{Command, Session};

/// Show an inode of an image; without a path, the volume
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The image
    image: PathBuf,
    /// Paths of the image
    paths: Vec<PathBuf>,
}

impl Command for Args {
    fn image(&self) -> (&PathBuf, Mode) {
        (&self.image, Mode::ReadOnly)
    }

    fn act(&self, session: &mut Session, io: &mut Io) -> Result<Exit, Failure> {
        if self.paths.is_empty() {
            return volume(self, session.fs(), io);
        }
        let mut objects = Vec::new();
        for path in &self.paths {
            let object = session.resolve(path)?;
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

/// Where an inode stands, as an address.
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

fn volume(args: &Args, fs: &Fs, io: &mut Io) -> Result<Exit, Failure> {
    let volume = fs.volume();
    let (free, total) = volume.free_blocks();
    let (identity, superblock) = (volume.identity(), volume.superblock());
    let uuid = Uuid::from_bytes(identity.uuid).to_string();
    let hash = superblock.table.page.hash.to_string();
    if args.json {
        let value = json!({
            "label": identity.label,
            "uuid": uuid,
            "block_size": BLOCK_SIZE,
            "blocks": total,
            "free_blocks": free,
            "epoch": superblock.birth.epoch.0,
            "root_hash": hash,
            "node_size": superblock.node_size,
            "leaf_size": superblock.leaf_size,
            "basement_size": superblock.basement_size,
        });
        io.json("betr.stat.volume", 1, value)?;
    } else {
        let block = BLOCK_SIZE as u64;
        writeln!(io.out, "    Label: {}", Printable(identity.label.as_bytes()))?;
        writeln!(io.out, "     UUID: {uuid}")?;
        writeln!(io.out, "   Blocks: {total} of {block} bytes ({})", human(total * block))?;
        writeln!(io.out, "     Free: {free} ({})", human(free * block))?;
        writeln!(io.out, "    Epoch: {}", superblock.birth.epoch.0)?;
        writeln!(io.out, "Root hash: {hash}")?;
        writeln!(
            io.out,
            "    Nodes: {}, leaves of {}, basements of {}",
            human(superblock.node_size.into()),
            human(superblock.leaf_size.into()),
            human(superblock.basement_size.into())
        )?;
    }
    Ok(Exit::DONE)
}
