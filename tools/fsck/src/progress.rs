//! How far a check has come: a bar on a terminal, or lines for a program (`-C FD`).

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;

use betr_cli::{Failure, show};
use betr_core::check::Progress;

/// How wide the bar is.
const WIDTH: u64 = 40;
/// What each of the three passes over a state takes of its time, in percent.
const SHARES: [u64; 3] = [0, 10, 90];

/// Where progress goes.
pub(crate) enum Meter {
    /// Nowhere.
    Silent,
    /// Lines of pass, done, total and image, for a program.
    Lines(File, String),
    /// A bar on the terminal, drawn over and over.
    Terminal(Bar),
}

impl Meter {
    /// As `-C` says: 0 is the terminal, a negative number silence. Without it, a terminal has the bar if
    /// `for_people`.
    pub fn new(fd: Option<i32>, image: &Path, for_people: bool) -> Result<Meter, Failure> {
        let wants_bar = fd == Some(0) || (fd.is_none() && for_people);
        match fd {
            _ if wants_bar && std::io::stderr().is_terminal() => {
                Ok(Meter::Terminal(Bar { states: 1, shown: None }))
            }
            Some(fd) if fd > 0 => {
                // A file opened anew has a position of its own, and would be written over by what
                // goes to the same file as the streams do.
                let file = match fd {
                    1 => std::io::stdout().as_fd().try_clone_to_owned().map(File::from),
                    2 => std::io::stderr().as_fd().try_clone_to_owned().map(File::from),
                    _ => File::options().append(true).open(format!("/proc/self/fd/{fd}")),
                };
                let file = file.map_err(|error| Failure::usage(format!("-C {fd}: {error}")))?;
                Ok(Meter::Lines(file, show::path(image)))
            }
            _ => Ok(Meter::Silent),
        }
    }

    /// Wipes the bar.
    pub fn done(&mut self) {
        if let Meter::Terminal(Bar { shown: Some(_), .. }) = self {
            eprint!("\r\x1b[K");
        }
    }
}

impl Progress for Meter {
    fn states(&mut self, states: u32) {
        if let Meter::Terminal(bar) = self {
            bar.states = states.into();
        }
    }

    fn step(&mut self, pass: u32, done: u64, total: u64) {
        match self {
            Meter::Silent => {}
            // Whoever reads the lines may have gone; the check goes on.
            Meter::Lines(file, image) => drop(writeln!(file, "{pass} {done} {total} {image}")),
            Meter::Terminal(bar) => {
                if let Some(bar) = bar.step(pass, done, total) {
                    eprint!("\r{bar}");
                }
            }
        }
    }
}

/// A bar that only grows.
pub(crate) struct Bar {
    /// How many states are checked, one after another.
    states: u64,
    /// The percentage that it shows.
    shown: Option<u64>,
}

impl Bar {
    /// The bar, if it looks different now.
    fn step(&mut self, pass: u32, done: u64, total: u64) -> Option<String> {
        let before = u64::from(pass.saturating_sub(1));
        let (states, passes) =
            (before / SHARES.len() as u64, (before % SHARES.len() as u64) as usize);
        let share =
            |of: u64| (u128::from(of) * u128::from(done.min(total))) / u128::from(total.max(1));
        let here = SHARES[..passes].iter().sum::<u64>() + share(SHARES[passes]) as u64;
        let percent = ((100 * states + here) / self.states.max(1)).min(100);
        if self.shown.is_some_and(|shown| percent <= shown) {
            return None;
        }
        self.shown = Some(percent);
        let full = (percent * WIDTH / 100) as usize;
        let empty = WIDTH as usize - full;
        Some(format!("[{}{}] {percent:3} %", "=".repeat(full), " ".repeat(empty)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_only_grows_and_ends_full() {
        let mut bar = Bar { states: 2, shown: None };
        let mut shown = Vec::new();
        for pass in [1, 2, 3, 4, 5, 6] {
            for done in 0..=50 {
                bar.step(pass, done, 50);
                shown.push(bar.shown);
            }
        }
        assert!(shown.is_sorted());
        assert_eq!((shown[0], shown[shown.len() / 2]), (Some(0), Some(50)));
        assert_eq!(bar.shown, Some(100));
        assert_eq!(bar.step(2, 1, 50), None);
        let half = Bar { states: 1, shown: None }.step(3, 4, 9).unwrap();
        assert_eq!(half, format!("[{}{}]  50 %", "=".repeat(20), " ".repeat(20)));
    }
}
