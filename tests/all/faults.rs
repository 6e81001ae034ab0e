//! Failing devices: errors of any read, write or flush; lost and misdirected writes; unreadable places. Acknowledged
//! data can be read, or an error says which part cannot. After a failure nothing more is written.

use std::collections::BTreeMap;
use std::sync::Arc;

use betr_core::check::{CheckOptions, Code, check};
use betr_core::device::{DeferringDevice, Device, FileDevice, MemoryDevice};
use betr_core::disk::Disk;
use betr_core::format::{FileType, Superblock};
use betr_core::fs::{Attributes, Changes, Fs, New};
use betr_core::ids::{Epoch, Extent, Msn, Time, TreeId};
use betr_core::node::Node;
use betr_core::space::slot_block;
use betr_core::volume::{Mode, read_identity, slots_of};
use betr_core::{Error, Result};
use betr_lab::explore::devices::{Call, FaultyDevice, Trouble};
use betr_tests::{Random, clock, formatted, middling, open, roomy, rounds, tight, tiny};
use bytes::Bytes;

const ALL: CheckOptions = CheckOptions::ALL;
const IMAGE: u64 = 3 << 20;
const STEPS: u64 = 60;

/// File contents by name.
type Model = BTreeMap<Vec<u8>, Bytes>;

/// The file system, its expected contents, and the contents at each operation boundary.
struct Work {
    fs: Fs,
    random: Random,
    model: Model,
    /// The expected contents after the current operation.
    next: Model,
    history: Vec<(Msn, Model)>,
    acknowledged: Msn,
}

impl Work {
    /// Starts on an empty volume.
    fn begin(device: Arc<dyn Device>, seed: u64) -> Result<Work> {
        Work::go_on(device, seed, Model::new())
    }

    /// Starts on a volume with these contents.
    fn go_on(device: Arc<dyn Device>, seed: u64, model: Model) -> Result<Work> {
        let volume = open(device, Mode::ReadWrite, tight(), seed)?.0;
        let msn = volume.next_msn();
        let fs = Fs::open(volume, clock(100));
        let history = vec![(msn, model.clone())];
        let (next, random) = (model.clone(), Random::new(seed));
        Ok(Work { fs, random, model, next, history, acknowledged: msn })
    }

    fn step(&mut self, step: u64) -> Result<()> {
        let root = self.fs.root()?;
        let name = format!("file-{}", self.random.below(6)).into_bytes();
        let len = [900, 6000, 40_000][self.random.below(3) as usize];
        let data = Bytes::from(self.random.bytes(1 + self.random.clone().below(len) as usize));
        self.next = self.model.clone();
        let next = &mut self.next;
        match (self.random.below(12), self.fs.find(&root, &name)?) {
            (0 | 1, _) => {
                self.fs.volume_mut().sync()?;
                self.acknowledged = self.fs.volume().next_msn();
            }
            (2, _) if step > STEPS / 4 => {
                self.fs.checkpoint()?;
                self.acknowledged = self.fs.volume().next_msn();
            }
            (_, None) => {
                let new = New::of(FileType::Regular, Attributes::at(Time::default()));
                next.insert(name.clone(), Bytes::new());
                self.fs.make(&root, &name, new)?;
            }
            (3, Some(_)) => {
                next.remove(&name);
                self.fs.unlink(&root, &name)?;
            }
            (4, Some(file)) => {
                let size = self.random.below(next[&name].len() as u64 + 1);
                let contents = next[&name].slice(..size as usize);
                next.insert(name, contents);
                self.fs.truncate(&file, size)?;
            }
            (_, Some(file)) => {
                let offset = self.random.below(next[&name].len() as u64 + 1) as usize;
                let mut contents = next[&name].to_vec();
                contents.resize(contents.len().max(offset + data.len()), 0);
                contents[offset..offset + data.len()].copy_from_slice(&data);
                next.insert(name, contents.into());
                self.fs.write(&file, offset as u64, &data)?;
            }
        }
        self.model = self.next.clone();
        let msn = self.fs.volume().next_msn();
        if self.history.last().is_some_and(|(last, _)| *last != msn) {
            self.history.push((msn, self.model.clone()));
        }
        Ok(())
    }

