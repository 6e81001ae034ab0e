//! A volume that is full to the last block: operations that do not fit are refused and change nothing; operations that
//! free space always work, and the space becomes available.

use std::collections::BTreeMap;
use std::sync::Arc;

use betr_core::check::{CheckOptions, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::format::{FileType, ZoneSizes};
use betr_core::fs::{Allocate, Attributes, Changes, Fs, New, Object, Over};
use betr_core::ids::Time;
use betr_core::store::{CacheBudget, Geometry};
use betr_core::volume::{Blocks, Mode};
use betr_core::{Error, Result};
use betr_tests::{Random, clock, create_zoned, middling, open, roomy, rounds, tight, tiny};
use bytes::Bytes;

const ALL: CheckOptions = CheckOptions::ALL;

/// File contents by name.
type Model = BTreeMap<Vec<u8>, Bytes>;

struct Run {
    device: Arc<MemoryDevice>,
    cache: CacheBudget,
    fs: Fs,
    model: Model,
    random: Random,
    /// The longest write in bytes.
    write_max: u64,
    refused: u64,
    /// The unlinks of open files that were refused.
    moves_refused: u64,
    /// The number of checkpoints in the middle of recoveries.
    midway: u64,
    name: String,
}

impl Run {
    fn new(name: &str, bytes: u64, geometry: Geometry, cache: CacheBudget, seed: u64) -> Run {
        let device = Arc::new(MemoryDevice::new(bytes));
        let zones = [ZoneSizes::of_max(64 << 10), ZoneSizes::UNLIMITED][seed as usize % 2];
        let volume = create_zoned(device.clone(), geometry, cache, zones, seed).unwrap();
        let mut fs = Fs::format(volume, clock(0), Attributes::at(Time::default())).unwrap();
        fs.checkpoint().unwrap();
        drop(fs);
        let volume = open(device.clone(), Mode::ReadWrite, cache, seed).unwrap().0;
        Run {
            device,
            cache,
            fs: Fs::open(volume, clock(100)),
            model: Model::new(),
            random: Random::new(seed),
            write_max: bytes / 40,
            refused: 0,
            moves_refused: 0,
            midway: 0,
            name: format!("{name}, seed {seed}"),
        }
    }

    /// Whether an operation succeeded; if it was refused for lack of space, nothing may have changed.
    fn done<T>(&mut self, result: Result<T>) -> bool {
        match result {
            Ok(_) => true,
            Err(Error::NoSpace { .. }) => {
                self.refused += 1;
                false
            }
            Err(error) => panic!("{}: {error}", self.name),
        }
    }

    /// Unwraps the result of an operation that must always work.
    fn must<T>(&self, what: &str, result: Result<T>) -> T {
        result.unwrap_or_else(|error| panic!("{}: {what}: {error}", self.name))
    }

    fn root(&self) -> Object {
        self.fs.root().unwrap()
    }

    fn pick(&mut self) -> Option<Vec<u8>> {
        let at = self.random.below(self.model.len().max(1) as u64) as usize;
        self.model.keys().nth(at).cloned()
    }

    fn same(&self, name: &[u8]) {
        let file = self.fs.lookup(&self.root(), name).unwrap();
        let found = self.fs.read(&file, 0, 1 << 30).unwrap();
        assert!(found == self.model[name], "{}: contents differ", self.name);
    }

    fn all_same(&self) {
        let names: Vec<_> =
            self.fs.list(&self.root()).unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, self.model.keys().cloned().collect::<Vec<_>>(), "{}", self.name);
        names.iter().for_each(|name| self.same(name));
    }

    fn write(&mut self, name: &[u8], offset: u64, len: u64) {
        let data = Bytes::from(self.random.bytes(len as usize));
        let file = self.fs.lookup(&self.root(), name).unwrap();
        let result = self.fs.write_in_pieces(&file, offset, &data);
        if self.done(result) {
            let mut contents = self.model[name].to_vec();
            contents.resize(contents.len().max((offset + len) as usize), 0);
            contents[offset as usize..(offset + len) as usize].copy_from_slice(&data);
            self.model.insert(name.to_vec(), contents.into());
        }
        self.same(name);
    }

    fn make(&mut self) {
        let name = format!("file-{:05}", self.random.below(4000)).into_bytes();
        if self.model.contains_key(&name) {
            return;
        }
        let new = New::of(FileType::Regular, Attributes::at(Time::default()));
        let root = self.root();
        let result = self.fs.make(&root, &name, new);
        if self.done(result) {
            self.model.insert(name.clone(), Bytes::new());
            let len = self.len();
            self.write(&name, 0, len);
        } else {
            assert!(self.fs.find(&root, &name).unwrap().is_none());
        }
    }

    fn len(&mut self) -> u64 {
        let max = [3000, 20_000, self.write_max][self.random.below(3) as usize];
        1 + self.random.below(max)
    }

    fn step(&mut self) {
        let Some(name) = self.pick() else { return self.make() };
        let root = self.root();
        let file = self.fs.lookup(&root, &name).unwrap();
        let size = self.model[&name].len() as u64;
        match self.random.below(40) {
            0..=12 => self.make(),
            13..=17 => {
                let len = self.len();
                self.write(&name, size, len);
            }
            18..=24 => {
                let (offset, len) = (self.random.below(size + 1), self.len());
                self.write(&name, offset, len);
            }
            25..=28 => {
                let size = self.random.below(size + 1);
                let result = self.fs.truncate(&file, size);
                self.must("truncate", result);
                let contents = self.model[&name].slice(..size as usize);
                self.model.insert(name.clone(), contents);
                self.same(&name);
            }
            29..=33 => {
                let mut result = self.fs.unlink(&root, &name);
                if matches!(result, Err(Error::NoSpace { .. })) {
                    // A large file that is open needs space to move.
                    drop(file);
                    self.moves_refused += 1;
                    result = self.fs.unlink(&root, &name);
                }
                self.must("unlink", result);
                self.model.remove(&name);
            }
            34 => {
                let new = format!("file-{:05}", self.random.below(4000)).into_bytes();
                let result = self.fs.rename(&root, &name, &root, &new, Over::Replace);
                if self.done(result) {
                    let contents = self.model.remove(&name).unwrap();
                    self.model.insert(new, contents);
                } else {
                    self.same(&name);
                }
            }
            35 => {
                let changes = Changes { perm: Some(0o640), ..Changes::default() };
                let result = self.fs.set_attributes(&file, changes);
                self.must("chmod", result);
            }
            36 | 37 => {
                let result = self.fs.volume_mut().sync();
                self.must("sync", result);
            }
            38 => {
                let result = self.fs.checkpoint();
                self.must("checkpoint", result);
            }
            _ => self.reopen(),
        }
    }

    /// Makes everything durable through the log, and recovers it.
    fn reopen(&mut self) {
        let result = self.fs.volume_mut().sync();
        self.must("sync", result);
        let seed = self.random.next();
        let opened = open(self.device.clone(), Mode::ReadWrite, self.cache, seed);
        let (volume, recovery) = self.must("recovery", opened);
        self.midway += recovery.checkpoints;
        self.fs = Fs::open(volume, clock(1000));
    }

    /// Fills the volume until not even a small file fits.
    fn fill(&mut self) {
        for len in [self.write_max, 50_000, 5000, 100] {
            let before = self.refused;
            while self.refused < before + 3 {
                let name = format!("fill-{:06}", self.random.below(1_000_000)).into_bytes();
                if self.model.contains_key(&name) {
                    continue;
                }
                let new = New::of(FileType::Regular, Attributes::at(Time::default()));
                let root = self.root();
                let result = self.fs.make(&root, &name, new);
                if self.done(result) {
                    self.model.insert(name.clone(), Bytes::new());
                    self.write(&name, 0, len);
                }
            }
        }
    }

    fn sound(&mut self) {
        let result = self.fs.volume_mut().sync();
        self.must("sync", result);
        let device: Arc<dyn Device> = self.device.clone();
        let report = check(&device, ALL, &mut ());
        let few = &report.findings[..report.findings.len().min(5)];
        assert!(report.is_clean(), "{}: {few:?}", self.name);
    }
}

