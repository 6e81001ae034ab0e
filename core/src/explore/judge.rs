//! The verdict on a state: what recovers from it, and whether that is sound.
//!
//! The checker must find nothing, reading must write nothing, the state must be that of an operation
//! boundary, a recovery made durable must be sound and the same, and recovering again must change nothing.
//!
//! A judgement is a function of the blocks that it reads. So a state that agrees with an earlier one in
//! all blocks that were read for that one has the same verdict, whatever else is on the disk: most states
//! differ only in blocks that no recovery looks at.

use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::Rules;
use super::story::Story;
use crate::check::{CheckOptions, Code, Severity, check};
use crate::device::{Device, Event, ForkDevice, placed};
use crate::error::Error;
use crate::fs::Fs;
use crate::ids::BLOCK_SIZE;
use crate::log::End;
use crate::volume::Mode;

/// How many sets of blocks that were read are kept.
const KEPT_SETS: usize = 24;
/// Seeds of the nonces of the recoveries.
const NONCES: [u64; 3] = [0x5eed_0001, 0x5eed_0002, 0x5eed_0003];

/// What recovers from a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recovered {
    /// The operation boundary; all of them, if the same was done again after some were abandoned.
    pub boundaries: Vec<usize>,
    /// Groups of the log that were replayed.
    pub groups: u64,
    /// Whether a group was torn.
    pub torn: bool,
}

pub(super) type Verdict = Result<Recovered, String>;

/// A verdict, and how it came about.
pub(super) struct Judgement {
    pub verdict: Arc<Verdict>,
    /// Whether the state was really recovered.
    pub recovered: bool,
    /// What its recovery wrote, if it came so far.
    pub recovery: Option<Vec<Event>>,
}

/// Judges the states of one story.
pub(super) struct Judge<'s> {
    story: &'s Story,
    /// By the digest of the whole disk.
    seen: HashMap<u128, Arc<Verdict>>,
    /// Sets of blocks that were read, with the verdicts by the digest of what they held; the one that
    /// helped last is the first.
    known: Vec<(Vec<u64>, HashMap<u128, Arc<Verdict>>)>,
    shortcuts: bool,
    /// How often what was recovered exercised each rule.
    pub rules: Rules,
}

impl<'s> Judge<'s> {
    /// A judge that knows nothing yet. Without `shortcuts` it really recovers every distinct state.
    pub fn new(story: &'s Story, shortcuts: bool) -> Judge<'s> {
        let (seen, known, rules) = Default::default();
        Judge { story, seen, known, shortcuts, rules }
    }

    /// The verdict on a disk that was judged before.
    pub fn seen(&self, digest: u128) -> Option<&Arc<Verdict>> {
        self.seen.get(&digest)
    }

    /// The verdict on a disk that was not seen before.
    pub fn judge(&mut self, disk: &ForkDevice, digest: u128) -> Judgement {
        if let Some(verdict) = self.known(disk) {
            self.seen.insert(digest, verdict.clone());
            return Judgement { verdict, recovered: false, recovery: None };
        }
        let watch = Arc::new(Watch::new(disk.fork()));
        let judged = catch_unwind(AssertUnwindSafe(|| self.recover(&watch)));
        let verdict = Arc::new(judged.unwrap_or_else(|panic| Err(panic_text(&*panic))));
        self.seen.insert(digest, verdict.clone());
        if self.shortcuts {
            self.remember(disk, &watch, &verdict);
        }
        let recovery = watch.recovery.lock().unwrap_or_else(PoisonError::into_inner).take();
        Judgement { verdict, recovered: true, recovery }
    }

    fn known(&mut self, disk: &ForkDevice) -> Option<Arc<Verdict>> {
        if self.known.is_empty() {
            return None;
        }
        let contents = Contents::of(disk);
        let found = self.known.iter().enumerate().find_map(|(at, (set, verdicts))| {
            verdicts.get(&contents.digest(set)).map(|verdict| (at, verdict.clone()))
        });
        let (at, verdict) = found?;
        self.known[..=at].rotate_right(1);
        Some(verdict)
    }

    fn remember(&mut self, disk: &ForkDevice, watch: &Watch, verdict: &Arc<Verdict>) {
        let set = watch.read_set();
        let digest = Contents::of(disk).digest(&set);
        let at = self.known.iter().position(|(other, _)| *other == set);
        let at = at.unwrap_or_else(|| {
            self.known.truncate(KEPT_SETS - 1);
            self.known.push((set, HashMap::new()));
            self.known.len() - 1
        });
        self.known[at].1.insert(digest, verdict.clone());
        self.known[..=at].rotate_right(1);
    }

    fn count(&mut self, rule: &'static str, times: u64) {
        if times > 0 {
            *self.rules.entry(rule).or_default() += times;
        }
    }

    fn recover(&mut self, watch: &Arc<Watch>) -> Verdict {
        let device: Arc<dyn Device> = watch.clone();
        self.check(&device, harmless, "the checker")?;
        let open = |mode, seed| self.story.setup.open(device.clone(), mode, seed);
        let (view, recovery) = open(Mode::ReadOnly, NONCES[0]).map_err(said("read-only open"))?;
        let msn = view.volume().next_msn();
        let boundaries = self.same(&view)?;
        drop(view);
        if !watch.is_untouched() {
            return Err("reading wrote to the device".into());
        }

        let (mut fs, written) = open(Mode::ReadWrite, NONCES[1]).map_err(said("open"))?;
        let during = written.checkpoints;
        let again = fs.volume().next_msn();
        if again != msn {
            return Err(format!("read-only, the MSN is {msn}; read-write, it is {again}"));
        }
        fs.checkpoint().map_err(said("checkpoint after the recovery"))?;
        drop(fs);
        watch.end_recovery();

        self.check(&device, |code| code == Code::SlotInvalid, "after recovery, the checker")?;
        let open = |mode, seed| self.story.setup.open(device.clone(), mode, seed);
        let (view, second) = open(Mode::ReadOnly, NONCES[2]).map_err(said("second recovery"))?;
        let again = view.volume().next_msn();
        if again != msn || second.groups > 0 {
            let groups = second.groups;
            return Err(format!("a second recovery replays {groups} groups, MSN {again}"));
        }
        let model = &self.story.boundary(boundaries[0]).model;
        match model.difference(&view).map_err(said("second recovery"))? {
            Some(what) => return Err(format!("after a second recovery: {what}")),
            None => drop(view),
        }

        let torn = matches!(recovery.end, End::Torn { .. });
        self.count("log empty", u64::from(recovery.groups == 0));
        self.count("log replayed", u64::from(recovery.groups > 0));
        self.count("log tail torn", u64::from(torn));
        let bound = recovery.bound;
        self.count("value bound in a leaf", bound.in_leaves);
        self.count("value bound in a run", bound.in_runs);
        self.count("value bound inline", bound.inline);
        self.count("value bound to nothing", bound.null);
        self.count("checkpoint during a replay", during);
        Ok(Recovered { boundaries, groups: recovery.groups, torn })
    }

    /// The boundaries that a file system is at: one at least.
    fn same(&self, fs: &Fs) -> Result<Vec<usize>, String> {
        let msn = fs.volume().next_msn();
        let (mut same, mut different) = (Vec::new(), format!("MSN {msn} is half an operation"));
        for at in self.story.boundaries_at(msn) {
            match self.story.boundary(at).model.difference(fs) {
                Ok(None) => same.push(at),
                Ok(Some(what)) => different = format!("recovered, MSN {msn}: {what}"),
                Err(error) => return Err(format!("recovered, MSN {msn}: {error}")),
            }
        }
        if same.is_empty() { Err(different) } else { Ok(same) }
    }

    fn check(
        &mut self,
        device: &Arc<dyn Device>,
        allowed: impl Fn(Code) -> bool,
        who: &str,
    ) -> Result<(), String> {
        let report = check(device, CheckOptions { data: true, slot: None }, &mut ());
        for finding in &report.findings {
            let problem = finding.code.problem();
            self.count(problem.title, 1);
            if !allowed(finding.code) && problem.severity != Severity::Note {
                let (name, place, detail) = (problem.name, &finding.place, &finding.detail);
                return Err(format!("{who}: {name} {}: {place}: {detail}", problem.title));
            }
        }
        Ok(())
    }
}

/// What the checker may say of a state before it is recovered: a second slot of the ring, or of the space
/// map, that was being written cannot be told from rot, and is said.
fn harmless(code: Code) -> bool {
    matches!(code, Code::SlotInvalid | Code::MapSlotInvalid)
}

fn said(who: &'static str) -> impl Fn(Error) -> String {
    move |error| format!("{who}: {error}")
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("without a message"))
}

