//! The moments in a log: after a power cut during a workload, the state after every log record equals the model's state
//! at that operation, and the differences equal the history. A power cut while a moment is made durable leaves either
//! that moment or the whole old state.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use betr_core::Error;
use betr_core::device::MemoryDevice;
use betr_core::format::{FileType, Superblock};
use betr_core::fs::{Attributes, Clock, Fs, New, open_as_of};
use betr_core::ids::Time;
use betr_core::store::CacheBudget;
use betr_core::volume::{Counters, Mode, Moment, OpenOptions, Volume};
use betr_lab::explore::{Flaw, Remembered, Story, Workload};
use betr_tests::{create, nonces, rounds, tiny};
use bytes::Bytes;

#[test]
fn every_record_of_a_log_is_a_moment() {
    let mut all = Remembered::default();
    for seed in 0..rounds(4) {
        for workload in Workload::all() {
            let steps = workload.steps(seed);
            let story = Story::record(workload.setup, &steps, seed, Flaw::None).unwrap();
            for cut in 0..2 {
                let found = story.check_moments(seed * 2 + cut).unwrap_or_else(|what| {
                    panic!("{}, seed {seed}, cut {cut}: {what}", workload.name)
                });
                all.moments += found.moments;
                all.end_of_group += found.end_of_group;
                all.applied += found.applied;
                all.kept += found.kept;
                all.arrived += found.arrived;
                all.changes += found.changes;
            }
        }
    }
    println!("{all:?}");
    assert!(all.moments > 300 && all.applied > 50 && all.changes > 500, "{all:?}");
    assert!(all.end_of_group > 10, "{all:?}");
    assert!(all.kept > 300 && all.arrived > 100, "{all:?}");
}

/// A clock that the test sets.
#[derive(Clone, Default)]
struct Hand(Arc<AtomicI64>);

impl Hand {
    fn set(&self, secs: i64) {
        self.0.store(secs, Ordering::Relaxed);
    }

    fn now(&self) -> Time {
        Time { secs: self.0.load(Ordering::Relaxed), nanos: 0 }
    }

    fn clock(&self) -> Clock {
        let hand = self.clone();
        Box::new(move || hand.now())
    }
}

/// A file system that was made at second 100, open for writing.
struct Clocked {
    device: Arc<MemoryDevice>,
    hand: Hand,
    fs: Fs,
    files: u32,
}

impl Clocked {
    fn new(bytes: u64, checkpoint_after: Option<u64>) -> Clocked {
        let device = Arc::new(MemoryDevice::new(bytes));
        let hand = Hand::default();
        hand.set(100);
        let volume = create(device.clone(), tiny(), CacheBudget::default(), 1).unwrap();
        let mut fs = Fs::format(volume, hand.clock(), Attributes::at(hand.now())).unwrap();
        fs.checkpoint().unwrap();
        drop(fs);
        let fs = Clocked::open(&device, &hand, checkpoint_after, false);
        Clocked { device, hand, fs, files: 0 }
    }

    fn open(
        device: &Arc<MemoryDevice>,
        hand: &Hand,
        checkpoint_after: Option<u64>,
        eager_checkpoints: bool,
    ) -> Fs {
        let options = OpenOptions {
            checkpoint_after,
            eager_checkpoints,
            ..OpenOptions::new(Mode::ReadWrite, nonces(2))
        };
        Fs::open(Volume::open(device.clone(), options).unwrap().0, hand.clock())
    }

    /// Makes a file at this second; fails if there is no space.
    fn make(&mut self, secs: i64, bytes: usize) -> Result<(), Error> {
        self.hand.set(secs);
        let root = self.fs.root()?;
        self.files += 1;
        let name = format!("file-{:05}", self.files);
        let new = New::of(FileType::Regular, Attributes::at(self.hand.now()));
        let file = self.fs.make(&root, name.as_bytes(), new)?;
        self.fs.write(&file, 0, &Bytes::from(vec![7; bytes]))
    }

    fn superblock(&self) -> &Superblock {
        self.fs.volume().superblock()
    }

    fn counters(&self) -> Counters {
        self.fs.volume().counters()
    }

