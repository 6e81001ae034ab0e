//! Parses and formats sizes.
//!
//! A size is a whole number of bytes below 2^64. Parsing never rounds: a fraction is refused. [`human`] rounds, and is
//! for display only.

const KIB: u64 = 1024;
const KB: u64 = 1000;

/// The suffixes. A single letter means a power of 1024, as in other tools for file systems.
const UNITS: [(&str, u64); 20] = [
    ("", 1),
    ("b", 4096),
    ("s", 512),
    ("k", KIB),
    ("K", KIB),
    ("KiB", KIB),
    ("KB", KB),
    ("kB", KB),
    ("m", KIB * KIB),
    ("M", KIB * KIB),
    ("MiB", KIB * KIB),
    ("MB", KB * KB),
    ("g", KIB * KIB * KIB),
    ("G", KIB * KIB * KIB),
    ("GiB", KIB * KIB * KIB),
    ("GB", KB * KB * KB),
    ("t", KIB * KIB * KIB * KIB),
    ("T", KIB * KIB * KIB * KIB),
    ("TiB", KIB * KIB * KIB * KIB),
    ("TB", KB * KB * KB * KB),
];

/// Reads a size such as `4096`, `64M`, `1GiB`, `2GB`, `131072s` (sectors of 512 bytes) or
/// `1024b` (blocks of 4096 bytes). A value parser for clap.
pub fn parse_size(text: &str) -> Result<u64, String> {
    if text.is_empty() {
        return Err("the size is empty; expected a number of bytes, such as 64M".into());
    }
    if text.starts_with('-') {
        return Err(format!("the size {text:?} is negative; expected a number such as 64M"));
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    if suffix.starts_with(['.', ',']) {
        return Err(format!(
            "the size {text:?} has a fraction; expected a whole number: use a smaller unit, \
             such as 1536M for 1.5G"
        ));
    }
    if number.is_empty() {
        return Err(format!("the size {text:?} has no number; expected one such as 64M"));
    }
    let Some((_, unit)) = UNITS.iter().find(|(name, _)| *name == suffix) else {
        return Err(format!(
            "the size {text:?} has the unknown unit {suffix:?}; expected none (bytes), K, M, G, T \
             (or KiB, …) for powers of 1024, KB, MB, GB, TB for powers of 1000, s for sectors of \
             512 bytes, or b for blocks of 4096 bytes"
        ));
    };
    // A string of digits fails to parse only if the number is too large.
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*unit));
    bytes.ok_or_else(|| format!("the size {text:?} is too large; expected less than 2^64 bytes"))
}

/// A limit; the greatest number stands for none.
pub fn limit(bytes: u64) -> Option<u64> {
    (bytes < u64::MAX).then_some(bytes)
}

/// Formats a limit for display.
pub fn human_limit(bytes: u64) -> String {
    limit(bytes).map_or("no limit".into(), human)
}

/// Formats a size for display, with one decimal rounded to nearest: `1.5 MiB`. An exact multiple has no decimal:
/// `1 MiB` is exact, `1.0 MiB` is rounded.
pub fn human(bytes: u64) -> String {
    const NAMES: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    // The largest unit that leaves at least 1, or the next one if rounding reaches 1024.
    let mut power = (bytes.ilog2() / 10) as usize;
    let mut tenths = in_tenths(bytes, power);
    if tenths >= 10240 && power < NAMES.len() {
        power += 1;
        tenths = in_tenths(bytes, power);
    }
    let name = NAMES[power - 1];
    if bytes.is_multiple_of(1 << (10 * power)) {
        format!("{} {name}", tenths / 10)
    } else {
        format!("{}.{} {name}", tenths / 10, tenths % 10)
    }
}

/// Returns the size in tenths of 1024^power, rounded to nearest.
fn in_tenths(bytes: u64, power: usize) -> u128 {
    let unit = 1u128 << (10 * power);
    (u128::from(bytes) * 10 + unit / 2) / unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_are_read() {
        let cases = [
            ("0", 0),
            ("007", 7),
            ("4096", 4096),
            ("18446744073709551615", u64::MAX),
            ("1k", 1024),
            ("1K", 1024),
            ("1KiB", 1024),
            ("1KB", 1000),
            ("1kB", 1000),
            ("64M", 64 << 20),
            ("64m", 64 << 20),
            ("64MiB", 64 << 20),
            ("64MB", 64_000_000),
            ("2g", 2 << 30),
            ("2G", 2 << 30),
            ("2GiB", 2 << 30),
            ("2GB", 2_000_000_000),
            ("3t", 3 << 40),
            ("3T", 3 << 40),
            ("3TiB", 3 << 40),
            ("3TB", 3_000_000_000_000),
            ("16777215T", 16_777_215 << 40),
            ("3s", 1536),
            ("3b", 12288),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_size(text), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn sizes_that_are_refused() {
        let cases = [
            ("", "empty"),
            ("-1", "negative"),
            ("-1M", "negative"),
            ("1.5G", "fraction"),
            ("1,5G", "fraction"),
            (".5G", "fraction"),
            ("M", "no number"),
            ("+1", "no number"),
            (" 1", "no number"),
            ("0x10", "unknown unit"),
            ("1 M", "unknown unit"),
            ("1X", "unknown unit"),
            ("1mb", "unknown unit"),
            ("1MB ", "unknown unit"),
            ("1é", "unknown unit"),
            ("18446744073709551616", "too large"),
            ("16777216T", "too large"),
            ("99999999999999999999999999K", "too large"),
        ];
        for (text, expected) in cases {
            let error = parse_size(text).unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn sizes_for_people() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1025, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (3 << 19, "1.5 MiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (64 << 20, "64 MiB"),
            (1 << 40, "1 TiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(human(bytes), expected, "{bytes}");
        }
    }
}
