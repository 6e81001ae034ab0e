//! Workloads of different kinds, each generated from a seed.
//!
//! Each has several checkpoints, and enough writes for the log to wrap around. Sizes around 16 KiB and far above are
//! important, since late binding starts there.

use super::pen::{EDGE, Pen};
use super::run::Setup;
use super::{Random, Step};
use betr_core::format::ZoneSizes;
use betr_core::store::{CacheBudget, Geometry};

/// The source of a workload's steps.
enum Plot {
    /// Different steps for each seed.
    Seeded(fn(&mut Pen)),
    /// Fixed steps.
    Fixed(Vec<Step>),
}

/// Steps to explore, and the setup of their volume.
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// A short description.
    pub about: &'static str,
    /// The setup of its volume.
    pub setup: Setup,
    plot: Plot,
}

const KIB: u64 = 1 << 10;

/// Leaves of several blocks, with space for them.
const ROOMY: Setup = Setup {
    image_bytes: 3072 * KIB,
    log_bytes: 64 * KIB,
    geometry: Geometry { node_size: 16 << 10, leaf_size: 16 << 10, basement_size: 4096, fanout: 8 },
    zones: ZoneSizes::of_max(32 << 10),
    cache: CacheBudget { total_bytes: 256 << 10, dirty_bytes: 96 << 10 },
    late_bytes: EDGE,
    eager_checkpoints: false,
    scatter: false,
};

/// Space for large files.
const LARGE: Setup = Setup {
    image_bytes: 4096 * KIB,
    log_bytes: 64 * KIB,
    geometry: Geometry { node_size: 16 << 10, leaf_size: 16 << 10, basement_size: 4096, fanout: 8 },
    zones: ZoneSizes::of_max(64 << 10),
    cache: CacheBudget { total_bytes: 512 << 10, dirty_bytes: 192 << 10 },
    late_bytes: EDGE,
    eager_checkpoints: false,
    scatter: false,
};

impl Workload {
    /// The built-in workloads.
    pub fn all() -> Vec<Workload> {
        let tiny = Setup::tiny(3072 * KIB);
        // Without a C1 no bytes are counted.
        let free = Setup { zones: ZoneSizes::UNLIMITED, ..tiny };
        let seeded = |name, about, setup, plot| {
            let plot = Plot::Seeded(plot);
            Workload { name, about, setup, plot }
        };
        vec![
            seeded("mix", "everything, at random", tiny, mix),
            seeded("large", "large sequential writes, few syncs", LARGE, large),
            seeded("append", "appends, each synced", tiny, append),
            seeded("overwrite", "overwrites of large contents", ROOMY, overwrite),
            seeded("patches", "small writes and cuts over large ones", ROOMY, patches),
            seeded("holes", "truncating, extending, punching holes", ROOMY, holes),
            seeded("small", "many small files in directories", tiny, small),
            seeded("recreate", "large files deleted and made again", LARGE, recreate),
            seeded("replace", "renames over targets", free, replace),
            seeded("links", "hard links and extended attributes", tiny, links),
            seeded("repeat", "the same again after opening again", ROOMY, repeat),
            seeded("metadata", "directories, and checkpoints at odd moments", free, metadata),
            seeded("turns", "two files written in turns", ROOMY, turns),
            seeded("zones", "zones that split, move, merge and go", tiny, zones),
            seeded("orphans", "names that go before what they lead to", free, orphans),
            seeded("snapshots", "snapshots that are taken and dropped", tiny, snapshots),
            seeded("clones", "parts of files that are shared", ROOMY, clones),
            seeded("directories", "directories that are cloned", ROOMY, directories),
            seeded("carves", "keys made boundaries of nodes", tiny, carves),
            seeded(
                "full",
                "an image that is nearly full",
                Setup { image_bytes: 1536 * KIB, ..ROOMY },
                full,
            ),
            seeded(
                "scattered",
                "everything, where no image finds a row of free blocks",
                Setup { scatter: true, ..LARGE },
                scattered,
            ),
        ]
    }

    /// A workload of given steps, on a volume that is large enough for most.
    pub fn script(steps: Vec<Step>) -> Workload {
        let plot = Plot::Fixed(steps);
        Workload { name: "script", about: "steps of a file", setup: LARGE, plot }
    }

    /// The steps for a seed.
    pub fn steps(&self, seed: u64) -> Vec<Step> {
        match &self.plot {
            Plot::Fixed(steps) => steps.clone(),
            Plot::Seeded(write) => {
                let mut pen = Pen::new(Random::new(seed));
                write(&mut pen);
                pen.steps
            }
        }
    }
}

