//! The system clock, and times as text.
//!
//! A time is seconds since 1970 UTC, rounded down, plus nanoseconds, as in an inode. Output is always in UTC, so that
//! it does not depend on the time zone of the machine.

use std::ffi::OsStr;
use std::time::{SystemTime, UNIX_EPOCH};

use betr_core::ids::Time;

/// The first second of the year 0: RFC 3339 has no years before it.
const YEAR_ZERO: i64 = -62_167_219_200;

/// The current time, as seconds and nanoseconds.
pub fn now() -> (i64, u32) {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(after) => (after.as_secs() as i64, after.subsec_nanos()),
        // A clock before 1970 is wrong, but not a reason to fail.
        Err(error) => {
            let before = error.duration();
            match before.subsec_nanos() {
                0 => (-(before.as_secs() as i64), 0),
                nanos => (-(before.as_secs() as i64) - 1, 1_000_000_000 - nanos),
            }
        }
    }
}

/// The time that the environment variable `SOURCE_DATE_EPOCH` sets in place of the current time. The value must be a
/// number of seconds exactly as `date +%s` prints it. Anything else is an error: a reproducible build must not silently
/// get other times.
pub fn source_date_epoch() -> Result<Option<i64>, String> {
    std::env::var_os("SOURCE_DATE_EPOCH").map(|value| parse_epoch(&value)).transpose()
}

fn parse_epoch(value: &OsStr) -> Result<i64, String> {
    let number = value.to_str().filter(|text| !text.starts_with('+'));
    number.and_then(|text| text.parse().ok()).ok_or_else(|| {
        format!(
            "SOURCE_DATE_EPOCH is {value:?}; expected a whole number of seconds since 1970, as \
             `date +%s` prints it: correct the variable, or unset it"
        )
    })
}

/// Formats a time in RFC 3339 with nanoseconds, in UTC: `2024-02-29T12:00:00.000000001Z`. A time that RFC 3339 cannot
/// express (or nanoseconds of a second or more) becomes `@SECS.NANOS`.
pub fn format_utc(secs: i64, nanos: u32) -> String {
    let stamp = i32::try_from(nanos)
        .ok()
        .filter(|nanos| secs >= YEAR_ZERO && *nanos < 1_000_000_000)
        .and_then(|nanos| jiff::Timestamp::new(secs, nanos).ok());
    match stamp {
        Some(stamp) => format!("{stamp:.9}"),
        None => format!("@{secs}.{nanos:09}"),
    }
}

/// Parses a time in RFC 3339, or in the form `@SECS.NANOS` of [`format_utc`].
pub fn parse_utc(text: &str) -> Result<Time, String> {
    let wrong = || format!("{text:?}: expected a time with its zone, as 2026-11-23T10:00:00Z");
    if let Some(digits) = text.strip_prefix('@') {
        let (secs, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
        let is_fraction = (1..=9).contains(&fraction.len())
            && fraction.bytes().all(|digit| digit.is_ascii_digit());
        let nanos = format!("{fraction:0<9}").parse().ok().filter(|_| is_fraction);
        let (secs, nanos) = secs.parse().ok().zip(nanos).ok_or_else(wrong)?;
        return Ok(Time { secs, nanos });
    }
    let stamp: jiff::Timestamp = text.parse().map_err(|_| wrong())?;
    // Before 1970 jiff returns negative nanoseconds; an inode counts them up from the second before.
    let (secs, nanos) = (stamp.as_second(), stamp.subsec_nanosecond());
    Ok(match u32::try_from(nanos) {
        Ok(nanos) => Time { secs, nanos },
        Err(_) => Time { secs: secs - 1, nanos: (1_000_000_000 + nanos) as u32 },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_text() {
        let cases = [
            (0, 0, "1970-01-01T00:00:00.000000000Z"),
            (0, 1, "1970-01-01T00:00:00.000000001Z"),
            (-1, 999_999_999, "1969-12-31T23:59:59.999999999Z"),
            (1_709_208_000, 500_000_000, "2024-02-29T12:00:00.500000000Z"),
            (YEAR_ZERO, 0, "0000-01-01T00:00:00.000000000Z"),
            (YEAR_ZERO - 1, 0, "@-62167219201.000000000"),
            (1 << 35, 0, "3058-10-26T03:46:08.000000000Z"),
            (1 << 40, 7, "@1099511627776.000000007"),
            (i64::MAX, 999_999_999, "@9223372036854775807.999999999"),
            (i64::MIN, 0, "@-9223372036854775808.000000000"),
            (0, 1_000_000_000, "@0.1000000000"),
            (0, u32::MAX, "@0.4294967295"),
        ];
        for (secs, nanos, expected) in cases {
            assert_eq!(format_utc(secs, nanos), expected, "{secs} {nanos}");
        }
    }

    #[test]
    fn times_come_back() {
        for (secs, nanos) in [(0, 0), (-1, 999_999_999), (1_709_208_000, 1), (YEAR_ZERO - 1, 0)] {
            assert_eq!(parse_utc(&format_utc(secs, nanos)), Ok(Time { secs, nanos }));
        }
        assert_eq!(parse_utc("@7.4"), Ok(Time { secs: 7, nanos: 400_000_000 }));
        for wrong in ["@7.", "@7.1234567890", "@7.x", "@", "@x"] {
            assert!(parse_utc(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn epochs() {
        assert_eq!(parse_epoch(OsStr::new("1700000000")), Ok(1_700_000_000));
        assert_eq!(parse_epoch(OsStr::new("-5")), Ok(-5));
        for wrong in ["", "+5", " 5", "5 ", "5.0", "now", "9223372036854775808"] {
            assert!(parse_epoch(OsStr::new(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn now_is_after_this_was_written() {
        let (secs, nanos) = now();
        assert!(secs > 1_700_000_000 && nanos < 1_000_000_000);
    }
}