    /// Makes a file of some kilobytes.
    fn fill(&mut self, number: u64) -> Result<()> {
        let (root, name) = (self.fs.root()?, format!("filler-{number}").into_bytes());
        let len = 1 + self.random.below(20_000) as usize;
        let data = Bytes::from(self.random.bytes(len));
        let new = New::of(FileType::Regular, Attributes::at(Time::default()));
        let file = self.fs.make(&root, &name, new)?;
        self.model.insert(name.clone(), Bytes::new());
        self.fs.write(&file, 0, &data)?;
        self.model.insert(name, data);
        Ok(())
    }

    /// Takes all steps and makes them durable, then writes one more group, which vouches for those before it.
    fn all(&mut self) -> Result<()> {
        for step in 0..STEPS {
            match self.step(step) {
                // Nothing has changed.
                Err(Error::NoSpace { .. }) => self.next = self.model.clone(),
                done => done?,
            }
        }
        self.fs.volume_mut().sync()?;
        self.acknowledged = self.fs.volume().next_msn();
        let root = self.fs.root()?;
        self.fs.set_attributes(&root, Changes { perm: Some(0o700), ..Changes::default() })?;
        self.fs.volume_mut().sync()?;
        self.history.push((self.fs.volume().next_msn(), self.model.clone()));
        Ok(())
    }
}

/// An image with an empty file system.
fn formatted_image(seed: u64) -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(IMAGE));
    let mut fs = formatted(device.clone(), tiny(), tight(), seed);
    fs.checkpoint().unwrap();
    drop(fs);
    device.snapshot()
}

/// Returns a device with a planned fault, and the device below it.
fn troubled(image: &[u8], plan: Option<(Call, Trouble)>) -> (Arc<FaultyDevice>, Arc<MemoryDevice>) {
    let below = Arc::new(MemoryDevice::from(image.to_vec()));
    let device = Arc::new(FaultyDevice::new(below.clone()));
    if let Some((call, trouble)) = plan {
        device.plan(call, trouble);
    }
    (device, below)
}

/// The number of calls of each kind that the work makes.
fn calls(image: &[u8], seed: u64, model: &Model) -> (u64, u64, u64) {
    let (device, _) = troubled(image, None);
    Work::go_on(device.clone(), seed, model.clone()).unwrap().all().unwrap();
    device.calls()
}

/// The contents of the file system, or the first error.
fn contents(fs: &Fs) -> Result<Model> {
    let root = fs.root()?;
    let mut found = Model::new();
    for entry in fs.list(&root)? {
        let name = entry.name.clone();
        let file = fs.entry_object(entry)?;
        found.insert(name, fs.read(&file, 0, 1 << 20)?.into());
    }
    Ok(found)
}

#[test]
fn an_error_on_any_call_stops_the_writing_and_loses_nothing() {
    for seed in 0..rounds(1) {
        let image = formatted_image(seed);
        let (reads, writes, flushes) = calls(&image, seed, &Model::new());
        let reads = (0..reads).map(Call::Read);
        let writes = (0..writes).map(Call::Write);
        let flushes = (0..flushes).map(Call::Flush);
        let mut failed = 0;
        for call in reads.chain(writes).chain(flushes) {
            for trouble in [Trouble::Error, Trouble::HalfDone] {
                failed += u64::from(fail(&image, seed, &Model::new(), call, trouble));
            }
        }
        assert!(failed > 100, "only {failed} failures");
    }
}

#[test]
fn an_error_of_any_write_to_a_full_volume_stops_the_writing() {
    for seed in 0..1 {
        let device = Arc::new(MemoryDevice::from(formatted_image(seed)));
        let mut work = Work::begin(device.clone(), seed).unwrap();
        let refused = (0..).find_map(|step| work.fill(step).err()).unwrap();
        assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
        work.fs.checkpoint().unwrap();
        let model = work.model.clone();
        drop(work);
        let image = device.snapshot();
        let (_, writes, _) = calls(&image, seed, &model);
        let write = |at| fail(&image, seed, &model, Call::Write(at), Trouble::Error);
        let failed = (0..writes).step_by(13).filter(|at| write(*at)).count();
        assert!(failed > 20, "only {failed} failures");
    }
}

