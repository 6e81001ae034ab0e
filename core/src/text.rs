//! Text from an image, made printable: all bytes of an image that go to a terminal pass through here.
//!
//! The mapping is reversible: valid UTF-8 stays as it is; control characters, bidirectional and
//! zero-width characters, line and paragraph separators and invalid bytes become escapes; the
//! backslash is doubled.

use std::fmt::{self, Write};

/// Displays bytes of an image as safe text.
pub struct Printable<'a>(pub &'a [u8]);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\\' => f.write_str("\\\\")?,
                    c if c.is_ascii_control() => write!(f, "\\x{:02x}", c as u32)?,
                    c if is_treacherous(c) => write!(f, "\\u{{{:x}}}", c as u32)?,
                    c => f.write_char(c)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Displays bytes of an image as safe text in a message; of a long text, only the beginning and the end.
pub struct Brief<'a>(pub &'a [u8]);

/// 600 bytes: longer texts are shortened in messages; a name of 255 bytes fits on either side.
const BRIEF_MAX: usize = 600;

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(cut) = self.0.len().checked_sub(BRIEF_MAX).filter(|cut| *cut > 0) else {
            return Printable(self.0).fmt(f);
        };
        // Does not cut within a character.
        let is_start = |at: &usize| self.0[*at] & 0xc0 != 0x80;
        let (from, to) = (BRIEF_MAX / 2, BRIEF_MAX / 2 + cut);
        let from = (from - 3..=from).rev().find(is_start).unwrap_or(from);
        let to = (to..=to + 3).find(is_start).unwrap_or(to);
        let (head, tail) = (Printable(&self.0[..from]), Printable(&self.0[to..]));
        write!(f, "{head}[… {} bytes …]{tail}", to - from)
    }
}

/// The text of `bytes`, safe to print.
pub fn printable(bytes: &[u8]) -> String {
    Printable(bytes).to_string()
}

/// The bytes of a printed text; `None` if an escape is malformed.
pub fn unprintable(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        rest = match byte {
            b'\\' => escape(tail, &mut out)?,
            _ => {
                out.push(*byte);
                tail
            }
        };
    }
    Some(out)
}

/// The bytes that a user means by a typed or pasted name: a backslash that begins no escape is literal.
pub fn meant(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, tail)) = rest.split_first() {
        let escaped = if *byte == b'\\' { escape(tail, &mut out) } else { None };
        rest = escaped.unwrap_or_else(|| {
            out.push(*byte);
            tail
        });
    }
    out
}

/// Appends the bytes of an escape, whose backslash has been read; returns the rest.
fn escape<'t>(text: &'t [u8], out: &mut Vec<u8>) -> Option<&'t [u8]> {
    if let Some(rest) = text.strip_prefix(b"\\") {
        out.push(b'\\');
        return Some(rest);
    }
    if let Some(rest) = text.strip_prefix(b"x") {
        let (digits, rest) = rest.split_at_checked(2)?;
        out.push(hexadecimal(digits)? as u8);
        return Some(rest);
    }
    let rest = text.strip_prefix(b"u{")?;
    let end = rest.iter().position(|byte| *byte == b'}')?;
    let c = char::from_u32(hexadecimal(&rest[..end])?)?;
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    Some(&rest[end + 1..])
}

fn hexadecimal(digits: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    u32::from_str_radix(digits, 16).ok()
}

/// Whether a character may be printed as it is. (The backslash may, if the text has no escapes.)
pub fn is_printable(c: char) -> bool {
    !c.is_ascii_control() && !is_treacherous(c)
}

/// Characters that print as nothing, move the cursor, or reorder their neighbours.
fn is_treacherous(c: char) -> bool {
    matches!(c,
        '\u{80}'..='\u{9f}'
        | '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_cut_what_is_long_in_the_middle() {
        let brief = |bytes: &[u8]| Brief(bytes).to_string();
        assert_eq!(brief(b"a\x1b"), "a\\x1b");
        assert_eq!(brief(&[b'a'; BRIEF_MAX]), "a".repeat(BRIEF_MAX));
        let deep = "dir/".repeat(30_000) + "file";
        let text = brief(deep.as_bytes());
        assert!(text.starts_with("dir/dir/") && text.ends_with("/dir/file"), "{text}");
        assert!(text.contains("[… 119404 bytes …]") && text.len() < 700, "{text}");
        // Characters stay whole.
        for shift in 0..4 {
            let text = brief(["x".repeat(shift), "日".repeat(1000)].concat().as_bytes());
            assert!(!text.contains('\\'), "{text}");
        }
    }

    #[test]
    fn escapes_what_a_terminal_would_obey() {
        for (bytes, text) in [
            (&b"plain"[..], "plain"),
            ("grün".as_bytes(), "grün"),
            (b"a\x1b[31m\n", "a\\x1b[31m\\x0a"),
            (b"back\\slash", "back\\\\slash"),
            (b"\xff\xfe", "\\xff\\xfe"),
            ("\u{202e}gpj".as_bytes(), "\\u{202e}gpj"),
            ("\u{200b}".as_bytes(), "\\u{200b}"),
            (b"\x7f", "\\x7f"),
        ] {
            assert_eq!(printable(bytes), text);
            assert_eq!(unprintable(text).as_deref(), Some(bytes));
            assert_eq!(meant(text.as_bytes()), bytes);
        }
    }

    #[test]
    fn refuses_malformed_escapes() {
        for text in ["\\", "\\x1", "\\x+1", "\\q", "\\u{", "\\u{110000}", "\\u{+1}", "\\x\u{e9}"] {
            assert_eq!(unprintable(text), None, "{text}");
            assert_eq!(meant(text.as_bytes()), text.as_bytes(), "{text}");
        }
        // Bytes that are no text stand for themselves.
        assert_eq!(meant(b"/a\xff\\xfe\\"), b"/a\xff\xfe\\");
    }
}
