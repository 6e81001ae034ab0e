//! Crafted images: every hash is right, but another field is wrong. The checker reports it where it can. Neither the
//! checker nor a reader nor a writer panics, hangs, or takes more memory than the image warrants.

mod bindings;
#[path = "crafted/forge.rs"]
mod forge;
mod leaves;
mod logs;
mod nodes;
mod runs;
mod scattered;
mod schema;
mod tables;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use betr_core::Result;
use betr_core::check::{CheckOptions, Code, Repairable, Report, check};
use betr_core::device::Device;
use betr_core::format::*;
use betr_core::fs::{Attributes, Changes, FIRST_INO, Fs, New, Over, ROOT_ZONE, Walk};
use betr_core::ids::*;
use betr_core::mend::repair;
use betr_core::volume::{Mode, Transaction};
use betr_tests::{clock, open, tight};
use bytes::Bytes;
use forge::Forge;

/// The expected result of the checker.
#[derive(Clone, Copy, Debug)]
enum Says {
    /// No finding.
    Clean,
    /// At least one error, of any code.
    Wrong,
    /// At least this code.
    Finds(Code),
}

use Says::{Clean, Finds, Wrong};

type Case = (&'static str, Says, fn(Forge) -> Vec<u8>);

/// A case counts as hanging after 60 s: the slowest takes 4 s on a quiet core.
const PATIENCE: Duration = Duration::from_secs(60);
/// The memory limit of a test in KiB (384 MiB).
const MEMORY_KIB: u64 = 384 << 10;
/// Set in the process that runs a single test.
const ALONE: &str = "BETR_CRAFTED_ALONE";
const IMAGE: u64 = 5 << 20;
/// The largest number that any field may have.
const LAST: u64 = limits::NUMBERS_END - 1;
const META: TreeId = TreeId::Metadata;
const DATA: TreeId = TreeId::Data;

// Building blocks of the cases.

fn internals(forge: &Forge, tree: TreeId, height: u8) -> Vec<NodeId> {
    let wanted = |entry: &Entry| entry.tree == tree && entry.height == Height(height);
    forge.nodes().into_iter().filter(|(_, entry)| wanted(entry)).map(|(id, _)| id).collect()
}

/// An internal node of height 1 with at least two children, and its head.
fn parent(forge: &mut Forge) -> (NodeId, InternalHead) {
    let ids = internals(forge, DATA, 1);
    let mut heads = ids.into_iter().map(|id| (id, forge.internal(id)));
    heads.find(|(_, head)| head.children.len() >= 2).expect("a node with children")
}

fn key(bytes: &[u8]) -> Key {
    Key::copied(bytes)
}

fn insert(tree: TreeId, key: Key, value: impl Into<Bytes>) -> RecordMessage {
    RecordMessage::Point(tree, key, Action::Insert(value.into()))
}

fn message(msn: u64, value: &[u8]) -> Message {
    Message { msn: Msn(msn), action: Action::Insert(Bytes::copy_from_slice(value)) }
}

/// The image with these messages applied to its trees.
fn committed(forge: Forge, messages: Vec<RecordMessage>) -> Vec<u8> {
    let device = std::sync::Arc::new(betr_core::device::MemoryDevice::from(forge.seal()));
    let mut volume = open(device.clone(), Mode::ReadWrite, tight(), 9).unwrap().0;
    for messages in messages.chunks(64) {
        let messages = messages.to_vec();
        volume.commit(Transaction { op: Op::Raw, wall: Time::default(), messages }).unwrap();
    }
    volume.checkpoint().unwrap();
    device.snapshot()
}

/// The image with these messages in its log.
fn logged(mut forge: Forge, messages: Vec<RecordMessage>) -> Vec<u8> {
    forge.log(messages);
    forge.seal()
}

fn inode(kind: FileType, ino: u64) -> Inode {
    let time = Time::default();
    Inode {
        kind,
        perm: 0o755,
        uid: 0,
        gid: 0,
        links: if kind == FileType::Directory { 2 } else { 1 },
        size: 0,
        ino: Ino(ino),
        data_zone: None,
        accessed: time,
        modified: time,
        changed: time,
        born: time,
        device: (0, 0),
        lineage: Lineage::NONE,
        target: Vec::new(),
        parent: None,
        sparse: false,
        sums: Sums::default(),
    }
}

fn put(place: &MetaKey, inode: &Inode) -> RecordMessage {
    insert(META, place.encode(), inode.encode())
}

fn refer(place: &MetaKey, kind: FileType, ino: u64, zone: u64) -> RecordMessage {
    let link = if kind == FileType::Directory { LinkKind::Own } else { LinkKind::Link };
    let reference = ZoneRef { link, kind, ino: Ino(ino), zone: ZoneId(zone) };
    insert(META, place.encode(), reference.encode())
}

fn root() -> MetaKey {
    MetaKey::root(ROOT_ZONE)
}

fn zone(zone: u64) -> MetaKey {
    MetaKey::root(ZoneId(zone))
}

/// A directory `name` in zone `from` with a zone `to` of its own, which names `back` as its parent.
fn directory(from: u64, name: &[u8], to: u64, back: u64) -> Vec<RecordMessage> {
    let parent = Some(Parent { zone: ZoneId(back), name: name.to_vec() });
    let inode = Inode { parent, ..inode(FileType::Directory, 1000 + to) };
    vec![refer(&zone(from).child(name), FileType::Directory, 1000 + to, to), put(&zone(to), &inode)]
}

/// A directory in the root whose zone has a lineage.
fn cloned(number: u64, name: &[u8], lineage: Lineage) -> Vec<RecordMessage> {
    let parent = Some(Parent { zone: ROOT_ZONE, name: name.to_vec() });
    let ino = 1_000_000 + number;
    let inode = Inode { parent, lineage, ..inode(FileType::Directory, ino) };
    vec![refer(&root().child(name), FileType::Directory, ino, number), put(&zone(number), &inode)]
}

/// Raises the counters above the numbers that the cases use.
fn raised(mut forge: Forge) -> Forge {
    forge.superblock.next.zone = ZoneId(1 << 20);
    forge.superblock.next.ino = Ino(1 << 20);
    forge.superblock.next.tag = Tag(1 << 10);
    forge
}

/// The first leaf of the data index; it has a right neighbour, so its bounds have an end.
fn leaf(forge: &mut Forge) -> (NodeId, Bounds) {
    let (id, head) = parent(forge);
    let child = forge.internal(id).children[0].id;
    let bounds = forge.leaf(child).bounds;
    assert!(bounds.hi.is_some() && !head.children.is_empty());
    (child, bounds)
}

// The checks of each case.

/// The peak resident memory of the process so far, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Tries many operations; refusals are allowed.
fn work(device: std::sync::Arc<dyn betr_core::device::Device>) -> Result<()> {
    let volume = open(device, Mode::ReadWrite, tight(), 4)?.0;
    let mut fs = Fs::open(volume, clock(9000));
    let root = fs.root()?;
    let attributes = Attributes::at(Time::default());
    let first = fs.list(&root).unwrap_or_default();
    for round in 0..3 {
        let name = |at: usize| format!("new-{}", at + 10 * round).into_bytes();
        for at in 0..10 {
            let kind = if at % 4 == 3 { FileType::Directory } else { FileType::Regular };
            let Ok(made) = fs.make(&root, &name(at), New::of(kind, attributes)) else { continue };
            let _ = fs.write(&made, 100, &Bytes::from(vec![at as u8 + 1; 1500 * at]));
            let _ = fs.write(&made, 1 << 40, &Bytes::from(vec![at as u8 + 1; 15]));
            let _ = fs.set_xattrs(&made, &[(b"user.x".to_vec(), vec![3; 300])]);
            let _ = fs.make(&made, b"below", New::of(kind, attributes));
        }
        let _ = fs.volume_mut().sync();
        for entry in first.iter().skip(round).step_by(3) {
            let Ok(object) = fs.lookup(&root, &entry.name) else { continue };
            let _ = fs.list(&object);
            let _ = fs.make(&object, &[b'l'; 255], New::of(FileType::Directory, attributes));
            let _ = fs.set_attributes(&object, Changes { perm: Some(0o700), ..Changes::default() });
            let _ = fs.write(&object, 5, &Bytes::from(vec![5; 5000]));
            let _ = fs.truncate(&object, 3);
            let _ = fs.link(&object, &root, &[b"l-", &entry.name[..]].concat());
            let _ = fs.clone_object(&object, &root, &[b"c-", &entry.name[..]].concat());
            let directory = fs.lookup(&root, &name(3)).unwrap_or_else(|_| root.clone());
            let _ = fs.rename(&root, &entry.name, &directory, b"moved", Over::Replace);
            let _ = fs.rename(&root, &name(3), &object, b"moved", Over::Replace);
            let _ = fs.unlink(&root, &entry.name);
            let _ = fs.rmdir(&root, &entry.name);
        }
        let _ = fs.checkpoint();
    }
    let mut walk = Walk::new(fs.root()?);
    while let Ok(Some((_, object))) = walk.next_object(&fs) {
        let _ = fs.find(&object, &[b'l'; 255]);
        let _ = fs.set_xattrs(&object, &[(vec![b'x'; 255], vec![3; 300])]);
        let _ = fs.make(&object, &[b'm'; 255], New::of(FileType::Symlink, attributes));
        let _ = fs.write(&object, 70_000, &Bytes::from(vec![5; 5000]));
        let _ = fs.truncate(&object, 69_000);
    }
    fs.checkpoint()
}

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    args: betr_dump::Args,
}