/// Makes one call fail, on a volume with the contents of `model`. Returns whether the work noticed.
fn fail(image: &[u8], seed: u64, model: &Model, call: Call, trouble: Trouble) -> bool {
    let name = format!("seed {seed}, {call:?}, {trouble:?}");
    let (device, below) = troubled(image, Some((call, trouble)));
    let mut work = match Work::go_on(device.clone(), seed, model.clone()) {
        Ok(work) => work,
        Err(Error::Io { .. }) => return true,
        Err(Error::Corrupt(_)) if matches!(call, Call::Read(_)) => return true,
        // Half a slot does not verify: the volume looks damaged, or like no image at all.
        Err(Error::Corrupt(_) | Error::NotAnImage(_)) if trouble == Trouble::HalfDone => {
            return true;
        }
        Err(error) => panic!("{name}: {error}"),
    };
    let result = work.all();
    let Err(error) = result else { return false };
    assert!(matches!(error, Error::Io { .. }), "{name}: {error}");
    // Reads from memory are correct or fail.
    if let Ok(found) = contents(&work.fs) {
        let known = work.history.iter().any(|(_, model)| *model == found);
        assert!(known || found == work.next, "{name}: memory holds half an operation");
    }
    // A read may fail before anything has changed; any other failure poisons the volume.
    if !matches!(call, Call::Read(_)) {
        let (_, writes, _) = device.calls();
        assert!(work.fs.volume_mut().sync().is_err(), "{name}: sync after a failure");
        assert!(work.fs.checkpoint().is_err(), "{name}: checkpoint after a failure");
        assert_eq!(device.calls().1, writes, "{name}: something was written after a failure");
    }
    let (acknowledged, history) = (work.acknowledged, work.history.clone());
    drop(work);
    recovered(&name, below, acknowledged, &history);
    true
}

/// The device recovers to a state no older than what was acknowledged.
fn recovered(name: &str, device: Arc<MemoryDevice>, acknowledged: Msn, history: &[(Msn, Model)]) {
    let volume = match open(device.clone(), Mode::ReadWrite, tight(), 99) {
        Ok((volume, _)) => volume,
        Err(error) => panic!("{name}: {error}"),
    };
    let msn = volume.next_msn();
    assert!(msn >= acknowledged, "{name}: lost what was acknowledged");
    let found = contents(&Fs::open(volume, clock(0))).unwrap();
    // The failed operation may have become durable as well.
    let known = history.iter().find(|(at, _)| *at == msn);
    if let Some((_, model)) = known {
        assert!(found == *model, "{name}: another state");
    }
    let device: Arc<dyn Device> = device;
    let report = check(&device, ALL, &mut ());
    assert!(report.is_clean(), "{name}: {:?}", report.findings);
}

#[test]
fn a_full_host_refuses_operations_whole_and_is_over_once_there_is_room() {
    let (mut refused, mut unsynced, mut took) = (0, 0, 0);
    for seed in 0..rounds(20) {
        let name = format!("seed {seed}");
        let (faulty, below) = troubled(&formatted_image(seed), None);
        let device = Arc::new(DeferringDevice::new(faulty.clone(), 64 << 20));
        let mut work = Work::begin(device.clone(), seed).unwrap();
        let mut random = Random::new(seed ^ 0xf011);
        for step in 0..2 * STEPS {
            let is_full = random.below(3) == 0;
            faulty.fill_up(is_full);
            match work.step(step) {
                Ok(()) => took += u64::from(is_full),
                Err(Error::HostFull { .. }) if is_full => refused += 1,
                Err(error) => panic!("{name}, step {step}: {error}"),
            }
            let found = contents(&work.fs).unwrap();
            assert!(found == work.model, "{name}, step {step}: another state");
            assert!(!work.fs.volume().has_failed());
            if is_full && device.deferred_bytes() > 0 && random.below(2) == 0 {
                assert!(work.fs.volume_mut().sync().is_err(), "{name}: nothing is durable");
                assert!(work.fs.volume().has_unsynced(), "{name}");
                unsynced += 1;
            }
            // The data on the device must be recoverable, as after any power cut.
            if is_full && random.below(8) == 0 {
                let copy = Arc::new(MemoryDevice::from(below.snapshot()));
                recovered(&name, copy, work.acknowledged, &work.history);
            }
        }
        faulty.fill_up(false);
        work.fs.volume_mut().sync().unwrap();
        assert_eq!(device.deferred_bytes(), 0);
        let (msn, history) = (work.fs.volume().next_msn(), work.history.clone());
        drop(work);
        recovered(&name, below, msn, &history);
    }
    println!("{refused} operations refused, {took} not, {unsynced} syncs");
    assert!(refused > 50 && took > 50 && unsynced > 25, "{refused}, {took}, {unsynced}");
}

