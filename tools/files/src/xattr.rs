//! `betr getfattr` and `betr setfattr`: extended attributes, as getfattr(1) and setfattr(1) show and take them.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use betr_cli::view::{PastArgs, View};
use betr_cli::{Exit, Failure, Io, json};
use betr_core::text::printable;
use betr_core::volume::Mode;
use clap::ValueEnum;
use serde_json::json;

use crate::session::shown;
use crate::stat::xattrs_json;
use crate::{Command, Session};

/// Show extended attributes of files of an image
#[derive(clap::Args, Debug)]
pub struct GetArgs {
    /// Show this attribute alone, with its value
    #[arg(short, long, value_name = "NAME")]
    name: Option<OsString>,
    /// Show values
    #[arg(short, long)]
    dump: bool,
    /// How values are shown [default: text where they are printable, else base64]
    #[arg(short, long, value_name = "HOW")]
    encoding: Option<Encoding>,
    /// Print the value of one attribute, and nothing else
    #[arg(long, requires = "name", conflicts_with = "json")]
    only_values: bool,
    /// Show those of symbolic links themselves, instead of following them
    #[arg(long)]
    no_dereference: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    image: PastArgs,
    /// The files
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// How values are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Encoding {
    /// In quotation marks
    Text,
    /// In hexadecimal, after 0x
    Hex,
    /// In base 64, after 0s
    Base64,
}

impl Command for GetArgs {
    fn image(&self) -> (View<'_>, Mode) {
        (self.image.view(), Mode::ReadOnly)
    }

    fn act(&self, session: &mut Session, io: &mut Io) -> Result<Exit, Failure> {
        let last = crate::last_link(self.no_dereference);
        let mut objects = Vec::new();
        for path in &self.paths {
            let path = session.operand(path);
            let object = session.look_up(&path, last)?.object;
            let (at, path) = (session.at(&path), path.shown());
            let xattrs = match &self.name {
                Some(name) => {
                    let value = session.fs().xattr(&object, name.as_bytes()).map_err(at)?;
                    vec![(name.as_bytes().to_vec(), value)]
                }
                None => session.fs().xattrs(&object).map_err(at)?,
            };
            if self.json {
                let path = json::text(&path, &printable(&path));
                objects.push(json!({ "path": path, "xattrs": xattrs_json(&xattrs) }));
            } else if self.only_values {
                io.data().write_all(&xattrs[0].1)?;
            } else if !xattrs.is_empty() {
                writeln!(io.out, "# file: {}", shown(&path))?;
                for (name, value) in xattrs {
                    match self.dump || self.name.is_some() {
                        true => {
                            let value = encode(&value, self.encoding);
                            writeln!(io.out, "{}={value}", shown(&name))?;
                        }
                        false => writeln!(io.out, "{}", shown(&name))?,
                    }
                }
                writeln!(io.out)?;
            }
        }
        if self.json {
            io.json("betr.getfattr", 1, json!({ "objects": objects }))?;
        }
        Ok(Exit::DONE)
    }
}

fn encode(value: &[u8], encoding: Option<Encoding>) -> String {
    let plain = || value.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    match encoding {
        Some(Encoding::Hex) => format!("0x{}", json::hex(value)),
        Some(Encoding::Base64) => format!("0s{}", BASE64.encode(value)),
        None if !plain() => format!("0s{}", BASE64.encode(value)),
        Some(Encoding::Text) | None => {
            let mut text = String::from('"');
            for byte in value {
                match byte {
                    b'"' | b'\\' => text.extend(['\\', char::from(*byte)]),
                    b' '..=b'~' => text.push(char::from(*byte)),
                    byte => text += &format!("\\{byte:03o}"),
                }
            }
            text + "\""
        }
    }
}

/// Set or remove extended attributes of files of an image
#[derive(clap::Args, Debug)]
pub struct SetArgs {
    /// The attribute to set
    #[arg(short, long, value_name = "NAME", required_unless_present = "remove")]
    name: Option<OsString>,
    /// Its value: 0x and hexadecimal digits, 0s and base 64, text in quotation marks with escapes in octal, or plain
    /// text
    #[arg(short, long, value_name = "VALUE", requires = "name", allow_hyphen_values = true)]
    value: Option<OsString>,
    /// The attribute to remove
    #[arg(short = 'x', long, value_name = "NAME", conflicts_with = "name")]
    remove: Option<OsString>,
    /// Change those of symbolic links themselves, instead of following them
    #[arg(long)]
    no_dereference: bool,
    /// The image
    image: PathBuf,
    /// The files
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

impl Command for SetArgs {
    fn image(&self) -> (View<'_>, Mode) {
        (View::from(self.image.as_path()), Mode::ReadWrite)
    }

    fn act(&self, session: &mut Session, _io: &mut Io) -> Result<Exit, Failure> {
        let value = self.value.clone().map(|value| decode(&value.into_vec())).transpose();
        let value = value.map_err(Failure::usage)?.unwrap_or_default();
        let last = crate::last_link(self.no_dereference);
        crate::each(session, &self.paths, last, false, |fs, object| {
            match (&self.name, &self.remove) {
                (Some(name), _) => {
                    fs.set_xattrs(object, &[(name.as_bytes().to_vec(), value.clone())])
                }
                (None, Some(name)) => fs.remove_xattr(object, name.as_bytes()),
                (None, None) => Ok(()),
            }
        })
    }
}

fn decode(value: &[u8]) -> Result<Vec<u8>, String> {
    match value {
        [b'0', b'x' | b'X', digits @ ..] => from_hex(digits)
            .ok_or_else(|| "a value after 0x is an even number of hexadecimal digits".into()),
        [b'0', b's' | b'S', rest @ ..] => {
            BASE64.decode(rest).map_err(|error| format!("a value after 0s is base 64: {error}"))
        }
        [b'"', text @ .., b'"'] => Ok(unescape(text)),
        plain => Ok(plain.to_vec()),
    }
}

fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => Some((digit(*high)? << 4 | digit(*low)?) as u8),
        _ => None,
    });
    pairs.collect()
}

/// Removes escapes: a backslash before three octal digits gives that byte, one before any other byte is dropped.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        (bytes, rest) = match (first, after) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                (bytes, after)
            }
            (b'\\', [other, after @ ..]) => {
                bytes.push(*other);
                (bytes, after)
            }
            (first, after) => {
                bytes.push(*first);
                (bytes, after)
            }
        };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_set() {
        for value in [&b""[..], b"plain", b"with \"quotes\" and \\", b"0xno", b"\0\xff\n", b"0s"] {
            for how in [None, Some(Encoding::Text), Some(Encoding::Hex), Some(Encoding::Base64)] {
                let text = encode(value, how);
                assert_eq!(decode(text.as_bytes()).as_deref(), Ok(value), "{text}");
            }
        }
        assert_eq!(decode(b"plain"), Ok(b"plain".to_vec()));
        for bad in ["0x1", "0xzz", "0s!"] {
            assert!(decode(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