/// `count` random steps, with syncs, checkpoints, and reopening.
pub fn random_steps(seed: u64, count: usize) -> Vec<Step> {
    let mut pen = Pen::new(Random::new(seed));
    pen.anything(count);
    pen.steps
}

fn mix(pen: &mut Pen) {
    pen.anything(220);
    for _ in 0..3 {
        pen.anything(pen.steps.len() + 10);
        pen.step(Step::Checkpoint);
    }
}

fn large(pen: &mut Pen) {
    pen.create("/big");
    pen.create("/other");
    pen.step(Step::Sync);
    let mut end = 0;
    for turn in 0..34 {
        let len = pen.len_around_edge(300 << 10);
        if end + len as u64 > 600 * KIB {
            pen.step(Step::Truncate(b"/big".to_vec(), 0));
            end = 0;
        }
        pen.write("/big", end, len);
        end += len as u64;
        if pen.chance(6) {
            pen.write("/other", 0, 100);
        }
        pen.settle(3, 30, 15);
        if turn % 8 == 7 {
            pen.step(Step::Checkpoint);
        }
    }
}

fn append(pen: &mut Pen) {
    let mut ends = [0; 2];
    pen.create("/a");
    pen.create("/b");
    for turn in 0..70 {
        let which = pen.random.below(2) as usize;
        let len = if pen.chance(6) { pen.between(EDGE, EDGE + 8192) } else { pen.between(1, 5000) };
        pen.write(["/a", "/b"][which], ends[which], len);
        ends[which] += len as u64;
        pen.step(Step::Sync);
        if turn % 20 == 13 {
            pen.step(Step::Checkpoint);
        }
        pen.settle(1000, 1000, 30);
        if ends[which] > 120_000 {
            pen.step(Step::Truncate(["/a", "/b"][which].into(), 5));
            ends[which] = 5;
        }
    }
}

fn overwrite(pen: &mut Pen) {
    pen.create("/f");
    for part in 0..5 {
        pen.write("/f", part * 40_000, 40_000);
    }
    pen.step(Step::Checkpoint);
    for turn in 0..44 {
        let len = pen.len_around_edge(44 << 10);
        let offset = pen.offset(200_000 - len as u64);
        pen.write("/f", offset, len);
        pen.settle(3, 25, 20);
        if turn % 12 == 11 {
            pen.step(Step::Checkpoint);
        }
    }
}

fn patches(pen: &mut Pen) {
    pen.create("/f");
    let mut size = 0;
    for turn in 0..40 {
        let len = pen.len_around_edge(40 << 10);
        let offset = pen.offset(120_000);
        pen.write("/f", offset, len);
        size = size.max(offset + len as u64);
        for _ in 0..pen.between(1, 6) {
            if pen.chance(7) {
                size = pen.offset(size);
                pen.step(Step::Truncate("/f".into(), size));
            } else {
                let (offset, len) = (pen.offset(size + 1), pen.between(1, 400));
                pen.write("/f", offset, len);
                size = size.max(offset + len as u64);
            }
        }
        pen.settle(2, 30, 20);
        if turn % 11 == 10 {
            pen.step(Step::Checkpoint);
        }
    }
}

fn holes(pen: &mut Pen) {
    pen.create("/f");
    pen.write("/f", 0, 48_000);
    pen.step(Step::Sync);
    for turn in 0..56 {
        let len = pen.len_around_edge(40 << 10);
        let offset = pen.offset(200_000);
        match pen.random.below(5) {
            0 => pen.step(Step::Truncate(b"/f".to_vec(), offset)),
            1 | 2 => pen.zeros("/f", offset, len),
            _ => pen.write("/f", offset, len),
        }
        pen.settle(3, 30, 25);
        if turn % 18 == 17 {
            pen.step(Step::Checkpoint);
        }
    }
}

fn small(pen: &mut Pen) {
    for directory in 0..4 {
        pen.step(Step::Mkdir(format!("/d{directory}").into()));
    }
    pen.step(Step::Sync);
    for number in 0..60 {
        let path = format!("/d{}/file-{number}", pen.random.below(4));
        pen.create(&path);
        let len = pen.between(1, 3000);
        pen.write(&path, 0, len);
        if pen.chance(6) {
            let victim = pen.pick(false);
            pen.step(Step::Unlink(victim));
        }
        if number % 12 == 7 {
            pen.large("/d0/large");
        }
        pen.settle(2, 60, 40);
        if number % 20 == 19 {
            pen.step(Step::Checkpoint);
        }
    }
}