fn run(mut run: Run, steps: u64) {
    run.fill();
    let Blocks { available: free, total: all, .. } = run.fs.volume().blocks().unwrap();
    for step in 0..steps {
        run.step();
        if step % 1000 == 999 {
            run.all_same();
        }
    }
    let held: u64 = run.model.values().map(|contents| contents.len() as u64).sum();
    println!(
        "{}: {} of {all} blocks left when full; after {steps} operations, {} refused: {} files, {held} bytes; \
         {} checkpoints amid recoveries, {} unlinks of open files refused",
        run.name,
        free,
        run.refused,
        run.model.len(),
        run.midway,
        run.moves_refused
    );
    assert!(run.moves_refused < steps / 100, "{}: {} moves", run.name, run.moves_refused);
    assert!(run.refused > steps / 50, "{}: only {} refused", run.name, run.refused);
    run.reopen();
    run.all_same();
    run.sound();
    empty(run);
}

/// Deletes everything; then as much fits as at first.
fn empty(mut run: Run) {
    let root = run.root();
    for name in run.model.keys().cloned().collect::<Vec<_>>() {
        let result = run.fs.unlink(&root, &name);
        run.must("unlink", result);
    }
    run.model.clear();
    run.all_same();
    let all = run.fs.volume().blocks().unwrap().total;
    let name = b"large".to_vec();
    let new = New::of(FileType::Regular, Attributes::at(Time::default()));
    let made = run.fs.make(&root, &name, new);
    run.must("make", made);
    run.model.insert(name.clone(), Bytes::new());
    let refused = run.refused;
    while run.refused == refused {
        let at = run.model[&name].len() as u64;
        run.write(&name, at, run.write_max);
    }
    let held = run.model[&name].len() as u64 / 4096;
    // In a leaf of one block, a block of a file takes two blocks, plus a share of an internal node with few children.
    let expected = if run.name.starts_with("tiny") { all / 9 } else { all / 2 };
    assert!(held > expected, "{}: only {held} of {all} blocks came back", run.name);
    run.sound();
}

