//! `betr probe`: the contents of devices, in the terms of blkid(8).
//!
//! It reads a few blocks and takes no lock, since udev runs it while other programs use the device. For a betr image
//! it reports the identity block, if that verifies; for other formats only their type.

mod escape;
mod format;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use betr_cli::probe::{Foreign, probe_all};
use betr_cli::{Exit, ExitCodes, Failure, Io, image, show};
use betr_core::device::Device;
use betr_core::format::{IDENTITY_AT, Identity, limits};
use betr_core::ids::BLOCK_SIZE;
use uuid::Uuid;

use format::{Format, Writer};

/// Exit codes, with the meanings of blkid(8).
pub const EXIT_CODES: ExitCodes = ExitCodes {
    how: "",
    codes: &[
        (Exit::DONE, "something was recognised"),
        (Exit::NOTHING_FOUND, "nothing was recognised, or a device cannot be read"),
        (Exit::PROBE_USAGE, "wrong usage, or another error"),
        (Exit::AMBIVALENT, "a device holds several file systems"),
    ],
    note: "Of several devices one that is recognised suffices, and one that holds several file systems counts \
           before all.",
};

/// Show what devices and images hold, as blkid does
///
/// Prints DEVNAME, LABEL, UUID, VERSION, BLOCK_SIZE, FSSIZE (in bytes), TYPE and USAGE of a betr file system;
/// of other file systems only the TYPE. No lock is taken, and nothing but signatures is read.
#[derive(clap::Args, Debug)]
#[command(after_help = EXIT_CODES.to_string())]
pub struct Args {
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Format::Full)]
    output: Format,
    /// Print only this variable; may be given several times
    #[arg(short = 's', long = "match-tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Print JSON
    #[arg(long, conflicts_with = "output")]
    json: bool,
    /// Devices, or files with images
    #[arg(required = true)]
    devices: Vec<PathBuf>,
}

/// A variable and its value.
type Variable = (&'static str, String);

/// The contents of a device.
enum Found {
    /// No known format.
    Nothing,
    /// One file system.
    One(Vec<Variable>),
    /// Several file systems, by their types.
    Several(Vec<&'static str>),
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let (mut recognised, mut ambivalent) = (false, false);
    let mut writer = Writer::new(args.output, &args.tags, args.json);
    for device in &args.devices {
        match look(device) {
            Ok(Found::Nothing) => {}
            Ok(Found::One(variables)) => {
                recognised = true;
                writer.device(device, &variables, io)?;
            }
            Ok(Found::Several(types)) => {
                ambivalent = true;
                let types = types.join(", ");
                io.note(&format!(
                    "betr probe: {}: ambivalent: it holds {types} (wipefs(8) shows where)",
                    show::path(device)
                ))?;
            }
            Err(failure) => io.note(&format!("betr probe: {failure}"))?,
        }
    }
    writer.finish(io)?;
    Ok(match (ambivalent, recognised) {
        (true, _) => Exit::AMBIVALENT,
        (false, true) => Exit::DONE,
        (false, false) => Exit::NOTHING_FOUND,
    })
}

fn look(path: &Path) -> Result<Found, Failure> {
    let image = image::look(path)?;
    let device = image.device();
    let read = |at: u64, buffer: &mut [u8]| device.read_at(at, buffer);
    let mut found = Vec::new();
    for foreign in probe_all(&read, image.len) {
        let one = match foreign.is_betr() {
            true => betr(path, &*device)?,
            false => type_of(&foreign).map(|name| vec![("TYPE", name.to_owned())]),
        };
        let name = type_of(&foreign).unwrap_or(foreign.name);
        if let Some(variables) = one.filter(|_| found.iter().all(|(other, _)| *other != name)) {
            found.push((name, variables));
        }
    }
    Ok(match found.len() {
        0 => Found::Nothing,
        1 => Found::One(found.into_iter().flat_map(|(_, variables)| variables).collect()),
        _ => Found::Several(found.into_iter().map(|(name, _)| name).collect()),
    })
}

/// The type that blkid reports for a format of a whole device; `None` for partition tables, archives and the like.
fn type_of(foreign: &Foreign) -> Option<&'static str> {
    match (foreign.name, foreign.kind) {
        (name, "file system") => Some(name),
        ("ext", "journal device") => Some("jbd"),
        ("swap", _) => Some("swap"),
        ("LUKS", _) => Some("crypto_LUKS"),
        ("LVM2", _) => Some("LVM2_member"),
        _ => None,
    }
}

/// The variables in the identity block; `None` if it does not verify.
fn betr(path: &Path, device: &dyn Device) -> Result<Option<Vec<Variable>>, Failure> {
    let mut block = [0; BLOCK_SIZE];
    match device.read_at(IDENTITY_AT, &mut block) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => {
            return Err(Failure::failed(format!("{}: {error}", show::path(path))));
        }
    }
    let kind = [("TYPE", "betr".to_owned()), ("USAGE", "filesystem".to_owned())];
    let identity = match Identity::decode(&block, None) {
        Ok(identity) => identity,
        // The hash is valid: another version of betr, with unknown contents.
        Err(error) if error.field == "version" => return Ok(Some(kind.into())),
        Err(_) => return Ok(None),
    };
    let uuid = Uuid::from_bytes(identity.uuid);
    let mut variables = Vec::new();
    if !identity.label.is_empty() {
        variables.push(("LABEL", identity.label));
    }
    if !uuid.is_nil() {
        variables.push(("UUID", uuid.to_string()));
    }
    variables.push(("VERSION", limits::FORMAT_VERSION.to_string()));
    variables.push(("BLOCK_SIZE", BLOCK_SIZE.to_string()));
    variables.push(("FSSIZE", (identity.image_blocks * BLOCK_SIZE as u64).to_string()));
    variables.extend(kind);
    Ok(Some(variables))
}