fn recreate(pen: &mut Pen) {
    for turn in 0..34 {
        let path = ["/a", "/b", "/c"][pen.random.below(3) as usize];
        if pen.chance(2) {
            pen.step(Step::Unlink(path.into()));
        }
        pen.create(path);
        let len = pen.len_around_edge(180 << 10);
        pen.write(path, 0, len);
        if pen.chance(4) {
            pen.step(Step::Unlink(path.into()));
        }
        pen.settle(2, 40, 20);
        if turn % 11 == 10 {
            pen.step(Step::Checkpoint);
        }
    }
}

fn replace(pen: &mut Pen) {
    pen.step(Step::Mkdir(b"/d".to_vec()));
    pen.step(Step::Sync);
    for turn in 0..30 {
        let target = ["/config", "/d/config"][pen.random.below(2) as usize];
        pen.create("/new");
        let len = if pen.chance(4) { EDGE } else { pen.between(1, 9000) };
        pen.write("/new", 0, len);
        if !pen.chance(4) {
            pen.step(Step::Sync);
        }
        pen.step(Step::Rename(b"/new".to_vec(), target.into()));
        pen.settle(3, 30, 20);
        if turn % 9 == 8 {
            pen.step(Step::Checkpoint);
        }
    }
}

fn links(pen: &mut Pen) {
    pen.step(Step::Mkdir(b"/d".to_vec()));
    pen.step(Step::Sync);
    for turn in 0..130 {
        let path = pen.pick(false);
        match pen.random.below(8) {
            0 => {
                let path = pen.fresh();
                pen.step(Step::Create(path));
            }
            1 | 2 => {
                let to = pen.fresh();
                pen.step(Step::Link(path, to));
            }
            3 => pen.step(Step::Unlink(path)),
            4 => {
                let (len, fill) = (pen.between(1, 6000), pen.fill());
                pen.step(Step::Write { path, offset: 0, len, fill });
            }
            5 => pen.step(Step::RemoveXattr(path, b"user.1".to_vec())),
            _ => {
                let name = format!("user.{}", pen.random.below(3)).into_bytes();
                let (len, fill) = (pen.between(0, 2000), pen.fill());
                pen.step(Step::SetXattr { path, name, len, fill });
            }
        }
        if turn % 25 == 12 {
            pen.large("/d/large");
        }
        pen.settle(3, 60, 40);
        if turn % 28 == 27 {
            pen.step(Step::Checkpoint);
        }
    }
}

fn repeat(pen: &mut Pen) {
    for round in 0..6 {
        pen.create("/f");
        pen.step(Step::Sync);
        let again = pen.steps.len();
        for _ in 0..3 {
            let len = pen.len_around_edge(30 << 10);
            let offset = pen.offset(60_000);
            pen.write("/f", offset, len);
            pen.settle(2, 1000, 1000);
        }
        pen.step(Step::Rename(b"/f".to_vec(), b"/g".to_vec()));
        let steps = pen.steps[again..].to_vec();
        for _ in 0..2 {
            let reopen = pen.reopen();
            pen.step(reopen);
            steps.iter().for_each(|step| pen.step(step.clone()));
            pen.settle(2, 1000, 1000);
        }
        if round % 2 == 0 {
            pen.step(Step::Checkpoint);
        }
    }
}

fn metadata(pen: &mut Pen) {
    pen.step(Step::Checkpoint);
    for turn in 0..150 {
        let (path, fresh) = (pen.pick(false), pen.fresh());
        let mode = pen.random.below(0o10000) as u32;
        match pen.random.below(8) {
            0..=2 => pen.step(Step::Mkdir(fresh)),
            3 => pen.step(Step::Rename(path, fresh)),
            4 => pen.step(Step::Symlink(fresh, b"../up".to_vec())),
            5 => pen.step(Step::Rmdir(path)),
            6 => pen.step(Step::Create(fresh)),
            _ => pen.step(Step::Chmod(path, mode)),
        }
        if turn % 30 == 12 {
            pen.large("/large");
        }
        pen.settle(3, 30, 40);
        match turn {
            20 | 60 | 120 => {
                pen.step(Step::Sync);
                pen.step(Step::Checkpoint);
                pen.step(Step::Checkpoint);
            }
            40 | 90 => {
                pen.step(Step::Reopen);
                pen.step(Step::Checkpoint);
                pen.step(Step::Sync);
            }
            _ => {}
        }
    }
}

