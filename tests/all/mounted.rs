//! Faults below a mount: power cuts and device errors. The steps are system calls, through the kernel.
//!
//! The writes to the device are cut off at any point. Each step is one or two changes, so the recovered state must be
//! that after some step: not before the last one acknowledged as synced at the power cut, and not after the last one
//! that had begun.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Result;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use betr_cli::skip::need;
use betr_core::check::{CheckOptions, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::fs::{Allocate, Fs};
use betr_core::ids::BLOCK_SIZE;
use betr_core::store::Geometry;
use betr_core::volume::{Blocks, Mode};
use betr_lab::explore::devices::{Call, FaultyDevice, ForkDevice, RecordingDevice, Trouble};
use betr_lab::explore::{Broken, Model, Step, Sweep, random_steps};
use betr_mount::Mounted;
use betr_tests::{Gate, Keeper, Random, clock, formatted, made, open, rounds, tight, tiny};

use crate::emptied::{case_of, seeds};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode as Perm, RenameFlags, XattrFlags, fallocate,
    linkat, mknodat, removexattr, renameat_with, setxattr,
};
use rustix::io::Errno;

const IMAGE: u64 = 4 << 20;
const STEPS: usize = 150;

/// Makes the system call of a step; `None` if it has none.
fn call(top: &Path, step: &Step) -> Option<Result<()>> {
    let at = |path: &[u8]| -> PathBuf {
        let inside = path.strip_prefix(b"/").unwrap_or(path);
        top.join(std::ffi::OsStr::from_bytes(inside))
    };
    // The kernel refuses user attributes on other objects; and it follows links.
    let plain = |path: &[u8], name: &[u8]| {
        let known = at(path).symlink_metadata();
        name.starts_with(b"user.") && known.is_ok_and(|meta| meta.is_file() || meta.is_dir())
    };
    let file = |path: &[u8]| OpenOptions::new().write(true).open(at(path));
    let rename =
        |from: &[u8], to: &[u8], flags| Ok(renameat_with(CWD, at(from), CWD, at(to), flags)?);
    Some(match step {
        Step::Mkdir(path) => DirBuilder::new().mode(0o600).create(at(path)),
        Step::Create(path) => {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600).open(at(path)).map(drop)
        }
        Step::Symlink(path, target) => symlink(std::ffi::OsStr::from_bytes(target), at(path)),
        Step::Mkfifo(path) => {
            mknodat(CWD, at(path), FileType::Fifo, Perm::from(0o600), 0).map_err(Into::into)
        }
        Step::Write { path, offset, len, fill } => {
            file(path).and_then(|file| file.write_all_at(&fill.bytes(*len), *offset))
        }
        Step::Truncate(path, size) => file(path).and_then(|file| file.set_len(*size)),
        Step::Unlink(path) => std::fs::remove_file(at(path)),
        Step::Rmdir(path) => std::fs::remove_dir(at(path)),
        Step::Rename(from, to) => rename(from, to, RenameFlags::empty()),
        Step::RenameNew(from, to) => rename(from, to, RenameFlags::NOREPLACE),
        Step::Exchange(from, to) => rename(from, to, RenameFlags::EXCHANGE),
        Step::Link(from, to) => {
            linkat(CWD, at(from), CWD, at(to), AtFlags::empty()).map_err(Into::into)
        }
        Step::Allocate { path, what, offset, len, keep_size } => {
            let mut flags = match what {
                Allocate::Reserve => FallocateFlags::empty(),
                Allocate::Punch => FallocateFlags::PUNCH_HOLE,
                Allocate::Zero => FallocateFlags::ZERO_RANGE,
            };
            flags.set(FallocateFlags::KEEP_SIZE, *keep_size);
            file(path).and_then(|file| Ok(fallocate(&file, flags, *offset, *len)?))
        }
        Step::SetXattr { path, name, len, fill } if plain(path, name) => {
            let name = std::ffi::OsStr::from_bytes(name);
            setxattr(at(path), name, &fill.bytes(*len), XattrFlags::empty()).map_err(Into::into)
        }
        Step::RemoveXattr(path, name) if plain(path, name) => {
            removexattr(at(path), std::ffi::OsStr::from_bytes(name)).map_err(Into::into)
        }
        Step::Sync | Step::Checkpoint => File::open(top).and_then(|top| top.sync_all()),
        // Several changes, or none.
        _ => return None,
    })
}

/// The beginning and end of a step, in events of the device.
struct Taken {
    began: usize,
    ended: usize,
    syncs: bool,
}

fn can_mount() -> bool {
    let fuse = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    need("root, and /dev/fuse", fuse)
}

fn error_of<T>(done: Result<T>) -> Option<Errno> {
    done.err().as_ref().and_then(Errno::from_io_error)
}

