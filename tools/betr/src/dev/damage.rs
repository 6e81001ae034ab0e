//! `betr dev damage`: damages a single field of a structure.

use std::path::PathBuf;

use betr_cli::image::Access;
use betr_cli::volume::{failure, open_device};
use betr_cli::{Exit, Failure, Io, json, show};
use betr_core::disk::Disk;
use betr_lab::damage::{Damage, Verb};
use betr_offline::anatomy::{Anatomy, Field, Part};
use serde_json::{Value, json};

const STRUCTURES: &str = "Structures: identity; super (the newest superblock, in both of its slots); super:SLOT; \
map:PAGE/SLOT; table:LEVEL/INDEX; n:ID (the head of a node); n:ID/basement:B, and in it chunk:C and value:E; n:ID/run:R, and \
in it slice:S, slice:S/value:M and ranges; scatter:BLOCK; log:GROUP, and below it binding:B; and padding behind each of them. \
Fields have the names that dump and errors give them, such as 'child 3, pivot'; an offset in hexadecimal, such as 0x58, means \
the field that begins there.";

/// Damage a field of an image, to see what comes of it
///
/// Changes one field of one structure of a sound image. The hashes are left alone, as rot leaves them; or, with --seal,
/// all that speak of the field are made right again up to the superblock, so that only the rules of the format are left
/// to tell. Without a verb the fields of the structure are listed, without a structure the structures. It is an error if
/// nothing changes.
#[derive(clap::Args, Debug)]
#[command(after_help = STRUCTURES)]
pub(crate) struct Args {
    /// Make all hashes right again that speak of the field
    #[arg(long, requires = "verb")]
    seal: bool,
    /// Random bytes follow from this
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The image
    image: PathBuf,
    /// The structure, such as n:1/run:2/slice:0
    structure: Option<String>,
    /// The field, such as 'message 3, age' or 0x18
    #[arg(requires = "verb")]
    field: Option<String>,
    /// What to do to it
    verb: Option<How>,
}

/// What to do to a field.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum How {
    /// All bits become 0
    Zero,
    /// All bits become 1
    Ones,
    /// The lowest bit of the first byte is flipped
    FirstBit,
    /// The lowest bit of the byte in the middle is flipped
    MiddleBit,
    /// The highest bit of the last byte is flipped
    LastBit,
    /// As a little-endian number it becomes one more
    Add,
    /// As a little-endian number it becomes one less
    Sub,
    /// The bytes become random ones
    Random,
}

pub(crate) fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let access = if args.verb.is_some() { Access::Write } else { Access::Read };
    let device = open_device(&args.image, access)?;
    let failed = |error: betr_core::Error| failure(&args.image, Some(&device), &error);
    let anatomy = Anatomy::of(&device).map_err(failed)?;
    let Some(structure) = &args.structure else { return list(args, &anatomy, io) };
    let hint = |error: betr_core::Error| match error {
        betr_core::Error::Input(text) => {
            let image = show::path(&args.image);
            Failure::failed(format!("{image}: {text}: 'betr dev damage {image}' lists them"))
        }
        other => failed(other),
    };
    let part = anatomy.find(structure).map_err(hint)?;
    let fields = part.fields(&Disk::new(device.clone())).map_err(failed)?;
    let (Some(name), Some(how)) = (&args.field, args.verb) else {
        return list_fields(args, part, &fields, io);
    };
    let field = chosen(args, part, &fields, name)?;
    let (bytes, sealed) = (field.bytes.clone(), args.seal);
    let damage = Damage { part, bytes, verb: how.verb(args.seed), sealed };
    let (before, after) = damage.inflict(&device, &anatomy).map_err(failed)?;
    device.flush().map_err(|error| {
        Failure::failed(format!("{}: cannot be flushed: {error}", show::path(&args.image)))
    })?;
    let byte = part.byte() + field.bytes.start as u64;
    if args.json {
        let value = json!({
            "structure": part.name, "kind": part.kind.name(), "field": field.name, "byte": byte,
            "verb": damage.verb.to_string(), "sealed": sealed, "copies": part.copies.len(),
            "before": json::hex(&before), "after": json::hex(&after),
        });
        io.json("betr.dev.damage", 1, value)?;
    } else {
        writeln!(io.out, "{}, {}  b:{byte:#x}+{}", part.name, field.name, before.len())?;
        writeln!(io.out, "  was  {}", json::hex(&before))?;
        writeln!(io.out, "  is   {}", json::hex(&after))?;
    }
    Ok(Exit::DONE)
}

