//! The rules that decide which snapshots pruning keeps, as in `restic forget`.
//!
//! Snapshots are examined newest first, in the order of their epochs, which only increase. A rule for a period
//! divides them by their wall time in UTC, which decreases when a clock is set back: snapshots of one period need not
//! be neighbours. This module reads neither a clock nor an image.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use betr_core::ids::{Epoch, Time};
use jiff::civil::DateTime;
use jiff::tz::Offset;
use jiff::{Span, Timestamp};

/// The fields of a snapshot that rules use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub epoch: Epoch,
    pub wall: Time,
    /// Whether the user has marked it to be kept.
    pub kept: bool,
}

/// A period of which a rule keeps one snapshot.
#[derive(Clone, Copy, Debug)]
pub(super) enum Period {
    /// Every snapshot is a period of its own.
    Snapshot,
    Hour,
    Day,
    /// A week of ISO 8601, which starts on Monday.
    Week,
    Month,
    Year,
}

/// The rules. A snapshot is kept if any rule keeps it.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    /// How many periods with snapshots keep their newest one.
    pub counts: Vec<(Period, u32)>,
    /// Keeps all snapshots that are less than this duration older than the newest.
    pub within: Option<Within>,
}

/// A duration, such as `1y6m2w3d12h`.
#[derive(Clone, Debug)]
pub(super) struct Within {
    text: String,
    span: Span,
}

impl Policy {
    /// Whether there is no rule that keeps a snapshot.
    pub(super) fn is_empty(&self) -> bool {
        self.within.is_none() && self.counts.iter().all(|(_, count)| *count == 0)
    }

    /// The reasons to keep each snapshot; one without a reason is dropped. Snapshots after `now` are in the future.
    pub(super) fn reasons(&self, snapshots: &[Candidate], now: Time) -> Vec<Vec<String>> {
        let mut reasons = vec![Vec::new(); snapshots.len()];
        for (snapshot, reasons) in snapshots.iter().zip(&mut reasons) {
            if snapshot.kept {
                reasons.push("kept by its user".to_owned());
            }
        }
        if let Some(within) = &self.within
            && let Some(newest) = newest(snapshots, now)
        {
            let start = date_time(newest).saturating_sub(within.span);
            for (snapshot, reasons) in snapshots.iter().zip(&mut reasons) {
                if date_time(snapshot.wall) > start {
                    reasons.push(format!("within {within}"));
                }
            }
        }
        let mut newest_first: Vec<usize> = (0..snapshots.len()).collect();
        newest_first.sort_by_key(|at| Reverse(snapshots[*at].epoch));
        for (period, count) in &self.counts {
            let mut seen = BTreeSet::new();
            for at in &newest_first {
                if seen.len() >= *count as usize {
                    break;
                }
                if seen.insert(period.of(&snapshots[*at])) {
                    reasons[*at].push(period.to_string());
                } else if Some(at) == newest_first.last() {
                    // The retained history can grow to the length that the rule allows only if its oldest snapshot
                    // stays.
                    reasons[*at].push(format!("oldest {period}"));
                }
            }
        }
        reasons
    }
}

/// The latest time of a snapshot that is not in the future: relative to a future one, all others may be too old.
fn newest(snapshots: &[Candidate], now: Time) -> Option<Time> {
    let times = || snapshots.iter().map(|snapshot| snapshot.wall);
    times().filter(|wall| *wall <= now).max().or_else(|| times().max())
}

impl Period {
    /// The number of the period of a snapshot.
    fn of(self, snapshot: &Candidate) -> i64 {
        const HOUR: i64 = 3600;
        let secs = snapshot.wall.secs;
        let day = secs.div_euclid(24 * HOUR);
        let date = date_time(snapshot.wall);
        match self {
            Period::Snapshot => snapshot.epoch.0 as i64,
            Period::Hour => secs.div_euclid(HOUR),
            Period::Day => day,
            // Day 0 is a Thursday.
            Period::Week => (day + 3).div_euclid(7),
            Period::Month => i64::from(date.year()) * 12 + i64::from(date.month()),
            Period::Year => date.year().into(),
        }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Period::Snapshot => "last",
            Period::Hour => "hourly",
            Period::Day => "daily",
            Period::Week => "weekly",
            Period::Month => "monthly",
            Period::Year => "yearly",
        })
    }
}