/// The digests of all blocks of a disk, each for its place.
struct Contents(Vec<u128>);

impl Contents {
    fn of(disk: &ForkDevice) -> Contents {
        let blocks = disk.blocks();
        Contents(blocks.iter().enumerate().map(|(at, block)| placed(at, block.digest())).collect())
    }

    /// What tells apart what a set of blocks holds.
    fn digest(&self, set: &[u64]) -> u128 {
        let mut sum: u128 = 0;
        for (at, word) in set.iter().enumerate() {
            let mut word = *word;
            while word != 0 {
                let bit = word.trailing_zeros() as usize;
                sum = sum.wrapping_add(self.0[at * 64 + bit]);
                word &= word - 1;
            }
        }
        sum
    }
}

/// A disk that knows which of its blocks were read, and what a recovery wrote.
struct Watch {
    disk: ForkDevice,
    /// One bit a block.
    read: Vec<AtomicU64>,
    touched: AtomicBool,
    events: Mutex<Vec<Event>>,
    recovery: Mutex<Option<Vec<Event>>>,
}

impl Watch {
    fn new(disk: ForkDevice) -> Watch {
        let words = disk.len().div_ceil(64 * BLOCK_SIZE as u64);
        let read = (0..words).map(|_| AtomicU64::new(0)).collect();
        let (touched, events, recovery) = Default::default();
        Watch { disk, read, touched, events, recovery }
    }

    fn is_untouched(&self) -> bool {
        !self.touched.load(Ordering::Relaxed)
    }

    /// What was written so far was the recovery.
    fn end_recovery(&self) {
        let events =
            std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner));
        *self.recovery.lock().unwrap_or_else(PoisonError::into_inner) = Some(events);
    }

    fn read_set(&self) -> Vec<u64> {
        self.read.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    fn push(&self, event: Event) {
        self.touched.store(true, Ordering::Relaxed);
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

impl Device for Watch {
    fn len(&self) -> u64 {
        self.disk.len()
    }

    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(at, buf)?;
        let (first, end) =
            (at / BLOCK_SIZE as u64, (at + buf.len() as u64).div_ceil(BLOCK_SIZE as u64));
        for block in first..end {
            self.read[(block / 64) as usize].fetch_or(1 << (block % 64), Ordering::Relaxed);
        }
        Ok(())
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.write_at(at, bytes)?;
        self.push(Event::Write(at, bytes.into()));
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.push(Event::Flush);
        Ok(())
    }
}
