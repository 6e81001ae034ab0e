//! The checker: verifies every structure of an image, and reports findings with place and meaning.
//!
//! It reads the device itself, through the decoders of `format`, and trusts nothing that it has not verified. First it
//! checks the checkpoint. If the log holds records, it then checks the state after a replay in memory. Internal nodes
//! are read in disk order, then leaves. If the structure above the leaves is sound, they are read in key order, and the
//! schema is checked with the same reads. Otherwise they are read in disk order, and the schema is not checked. A leaf
//! of the data index is read without its values unless that is requested. The checker continues after the first
//! finding.

mod catalog;
mod correction;
mod fixed;
mod holds;
mod indexes;
mod leaf;
mod links;
mod lost;
mod memory;
mod nodes;
mod numbers;
mod owners;
mod runs;
mod schema;
mod table;

use std::io::ErrorKind;
use std::sync::Arc;

use self::indexes::Checked;
use self::memory::Memory;
use self::nodes::{Nodes, Pass};
use self::schema::Scanned;
use crate::device::Device;
use crate::disk::Disk;
use crate::error::{Error, Place, Result};
use crate::format::{Entry, HoldsRoot, Inflow, Superblock};
use crate::ids::*;
use crate::log::Survey;
use crate::space::Space;
use crate::volume::{Content, Mode, OpenOptions, Recovery, Volume, content_of};

pub use catalog::{CATALOG, Code, Problem, Repairable, Severity};
pub(crate) use correction::{Correction, lost_inode};
pub use fixed::reserved;
pub use memory::{MEMORY, memory_needed};
pub(crate) use schema::corrections;

/// A finding of the checker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its code.
    pub code: Code,
    /// Its place.
    pub place: Place,
    /// What was expected and what was found.
    pub detail: String,
}

impl Finding {
    /// Whether the check can continue past it: a note, or damage of a redundant copy.
    fn is_passable(&self) -> bool {
        self.code.problem().repairable <= Repairable::Safely
    }
}

/// The scope of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckOptions {
    /// Verify the values of the data index too.
    pub data: bool,
    /// Start from this slot of the superblock ring instead of the newest.
    pub slot: Option<u32>,
    /// Approximate memory, in bytes. Findings do not depend on it.
    pub memory: u64,
}

impl CheckOptions {
    /// Check everything, with default memory.
    pub const ALL: CheckOptions = CheckOptions { data: true, slot: None, memory: MEMORY };
}

impl Default for CheckOptions {
    /// Check everything except the values of the data index.
    fn default() -> CheckOptions {
        CheckOptions { data: false, ..CheckOptions::ALL }
    }
}

/// Counters of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Nodes, leaves included.
    pub nodes: u64,
    /// Leaves.
    pub leaves: u64,
    /// Messages pending in internal nodes.
    pub pending: u64,
    /// The inflow of pending messages.
    pub inflow: Inflow,
    /// Blocks in use.
    pub used_blocks: u64,
    /// Blocks of the image.
    pub image_blocks: u64,
    /// Inodes.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Blocks of files.
    pub file_blocks: u64,
}

impl Counts {
    /// Adds the counters of a node.
    fn add_node(&mut self, node: Counts) {
        self.nodes += node.nodes;
        self.leaves += node.leaves;
        self.pending += node.pending;
        self.inflow += node.inflow;
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Findings, in the order in which they were found.
    pub findings: Vec<Finding>,
    /// Counters.
    pub counts: Counts,
    /// The superblock that the check started from.
    pub superblock: Option<Superblock>,
    /// Pass 1: the valid part of the log.
    pub log: Option<Survey>,
    /// Pass 2: the result of a replay in memory, if there was one.
    pub replay: Option<Recovery>,
    /// The label of the volume.
    pub label: String,
    /// Whether the user chose the slot to start from.
    pub slot_chosen: bool,
    /// The known names of snapshots with damaged parts that the live volume does not share.
    pub damaged_holds: Vec<String>,
}

impl Report {
    /// Whether all findings are notes.
    pub fn is_clean(&self) -> bool {
        self.findings.iter().all(|finding| finding.code.severity() == Severity::Note)
    }

    /// Whether the check can continue past all findings.
    fn is_passable(&self) -> bool {
        self.findings.iter().all(Finding::is_passable)
    }

    /// Whether the log holds records that are in no checkpoint.
    pub fn needs_replay(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.groups > 0)
    }

