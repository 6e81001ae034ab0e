//! One run of one engine: all phases, one after the other.

use std::io::Write;

use anyhow::{Context, Result, ensure};

use crate::args::Child;
use crate::engine::Settings;
use crate::meter::Meter;
use crate::phase::{Contents, Phase};
use crate::proc;
use crate::progress::Progress;
use crate::record::{Measured, Outcome, Ranges, Record};
use crate::store::Store;
use crate::work::{
    BATCH, KEY_BYTES, Key, Order, PATCH_BYTES, SLICES, VALUE_BYTES, Value, Work, sum_of,
};

/// Gets in the phase of gets.
const GETS: u64 = 100_000;
/// How many of the updates are looked at afterwards.
const UPDATES_LOOKED_AT: u64 = 1_000;
/// One update for this many keys.
const KEYS_FOR_AN_UPDATE: u64 = 5;

/// Names of the series that key numbers are picked from, in the first run.
const SERIES_OF_GETS: u64 = 0;
const SERIES_OF_UPDATES: u64 = 1;
/// How far on the series of the next run are: what it reads and updates are others.
const SERIES_OF_A_RUN: u64 = 2;

/// Bytes of the keys and values of a database.
pub fn data_bytes(keys: u64) -> u64 {
    keys.saturating_mul((KEY_BYTES + VALUE_BYTES) as u64)
}

/// Runs the phases, and prints an object in JSON for each.
pub fn run(args: &Child) -> Result<()> {
    let mut phases = args.load.phases.clone();
    phases.sort_unstable();
    phases.dedup();
    let mut session = Session::new(args)?;
    for phase in phases {
        let what = || format!("{} failed in {phase}", args.engine);
        let outcome = session.outcome(phase).with_context(what)?;
        let record = Record {
            engine: args.engine.clone(),
            version: session.store.engine()?.version()?,
            run: args.run,
            phase,
            outcome,
        };
        let mut out = std::io::stdout().lock();
        serde_json::to_writer(&mut out, &record)?;
        writeln!(out)?;
    }
    session.store.close()
}

struct Session {
    store: Store,
    work: Work,
    contents: Contents,
    /// How many runs were before.
    runs_before: u64,
    /// Whether all that the database holds was read since the page cache was dropped.
    warm: bool,
    /// The sum of all bytes of all values, once it is known.
    sum: Option<u64>,
    progress: Progress,
}

impl Session {
    fn new(args: &Child) -> Result<Self> {
        let data = data_bytes(args.load.keys);
        let settings = Settings { dir: args.dir.clone(), cache: args.load.cache, data };
        let mut store = Store::new(args.engine.clone(), settings);
        if args.holds != Contents::Nothing {
            store.open()?;
        }
        Ok(Session {
            store,
            work: Work::new(args.load.keys, args.load.seed),
            contents: args.holds,
            runs_before: u64::from(args.run.saturating_sub(1)),
            warm: false,
            sum: None,
            progress: Progress::new(format!("run {}, {}", args.run, args.engine)),
        })
    }

    /// Does what a phase starts from, if it is not there, and then the phase.
    fn outcome(&mut self, phase: Phase) -> Result<Outcome> {
        self.progress.say(&phase.to_string());
        if matches!(phase, Phase::ColdGet | Phase::ColdScan)
            && let Some(reason) = proc::why_caches_stay()
        {
            // The version is asked for all the same.
            self.need(&[Contents::Inserted, Contents::Updated])?;
            return Ok(Outcome::Skipped(reason));
        }
        let measured = match phase {
            Phase::RandomInsert => self.random_insert(),
            Phase::ColdGet => self.cold_get(),
            Phase::ColdScan => self.cold_scan(),
            Phase::WarmScan => self.warm_scan(),
            Phase::BlindUpdate => self.blind_update(),
            Phase::RangeDelete => self.range_delete(),
            Phase::SingleDelete => self.single_delete(),
            Phase::SequentialInsert => self.sequential_insert(),
        };
        let measured = measured?;
        self.contents = Contents::after(phase);
        Ok(Outcome::Measured(Box::new(measured)))
    }

    /// The series of this run, of which that of the first run is called `first`.
    fn series(&self, first: u64) -> u64 {
        first + SERIES_OF_A_RUN * self.runs_before
    }

    fn random_insert(&mut self) -> Result<Measured> {
        self.insert(Order::Random)
    }

