//! Judges a state: recovers it, and verifies the result.
//!
//! The checker must find nothing, reading must write nothing, and the state must be that of an operation boundary. A
//! recovery made durable must be sound and have the same content, and a second recovery must change nothing.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::Rules;
use super::devices::{Event, ForkDevice};
use super::memo::Memo;
use super::run::Setup;
use super::story::Story;
use super::watch::Watch;
use betr_core::check::{CheckOptions, Code, Severity, check};
use betr_core::device::Device;
use betr_core::error::Error;
use betr_core::fs::Fs;
use betr_core::log::End;
use betr_core::volume::{Mode, Recovery};

/// Seeds of the nonces of the recoveries.
const NONCES: [u64; 3] = [0x5eed_0001, 0x5eed_0002, 0x5eed_0003];

/// The result of a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recovered {
    /// The operation boundary; several, if the same operations were repeated after some were abandoned.
    pub boundaries: Vec<usize>,
    /// Number of log groups replayed.
    pub groups: u64,
    /// Whether a group was torn.
    pub torn: bool,
}

pub(super) type Verdict = Result<Recovered, String>;

/// A verdict, and its source.
pub(super) struct Judgement {
    pub verdict: Arc<Verdict>,
    /// Whether the state was actually recovered.
    pub recovered: bool,
    /// The writes of its recovery, if that was completed.
    pub recovery: Option<Vec<Event>>,
}

/// Judges the states of one story.
pub(super) struct Judge<'s> {
    story: &'s Story,
    /// Verdicts by the digest of the whole disk.
    seen: HashMap<u128, Arc<Verdict>>,
    /// Verdicts by the blocks that were read; `None` without shortcuts.
    memo: Option<Memo>,
    /// How often recovered states exercised each rule.
    pub rules: Rules,
}

