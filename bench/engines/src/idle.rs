//! Waiting until an engine has finished its work in the background.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::engine::{Background, Engine};
use crate::proc::Io;

const POLL: Duration = Duration::from_millis(20);
/// For so long an engine must say that it is idle, and not write, to be believed: one piece of work
/// may bring about the next, and not all of them ask whether there will be one.
const QUIET: Duration = Duration::from_secs(1);
const GIVE_UP: Duration = Duration::from_secs(3600);

/// Waits until the engine is idle; returns how long it worked on, without the wait for silence.
pub fn wait(engine: &mut dyn Engine) -> Result<Duration> {
    let start = Instant::now();
    let mut busy_until = start;
    let mut written = None;
    loop {
        let state = engine.background()?;
        if state == Background::Never {
            return Ok(Duration::ZERO);
        }
        let io = Io::now()?;
        let now = (io.wchar, io.write_bytes);
        let moved = written.replace(now).is_some_and(|before| before != now);
        if state == Background::Busy || moved {
            busy_until = Instant::now();
        } else if busy_until.elapsed() >= QUIET {
            return Ok(busy_until - start);
        }
        ensure!(start.elapsed() < GIVE_UP, "the engine does not become idle");
        thread::sleep(POLL);
    }
}