    /// The number of files at a second.
    fn files_at(&self, secs: i64) -> usize {
        let found = Moment::Time(Time { secs, nanos: 0 });
        let found = found.find(&(self.device.clone() as _)).unwrap();
        let options = OpenOptions::new(found.mode, nonces(3));
        let opened = open_as_of(self.device.clone(), found, options, self.hand.clock());
        let fs = opened.unwrap().0;
        fs.list(&fs.root().unwrap()).unwrap().len()
    }
}

/// The checkpoint before the first record contains no new change, so it has the time of the previous one.
#[test]
fn what_did_not_exist_at_a_time_is_not_shown_there() {
    let mut clocked = Clocked::new(8 << 20, None);
    clocked.make(200, 10).unwrap();
    clocked.make(300, 10).unwrap();
    clocked.hand.set(310);
    clocked.fs.volume_mut().sync().unwrap();
    assert_eq!(clocked.counters().fences, 1);
    clocked.make(400, 10).unwrap();
    clocked.fs.volume_mut().sync().unwrap();
    for (secs, files) in [(100, 0), (199, 0), (200, 1), (299, 1), (300, 2), (399, 2), (400, 3)] {
        assert_eq!(clocked.files_at(secs), files, "at {secs}");
    }
    assert_eq!(clocked.superblock().wall.secs, 100);
}

/// The time of every checkpoint is between its last transaction and now.
#[test]
fn every_checkpoint_has_its_own_time() {
    let mut counters = Vec::new();
    // Checkpoints because of a full log, because of elapsed time, and for free blocks.
    for (bytes, after, size) in
        [(16 << 20, None, 3000), (16 << 20, Some(40), 10), (3 << 20, None, 20_000)]
    {
        let mut clocked = Clocked::new(bytes, after);
        let mut last = 100;
        let mut checkpoints = 0;
        for step in 0..400 {
            let epoch = clocked.superblock().birth.epoch;
            let now = 200 + step * 10;
            let made = clocked.make(now, size);
            if step % 7 == 0 {
                clocked.fs.volume_mut().sync().unwrap();
            }
            if clocked.superblock().birth.epoch != epoch {
                let wall = clocked.superblock().wall.secs;
                assert!(
                    (last..=now).contains(&wall),
                    "step {step}: {wall}, between {last} and {now}"
                );
                checkpoints += 1;
            }
            last = now;
            match made {
                Ok(()) => {}
                Err(Error::NoSpace { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(checkpoints > 1);
        counters.push(clocked.counters());
    }
    assert!(counters.iter().all(|counters| counters.fences > 0), "{counters:?}");
    assert!(counters[0].for_log > 0 && counters[1].for_time > 0, "{counters:?}");
    assert!(counters[2].for_space > 0, "{counters:?}");
}

/// A checkpoint in the middle of a recovery has the time of the last replayed record.
#[test]
fn what_is_replayed_is_not_older_than_it_was() {
    let mut clocked = Clocked::new(8 << 20, None);
    for secs in [200, 300, 400, 500] {
        clocked.make(secs, 10).unwrap();
        clocked.fs.volume_mut().sync().unwrap();
    }
    // Four groups follow the checkpoint before the first record; recovery makes another checkpoint before the last of
    // them.
    assert_eq!(clocked.superblock().wall.secs, 100);
    clocked.hand.set(900);
    let Clocked { device, hand, fs, files } = clocked;
    drop(fs);
    let fs = Clocked::open(&device, &hand, None, true);
    let mut clocked = Clocked { device, hand, fs, files };
    assert_eq!(clocked.superblock().wall.secs, 400);
    clocked.fs.volume_mut().checkpoint().unwrap();
    assert_eq!(clocked.superblock().wall.secs, 500);
    // A caller may set a later time.
    clocked.fs.volume_mut().note_time(Time { secs: 900, nanos: 0 });
    clocked.fs.volume_mut().checkpoint().unwrap();
    assert_eq!(clocked.superblock().wall.secs, 900);
    for (secs, files) in [(450, 3), (500, 4)] {
        assert_eq!(clocked.files_at(secs), files, "at {secs}");
    }
}