/// A time in UTC. An image may contain one outside the calendar, which is clamped to its first or last second.
fn date_time(time: Time) -> DateTime {
    let (first, last) = (Timestamp::MIN, Timestamp::MAX);
    let secs = time.secs.clamp(first.as_second(), last.as_second());
    let nanos = time.nanos.min(999_999_999) as i32;
    Offset::UTC.to_datetime(Timestamp::new(secs, nanos).unwrap_or(first))
}

impl FromStr for Within {
    type Err = String;

    fn from_str(text: &str) -> Result<Within, String> {
        let wrong = || "expected a length of time, as 36h, 7d, 2w or 1y6m".to_owned();
        let mut span = Span::new();
        let mut units = String::new();
        let mut rest = text;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
            let number: i64 = rest[..digits].parse().map_err(|_| wrong())?;
            let unit = rest[digits..].chars().next().filter(|unit| !units.contains(*unit));
            let unit = unit.ok_or_else(wrong)?;
            span = match unit {
                'h' => span.try_hours(number),
                'd' => span.try_days(number),
                'w' => span.try_weeks(number),
                'm' => span.try_months(number),
                'y' => span.try_years(number),
                _ => return Err(wrong()),
            }
            .map_err(|_| format!("{number}{unit} is too long"))?;
            units.push(unit);
            rest = &rest[digits + 1..];
        }
        match span.is_zero() {
            true => Err(wrong()),
            false => Ok(Within { text: text.to_owned(), span }),
        }
    }
}

