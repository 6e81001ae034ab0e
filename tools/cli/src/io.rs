//! The output streams of a tool.
//!
//! A tool writes only to [`Io`], never to the streams of the process, so that tests can run it in process and inspect
//! its output. Standard output is buffered unless it is a terminal, and it is flushed before anything is written to
//! standard error, which keeps the two in order.
//!
//! This module does not decide what to colour, and does not read standard input.

use crate::exit::Failure;
use crate::progress;
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal, Write};

/// The output streams of a tool, and their properties.
pub struct Io<'a> {
    /// Standard output: the result, and nothing else.
    pub out: &'a mut dyn Write,
    /// Standard error: messages and progress.
    pub err: &'a mut dyn Write,
    /// Whether standard output is a terminal.
    pub terminal: bool,
    /// Whether to colour standard output.
    pub color: bool,
    holds_data: bool,
}

impl<'a> Io<'a> {
    /// Streams without terminal and colour, for tests.
    pub fn plain(out: &'a mut dyn Write, err: &'a mut dyn Write) -> Io<'a> {
        Io { out, err, terminal: false, color: false, holds_data: false }
    }

    /// Calls `body` with the streams of the process, then flushes standard output. A failed flush is a failure of the
    /// tool too, unless `body` has failed already: output that was not written is not a success.
    pub fn process<T>(body: impl FnOnce(&mut Io) -> Result<T, Failure>) -> Result<T, Failure> {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        let color = wants_color(terminal, |name| std::env::var_os(name));
        let mut out: Box<dyn Write> = if terminal {
            Box::new(stdout.lock())
        } else {
            Box::new(BufWriter::with_capacity(64 * 1024, stdout.lock()))
        };
        let mut err = io::stderr();
        let mut io = Io { out: &mut *out, err: &mut err, terminal, color, holds_data: false };
        let result = body(&mut io);
        let holds_data = io.holds_data;
        let flushed = out.flush().map_err(Failure::from);
        let done = result.and_then(|value| flushed.map(|()| value));
        done.map_err(|failure| if holds_data { failure.of_data() } else { failure })
    }

    /// Standard output for data: contents of files, archives, packs, proofs, programs. If the
    /// reader closes it before all is written, the tool fails. Other output is a listing, which
    /// the reader may close at any time.
    pub fn data(&mut self) -> &mut dyn Write {
        self.holds_data = true;
        self.out
    }

    /// Prints one JSON document: `schema` and `version` first, then the fields of `value`. A value that is not an
    /// object becomes the field `value`.
    ///
    /// `value` must not contain fields named `schema` or `version`; they are dropped.
    pub fn json(&mut self, schema: &str, version: u32, value: Value) -> io::Result<()> {
        let mut document = Map::new();
        document.insert("schema".into(), schema.into());
        document.insert("version".into(), version.into());
        match value {
            Value::Object(fields) => {
                for (key, field) in fields {
                    debug_assert!(!document.contains_key(&key), "{schema}: field {key} twice");
                    document.entry(key).or_insert(field);
                }
            }
            other => {
                document.insert("value".into(), other);
            }
        }
        serde_json::to_writer_pretty(&mut *self.out, &Value::Object(document))
            .map_err(io::Error::from)?;
        self.out.write_all(b"\n")
    }

    /// Flushes standard output, then prints a line on standard error.
    pub fn note(&mut self, message: &str) -> io::Result<()> {
        self.out.flush()?;
        progress::beside(|| writeln!(self.err, "{message}"))
    }
}

/// A JSON document whose last field is a list. Items are printed as they are pushed and not kept in memory. The output
/// equals that of [`Io::json`], except that a failure leaves it unfinished.
pub struct JsonList {
    /// The text before the first item, until it is printed.
    head: Option<String>,
}

impl JsonList {
    /// Starts a list; nothing is printed yet.
    pub fn new(schema: &str, version: u32, field: &str) -> JsonList {
        JsonList::with(schema, version, Value::Object(Map::new()), field)
    }

    /// Starts a list that follows other fields.
    pub fn with(schema: &str, version: u32, fields: Value, field: &str) -> JsonList {
        let mut head =
            format!("{{\n  \"schema\": {},\n  \"version\": {version},\n", Value::from(schema));
        for (name, value) in fields.as_object().into_iter().flatten() {
            // Line ends within strings are escaped, so each newline here belongs to the layout.
            let value = format!("{value:#}").replace('\n', "\n  ");
            head += &format!("  {}: {value},\n", Value::from(name.as_str()));
        }
        head += &format!("  {}: [", Value::from(field));
        JsonList { head: Some(head) }
    }

