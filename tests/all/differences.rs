//! Differences between two states of a volume: the result is the same whether both are read in full or only the parts
//! that they do not share.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use betr_core::device::{Device, MemoryDevice};
use betr_core::format::{FileType, ZoneSizes};
use betr_core::fs::{Attributes, Fs, New, Object, open_as_of};
use betr_core::ids::{Msn, Time};
use betr_core::volume::{CreateOptions, Moment, OpenOptions, Volume};
use betr_lab::explore::{Run, Step, Taken, Workload};
use betr_offline::compare::{Change, Touched, compare, touched};
use betr_offline::device::CachedDevice;
use betr_offline::history::touched_since_checkpoint;
use betr_tests::{Random, nonces, rounds};

/// A state, and the keys touched by its log.
fn state(device: &Arc<dyn Device>, moment: &Moment) -> (Fs, Touched) {
    let found = moment.find(device).unwrap();
    let options = OpenOptions::new(found.mode, nonces(0));
    let clock = Box::new(Time::default);
    let (fs, recovery) = open_as_of(device.clone(), found.clone(), options, clock).unwrap();
    let end = recovery.stopped.map_or(fs.volume().next_msn(), |stopped| Msn(stopped.before.0));
    (fs, touched_since_checkpoint(device, &found, end).unwrap())
}

fn changes(a: &Fs, b: &Fs, touched: Option<&Touched>) -> Vec<Change> {
    let mut changes = Vec::new();
    let told = compare(a, b, touched, &mut |change| {
        changes.push(change);
        ControlFlow::Continue(())
    });
    told.unwrap();
    changes
}

#[test]
fn what_two_states_share_need_not_be_read() {
    let (mut pairs, mut different) = (0, 0);
    for seed in 0..rounds(1) {
        for workload in Workload::all() {
            let mut setup = workload.setup;
            setup.image_bytes = 16 << 20;
            let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(setup.image_bytes));
            setup.format(device.clone(), seed).unwrap();
            let mut run = Run::start(setup, device.clone(), seed).unwrap();
            let mut random = Random::new(seed);
            let mut moments = Vec::new();
            for (at, step) in workload.steps(seed).iter().enumerate() {
                if matches!(step, Step::Snapshot(_) | Step::DropSnapshot(_) | Step::RollBack(_)) {
                    continue;
                }
                run.step(step).unwrap();
                if random.below(60) == 0 {
                    let name = format!("{at}");
                    assert_eq!(run.step(&Step::Snapshot(name.clone())), Ok(Taken::Acknowledged));
                    moments.push(Moment::Snapshot(name.into()));
                }
            }
            run.step(&Step::Sync).unwrap();
            moments.extend([Moment::Checkpoint, Moment::Now]);
            let states: Vec<(Fs, Touched)> =
                moments.iter().map(|moment| state(&device, moment)).collect();
            for (a, before) in &states {
                for (b, after) in &states {
                    let touched = touched(a.volume(), b.volume(), [before.clone(), after.clone()]);
                    let touched = touched.expect("they are of one volume");
                    let whole = changes(a, b, None);
                    let what = format!("{}, seed {seed}", workload.name);
                    assert_eq!(changes(a, b, Some(&touched)), whole, "{what}");
                    pairs += 1;
                    different += usize::from(!whole.is_empty());
                }
            }
        }
    }
    println!("{pairs} pairs, {different} of them different");
    assert!(different > pairs / 2);
}

/// How ten files are changed.
#[derive(Clone, Copy, Debug)]
enum Edit {
    /// Some bytes are written in place.
    Overwrite,
    /// The file is removed and made anew, as editors do, and deletes are drained: their leaves are rewritten.
    Replace,
}

/// A tree of directories with files, of which ten are changed between two snapshots; how many blocks a comparison of these reads.
fn blocks_read(files: u64, edit: Edit) -> u64 {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(8 << 30));
    let zones = ZoneSizes::default();
    let options = CreateOptions { zones, ..CreateOptions::new([7; 16], device.len(), nonces(1)) };
    let volume = Volume::create(device.clone(), options).unwrap();
    let mut seconds = 0;
    let clock = Box::new(move || {
        seconds += 1;
        Time { secs: seconds, nanos: 0 }
    });
    let attributes = Attributes::at(Time::default());
    let mut fs = Fs::format(volume, clock, attributes).unwrap();
    let make = |fs: &mut Fs, directory: &Object, name: &str, kind| {
        let new = New::of(kind, Attributes::at(Time::default()));
        fs.make(directory, name.as_bytes(), new).unwrap()
    };
    let mut random = Random::new(3);
    let root = fs.root().unwrap();
    for number in 0..files / 20 {
        let above = make(&mut fs, &root, &format!("above-{number}"), FileType::Directory);
        let directory = make(&mut fs, &above, "directory", FileType::Directory);
        for file in 0..20 {
            let object = make(&mut fs, &directory, &format!("file-{file}"), FileType::Regular);
            let len = 500 + random.below(8000) as usize;
            fs.write(&object, 0, &random.bytes(len).into()).unwrap();
        }
    }
    if let Edit::Replace = edit {
        // What was pending would come to the leaves together with the deletes.
        fs.volume_mut().drain().unwrap();
    }
    fs.checkpoint().unwrap();
    fs.volume_mut().take_hold("before").unwrap();
    for number in 0..10 {
        let at = number * (files / 200);
        let (directory, name) = (format!("/above-{at}/directory"), format!("file-{number}"));
        let object = fs.resolve(format!("{directory}/{name}").as_bytes()).unwrap();
        match edit {
            Edit::Overwrite => fs.write(&object, 100, &random.bytes(200).into()).unwrap(),
            Edit::Replace => {
                let directory = fs.resolve(directory.as_bytes()).unwrap();
                fs.unlink(&directory, name.as_bytes()).unwrap();
                let object = make(&mut fs, &directory, &name, FileType::Regular);
                fs.write(&object, 0, &random.bytes(1000).into()).unwrap();
                fs.volume_mut().reclaim(u64::MAX).unwrap();
            }
        }
    }
    fs.volume_mut().take_hold("after").unwrap();
    drop(fs);
    let noting = Arc::new(CountingDevice { base: device, bytes: AtomicU64::new(0) });
    let shown: Arc<dyn Device> = Arc::new(CachedDevice::new(noting.clone()));
    let [(a, before), (b, after)] =
        ["before", "after"].map(|name| state(&shown, &Moment::Snapshot(name.into())));
    let touched = touched(a.volume(), b.volume(), [before, after]).unwrap();
    let changed = match edit {
        Edit::Overwrite => 10,
        // The directories as well.
        Edit::Replace => 20,
    };
    assert_eq!(changes(&a, &b, Some(&touched)).len(), changed);
    noting.bytes.load(Ordering::Relaxed).div_ceil(4096)
}

#[test]
fn a_comparison_reads_what_differs_however_large_both_are() {
    let files = [2_000, 20_000 * rounds(1)];
    for edit in [Edit::Overwrite, Edit::Replace] {
        let counts = files.map(|files| blocks_read(files, edit));
        println!("{counts:?} blocks for {files:?} files, {edit:?}");
        assert!(counts.iter().all(|count| *count <= 400), "{counts:?} blocks, {edit:?}");
    }
}

/// A device that counts the bytes read.
struct CountingDevice {
    base: Arc<dyn Device>,
    bytes: AtomicU64,
}

impl Device for CountingDevice {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.bytes.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.base.read_at(at, buf)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.base.write_at(at, bytes)
    }

    fn flush(&self) -> std::io::Result<()> {
        self.base.flush()
    }
}