#[test]
fn a_write_that_is_lost_or_astray_is_never_read_as_something_else() {
    for seed in 0..rounds(1) {
        let image = formatted_image(seed);
        let (_, writes, _) = calls(&image, seed, &Model::new());
        let (mut noticed, mut harmless) = (0, 0);
        for write in 0..writes {
            for trouble in
                [Trouble::Lost, Trouble::Astray(4096), Trouble::Astray(IMAGE / 3 / 4096 * 4096)]
            {
                match lose(&image, seed, write, trouble) {
                    true => noticed += 1,
                    false => harmless += 1,
                }
            }
        }
        println!("seed {seed}: {noticed} lost or stray writes were noticed, {harmless} harmless");
        assert!(noticed > 20, "{noticed} noticed, {harmless} harmless");
    }
}

/// Loses or misdirects one write. Returns whether an error or finding reported it.
fn lose(image: &[u8], seed: u64, write: u64, trouble: Trouble) -> bool {
    let name = format!("seed {seed}, write {write}, {trouble:?}");
    let (device, below) = troubled(image, Some((Call::Write(write), trouble)));
    let mut work = Work::begin(device.clone(), seed).unwrap();
    match work.all() {
        Ok(()) => {}
        Err(Error::Corrupt(_)) => return true,
        Err(error) => panic!("{name}: {error}"),
    }
    let (acknowledged, history) = (work.acknowledged, work.history.clone());
    drop(work);
    let state: Arc<dyn Device> = below.clone();
    let report = check(&state, ALL, &mut ());
    let said = !report.is_clean();
    let view = match open(below, Mode::ReadOnly, tight(), 5) {
        Ok((volume, _)) => volume,
        Err(Error::Corrupt(_)) => return true,
        Err(error) => panic!("{name}: {error}"),
    };
    let msn = view.next_msn();
    match contents(&Fs::open(view, clock(0))) {
        Err(error) => assert!(error.is_damage() && said, "{name}: {error}, said: {said}"),
        Ok(found) if said => {
            // The write damaged another place, or the log stops early; both are reported.
            let model = history.iter().find(|(at, _)| *at == msn);
            assert!(
                model.is_some_and(|(_, model)| *model == found),
                "{name}: {:?}",
                report.findings
            );
        }
        Ok(found) => {
            let (_, model) = history.iter().find(|(at, _)| *at == msn).expect("a known state");
            assert!(found == *model, "{name}: something else was read");
            // Nothing on the device shows that the last group had been acknowledged.
            assert!(msn >= acknowledged, "{name}: silently lost");
        }
    }
    said
}