    /// Prints the next item.
    pub fn push(&mut self, io: &mut Io, item: &Value) -> io::Result<()> {
        let before = self.head.take().unwrap_or_else(|| ",".into());
        // Line ends within strings are escaped, so each newline here belongs to the layout.
        write!(io.out, "{before}\n    {}", format!("{item:#}").replace('\n', "\n    "))
    }

    /// Ends the document.
    pub fn end(self, io: &mut Io) -> io::Result<()> {
        match self.head {
            Some(head) => write!(io.out, "{head}]\n}}\n"),
            None => io.out.write_all(b"\n  ]\n}\n"),
        }
    }
}

/// Whether to use colour. `NO_COLOR` disables it and has precedence. `CLICOLOR_FORCE` enables it even for a pipe.
/// Otherwise it is used on a terminal that is not dumb, unless `CLICOLOR=0`.
fn wants_color(terminal: bool, env: impl Fn(&str) -> Option<OsString>) -> bool {
    let set = |name| env(name).filter(|value| !value.is_empty());
    if set("NO_COLOR").is_some() {
        return false;
    }
    if set("CLICOLOR_FORCE").is_some_and(|value| value != "0") {
        return true;
    }
    terminal
        && set("CLICOLOR").is_none_or(|value| value != "0")
        && set("TERM").is_some_and(|value| value != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn colour_follows_the_environment() {
        type Vars = &'static [(&'static str, &'static str)];
        let cases: [(bool, Vars, bool); 9] = [
            (true, &[("TERM", "xterm")], true),
            (false, &[("TERM", "xterm")], false),
            (true, &[], false),
            (true, &[("TERM", "dumb")], false),
            (true, &[("TERM", "xterm"), ("NO_COLOR", "1")], false),
            (true, &[("TERM", "xterm"), ("NO_COLOR", "")], true),
            (true, &[("TERM", "xterm"), ("CLICOLOR", "0")], false),
            (false, &[("CLICOLOR_FORCE", "1")], true),
            (false, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false),
        ];
        for (terminal, vars, expected) in cases {
            let env = |name: &str| {
                vars.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
            };
            assert_eq!(wants_color(terminal, env), expected, "{terminal} {vars:?}");
        }
    }

    #[test]
    fn json_starts_with_schema_and_version() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut io = Io::plain(&mut out, &mut err);
        io.json("betr.stat", 1, json!({"size": 3})).unwrap();
        io.json("betr.ls", 2, json!([1])).unwrap();
        let expected = "{\n  \"schema\": \"betr.stat\",\n  \"version\": 1,\n  \"size\": 3\n}\n\
                        {\n  \"schema\": \"betr.ls\",\n  \"version\": 2,\n  \"value\": [\n    1\n  ]\n}\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        assert!(err.is_empty());
    }

    #[test]
    fn a_list_looks_the_same_item_by_item() {
        for items in [json!([]), json!([1]), json!(["a\nb", {}, {"x": [1, {"y": []}]}])] {
            let [mut whole, mut listed, mut err] = [vec![], vec![], vec![]];
            let fields = json!({ "entries": items });
            Io::plain(&mut whole, &mut err).json("betr.ls", 3, fields).unwrap();
            let mut io = Io::plain(&mut listed, &mut err);
            let mut list = JsonList::new("betr.ls", 3, "entries");
            for item in items.as_array().unwrap() {
                list.push(&mut io, item).unwrap();
            }
            list.end(&mut io).unwrap();
            assert_eq!(String::from_utf8(listed), String::from_utf8(whole));
            let [mut whole, mut listed] = [vec![], vec![]];
            let fields = json!({ "a": { "b": [] }, "c": "\n}" });
            let mut all = fields.clone();
            all["d"] = items.clone();
            Io::plain(&mut whole, &mut err).json("betr.plan", 1, all).unwrap();
            let mut io = Io::plain(&mut listed, &mut err);
            let mut list = JsonList::with("betr.plan", 1, fields, "d");
            for item in items.as_array().unwrap() {
                list.push(&mut io, item).unwrap();
            }
            list.end(&mut io).unwrap();
            assert_eq!(String::from_utf8(listed), String::from_utf8(whole));
        }
    }

    #[test]
    fn a_broken_pipe_survives_json() {
        struct Broken;
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut err = Vec::new();
        let error = Io::plain(&mut Broken, &mut err).json("x", 1, json!({})).unwrap_err();
        assert!(Failure::from(error).is_broken_pipe());
    }
}