    fn add(&mut self, code: Code, place: Place, detail: impl ToString) {
        self.findings.push(Finding { code, place, detail: detail.to_string() });
    }

    /// Adds an error as a finding.
    fn add_error(&mut self, code: Code, error: &Error) {
        match error {
            Error::Corrupt(damage) => self.add(code, damage.place.clone(), &damage.fault),
            // The device is intact, but shorter than the place.
            Error::Io { place, source, .. } if source.kind() == ErrorKind::UnexpectedEof => {
                self.add(code, place.clone(), error);
            }
            Error::Io { place, .. } => self.add(Code::ReadFailed, place.clone(), error),
            other => self.add(code, Place::Image, other),
        }
    }
}

/// Receives the progress of a check. There are three passes over the checkpoint (fixed places and the table; internal
/// nodes; leaves and files), and three more over the state after a replay.
pub trait Progress {
    /// Called once, before the first step, with the number of states to check if the first one is sound.
    fn states(&mut self, _states: u32) {}

    /// Called repeatedly with the pass, the work done, and the total. Numbers never decrease within a pass.
    fn step(&mut self, pass: u32, done: u64, total: u64);
}

/// Ignores progress.
impl Progress for () {
    fn step(&mut self, _: u32, _: u64, _: u64) {}
}

/// Checks the image on `device`, without writing to it.
pub fn check(
    device: &Arc<dyn Device>,
    options: CheckOptions,
    progress: &mut dyn Progress,
) -> Report {
    let mut report = Report { slot_chosen: options.slot.is_some(), ..Report::default() };
    let disk = Disk::new(device.clone());
    let Some(superblock) = fixed::check(&disk, options, &mut report) else { return report };
    let met = report.findings.iter().any(|finding| finding.code == Code::ErrorMet);
    let options = CheckOptions { data: options.data || met, ..options };
    progress.states(1 + u32::from(report.needs_replay()));
    check_state(&disk, &superblock, options, &mut report, &mut Passes { progress, before: 0 });
    if let Some(survey) = report.log.clone().filter(|survey| survey.damage().is_some()) {
        lost::report(device, &survey, &mut report);
    }
    if report.needs_replay() && report.is_passable() {
        check_replayed(device, options, &mut report, progress);
    }
    report
}

/// Checks only fixed places: enough to see whether a volume was closed cleanly.
pub fn check_quickly(device: &Arc<dyn Device>, options: CheckOptions) -> Report {
    let mut report = Report::default();
    let disk = Disk::new(device.clone());
    if let Some(superblock) = fixed::check(&disk, options, &mut report)
        && let Err(error) = Space::load(&disk, &superblock)
    {
        report.add_error(Code::SpaceMapWrong, &error);
    }
    report
}

/// 3 passes for each state.
const PASSES: u32 = 3;

/// Progress of passes after `before` earlier ones.
struct Passes<'p> {
    progress: &'p mut dyn Progress,
    before: u32,
}

impl Progress for Passes<'_> {
    fn step(&mut self, pass: u32, done: u64, total: u64) {
        self.progress.step(self.before + pass, done, total);
    }
}

/// Checks the checkpoint of `superblock`: table, nodes, space, schema.
fn check_state(
    disk: &Disk,
    superblock: &Superblock,
    options: CheckOptions,
    report: &mut Report,
    progress: &mut dyn Progress,
) {
    progress.step(1, 0, 1);
    let mut owners = owners::Owners::new(disk, superblock, report);
    let entries = table::check(disk, superblock, &mut owners, report);
    progress.step(1, 1, 1);
    let whole = owners.is_complete();
    let pass = Pass::new(disk, superblock, &entries, options);
    let mut nodes = Nodes::default();
    let leaves = pass.internals(&mut owners, &mut nodes, progress);
    let is_sound = content_of(superblock) == Content::Files
        && report.is_passable()
        && nodes.are_passable()
        && links::are_sound(&entries, &nodes.summaries, superblock);
    let files = Files { disk, superblock, options, leaves: leaves.len() as u64 };
    let schema = if is_sound { files.check_with(&pass, &mut nodes, progress) } else { None };
    pass.leaves(&leaves, &mut nodes, progress);
    nodes.tell(report);
    links::check(&entries, &nodes.summaries, superblock, whole, report);
    if report.is_passable() {
        let (stated, found) = (superblock.inflow, report.counts.inflow);
        let dying = entries.iter().filter(|(_, entry)| entry.references == 0).count() as u64;
        let (growth, grows) = (stated.growth, found.growth);
        let counts = [
            ("messages may make leaves longer", growth.messages, grows.messages),
            ("is by how many bytes they may", growth.bytes, grows.bytes),
            ("bytes are pending", stated.bytes, found.bytes),
            ("nodes there are", superblock.nodes, entries.len() as u64),
            ("nodes without edges there are", superblock.dying, dying),
        ];
        for (what, stated, found) in counts.iter().filter(|(_, stated, found)| stated != found) {
            let detail = format!("{what}: {found}, and the superblock says {stated}");
            report.add(Code::GrowthWrong, Place::Image, detail);
        }
    }
    if superblock.holds != HoldsRoot::default() {
        let live = holds::Live { disk, superblock, entries: &entries, summaries: nodes.summaries };
        live.check(&mut owners, options, report);
    }
    owners.compare(disk, superblock, report);
    if report.is_passable() && content_of(superblock) == Content::Files {
        match schema {
            Some(found) => found.tell(report),
            None => files.check(report),
        }
    }
}

