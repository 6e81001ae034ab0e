//! Progress of a check: a bar on a terminal, or lines for a program (`-C FD`).

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;

use betr_cli::progress::CheckMeter;
use betr_cli::{Failure, show};
use betr_core::check::Progress;

/// The output of progress.
pub(crate) enum Meter {
    /// No output.
    Silent,
    /// Lines of pass, done, total and image, for a program.
    Lines(File, String),
    /// A bar on the terminal.
    Terminal(CheckMeter),
}

impl Meter {
    /// The output for `-C`: 0 is the terminal, a negative number means none. Without `-C`, a terminal gets the bar if
    /// `for_people` is set.
    pub(crate) fn new(fd: Option<i32>, image: &Path, for_people: bool) -> Result<Meter, Failure> {
        let wants_bar = fd == Some(0) || (fd.is_none() && for_people);
        match fd {
            // An explicit request shows the bar at once.
            _ if wants_bar => Ok(Meter::Terminal(CheckMeter::new(true, fd.is_some()))),
            Some(fd) if fd > 0 => {
                // Opening /proc/self/fd/N makes a new file offset, so output of the streams to the same file would be
                // overwritten. Standard output and error are duplicated instead.
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
}

impl Progress for Meter {
    fn states(&mut self, states: u32) {
        if let Meter::Terminal(meter) = self {
            meter.states(states);
        }
    }

    fn step(&mut self, pass: u32, done: u64, total: u64) {
        match self {
            Meter::Silent => {}
            // The reader may have closed the pipe; the check continues.
            Meter::Lines(file, image) => drop(writeln!(file, "{pass} {done} {total} {image}")),
            Meter::Terminal(meter) => meter.step(pass, done, total),
        }
    }
}
