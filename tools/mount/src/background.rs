//! The server in the background: the command starts itself again, and waits until the mount works.
//!
//! Until then the server prints its errors itself, on the standard error that it inherits.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use betr_cli::{Exit, Failure};

/// The line that the server sends when the mount works.
const READY: &[u8] = b"ready\n";

/// Starts the server, and waits until the mount works.
pub(crate) fn start(
    image: &Path,
    directory: &Path,
    words: &[String],
    sloppy: bool,
) -> Result<Exit, Failure> {
    let failed = |error| Failure::failed(format!("the server cannot be started: {error}"));
    let mut command = Command::new("/proc/self/exe");
    command.arg0("betr").args(["mount", "--foreground", "--ready"]);
    if sloppy {
        command.arg("-s");
    }
    for word in words {
        command.args(["-o", word]);
    }
    command.arg("--").arg(image).arg(directory);
    // The server must not inherit other descriptors of the shell: a lock, or a pipe that another process reads to its
    // end.
    close_fds::set_fds_cloexec(3, &[]);
    let mut server = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut said = Vec::new();
    if let Some(mut output) = server.stdout.take() {
        let mut byte = [0];
        while !said.ends_with(READY) && output.read(&mut byte).map_err(failed)? > 0 {
            said.push(byte[0]);
        }
    }
    if said.ends_with(READY) {
        return Ok(Exit::DONE);
    }
    let ended = server.wait().map_err(failed)?;
    match ended.code() {
        // The server has printed the error.
        Some(code) if code != 0 => Ok(Exit(code as u8)),
        _ => Err(Failure::failed(format!("the server has ended before the mount worked: {ended}"))),
    }
}

/// The server leaves the session of the process that started it, so as not to receive its signals.
pub(crate) fn leave_session() {
    // setsid(2) fails for the leader of a process group. The command starts the server as an ordinary member of its
    // own group.
    let _ = rustix::process::setsid();
}

/// Lifts the limit on file sizes (RLIMIT_FSIZE), which would apply to writes to the image. Without the right to do so
/// it is raised to its maximum, and SIGXFSZ is caught, so that a write beyond it fails and does not kill the server.
pub(crate) fn lift_limits() -> std::io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let none = Rlimit { current: None, maximum: None };
    if setrlimit(Resource::Fsize, none).is_err() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Fsize);
        setrlimit(Resource::Fsize, Rlimit { current: maximum, maximum })?;
    }
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default())?;
    Ok(())
}

/// Reports that the mount works, and releases the working directory and the output streams of the process that
/// started the server.
pub(crate) fn ready() -> std::io::Result<()> {
    let nowhere = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    std::env::set_current_dir("/")?;
    let mut out = std::io::stdout();
    out.write_all(READY)?;
    out.flush()?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    Ok(())
}
