//! Tables of medians, one for each phase.

use std::fmt::Write;

use crate::args::Compare;
use crate::phase::Phase;
use crate::record::{Measured, Outcome, Record};
use crate::stats::{median, spread};
use crate::table::Table;
use crate::units::{show_mib, show_short, show_whole};
use crate::work::{BATCH, KEY_BYTES, VALUE_BYTES};

/// A column of a table.
struct Column {
    head: &'static str,
    value: fn(&Measured) -> Option<f64>,
    combine: fn(&[f64]) -> Option<f64>,
    show: fn(f64) -> String,
}

const fn column(
    head: &'static str,
    value: fn(&Measured) -> Option<f64>,
    show: fn(f64) -> String,
) -> Column {
    Column { head, value, combine: median, show }
}

const RATE: Column = column("ops/s", |m| Some(m.rate), show_whole);
const SPREAD: Column =
    Column { head: "± %", value: |m| Some(m.rate), combine: half_spread, show: show_short };
const SECONDS: Column = column("s", |m| Some(m.seconds), show_short);
const IDLE: Column = column("idle s", |m| Some(m.seconds_until_idle), show_short);
const WRITTEN: Column = column("written MiB", |m| Some(m.io_until_idle.wchar as f64), show_mib);
const WRITE_AMP: Column = column("write amp", |m| m.write_amplification, show_short);
const DIRTY_AMP: Column = column("dirtied", |m| m.dirty_amplification, show_short);
const DEVICE_AMP: Column = column("device", |m| m.device_amplification, show_short);
const DIRTY_MIB: Column =
    column("dirtied MiB", |m| Some(m.io_until_idle.write_bytes as f64), show_mib);
const DEVICE_MIB: Column =
    column("device MiB", |m| m.device_bytes.map(|bytes| bytes as f64), show_mib);
const READ: Column = column("read MiB", |m| Some(m.io_until_idle.read_bytes as f64), show_mib);
const DISK: Column = column("on disk MiB", |m| Some(m.disk_bytes as f64), show_mib);
const PEAK: Column = column("peak MiB", |m| Some(m.memory.peak as f64), show_mib);
const ANONYMOUS: Column = column("anon MiB", |m| Some(m.memory.anonymous_peak as f64), show_mib);
const P50_MS: Column = column("p50 ms", |m| Some(m.calls.p50_micros / 1e3), show_short);
const P99_MS: Column = column("p99 ms", |m| Some(m.calls.p99_micros / 1e3), show_short);
const MAX_MS: Column = column("max ms", |m| Some(m.calls.max_micros / 1e3), show_short);
const P50: Column = column("p50 µs", |m| Some(m.calls.p50_micros), show_short);
const P99: Column = column("p99 µs", |m| Some(m.calls.p99_micros), show_short);
const READ_EACH: Column =
    column("B read/op", |m| Some(m.io.read_bytes as f64 / m.operations as f64), show_whole);
const OPEN: Column =
    column("open s", |m| m.reopened.as_ref().map(|reopened| reopened.open_seconds), show_short);
const OPEN_READ: Column = column(
    "open read MiB",
    |m| m.reopened.as_ref().map(|reopened| reopened.io.read_bytes as f64),
    show_mib,
);
const HANDED_OVER: Column =
    column("handed over s", |m| m.ranges.as_ref().map(|r| r.handed_over_seconds), show_short);
const DURABLE: Column =
    column("durable s", |m| m.ranges.as_ref().map(|r| r.durable_seconds), show_short);
const SCAN_AFTER: Column =
    column("scan after s", |m| m.ranges.as_ref().map(|r| r.scan_seconds), show_short);

const WRITES: &[Column] = &[
    RATE, SPREAD, SECONDS, IDLE, WRITTEN, WRITE_AMP, DIRTY_AMP, DEVICE_AMP, READ, DISK, PEAK,
    ANONYMOUS, P50_MS, P99_MS, MAX_MS,
];
const GETS: &[Column] =
    &[RATE, SPREAD, SECONDS, P50, P99, MAX_MS, READ, READ_EACH, OPEN, OPEN_READ, PEAK, ANONYMOUS];
const COLD_SCANS: &[Column] = &[RATE, SPREAD, SECONDS, READ, OPEN, OPEN_READ, PEAK, ANONYMOUS];
const WARM_SCANS: &[Column] = &[RATE, SPREAD, SECONDS, READ, PEAK, ANONYMOUS];
const RANGES: &[Column] = &[
    HANDED_OVER,
    DURABLE,
    IDLE,
    WRITTEN,
    DIRTY_MIB,
    DEVICE_MIB,
    READ,
    DISK,
    PEAK,
    ANONYMOUS,
    MAX_MS,
    SCAN_AFTER,
];

fn columns(phase: Phase) -> &'static [Column] {
    match phase {
        Phase::ColdGet => GETS,
        Phase::ColdScan => COLD_SCANS,
        Phase::WarmScan => WARM_SCANS,
        Phase::RangeDelete => RANGES,
        Phase::RandomInsert
        | Phase::BlindUpdate
        | Phase::SingleDelete
        | Phase::SequentialInsert => WRITES,
    }
}

fn half_spread(numbers: &[f64]) -> Option<f64> {
    spread(numbers).map(|percent| percent / 2.0)
}

/// All tables, under a heading that says what was done.
pub fn report(args: &Compare, records: &[Record]) -> String {
    let mut text = format!(
        "{} keys of {KEY_BYTES} bytes with values of {VALUE_BYTES}, durable each {} operations, \
         cache {} MiB, medians of {} runs\n",
        show_whole(args.load.keys as f64),
        show_whole(BATCH as f64),
        show_mib(args.load.cache as f64),
        args.runs,
    );
    for engine in &args.engines {
        if let Some(record) = records.iter().find(|record| record.engine == *engine) {
            let _ = writeln!(text, "{engine}: {}", record.version);
        }
    }
    let mut phases = args.load.phases.clone();
    phases.sort_unstable();
    phases.dedup();
    for phase in phases {
        let _ = write!(text, "\n{phase}\n{}", table(args, phase, records));
    }
    text
}

fn table(args: &Compare, phase: Phase, records: &[Record]) -> Table {
    let columns: Vec<_> = columns(phase)
        .iter()
        .filter(|column| args.runs > 1 || column.head != SPREAD.head)
        .collect();
    let heads = columns.iter().map(|column| column.head.to_owned());
    let mut table = Table::new(std::iter::once("engine".to_owned()).chain(heads).collect());
    for engine in &args.engines {
        let of_engine = records.iter().filter(|it| it.engine == *engine && it.phase == phase);
        let outcomes: Vec<_> = of_engine.map(|record| &record.outcome).collect();
        let measured = outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Measured(measured) => Some(&**measured),
            Outcome::Skipped(_) => None,
        });
        let measured: Vec<_> = measured.collect();
        let mut row = vec![engine.clone()];
        match outcomes.first() {
            _ if !measured.is_empty() => row.extend(columns.iter().map(|it| cell(it, &measured))),
            Some(Outcome::Skipped(reason)) => row.push(format!("skipped: {reason}")),
            _ => row.push("not measured".to_owned()),
        }
        table.row(row);
    }
    table
}

fn cell(column: &Column, measured: &[&Measured]) -> String {
    let values: Vec<_> = measured.iter().filter_map(|run| (column.value)(run)).collect();
    (column.combine)(&values).map_or_else(|| "-".to_owned(), column.show)
}
