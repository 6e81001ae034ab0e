//! `betr tune`: changes the label or UUID of an existing image.
//!
//! Both are stored only in the identity block, which is changed by one atomic write. The volume id, which all
//! structures of the image contain, stays.

use std::path::PathBuf;

use betr_cli::identity::{parse_label, parse_uuid};
use betr_cli::image::Access;
use betr_cli::volume::{failure, open_device};
use betr_cli::{Exit, Failure, Io, json};
use betr_core::disk::Disk;
use betr_core::format::Identity;
use betr_core::text::{Printable, printable};
use betr_core::volume::{read_identity, write_identity};
use serde_json::json;
use uuid::Uuid;

/// Change the label or the UUID of an image
///
/// A power cut leaves the old ones or the new ones. Nothing else in the image changes.
#[derive(clap::Args, Debug)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true))]
pub struct Args {
    /// The new label, at most 64 bytes; "" for none
    #[arg(short = 'L', value_name = "LABEL", group = "change", value_parser = parse_label)]
    label: Option<String>,
    /// The new UUID, or "random" or "clear"
    #[arg(short = 'U', value_name = "UUID", group = "change", value_parser = parse_uuid)]
    uuid: Option<Uuid>,
    /// Print nothing on standard output
    #[arg(short, long)]
    quiet: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The image
    image: PathBuf,
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let device = open_device(&args.image, Access::Write)?;
    let failed = |error: betr_core::Error| failure(&args.image, Some(&device), &error);
    let disk = Disk::new(device.clone());
    let before = read_identity(&disk).map_err(failed)?;
    let after = Identity {
        label: args.label.clone().unwrap_or_else(|| before.label.clone()),
        uuid: args.uuid.map_or(before.uuid, Uuid::into_bytes),
        ..before
    };
    let changed = (&after.label, after.uuid) != (&before.label, before.uuid);
    if changed {
        write_identity(&disk, &after).map_err(failed)?;
    }
    report(args, &after, changed, io)?;
    Ok(Exit::DONE)
}

fn report(args: &Args, identity: &Identity, changed: bool, io: &mut Io) -> Result<(), Failure> {
    let (label, uuid) = (identity.label.as_bytes(), Uuid::from_bytes(identity.uuid));
    if args.json {
        let label = json::text(label, &printable(label));
        let value = json!({ "label": label, "uuid": uuid.to_string(), "changed": changed });
        return Ok(io.json("betr.tune", 1, value)?);
    }
    if !args.quiet {
        writeln!(io.out, "Label: {}", Printable(label))?;
        writeln!(io.out, " UUID: {uuid}")?;
    }
    Ok(())
}