fn turns(pen: &mut Pen) {
    let mut ends = [0; 2];
    pen.create("/left");
    pen.create("/right");
    pen.step(Step::Sync);
    for turn in 0..50 {
        let which = turn % 2;
        let len = pen.len_around_edge(24 << 10);
        pen.write(["/left", "/right"][which], ends[which], len);
        ends[which] = (ends[which] + len as u64) % 200_000;
        pen.settle(3, 30, 20);
        if turn % 16 == 15 {
            pen.step(Step::Checkpoint);
        }
    }
}

/// Snapshots of changing files: some are dropped, in the middle and at both ends, and some are rolled back to.
fn snapshots(pen: &mut Pen) {
    let mut names: Vec<String> = Vec::new();
    for turn in 0..150 {
        let (path, fresh) = (pen.pick(false), pen.fresh());
        let (offset, len, fill) = (pen.between(0, 9000) as u64, pen.between(1, 5000), pen.fill());
        match pen.random.below(10) {
            0..=3 => {
                pen.step(Step::Create(fresh.clone()));
                pen.step(Step::Write { path: fresh, offset, len, fill });
            }
            4 | 5 => pen.step(Step::Write { path, offset, len, fill }),
            6 => pen.step(Step::Rename(path, fresh)),
            7 => pen.step(Step::Truncate(path, offset)),
            _ => pen.step(Step::Unlink(path)),
        }
        if turn % 40 == 20 {
            pen.large("/large");
        }
        pen.settle(4, 30, 60);
        match turn % 11 {
            4 | 9 if names.len() < 4 => {
                names.push(format!("of {turn}"));
                pen.step(Step::Snapshot(format!("of {turn}")));
            }
            7 if !names.is_empty() => {
                let at = pen.random.below(names.len() as u64) as usize;
                pen.step(Step::DropSnapshot(names.remove(at)));
            }
            2 if turn % 3 == 0 && !names.is_empty() => {
                names.truncate(1 + pen.random.below(names.len() as u64) as usize);
                pen.step(Step::RollBack(names[names.len() - 1].clone()));
            }
            _ => {}
        }
    }
}

/// Blocks of files shared with others and with themselves later, changed, cut off and deleted; with snapshots.
fn clones(pen: &mut Pen) {
    let paths = ["/a", "/b", "/c", "/d/e", "/d/f"];
    let path = |pen: &mut Pen| paths[pen.random.below(5) as usize].as_bytes().to_vec();
    pen.step(Step::Mkdir(b"/d".to_vec()));
    paths.iter().for_each(|path| pen.create(path));
    for turn in 0..110 {
        let (from, to) = (path(pen), path(pen));
        match pen.random.below(12) {
            0..=4 => {
                let first = pen.random.below(3) * pen.random.below(12);
                if first == 0 && pen.random.below(2) == 0 {
                    pen.step(Step::Truncate(to.clone(), 0));
                }
                let count = pen.between(2, 20) as u64;
                pen.step(Step::CopyBlocks { from, to, first, count });
            }
            5..=7 => {
                let (offset, len) = (pen.random.below(60_000), pen.len_around_edge(30 << 10));
                let fill = pen.fill();
                pen.step(Step::Write { path: from, offset, len, fill });
            }
            8 => {
                let size = pen.random.below(60_000);
                pen.step(Step::Truncate(from, size));
            }
            9 => {
                pen.step(Step::Unlink(from.clone()));
                pen.step(Step::Create(from));
            }
            10 => pen.step(Step::Exchange(from, to)),
            _ if turn % 4 == 0 => pen.step(Step::Snapshot(format!("of {turn}"))),
            _ => pen.step(Step::DropSnapshot(format!("of {}", turn / 8 * 4))),
        }
        pen.settle(5, 30, 30);
    }
}

/// Directories of all kinds of objects are cloned, clones too, and changed, moved and deleted; with snapshots.
fn directories(pen: &mut Pen) {
    pen.step(Step::Mkdir(b"/a".to_vec()));
    pen.step(Step::Mkdir(b"/a/b".to_vec()));
    pen.large("/a/b/large");
    for turn in 0..60 {
        pen.anything(pen.steps.len() + 4);
        let (from, to) = (pen.pick(true), pen.fresh());
        match pen.random.below(6) {
            // Clones of what has clones would double it each time.
            0..=3 if pen.paths() < 100 => pen.step(Step::CloneDirectory(from, to)),
            4 if turn % 4 == 0 => pen.step(Step::Snapshot(format!("of {turn}"))),
            4 => pen.step(Step::DropSnapshot(format!("of {}", turn / 8 * 4))),
            _ if pen.chance(3) => pen.step(Step::RemoveTree(from)),
            _ => {
                let (offset, len) = (pen.offset(60_000), pen.len_around_edge(30 << 10));
                let (path, fill) = (pen.pick(false), pen.fill());
                pen.step(Step::Write { path, offset, len, fill });
            }
        }
        pen.settle(5, 30, 30);
    }
}

