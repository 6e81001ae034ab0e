//! Where a mount says what went wrong: to standard error in the foreground, else to the system's log.
//!
//! The system's log is the socket that syslog(3) writes to; the form of a line is that of RFC 3164.

use std::os::unix::net::UnixDatagram;

/// Where system programs send their lines.
const SOCKET: &str = "/dev/log";
/// The facility of system daemons, and the severity of an error.
const PRIORITY: u32 = 3 << 3 | 3;

/// Where lines go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Log {
    Stderr,
    System,
}

impl Log {
    /// Reports an error. Where nobody listens it is lost; `betr status` counts it.
    pub fn error(self, text: &str) {
        match self {
            Log::Stderr => eprintln!("betr: {text}"),
            Log::System => {
                let line = format!("<{PRIORITY}>betr[{}]: {text}", std::process::id());
                if let Ok(socket) = UnixDatagram::unbound() {
                    let _ = socket.send_to(line.as_bytes(), SOCKET);
                }
            }
        }
    }
}
