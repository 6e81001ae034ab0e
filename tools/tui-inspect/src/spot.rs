//! Spots: the addresses of everything that the inspector can show.
//!
//! ```text
//! n:17 k:/a/b k#1:00ff b:0x42000 l:4711 z:5    as everywhere, see betr_core::address
//! n:17/p3            part 3 of a node: a basement of a leaf, a run of an internal node
//! n:17/c4  n:17/c4/m9    the messages that are pending for its child 4 (counted from 0), and the one with MSN 9
//! f:N07.3            the third finding of code N07
//! ```

use std::fmt;
use std::str::FromStr;

use betr_core::Place;
use betr_core::address::Address;
use betr_core::check::{CATALOG, Code};
use betr_core::ids::NodeId;

use crate::model::Screen;

/// A place that the inspector can show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// The image as a whole.
    Image,
    /// An address that all tools accept.
    At(Address),
    /// A part of a node.
    Part(NodeId, u64),
    /// The messages for a child, or the one with this MSN.
    Buffer(NodeId, usize, Option<u64>),
    /// A finding of a check: its code, and its number within that code, from 1.
    Finding(Code, usize),
}

impl Spot {
    pub(crate) fn node(id: NodeId) -> Spot {
        Spot::At(Address::Node(id))
    }

    pub(crate) fn byte(at: u64) -> Spot {
        Spot::At(Address::Byte(at))
    }

    /// The node of the spot, or the one that contains it.
    pub(crate) fn as_node(&self) -> Option<NodeId> {
        match self {
            Spot::At(Address::Node(id)) | Spot::Part(id, _) | Spot::Buffer(id, ..) => Some(*id),
            _ => None,
        }
    }

    /// The byte of the spot, if it is one.
    pub(crate) fn as_byte(&self) -> Option<u64> {
        match self {
            Spot::At(Address::Byte(at)) => Some(*at),
            _ => None,
        }
    }

    /// Whether the spot is a path or a key.
    pub(crate) fn is_key(&self) -> bool {
        matches!(self, Spot::At(Address::Path(_) | Address::Key(..)))
    }

    /// The screen that shows the spot best.
    pub(crate) fn screen(&self) -> Screen {
        match self {
            Spot::Image => Screen::Overview,
            Spot::At(Address::Node(_)) | Spot::Buffer(..) | Spot::Part(..) => Screen::Node,
            Spot::At(Address::Path(_) | Address::Key(..)) => Screen::Key,
            Spot::At(Address::Byte(_)) => Screen::Hex,
            Spot::At(Address::Record(_)) => Screen::Log,
            Spot::At(Address::Zone(_)) => Screen::Zones,
            Spot::Finding(..) => Screen::Findings,
        }
    }

    /// Whether a screen can show the spot.
    pub(crate) fn goes_with(&self, screen: Screen) -> bool {
        match screen {
            Screen::Refs => !matches!(self, Spot::Finding(..) | Spot::At(Address::Record(_))),
            Screen::Space => self.as_byte().is_some(),
            screen => screen == self.screen(),
        }
    }

    /// All spots of the place of an error or finding, the main one first.
    pub(crate) fn of_place(place: &Place) -> Vec<Spot> {
        match place {
            Place::Image => Vec::new(),
            Place::Byte(at) => vec![Spot::byte(*at)],
            Place::Node { id, byte } => {
                std::iter::once(Spot::node(*id)).chain(byte.map(Spot::byte)).collect()
            }
            Place::Part { id, part, byte } => vec![Spot::Part(*id, *part), Spot::byte(*byte)],
            Place::Record(lsn) => vec![Spot::At(Address::Record(*lsn))],
            Place::Key(tree, key) => {
                let key = betr_core::format::Key::copied(key);
                vec![Spot::At(Address::Key(*tree, key))]
            }
            Place::Zone(zone) => vec![Spot::At(Address::Zone(*zone))],
            Place::Path(path) => vec![Spot::At(Address::Path(path.clone()))],
        }
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spot::Image => f.write_str("image"),
            Spot::At(address) => write!(f, "{address}"),
            Spot::Part(id, part) => write!(f, "{id}/p{part}"),
            Spot::Buffer(id, child, None) => write!(f, "{id}/c{child}"),
            Spot::Buffer(id, child, Some(message)) => write!(f, "{id}/c{child}/m{message}"),
            Spot::Finding(code, which) => write!(f, "f:{}.{which}", code.name()),
        }
    }
}