/// The file system of a checkpoint.
struct Files<'f> {
    disk: &'f Disk,
    superblock: &'f Superblock,
    options: CheckOptions,
    /// Number of leaves.
    leaves: u64,
}

impl Files<'_> {
    /// Checks it together with the leaves, which are read once. Returns `None` if a leaf is damaged.
    fn check_with(
        &self,
        pass: &Pass<'_>,
        nodes: &mut Nodes,
        progress: &mut dyn Progress,
    ) -> Option<schema::Found> {
        let volume = self.volume().ok()?;
        let source = Checked::new(pass, nodes);
        let found =
            schema::check(&volume, self.superblock, self.memory(), &source, self.leaves, progress);
        source.is_whole().then_some(found)
    }

    /// Checks it separately; its structure must be sound.
    fn check(&self, report: &mut Report) {
        match self.volume() {
            Ok(volume) => {
                let (superblock, memory) = (self.superblock, self.memory());
                schema::check(&volume, superblock, memory, &Scanned, self.leaves, &mut ())
                    .tell(report);
            }
            Err(error) => report.add_error(Code::NoSuperblock, &error),
        }
    }

    fn volume(&self) -> Result<Volume> {
        Volume::of_checkpoint(self.disk, self.superblock.clone(), self.memory().cache())
    }

    fn memory(&self) -> Memory {
        Memory::new(self.options.memory, self.superblock.image_blocks)
    }
}

/// Replays the log in memory and checks the resulting state.
fn check_replayed(
    device: &Arc<dyn Device>,
    options: CheckOptions,
    report: &mut Report,
    progress: &mut dyn Progress,
) {
    let slot = report.superblock.as_ref().map(|superblock| superblock.slot);
    let open =
        OpenOptions { slot, content: None, ..OpenOptions::new(Mode::ReadOnly, Box::new(|| 0)) };
    let settled = Volume::open(device.clone(), open).and_then(|(mut volume, recovery)| {
        let disk = volume.settle_in_memory()?;
        Ok((disk, volume.superblock().clone(), recovery))
    });
    match settled {
        Ok((disk, superblock, recovery)) => {
            report.replay = Some(recovery);
            report.counts = Counts::default();
            let mut progress = Passes { progress, before: PASSES };
            check_state(&disk, &superblock, options, report, &mut progress);
            report.superblock = Some(superblock);
        }
        Err(error) => report.add_error(Code::ReplayFailed, &error),
    }
}

/// The readable part of an allocation table.
pub(crate) struct Pages {
    /// The entries of every page that verifies.
    pub entries: Vec<(NodeId, Entry)>,
    /// The blocks of its pages.
    pub extents: Vec<Extent>,
    /// Whether all pages verify.
    pub whole: bool,
}

/// Reads the readable part of the allocation table.
pub(crate) fn pages(disk: &Disk, superblock: &Superblock) -> Pages {
    let mut report = Report::default();
    let mut owners = owners::Owners::new(disk, superblock, &mut report);
    let entries = table::check(disk, superblock, &mut owners, &mut report);
    let of_entries = [Code::EntryWrong, Code::CounterWrong];
    let whole = report.findings.iter().all(|finding| of_entries.contains(&finding.code));
    Pages { entries, extents: owners.extents(), whole }
}

/// The place of a node.
fn node_place(id: NodeId, extent: Extent) -> Place {
    Place::Node { id, byte: Some(extent.start.byte()) }
}
