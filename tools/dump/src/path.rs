//! The object at a path.

use betr_cli::volume::failure;
use betr_cli::{Failure, Io, json};
use betr_core::format::{FileType, MetaValue};
use betr_core::fs::LastLink;
use betr_core::ids::TreeId;
use betr_core::path::Operand;
use betr_core::text::Printable;
use serde_json::json;

use crate::Image;
use crate::place::{self, Place};
use crate::structure::Output;

/// Shows the inode, the extended attributes and the blocks of the object at `path`.
pub(crate) fn show(
    image: &Image,
    path: &Operand,
    output: &mut Output,
    io: &mut Io,
) -> Result<(), Failure> {
    let at_image = |error: betr_core::Error| match &error {
        betr_core::Error::Refused(refusal) => {
            let path = Printable(path.bytes());
            Failure::failed(format!("{}: {path}: {refusal}", betr_cli::show::path(&image.path)))
        }
        _ => failure(&image.path, Some(&image.device), &error),
    };
    let fs = image.replayed(output, io)?;
    let object = fs.look_up(path, LastLink::Keep).map_err(at_image)?.object;
    let key = object.place().encode();
    let value = fs.volume().get(TreeId::Metadata, &key).map_err(at_image)?.unwrap_or_default();
    let (byte, whence) = match place::of_value(&image.source, &key, &value).map_err(at_image)? {
        Place::Byte(byte) => (Some(byte), ""),
        Place::Pending => (None, ", put together with pending messages"),
        Place::Log => (None, ", as the log leaves it"),
    };
    let title = format!("inode at {}{whence}", betr_cli::show::key(TreeId::Metadata, &key));
    output.structure(io, &title, byte, &value, |trace| MetaValue::decode(&value, trace))?;
    for (name, value) in fs.xattrs(&object).map_err(at_image)? {
        let text =
            format!("xattr {}: {} bytes: {}", Printable(&name), value.len(), Printable(&value));
        output.line(io, text, || {
            let name = json::text(&name, &Printable(&name).to_string());
            json!({ "xattr": name, "value": json::hex(&value) })
        })?;
    }
    if object.inode().kind == FileType::Regular {
        let mut blocks = fs.blocks(&object);
        while let Some((at, block)) = fs.next_block(&mut blocks).map_err(at_image)? {
            let text = format!("block {} at {at}: {} bytes", at / 4096, block.len());
            output.line(io, text, || json!({ "block": at / 4096, "bytes": block.len() }))?;
        }
    }
    Ok(())
}