/// Mounts the file system of a device.
fn mount(device: Arc<dyn Device>, top: &Path) -> Mounted {
    let volume = open(device, Mode::ReadWrite, tight(), 2).unwrap().0;
    Mounted::new(Fs::open(volume, clock(100)), Path::new("some device"), top).unwrap()
}

/// A device with an empty file system.
fn empty_image() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(IMAGE));
    let mut fs = formatted(device.clone(), tiny(), tight(), 1);
    fs.checkpoint().unwrap();
    device
}

fn synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let file = File::create(path)?;
    file.write_all_at(bytes, 0)?;
    file.sync_all()
}

#[test]
fn a_device_that_cannot_be_written_makes_it_read_only() {
    if !can_mount() {
        return;
    }
    let (below, top) = (empty_image(), tempfile::tempdir().unwrap());
    let device = Arc::new(FaultyDevice::new(below.clone()));
    let mounted = mount(device.clone(), top.path());
    let at = |name: &str| top.path().join(name);
    synced(&at("before"), b"is durable").unwrap();
    let (_, writes, flushes) = device.calls();
    for later in 0..10_000 {
        device.plan(Call::Write(writes + later), Trouble::Error);
        device.plan(Call::Flush(flushes + later), Trouble::Error);
    }
    assert_eq!(error_of(synced(&at("late"), b"is not")), Some(Errno::IO));
    assert_eq!(error_of(File::create(at("later"))), Some(Errno::ROFS));
    assert_eq!(error_of(std::fs::remove_file(at("before"))), Some(Errno::ROFS));
    assert_eq!(std::fs::read(at("before")).unwrap(), b"is durable");
    assert_eq!(std::fs::read(at("late")).unwrap(), b"is not");
    mounted.unmount().unwrap();

    let mounted = mount(below.clone(), top.path());
    assert_eq!(std::fs::read(at("before")).unwrap(), b"is durable");
    synced(&at("again"), b"as ever").unwrap();
    mounted.unmount().unwrap();
    let below: Arc<dyn Device> = below;
    let report = check(&below, CheckOptions::ALL, &mut ());
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn what_cannot_be_read_is_an_error_for_who_reads_it() {
    if !can_mount() {
        return;
    }
    let (below, top) = (empty_image(), tempfile::tempdir().unwrap());
    let at = |name: &str| top.path().join(name);
    let mounted = mount(below.clone(), top.path());
    let marked = b"here it is ".repeat(3000);
    synced(&at("large"), &marked).unwrap();
    synced(&at("small"), b"fine").unwrap();
    mounted.unmount().unwrap();

    let image = below.snapshot();
    let device = Arc::new(FaultyDevice::new(below));
    let places: Vec<u64> = (0..image.len() / BLOCK_SIZE)
        .filter(|block| {
            image[block * BLOCK_SIZE..][..BLOCK_SIZE].windows(11).any(|w| w == b"here it is ")
        })
        .map(|block| (block * BLOCK_SIZE) as u64)
        .collect();
    assert!(places.len() > 4, "the contents were found");
    let mounted = mount(device.clone(), top.path());
    // The ends may share a block with data of others.
    let middle = places[places.len() / 2];
    device.spoil(middle..middle + BLOCK_SIZE as u64);
    assert_eq!(error_of(std::fs::read(at("large"))), Some(Errno::IO));
    assert_eq!(std::fs::read(at("small")).unwrap(), b"fine");
    assert_eq!(at("large").metadata().unwrap().len(), marked.len() as u64);
    // Other requests are not affected.
    synced(&at("more"), b"as ever").unwrap();
    assert_eq!(std::fs::read(at("more")).unwrap(), b"as ever");
    mounted.unmount().unwrap();
}

/// Writes files of up to 3000 bytes until the volume is full or `most` is reached; returns their number.
fn fill(top: &Path, most: usize) -> usize {
    let contents = |number: usize| vec![number as u8; 1 + number * 37 % 3000];
    let write = |number: usize| std::fs::write(top.join(number.to_string()), contents(number));
    (0..most).take_while(|number| write(*number).is_ok()).count()
}

fn delete_all(top: &Path) {
    for entry in std::fs::read_dir(top).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
}

fn blocks(top: &Path) -> Blocks {
    let space = rustix::fs::statvfs(top).unwrap();
    Blocks { total: space.f_blocks, free: space.f_bfree, available: space.f_bavail }
}

/// After many deletes the space becomes available soon, without another change.
#[test]
fn the_space_of_what_was_deleted_comes_back_by_itself() {
    if !can_mount() {
        return;
    }
    let device = Arc::new(MemoryDevice::new(16 * IMAGE));
    let fs = made(device.clone(), Geometry::of_image(16 * IMAGE));
    let fresh = fs.volume().blocks().unwrap();
    let top = tempfile::tempdir().unwrap();
    let mounted = Mounted::new(fs, Path::new("test"), top.path()).unwrap();
    assert_eq!(fill(top.path(), 10_000), 10_000);
    rustix::fs::syncfs(File::open(top.path()).unwrap()).unwrap();
    delete_all(top.path());
    let few = fresh.total / 50;
    assert!(blocks(top.path()).free + few < fresh.free, "deletes wait in buffers");
    let since = Instant::now();
    while blocks(top.path()).free + few < fresh.free {
        assert!(since.elapsed() < Duration::from_secs(30), "{:?}", blocks(top.path()));
        std::thread::sleep(Duration::from_millis(100));
    }
    // Unmounting frees it at once.
    fill(top.path(), 10_000);
    delete_all(top.path());
    mounted.unmount().unwrap();
    let below: Arc<dyn Device> = device;
    let report = check(&below, CheckOptions::ALL, &mut ());
    assert!(report.is_clean(), "{:?}", report.findings);
    let used = report.superblock.unwrap().used_blocks;
    assert!(used <= fresh.total - fresh.free + few, "{used} blocks used; {fresh:?}");
}

/// A full mount can be emptied, as a volume can (`emptied`).
#[test]
fn any_full_mount_can_be_emptied() {
    if !can_mount() {
        return;
    }
    for case in seeds(3).filter_map(case_of) {
        let text = format!("{case:?}");
        let device = Arc::new(MemoryDevice::new(case.bytes));
        let mut fs = formatted(device.clone(), case.geometry, case.cache, case.seed);
        fs.checkpoint().unwrap();
        drop(fs);
        let top = tempfile::tempdir().unwrap();
        let mut random = Random::new(case.seed);
        let again = |seed: u64| {
            let volume = open(device.clone(), Mode::ReadWrite, case.cache, seed).unwrap().0;
            Mounted::new(Fs::open(volume, clock(100)), Path::new("full"), top.path()).unwrap()
        };
        let mut mounted = again(random.next());
        for _ in 0..2 {
            let mut names: Vec<Vec<u8>> = Vec::new();
            for number in 0u64.. {
                let (least, most) = case.sizes;
                let contents =
                    random.bytes((least + random.clone().below(most - least + 1)) as usize);
                let name = format!("{:x}-{number}", random.below(1 << 30));
                let written = std::fs::write(top.path().join(&name), contents);
                if top.path().join(&name).exists() {
                    names.push(name.into_bytes());
                }
                match written {
                    Ok(()) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::StorageFull => break,
                    Err(error) => panic!("{text}: {error}"),
                }
                if random.below(500) == 0 {
                    rustix::fs::syncfs(File::open(top.path()).unwrap()).unwrap();
                }
            }
            case.order.arrange(&mut names, &mut random);
            for (at, name) in names.iter().enumerate() {
                let name = top.path().join(std::ffi::OsStr::from_bytes(name));
                let removed = std::fs::remove_file(name);
                removed.unwrap_or_else(|error| panic!("{text}: {at} of {}: {error}", names.len()));
                match random.below(800) {
                    0 => rustix::fs::syncfs(File::open(top.path()).unwrap()).unwrap(),
                    1 if random.below(4) == 0 => {
                        mounted.unmount().unwrap();
                        mounted = again(random.next());
                    }
                    _ => {}
                }
            }
        }
        mounted.unmount().unwrap();
        let below: Arc<dyn Device> = device.clone();
        let report = check(&below, CheckOptions::ALL, &mut ());
        assert!(report.is_clean(), "{text}: {:?}", report.findings);
        println!("mounted: {text}");
    }
}

/// The reserve is free, but not available.
#[test]
fn a_full_mount_has_blocks_that_are_not_available() {
    if !can_mount() {
        return;
    }
    let top = tempfile::tempdir().unwrap();
    let mounted = mount(empty_image(), top.path());
    assert!(fill(top.path(), usize::MAX) > 100);
    let Blocks { total, free, available } = blocks(top.path());
    mounted.unmount().unwrap();
    assert!(available < total / 20, "{available} of {total}");
    assert!(free > available + total / 50, "{free} free, {available} available");
}

/// However many writers wait for the device, threads are left for readers.
#[test]
fn who_reads_does_not_wait_for_any_number_of_writers() {
    if !can_mount() {
        return;
    }
    let (gate, Keeper { flushes, let_through }) = Gate::new(IMAGE);
    let fs = formatted(gate.clone(), tiny(), tight(), 1);
    let top = tempfile::tempdir().unwrap();
    let mounted = Mounted::new(fs, Path::new("gate"), top.path()).unwrap();
    let at = |name: &str| top.path().join(name);
    std::fs::create_dir(at("dir")).unwrap();
    for number in 0..100 {
        std::fs::write(at(&format!("dir/{number}")), vec![number; 5000]).unwrap();
    }
    let writers: Vec<File> =
        (0..40).map(|number| File::create(at(&format!("writer-{number}"))).unwrap()).collect();
    writers[0].sync_all().unwrap();
    std::fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    gate.close(true);
    std::thread::scope(|scope| {
        let syncs: Vec<_> = writers
            .iter()
            .map(|file| {
                scope.spawn(move || {
                    file.write_all_at(b"something new", 0)?;
                    file.sync_all()
                })
            })
            .collect();
        // The first flush blocks, and all writers wait for it.
        flushes.recv().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        for number in 0..100 {
            assert_eq!(std::fs::read(at(&format!("dir/{number}"))).unwrap(), vec![number; 5000]);
        }
        assert!(syncs.iter().all(|sync| !sync.is_finished()));
        gate.close(false);
        let_through.send(()).unwrap();
        syncs.into_iter().for_each(|sync| sync.join().unwrap().unwrap());
    });
    drop(writers);
    mounted.unmount().unwrap();
}

#[test]
fn what_a_mount_has_synced_survives_power_cuts() {
    if !can_mount() {
        return;
    }
    let mut judged = 0;
    for seed in 0..rounds(3) {
        judged += explore(seed);
    }
    println!("{judged} distinct states");
    assert!(judged > 300, "only {judged} states");
}

fn explore(seed: u64) -> u64 {
    let device = Arc::new(ForkDevice::new(IMAGE as usize / BLOCK_SIZE));
    let mut fs = formatted(device.clone(), tiny(), tight(), 1);
    fs.checkpoint().unwrap();
    drop(fs);
    let base = device.fork();
    let recorder = Arc::new(RecordingDevice::new(device));
    let volume = open(recorder.clone(), Mode::ReadWrite, tight(), 2 * seed).unwrap().0;
    let top = tempfile::tempdir().unwrap();
    let mounted =
        Mounted::new(Fs::open(volume, clock(100)), Path::new("recorded"), top.path()).unwrap();

    let mut model = Model::new();
    let (mut models, mut taken) = (vec![model.clone()], Vec::new());
    for step in random_steps(seed, STEPS) {
        let mut after = model.clone();
        let expected = after.apply(&step);
        let began = recorder.position();
        // The kernel may allow what the model refuses: for example it follows links.
        let Some(done) = expected.is_ok().then(|| call(top.path(), &step)).flatten() else {
            continue;
        };
        if let Err(error) = done {
            panic!("seed {seed}: {step:?}: {error}");
        }
        let ended = recorder.position();
        // The server gets a write that begins within a page as two requests.
        if let Step::Write { path, offset, len, fill } = &step {
            let first = BLOCK_SIZE - *offset as usize % BLOCK_SIZE;
            if first < BLOCK_SIZE && first < *len {
                let (path, offset, fill) = (path.clone(), *offset, *fill);
                let mut between = model.clone();
                between.apply(&Step::Write { path, offset, len: first, fill }).unwrap();
                models.push(between);
                taken.push(Taken { began, ended, syncs: false });
            }
        }
        taken.push(Taken { began, ended, syncs: matches!(step, Step::Sync | Step::Checkpoint) });
        models.push(after.clone());
        model = after;
    }
    mounted.unmount().unwrap();
    assert!(taken.len() > STEPS / 4, "seed {seed}: only {} steps", taken.len());

    let judge = |state: Arc<dyn Device>, events: usize| {
        let options = CheckOptions::ALL;
        let report = check(&state, options, &mut ());
        if !report.is_clean() && !report.is_repairable() {
            return Err(format!("{:?}", report.findings));
        }
        let synced = taken.iter().rposition(|step| step.syncs && step.ended <= events);
        let first = synced.map_or(0, |at| at + 1);
        let begun = taken.iter().filter(|step| step.began <= events).count();
        let volume = open(state, Mode::ReadOnly, tight(), 4).map_err(|error| error.to_string())?.0;
        let fs = Fs::open(volume, clock(0));
        let same = |model: &Model| model.difference(&fs).is_ok_and(|found| found.is_none());
        match models[first..=begun].iter().rev().any(same) {
            true => Ok(()),
            false => {
                let found = models[begun].difference(&fs);
                Err(format!("none of the states {first} to {begun}: {found:?}"))
            }
        }
    };
    let sweep = Sweep { base, events: recorder.events(), seed, states: 6 };
    sweep.run(judge).unwrap_or_else(|broken| {
        let Broken { cut, description, what, .. } = *broken;
        panic!("seed {seed}, after event {}: {what}\n{}", cut.events, description.join("\n"))
    })
}
