//! Output formats of variables: those of blkid(8), and JSON.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use betr_cli::{Failure, Io, json};
use betr_core::text::printable;
use clap::ValueEnum;
use serde_json::{Map, Value, json};

use super::Variable;
use super::escape::{encoded, quoted, safe, shell_word};

/// How variables are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// DEVICE: NAME="value" ...
    Full,
    /// NAME=value, a line each, for eval in a shell: every value is one word
    Export,
    /// ID_FS_NAME=value, a line each, as udev reads it
    Udev,
    /// The values alone, a line each
    Value,
}

/// Prints the variables of one device after another.
pub(super) struct Writer<'a> {
    format: Format,
    tags: &'a [String],
    /// The collected devices, if the output is JSON, which is one document.
    documents: Option<Vec<Value>>,
    devices: usize,
}

impl Writer<'_> {
    pub(super) fn new(format: Format, tags: &[String], json: bool) -> Writer<'_> {
        Writer { format, tags, documents: json.then(Vec::new), devices: 0 }
    }

    /// Prints the requested variables of a device.
    pub(super) fn device(
        &mut self,
        device: &Path,
        variables: &[Variable],
        io: &mut Io,
    ) -> Result<(), Failure> {
        let wanted =
            |(name, _): &&Variable| self.tags.is_empty() || self.tags.iter().any(|tag| tag == name);
        let variables: Vec<&Variable> = variables.iter().filter(wanted).collect();
        if let Some(documents) = &mut self.documents {
            documents.push(document(device, &variables));
            return Ok(());
        }
        if variables.is_empty() {
            return Ok(());
        }
        self.devices += 1;
        let device = device.as_os_str().as_bytes();
        match self.format {
            Format::Full => {
                write!(io.out, "{}:", quoted(device, ""))?;
                for (name, value) in variables {
                    write!(io.out, " {name}=\"{}\"", quoted(value.as_bytes(), "\"\\"))?;
                }
                writeln!(io.out)?;
            }
            Format::Export => {
                if self.devices > 1 {
                    writeln!(io.out)?;
                }
                writeln!(io.out, "DEVNAME={}", shell_word(device))?;
                for (name, value) in variables {
                    writeln!(io.out, "{name}={}", shell_word(value.as_bytes()))?;
                }
            }
            Format::Udev => variables.into_iter().try_for_each(|variable| udev(variable, io))?,
            Format::Value => {
                for (_, value) in variables {
                    writeln!(io.out, "{}", quoted(value.as_bytes(), ""))?;
                }
            }
        }
        Ok(())
    }

    /// Prints the JSON document, if there is one.
    pub(super) fn finish(self, io: &mut Io) -> Result<(), Failure> {
        match self.documents {
            Some(documents) => Ok(io.json("betr.probe", 1, json!({ "devices": documents }))?),
            None => Ok(()),
        }
    }
}

fn udev((name, value): &Variable, io: &mut Io) -> Result<(), Failure> {
    let bytes = value.as_bytes();
    match *name {
        "LABEL" | "UUID" => {
            writeln!(io.out, "ID_FS_{name}={}", safe(bytes))?;
            writeln!(io.out, "ID_FS_{name}_ENC={}", encoded(bytes))?;
        }
        _ => writeln!(io.out, "ID_FS_{name}={}", encoded(bytes))?,
    }
    Ok(())
}

fn document(device: &Path, variables: &[&Variable]) -> Value {
    let text = |bytes: &[u8]| json::text(bytes, &printable(bytes));
    let mut fields = Map::new();
    fields.insert("device".to_owned(), text(device.as_os_str().as_bytes()));
    for (name, value) in variables {
        let number = matches!(*name, "BLOCK_SIZE" | "FSSIZE" | "VERSION");
        let value = match value.parse::<u64>() {
            Ok(value) if number => value.into(),
            _ => text(value.as_bytes()),
        };
        fields.insert(name.to_lowercase(), value);
    }
    fields.into()
}
