//! Where a mount says what went wrong: to standard error in the foreground, else to the system's log, or to a file where there is
//! none.
//!
//! The system's log is the socket that syslog(3) writes to; the form of a line is that of RFC 3164.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use betr_cli::time::format_utc;
use betr_cli::volume::clock_now;

/// Where system programs send their lines.
const SOCKET: &str = "/dev/log";
/// The facility of system daemons, and the severity of an error.
const PRIORITY: u32 = 3 << 3 | 3;
/// The log file if no log daemon listens, below the user's directory for logs.
const FILE: &str = "betr.log";

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Log {
    Stderr,
    System,
}

impl Log {
    /// Reports an error.
    pub(crate) fn error(&self, text: &str) {
        match self {
            Log::Stderr => eprintln!("betr: {text}"),
            Log::System => {
                let line = format!("<{PRIORITY}>betr[{}]: {text}", std::process::id());
                let sent = UnixDatagram::unbound()
                    .and_then(|socket| socket.send_to(line.as_bytes(), SOCKET));
                if sent.is_err() {
                    // Where that cannot be written either, `betr status` has the last line.
                    let _ = append(text);
                }
            }
        }
    }
}

/// Adds a line to the file.
fn append(text: &str) -> std::io::Result<()> {
    let Some(path) = file() else { return Ok(()) };
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    let now = clock_now();
    writeln!(file, "{} betr[{}]: {text}", format_utc(now.secs, now.nanos), std::process::id())
}

/// `/var/log/betr.log`, or for users without rights there `betr.log` in `$XDG_STATE_HOME` or `~/.local/state`.
fn file() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/log").join(FILE));
    }
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state"));
    state.or_else(home).map(|directory| directory.join(FILE))
}
