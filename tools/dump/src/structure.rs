//! One structure of the image as text or JSON.

use std::fmt;

use betr_cli::{Failure, Io, json};
use betr_core::format::{FormatError, Trace};
use serde_json::{Value, json};

use crate::record::{Item, Recorder};

/// Bytes of a value that are shown in text; JSON has them all.
const SHOWN: usize = 200;
/// Bytes in a line of hexadecimal.
const LINE: usize = 32;

/// Where structures go.
pub(crate) struct Output {
    /// Structures, if the output is JSON.
    pub json: Option<Vec<Value>>,
    /// Whether something did not verify.
    pub damaged: bool,
}

impl Output {
    pub fn new(json: bool) -> Output {
        Output { json: json.then(Vec::new), damaged: false }
    }

    /// Shows a structure: decodes `bytes`, which lie at byte `at` of the image, with a recorder
    /// listening. Returns what the decoder gives.
    pub fn structure<T>(
        &mut self,
        io: &mut Io,
        title: &str,
        at: u64,
        bytes: &[u8],
        decode: impl FnOnce(Option<&mut dyn Trace>) -> Result<T, FormatError>,
    ) -> Result<Option<T>, Failure> {
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
        match &mut self.json {
            Some(all) => all.push(json!({
                "structure": title,
                "byte": at,
                "bytes": bytes.len(),
                "verdict": verdict,
                "fields": items.iter().map(|item| item_json(item, at)).collect::<Value>(),
                "undecoded": json::hex(rest),
            })),
            None => {
                writeln!(io.out, "{title}  b:{at:#x}+{}  {verdict}", bytes.len())?;
                items.iter().try_for_each(|item| item_text(item, at, 1, io))?;
                hex_lines(rest, at + end as u64, io)?;
            }
        }
        Ok(decoded.ok())
    }

    /// A line of text, or an object of JSON.
    pub fn line(
        &mut self,
        io: &mut Io,
        text: impl fmt::Display,
        value: impl FnOnce() -> Value,
    ) -> Result<(), Failure> {
        match &mut self.json {
            Some(all) => all.push(value()),
            None => writeln!(io.out, "{text}")?,
        }
        Ok(())
    }

    /// Something that could not be read or does not verify.
    pub fn damage(
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

fn item_text(item: &Item, base: u64, depth: usize, io: &mut Io) -> Result<(), Failure> {
    let indent = "  ".repeat(depth);
    match item {
        Item::Field(name, bytes, value) => {
            let at = base + bytes.start as u64;
            let value = clipped(value);
            writeln!(io.out, "{indent}{at:#010x} {:>5}  {name}: {value}", bytes.len())?;
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

/// A value cut to what a line can hold.
fn clipped(value: &str) -> String {
    match value.char_indices().nth(SHOWN) {
        None => value.to_owned(),
        Some((end, _)) => format!("{}… ({} characters)", &value[..end], value.chars().count()),
    }
}

fn item_json(item: &Item, base: u64) -> Value {
    match item {
        Item::Field(name, bytes, value) => json!({
            "name": name,
            "byte": base + bytes.start as u64,
            "bytes": bytes.len(),
            "value": value,
        }),
        Item::Group(name, index, items) => json!({
            "group": name,
            "index": index,
            "fields": items.iter().map(|item| item_json(item, base)).collect::<Value>(),
        }),
    }
}

/// Bytes in hexadecimal; a run of lines of zeros becomes one.
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