impl fmt::Display for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: Time = Time { secs: i64::MAX, nanos: 0 };

    fn at(text: &str) -> Time {
        betr_cli::time::parse_utc(text).unwrap()
    }

    /// Snapshots at these times, the oldest first; an asterisk means that the user keeps it.
    fn taken(times: &[&str]) -> Vec<Candidate> {
        let candidate = |(epoch, time): (u64, &&str)| {
            let (time, kept) = time.strip_suffix('*').map_or((*time, false), |time| (time, true));
            Candidate { epoch: Epoch(epoch), wall: at(time), kept }
        };
        (1..).zip(times).map(candidate).collect()
    }

    fn rule(period: Period, count: u32) -> Policy {
        Policy { counts: vec![(period, count)], within: None }
    }

    fn within(text: &str) -> Policy {
        Policy { counts: Vec::new(), within: Some(text.parse().unwrap()) }
    }

    /// The reasons for each snapshot, joined.
    fn told(policy: &Policy, snapshots: &[Candidate], now: Time) -> Vec<String> {
        policy.reasons(snapshots, now).iter().map(|reasons| reasons.join(", ")).collect()
    }

    /// The indices of the kept ones of the snapshots at these times.
    fn kept(policy: &Policy, times: &[&str]) -> Vec<usize> {
        let reasons = policy.reasons(&taken(times), FAR);
        (0..times.len()).filter(|at| !reasons[*at].is_empty()).collect()
    }

    #[test]
    fn the_newest_of_each_period_is_kept() {
        let times = [
            "2024-01-31T10:00:00Z",
            "2024-02-01T00:00:00Z",
            "2024-02-01T23:59:59.999999999Z",
            "2024-02-02T00:00:00Z",
            "2024-02-05T07:10:00Z",
            "2024-02-05T07:20:00Z",
            "2024-02-05T08:00:00Z",
        ];
        assert_eq!(kept(&rule(Period::Snapshot, 2), &times), [5, 6]);
        assert_eq!(kept(&rule(Period::Hour, 2), &times), [5, 6]);
        // Days and hours without a snapshot do not count.
        assert_eq!(kept(&rule(Period::Hour, 3), &times), [3, 5, 6]);
        assert_eq!(kept(&rule(Period::Day, 3), &times), [2, 3, 6]);
        assert_eq!(kept(&rule(Period::Week, 2), &times), [3, 6]);
        assert_eq!(kept(&rule(Period::Month, 2), &times), [0, 6]);
        assert_eq!(kept(&rule(Period::Year, 1), &times), [6]);
    }

    #[test]
    fn more_than_there_are_keeps_the_oldest_too() {
        let times = ["2024-02-01T01:00:00Z", "2024-02-01T02:00:00Z", "2024-02-01T03:00:00Z"];
        assert_eq!(kept(&rule(Period::Snapshot, 9), &times), [0, 1, 2]);
        assert_eq!(kept(&rule(Period::Day, u32::MAX), &times), [0, 2]);
        let reasons = told(&rule(Period::Day, 2), &taken(&times), FAR);
        assert_eq!(reasons, ["oldest daily", "", "daily"]);
        assert_eq!(kept(&rule(Period::Day, 1), &times), [2]);
        assert_eq!(kept(&rule(Period::Day, 2), &times[2..]), [0]);
        assert_eq!(kept(&rule(Period::Day, 2), &[]), [0; 0]);
    }

    #[test]
    fn zero_keeps_nothing() {
        let times = ["2024-02-01T01:00:00Z", "2024-02-01T02:00:00Z*"];
        assert!(rule(Period::Day, 0).is_empty() && !rule(Period::Day, 1).is_empty());
        assert!(!within("1h").is_empty());
        assert_eq!(kept(&rule(Period::Day, 0), &times), [1]);
    }

    /// 2024-12-30 is a Monday, and begins the first ISO week of 2025; 2021-01-03 is a Sunday, and ends the 53rd of 2020.
    #[test]
    fn weeks_do_not_end_with_the_year() {
        let times = ["2024-12-29T23:59:59Z", "2024-12-30T00:00:00Z", "2025-01-05T23:59:59Z"];
        assert_eq!(kept(&rule(Period::Week, 2), &times), [0, 2]);
        assert_eq!(kept(&rule(Period::Year, 2), &times), [1, 2]);
        let times = ["2020-12-28T00:00:00Z", "2021-01-03T23:59:59Z", "2021-01-04T00:00:00Z"];
        assert_eq!(kept(&rule(Period::Week, 2), &times), [1, 2]);
    }

    #[test]
    fn leap_days_are_days_of_february() {
        let times = [
            "2024-02-28T12:00:00Z",
            "2024-02-29T12:00:00Z",
            "2024-03-01T12:00:00Z",
            "2100-02-28T12:00:00Z",
            "2100-03-01T12:00:00Z",
        ];
        assert_eq!(kept(&rule(Period::Month, 4), &times), [1, 2, 3, 4]);
        assert_eq!(kept(&rule(Period::Day, 4), &times), [1, 2, 3, 4]);
        // One month before the 31st of March is the last day of February, and 1 year before a leap day is the 28th.
        let times =
            ["2024-02-29T12:00:00Z", "2024-02-29T12:00:00.000000001Z", "2024-03-31T12:00:00Z"];
        assert_eq!(kept(&within("1m"), &times), [1, 2]);
        let times = ["2023-02-28T12:00:00Z", "2023-03-01T00:00:00Z", "2024-02-29T12:00:00Z"];
        assert_eq!(kept(&within("1y"), &times), [1, 2]);
    }

    #[test]
    fn times_before_1970_are_in_periods_of_their_own() {
        let times = ["1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z", "1970-01-01T00:59:59Z"];
        for period in [Period::Hour, Period::Day, Period::Month, Period::Year] {
            assert_eq!(kept(&rule(period, 2), &times), [0, 2], "{period}");
        }
        // 1969-12-29 is a Monday.
        assert_eq!(kept(&rule(Period::Week, 1), &times), [2]);
        let times = ["1969-12-28T23:59:59Z", "1969-12-29T00:00:00Z", "1970-01-04T00:00:00Z"];
        assert_eq!(kept(&rule(Period::Week, 2), &times), [0, 2]);
    }

    #[test]
    fn times_that_no_calendar_has_are_at_its_ends() {
        let wall = |secs| Time { secs, nanos: u32::MAX };
        let all = [i64::MIN, i64::MIN + 1, 0, i64::MAX - 1, i64::MAX].into_iter().zip(1..);
        let all: Vec<Candidate> = all
            .map(|(secs, epoch)| Candidate { epoch: Epoch(epoch), wall: wall(secs), kept: false })
            .collect();
        let reasons = told(&rule(Period::Year, 3), &all, FAR);
        assert_eq!(reasons, ["", "yearly", "yearly", "", "yearly"]);
        assert_eq!(told(&within("1h"), &all[..2], FAR), ["within 1h", "within 1h"]);
    }

    #[test]
    fn among_equal_times_the_younger_epoch_is_newer() {
        let times = ["2024-02-01T01:00:00Z"; 3];
        let mut snapshots = taken(&times);
        assert_eq!(told(&rule(Period::Day, 1), &snapshots, FAR), ["", "", "daily"]);
        snapshots.reverse();
        assert_eq!(told(&rule(Period::Day, 1), &snapshots, FAR), ["daily", "", ""]);
        assert_eq!(told(&rule(Period::Snapshot, 2), &snapshots, FAR), ["last", "last", ""]);
    }

    #[test]
    fn a_clock_that_went_back_gives_no_day_two_snapshots() {
        let times = [
            "2024-02-01T01:00:00Z",
            "2024-02-02T01:00:00Z",
            "2030-01-01T00:00:00Z",
            "2024-02-02T02:00:00Z",
            "2024-02-01T02:00:00Z",
            "2024-02-02T03:00:00Z",
        ];
        assert_eq!(kept(&rule(Period::Day, 3), &times), [2, 4, 5]);
        // A snapshot in the future is kept, and does not make the others old.
        let now = at("2024-02-02T03:00:00Z");
        let reasons = told(&within("2h"), &taken(&times), now);
        assert_eq!(reasons, ["", "", "within 2h", "within 2h", "", "within 2h"]);
        // If all are in the future, the clock is wrong.
        let reasons = told(&within("1y"), &taken(&times[..3]), Time::default());
        assert_eq!(reasons, ["", "", "within 1y"]);
    }

    #[test]
    fn kept_snapshots_count_and_stay() {
        let times = ["2024-02-01T01:00:00Z*", "2024-02-02T01:00:00Z", "2024-02-02T02:00:00Z*"];
        let mut policy = rule(Period::Day, 1);
        policy.counts.push((Period::Hour, 2));
        policy.within = Some("1h".parse().unwrap());
        let reasons = told(&policy, &taken(&times), FAR);
        let newest = "kept by its user, within 1h, daily, hourly";
        assert_eq!(reasons, ["kept by its user", "hourly", newest]);
    }

    #[test]
    fn lengths_of_time_are_read_and_others_refused() {
        for (text, hours) in [("1h", 1), ("2d", 48), ("1w1d", 192), ("1m", 31 * 24), ("1y", 8784)] {
            let start = at("2025-01-01T00:00:00Z");
            let start = Time { secs: start.secs - hours * 3600, ..start };
            let before = Time { secs: start.secs + 1, ..start };
            let newest = at("2025-01-01T00:00:00Z");
            let all = [start, before, newest].into_iter().zip(1..);
            let all: Vec<Candidate> = all
                .map(|(wall, epoch)| Candidate { epoch: Epoch(epoch), wall, kept: false })
                .collect();
            let reason = format!("within {text}");
            assert_eq!(told(&within(text), &all, FAR), ["", &reason, &reason], "{text}");
        }
        assert_eq!(kept(&within("19000y"), &["0000-01-01T00:00:00Z"]), [0]);
        for wrong in
            ["", "0h", "0d0h", "1", "h", "1s", "1h2h", "-1d", "1.5d", "1 d", "1é", "99999y"]
        {
            assert!(wrong.parse::<Within>().is_err(), "{wrong:?}");
        }
    }
}