#[test]
fn ten_thousand_operations_on_a_full_volume() {
    let geometry = Geometry::new(256 << 10, 64 << 10);
    run(Run::new("64 MiB", 64 << 20, geometry, CacheBudget::default(), 1), 10_000);
}

#[test]
fn small_volumes_stay_full_for_long() {
    for seed in 0..rounds(2) {
        run(Run::new("tiny nodes", 2 << 20, tiny(), tight(), seed), 1500);
        run(Run::new("larger leaves", 6 << 20, middling(), roomy(), seed), 1500);
    }
}

/// On a fragmented volume, large nodes and values find space, or are refused before anything has changed.
#[test]
fn what_is_large_finds_room_on_a_scattered_volume() {
    let geometry = Geometry::new(1 << 20, 64 << 10);
    let mut run = Run::new("scattered", 96 << 20, geometry, CacheBudget::default(), 5);
    for round in 0..3 {
        let before = run.refused;
        while run.refused == before {
            // Files of about one leaf, each surrounded by the other writes of a checkpoint.
            let len = 40_000 + run.random.below(40_000);
            let name = format!("file-{round}-{:06}", run.model.len()).into_bytes();
            let root = run.root();
            let made = run.fs.make(
                &root,
                &name,
                New::of(FileType::Regular, Attributes::at(Time::default())),
            );
            if run.done(made) {
                run.model.insert(name.clone(), Bytes::new());
                run.write(&name, 0, len);
            }
            if run.random.below(20) == 0 {
                let result = run.fs.checkpoint();
                run.must("checkpoint", result);
            }
        }
        let gone: Vec<_> = run.model.keys().cloned().collect();
        for name in gone.into_iter().filter(|_| run.random.below(3) > 0).collect::<Vec<_>>() {
            let root = run.root();
            let result = run.fs.unlink(&root, &name);
            run.must("unlink", result);
            run.model.remove(&name);
        }
        let (result, refused) = (run.fs.checkpoint(), run.refused);
        run.must("checkpoint", result);
        let mut set = 0;
        for name in run.model.keys().cloned().collect::<Vec<_>>() {
            let file = run.fs.lookup(&run.root(), &name).unwrap();
            let value = run.random.bytes(64 << 10);
            let result = run.fs.set_xattrs(&file, &[(b"user.large".to_vec(), value.clone())]);
            if !run.done(result) {
                break;
            }
            set += 1;
            assert!(run.fs.xattr(&file, b"user.large").unwrap() == value);
        }
        println!("round {round}: {set} values, {} refused", run.refused - refused);
        assert!(set > 50, "only {set} values");
        run.refused = refused;
        run.reopen();
        run.all_same();
        run.sound();
    }
    empty(run);
}