/// Everything at random, with carves at the keys of files and directories.
fn carves(pen: &mut Pen) {
    for turn in 0..60 {
        pen.anything(pen.steps.len() + 3);
        let path = pen.pick(turn % 3 == 0);
        pen.step(Step::Carve(path));
        pen.settle(4, 20, 40);
    }
}

/// Directories grow until they split, and shrink until they merge; meanwhile they are moved.
fn zones(pen: &mut Pen) {
    let names = ["/a", "/b", "/a/c", "/a/c/d", "/b/e"];
    names.iter().for_each(|name| pen.step(Step::Mkdir(name.as_bytes().to_vec())));
    for turn in 0..130 {
        let directory = pen.pick(true);
        let (from, to) = (pen.pick(true), pen.fresh());
        match pen.random.below(16) {
            0..=5 => {
                for number in 0..pen.between(2, 6) {
                    let name = format!("some-longer-name-{}-{number}", pen.random.below(5));
                    let path = super::model::join(&directory, name.as_bytes());
                    pen.step(Step::Create(path.clone()));
                    if pen.chance(2) {
                        let (len, fill) = (pen.between(1, 9000), pen.fill());
                        pen.step(Step::Write { path, offset: 0, len, fill });
                    }
                }
            }
            6 | 7 => pen.step(Step::Mkdir(to)),
            8 | 9 => pen.step(Step::Rename(from, to)),
            10 => pen.step(Step::Exchange(from, directory)),
            11 => {
                let path = pen.pick(false);
                pen.step(Step::Link(path, to));
            }
            12 if pen.chance(3) => pen.step(Step::RemoveTree(directory)),
            _ => {
                let path = pen.pick(false);
                pen.step(Step::Unlink(path));
            }
        }
        if turn % 30 == 11 {
            pen.large("/b/large");
        }
        pen.settle(3, 15, 40);
        if turn % 26 == 25 {
            pen.step(Step::Checkpoint);
        }
    }
}

/// Names are removed while handles exist, and power fails before these are dropped.
fn orphans(pen: &mut Pen) {
    for turn in 0..110 {
        let (path, directory, fresh) = (pen.pick(false), pen.pick(true), pen.fresh());
        match pen.random.below(14) {
            0..=2 => {
                pen.step(Step::Create(fresh.clone()));
                let (len, fill) = (pen.between(1, 9000), pen.fill());
                pen.step(Step::Write { path: fresh, offset: 0, len, fill });
            }
            3 => pen.step(Step::Mkdir(fresh)),
            4 | 5 => pen.step(Step::Hold(path)),
            6 => {
                pen.step(Step::Hold(path.clone()));
                pen.step(Step::Unlink(path));
            }
            7 => {
                pen.step(Step::Hold(directory.clone()));
                pen.step(Step::Rmdir(directory));
            }
            8 => {
                pen.step(Step::Hold(fresh.clone()));
                pen.step(Step::Rename(path, fresh));
            }
            9 => pen.step(Step::Link(path, fresh)),
            10 => pen.step(Step::Unlink(path)),
            11 => pen.step(Step::RemoveTree(directory)),
            12 => pen.step(Step::Release),
            _ => {
                let name = b"user.1".to_vec();
                let (len, fill) = (pen.between(0, 2000), pen.fill());
                pen.step(Step::SetXattr { path, name, len, fill });
            }
        }
        if turn % 25 == 12 {
            pen.large("/large");
        }
        pen.settle(3, 40, 20);
        if turn % 28 == 27 {
            pen.step(Step::Checkpoint);
        }
    }
}

fn scattered(pen: &mut Pen) {
    overwrite(pen);
    pen.anything(60);
    pen.step(Step::Checkpoint);
    pen.anything(60);
}

fn full(pen: &mut Pen) {
    for turn in 0..90 {
        let path = format!("/f{}", pen.random.below(24));
        if pen.chance(4) {
            pen.step(Step::Unlink(path.clone().into()));
        } else {
            pen.create(&path);
            let len = pen.between(4_000, 45_000);
            pen.write(&path, 0, len);
        }
        if pen.chance(3) {
            pen.step(Step::Sync);
            pen.step(Step::Chmod(path.into(), 0o640));
            pen.step(Step::Sync);
        }
        pen.settle(2, 50, 40);
        if turn % 30 == 29 {
            pen.step(Step::Checkpoint);
        }
    }
}
