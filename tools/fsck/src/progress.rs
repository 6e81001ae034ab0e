//! `-C FD`: how far a check has come.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;

use betr_cli::{Failure, show};
use betr_core::check::Progress;

/// Where progress goes.
pub(crate) enum Meter {
    /// Nowhere.
    Silent,
    /// Lines of pass, done, total and image, for a program.
    Lines(File, String),
    /// One line on the terminal, written over and over.
    Terminal,
}

impl Meter {
    /// As `-C` says: no option is silence, 0 the terminal, a negative number silence.
    pub fn new(fd: Option<i32>, image: &Path) -> Result<Meter, Failure> {
        match fd {
            Some(0) if std::io::stderr().is_terminal() => Ok(Meter::Terminal),
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

    /// Wipes the line on the terminal.
    pub fn done(&mut self) {
        if let Meter::Terminal = self {
            eprint!("\r\x1b[K");
        }
    }
}

impl Progress for Meter {
    fn step(&mut self, pass: u32, done: u64, total: u64) {
        match self {
            Meter::Silent => {}
            // Whoever reads the lines may have gone; the check goes on.
            Meter::Lines(file, image) => drop(writeln!(file, "{pass} {done} {total} {image}")),
            Meter::Terminal => {
                let percent = (done * 100).checked_div(total).unwrap_or(0);
                eprint!("\rpass {pass}: {percent:3} %");
            }
        }
    }
}