/// On a full image files can be deleted, and new ones take their place.
#[test]
fn what_is_full_can_be_emptied() {
    for (mib, write) in [(4, 4096), (16, 4096), (16, 100_000), (24, 4096), (32, 40_000), (48, 4096)]
    {
        let (bytes, name) = (mib << 20, format!("{mib} MiB of writes of {write}"));
        let mut run =
            Run::new(&name, bytes, Geometry::of_image(bytes), CacheBudget::default(), mib);
        let root = run.root();
        let contents = Bytes::from(vec![7; write]);
        let mut rounds = Vec::new();
        for round in 0..3 {
            let (before, mut made) = (run.refused, 0);
            while run.refused == before {
                let name = format!("{round}-{made:06}").into_bytes();
                let new = New::of(FileType::Regular, Attributes::at(Time::default()));
                let file = run.fs.make(&root, &name, new);
                if !run.done(file) {
                    break;
                }
                for at in 0..10 {
                    let file = run.fs.lookup(&root, &name).unwrap();
                    let result = run.fs.write(&file, at * write as u64, &contents);
                    run.done(result);
                }
                made += 1;
            }
            let result = run.fs.volume_mut().sync();
            run.must("sync", result);
            for number in 0..made {
                let result = run.fs.unlink(&root, format!("{round}-{number:06}").as_bytes());
                run.must("unlink", result);
            }
            rounds.push(made);
        }
        println!("{name}: {rounds:?} files");
        assert!(rounds.iter().all(|made| *made > rounds[0] * 9 / 10), "{name}: {rounds:?} files");
        run.sound();
    }
}

/// A volume filled with small files.
fn filled(mib: u64, seed: u64) -> Run {
    let (bytes, cache) = (mib << 20, CacheBudget::default());
    let mut run = Run::new(&format!("{mib} MiB"), bytes, Geometry::of_image(bytes), cache, seed);
    run.write_max = 3000;
    run.fill();
    run
}

impl Run {
    fn delete_all(&mut self) {
        let root = self.root();
        for name in std::mem::take(&mut self.model).into_keys() {
            let result = self.fs.unlink(&root, &name);
            self.must("unlink", result);
        }
    }

    fn blocks(&self) -> Blocks {
        self.fs.volume().blocks().unwrap()
    }
}

