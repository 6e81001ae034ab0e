//! `betr receive`: creates an image from a stream, or adds a snapshot to one.
//!
//! A stream from a pipe is stored in a file beside the image until it is complete and verified. Then it is applied to
//! the image atomically: either all of it is durable, with the snapshot, or nothing.

use std::ffi::OsString;
use std::fs::{File, OpenOptions as FileOptions};
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use betr_cli::codes::GENERAL;
use betr_cli::image::{self, Access, NewImage};
use betr_cli::size::{human, parse_size};
use betr_cli::volume::{failure, nonces};
use betr_cli::{Exit, Failure, Io, show};
use betr_core::device::Device;
use betr_core::format::Features;
use betr_core::ids::Hash;
use betr_core::store::CacheBudget;
use betr_core::volume::{Content, CreateOptions, Mode, OpenOptions, Volume};
use betr_offline::compare::{Touched, touched};
use betr_offline::transfer::{Arrival, Changes};

use super::stream::{Header, MAGIC, StreamError, StreamReader};
use super::{Moved, hash};

/// Make an image, or a snapshot more of one, of a stream of betr send
///
/// A stream of a whole snapshot makes a new image. A stream that was sent with --from goes into an image that has the snapshot which it was made
/// from, as its hash tells, and that has not changed since. Afterwards the image is what was sent, and keeps it as a snapshot of the same
/// name; its hash is compared. Until then nothing of it is in the image.
///
/// What comes through a pipe is kept in IMAGE.partial until all of it is there. If it ends early, what has come stays: 'betr send --skip'
/// sends the rest, and the same command goes on with it.
#[derive(clap::Args, Debug)]
#[command(after_help = GENERAL.to_string())]
pub struct Args {
    /// Read the stream from this file, instead of standard input
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Say nothing on standard output
    #[arg(short, long)]
    quiet: bool,
    /// The image
    image: PathBuf,
    /// The size of a new image; by default that of the image that was sent
    #[arg(value_parser = parse_size)]
    size: Option<u64>,
}

/// Runs the tool.
pub fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    let (header, mut stream, spool) = match &args.input {
        Some(input) => {
            let (header, stream) = Stream::of_file(input, !args.quiet)?;
            (header, stream, None)
        }
        None => {
            let spool = partial(&args.image);
            let (header, stream) = Stream::through(&args.image, &spool, !args.quiet)?;
            (header, stream, Some(spool))
        }
    };
    match header.base {
        None => receive_whole(args, &header, &mut stream)?,
        Some(_) => receive_more(args, &header, &mut stream)?,
    }
    if let Some(spool) = spool {
        std::fs::remove_file(&spool).map_err(at(&spool))?;
    }
    if !args.quiet {
        let (name, snapshot) = (show::path(&args.image), show::bytes(header.name.as_bytes()));
        writeln!(io.out, "{name}: snapshot '{snapshot}' received, {}", human(stream.bytes))?;
    }
    Ok(Exit::DONE)
}

fn at(path: &Path) -> impl Fn(std::io::Error) -> Failure + '_ {
    move |error| Failure::failed(format!("{}: {error}", show::path(path)))
}

/// The file that stores an incomplete stream.
fn partial(image: &Path) -> PathBuf {
    let mut name = OsString::from(image);
    name.push(".partial");
    name.into()
}

/// A complete and verified stream in a file.
struct Stream {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Stream {
    /// Opens a stream in a file, and verifies all of it.
    fn of_file(path: &Path, wanted: bool) -> Result<(Header, Stream), Failure> {
        let file = File::open(path).map_err(at(path))?;
        let wrong = |error| Failure::damaged(format!("{}: {error}", show::path(path)));
        let (header, _, mut reader) =
            StreamReader::open(BufReader::with_capacity(1 << 20, &file)).map_err(wrong)?;
        let moved = Moved::default();
        let _meter = moved.meter(wanted, "Verifying the stream");
        loop {
            let chunk = reader.next_chunk().map_err(wrong)?;
            moved.add(chunk.raw.len() as u64);
            if chunk.changes.is_empty() {
                break;
            }
        }
        let bytes = reader.bytes;
        Ok((header, Stream { path: path.to_owned(), file, bytes }))
    }