#[test]
fn a_read_error_in_the_last_group_is_no_torn_tail() {
    let seed = 2;
    let image = formatted_image(seed);
    let (device, below) = troubled(&image, None);
    let mut work = Work::begin(device, seed).unwrap();
    work.all().unwrap();
    let root = work.fs.root().unwrap();
    let new = New::of(FileType::Regular, Attributes::at(Time::default()));
    let file = work.fs.make(&root, b"late", new).unwrap();
    let data = Bytes::from(work.random.bytes(60_000));
    work.fs.write(&file, 0, &data).unwrap();
    work.fs.volume_mut().sync().unwrap();
    let expected = contents(&work.fs).unwrap();
    drop(work);
    let state: Arc<dyn Device> = below.clone();
    let survey = check(&state, ALL, &mut ()).log.unwrap();
    assert!(survey.pins.len() > 2, "{:?}", survey.pins);
    let (_, extent) = *survey.pins.last().unwrap();

    let bad = Arc::new(FaultyDevice::new(below.clone()));
    // Of a run only the bound slice is read, at whatever offset.
    bad.spoil(extent.start.byte()..extent.end().byte());
    assert!(open(bad.clone(), Mode::ReadWrite, tight(), 8).is_err(), "nothing may be given up");
    let view = Fs::open(open(bad.clone(), Mode::ReadOnly, tight(), 8).unwrap().0, clock(0));
    let late = view.lookup(&view.root().unwrap(), b"late").unwrap();
    assert!(view.read(&late, 0, 1 << 20).unwrap_err().is_damage());
    for (name, contents) in expected.iter().filter(|(name, _)| **name != b"late"[..]) {
        let file = view.lookup(&view.root().unwrap(), name).unwrap();
        assert!(view.read(&file, 0, 1 << 20).unwrap() == *contents);
    }
    let state: Arc<dyn Device> = bad;
    let report = check(&state, ALL, &mut ());
    assert!(report.findings.iter().any(|f| f.code == Code::ReadFailed), "{:?}", report.findings);
    assert!(!report.is_repairable());

    // The device works again: nothing was lost.
    let volume = open(below, Mode::ReadWrite, tight(), 9).unwrap().0;
    assert!(contents(&Fs::open(volume, clock(0))).unwrap() == expected);
}

#[test]
fn a_file_that_became_shorter_is_no_torn_tail() {
    let file = tempfile::tempfile().unwrap();
    let image = formatted_image(2);
    file.set_len(IMAGE).unwrap();
    let device = Arc::new(FileDevice::new(file.try_clone().unwrap(), IMAGE));
    device.write_at(0, &image).unwrap();
    let mut work = Work::begin(device.clone(), 2).unwrap();
    work.all().unwrap();
    drop(work);
    for len in (0..IMAGE).step_by(64 << 10) {
        let all = std::os::unix::fs::FileExt::read_exact_at;
        let mut kept = vec![0; IMAGE as usize];
        all(&file, &mut kept, 0).unwrap();
        file.set_len(len).unwrap();
        let error = open(device.clone(), Mode::ReadWrite, tight(), 4).map(drop).unwrap_err();
        assert!(matches!(error, Error::Io { .. } | Error::Corrupt(_)), "{len} bytes: {error}");
        let mut short = vec![0; IMAGE as usize];
        assert!(all(&file, &mut short, 0).is_err());
        assert_eq!(file.metadata().unwrap().len(), len, "nothing is written");
        file.set_len(IMAGE).unwrap();
        device.write_at(0, &kept).unwrap();
    }
    open(device, Mode::ReadWrite, tight(), 4).unwrap();
}

#[test]
fn a_rotten_leaf_that_a_replay_comes_by_hurts_nobody_else() {
    let seed = 3;
    let below = Arc::new(MemoryDevice::from(formatted_image(seed)));
    let work =
        || Fs::open(open(below.clone(), Mode::ReadWrite, tight(), seed).unwrap().0, clock(5));
    let mut fs = work();
    let root = fs.root().unwrap();
    let new = || New::of(FileType::Regular, Attributes::at(Time::default()));
    let (bad, good) = (vec![0xb5; 4096 * 4], vec![0x6a; 5000]);
    for (name, data) in [(&b"bad"[..], &bad), (b"good", &good)] {
        let file = fs.make(&root, name, new()).unwrap();
        fs.write(&file, 0, &Bytes::from(data.clone())).unwrap();
    }
    fs.checkpoint().unwrap();
    drop(fs);
    // Small changes of every block wait in the log, then in a buffer: more than a node holds.
    let mut fs = work();
    fs.checkpoint().unwrap();
    let file = fs.resolve(b"/bad").unwrap();
    for round in 0..12u64 {
        fs.write(&file, 1000 * round, &Bytes::from(vec![0xb5; 900])).unwrap();
        fs.volume_mut().sync().unwrap();
    }
    drop(fs);
    let image = below.snapshot();
    let rotten: Vec<usize> =
        (0..image.len() / 4096).filter(|at| image[at * 4096..][..4096] == [0xb5; 4096]).collect();
    assert!(!rotten.is_empty());
    for block in rotten {
        let at = block as u64 * 4096 + 77;
        below.write_at(at, &[0]).unwrap();
        let device: Arc<dyn Device> = below.clone();
        for data in [false, true] {
            let report = check(&device, CheckOptions { data, ..CheckOptions::ALL }, &mut ());
            let failed = report.findings.iter().any(|f| f.code == Code::ReplayFailed);
            assert!(!failed, "block {block}: {:?}", report.findings);
        }
        let view = open(device, Mode::ReadOnly, tight(), 2).unwrap().0;
        let fs = Fs::open(view, clock(0));
        let file = fs.resolve(b"/good").unwrap();
        assert!(fs.read(&file, 0, 1 << 20).unwrap() == good, "block {block}");
        let file = fs.resolve(b"/bad").unwrap();
        match fs.read(&file, 0, 1 << 20) {
            Ok(found) => assert!(found == bad, "block {block}"),
            Err(error) => assert!(error.is_damage(), "block {block}: {error}"),
        }
        below.write_at(at, &[0xb5]).unwrap();
    }
}

