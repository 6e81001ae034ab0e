//! `betr status`: the state of a mount's server, read through a socket.
//!
//! The name of the socket is the device number of the mount. The server sends each connection one line of JSON at
//! once and another each second until the client disconnects. A client that sends a line of JSON gets one more line,
//! the answer to it.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use betr_cli::clones::CloneRequest;
use betr_cli::image::what_is_mounted_at;
use betr_cli::server::{connect, socket_path};
use betr_cli::snapshots::Request;
use betr_cli::{Exit, Failure, Io, show, size};
use betr_core::fs::Fs;
use betr_core::text::Printable;
use betr_core::volume::Blocks;
use serde_json::{Value, json};

use crate::host::Standing;
use crate::server::Server;

/// The schema of the lines, and its version.
const SCHEMA: &str = "betr.status";
const VERSION: u32 = 1;
/// The server sends a follower one line per second.
const PERIOD: Duration = Duration::from_secs(1);
/// The most connections at a time.
const FOLLOWERS: usize = 16;
/// 1 MiB, the longest request: 4,000 names of 255 bytes. A client that drops more snapshots sends several requests.
const REQUEST_MAX: usize = 1 << 20;

/// Show what the server of a mount is doing
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print a new line of JSON each second until the mount ends
    #[arg(long, conflicts_with = "json")]
    follow: bool,
    /// A directory of the mount
    directory: PathBuf,
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let name = show::path(&args.directory);
    let socket = connect(&args.directory)?;
    for line in BufReader::new(socket).lines() {
        let gone = |_| Failure::failed(format!("{name}: the server has said nothing sensible"));
        let line = line.map_err(|error| Failure::failed(format!("{name}: {error}")))?;
        let mut said: Value = serde_json::from_str(&line).map_err(gone)?;
        if args.follow {
            writeln!(io.out, "{said}")?;
            io.out.flush()?;
            continue;
        }
        match args.json {
            true => {
                if let Value::Object(fields) = &mut said {
                    fields.shift_remove("schema");
                    fields.shift_remove("version");
                }
                io.json(SCHEMA, VERSION, said)?;
            }
            false => print(&said, io)?,
        }
        return Ok(Exit::DONE);
    }
    match args.follow {
        true => Ok(Exit::DONE),
        false => Err(Failure::failed(format!("{name}: the mount is ending"))),
    }
}

fn print(said: &Value, io: &mut Io) -> Result<(), Failure> {
    let number = |at: &str| said.pointer(at).and_then(Value::as_u64).unwrap_or(0);
    let text = |at: &str| said.pointer(at).and_then(Value::as_str).unwrap_or("");
    let bytes = |at: &str| size::human(number(at));
    let how = if said["read_only"] == true { "read-only" } else { "read-write" };
    writeln!(io.out, "{} at {}, {how}", text("/image"), text("/directory"))?;
    let standing = match text("/path_leads") {
        "elsewhere" => Standing::Replaced,
        "nowhere" => Standing::Gone,
        _ => Standing::Same,
    };
    if let Some(text) = standing.text() {
        writeln!(io.out, "     File: {text}")?;
    }
    if said["host_full"] == true {
        writeln!(io.out, "     Host: full; changes wait in memory, and others are refused")?;
    }
    writeln!(io.out, "   Errors: {}", number("/errors"))?;
    for (name, at) in [("Last", "/last_error"), ("Stopped", "/read_only_because")] {
        if let Some(text) = said.pointer(at).and_then(Value::as_str) {
            writeln!(io.out, "{name:>9}: {}", Printable(text.as_bytes()))?;
        }
    }
    writeln!(
        io.out,
        "    Cache: {} of {}, {} dirty",
        bytes("/cache/bytes"),
        bytes("/cache/budget_bytes"),
        bytes("/cache/dirty_bytes")
    )?;
    let durable =
        if said["log"]["unsynced"] == true { "changes wait for a sync" } else { "all durable" };
    writeln!(
        io.out,
        "      Log: {} of {}, {durable}",
        bytes("/log/used_bytes"),
        bytes("/log/bytes")
    )?;
    writeln!(
        io.out,
        "    Space: {} of {} free, {} available",
        bytes("/space/free_bytes"),
        bytes("/space/bytes"),
        bytes("/space/available_bytes")
    )?;
    writeln!(io.out, "   Kernel: {} inodes, {} open", number("/inodes"), number("/open"))?;
    writeln!(
        io.out,
        "   Device: {} reads, {}; {} writes, {}; {} flushes",
        number("/device/reads"),
        bytes("/device/read_bytes"),
        number("/device/writes"),
        bytes("/device/written_bytes"),
        number("/device/flushes")
    )?;
    let list = |at: &str| said[at].as_array().cloned().unwrap_or_default();
    writeln!(io.out, "\nIn memory    height  nodes  messages  pending")?;
    for level in list("levels") {
        let of = |name: &str| level[name].as_u64().unwrap_or(0);
        writeln!(
            io.out,
            "{:<12} {:>6} {:>6} {:>9}  {}",
            level["tree"].as_str().unwrap_or(""),
            of("height"),
            of("nodes"),
            of("messages"),
            size::human(of("pending_bytes"))
        )?;
    }
    writeln!(io.out, "\nOperation       count  errors  mean µs  median µs   99 % µs    max µs")?;
    for operation in list("operations") {
        let of = |name: &str| operation[name].as_f64().unwrap_or(0.0);
        writeln!(
            io.out,
            "{:<12} {:>8} {:>7} {:>8.0} {:>10} {:>9} {:>9.0}",
            operation["operation"].as_str().unwrap_or(""),
            of("count"),
            of("errors"),
            of("mean_us"),
            of("median_us"),
            of("p99_us"),
            of("max_us")
        )?;
    }
    Ok(())
}