/// The field with this name, or at this offset.
fn chosen<'f>(
    args: &Args,
    part: &Part,
    fields: &'f [Field],
    name: &str,
) -> Result<&'f Field, Failure> {
    let image = show::path(&args.image);
    let offset = name.strip_prefix("0x").and_then(|hex| usize::from_str_radix(hex, 16).ok());
    let is_it = |field: &&Field| match offset {
        Some(offset) => field.bytes.start == offset && !field.bytes.is_empty(),
        None => field.name == name,
    };
    let found: Vec<&Field> = fields.iter().filter(is_it).collect();
    match found[..] {
        [field] => Ok(field),
        [] => {
            let command = format!("'betr dev damage {image} {}' lists them", part.name);
            Err(Failure::failed(format!("{image}: {} has no field '{name}': {command}", part.name)))
        }
        _ => {
            let offsets: Vec<String> =
                found.iter().map(|field| format!("{:#x}", field.bytes.start)).collect();
            let (part, offsets) = (&part.name, offsets.join(" and "));
            let text =
                format!("{part} has several fields '{name}': name one by its offset, {offsets}");
            Err(Failure::failed(format!("{image}: {text}")))
        }
    }
}

fn list(args: &Args, anatomy: &Anatomy, io: &mut Io) -> Result<Exit, Failure> {
    let parts = anatomy.parts();
    if args.json {
        let value = |part: &Part| {
            json!({
                "structure": part.name, "kind": part.kind.name(), "byte": part.byte(),
                "bytes": part.len(), "copies": part.copies.len(),
            })
        };
        let parts = parts.iter().map(value).collect::<Value>();
        io.json("betr.dev.damage", 1, json!({ "structures": parts }))?;
        return Ok(Exit::DONE);
    }
    let width = parts.iter().map(|part| part.name.len()).max().unwrap_or(0);
    for part in parts {
        let (name, kind) = (&part.name, part.kind.name());
        writeln!(io.out, "{name:width$}  b:{:#x}+{}  {kind}", part.byte(), part.len())?;
    }
    Ok(Exit::DONE)
}

fn list_fields(args: &Args, part: &Part, fields: &[Field], io: &mut Io) -> Result<Exit, Failure> {
    if args.json {
        let value = |field: &Field| {
            json!({
                "field": field.name, "offset": field.bytes.start, "bytes": field.bytes.len(),
                "value": field.value,
            })
        };
        let fields = fields.iter().map(value).collect::<Value>();
        let value = json!({
            "structure": part.name, "kind": part.kind.name(), "byte": part.byte(), "fields": fields,
        });
        io.json("betr.dev.damage", 1, value)?;
        return Ok(Exit::DONE);
    }
    for Field { name, bytes, value } in fields {
        writeln!(io.out, "{:#06x} {:>5}  {name}: {value}", bytes.start, bytes.len())?;
    }
    Ok(Exit::DONE)
}

impl How {
    fn verb(self, seed: u64) -> Verb {
        match self {
            How::Zero => Verb::Zero,
            How::Ones => Verb::Ones,
            How::FirstBit => Verb::FirstBit,
            How::MiddleBit => Verb::MiddleBit,
            How::LastBit => Verb::LastBit,
            How::Add => Verb::Add,
            How::Sub => Verb::Sub,
            How::Random => Verb::Random(seed),
        }
    }
}