    /// Reads a stream from standard input, the first part of which may be in the file `spool` already. On return the
    /// file has all of it.
    fn through(image: &Path, spool: &Path, wanted: bool) -> Result<(Header, Stream), Failure> {
        let mut first = [0; MAGIC.len()];
        let stdin = std::io::stdin();
        let failed = |error: std::io::Error| Failure::failed(format!("standard input: {error}"));
        let read = read_some(&mut stdin.lock(), &mut first).map_err(failed)?;
        let input = first[..read].chain(BufReader::with_capacity(1 << 20, stdin.lock()));
        let name = show::path(image);
        let begins = first == *MAGIC;
        let wrong = |error: StreamError| Failure::damaged(format!("{name}: the stream: {error}"));
        let mut options = FileOptions::new();
        let options = options.read(true).write(true);
        let (header, mut reader, mut file) = if begins {
            let (header, raw, reader) = StreamReader::open(input).map_err(wrong)?;
            let mut file = options.create(true).truncate(true).open(spool).map_err(at(spool))?;
            file.write_all(&raw).map_err(at(spool))?;
            (header, reader, file)
        } else {
            let file = options.open(spool).map_err(|_| {
                let text = "no stream of betr send, nor the rest of one that was begun";
                Failure::damaged(format!("{name}: the stream: {text}"))
            })?;
            let (header, reader) = known(&file, spool)?;
            (header, reader.go_on(input), file)
        };
        file.set_len(reader.bytes).map_err(at(spool))?;
        file.seek(SeekFrom::End(0)).map_err(at(spool))?;
        let moved = Moved::default();
        moved.add(reader.bytes);
        let meter = moved.meter(wanted, "Receiving");
        loop {
            let chunk = reader.next_chunk().map_err(|error| {
                let (kept, bytes) = (show::path(spool), reader_bytes(&file));
                Failure::damaged(format!(
                    "{name}: the stream: {error}\nThe first {bytes} bytes are kept in {kept}; 'betr send --skip {bytes}' sends the rest."
                ))
            })?;
            file.write_all(&chunk.raw).map_err(at(spool))?;
            moved.add(chunk.raw.len() as u64);
            if chunk.changes.is_empty() {
                break;
            }
        }
        drop(meter);
        let bytes = reader.bytes;
        Ok((header, Stream { path: spool.to_owned(), file, bytes }))
    }