/// The sound image from which the cases are made.
fn sound() -> &'static [u8] {
    static SOUND: OnceLock<Vec<u8>> = OnceLock::new();
    SOUND.get_or_init(|| super::hostile::image(IMAGE))
}

/// Runs all read-only tools on the image.
fn look(bytes: &[u8]) {
    let path = std::env::temp_dir().join(format!(
        "betr-crafted-{}-{:?}.img",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::write(&path, bytes).unwrap();
    let image = path.to_str().unwrap();
    for words in [
        &["super"][..],
        &["table"],
        &["tree"],
        &["node", "1"],
        &["node", "2"],
        &["log"],
        &["path", "/"],
        &["space"],
        &["stats"],
        &["messages"],
        &["all", "--ndjson"],
        &["block", "b:0x64010"],
        &["key", "k#1:0000000000000000"],
    ] {
        let line = [&["dump", image][..], words].concat();
        let args = <Line as clap::Parser>::try_parse_from(line).unwrap().args;
        let (mut out, mut err) = (Printed(0), Vec::new());
        let _ = betr_dump::run(&args, &mut betr_cli::Io::plain(&mut out, &mut err));
        let most = PRINTED_TIMES * bytes.len() as u64;
        assert!(out.0 <= most, "{words:?} prints {} bytes", out.0);
    }
    for words in [&["list"][..], &["verify"], &["diff", "-k"], &["timeline", "--no-hash"]] {
        let line = [&["replay", image][..], words].concat();
        let args = <ReplayLine as clap::Parser>::try_parse_from(line).unwrap().args;
        let (mut out, mut err) = (Printed(0), Vec::new());
        let _ = betr_replay::run(&args, &mut betr_cli::Io::plain(&mut out, &mut err));
    }
    for words in [&["/"][..], &["k#1:0000000000000000", "--as-of", "checkpoint"]] {
        let line = [&["explain", image][..], words].concat();
        let args = <ExplainLine as clap::Parser>::try_parse_from(line).unwrap().args;
        let (mut out, mut err) = (Printed(0), Vec::new());
        let _ = betr_dump::explain::run(&args, &mut betr_cli::Io::plain(&mut out, &mut err));
    }
    let line = ["pack", image, "-"];
    let args = <PackLine as clap::Parser>::try_parse_from(line).unwrap().args;
    let (mut out, mut err) = (Printed(0), Vec::new());
    let _ = betr_pack::run(&args, &mut betr_cli::Io::plain(&mut out, &mut err));
    for words in [&["/"][..], &["--absent", "/no/such/name"]] {
        let line = [&["prove", image][..], words].concat();
        let args = <ProveLine as clap::Parser>::try_parse_from(line).unwrap().args;
        let (mut out, mut err) = (Printed(0), Vec::new());
        let _ = betr_pack::proof::prove::run(&args, &mut betr_cli::Io::plain(&mut out, &mut err));
    }
    // The inspector reports the damage as well, and reads no further.
    for words in [&["node"][..], &["space"], &["zones"], &["key"], &["log"], &["refs"], &["hex"]] {
        let line = [&["inspect", image, "--screenshot", "132x43", "--screen"][..], words].concat();
        let args = <InspectLine as clap::Parser>::try_parse_from(line).unwrap().args;
        let (mut out, mut err) = (Printed(0), Vec::new());
        let _ = betr_tui_inspect::run(&args, &mut betr_cli::Io::plain(&mut out, &mut err));
    }
    let other = path.with_extension("sound");
    std::fs::write(&other, sound()).unwrap();
    let other = other.to_str().unwrap();
    for (a, b) in [(image, image), (image, other), (other, image)] {
        for words in [&[][..], &["--structure"]] {
            let line = [&["diff", a, b][..], words].concat();
            let args = <DiffLine as clap::Parser>::try_parse_from(line).unwrap().args;
            let (mut out, mut err) = (Printed(0), Vec::new());
            let done = betr_dump::diff::run(&args, &mut betr_cli::Io::plain(&mut out, &mut err));
            // Readable parts are equal to themselves.
            assert!(a != b || done.is_err() || out.0 == 0, "{words:?}: it differs from itself");
        }
    }
    let _ = (std::fs::remove_file(&path), std::fs::remove_file(other));
}

#[derive(clap::Parser)]
struct InspectLine {
    #[command(flatten)]
    args: betr_tui_inspect::Args,
}

#[derive(clap::Parser)]
struct ProveLine {
    #[command(flatten)]
    args: betr_pack::proof::prove::Args,
}

#[derive(clap::Parser)]
struct DiffLine {
    #[command(flatten)]
    args: betr_dump::diff::Args,
}

#[derive(clap::Parser)]
struct ExplainLine {
    #[command(flatten)]
    args: betr_dump::explain::Args,
}

#[derive(clap::Parser)]
struct PackLine {
    #[command(flatten)]
    args: betr_pack::Args,
}

/// The most bytes printed per byte of the image: hexadecimal digits, plus names and offsets of short fields.
const PRINTED_TIMES: u64 = 40;

/// The number of bytes printed.
struct Printed(u64);

impl std::io::Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[derive(clap::Parser)]
struct ReplayLine {
    #[command(flatten)]
    args: betr_replay::Args,
}

/// A device that counts the bytes read.
struct Counting {
    below: std::sync::Arc<dyn Device>,
    read: AtomicU64,
}

impl Device for Counting {
    fn len(&self) -> u64 {
        self.below.len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.below.read_at(at, buf)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.below.write_at(at, bytes)
    }

    fn flush(&self) -> std::io::Result<()> {
        self.below.flush()
    }
}

/// A check reads each byte of the image at most 5 times: tables and log once before they are trusted, nodes once for
/// structure and once for content, and both again after a replay.
const READ_TIMES: u64 = 5;

/// Checks a case, and that the work is proportional to the length of the image, whatever its fields say.
fn checked(bytes: &[u8]) -> Report {
    let len = bytes.len() as u64;
    let read = AtomicU64::new(0);
    let counting = std::sync::Arc::new(Counting { below: Forge::device(bytes.to_vec()), read });
    let device: std::sync::Arc<dyn Device> = counting.clone();
    let report = check(&device, CheckOptions::ALL, &mut ());
    let read = counting.read.load(Ordering::Relaxed);
    assert!(read <= READ_TIMES * len, "{read} bytes read of an image of {len}");
    let blocks = len / BLOCK_SIZE as u64;
    assert!(report.counts.nodes <= blocks, "{} nodes in {blocks} blocks", report.counts.nodes);
    report
}

/// Runs a case; a failure is a panic.
fn run(says: Says, bytes: Vec<u8>) {
    let device = Forge::device(bytes.clone());
    let report = checked(&bytes);
    let codes: Vec<Code> = report.findings.iter().map(|finding| finding.code).collect();
    let right = match says {
        Clean => report.is_clean(),
        Wrong => !report.is_clean(),
        Finds(code) => codes.contains(&code),
    };
    assert!(right, "expected {says:?}: {:?}", report.findings.iter().take(9).collect::<Vec<_>>());
    let read = super::hostile::read_all(device.clone());
    assert!(!matches!(says, Clean) || read.is_ok(), "{read:?}");
    look(&bytes);
    mend(bytes, &report);
    let _ = work(device.clone());
    // The result can be checked and read as well.
    check(&device, CheckOptions::ALL, &mut ());
    let _ = super::hostile::read_all(device);
}

/// Repairs the image if possible; afterwards it must be sound.
fn mend(bytes: Vec<u8>, before: &Report) {
    if matches!(before.repairable(), Repairable::Nothing | Repairable::No) {
        return;
    }
    let device = Forge::device(bytes);
    let done = repair(&device, before, None, Time::default(), Box::new(|| 5));
    let done = match done {
        // The content does not fit into the image.
        Err(betr_core::Error::NoSpace { .. }) => return,
        done => done.unwrap_or_else(|error| panic!("{error}: {:?}", before.findings)),
    };
    let after = check(&device, CheckOptions::ALL, &mut ());
    let some = |report: &Report| report.findings.iter().take(9).cloned().collect::<Vec<_>>();
    assert!(
        after.findings.is_empty(),
        "{:?}, repaired: {:?}: {done:?}",
        some(before),
        some(&after)
    );
}

/// An image with a scattered leaf.
pub(crate) fn scattered_image() -> Vec<u8> {
    scattered::sound(Forge::new(sound().to_vec()))
}

/// Runs the cases of `test` in a process of their own, because other tests in this process would count towards the
/// memory limit.
fn run_all(test: &str, cases: &'static [Case]) {
    if std::env::var_os(ALONE).is_none() {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "--nocapture", &format!("crafted::{test}")]).env(ALONE, "yes");
        let output = again.output().unwrap();
        let (out, err) = (&output.stdout, &output.stderr);
        let said = [&out[..], &err[..]].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let sound = Forge::new(sound().to_vec());
    let only = std::env::var("BETR_CASE").unwrap_or_default();
    let mut failed = Vec::new();
    for (name, says, make) in cases.iter().filter(|case| case.0.contains(&only)) {
        let (send, receive) = channel();
        let forge = sound.clone();
        let before = peak_kib();
        let thread = std::thread::spawn(move || {
            run(*says, make(forge));
            let _ = send.send(());
        });
        let result = receive.recv_timeout(PATIENCE);
        let text = match result {
            Err(RecvTimeoutError::Timeout) => "takes too long".to_string(),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => match thread.join() {
                Ok(()) if peak_kib() <= MEMORY_KIB.max(before) => continue,
                Ok(()) => format!("took {} KiB of memory", peak_kib()),
                Err(panic) => {
                    match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
                        (Some(text), _) => text.clone(),
                        (None, Some(text)) => text.to_string(),
                        (None, None) => "panics".to_string(),
                    }
                }
            },
        };
        failed.push(format!("{name}: {text}"));
    }
    println!("{test}: at most {} KiB", peak_kib());
    assert!(failed.is_empty(), "{} of {} cases:\n{}", failed.len(), cases.len(), failed.join("\n"));
}

#[test]
fn crafted_nodes() {
    run_all("crafted_nodes", nodes::CASES);
}

#[test]
fn crafted_leaves() {
    run_all("crafted_leaves", leaves::CASES);
}

#[test]
fn crafted_runs() {
    run_all("crafted_runs", runs::CASES);
}

#[test]
fn crafted_tables_and_superblocks() {
    run_all("crafted_tables_and_superblocks", tables::CASES);
}

#[test]
fn crafted_scatter_maps() {
    run_all("crafted_scatter_maps", scattered::CASES);
}

#[test]
fn crafted_logs() {
    run_all("crafted_logs", logs::CASES);
}

#[test]
fn crafted_bindings() {
    run_all("crafted_bindings", bindings::CASES);
}

#[test]
fn crafted_file_systems() {
    run_all("crafted_file_systems", schema::CASES);
}
