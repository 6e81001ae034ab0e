//! A volume that is filled to the last block can always be emptied: every delete succeeds, whatever the geometry, the
//! file sizes and the order of deletes, across syncs, checkpoints, reopens and crashes.

use std::sync::Arc;

use betr_core::Error;
use betr_core::check::{CheckOptions, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Fs, New, Object};
use betr_core::ids::{Time, TreeId};
use betr_core::node::Node;
use betr_core::store::{CacheBudget, Geometry};
use betr_core::volume::Mode;
use betr_tests::{Random, clock, create, formatted, open, roomy, rounds, tight};
use bytes::Bytes;

use crate::mended::setting;

/// The order in which files are deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    Made,
    Reverse,
    Sorted,
    Random,
}

impl Order {
    /// Sorts names, given in order of creation, into the order of deletion.
    pub(crate) fn arrange(self, names: &mut [Vec<u8>], random: &mut Random) {
        match self {
            Order::Made => {}
            Order::Reverse => names.reverse(),
            Order::Sorted => names.sort(),
            Order::Random => {
                for at in (1..names.len()).rev() {
                    names.swap(at, random.below(at as u64 + 1) as usize);
                }
            }
        }
    }
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub bytes: u64,
    pub geometry: Geometry,
    pub cache: CacheBudget,
    /// The smallest and largest file size in bytes.
    pub sizes: (u64, u64),
    /// The size limit of the extended attribute that some files have, in bytes.
    pub attribute: u64,
    pub order: Order,
    pub seed: u64,
}

struct Run {
    case: Case,
    device: Arc<MemoryDevice>,
    fs: Option<Fs>,
    random: Random,
    /// File names in order of creation.
    names: Vec<Vec<u8>>,
}

impl Run {
    fn new(case: Case) -> Run {
        let device = Arc::new(MemoryDevice::new(case.bytes));
        let mut fs = formatted(device.clone(), case.geometry, case.cache, case.seed);
        fs.checkpoint().unwrap();
        drop(fs);
        let random = Random::new(case.seed);
        let mut run = Run { case, device, fs: None, random, names: Vec::new() };
        run.reopen();
        run
    }

    fn fs(&mut self) -> &mut Fs {
        self.fs.as_mut().expect("it is open but while it is opened again")
    }

    fn root(&mut self) -> Object {
        self.fs().root().unwrap()
    }

    fn must<T>(&self, what: &str, result: betr_core::Result<T>) -> T {
        result.unwrap_or_else(|error| panic!("{:?}: {what}: {error}", self.case))
    }

    /// Reopens the volume, as after a crash.
    fn reopen(&mut self) {
        drop(self.fs.take());
        let seed = self.random.next();
        let opened = open(self.device.clone(), Mode::ReadWrite, self.case.cache, seed);
        let (volume, _) = self.must("open", opened);
        self.fs = Some(Fs::open(volume, clock(1000)));
    }

    /// Sometimes syncs, checkpoints or reopens the volume. Returns whether changes were lost.
    fn between(&mut self) -> bool {
        let store = self.fs().volume().store();
        let (need, free) = (store.checkpoint_need(), store.space.free_blocks());
        assert!(store.space.has(need), "what is dirty takes {need:?}, and {free} blocks are free");
        match self.random.below(400) {
            0..=3 => {
                let synced = self.fs().volume_mut().sync();
                self.must("sync", synced);
            }
            4 => {
                let done = self.fs().checkpoint();
                self.must("checkpoint", done);
            }
            5 if self.random.below(4) == 0 => {
                let synced = self.fs().volume_mut().sync();
                self.must("sync", synced);
                self.reopen();
            }
            // A power cut: unsynced changes are lost.
            6 if self.random.below(4) == 0 => {
                self.reopen();
                return true;
            }
            _ => {}
        }
        false
    }

    /// The names of all files.
    fn read_names(&mut self) -> Vec<Vec<u8>> {
        let root = self.root();
        let listed = self.fs().list(&root);
        self.must("list", listed).into_iter().map(|entry| entry.name).collect()
    }

    /// Makes files until the volume is full.
    fn fill(&mut self) {
        for number in 0u64.. {
            let (least, most) = self.case.sizes;
            let len = least + self.random.below(most - least + 1);
            let data = Bytes::from(self.random.bytes(len as usize));
            let name = format!("{:x}-{number}", self.random.below(1 << 30)).into_bytes();
            let new = New::of(FileType::Regular, Attributes::at(Time::default()));
            let root = self.root();
            let made = self.fs().make(&root, &name, new);
            let written = match made {
                Ok(file) => {
                    self.names.push(name);
                    self.fs().write(&file, 0, &data).and_then(|_| self.attribute(&file))
                }
                Err(error) => Err(error),
            };
            match written {
                Ok(()) if self.between() => self.names = self.read_names(),
                Ok(()) => {}
                Err(Error::NoSpace { .. }) => break,
                Err(error) => panic!("{:?}: {error}", self.case),
            }
        }
    }