/// Deletes of many small files wait in buffers together with the space they free; it becomes available without another
/// operation.
#[test]
fn the_space_of_what_was_deleted_comes_back() {
    for mib in [8, 32] {
        let mut run = filled(mib, mib);
        let fresh =
            Run::new("fresh", mib << 20, Geometry::of_image(mib << 20), roomy(), 1).blocks();
        run.fs.checkpoint().unwrap();
        let full = run.blocks();
        assert!(full.available < fresh.available / 50, "{mib} MiB: {full:?}");
        run.delete_all();
        while run.fs.volume_mut().reclaim(4).unwrap() {}
        run.fs.checkpoint().unwrap();
        let empty = run.blocks();
        println!("{mib} MiB: {fresh:?}, then {full:?}, then {empty:?}");
        assert!(empty.free + fresh.total / 50 >= fresh.free, "{mib} MiB: {empty:?} of {fresh:?}");
        assert!(empty.available + fresh.total / 50 >= fresh.available, "{mib} MiB: {empty:?}");
        run.sound();
    }
}

/// A session that is killed after its checkpoint leaves deletes pending, and no log. The next session that looks for
/// deletes frees their space too.
#[test]
fn the_space_of_what_a_killed_session_deleted_comes_back() {
    let mut run = filled(32, 32);
    let fresh = Run::new("fresh", 32 << 20, Geometry::of_image(32 << 20), roomy(), 1).blocks();
    let last = run.model.keys().next_back().unwrap().clone();
    let kept = run.model.remove(&last).unwrap();
    run.delete_all();
    run.fs.checkpoint().unwrap();
    run.model.insert(last, kept);
    run.reopen();
    run.all_same();
    run.delete_all();
    while run.fs.volume_mut().reclaim(4).unwrap() {}
    run.fs.checkpoint().unwrap();
    let empty = run.blocks();
    println!("{fresh:?}, then {empty:?}");
    assert!(empty.free + fresh.total / 50 >= fresh.free, "{empty:?} of {fresh:?}");
    run.sound();
}

/// A reservation gets the space that a write would get.
#[test]
fn a_reservation_is_not_refused_for_what_deletes_will_free() {
    let mut run = filled(32, 3);
    run.delete_all();
    let root = run.root();
    let new = New::of(FileType::Regular, Attributes::at(Time::default()));
    let file = run.fs.make(&root, b"reserved", new).unwrap();
    let reserved = run.fs.allocate(&file, Allocate::Reserve, 0, 16 << 20, false);
    run.must("reserve half of the volume", reserved);
    let refused = run.fs.allocate(&file, Allocate::Reserve, 0, 40 << 20, false);
    assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
}

/// On a full volume names can be changed and data can be overwritten: the space for that is needed only until buffers
/// are drained.
#[test]
fn what_takes_no_more_than_there_is_works_on_a_full_volume() {
    for (mib, count) in [(8, 80), (64, 150)] {
        let mut run = filled(mib, 7 + mib);
        let root = run.root();
        let names: Vec<Vec<u8>> = run.model.keys().cloned().collect();
        for (number, old) in names.iter().enumerate().step_by(names.len() / count + 1) {
            let mut new = old.clone();
            new.reverse();
            new.push(b'r');
            let renamed = run.fs.rename(&root, old, &root, &new, Over::Replace);
            run.must(&format!("rename {number} of {}", names.len()), renamed);
            let contents = run.model.remove(old).unwrap();
            let other = Bytes::from(run.random.bytes(contents.len()));
            let file = run.fs.lookup(&root, &new).unwrap();
            let written = run.fs.write(&file, 0, &other);
            run.must(&format!("overwrite {number} of {}", names.len()), written);
            run.model.insert(new, other);
        }
        run.all_same();
        run.sound();
        run.reopen();
        run.all_same();
    }
}

