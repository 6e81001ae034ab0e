//! Addresses: the one way to name a place of an image, which all tools print and accept.
//!
//! ```text
//! n:17            a node
//! k:/a/b  /a/b    a path
//! k#1:00ff…       a key of the metadata index (1) or of the data index (2), in hexadecimal
//! b:0x42000       a byte of the image; decimal, too
//! l:4711          a record of the log
//! z:5             a zone
//! ```
//!
//! A path is given as it is printed ([`crate::text`]): bytes that are no text, and control characters of terminals, as
//! `\xHH` or `\u{HEX}`, a backslash doubled. In `/a/b` a backslash that begins none of these is literal, since people
//! type names as they are; `k:` is exact.

use std::fmt;
use std::str::FromStr;

use crate::error::Place;
use crate::format::Key;
use crate::ids::{Lsn, NodeId, TreeId, ZoneId};
use crate::text::{Printable, meant, unprintable};

/// A place of an image, as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A node.
    Node(NodeId),
    /// A path from the root on.
    Path(Vec<u8>),
    /// A key of one of the trees.
    Key(TreeId, Key),
    /// A byte of the image.
    Byte(u64),
    /// A record of the log.
    Record(Lsn),
    /// A zone.
    Zone(ZoneId),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Node(id) => write!(f, "{id}"),
            Address::Path(path) => write!(f, "k:{}", Printable(path)),
            Address::Key(tree, key) => write!(f, "{}", Place::Key(*tree, key.to_vec())),
            Address::Byte(at) => write!(f, "b:{at:#x}"),
            Address::Record(lsn) => write!(f, "{lsn}"),
            Address::Zone(zone) => write!(f, "{zone}"),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        Address::parse(text.as_bytes())
    }
}

impl Address {
    /// Parses an address; only a path may contain bytes that are no text.
    pub fn parse(text: &[u8]) -> Result<Address, String> {
        let wrong = || {
            let forms = "n:NODE, k:PATH or /PATH, k#1:HEX or k#2:HEX, b:BYTE, l:RECORD or z:ZONE";
            format!("{}: no address: expected {forms}", Printable(text))
        };
        let number = |digits: &str| number(digits).ok_or_else(wrong);
        if text.starts_with(b"/") {
            return Ok(Address::Path(meant(text)));
        }
        let text = std::str::from_utf8(text).map_err(|_| wrong())?;
        let (kind, rest) = text.split_once(':').ok_or_else(wrong)?;
        match kind {
            "n" => Ok(Address::Node(NodeId(number(rest)?))),
            "b" => Ok(Address::Byte(number(rest)?)),
            "l" => Ok(Address::Record(Lsn(number(rest)?))),
            "z" => Ok(Address::Zone(ZoneId(number(rest)?))),
            "k" => unprintable(rest).map(Address::Path).ok_or_else(wrong),
            "k#1" => bytes(rest).map(|key| Address::Key(TreeId::Metadata, key)).ok_or_else(wrong),
            "k#2" => bytes(rest).map(|key| Address::Key(TreeId::Data, key)).ok_or_else(wrong),
            _ => Err(wrong()),
        }
    }
}

fn number(digits: &str) -> Option<u64> {
    match digits.strip_prefix("0x") {
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok(),
        _ if digits.starts_with('+') => None,
        _ => digits.parse().ok(),
    }
}

fn bytes(digits: &str) -> Option<Key> {
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    let bytes = pairs.map(|pair| u8::from_str_radix(pair?, 16).ok());
    bytes.collect::<Option<Vec<u8>>>().map(Key::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn addresses_are_read_as_they_are_printed() {
        let cases = [
            ("n:17", "n:17"),
            ("b:0x1000", "b:0x1000"),
            ("b:4096", "b:0x1000"),
            ("l:9", "l:9"),
            ("z:3", "z:3"),
            ("k:/a b", "k:/a b"),
            ("/a", "k:/a"),
            (r"k:/\x07\\", r"k:/\x07\\"),
            (r"/a\x07\\\xff", r"k:/a\x07\\\xff"),
            (r"/a\b\", r"k:/a\\b\\"),
            ("k#1:00fF", "k#1:00ff"),
            ("k#2:", "k#2:"),
        ];
        for (text, printed) in cases {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), printed);
            assert_eq!(printed.parse(), Ok(address));
        }
        for wrong in
            ["", "n:", "n:+1", "b:0x", "b:0x+1", "k#3:00", "k#1:0", "k#1:é0", r"k:\x", "q:1", "17"]
        {
            assert!(wrong.parse::<Address>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn every_path_is_read_as_it_is_printed() {
        let mut random = Random::new(7);
        let odd: [&[u8]; 8] =
            [b"\\", b"x", b"u{", b"}", b"41", b"\xe2", "\u{202e}".as_bytes(), b"\xc3\xa9"];
        for _ in 0..20_000 {
            let mut path = b"/".to_vec();
            for _ in 0..random.below(12) {
                match random.below(2) {
                    0 => path.extend_from_slice(odd[random.below(8) as usize]),
                    _ => path.push(random.below(256) as u8),
                }
            }
            let address = Address::Path(path.clone());
            let printed = Printable(&path).to_string();
            assert_eq!(printed.parse(), Ok(address.clone()));
            assert_eq!(address.to_string().parse(), Ok(address));
        }
    }
}