    fn cold_get(&mut self) -> Result<Measured> {
        self.need(&[Contents::Inserted])?;
        let reopened = self.store.reopen_cold()?;
        self.warm = false;
        let series = self.series(SERIES_OF_GETS);
        let (engine, mut meter) = self.store.measured()?;
        for draw in 0..GETS {
            let number = self.work.pick(series, draw);
            let key = self.work.key(number, Order::Random);
            let expected = self.work.value(number);
            let mut right = false;
            let found = meter.time(|| engine.get(&key, &mut |value| right = value == expected))?;
            ensure!(found, "key number {number} was not found");
            ensure!(right, "key number {number} has another value");
            if draw % 1000 == 0 {
                meter.sample()?;
                self.progress.at("cold-get", draw, GETS);
            }
        }
        let mut measured = self.finish(meter, GETS, None)?;
        measured.reopened = Some(reopened);
        Ok(measured)
    }

    fn cold_scan(&mut self) -> Result<Measured> {
        self.need(&[Contents::Inserted])?;
        let reopened = self.store.reopen_cold()?;
        let mut measured = self.scan_inserted()?;
        measured.reopened = Some(reopened);
        Ok(measured)
    }

    fn warm_scan(&mut self) -> Result<Measured> {
        self.need(&[Contents::Inserted])?;
        if !self.warm {
            self.scan_inserted()?;
        }
        self.scan_inserted()
    }

    fn blind_update(&mut self) -> Result<Measured> {
        self.need(&[Contents::Inserted, Contents::Updated])?;
        let updates = self.work.keys() / KEYS_FOR_AN_UPDATE;
        let series = self.series(SERIES_OF_UPDATES);
        let (engine, mut meter) = self.store.measured()?;
        for draws in batches(updates) {
            self.progress.at("blind-update", draws.start, updates);
            let numbers = draws.map(|draw| self.work.pick(series, draw));
            let patch = |number| (self.work.key(number, Order::Random), self.work.patch(number));
            let patches: Vec<_> = numbers.map(patch).collect();
            meter.time(|| engine.update(&patches))?;
            meter.sample()?;
        }
        let user = updates * (KEY_BYTES + PATCH_BYTES) as u64;
        let measured = self.finish(meter, updates, Some(user))?;
        self.look_at_updates(updates)?;
        Ok(measured)
    }

    fn range_delete(&mut self) -> Result<Measured> {
        self.need(&[Contents::Inserted, Contents::Updated])?;
        let left = self.work.in_odd_slices();
        let (engine, mut meter) = self.store.measured()?;
        for slice in (0..SLICES).step_by(2) {
            self.progress.at("range-delete", slice, SLICES);
            let (from, to) = (Work::slice_start(slice), Work::slice_start(slice + 1));
            meter.time(|| engine.delete_range(&from, &to))?;
            meter.sample()?;
        }
        let handed_over_seconds = meter.spent().as_secs_f64();
        meter.time(|| engine.sync())?;
        let durable_seconds = meter.spent().as_secs_f64();
        let mut measured = self.finish(meter, self.work.keys() - left, None)?;
        let scan_seconds = self.scan(left)?.spent().as_secs_f64();
        measured.ranges = Some(Ranges { handed_over_seconds, durable_seconds, scan_seconds });
        Ok(measured)
    }

    fn single_delete(&mut self) -> Result<Measured> {
        self.insert(Order::Random)?;
        let deletes = self.work.keys() / 2;
        let (engine, mut meter) = self.store.measured()?;
        for pairs in batches(deletes) {
            self.progress.at("single-delete", pairs.start, deletes);
            let second = |pair| self.work.key(2 * pair + 1, Order::Random);
            let keys: Vec<Key> = pairs.map(second).collect();
            meter.time(|| engine.delete(&keys))?;
            meter.sample()?;
        }
        let measured = self.finish(meter, deletes, Some(deletes * KEY_BYTES as u64))?;
        self.scan(self.work.keys() - deletes)?;
        Ok(measured)
    }

    fn sequential_insert(&mut self) -> Result<Measured> {
        let measured = self.insert(Order::Ascending)?;
        self.scan_inserted()?;
        Ok(measured)
    }

    /// Sees to it that the database holds one of these.
    fn need(&mut self, contents: &[Contents]) -> Result<()> {
        if !contents.contains(&self.contents) {
            self.random_insert()?;
            self.contents = Contents::Inserted;
        }
        Ok(())
    }

