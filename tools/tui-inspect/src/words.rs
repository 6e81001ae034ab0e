//! Text formatting that several screens share.

use betr_core::ids::BLOCK_SIZE;
use betr_core::volume::Moment;

/// A moment in the syntax of `--as-of`.
pub(crate) fn moment(moment: &Moment) -> String {
    match moment {
        Moment::Checkpoint => "checkpoint".into(),
        Moment::Now => "now".into(),
        Moment::Record(lsn) => lsn.to_string(),
        Moment::Epoch(epoch) => format!("e:{}", epoch.0),
        Moment::Snapshot(name) => format!("s:{}", betr_core::text::printable(name.as_bytes())),
        Moment::Time(time) => format!("t:{}", betr_cli::time::format_utc(time.secs, time.nanos)),
    }
}

/// A number with digits in groups of three.
pub(crate) fn number(number: impl Into<u64>) -> String {
    let digits = number.into().to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun.
pub(crate) fn some(number: usize, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", self::number(number as u64))
}

/// A bar of ten signs, and the percentage.
pub(crate) fn bar(part: u64, all: u64) -> String {
    let percent = part.min(all).saturating_mul(100).checked_div(all).unwrap_or(0);
    let full = (percent as usize).div_ceil(10);
    let bar: String = (0..10).map(|at| if at < full { '#' } else { '.' }).collect();
    format!("{bar} {percent:>3} %")
}

/// A number of blocks as a size.
pub(crate) fn blocks(blocks: u64) -> String {
    betr_cli::size::human(blocks.saturating_mul(BLOCK_SIZE as u64))
}

/// Wraps a text to a width, between words where possible.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    for word in text.split(' ') {
        let mut letters: Vec<char> = word.chars().collect();
        if used > 0 && used + 1 + letters.len() > width {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        while used + letters.len() > width {
            let rest = letters.split_off(width - used);
            line.extend(letters);
            lines.push(std::mem::take(&mut line));
            (letters, used) = (rest, 0);
        }
        used += letters.len();
        line.extend(letters);
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh ij", 3), ["abc", "def", "gh", "ij"]);
        assert_eq!(wrap("", 5), [""]);
        assert_eq!(wrap("a b", 0), ["a", "b"]);
    }

    #[test]
    fn numbers_have_groups() {
        for (value, text) in [(0u64, "0"), (999, "999"), (1000, "1 000"), (1_234_567, "1 234 567")]
        {
            assert_eq!(number(value), text);
        }
        assert_eq!(bar(1, 3), "####......  33 %");
        assert_eq!(bar(5, 0), "..........   0 %");
    }
}
