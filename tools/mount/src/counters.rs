//! Counters and latencies of operations.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The operations that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum Kind {
    Lookup,
    Getattr,
    Setattr,
    Readlink,
    Make,
    Unlink,
    Rmdir,
    Rename,
    Link,
    Open,
    Release,
    Read,
    Write,
    Fsync,
    Opendir,
    Readdir,
    Statfs,
    Xattr,
    Allocate,
    Seek,
    Copy,
}

const NAMES: [&str; 21] = [
    "lookup",
    "getattr",
    "setattr",
    "readlink",
    "make",
    "unlink",
    "rmdir",
    "rename",
    "link",
    "open",
    "release",
    "read",
    "write",
    "fsync",
    "opendir",
    "readdir",
    "statfs",
    "xattr",
    "fallocate",
    "lseek",
    "copy",
];

/// Buckets of latency: powers of two of a microsecond. The last one holds 67 seconds and more.
const BUCKETS: usize = 28;

#[derive(Default)]
struct Counter {
    total_ns: AtomicU64,
    max_ns: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
    /// Operations by the binary logarithm of their latency in microseconds.
    buckets: [AtomicU64; BUCKETS],
}

/// One counter for each [`Kind`].
#[derive(Default)]
pub(crate) struct Counters([Counter; NAMES.len()]);

/// A running operation, counted when this is dropped.
pub(crate) struct Timed<'c> {
    counter: &'c Counter,
    since: Instant,
}

impl Counters {
    /// Starts timing an operation.
    pub(crate) fn time(&self, kind: Kind) -> Timed<'_> {
        Timed { counter: &self.0[kind as usize], since: Instant::now() }
    }

    /// All operations that have occurred, as JSON.
    pub(crate) fn json(&self) -> Value {
        let all = NAMES.iter().zip(&self.0).filter_map(|(name, counter)| {
            let buckets = counter.buckets.each_ref().map(|bucket| bucket.load(Relaxed));
            let count: u64 = buckets.iter().sum();
            (count > 0).then(|| {
                let micros = |ns: u64| ns as f64 / 1000.0;
                let total = counter.total_ns.load(Relaxed);
                json!({
                    "operation": name,
                    "count": count,
                    "errors": counter.errors.load(Relaxed),
                    "bytes": counter.bytes.load(Relaxed),
                    "mean_us": micros(total / count),
                    "median_us": quantile(&buckets, count, 0.5),
                    "p99_us": quantile(&buckets, count, 0.99),
                    "max_us": micros(counter.max_ns.load(Relaxed)),
                })
            })
        });
        all.collect()
    }
}

impl Timed<'_> {
    /// Counts `bytes` transferred.
    pub(crate) fn bytes(&self, bytes: usize) {
        self.counter.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts a failure.
    pub(crate) fn failed(&self) {
        self.counter.errors.fetch_add(1, Relaxed);
    }
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        let took = self.since.elapsed();
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.counter.total_ns.fetch_add(ns, Relaxed);
        self.counter.max_ns.fetch_max(ns, Relaxed);
        self.counter.buckets[bucket_of(took)].fetch_add(1, Relaxed);
    }
}

fn bucket_of(took: Duration) -> usize {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    ((u64::BITS - micros.leading_zeros()) as usize).min(BUCKETS - 1)
}

/// The upper end of the bucket that this share of the operations does not exceed, in microseconds.
fn quantile(buckets: &[u64], count: u64, share: f64) -> u64 {
    let wanted = (count as f64 * share).ceil() as u64;
    let mut seen = 0;
    let at = buckets.iter().position(|bucket| {
        seen += bucket;
        seen >= wanted
    });
    1 << at.unwrap_or(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_upper_bounds() {
        let counters = Counters::default();
        let counter = &counters.0[Kind::Read as usize];
        for micros in 0..1000 {
            counter.buckets[bucket_of(Duration::from_micros(micros))].fetch_add(1, Relaxed);
        }
        let found = counters.json();
        let read = &found[0];
        assert_eq!(
            (read["operation"].as_str(), read["count"].as_u64()),
            (Some("read"), Some(1000))
        );
        assert_eq!((read["median_us"].as_u64(), read["p99_us"].as_u64()), (Some(512), Some(1024)));
        assert_eq!(bucket_of(Duration::from_secs(1 << 40)), BUCKETS - 1);
    }
}