    /// Applies all entries to a volume, and verifies that its contents match the sent ones.
    fn put_into(
        &mut self,
        volume: &mut Volume,
        header: &Header,
        args: &Args,
        at_image: &dyn Fn(betr_core::Error) -> Failure,
    ) -> Result<(), Failure> {
        let wrong =
            |error: StreamError| Failure::damaged(format!("{}: {error}", show::path(&self.path)));
        self.file.seek(SeekFrom::Start(0)).map_err(at(&self.path))?;
        let input = BufReader::with_capacity(1 << 20, &self.file);
        let (_, _, mut reader) = StreamReader::open(input).map_err(wrong)?;
        let moved = Moved::default();
        let meter = moved.meter(!args.quiet, "Writing");
        let mut arrival = Arrival::new(volume, header.wall).map_err(at_image)?;
        loop {
            let chunk = reader.next_chunk().map_err(wrong)?;
            moved.add(chunk.raw.len() as u64);
            if chunk.changes.is_empty() {
                break;
            }
            for change in chunk.changes {
                arrival.put(change).map_err(at_image)?;
            }
        }
        arrival.end(header.next).map_err(at_image)?;
        drop(meter);
        let found = hash(volume, !args.quiet, "Verifying").map_err(at_image)?;
        if found != header.content {
            return Err(differs(&args.image, "what was received", &header.content, &found));
        }
        volume.take_hold(&header.name).map_err(at_image)
    }
}

/// The length of the file that stores the stream.
fn reader_bytes(file: &File) -> u64 {
    file.metadata().map_or(0, |meta| meta.len())
}

fn read_some(input: &mut impl Read, buf: &mut [u8]) -> std::io::Result<usize> {
    let mut read = 0;
    while read < buf.len() {
        match input.read(&mut buf[read..])? {
            0 => break,
            more => read += more,
        }
    }
    Ok(read)
}

/// The verified part of an incomplete stream in a file.
fn known(file: &File, path: &Path) -> Result<(Header, StreamReader<std::io::Empty>), Failure> {
    let wrong = |error| Failure::damaged(format!("{}: {error}", show::path(path)));
    let input = BufReader::with_capacity(1 << 20, file);
    let (header, _, mut reader) = StreamReader::open(input).map_err(wrong)?;
    // The file may end within a chunk, which is not part of the verified part then.
    while reader.next_chunk().is_ok_and(|chunk| !chunk.changes.is_empty()) {}
    Ok((header, reader.go_on(std::io::empty())))
}

fn differs(image: &Path, what: &str, expected: &Hash, found: &Hash) -> Failure {
    let name = show::path(image);
    Failure::failed(format!("{name}: {what}: expected content hash {expected}, found {found}"))
}

/// Creates a new image.
fn receive_whole(args: &Args, header: &Header, stream: &mut Stream) -> Result<(), Failure> {
    let bytes = args.size.unwrap_or(header.image_bytes);
    let new: NewImage = image::create(&args.image, bytes, false)?;
    new.begin()?;
    let device = new.device(bytes);
    let at_image = |error: betr_core::Error| failure(&args.image, None, &error);
    let mut uuid = [0; 16];
    uuid.copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    let content = match header.incompatible & Features::KEYS {
        0 => Content::Files,
        _ => Content::Keys,
    };
    let options = CreateOptions {
        label: header.label.clone(),
        log_bytes: header.log_bytes,
        zones: header.zones,
        content,
        cache: CacheBudget::of(192 << 20),
        ..CreateOptions::new(uuid, bytes, nonces()?)
    };
    let mut volume = Volume::create(device, options).map_err(at_image)?;
    stream.put_into(&mut volume, header, args, &at_image)?;
    drop(volume);
    Ok(new.commit()?)
}

/// Applies a stream that is based on a snapshot of the image.
fn receive_more(args: &Args, header: &Header, stream: &mut Stream) -> Result<(), Failure> {
    let Some((base_hash, base_name)) = &header.base else { return Ok(()) };
    let name = show::path(&args.image);
    if args.size.is_some() {
        let text = "a SIZE is for a new image, and the stream is based on a snapshot of this one";
        return Err(Failure::usage(format!("{name}: {text}")));
    }
    let device: Arc<dyn Device> = image::open(&args.image, Access::Write)?.device();
    let at_image = |error: betr_core::Error| failure(&args.image, Some(&device), &error);
    let options = OpenOptions {
        content: None,
        punch: true,
        cache: CacheBudget::of(192 << 20),
        ..OpenOptions::new(Mode::ReadWrite, nonces()?)
    };
    let (mut volume, _) = Volume::open(device.clone(), options).map_err(at_image)?;
    if volume.superblock().zones != header.zones {
        let text = "its zones have other sizes than those of the image that was sent";
        return Err(Failure::failed(format!("{name}: {text}")));
    }
    if volume.holds().map_err(at_image)?.iter().any(|hold| hold.name == header.name) {
        let snapshot = show::bytes(header.name.as_bytes());
        return Err(Failure::failed(format!("{name}: there is a snapshot '{snapshot}' already")));
    }
    let hold = volume.hold(base_name).map_err(|error| {
        let shown = show::bytes(base_name.as_bytes());
        Failure::failed(format!("{name}: the stream was made from '{shown}': {error}"))
    })?;
    if volume.has_changes() {
        volume.checkpoint().map_err(at_image)?;
    }
    let base = volume.open_hold(&hold, CacheBudget::default()).map_err(at_image)?;
    let found = hash(&base, !args.quiet, "Hashing the base").map_err(at_image)?;
    let shown = show::bytes(base_name.as_bytes());
    if found != *base_hash {
        let what = format!("snapshot '{shown}', from which the stream was made");
        return Err(differs(&args.image, &what, base_hash, &found));
    }
    let touched = touched(&base, &volume, <[Touched; 2]>::default());
    let changed = Changes::between(&base, &volume, touched).next_change();
    if let Some((tree, key, _)) = changed.map_err(|unread| at_image(unread.error))? {
        return Err(Failure::failed(format!(
            "{name}: it has changed since snapshot '{shown}' was taken, first at {}: go back with 'betr snapshot rollback {name} {shown}'",
            show::key(tree, &key)
        )));
    }
    stream.put_into(&mut volume, header, args, &at_image)
}
