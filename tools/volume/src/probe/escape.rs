//! Escapes values as blkid(8) does. Control characters for terminals, however, are always escaped.

use std::fmt::Write;

use betr_core::text::is_printable;

/// For people: characters of `special` get a backslash, unprintable ones become `\xNN`.
pub(super) fn quoted(bytes: &[u8], special: &str) -> String {
    mapped(bytes, |c, out| {
        if special.contains(c) {
            out.push('\\');
        }
        out.push(c);
        true
    })
}

/// For shells, as one word: every ASCII character except letters, digits and [`SHELL_SAFE`] gets a backslash.
/// blkid(8) instead has an incomplete list of unsafe characters. Unprintable ones become `\xNN`, which a shell reads
/// as `xNN`.
pub(super) fn shell_word(bytes: &[u8]) -> String {
    mapped(bytes, |c, out| {
        if c.is_ascii() && !c.is_ascii_alphanumeric() && !SHELL_SAFE.contains(c) {
            out.push('\\');
        }
        out.push(c);
        true
    })
}

/// Characters without a meaning to shells in the value of an assignment.
const SHELL_SAFE: &str = "%+,-./:=@_";

/// For names of links: ASCII characters except letters, digits and `#+-.:=@_` become `\xNN`.
pub(super) fn encoded(bytes: &[u8]) -> String {
    mapped(bytes, |c, out| {
        let plain = !c.is_ascii() || c.is_ascii_alphanumeric() || "#+-.:=@_".contains(c);
        if plain {
            out.push(c);
        }
        plain
    })
}

/// For udev variables: trimmed. Each run of ASCII white space becomes one `_`, and so does each unprintable character
/// and invalid byte.
pub(super) fn safe(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.trim_ascii().utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                c if c.is_ascii_whitespace() && out.ends_with(SPACE) => {}
                c if c.is_ascii_whitespace() => out.push(SPACE),
                c if is_printable(c) => out.push(c),
                _ => out.push('_'),
            }
        }
        out.extend(chunk.invalid().iter().map(|_| '_'));
    }
    out.replace(SPACE, "_")
}

/// Stands for white space until the end, so that runs are distinct from underscores in the value.
const SPACE: char = ' ';

/// Lets `push` append each printable character; if it returns `false`, and for all others, the bytes become `\xNN`.
fn mapped(bytes: &[u8], push: impl Fn(char, &mut String) -> bool) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if !is_printable(c) || !push(c, &mut out) {
                escape(c.encode_utf8(&mut [0; 4]).as_bytes(), &mut out);
            }
        }
        escape(chunk.invalid(), &mut out);
    }
    out
}

fn escape(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(out, "\\x{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_every_form() {
        for (value, shell, link, plain) in [
            ("plain-1.2", "plain-1.2", "plain-1.2", "plain-1.2"),
            ("a b\"$c\\x", "a\\ b\\\"\\$c\\\\x", "a\\x20b\\x22\\x24c\\x5cx", "a_b\"$c\\x"),
            (" x  y\t/ ", "\\ x\\ \\ y\\x09/\\ ", "\\x20x\\x20\\x20y\\x09\\x2f\\x20", "x_y_/"),
            ("é\n", "é\\x0a", "é\\x0a", "é"),
            ("a\u{1b}[0m", "a\\x1b\\[0m", "a\\x1b\\x5b0m", "a_[0m"),
            ("a_ b", "a_\\ b", "a_\\x20b", "a__b"),
            ("a;b&c|d", "a\\;b\\&c\\|d", "a\\x3bb\\x26c\\x7cd", "a;b&c|d"),
            ("~#!{*?}", "\\~\\#\\!\\{\\*\\?\\}", "\\x7e#\\x21\\x7b\\x2a\\x3f\\x7d", "~#!{*?}"),
            ("\u{202e}z", "\\xe2\\x80\\xaez", "\\xe2\\x80\\xaez", "_z"),
        ] {
            assert_eq!(shell_word(value.as_bytes()), shell, "{value:?}");
            assert_eq!(encoded(value.as_bytes()), link, "{value:?}");
            assert_eq!(safe(value.as_bytes()), plain, "{value:?}");
        }
        assert_eq!(quoted(b"a\xffb", ""), "a\\xffb");
        assert_eq!(quoted(b"a\"b\\c;", "\"\\"), "a\\\"b\\\\c;");
        assert_eq!(encoded(b"a\xffb"), "a\\xffb");
        assert_eq!(safe(b"a\xffb"), "a_b");
    }
}