    /// Inserts all keys into a new database.
    fn insert(&mut self, order: Order) -> Result<Measured> {
        self.warm = false;
        self.store.renew()?;
        let keys = self.work.keys();
        let (engine, mut meter) = self.store.measured()?;
        for numbers in batches(keys) {
            self.progress.at("inserting", numbers.start, keys);
            let pair = |number| (self.work.key(number, order), self.work.value(number));
            let pairs: Vec<(Key, Value)> = numbers.map(pair).collect();
            meter.time(|| engine.insert(&pairs))?;
            meter.sample()?;
        }
        self.finish(meter, keys, Some(data_bytes(keys)))
    }

    fn finish(&mut self, meter: Meter, operations: u64, user: Option<u64>) -> Result<Measured> {
        self.progress.say("waiting until the engine is idle");
        meter.finish(self.store.engine()?, operations, user)
    }

    /// Reads everything, which must be what was inserted.
    fn scan_inserted(&mut self) -> Result<Measured> {
        let sum = *self.sum.get_or_insert_with(|| self.work.sum());
        let keys = self.work.keys();
        let mut seen = Seen::default();
        let (engine, mut meter) = self.store.measured()?;
        meter.time(|| engine.scan(&mut |key, value| seen.add(key, value)))?;
        seen.check(keys)?;
        ensure!(seen.sum == sum, "the values are others");
        self.warm = true;
        self.finish(meter, keys, None)
    }

    /// Reads everything, and checks the number of keys.
    fn scan(&mut self, keys: u64) -> Result<Meter> {
        self.progress.say("counting what is left");
        let mut seen = Seen::default();
        let (engine, mut meter) = self.store.measured()?;
        meter.time(|| engine.scan(&mut |key, value| seen.add(key, value)))?;
        seen.check(keys)?;
        Ok(meter)
    }

    /// Compares some of the values that were updated.
    fn look_at_updates(&mut self, updates: u64) -> Result<()> {
        let series = self.series(SERIES_OF_UPDATES);
        let engine = self.store.engine()?;
        for draw in (0..updates).step_by((updates / UPDATES_LOOKED_AT).max(1) as usize) {
            let number = self.work.pick(series, draw);
            let expected = self.work.patched_value(number);
            let mut right = false;
            let key = self.work.key(number, Order::Random);
            engine.get(&key, &mut |value| right = value == expected)?;
            ensure!(right, "key number {number} was not updated as it should");
        }
        Ok(())
    }
}

/// What a scan came by.
#[derive(Default)]
struct Seen {
    keys: u64,
    bytes: u64,
    sum: u64,
    last: Key,
    disorder: bool,
}

impl Seen {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.disorder |= self.keys > 0 && key <= &self.last[..];
        match key.try_into() {
            Ok(key) => self.last = key,
            Err(_) => self.disorder = true,
        }
        self.keys += 1;
        self.bytes += value.len() as u64;
        self.sum += sum_of(value);
    }

    fn check(&self, keys: u64) -> Result<()> {
        ensure!(self.keys == keys, "{} keys are there instead of {keys}", self.keys);
        ensure!(self.bytes == keys * VALUE_BYTES as u64, "values have other lengths");
        ensure!(!self.disorder, "keys come in another order, or have another length");
        Ok(())
    }
}

/// Divides a number of operations into batches.
fn batches(operations: u64) -> impl Iterator<Item = std::ops::Range<u64>> {
    let starts = (0..operations).step_by(BATCH);
    starts.map(move |start| start..(start + BATCH as u64).min(operations))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_all_operations() {
        let all: Vec<_> = batches(25_000).collect();
        assert_eq!(all, [0..10_000, 10_000..20_000, 20_000..25_000]);
        assert_eq!(batches(0).count(), 0);
    }

    #[test]
    fn scans_that_are_wrong_are_noticed() {
        let mut seen = Seen::default();
        seen.add(&[1; 16], &[1; 100]);
        seen.add(&[2; 16], &[1; 100]);
        assert!(seen.check(2).is_ok());
        assert!(seen.check(3).is_err());
        assert_eq!(seen.sum, 200);
        seen.add(&[2; 16], &[1; 100]);
        assert!(seen.check(3).is_err());
    }
}