impl FromStr for Spot {
    type Err = String;

    fn from_str(text: &str) -> Result<Spot, String> {
        // Only other addresses are trimmed: a file name may end in blanks.
        let text = if text.starts_with('/') || text.starts_with("k:") { text } else { text.trim() };
        if text == "image" {
            return Ok(Spot::Image);
        }
        if let Some(rest) = text.strip_prefix("f:") {
            return finding(rest).ok_or_else(|| {
                format!(
                    "{}: expected a finding, as f:N07.3",
                    betr_cli::show::bytes(text.as_bytes())
                )
            });
        }
        if text.starts_with("n:") {
            // Error messages append the byte to the node: "n:17/p3 (b:0x42000)".
            let named = text.split_once(" (").map_or(text, |(named, _)| named);
            let mut parts = named.split('/');
            let node = parts.next().unwrap_or_default().parse::<Address>()?;
            let Address::Node(id) = node else { return Err(format!("{node}: expected a node")) };
            let parts: Vec<&str> = parts.collect();
            return inside(id, &parts).ok_or_else(|| {
                let shown = betr_cli::show::bytes(text.as_bytes());
                format!("{shown}: expected n:NODE, n:NODE/pPART or n:NODE/cCHILD/mMESSAGE")
            });
        }
        text.parse()
            .map(Spot::At)
            .map_err(|error| format!("{error}; or f:CODE.NUMBER, n:NODE/cCHILD"))
    }
}

fn finding(text: &str) -> Option<Spot> {
    let (name, which) = text.split_once('.').unwrap_or((text, "1"));
    let problem = CATALOG.iter().find(|problem| problem.name.eq_ignore_ascii_case(name))?;
    let which = which.parse().ok().filter(|which| *which > 0)?;
    Some(Spot::Finding(problem.code, which))
}

fn inside(id: NodeId, parts: &[&str]) -> Option<Spot> {
    let number = |text: &str, sign: char| text.strip_prefix(sign)?.parse::<u64>().ok();
    match parts {
        [] => Some(Spot::node(id)),
        [part] if part.starts_with('p') => Some(Spot::Part(id, number(part, 'p')?)),
        [child] => Some(Spot::Buffer(id, number(child, 'c')? as usize, None)),
        [child, message] => {
            Some(Spot::Buffer(id, number(child, 'c')? as usize, Some(number(message, 'm')?)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spots_are_read_as_they_are_printed() {
        for text in [
            "n:17",
            "n:17/p3",
            "n:17/c4",
            "n:17/c4/m9",
            "f:N07.3",
            "k:/a b",
            "k#1:00ff",
            "b:0x42000",
            "l:4711",
            "z:5",
            "image",
        ] {
            let spot: Spot = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(spot.to_string(), text);
        }
        let of_message: Spot = "n:17/p3 (b:0x42000)".parse().unwrap();
        assert_eq!(of_message, Spot::Part(NodeId(17), 3));
        assert_eq!("f:n07".parse::<Spot>(), "f:N07.1".parse());
        for wrong in
            ["", "n:", "n:1/x2", "n:1/p", "n:1/c2/p3", "n:1/c2/m3/m4", "f:", "f:Z99.1", "f:N07.0"]
        {
            assert!(wrong.parse::<Spot>().is_err(), "{wrong}");
        }
    }
}
