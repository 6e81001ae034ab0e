//! Bytes in JSON.
//!
//! JSON strings are text, but names, labels and attributes are bytes. The bytes must be recoverable exactly, and plain
//! text should stay plain.

use serde_json::{Value, json};

/// `bytes` as JSON: a string if the bytes equal the UTF-8 of `printable` (the text for display), otherwise
/// `{"text": printable, "bytes": hexadecimal}`.
pub fn text(bytes: &[u8], printable: &str) -> Value {
    if bytes == printable.as_bytes() {
        Value::from(printable)
    } else {
        json!({"text": printable, "bytes": hex(bytes)})
    }
}

/// The bytes in lower-case hexadecimal, without separators.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_stays_plain() {
        assert_eq!(text("é".as_bytes(), "é"), json!("é"));
        assert_eq!(text(b"", ""), json!(""));
        assert_eq!(text(b"a\xff", "a\\xff"), json!({"text": "a\\xff", "bytes": "61ff"}));
        assert_eq!(text(b"a\n", "a\\x0a"), json!({"text": "a\\x0a", "bytes": "610a"}));
    }
}
