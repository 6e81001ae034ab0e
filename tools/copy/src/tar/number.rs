//! Numbers and times in archives.
//!
//! A header field has octal digits, after blanks and before a blank, a zero byte or its end; or, with the first bit
//! set, a signed base-256 number. Records of extended headers have decimal digits.

use crate::host::Time;

const NANOS: u32 = 1_000_000_000;

/// Parses a header field of at most 12 bytes; a blank field is 0.
pub(crate) fn field(field: &[u8]) -> Option<i128> {
    match field.split_first() {
        Some((first, rest)) if first & 0x80 != 0 => {
            let sign = if first & 0x40 != 0 { -1 } else { 0 };
            let start = sign << 6 | i128::from(first & 0x3f);
            Some(rest.iter().fold(start, |value, byte| value << 8 | i128::from(*byte)))
        }
        _ => octal(field),
    }
}

fn octal(field: &[u8]) -> Option<i128> {
    let start = field.iter().position(|byte| *byte != b' ').unwrap_or(field.len());
    let digits = &field[start..];
    let end = digits.iter().position(|byte| matches!(byte, b' ' | 0)).unwrap_or(digits.len());
    digits[..end].iter().try_fold(0, |value, byte| match byte {
        b'0'..=b'7' => Some(value << 3 | i128::from(byte - b'0')),
        _ => None,
    })
}

/// Writes octal digits and a zero byte; `false` if they do not fit.
pub(crate) fn put_octal(field: &mut [u8], value: u64) -> bool {
    let digits = format!("{value:0width$o}", width = field.len() - 1);
    if digits.len() >= field.len() {
        return false;
    }
    field[..digits.len()].copy_from_slice(digits.as_bytes());
    field[digits.len()] = 0;
    true
}

/// Writes a 32-bit number into a field of 8 bytes, in base 256 if necessary.
pub(crate) fn put_any(field: &mut [u8; 8], value: u32) {
    if !put_octal(field, value.into()) {
        *field = u64::from(value).to_be_bytes();
        field[0] = 0x80;
    }
}

/// Parses an unsigned decimal number.
pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

/// Parses a time: decimal seconds, with optional sign and fraction. Digits after the ninth are dropped.
pub(crate) fn time(text: &[u8]) -> Option<Time> {
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let point = digits.iter().position(|byte| *byte == b'.');
    let (whole, fraction) = match point {
        Some(at) => (&digits[..at], &digits[at + 1..]),
        None => (digits, &[][..]),
    };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let whole = i64::try_from(decimal(whole)?).ok()?;
    let places = fraction.iter().chain(std::iter::repeat(&b'0')).take(9);
    let nanos = places.fold(0, |nanos, digit| nanos * 10 + u32::from(digit - b'0'));
    Some(match (negative, nanos) {
        (false, _) => Time { secs: whole, nanos },
        (true, 0) => Time { secs: -whole, nanos },
        (true, _) => Time { secs: -whole - 1, nanos: NANOS - nanos },
    })
}

/// The inverse of [`time`].
pub(crate) fn time_text(time: Time) -> String {
    let Time { secs, nanos } = time;
    if nanos == 0 {
        return secs.to_string();
    }
    let text = match secs {
        // The fraction counts away from zero.
        ..0 => format!("-{}.{:09}", -(secs + 1), NANOS - nanos),
        _ => format!("{secs}.{nanos:09}"),
    };
    text.trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_octal_digits_or_bytes() {
        for (bytes, expected) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"644\0junk", Some(0o644)),
            (b"77777777", Some(0o77777777)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"        ", Some(0)),
            (b"0000648\0", None),
            (b"-000644\0", None),
            (b"\x80\0\0\0\0\0\x01\0", Some(256)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xfe", Some(-2)),
            (b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", Some(u64::MAX as i128)),
            (b"\xbf\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", Some((1 << 94) - 1)),
            (b"", Some(0)),
        ] {
            assert_eq!(field(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn numbers_are_written_as_they_are_read() {
        for value in [0, 1, 0o7777777, 0o10000000, u32::MAX] {
            let mut bytes = [0; 8];
            put_any(&mut bytes, value);
            assert_eq!(field(&bytes), Some(value.into()));
        }
        assert!(put_octal(&mut [0; 12], (1 << 33) - 1) && !put_octal(&mut [0; 12], 1 << 33));
        assert!(put_octal(&mut [0; 8], 0o7777777) && !put_octal(&mut [0; 8], 0o10000000));
    }

    #[test]
    fn times_go_forth_and_back() {
        let at = |secs, nanos| Some(Time { secs, nanos });
        for (text, expected) in [
            ("0", at(0, 0)),
            ("1", at(1, 0)),
            ("1.5", at(1, 500_000_000)),
            ("-1", at(-1, 0)),
            ("-0.000000001", at(-1, 999_999_999)),
            ("-1.25", at(-2, 750_000_000)),
            ("16725225600.000000007", at(16_725_225_600, 7)),
            ("9223372036854775807", at(i64::MAX, 0)),
            ("-9223372036854775807.5", at(i64::MIN, 500_000_000)),
        ] {
            assert_eq!(time(text.as_bytes()), expected, "{text}");
            assert_eq!(time_text(expected.unwrap()), text);
        }
        assert_eq!(time(b"1."), at(1, 0));
        assert_eq!(time(b"1.0000000019"), at(1, 1));
        for text in ["", "-", ".5", "1.x", "+1", "1e3", " 1", "9223372036854775808", "--1"] {
            assert_eq!(time(text.as_bytes()), None, "{text}");
        }
    }
}
