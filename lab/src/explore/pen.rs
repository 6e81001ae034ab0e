//! Writes the steps of a workload, beside a model that knows approximately the state after all of them.

use super::{Fill, Model, Path, Random, Step};
use betr_core::fs::Allocate;

/// 16 KiB: late binding starts here.
pub(super) const EDGE: usize = 16 << 10;

/// Writes steps. It knows approximately the state after all of them.
pub(super) struct Pen {
    pub(super) random: Random,
    model: Model,
    /// The approximate state after the volume is reopened.
    synced: Model,
    pub(super) steps: Vec<Step>,
}

impl Pen {
    pub(super) fn new(random: Random) -> Pen {
        Pen { random, model: Model::new(), synced: Model::new(), steps: Vec::new() }
    }

    pub(super) fn step(&mut self, step: Step) {
        // A refused step is a step, too.
        let _ = self.model.apply(&step);
        match step {
            Step::Sync | Step::Checkpoint => self.synced = self.model.clone(),
            Step::Reopen | Step::Crash(_) => {
                self.model = self.synced.clone();
                self.model.release();
            }
            _ => {}
        }
        self.steps.push(step);
    }

    pub(super) fn chance(&mut self, one_in: u64) -> bool {
        self.random.below(one_in) == 0
    }

    pub(super) fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.random.below((high - low + 1) as u64) as usize
    }

    pub(super) fn fill(&mut self) -> Fill {
        Fill::Seed(1 + self.random.below(1 << 20))
    }

    pub(super) fn write(&mut self, path: &str, offset: u64, len: usize) {
        let fill = self.fill();
        self.step(Step::Write { path: path.into(), offset, len, fill });
    }

    pub(super) fn zeros(&mut self, path: &str, offset: u64, len: usize) {
        self.step(Step::Write { path: path.into(), offset, len, fill: Fill::Zeros });
    }

    pub(super) fn create(&mut self, path: &str) {
        self.step(Step::Create(path.into()));
    }

    /// A late-bound write over the old content of a file.
    pub(super) fn large(&mut self, path: &str) {
        self.create(path);
        let len = self.between(EDGE, 3 * EDGE);
        self.write(path, 0, len);
    }

    /// A length below, around or above the size at which late binding starts.
    pub(super) fn len_around_edge(&mut self, max: usize) -> usize {
        match self.random.below(5) {
            0 => self.between(1, 4096),
            1 => EDGE,
            2 => self.between(EDGE - 5000, EDGE + 5000),
            _ => self.between(EDGE, max),
        }
    }

    /// An offset that is sometimes at a block boundary.
    pub(super) fn offset(&mut self, end: u64) -> u64 {
        let at = self.random.below(end.max(1));
        if self.chance(2) { at & !4095 } else { at }
    }

    /// Sometimes adds a sync, a checkpoint, or a reopening with or without a power cut after a step.
    pub(super) fn settle(&mut self, sync: u64, checkpoint: u64, reopen: u64) {
        if self.chance(sync) {
            self.step(Step::Sync);
        }
        if self.chance(checkpoint) {
            self.step(Step::Checkpoint);
        }
        if self.chance(reopen) {
            let step = self.reopen();
            self.step(step);
        }
    }

    /// A reopening, with or without a power cut.
    pub(super) fn reopen(&mut self) -> Step {
        match self.random.below(3) {
            0 => Step::Reopen,
            _ => Step::Crash(self.random.below(1 << 20)),
        }
    }

    pub(super) fn pick(&mut self, directories: bool) -> Path {
        let mut paths = self.model.paths(directories);
        paths.swap_remove(self.random.below(paths.len() as u64) as usize)
    }

    /// The number of paths.
    pub(super) fn paths(&self) -> usize {
        self.model.paths(false).len()
    }

    pub(super) fn fresh(&mut self) -> Path {
        let directory = self.pick(true);
        let name = match self.random.below(20) {
            0 => vec![b'n'; 255],
            1 => b"odd \xff\n".to_vec(),
            2 => vec![b'n'; 256],
            _ => format!("n{}", self.random.below(12)).into_bytes(),
        };
        super::model::join(&directory, &name)
    }

    pub(super) fn anything(&mut self, count: usize) {
        while self.steps.len() < count {
            let step = self.any_step();
            self.step(step);
        }
    }

    pub(super) fn any_step(&mut self) -> Step {
        match self.random.below(56) {
            0..=3 => Step::Sync,
            4 => Step::Checkpoint,
            5 => self.reopen(),
            6..=8 => Step::Mkdir(self.fresh()),
            9..=13 => Step::Create(self.fresh()),
            14 => Step::Symlink(self.fresh(), b"some/where".to_vec()),
            15 => Step::Mkfifo(self.fresh()),
            16..=23 => {
                let len = self.random.below(20_000) as usize;
                let fill = if self.chance(4) { Fill::Zeros } else { self.fill() };
                let offset = self.offset(24_000);
                Step::Write { path: self.pick(false), offset, len, fill }
            }
            24..=26 => Step::Truncate(self.pick(false), self.random.below(30_000)),
            27 | 28 => Step::Unlink(self.pick(false)),
            29 => Step::Rmdir(self.pick(false)),
            30..=33 => Step::Rename(self.pick(false), self.fresh()),
            34 => Step::Rename(self.pick(false), self.pick(false)),
            35..=37 => Step::Link(self.pick(false), self.fresh()),
            38..=40 => {
                let name = format!("user.{}", self.random.below(4)).into_bytes();
                let (len, fill) = (self.random.below(300) as usize, self.fill());
                Step::SetXattr { path: self.pick(false), name, len, fill }
            }
            41 => {
                let name = format!("user.{}", self.random.below(4)).into_bytes();
                Step::RemoveXattr(self.pick(false), name)
            }
            42 | 43 => Step::RenameNew(self.pick(false), self.fresh()),
            44 | 45 => Step::Exchange(self.pick(false), self.pick(false)),
            46 => Step::RemoveTree(self.pick(true)),
            47..=50 => {
                let what = [Allocate::Reserve, Allocate::Punch, Allocate::Zero];
                let what = what[self.random.below(3) as usize];
                let (path, offset) = (self.pick(false), self.offset(24_000));
                let (len, keep_size) = (self.random.below(20_000), self.chance(2));
                let keep_size = what == Allocate::Punch || keep_size && what != Allocate::Reserve;
                Step::Allocate { path, what, offset, len, keep_size }
            }
            51 | 52 => Step::Hold(self.pick(false)),
            53 => Step::Release,
            _ => Step::Chmod(self.pick(false), self.random.below(0o10000) as u32),
        }
    }
}
