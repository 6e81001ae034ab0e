//! Where a mount logs errors: standard error in the foreground, else the system's log, or a file if no log daemon
//! listens.
//!
//! The system's log is the socket that syslog(3) writes to; a line has the form of RFC 3164.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use betr_cli::time::format_utc;
use betr_cli::volume::clock_now;

/// The socket of the log daemon.
const SOCKET: &str = "/dev/log";
/// The facility of system daemons, and the severity of an error.
const PRIORITY: u32 = 3 << 3 | 3;
/// The name of the log file that is used if no log daemon listens.
const FILE: &str = "betr.log";

/// Destination of log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogTarget {
    Stderr,
    System,
}

impl LogTarget {
    /// Logs an error.
    pub(crate) fn error(&self, text: &str) {
        match self {
            LogTarget::Stderr => eprintln!("betr: {text}"),
            LogTarget::System => {
                let line = format!("<{PRIORITY}>betr[{}]: {text}", std::process::id());
                let sent = UnixDatagram::unbound()
                    .and_then(|socket| socket.send_to(line.as_bytes(), SOCKET));
                if sent.is_err() {
                    // If the file cannot be written either, `betr status` still has the last error.
                    let _ = append(text);
                }
            }
        }
    }
}

/// Appends a line to the log file.
fn append(text: &str) -> std::io::Result<()> {
    let Some(path) = file() else { return Ok(()) };
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    let now = clock_now();
    writeln!(file, "{} betr[{}]: {text}", format_utc(now.secs, now.nanos), std::process::id())
}

/// `/var/log/betr.log` for root; for other users `betr.log` in `$XDG_STATE_HOME` or `~/.local/state`.
fn file() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/log").join(FILE));
    }
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state"));
    state.or_else(home).map(|directory| directory.join(FILE))
}
