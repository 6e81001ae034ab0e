//! Root hashes on the command line.

use betr_core::ids::Hash;

/// Parses the 64 digits of a root hash.
pub(crate) fn parse_hash(text: &str) -> Result<Hash, String> {
    let wrong = || "a root hash has 64 hexadecimal digits; 'betr info' prints it".to_owned();
    let digits = text.as_bytes();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(wrong());
    }
    let mut hash = Hash::default();
    for (byte, pair) in hash.0.iter_mut().zip(digits.chunks(2)) {
        let pair = str::from_utf8(pair).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
    }
    Ok(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_have_64_digits() {
        let text = "00ff".repeat(16);
        assert_eq!(parse_hash(&text).unwrap().to_string(), text);
        assert_eq!(parse_hash(&text.to_uppercase()).unwrap().to_string(), text);
        for bad in ["", "00", &text[1..], &format!("{text}0"), &"+f".repeat(32), &"ä".repeat(32)] {
            assert!(parse_hash(bad).is_err(), "{bad}");
        }
    }
}