impl<'s> Judge<'s> {
    /// A judge without verdicts. Without `shortcuts` it recovers every distinct state.
    pub(super) fn new(story: &'s Story, shortcuts: bool) -> Judge<'s> {
        let memo = shortcuts.then(Memo::default);
        Judge { story, seen: HashMap::new(), memo, rules: Rules::new() }
    }

    /// The verdict on a disk that was judged before.
    pub(super) fn seen(&self, digest: u128) -> Option<&Arc<Verdict>> {
        self.seen.get(&digest)
    }

    /// The digests of all judged disks.
    pub(super) fn digests(&self) -> Vec<u128> {
        self.seen.keys().copied().collect()
    }

    /// Judges a disk that was not judged before.
    pub(super) fn judge(&mut self, disk: &ForkDevice, digest: u128) -> Judgement {
        if let Some(verdict) = self.memo.as_mut().and_then(|memo| memo.get(disk)) {
            self.seen.insert(digest, verdict.clone());
            return Judgement { verdict, recovered: false, recovery: None };
        }
        let watch = Arc::new(Watch::new(disk.fork()));
        let judged = catch_unwind(AssertUnwindSafe(|| self.recover(&watch)));
        let verdict = Arc::new(judged.unwrap_or_else(|panic| Err(panic_text(&*panic))));
        self.seen.insert(digest, verdict.clone());
        if let Some(memo) = &mut self.memo {
            memo.put(disk, watch.read_set(), verdict.clone());
        }
        Judgement { verdict, recovered: true, recovery: watch.take_recovery() }
    }

    fn count(&mut self, rule: &'static str, times: u64) {
        if times > 0 {
            *self.rules.entry(rule).or_default() += times;
        }
    }

    fn recover(&mut self, watch: &Arc<Watch>) -> Verdict {
        let device: Arc<dyn Device> = watch.clone();
        self.check(&device, "the checker")?;
        let (boundaries, recovery) = self.look(&device)?;
        if !watch.is_untouched() {
            return Err("reading wrote to the device".into());
        }
        // Every other recovery makes extra checkpoints, to test this rare case.
        let eager = recovery.survey.groups % 2 == 0;
        let checkpoints = self.recover_for_good(&device, boundaries[0], eager)?;
        watch.end_recovery();
        self.check(&device, "after recovery, the checker")?;
        self.look_again(&device, boundaries[0])?;

        let survey = &recovery.survey;
        let torn = matches!(survey.end, End::Torn { .. });
        let torn_by_value = matches!(&survey.end, End::Torn { why, .. } if why.contains("binds"));
        self.count("recovery: log empty", u64::from(survey.groups == 0));
        self.count("recovery: group replayed", survey.groups);
        self.count("recovery: tail torn in the group", u64::from(torn && !torn_by_value));
        self.count("recovery: tail torn in what it binds", u64::from(torn_by_value));
        self.count("recovery: unbound entry", survey.unbound);
        self.count("recovery: entry spread over several nodes", survey.spread);
        self.count("recovery: node with values of several entries", survey.shared);
        self.count("recovery: value from a leaf", survey.bound.in_leaves);
        self.count("recovery: value from a run", survey.bound.in_runs);
        self.count("recovery: value from the log", survey.bound.inline);
        self.count("recovery: value bound to NULL", survey.bound.null);
        self.count("recovery: extent pinned", survey.pins.len() as u64);
        self.count("recovery: checkpoint between two groups", checkpoints);
        Ok(Recovered { boundaries, groups: survey.groups, torn })
    }

    /// Recovers in memory; returns the boundaries.
    fn look(&self, device: &Arc<dyn Device>) -> Result<(Vec<usize>, Recovery), String> {
        let view = self.story.setup.open(device.clone(), Mode::ReadOnly, NONCES[0]);
        let (view, recovery) = view.map_err(said("reading"))?;
        Ok((self.same(&view)?, recovery))
    }

    /// Recovers, and makes the result durable. Returns the number of checkpoints on the way.
    fn recover_for_good(
        &self,
        device: &Arc<dyn Device>,
        boundary: usize,
        eager: bool,
    ) -> Result<u64, String> {
        let setup = Setup { eager_checkpoints: eager, ..self.story.setup };
        let open = setup.open(device.clone(), Mode::ReadWrite, NONCES[1]);
        let (mut fs, recovery) = open.map_err(said("recovery"))?;
        let (expected, msn) = (self.story.boundary(boundary).msn, fs.volume().next_msn());
        if msn != expected {
            return Err(format!("read-only, the MSN is {expected}; read-write, it is {msn}"));
        }
        // A checkpoint of the volume does not merge zones, so that a cut here leaves a boundary, too.
        let checkpoint = fs.volume_mut().checkpoint();
        checkpoint.map_err(said("checkpoint after the recovery"))?;
        Ok(recovery.checkpoints)
    }

    /// Checks that a second recovery replays nothing, and that the file system is the same.
    fn look_again(&self, device: &Arc<dyn Device>, boundary: usize) -> Result<(), String> {
        let view = self.story.setup.open(device.clone(), Mode::ReadOnly, NONCES[2]);
        let (view, recovery) = view.map_err(said("second recovery"))?;
        let boundary = self.story.boundary(boundary);
        let (groups, msn) = (recovery.survey.groups, view.volume().next_msn());
        if msn != boundary.msn || groups > 0 {
            return Err(format!("a second recovery replays {groups} groups, MSN {msn}"));
        }
        match boundary.model.difference(&view).map_err(said("second recovery"))? {
            Some(what) => Err(format!("after a second recovery: {what}")),
            None => Ok(()),
        }
    }

    /// The boundaries that equal a file system: at least one.
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

    fn check(&mut self, device: &Arc<dyn Device>, who: &str) -> Result<(), String> {
        let report = check(device, CheckOptions::ALL, &mut ());
        for finding in &report.findings {
            let problem = finding.code.problem();
            let found = match finding.code {
                Code::SlotTorn => "checker: superblock slot torn",
                Code::MapSlotTorn => "checker: slot of the space map torn",
                _ => "",
            };
            self.count(found, u64::from(!found.is_empty()));
            if problem.severity != Severity::Note {
                let (name, place, detail) = (problem.name, &finding.place, &finding.detail);
                return Err(format!("{who}: {name} {}: {place}: {detail}", problem.title));
            }
        }
        Ok(())
    }
}

fn said(who: &'static str) -> impl Fn(Error) -> String {
    move |error| format!("{who}: {error}")
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("without a message"))
}
