//! Counts and sizes as people write them, and as tables show them.

use anyhow::{Context, Result, bail};

/// Bytes in a mebibyte.
pub const MIB: u64 = 1 << 20;

/// Reads a count such as `5M`, `200k` or `1234`.
pub fn parse_count(text: &str) -> Result<u64> {
    parse(text, &[("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)])
}

/// Reads a size in bytes such as `256MiB`, `1GiB`, `64KiB` or `4096`.
pub fn parse_size(text: &str) -> Result<u64> {
    parse(text, &[("KiB", 1 << 10), ("MiB", MIB), ("GiB", 1 << 30), ("B", 1)])
}

fn parse(text: &str, units: &[(&str, u64)]) -> Result<u64> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = &text[digits.len()..];
    let factor = match units.iter().find(|(name, _)| *name == unit) {
        Some((_, factor)) => *factor,
        None if unit.is_empty() => 1,
        None => {
            let known: Vec<_> = units.iter().map(|(name, _)| *name).collect();
            bail!("{unit:?} is not one of the units {}", known.join(", "));
        }
    };
    let number: u64 = digits.parse().with_context(|| format!("{text:?} is not a number"))?;
    number.checked_mul(factor).with_context(|| format!("{text:?} is too large"))
}

/// A whole number with its thousands set apart.
pub fn show_whole(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Three figures where there is a fraction: 0.123, 1.23, 12.3, 123.
pub fn show_short(number: f64) -> String {
    match number.abs() {
        size if size >= 99.95 => show_whole(number),
        size if size >= 9.995 => format!("{number:.1}"),
        size if size >= 0.9995 || size == 0.0 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

/// Bytes as mebibytes.
pub fn show_mib(bytes: f64) -> String {
    format!("{:.1}", bytes / MIB as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_sizes_are_read() {
        assert_eq!(parse_count("5M").unwrap(), 5_000_000);
        assert_eq!(parse_count("200k").unwrap(), 200_000);
        assert_eq!(parse_count("17").unwrap(), 17);
        assert_eq!(parse_size("256MiB").unwrap(), 256 << 20);
        assert_eq!(parse_size("4096").unwrap(), 4096);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "M", "5X", "-1", "1.5M", "99999999999999999999", "99999999999G"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_shown() {
        assert_eq!(show_whole(1_234_567.4), "1,234,567");
        assert_eq!(show_whole(123.0), "123");
        assert_eq!(show_short(1234.5), "1,234");
        assert_eq!(show_short(12.34), "12.3");
        assert_eq!(show_short(1.234), "1.23");
        assert_eq!(show_short(0.1234), "0.123");
        assert_eq!(show_short(0.0), "0.00");
        assert_eq!(show_mib(1.5 * MIB as f64), "1.5");
    }
}
