//! Progress display on a terminal, for work that takes more than a second.
//!
//! A thread redraws one line on standard error. The line is wiped when its [`Meter`] is dropped or the tool is
//! interrupted. Nothing is drawn if standard error is not a terminal or the terminal cannot move its cursor
//! (`TERM=dumb`).

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use betr_core::check::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::size::human;

/// Work shorter than 1 s shows no progress.
const PATIENCE: Duration = Duration::from_secs(1);
/// The line is redrawn every 100 ms.
const PAUSE: Duration = Duration::from_millis(100);
/// The share of the time that a check of one state spends in each of its three passes, in percent.
const SHARES: [u64; 3] = [0, 10, 90];

/// A progress line, shown until it is dropped.
#[must_use = "it is wiped when it is dropped"]
pub struct Meter(Option<(Sender<()>, JoinHandle<()>)>);

impl Meter {
    /// Shows the text that `text` returns; nothing unless `wanted`.
    pub fn text(wanted: bool, text: impl Fn() -> String + Send + 'static) -> Meter {
        let style = ProgressStyle::with_template("{spinner} {wide_msg}");
        Meter::start(wanted, PATIENCE, style.ok(), move |bar| bar.set_message(text()))
    }

    /// Shows the numbers of objects and bytes processed from now on. `so_far` returns both totals since the process
    /// began.
    pub fn counting(wanted: bool, what: &'static str, so_far: fn() -> (u64, u64)) -> Meter {
        let before = so_far();
        Meter::text(wanted, move || {
            let now = so_far();
            let (objects, bytes) = (now.0 - before.0, now.1 - before.1);
            format!("{what}: {objects} files and directories, {}", human(bytes))
        })
    }

    /// Shows a bar with a percentage, once `after` has passed.
    fn percent(wanted: bool, after: Duration, percent: Arc<AtomicU64>) -> Meter {
        let style = ProgressStyle::with_template("[{bar:40}] {percent:>3} %");
        let style = style.ok().map(|style| style.progress_chars("=> "));
        Meter::start(wanted, after, style, move |bar| {
            bar.set_length(100);
            bar.set_position(percent.load(Ordering::Relaxed));
        })
    }

    fn start(
        wanted: bool,
        after: Duration,
        style: Option<ProgressStyle>,
        draw: impl Fn(&ProgressBar) + Send + 'static,
    ) -> Meter {
        let Some(style) = style.filter(|_| wanted && is_shown()) else { return Meter(None) };
        let (sender, ended) = channel::<()>();
        let run = move || {
            let mut pause = after;
            let mut bar = None;
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let bar = bar.get_or_insert_with(|| shown(style.clone()));
                draw(bar);
                bar.tick();
                pause = PAUSE;
            }
            if let Some(bar) = bar {
                *locked() = None;
                bar.finish_and_clear();
            }
        };
        let thread = std::thread::Builder::new().name("progress".into()).spawn(run).ok();
        Meter(thread.map(|thread| (sender, thread)))
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.0.take() {
            drop(sender);
            let _ = thread.join();
        }
    }
}

/// Whether a line on standard error is visible and can be wiped.
fn is_shown() -> bool {
    let moves = |term: &std::ffi::OsString| !term.is_empty() && term != "dumb";
    std::io::stderr().is_terminal() && std::env::var_os("TERM").as_ref().is_some_and(moves)
}

/// The bar on the terminal: the signal thread wipes it, and `beside` suspends it.
static LINE: Mutex<Option<ProgressBar>> = Mutex::new(None);

fn locked() -> std::sync::MutexGuard<'static, Option<ProgressBar>> {
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shown(style: ProgressStyle) -> ProgressBar {
    wipe_when_interrupted();
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style);
    *locked() = Some(bar.clone());
    bar
}

/// Calls `write`, which writes to standard error, while the line is hidden.
pub fn beside<T>(write: impl FnOnce() -> T) -> T {
    match &*locked() {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Makes SIGINT and SIGTERM wipe the line before they end the tool.
fn wipe_when_interrupted() {
    static WIPING: OnceLock<()> = OnceLock::new();
    WIPING.get_or_init(|| {
        let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else { return };
        let run = move || {
            for signal in signals.forever() {
                if let Some(bar) = locked().take() {
                    bar.finish_and_clear();
                }
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        };
        // If the thread cannot be started, a signal ends the tool without wiping the line.
        let _ = std::thread::Builder::new().name("signals".into()).spawn(run);
    });
}

/// The progress bar of a check.
pub struct CheckMeter {
    /// The number of states to check, one after another.
    states: u64,
    percent: Arc<AtomicU64>,
    _line: Meter,
}

impl CheckMeter {
    /// Creates the bar; it is shown only if `wanted`: at once if `at_once`, else after 1 s.
    pub fn new(wanted: bool, at_once: bool) -> CheckMeter {
        let percent = Arc::new(AtomicU64::new(0));
        let after = if at_once { Duration::ZERO } else { PATIENCE };
        CheckMeter { states: 1, _line: Meter::percent(wanted, after, percent.clone()), percent }
    }
}

impl Progress for CheckMeter {
    fn states(&mut self, states: u32) {
        self.states = states.into();
    }

    /// Advances the bar, which never moves backwards.
    fn step(&mut self, pass: u32, done: u64, total: u64) {
        let before = u64::from(pass.saturating_sub(1));
        let (states, passes) =
            (before / SHARES.len() as u64, (before % SHARES.len() as u64) as usize);
        let share =
            |of: u64| (u128::from(of) * u128::from(done.min(total))) / u128::from(total.max(1));
        let here = SHARES[..passes].iter().sum::<u64>() + share(SHARES[passes]) as u64;
        let percent = ((100 * states + here) / self.states.max(1)).min(100);
        self.percent.fetch_max(percent, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_only_grows_and_ends_full() {
        let mut meter = CheckMeter::new(false, false);
        meter.states(2);
        let mut shown = Vec::new();
        for pass in [1, 2, 3, 4, 5, 6] {
            for done in 0..=50 {
                meter.step(pass, done, 50);
                shown.push(meter.percent.load(Ordering::Relaxed));
            }
        }
        assert!(shown.is_sorted());
        assert_eq!((shown[0], shown[shown.len() / 2]), (0, 50));
        assert_eq!(shown.last(), Some(&100));
        meter.step(2, 1, 50);
        assert_eq!(meter.percent.load(Ordering::Relaxed), 100);
    }
}