#[test]
fn a_superblock_that_stands_once_is_written_again() {
    let device = Arc::new(MemoryDevice::from(formatted_image(4)));
    let newest = open(device.clone(), Mode::ReadOnly, tight(), 2).unwrap().0.superblock().clone();
    let identity = read_identity(&Disk::new(device.clone())).unwrap();
    // The write of the second slot was lost.
    let second = slot_block(identity.ring, newest.slot | 1).byte();
    device.write_at(second, &[0; 4096]).unwrap();
    drop(open(device.clone(), Mode::ReadWrite, tight(), 2).unwrap());
    let mut block = vec![0; 4096];
    device.read_at(second, &mut block).unwrap();
    assert_eq!(Superblock::decode(&block, None).unwrap().birth, newest.birth);
    // Damage to the first slot is harmless now.
    device.write_at(slot_block(identity.ring, newest.slot & !1).byte() + 100, &[0x55]).unwrap();
    let again = open(device, Mode::ReadOnly, tight(), 2).unwrap().0;
    assert_eq!(again.superblock().birth, newest.birth);
}

#[test]
fn rot_of_an_old_slot_is_no_loss_when_a_later_one_is_torn() {
    let device = Arc::new(MemoryDevice::from(formatted_image(4)));
    let mut volume = open(device.clone(), Mode::ReadWrite, tight(), 2).unwrap().0;
    (0..16).for_each(|_| volume.checkpoint().unwrap());
    drop(volume);
    let identity = read_identity(&Disk::new(device.clone())).unwrap();
    // The second slots of the next pair to be written, and of a later one.
    for later in [1, 5] {
        let mut volume = open(device.clone(), Mode::ReadWrite, tight(), 3).unwrap().0;
        let epoch = volume.superblock().birth.epoch.0 + later;
        let [first, second] = slots_of(Epoch(epoch)).map(|slot| slot_block(identity.ring, slot));
        device.write_at(second.byte() + 9, &[0xa5; 4000]).unwrap();
        drop(volume);
        volume = open(device.clone(), Mode::ReadWrite, tight(), 4).unwrap().0;
        (1..later).for_each(|_| volume.checkpoint().unwrap());
        drop(volume);
        device.write_at(first.byte() + 512, &[0x5a; 512]).unwrap();
        let whole: Arc<dyn Device> = device.clone();
        let codes = check(&whole, ALL, &mut ()).findings.iter().map(|f| f.code).collect::<Vec<_>>();
        assert_eq!(codes, [Code::SlotTorn]);
        let again = open(device.clone(), Mode::ReadWrite, tight(), 5).unwrap().0;
        assert_eq!(again.superblock().birth.epoch, Epoch(epoch - 1));
    }
}