    /// Gives some files an extended attribute, which may be longer than a leaf.
    fn attribute(&mut self, file: &Object) -> betr_core::Result<()> {
        if self.case.attribute == 0 || self.random.below(3) > 0 {
            return Ok(());
        }
        let len = 1 + self.random.below(self.case.attribute);
        let value = self.random.bytes(len as usize);
        self.fs().set_xattrs(file, &[(b"user.long".to_vec(), value)])
    }

    /// Deletes all files.
    fn empty(&mut self) {
        let mut names = std::mem::take(&mut self.names);
        while self.delete(&mut names) {
            names = self.read_names();
        }
        assert!(self.read_names().is_empty(), "{:?}", self.case);
    }

    /// Deletes files in order. Returns whether a power cut brought some back.
    fn delete(&mut self, names: &mut [Vec<u8>]) -> bool {
        self.case.order.arrange(names, &mut self.random);
        for (at, name) in names.iter().enumerate() {
            let root = self.root();
            let deleted = self.fs().unlink(&root, name);
            self.must(&format!("unlink {at} of {}", names.len()), deleted);
            if self.between() {
                return true;
            }
        }
        false
    }

    fn sound(&mut self) {
        let synced = self.fs().volume_mut().sync();
        self.must("sync", synced);
        let device: Arc<dyn Device> = self.device.clone();
        let report = check(&device, CheckOptions::ALL, &mut ());
        assert!(report.is_clean(), "{:?}: {:?}", self.case, report.findings);
    }
}

/// Fills and empties a volume twice; returns the number of files each time.
fn fill_and_empty(case: Case) -> [usize; 2] {
    let mut run = Run::new(case);
    let made = [(); 2].map(|()| {
        run.fill();
        let made = run.names.len();
        run.empty();
        made
    });
    run.sound();
    made
}

/// The parameters for a seed: a random geometry with nodes of 1 to 8 leaves, or the default one; `None` if it does not
/// fit.
pub(crate) fn case_of(seed: u64) -> Option<Case> {
    let mut random = Random::new(seed ^ 0x5eed);
    let mut one_of = |all: &[u64]| all[random.below(all.len() as u64) as usize];
    let bytes = one_of(&[1, 2, 3, 4, 6, 8, 12, 16]) << 20;
    let leaf_size = one_of(&[4096, 8192, 16 << 10, 32 << 10, 64 << 10]) as u32;
    let node_size = leaf_size * one_of(&[1, 2, 3, 4, 5, 6, 7, 8]) as u32;
    let basement_size = (one_of(&[512, 1024, 4096, 16 << 10]) as u32).min(leaf_size);
    let fanout = one_of(&[4, 64]) as u32;
    let geometry = match one_of(&[0, 1, 2, 3]) {
        0 => Geometry::of_image(bytes),
        _ => Geometry { node_size, leaf_size, basement_size, fanout },
    };
    let cache = [tight(), roomy(), CacheBudget::default()][one_of(&[0, 1, 2]) as usize];
    let most = one_of(&[1, 100, 3000, 20_000, 64 << 10]);
    let sizes = (one_of(&[1, most]), most);
    let orders = [Order::Made, Order::Reverse, Order::Sorted, Order::Random];
    let order = orders[one_of(&[0, 1, 2, 3]) as usize];
    let attribute = one_of(&[0, 0, 3000, 60_000]);
    let device = Arc::new(MemoryDevice::new(bytes));
    let fits = create(device, geometry, cache, seed).is_ok();
    fits.then_some(Case { bytes, geometry, cache, sizes, attribute, order, seed })
}

/// The seeds: `BETR_ROUNDS` of them (default `count`), from `BETR_FIRST` on (default 0).
pub(crate) fn seeds(count: u64) -> std::ops::Range<u64> {
    let first = setting("BETR_FIRST").unwrap_or(0) as u64;
    first..first + rounds(count)
}

/// Runs `BETR_ROUNDS` cases from seed `BETR_FIRST` on, and prints the time of each.
#[test]
fn any_full_volume_can_be_emptied() {
    for case in seeds(14).filter_map(case_of) {
        let (text, start) = (format!("{case:?}"), std::time::Instant::now());
        println!("{text}");
        // A few long attributes fill a small volume.
        let few = if case.attribute > 0 { 200 } else { 20 };
        let made = fill_and_empty(case);
        println!("    {made:?} files in {:?}", start.elapsed());
        // The second time file sizes and the shape of the trees differ.
        assert!(made[0] < few || made[1] >= made[0] / 2, "{made:?} files: {text}");
    }
}

