//! How far a check has come: a bar on a terminal, or lines for a program (`-C FD`).

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;

use betr_cli::progress::CheckMeter;
use betr_cli::{Failure, show};
use betr_core::check::Progress;

/// Where progress goes.
pub(crate) enum Meter {
    /// Nowhere.
    Silent,
    /// Lines of pass, done, total and image, for a program.
    Lines(File, String),
    /// A bar on the terminal.
    Terminal(CheckMeter),
}

impl Meter {
    /// As `-C` says: 0 is the terminal, a negative number silence. Without it, a terminal has the bar if
    /// `for_people`.
    pub(crate) fn new(fd: Option<i32>, image: &Path, for_people: bool) -> Result<Meter, Failure> {
        let wants_bar = fd == Some(0) || (fd.is_none() && for_people);
        match fd {
            // Who asks for it sees it at once.
            _ if wants_bar => Ok(Meter::Terminal(CheckMeter::new(true, fd.is_some()))),
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
            // The reader of the lines may have closed the pipe; the check goes on.
            Meter::Lines(file, image) => drop(writeln!(file, "{pass} {done} {total} {image}")),
            Meter::Terminal(meter) => meter.step(pass, done, total),
        }
    }
}