#[test]
fn a_slot_of_the_space_map_that_cannot_be_read_is_written_again_if_the_other_counts() {
    let below = Arc::new(MemoryDevice::from(formatted_image(6)));
    let newest = open(below.clone(), Mode::ReadOnly, tight(), 2).unwrap().0.superblock().clone();
    let mut opened = 0;
    for slot in 0..2 * newest.map_pages {
        let copy = Arc::new(MemoryDevice::from(below.snapshot()));
        let device = Arc::new(FaultyDevice::new(copy.clone()));
        let byte = newest.map.start().byte() + slot * 4096;
        device.spoil(byte..byte + 512);
        match open(device, Mode::ReadWrite, tight(), 2) {
            Ok((mut volume, _)) => {
                opened += 1;
                volume.checkpoint().unwrap();
                let whole: Arc<dyn Device> = copy;
                let report = check(&whole, ALL, &mut ());
                assert!(report.is_clean(), "slot {slot}: {:?}", report.findings);
            }
            Err(error) => assert!(matches!(error, Error::Io { .. }), "slot {slot}: {error}"),
        }
    }
    assert_eq!(opened, newest.map_pages);
}

#[test]
fn a_superblock_slot_that_cannot_be_read_stops_writers_only() {
    let below = Arc::new(MemoryDevice::from(formatted_image(6)));
    let newest = open(below.clone(), Mode::ReadOnly, tight(), 2).unwrap().0.superblock().clone();
    let identity = read_identity(&Disk::new(below.clone())).unwrap();
    for slot in 0..32 {
        let device = Arc::new(FaultyDevice::new(below.clone()));
        let byte = slot_block(identity.ring, slot).byte();
        device.spoil(byte..byte + 512);
        let epoch = u64::from(slot / 2);
        let near = (newest.birth.epoch.0..=newest.birth.epoch.0 + 1).contains(&epoch);
        assert_eq!(open(device.clone(), Mode::ReadWrite, tight(), 2).is_err(), near, "slot {slot}");
        let view = open(device.clone(), Mode::ReadOnly, tight(), 2).unwrap().0;
        assert_eq!(view.superblock().birth, newest.birth);
        let device: Arc<dyn Device> = device;
        let report = check(&device, ALL, &mut ());
        assert!(
            report.findings.iter().all(|f| f.code == Code::ReadFailed),
            "{:?}",
            report.findings
        );
        assert_eq!(report.findings.len(), 1);
    }
}

/// An unreadable leaf only delays the deletes that are pending for it.
#[test]
fn buffers_are_emptied_beside_a_leaf_that_cannot_be_read() {
    let below = Arc::new(MemoryDevice::new(32 << 20));
    let mut fs = formatted(below.clone(), middling(), roomy(), 1);
    let root = fs.root().unwrap();
    let names: Vec<Vec<u8>> = (0..2000).map(|number| format!("{number}").into_bytes()).collect();
    for name in &names {
        let file = fs
            .make(&root, name, New::of(FileType::Regular, Attributes::at(Time::default())))
            .unwrap();
        fs.write(&file, 0, &Bytes::from(vec![7; 3000])).unwrap();
    }
    fs.volume_mut().drain().unwrap();
    fs.checkpoint().unwrap();
    let leaf = first_leaf(&fs);
    drop((root, fs));
    let device = Arc::new(FaultyDevice::new(below));
    let mut fs = Fs::open(open(device.clone(), Mode::ReadWrite, roomy(), 2).unwrap().0, clock(9));
    device.spoil(leaf.start.byte()..leaf.end().byte());
    let root = fs.root().unwrap();
    let used = fs.volume().blocks().unwrap();
    for name in &names {
        fs.unlink(&root, name).unwrap();
    }
    while fs.volume_mut().reclaim(10).unwrap() {}
    fs.checkpoint().unwrap();
    let left = fs.volume().blocks().unwrap();
    assert!(left.free > used.free + 1000, "{left:?}, {used:?} before");
    fs.make(&root, b"another", New::of(FileType::Regular, Attributes::at(Time::default())))
        .unwrap();
    fs.checkpoint().unwrap();
}

/// The extent of a leaf of the data index.
fn first_leaf(fs: &Fs) -> Extent {
    let store = fs.volume().store();
    let mut node = store.root(TreeId::Data).unwrap();
    while let Node::Internal(internal) = &*node {
        let next = store.child(internal, 1).unwrap();
        node = next;
    }
    store.table.get(node.id()).unwrap().unwrap().extent
}
