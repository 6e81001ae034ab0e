//! A line on a terminal that says how far the work is.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(200);

/// Progress on the standard error, if that is a terminal.
pub struct Progress {
    label: String,
    shown: Option<Instant>,
    terminal: bool,
}

impl Progress {
    /// Progress of what the label says.
    pub fn new(label: String) -> Self {
        Progress { label, shown: None, terminal: std::io::stderr().is_terminal() }
    }

    /// Says how much is done, unless it was said just before.
    pub fn at(&mut self, what: &str, done: u64, of: u64) {
        if self.terminal && self.shown.is_none_or(|shown| shown.elapsed() > INTERVAL) {
            self.show(&format!("{what} {} %", done * 100 / of.max(1)));
        }
    }

    /// Says what is being done.
    pub fn say(&mut self, what: &str) {
        if self.terminal {
            self.show(what);
        }
    }

    fn show(&mut self, what: &str) {
        self.shown = Some(Instant::now());
        let mut err = std::io::stderr().lock();
        // Nothing depends on it, so it may fail.
        let _ = write!(err, "\r\x1b[K{}: {what}", self.label).and_then(|()| err.flush());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.terminal && self.shown.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
