//! Measuring a phase while it goes on.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::disk::{self, Device};
use crate::engine::Engine;
use crate::idle;
use crate::proc::{Io, Memory};
use crate::record::{Calls, Measured, Usage};
use crate::stats::percentile;

/// Counts and times from its making on.
pub struct Meter {
    dir: PathBuf,
    device: Option<(Device, u64)>,
    start: Instant,
    io: Io,
    calls: Vec<u64>,
    spent: Duration,
    anonymous: u64,
    peak_of_phase: bool,
}

impl Meter {
    /// Begins to measure what is done to a database in a directory.
    pub fn start(dir: &Path) -> Result<Self> {
        let device = match Device::of(dir)? {
            Some(device) => Some(device.written().map(|written| (device, written))?),
            None => None,
        };
        let peak_of_phase = Memory::reset_peak();
        let anonymous = Memory::now()?.anonymous;
        let io = Io::now()?;
        let (calls, spent) = (Vec::new(), Duration::ZERO);
        let (dir, start) = (dir.to_owned(), Instant::now());
        Ok(Meter { dir, device, start, io, calls, spent, anonymous, peak_of_phase })
    }

    /// Times a call into the engine.
    pub fn time<T>(&mut self, call: impl FnOnce() -> Result<T>) -> Result<T> {
        let before = Instant::now();
        let result = call();
        let took = before.elapsed();
        self.spent += took;
        self.calls.push(took.as_nanos() as u64);
        result
    }

    /// Looks at the memory.
    pub fn sample(&mut self) -> Result<()> {
        self.anonymous = self.anonymous.max(Memory::now()?.anonymous);
        Ok(())
    }

    /// The time inside the engine so far.
    pub fn spent(&self) -> Duration {
        self.spent
    }

    /// Waits until the engine is idle, and returns what was measured for a number of operations.
    pub fn finish(
        mut self,
        engine: &mut dyn Engine,
        operations: u64,
        user_bytes: Option<u64>,
    ) -> Result<Measured> {
        let wall = self.start.elapsed();
        let io = Io::now()?.since(&self.io);
        self.sample()?;
        let idle = idle::wait(engine)?;
        let io_until_idle = Io::now()?.since(&self.io);
        self.sample()?;
        let memory = Memory::now()?;
        let device_bytes = match &self.device {
            Some((device, before)) => Some(device.written()? - before),
            None => None,
        };
        let seconds = self.spent.as_secs_f64();
        let amplification =
            |bytes: u64| user_bytes.filter(|&user| user > 0).map(|user| bytes as f64 / user as f64);
        Ok(Measured {
            operations,
            seconds,
            wall_seconds: wall.as_secs_f64(),
            rate: operations as f64 / seconds.max(f64::MIN_POSITIVE),
            seconds_until_idle: idle.as_secs_f64(),
            io,
            io_until_idle,
            user_bytes,
            device_bytes,
            write_amplification: amplification(io_until_idle.wchar),
            dirty_amplification: amplification(io_until_idle.write_bytes),
            device_amplification: device_bytes.and_then(amplification),
            disk_bytes: disk::allocated(&self.dir)?,
            memory: Usage {
                peak: memory.peak,
                peak_of_phase: self.peak_of_phase,
                anonymous_peak: self.anonymous,
                anonymous_at_end: memory.anonymous,
                file_at_end: memory.file,
            },
            calls: calls(self.calls),
            reopened: None,
            ranges: None,
        })
    }
}

fn calls(mut nanos: Vec<u64>) -> Calls {
    nanos.sort_unstable();
    let micros = |percent| percentile(&nanos, percent).unwrap_or(0) as f64 / 1000.0;
    Calls {
        count: nanos.len() as u64,
        p50_micros: micros(50),
        p99_micros: micros(99),
        max_micros: micros(100),
    }
}
