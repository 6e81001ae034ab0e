//! Prints one structure of the image as text or JSON.

use std::fmt;

use betr_cli::{Failure, Io, JsonList, json};
use betr_core::format::{FormatError, Trace};
use serde_json::{Value, json};

use crate::record::{Item, Recorder};

/// The most characters of a value that are shown in text; JSON has all of them.
const SHOWN: usize = 200;
/// Bytes per line of hexadecimal.
const LINE: usize = 32;

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Text.
    Text,
    /// One JSON document.
    Json,
    /// One JSON document per line.
    Ndjson,
}

/// The output of the dump.
pub(crate) struct Output {
    /// The output format.
    form: Form,
    /// The unfinished list of a JSON document.
    list: Option<JsonList>,
    /// Whether the first of several documents has been printed.
    has_begun: bool,
    /// The byte ranges of the image that were shown.
    pub seen: Vec<(u64, u64)>,
    /// Whether a structure did not verify.
    pub damaged: bool,
}

impl Output {
    pub(crate) fn new(form: Form) -> Output {
        let list = (form == Form::Json).then(|| JsonList::new("betr.dump", 1, "structures"));
        Output { form, list, has_begun: false, seen: Vec::new(), damaged: false }
    }

    /// Whether the output is text.
    pub(crate) fn is_text(&self) -> bool {
        self.form == Form::Text
    }

    /// Ends the JSON document, if there is one.
    pub(crate) fn end(&mut self, io: &mut Io) -> Result<(), Failure> {
        Ok(self.list.take().map_or(Ok(()), |list| list.end(io))?)
    }

    /// Marks bytes of the image as shown.
    pub(crate) fn has_shown(&mut self, at: u64, bytes: u64) {
        let end = at.saturating_add(bytes);
        match self.seen.last_mut() {
            Some(last) if last.1 == at => last.1 = end,
            _ => self.seen.push((at, end)),
        }
    }

    fn object(&mut self, io: &mut Io, object: &Value) -> Result<(), Failure> {
        match &mut self.list {
            Some(list) => list.push(io, object)?,
            None => {
                if !std::mem::replace(&mut self.has_begun, true) {
                    writeln!(io.out, "{}", json!({ "schema": "betr.dump", "version": 1 }))?;
                }
                writeln!(io.out, "{object}")?;
            }
        }
        Ok(())
    }

    /// Shows a structure: decodes `bytes` with a recorder attached. `at` is their address in the image, if they have
    /// one. Returns the decoded value.
    pub(crate) fn structure<T>(
        &mut self,
        io: &mut Io,
        title: &str,
        at: impl Into<Option<u64>>,
        bytes: &[u8],
        decode: impl FnOnce(Option<&mut dyn Trace>) -> Result<T, FormatError>,
    ) -> Result<Option<T>, Failure> {
        let at = at.into();
        let mut recorder = Recorder::default();
        let decoded = decode(Some(&mut recorder));
        let (items, end) = recorder.finish();
        let verdict = match &decoded {
            Ok(_) => "verified".to_owned(),
            Err(error) => {
                self.damaged = true;
                error.to_string()
            }
        };
        let rest = &bytes[end.min(bytes.len())..];
        if let Some(at) = at {
            self.has_shown(at, bytes.len() as u64);
        }
        if self.is_text() {
            let (bold, colour, plain) = match (io.color, decoded.is_ok()) {
                (false, _) => ("", "", ""),
                (true, true) => ("\x1b[1m", "\x1b[32m", "\x1b[0m"),
                (true, false) => ("\x1b[1m", "\x1b[31m", "\x1b[0m"),
            };
            let len = bytes.len();
            let place = at.map_or(format!("{len} bytes"), |at| format!("b:{at:#x}+{len}"));
            writeln!(io.out, "{bold}{title}{plain}  {place}  {colour}{verdict}{plain}")?;
            items.iter().try_for_each(|item| item_text(item, at, 1, io))?;
            hex_lines(rest, at.unwrap_or(0) + end as u64, io)?;
        } else {
            let object = json!({
                "structure": title,
                "byte": at,
                "bytes": bytes.len(),
                "verdict": verdict,
                "fields": items.iter().map(|item| item_json(item, at)).collect::<Value>(),
                "undecoded": json::hex(rest),
            });
            self.object(io, &object)?;
        }
        Ok(decoded.ok())
    }

    /// Prints a line of text, or an object of JSON.
    pub(crate) fn line(
        &mut self,
        io: &mut Io,
        text: impl fmt::Display,
        value: impl FnOnce() -> Value,
    ) -> Result<(), Failure> {
        match self.form {
            Form::Text => Ok(writeln!(io.out, "{text}")?),
            Form::Json | Form::Ndjson => self.object(io, &value()),
        }
    }

    /// Reports a structure that cannot be read or does not verify.
    pub(crate) fn damage(
        &mut self,
        io: &mut Io,
        title: &str,
        error: impl fmt::Display,
    ) -> Result<(), Failure> {
        self.damaged = true;
        let error = error.to_string();
        self.line(
            io,
            format_args!("{title}  {error}"),
            || json!({ "structure": title, "verdict": error }),
        )
    }
}

fn item_text(item: &Item, base: Option<u64>, depth: usize, io: &mut Io) -> Result<(), Failure> {
    let indent = "  ".repeat(depth);
    match item {
        Item::Field(name, bytes, value) => {
            let at = match base {
                Some(base) => format!("{:#010x}", base + bytes.start as u64),
                None => format!("{:>10}", format!("+{:#x}", bytes.start)),
            };
            let value = clipped(value);
            writeln!(io.out, "{indent}{at} {:>5}  {name}: {value}", bytes.len())?;
        }
        Item::Group(name, index, items) => {
            match index {
                Some(index) => writeln!(io.out, "{indent}{name} {index}")?,
                None => writeln!(io.out, "{indent}{name}")?,
            }
            items.iter().try_for_each(|item| item_text(item, base, depth + 1, io))?;
        }
    }
    Ok(())
}

/// A value cut to [`SHOWN`] characters.
fn clipped(value: &str) -> String {
    match value.char_indices().nth(SHOWN) {
        None => value.to_owned(),
        Some((end, _)) => format!("{}… ({} characters)", &value[..end], value.chars().count()),
    }
}

fn item_json(item: &Item, base: Option<u64>) -> Value {
    match item {
        Item::Field(name, bytes, value) => {
            let start = bytes.start as u64;
            let (place, at) = base.map_or(("offset", start), |base| ("byte", base + start));
            json!({ "name": name, place: at, "bytes": bytes.len(), "value": value })
        }
        Item::Group(name, index, items) => json!({
            "group": name,
            "index": index,
            "fields": items.iter().map(|item| item_json(item, base)).collect::<Value>(),
        }),
    }
}

/// Prints bytes in hexadecimal; consecutive lines of zeros become one line.
fn hex_lines(bytes: &[u8], at: u64, io: &mut Io) -> Result<(), Failure> {
    let mut zeros = 0;
    for (index, line) in bytes.chunks(LINE).enumerate() {
        if line.iter().all(|byte| *byte == 0) {
            zeros += line.len();
            continue;
        }
        if zeros > 0 {
            writeln!(io.out, "  {zeros} bytes of zero")?;
            zeros = 0;
        }
        writeln!(io.out, "  {:#010x}  {}", at + (index * LINE) as u64, json::hex(line))?;
    }
    if zeros > 0 {
        writeln!(io.out, "  {zeros} bytes of zero")?;
    }
    Ok(())
}