/// Whether the server of a mount has opened its image read-only; `None` if it cannot be asked.
pub(crate) fn is_read_only(device: u64) -> Option<bool> {
    let mut line = String::new();
    BufReader::new(UnixStream::connect(socket_path(device)).ok()?).read_line(&mut line).ok()?;
    serde_json::from_str::<Value>(&line).ok()?["read_only"].as_bool()
}

/// The socket of a server. Dropping it removes the file.
pub(crate) struct Socket {
    /// Its path and inode number: the socket of a later mount may have replaced it.
    place: Option<(PathBuf, u64)>,
}

impl Socket {
    /// Listens. Without a socket there is no status, and everything else works.
    pub(crate) fn open(server: &Arc<Server>, at: &Path) -> Socket {
        let path = what_is_mounted_at(at).map(|mounted| socket_path(mounted.device));
        let listener = path.as_ref().and_then(|path| {
            let mut builder = std::fs::DirBuilder::new();
            builder.recursive(true).mode(0o755).create(path.parent()?).ok()?;
            // A killed server may have left its socket.
            let _ = std::fs::remove_file(path);
            let listener = UnixListener::bind(path).ok()?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).ok()?;
            Some(listener)
        });
        match listener {
            None => Socket { place: None },
            Some(listener) => {
                let (server, at) = (Arc::downgrade(server), at.to_owned());
                let followers = Arc::new(AtomicUsize::new(0));
                thread::spawn(move || {
                    for stream in listener.incoming().flatten() {
                        if followers.fetch_add(1, Ordering::Relaxed) >= FOLLOWERS {
                            followers.fetch_sub(1, Ordering::Relaxed);
                            continue;
                        }
                        let (server, at) = (server.clone(), at.clone());
                        let followers = followers.clone();
                        thread::spawn(move || {
                            follow(&server, &at, stream);
                            followers.fetch_sub(1, Ordering::Relaxed);
                        });
                    }
                });
                let number = |path: &PathBuf| std::fs::symlink_metadata(path).ok().map(|m| m.ino());
                Socket { place: path.and_then(|path| number(&path).map(|ino| (path, ino))) }
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some((path, ino)) = &self.place
            && std::fs::symlink_metadata(path).is_ok_and(|found| found.ino() == *ino)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Sends lines to a client until it disconnects or the mount ends.
fn follow(server: &std::sync::Weak<Server>, at: &Path, mut stream: UnixStream) {
    // A client that does not read is disconnected after a second.
    if stream.set_write_timeout(Some(PERIOD)).is_err()
        || stream.set_read_timeout(Some(PERIOD)).is_err()
    {
        return;
    }
    while let Some(now) = server.upgrade() {
        let line = format!("{}\n", status(&now, at));
        drop(now);
        if stream.write_all(line.as_bytes()).is_err() {
            return;
        }
        // Waiting for a request is also the pause between two lines.
        match listen(&mut stream) {
            Heard::Nothing => {}
            Heard::End => return,
            Heard::Request(request) => {
                let Some(server) = server.upgrade() else { return };
                let answer = match (Request::of(&request), CloneRequest::of(&request)) {
                    (Some(request), _) => server.look_after(&request),
                    (_, Some(request)) => server.clone_path(&request),
                    _ => json!({ "error": "the server of this mount does not know that request" }),
                };
                let _ = stream.write_all(format!("{answer}\n").as_bytes());
                return;
            }
        }
    }
}

/// Input from a client.
enum Heard {
    Nothing,
    /// It has disconnected, or sent no valid request.
    End,
    Request(Value),
}

/// Waits for a line, at most for the pause between two lines of status.
fn listen(stream: &mut UnixStream) -> Heard {
    let mut line = Vec::new();
    loop {
        let mut some = [0; 4096];
        match stream.read(&mut some) {
            Ok(0) => return Heard::End,
            Ok(len) => line.extend_from_slice(&some[..len]),
            Err(error)
                if line.is_empty()
                    && matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
            {
                return Heard::Nothing;
            }
            Err(_) => return Heard::End,
        }
        if line.ends_with(b"\n") {
            return serde_json::from_slice(&line).map_or(Heard::End, Heard::Request);
        }
        if line.len() > REQUEST_MAX {
            return Heard::End;
        }
    }
}

fn status(server: &Server, at: &Path) -> Value {
    let state = server.state();
    let (inodes, open) = server.inode_counts();
    let mut said = json!({
        "schema": SCHEMA,
        "version": VERSION,
        "image": server.options.shown(),
        "directory": show::path(at),
        "read_only": state.read_only,
        "host_full": state.host_full,
        "path_leads": match state.standing {
            Standing::Same => "here",
            Standing::Replaced => "elsewhere",
            Standing::Gone => "nowhere",
        },
        "errors": state.errors,
        "last_error": state.told.last,
        "read_only_because": state.told.read_only,
        "uptime_seconds": state.uptime.as_secs(),
        "inodes": inodes,
        "open": open,
        "operations": server.counters.json(),
    });
    let volume = server.look(|fs| volume(fs).as_object().cloned().unwrap_or_default());
    if let Value::Object(fields) = &mut said {
        fields.extend(volume);
    }
    said
}

fn volume(fs: &Fs) -> Value {
    let volume = fs.volume();
    let (store, io) = (volume.store(), volume.io_counts());
    let (used, size) = volume.log_fill();
    let Blocks { total, free, available } = volume.blocks().unwrap_or_default();
    let block = betr_core::ids::BLOCK_SIZE as u64;
    let level = |level: &betr_core::store::Level| {
        json!({
            "tree": level.tree.to_string(),
            "height": level.height.0,
            "nodes": level.nodes,
            "messages": level.messages,
            "pending_bytes": level.pending_bytes,
        })
    };
    let counters: serde_json::Map<String, Value> = volume
        .counters()
        .named()
        .into_iter()
        .map(|(name, count)| (name.into(), count.into()))
        .collect();
    json!({
        "cache": {
            "bytes": store.cached_bytes(),
            "dirty_bytes": store.dirty_bytes(),
            "budget_bytes": store.budget().total_bytes,
        },
        "log": { "used_bytes": used, "bytes": size, "unsynced": volume.has_unsynced() },
        "space": {
            "free_bytes": free * block,
            "available_bytes": available * block,
            "bytes": total * block,
        },
        "device": {
            "reads": io.reads,
            "read_bytes": io.read_bytes,
            "writes": io.writes,
            "written_bytes": io.written_bytes,
            "flushes": io.flushes,
        },
        "epoch": volume.superblock().birth.epoch.0,
        "counters": counters,
        "levels": store.levels().iter().map(level).collect::<Value>(),
    })
}
