//! Labels and UUIDs of a volume on the command line: value parsers for clap.

use betr_core::format::limits::LABEL_MAX;
use uuid::Uuid;

/// Parses a label; the empty string means no label.
pub fn parse_label(text: &str) -> Result<String, String> {
    if text.len() > LABEL_MAX || text.contains('\0') {
        let len = text.len();
        return Err(format!("a label has at most {LABEL_MAX} bytes, none of them zero, not {len}"));
    }
    Ok(text.to_owned())
}

/// Parses a UUID; `random` makes a new one, `clear` is all zeros.
pub fn parse_uuid(text: &str) -> Result<Uuid, String> {
    match text {
        "random" => Ok(Uuid::new_v4()),
        "clear" => Ok(Uuid::nil()),
        text => Uuid::parse_str(text)
            .map_err(|error| format!("neither a UUID nor \"random\" or \"clear\": {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels() {
        for good in ["", "a", &"x".repeat(LABEL_MAX), "Bε \n"] {
            assert_eq!(parse_label(good).as_deref(), Ok(good));
        }
        for bad in ["a\0", &"x".repeat(LABEL_MAX + 1), &"é".repeat(33)] {
            assert!(parse_label(bad).unwrap_err().contains("at most 64 bytes"), "{bad:?}");
        }
    }

    #[test]
    fn uuids() {
        let text = "00112233-4455-6677-8899-aabbccddeeff";
        assert_eq!(parse_uuid(text).unwrap().to_string(), text);
        assert!(parse_uuid("clear").unwrap().is_nil());
        assert_ne!(parse_uuid("random"), parse_uuid("random"));
        for bad in ["", "time", "00112233-4455-6677-8899-aabbccddeef", "nonsense"] {
            assert!(parse_uuid(bad).unwrap_err().contains("neither a UUID"), "{bad:?}");
        }
    }
}
