//! Power cuts in operations that write outside the log: creating an image, bulk import, repair.

use std::sync::Arc;

use betr_core::Error;
use betr_core::check::{CheckOptions, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::disk::Disk;
use betr_core::format::Identity;
use betr_core::fs::Fs;
use betr_core::ids::{BLOCK_SIZE, Extent, NodeId, Time};
use betr_core::mend::repair;
use betr_core::space::slot_block;
use betr_core::volume::{Mode, OpenOptions, Volume, read_identity, slots_of, write_identity};
use betr_lab::explore::devices::{ForkDevice, RecordingDevice};
use betr_lab::explore::{Broken, Model, Step, Sweep, parse, perform};
use betr_tests::{clock, formatted, nonces, open, tight, tiny};

const IMAGE: u64 = 2 << 20;
const ALL: CheckOptions = CheckOptions::ALL;

const SOME: &str = "
mkdir /d
create /d/large
write /d/large 0 60000 1
create /d/small
write /d/small 0 900 2
link /d/small /other
symlink /link d/small
";

const MORE: &str = "
mkdir /more
create /more/large
write /more/large 0 90000 3
create /more/small
write /more/small 100 5000 4
unlink /other
write /d/large 30000 20000 5
";

fn steps(script: &str) -> Vec<Step> {
    parse(script).unwrap()
}

fn model(steps: &[Step]) -> Model {
    let mut model = Model::new();
    steps.iter().for_each(|step| model.apply(step).unwrap());
    model
}

fn take(fs: &mut Fs, steps: &[Step]) {
    steps.iter().for_each(|step| perform(fs, step).unwrap());
}

/// An image with some files, closed cleanly.
fn image() -> ForkDevice {
    let device = Arc::new(ForkDevice::new(IMAGE as usize / BLOCK_SIZE));
    let mut fs = formatted(device.clone(), tiny(), tight(), 1);
    take(&mut fs, &steps(SOME));
    fs.checkpoint().unwrap();
    device.fork()
}

/// Which of these models a device holds; an error says why none.
fn holds(device: &Arc<dyn Device>, models: &[&Model]) -> Result<usize, String> {
    let report = check(device, ALL, &mut ());
    if !report.is_repairable() && !report.is_clean() {
        return Err(format!("{:?}", report.findings));
    }
    let view = open(device.clone(), Mode::ReadOnly, tight(), 4).map_err(|e| e.to_string())?.0;
    let fs = Fs::open(view, clock(0));
    let same = |model: &&&Model| model.difference(&fs).is_ok_and(|difference| difference.is_none());
    match models.iter().position(|model| same(&model)) {
        Some(at) => Ok(at),
        None => Err(format!("another state: {:?}", models[0].difference(&fs))),
    }
}

fn sound(swept: Result<u64, Box<Broken>>) {
    match swept {
        Ok(states) => {
            println!("{states} distinct states");
            assert!(states > 30, "only {states} states");
        }
        Err(broken) => {
            let Broken { cut, description, what, .. } = *broken;
            panic!("after event {}: {what}\n{}", cut.events, description.join("\n"));
        }
    }
}

#[test]
fn an_image_is_made_as_a_whole_or_not_at_all() {
    let base = ForkDevice::new(IMAGE as usize / BLOCK_SIZE);
    let device = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
    let mut fs = formatted(device.clone(), tiny(), tight(), 1);
    take(&mut fs, &steps(SOME));
    fs.checkpoint().unwrap();
    drop(fs);
    let made = model(&steps(SOME));
    let events = device.events();
    let last = events.len();
    let sweep = Sweep { base, events, seed: 1, states: 12 };
    sound(sweep.run(|device, at| {
        match open(device.clone(), Mode::ReadOnly, tight(), 2) {
            Err(Error::NotAnImage(_)) if at < last => return Ok(()),
            // The identity block is torn: the image was not created either.
            Err(Error::Corrupt(_)) if at < last => return Ok(()),
            Err(error) => return Err(error.to_string()),
            Ok(_) => {}
        }
        holds(&device, &[&made]).map(drop)
    }));
}

#[test]
fn an_import_is_there_as_a_whole_or_not_at_all() {
    let base = image();
    let device = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
    let volume = open(device.clone(), Mode::ReadWrite, tight(), 2).unwrap().0;
    let mut fs = Fs::open(volume, clock(100));
    fs.volume_mut().stop_logging().unwrap();
    take(&mut fs, &steps(MORE));
    fs.checkpoint().unwrap();
    drop(fs);
    let (before, after) = (model(&steps(SOME)), model(&steps(&format!("{SOME}{MORE}"))));
    let events = device.events();
    let last = events.len();
    let sweep = Sweep { base, events, seed: 2, states: 12 };
    let mut found = [0; 2];
    sound(sweep.run(|device, at| {
        let state = holds(&device, &[&before, &after])?;
        found[state] += 1;
        if at == last && state == 0 { Err("it was acknowledged".into()) } else { Ok(()) }
    }));
    assert!(found.iter().all(|count| *count > 0), "{found:?}");
}

#[test]
fn another_name_is_there_as_a_whole_or_not_at_all() {
    let base = image();
    let device = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
    let disk = Disk::new(device.clone());
    let before = read_identity(&disk).unwrap();
    let after = Identity { label: "x".repeat(64), uuid: [0xa5; 16], ..before.clone() };
    write_identity(&disk, &after).unwrap();
    let (files, events) = (model(&steps(SOME)), device.events());
    let last = events.len();
    let mut found = [0; 2];
    let swept = Sweep { base, events, seed: 4, states: 100 }.run(|device, at| {
        holds(&device, &[&files])?;
        let identity = read_identity(&Disk::new(device)).map_err(|error| error.to_string())?;
        let state = [&before, &after].into_iter().position(|known| *known == identity);
        found[state.ok_or("half of each")?] += 1;
        if at == last && state == Some(0) { Err("it was acknowledged".into()) } else { Ok(()) }
    });
    assert_eq!((swept.unwrap(), found), (2, [1, 1]));
    // `write_identity` refuses a change of any other field, and a label of more than 64 bytes.
    let other = Identity { image_blocks: before.image_blocks + 1, ..after.clone() };
    let long = Identity { label: "x".repeat(65), ..after.clone() };
    for wrong in [other, long] {
        assert!(matches!(write_identity(&disk, &wrong), Err(Error::Misuse(_))));
    }
    assert_eq!(read_identity(&disk).unwrap(), after);
}

#[test]
fn a_repair_can_be_cut_off_and_made_again() {
    // The power is cut while a log group is written.
    let memory = Arc::new(MemoryDevice::from(image().snapshot()));
    let volume = open(memory.clone(), Mode::ReadWrite, tight(), 3).unwrap().0;
    let mut fs = Fs::open(volume, clock(100));
    for step in steps(MORE) {
        perform(&mut fs, &step).unwrap();
        fs.volume_mut().sync().unwrap();
    }
    drop(fs);
    let expected = model(&steps(&format!("{SOME}{MORE}")));
    let base = ForkDevice::of(&memory.snapshot());
    let recorder = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
    let device: Arc<dyn Device> = recorder.clone();
    let report = check(&device, ALL, &mut ());
    assert!(report.needs_replay());
    repair(&device, &report, None, Time::default(), Box::new(|| 11)).unwrap();
    let sweep = Sweep { base, events: recorder.events(), seed: 3, states: 12 };
    sound(sweep.run(|device, _| {
        holds(&device, &[&expected])?;
        let report = check(&device, ALL, &mut ());
        if !report.findings.is_empty() {
            repair(&device, &report, None, Time::default(), Box::new(|| 12))
                .map_err(|e| e.to_string())?;
        }
        let report = check(&device, ALL, &mut ());
        if !report.findings.is_empty() {
            return Err(format!("after a second repair: {:?}", report.findings));
        }
        holds(&device, &[&expected]).map(drop)
    }));
}

/// Growing is atomic: a power cut leaves the volume with the old or the new size and with all its contents, even if its
/// log has not been replayed, and whatever the device holds beyond its end.
#[test]
fn a_volume_grows_or_stays_as_it_is() {
    // Sizes at which the space map needs no more space, and at which it gets another segment.
    let sizes = [(2 << 20, 3 << 20), (100 << 20, 190 << 20)];
    for ((from, to), logged) in sizes.into_iter().flat_map(|s| [(s, false), (s, true)]) {
        let device = Arc::new(ForkDevice::new(to as usize / BLOCK_SIZE));
        let before = Arc::new(Shorter(device.clone(), from));
        let mut fs = formatted(before.clone(), tiny(), tight(), 1);
        take(&mut fs, &steps(SOME));
        fs.checkpoint().unwrap();
        let mut before_it = SOME.to_owned();
        if logged {
            drop(fs);
            let volume = open(before, Mode::ReadWrite, tight(), 5).unwrap().0;
            fs = Fs::open(volume, clock(5));
            take(&mut fs, &steps(MORE));
            fs.volume_mut().sync().unwrap();
            before_it.push_str(MORE);
        }
        drop(fs);
        let tail = 64 * BLOCK_SIZE as u64;
        device.write_at(to - tail, &vec![0xa5; tail as usize]).unwrap();
        let base = device.fork();
        let recorder = Arc::new(RecordingDevice::new(device.clone()));
        let mut volume = open(recorder.clone(), Mode::ReadWrite, tight(), 2).unwrap().0;
        volume.grow(to).unwrap();
        drop(volume);
        let expected = model(&steps(&before_it));
        let sizes = [from, to].map(|bytes| bytes / BLOCK_SIZE as u64);
        let mut found = [0, 0];
        let judge = |state: Arc<dyn Device>, _| {
            let report = check(&state, ALL, &mut ());
            if !report.is_clean() {
                return Err(format!("{:?}", report.findings));
            }
            let (volume, _) = open(state, Mode::ReadOnly, tight(), 3).map_err(|e| e.to_string())?;
            let blocks = volume.superblock().image_blocks;
            let at = sizes.iter().position(|size| *size == blocks);
            found[at.ok_or(format!("{blocks} blocks"))?] += 1;
            let fs = Fs::open(volume, clock(0));
            expected.difference(&fs).map_err(|e| e.to_string())?.map_or(Ok(()), Err)
        };
        let sweep = Sweep { base, events: recorder.events(), seed: 1, states: 12 };
        sweep
            .run(judge)
            .unwrap_or_else(|broken| panic!("{}: {:?}", broken.what, broken.description));
        assert!(found.iter().all(|count| *count > 0), "{found:?}");
        let mut fs =
            Fs::open(open(device.clone(), Mode::ReadWrite, tight(), 4).unwrap().0, clock(9));
        assert_eq!(fs.volume().superblock().image_blocks, sizes[1]);
        take(&mut fs, &steps("mkdir /last\ncreate /last/one\nwrite /last/one 0 70000 9"));
        fs.checkpoint().unwrap();
        let device: Arc<dyn Device> = device;
        let report = check(&device, ALL, &mut ());
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}

/// Grows from 2 MiB to 4 GiB in many steps: the space map then has several segments, no node has moved, and all space
/// is usable.
#[test]
fn a_volume_grows_many_times() {
    let device = Arc::new(MemoryDevice::new(4 << 30));
    let part = |bytes: u64| -> Arc<dyn Device> { Arc::new(Shorter(device.clone(), bytes)) };
    let mut bytes = IMAGE;
    let mut fs = formatted(part(bytes), tiny(), tight(), 1);
    take(&mut fs, &steps(SOME));
    fs.checkpoint().unwrap();
    drop(fs);
    let expected = model(&steps(SOME));
    let mut sizes = Vec::new();
    for round in 0.. {
        // Sometimes by the smallest possible amount.
        let next = if round % 5 == 4 { bytes + 18 * BLOCK_SIZE as u64 } else { 2 * bytes };
        if next > device.len() {
            break;
        }
        let whole = part(next);
        let mut volume = open(whole.clone(), Mode::ReadWrite, tight(), 2 + round).unwrap().0;
        let (before, entries) = (volume.superblock().used_blocks, all_entries(&volume));
        let map = volume.superblock().map.blocks();
        volume.grow(next).unwrap();
        let after = volume.superblock();
        assert_eq!(after.image_blocks, next / BLOCK_SIZE as u64);
        assert!(after.used_blocks <= before + after.map.blocks() - map + 4, "nothing else comes");
        assert!(after.map_pages <= after.map.pages());
        assert_eq!(all_entries(&volume), entries, "nodes that moved");
        drop(volume);
        let report = check(&whole, ALL, &mut ());
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        bytes = next;
        sizes.push(bytes);
    }
    assert!(sizes.len() > 10, "{sizes:?}");
    let volume = open(part(bytes), Mode::ReadWrite, tight(), 99).unwrap().0;
    assert!(volume.superblock().map.iter().count() > 3, "{:?}", volume.superblock().map);
    let mut fs = Fs::open(volume, clock(9));
    assert_eq!(expected.difference(&fs).unwrap(), None);
    // A lost superblock is reconstructed with the segments in the identity block.
    take(&mut fs, &steps("mkdir /last\ncreate /last/one\nwrite /last/one 0 70000 9"));
    fs.checkpoint().unwrap();
    drop(fs);
    let identity = read_identity(&Disk::new(part(bytes))).unwrap();
    for slot in 0..32 {
        let zeros = [0; BLOCK_SIZE];
        device.write_at(slot_block(identity.ring, slot).byte(), &zeros).unwrap();
    }
    let whole = part(bytes);
    let report = check(&whole, ALL, &mut ());
    repair(&whole, &report, None, Time::default(), Box::new(|| 12)).unwrap();
    let report = check(&whole, ALL, &mut ());
    assert!(report.is_clean(), "{:?}", report.findings);
    let fs = Fs::open(open(whole, Mode::ReadOnly, tight(), 3).unwrap().0, clock(0));
    let root = fs.root().unwrap();
    assert!(fs.find(&root, b"last").unwrap().is_some());
}

/// A volume that went back to a checkpoint before a growth has the old size, and can grow again: first to the size
/// already recorded in the identity block.
#[test]
fn a_volume_that_went_back_grows_again() {
    let (from, to, further) = (120u64 << 20, 140 << 20, 400 << 20);
    for last in [to, further] {
        let device = Arc::new(MemoryDevice::new(further));
        let mut fs = formatted(Arc::new(Shorter(device.clone(), from)), tiny(), tight(), 1);
        take(&mut fs, &steps(SOME));
        fs.checkpoint().unwrap();
        let slot = slots_of(fs.volume().superblock().birth.epoch)[0];
        drop(fs);
        let whole: Arc<dyn Device> = device.clone();
        let mut volume = open(whole.clone(), Mode::ReadWrite, tight(), 2).unwrap().0;
        volume.grow(to).unwrap();
        drop(volume);
        let ring = read_identity(&Disk::new(whole.clone())).unwrap().ring;
        let slots = || {
            let of = |slot| slot_block(ring, slot).byte() as usize;
            let bytes = device.snapshot();
            (0..32).map(|slot| bytes[of(slot)..][..BLOCK_SIZE].to_vec()).collect::<Vec<_>>()
        };
        let options =
            OpenOptions { slot: Some(slot), ..OpenOptions::new(Mode::ReadWrite, nonces(3)) };
        let mut fs = Fs::open(Volume::open(whole.clone(), options).unwrap().0, clock(9));
        take(&mut fs, &steps("mkdir /again"));
        fs.checkpoint().unwrap();
        assert_eq!(fs.volume().superblock().image_blocks * BLOCK_SIZE as u64, from);
        drop(fs);
        let before = slots();
        let mut volume = open(whole.clone(), Mode::ReadWrite, tight(), 4).unwrap().0;
        volume.grow(last).unwrap();
        assert_eq!(volume.superblock().image_blocks * BLOCK_SIZE as u64, last);
        assert_eq!(volume.identity().image_blocks, volume.superblock().image_blocks);
        assert!(volume.superblock().map == volume.identity().map);
        drop(volume);
        let after = slots();
        let kept = before.iter().zip(&after).filter(|(before, after)| before == after).count();
        assert!(last == further || kept >= 28, "{kept} slots of the ring are as they were");
        let report = check(&whole, ALL, &mut ());
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        let fs = Fs::open(open(whole, Mode::ReadOnly, tight(), 5).unwrap().0, clock(0));
        assert!(fs.find(&fs.root().unwrap(), b"again").unwrap().is_some());
    }
}

/// The extents of all nodes.
fn all_entries(volume: &Volume) -> Vec<Option<Extent>> {
    let store = volume.store();
    let of = |id| store.table.get(NodeId(id)).unwrap().map(|entry| entry.extent);
    (1..store.next_node().0).map(of).collect()
}

/// The first bytes of a device.
struct Shorter<D>(Arc<D>, u64);

impl<D: Device> Device for Shorter<D> {
    fn len(&self) -> u64 {
        self.1
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.0.read_at(at, buf)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_at(at, bytes)
    }

    fn flush(&self) -> std::io::Result<()> {
        self.0.flush()
    }
}
