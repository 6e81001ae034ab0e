//! Names of the host as text that is safe to print.
//!
//! A file name may hold any bytes but `/` and NUL, so a message that prints one
//! raw lets the name move the cursor, hide characters or reorder the line. The
//! escaped form is one line, shows every byte, and is unambiguous: a backslash
//! of the name itself is doubled. It is for people; nothing parses it back.

use std::fmt::Write;

/// Returns `bytes` as printable text.
///
/// Control bytes and bytes that are not UTF-8 become `\x1b`; characters that
/// are invisible or change the direction of text become `\u{202e}`; a backslash
/// becomes two.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            push_char(&mut out, c);
        }
        for byte in chunk.invalid() {
            push_hex(&mut out, u32::from(*byte));
        }
    }
    out
}

fn push_char(out: &mut String, c: char) {
    match c {
        '\\' => out.push_str("\\\\"),
        '\0'..='\x1f' | '\x7f' => push_hex(out, u32::from(c)),
        c if is_invisible(c) => {
            // Writing into a String cannot fail.
            let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
        }
        c => out.push(c),
    }
}

fn push_hex(out: &mut String, byte: u32) {
    // Writing into a String cannot fail.
    let _ = write!(out, "\\x{byte:02x}");
}

/// Characters that print as nothing, break the line, or reorder what follows.
fn is_invisible(c: char) -> bool {
    matches!(u32::from(c),
        0x80..=0x9f                   // C1 controls
        | 0xad | 0x34f | 0x61c        // soft hyphen, joiner, Arabic letter mark
        | 0x115f..=0x1160 | 0x17b4..=0x17b5 | 0x180b..=0x180f
        | 0x200b..=0x200f             // zero width, left-to-right and right-to-left marks
        | 0x2028..=0x202e             // separators, embeddings and overrides
        | 0x2060..=0x206f             // word joiner, isolates, invisible operators
        | 0x3164 | 0xfe00..=0xfe0f | 0xfeff | 0xffa0 | 0xfff0..=0xfffb
        | 0x1d173..=0x1d17a | 0xe0000..=0xe0fff)
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn plain_names_are_left_alone() {
        assert_eq!(
            escape("dir/naïve 文件.txt".as_bytes()),
            "dir/naïve 文件.txt"
        );
    }

    #[test]
    fn what_could_mislead_is_shown() {
        assert_eq!(escape(b"a\x1b[2Jb\n"), "a\\x1b[2Jb\\x0a");
        assert_eq!(
            escape("a\u{202e}b\u{200b}".as_bytes()),
            "a\\u{202e}b\\u{200b}"
        );
        assert_eq!(escape(b"\xff\xc3("), "\\xff\\xc3(");
        assert_eq!(escape(b"back\\x1bslash"), "back\\\\x1bslash");
        assert_eq!(escape("\u{85}\u{7f}".as_bytes()), "\\u{85}\\x7f");
    }
}
