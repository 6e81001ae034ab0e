//! Finds the server of a mount: it listens on a socket whose name is the device number of the mount.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{Failure, show};

/// The socket of the server of the mount with this device number.
pub fn socket_path(device: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    directory().join(format!("{major}:{minor}"))
}

fn directory() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !rustix::process::geteuid().is_root());
    PathBuf::from(own.unwrap_or_else(|| "/run".into())).join("betr")
}

/// Connects to the server of the mount that contains a directory.
pub fn connect(directory: &Path) -> Result<UnixStream, Failure> {
    let name = show::path(directory);
    let meta = std::fs::metadata(directory)
        .map_err(|error| Failure::failed(format!("{name}: {error}")))?;
    let path = socket_path(meta.dev());
    UnixStream::connect(&path).map_err(|error| {
        let what = if meta.is_dir() { "is a directory, and " } else { "" };
        Failure::failed(format!(
            "{name}: {what}nothing of betr is mounted here, as far as can be seen: {}: {error}",
            show::path(&path)
        ))
    })
}

/// Sends a request to the server of the mount that contains a directory, and returns its answer. If `is_written` is
/// set, syncfs(2) first makes earlier writes to the mount reach the server.
pub fn ask(directory: &Path, request: &Value, is_written: bool) -> Result<Value, Failure> {
    let name = show::path(directory);
    let failed = |error: io::Error| Failure::failed(format!("{name}: {error}"));
    if is_written {
        let top = std::fs::File::open(directory).map_err(failed)?;
        rustix::fs::syncfs(&top).map_err(|error| failed(error.into()))?;
    }
    let mut socket = connect(directory)?;
    socket.write_all(format!("{request}\n").as_bytes()).map_err(failed)?;
    // The server sends a status line on connection and every second after; lines without the answer's field are
    // skipped.
    for line in BufReader::new(socket).lines() {
        let said: Option<Value> = serde_json::from_str(&line.map_err(failed)?).ok();
        let gone = || Failure::failed(format!("{name}: the server has said nothing sensible"));
        let said = said.ok_or_else(gone)?;
        if let Some(error) = said["error"].as_str() {
            return Err(Failure::failed(format!("{name}: {}", show::bytes(error.as_bytes()))));
        }
        if !said["answer"].is_null() {
            return Ok(said["answer"].clone());
        }
    }
    Err(Failure::failed(format!("{name}: the mount has ended before it answered")))
}