/// A large file can be overwritten in place, in pieces that fit.
#[test]
fn a_large_file_can_be_written_over_on_a_full_volume() {
    let (bytes, cache) = (16 << 20, CacheBudget::default());
    let mut run = Run::new("one file", bytes, Geometry::of_image(bytes), cache, 1);
    let root = run.root();
    let new = New::of(FileType::Regular, Attributes::at(Time::default()));
    run.fs.make(&root, b"large", new).unwrap();
    run.model.insert(b"large".to_vec(), Bytes::new());
    let piece = 1 << 20;
    while run.refused == 0 {
        run.write(b"large", run.model[&b"large"[..]].len() as u64, piece);
    }
    run.fill();
    let (refused, len) = (run.refused, run.model[&b"large"[..]].len() as u64);
    for at in (0..len / piece).map(|number| number * piece) {
        run.write(b"large", at, piece);
    }
    assert_eq!(run.refused, refused, "of {} pieces", len / piece);
    run.all_same();
    run.sound();
}

/// The used share of the volume in percent.
fn in_use(fs: &Fs) -> u64 {
    let space = &fs.volume().store().space;
    let all = fs.volume().superblock().image_blocks;
    100 * (all - space.free_blocks()) / all
}

/// A volume of 64 MiB, filled to 60 % by a checkpoint; then large late-bound writes of 30 % more, made durable by one
/// log group each.
#[test]
fn much_late_bound_data_is_recovered_beside_itself() {
    let mut run = Run::new("60 + 30 %", 64 << 20, Geometry::new(256 << 10, 64 << 10), roomy(), 9);
    let make = |run: &mut Run, name: &[u8]| {
        let (root, new) = (run.root(), New::of(FileType::Regular, Attributes::at(Time::default())));
        let made = run.fs.make(&root, name, new);
        run.must("make", made);
        run.model.insert(name.to_vec(), Bytes::new());
    };
    make(&mut run, b"first");
    while in_use(&run.fs) < 60 {
        let at = run.model[&b"first"[..]].len() as u64;
        run.write(b"first", at, 1 << 20);
    }
    let result = run.fs.checkpoint();
    run.must("checkpoint", result);
    make(&mut run, b"second");
    let mut late = 0;
    for _ in 0..18 {
        let at = run.model[&b"second"[..]].len() as u64;
        run.write(b"second", at, 1 << 20);
        let result = run.fs.volume_mut().sync();
        run.must("sync", result);
        // After a power cut at any moment, a recovery of the log must fit beside the pinned blocks.
        let image = Arc::new(MemoryDevice::from(run.device.snapshot()));
        let opened = open(image.clone(), Mode::ReadWrite, roomy(), run.random.next());
        let (volume, recovery) = run.must("recovery", opened);
        late = late.max(recovery.survey.bound.total());
        let mut fs = Fs::open(volume, clock(500));
        let result = fs.checkpoint();
        run.must("checkpoint after recovery", result);
        let file = fs.lookup(&fs.root().unwrap(), b"second").unwrap();
        assert!(fs.read(&file, 0, 1 << 30).unwrap() == run.model[&b"second"[..]]);
        let device: Arc<dyn Device> = image;
        assert!(check(&device, ALL, &mut ()).is_clean());
    }
    assert_eq!(run.refused, 0);
    assert!(in_use(&run.fs) > 85, "{} % in use", in_use(&run.fs));
    assert!(late > 1000, "{late} late-bound values in one log");
    println!("at most {late} late-bound values in one log");
    run.all_same();
    run.sound();
}

/// A reservation larger than the image is refused without draining a buffer.
#[test]
fn a_reservation_beyond_the_image_empties_no_buffers() {
    let mut fs = betr_tests::made(Arc::new(MemoryDevice::new(8 << 20)), tiny());
    let root = fs.root().unwrap();
    let new = New::of(FileType::Regular, Attributes::at(Time::default()));
    let file = fs.make(&root, b"file", new).unwrap();
    let drains = fs.volume().counters().drains;
    for keep in [false, true] {
        let refused = fs.allocate(&file, Allocate::Reserve, 0, 1 << 40, keep);
        assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
    }
    assert_eq!((fs.volume().counters().drains, file.inode().size), (drains, 0));
}