/// Fills the volume with small files of random bytes in one directory, then deletes all of them. Without room for
/// draining, the tombstones would fill the reserve and never reach a leaf. `BETR_FULL_MIB=1024` uses a larger volume.
#[test]
fn a_full_volume_of_small_files_can_be_emptied() {
    let mib = setting("BETR_FULL_MIB").unwrap_or(64) as u64;
    let bytes = mib << 20;
    let (geometry, cache) = (Geometry::of_image(bytes), CacheBudget::default());
    let order = Order::Random;
    let mut run =
        Run::new(Case { bytes, geometry, cache, sizes: (1, 3000), attribute: 0, order, seed: 1 });
    run.fill();
    assert!(run.names.len() as u64 > 450 * mib, "{} files", run.names.len());
    run.empty();
    run.sound();
}

/// When deletes need checkpoints to get space, one checkpoint must serve many deletes.
#[test]
fn deletes_on_a_full_volume_need_few_checkpoints() {
    let bytes = 24 << 20;
    let mut fs = formatted(
        Arc::new(MemoryDevice::new(bytes)),
        Geometry::of_image(bytes),
        CacheBudget::default(),
        1,
    );
    fs.checkpoint().unwrap();
    let device = fs.volume().store().disk.device().clone();
    drop(fs);
    let mut fs =
        Fs::open(open(device, Mode::ReadWrite, CacheBudget::default(), 2).unwrap().0, clock(1000));
    let root = fs.root().unwrap();
    let mut random = Random::new(3);
    for number in 0.. {
        let name = format!("{:x}-{number}", random.below(1 << 30)).into_bytes();
        let len = 1 + random.below(3000) as usize;
        let data = Bytes::from(random.bytes(len));
        let new = New::of(FileType::Regular, Attributes::at(Time::default()));
        let made = fs.make(&root, &name, new).and_then(|file| fs.write(&file, 0, &data));
        match made {
            Ok(()) => {}
            Err(Error::NoSpace { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    let before = fs.volume().counters().for_space;
    // The last file may be missing.
    let mut names: Vec<Vec<u8>> =
        fs.list(&root).unwrap().into_iter().map(|entry| entry.name).collect();
    Order::Random.arrange(&mut names, &mut random);
    for name in &names {
        fs.unlink(&root, name).unwrap();
    }
    let checkpoints = fs.volume().counters().for_space - before;
    println!("{checkpoints} checkpoints for the room of {} deletes", names.len());
    assert!(checkpoints * 20 < names.len() as u64, "{checkpoints} for {}", names.len());
}

/// Leaves that each hold one block of a file take twice as many blocks as a buffer with the same blocks; the growth
/// reserve must account for that.
#[test]
fn blocks_that_fill_half_of_a_leaf_are_made_room_for() {
    let geometry =
        Geometry { node_size: 24 << 10, leaf_size: 8192, basement_size: 4096, fanout: 64 };
    for seed in 0..4 {
        let (cache, order) = (tight(), Order::Sorted);
        let (sizes, attribute) = ((64 << 10, 64 << 10), 3000);
        fill_and_empty(Case { bytes: 3 << 19, geometry, cache, sizes, attribute, order, seed });
    }
}

/// Range messages for all children of a node share one section, which is removed when the last of its messages is
/// flushed.
#[test]
fn a_drained_tree_has_no_runs() {
    let device = Arc::new(MemoryDevice::new(8 << 20));
    let geometry = Geometry { node_size: 8192, leaf_size: 4096, basement_size: 1024, fanout: 4 };
    let mut fs = formatted(device, geometry, roomy(), 7);
    let root = fs.root().unwrap();
    for number in 0..1000 {
        let new = New::of(FileType::Regular, Attributes::at(Time::default()));
        let file = fs.make(&root, format!("{number:04}").as_bytes(), new).unwrap();
        fs.write(&file, 0, &Bytes::from_static(b"contents")).unwrap();
    }
    fs.checkpoint().unwrap();
    fs.volume_mut().drain().unwrap();
    for number in (0..1000).step_by(3) {
        fs.unlink(&root, format!("{number:04}").as_bytes()).unwrap();
        if number % 10 == 0 {
            fs.checkpoint().unwrap();
        }
    }
    fs.checkpoint().unwrap();
    let runs = |fs: &Fs| {
        let (store, mut runs) = (fs.volume().store(), 0);
        let mut nodes: Vec<_> = TreeId::ALL.map(|tree| store.root(tree).unwrap()).into();
        while let Some(node) = nodes.pop() {
            let Node::Internal(internal) = &*node else { continue };
            runs += internal.runs().len();
            let children = 0..internal.children().len();
            nodes.extend(children.map(|at| store.child(internal, at).unwrap()));
        }
        runs
    };
    assert!(runs(&fs) > 0);
    fs.volume_mut().drain().unwrap();
    fs.checkpoint().unwrap();
    assert_eq!(runs(&fs), 0);
}
