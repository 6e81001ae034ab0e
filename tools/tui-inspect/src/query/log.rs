//! The log: its records with the paths they change, the effects of one record, and the reason why the log ends.

use std::ops::ControlFlow;
use std::sync::Arc;

use betr_cli::{time, words};
use betr_core::address::Address;
use betr_core::disk::Disk;
use betr_core::format::{Op, SEAL_BYTES, Seal, Target};
use betr_core::ids::{Lsn, Time};
use betr_core::log::{End, Survey, scan};
use betr_core::text::printable;
use betr_core::volume::{Found, Mode, Until};
use betr_offline::history::{Event, Touched, tell};

use super::{key_of, text};
use crate::image::Image;
use crate::sheet::{Cell, Role, Row, Rows, Sheet, column, fact, numbers, rest};
use crate::spot::Spot;
use crate::words::{number, some};
use crate::work::Work;

/// The most records that are listed.
const RECORDS_MAX: usize = 1 << 22;
/// The most bytes of paths kept per record.
const PATHS_WIDTH_MAX: usize = 240;

/// The data kept for a record.
struct Kept {
    lsn: Lsn,
    op: Op,
    wall: Time,
    group: u64,
    byte: u64,
    messages: u32,
    late: LateCounts,
    /// The end of its text in `paths`.
    end: u64,
}

/// The numbers of late-bound blocks of a record.
#[derive(Clone, Copy, Default)]
struct LateCounts {
    bound: u32,
    null: u32,
}

/// The records of a log, without limit on their number.
pub(crate) struct Records {
    kept: Vec<Kept>,
    paths: String,
    /// The moment that the other screens show; `None` for now.
    shown: Option<Found>,
}

impl Records {
    pub(crate) fn new() -> Records {
        Records { kept: Vec::new(), paths: String::new(), shown: None }
    }

    pub(crate) fn push(&mut self, event: &Event<'_>) {
        let record = event.record;
        let mut shown = String::new();
        for path in event.paths() {
            if !shown.is_empty() {
                shown.push_str("  ");
            }
            shown.push_str(&printable(&path));
            if shown.len() > PATHS_WIDTH_MAX {
                break;
            }
        }
        let mut late = LateCounts::default();
        for part in &event.bound {
            match part.to {
                Target::Null => late.null += part.values.count,
                _ => late.bound += part.values.count,
            }
        }
        let (group, byte, messages) =
            (event.group.number, event.bytes().start, record.messages.len() as u32);
        self.add((record.lsn, record.op, record.wall), (group, byte, messages), late, &shown);
    }

    fn add(
        &mut self,
        what: (Lsn, Op, Time),
        place: (u64, u64, u32),
        late: LateCounts,
        paths: &str,
    ) {
        let cut = paths.char_indices().nth(PATHS_WIDTH_MAX).map_or(paths.len(), |(at, _)| at);
        self.paths.push_str(&paths[..cut]);
        let ((lsn, op, wall), (group, byte, messages)) = (what, place);
        let end = self.paths.len() as u64;
        self.kept.push(Kept { lsn, op, wall, group, byte, messages, late, end });
    }

    /// Whether the moment shown on the other screens includes a record.
    fn is_shown(&self, kept: &Kept) -> bool {
        let Some(found) = &self.shown else { return true };
        found.mode != Mode::Checkpoint
            && match found.until {
                Until::End => true,
                Until::Record(lsn) => kept.lsn <= lsn,
                Until::Time(time) => kept.wall <= time || kept.op.is_hidden(),
            }
    }

    /// Adds a synthetic record, to measure how many records can be shown.
    pub(crate) fn made_up(&mut self, number: u64) {
        let what = (Lsn(number * 3), Op::Write, Time { secs: number as i64, nanos: 0 });
        self.add(
            what,
            (number / 40, 0x10_0000 + number * 96, 3),
            LateCounts::default(),
            &format!("/some/path/of/a/file-{number}"),
        );
    }
}

impl Rows for Records {
    fn len(&self) -> usize {
        self.kept.len()
    }

    fn row(&self, at: usize) -> Row {
        let Some(kept) = self.kept.get(at) else { return Row::default() };
        let start = at.checked_sub(1).map_or(0, |before| self.kept[before].end);
        let paths = &self.paths[start as usize..kept.end as usize];
        let late = match (kept.late.bound, kept.late.null) {
            (0, 0) => Cell::default(),
            (bound, 0) => Cell::new(Role::Good, format!("{bound} bound")),
            (0, null) => Cell::new(Role::Dim, format!("{null} NULL")),
            (bound, null) => Cell::new(Role::Good, format!("{bound} bound {null} NULL")),
        };
        let mut cells = vec![
            Cell::new(Role::Link, kept.lsn),
            Cell::from(kept.group.to_string()),
            Cell::from(time::format_utc(kept.wall.secs, kept.wall.nanos)[11..19].to_owned()),
            Cell::from(kept.op.name()),
            Cell::from(kept.messages.to_string()),
            late,
            Cell::from(paths),
        ];
        if !self.is_shown(kept) {
            cells.iter_mut().for_each(|cell| cell.role = Role::Dim);
        }
        Row::of(cells).to([Spot::At(Address::Record(kept.lsn)), Spot::byte(kept.byte)])
    }
}

/// All records, and the reason why the log ends.
pub(super) fn records(image: &Image, work: &Arc<Work>) -> Result<Sheet, String> {
    let superblock = newest(image)?;
    let mut found = Records::new();
    found.shown = image.found.clone();
    let device = image.raw(work);
    let survey = tell(&device, &superblock, &mut |event| {
        found.push(event);
        work.step(found.kept.len() as u64, 0);
        match work.is_cancelled() || found.kept.len() >= RECORDS_MAX {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    if work.is_cancelled() {
        return Err("given up".into());
    }
    let survey = survey.map_err(text)?;
    let (used, all) = (survey.units(&superblock), superblock.log_units);
    let title = format!(
        "log of epoch {}: {}, {}",
        superblock.log_epoch.0,
        some(survey.groups as usize, "group"),
        some(survey.records as usize, "record")
    );
    let columns = vec![
        column("record", 10),
        numbers("group", 6),
        column("time", 8),
        column("operation", 12),
        numbers("msgs", 5),
        column("late", 12),
        rest("paths"),
    ];
    let is_cut = found.kept.len() >= RECORDS_MAX;
    let mut sheet = Sheet { rows: Box::new(found), ..Sheet::new(title, columns, Vec::new()) };
    if is_cut {
        sheet = sheet.note(Role::Warn, "there are more: betr replay list shows all of them");
    }
    let (role, end) = end(&survey);
    let bound = survey.bound;
    let fill = crate::words::bar(used, all);
    let of_late = format!(
        "{} late-bound values: {} in leaves, {} in runs, {} in the log, {} NULL",
        number(bound.total()),
        bound.in_leaves,
        bound.in_runs,
        bound.inline,
        bound.null
    );
    let sheet = sheet
        .note(Role::Dim, format!("{fill} of {}   {of_late}", crate::words::blocks(all)))
        .note(role, end);
    Ok(match &image.moment {
        Some(moment) => {
            let moment = crate::words::moment(moment);
            sheet.note(
                Role::Warn,
                format!("as of {moment}: what is dim is not shown on other screens"),
            )
        }
        None => sheet,
    })
}

/// The superblock whose log is shown: always the newest one of the image, whatever the moment.
fn newest(image: &Image) -> Result<betr_core::format::Superblock, String> {
    use betr_core::volume::Ring;
    let disk = Disk::new(image.base().clone());
    match (&image.identity, &image.moment) {
        (Some(identity), Some(_)) => {
            let ring = Ring::read(&disk, identity).map_err(text)?;
            ring.newest().cloned().ok_or_else(|| "no superblock verifies".to_owned())
        }
        _ => image.superblock().cloned(),
    }
}

/// The reason why the log ends.
fn end(survey: &Survey) -> (Role, String) {
    match &survey.end {
        End::Clean => {
            let at = survey.end_byte;
            (Role::Good, format!("it ends at b:{at:#x}: what follows is not of this epoch"))
        }
        End::Torn { byte, why } => (Role::Warn, format!("~~~ torn tail at b:{byte:#x}: {why}")),
        End::Damaged { byte, why, vouched_by } => (
            Role::Bad,
            format!(
                "DAMAGED at b:{byte:#x}, though group {vouched_by} vouches for what stood there: {why}"
            ),
        ),
        End::Unreadable { byte, why } => (Role::Bad, format!("UNREADABLE at b:{byte:#x}: {why}")),
        End::Superseded { byte, epoch } => (
            Role::Bad,
            format!("a group of epoch {} stands at b:{byte:#x}: its superblock is lost", epoch.0),
        ),
    }
}

/// The effects of a record, message by message.
pub(super) fn record(image: &Image, lsn: Lsn, work: &Arc<Work>) -> Result<Sheet, String> {
    let superblock = newest(image)?;
    let device = image.raw(work);
    let disk = Disk::new(device.clone());
    let mut found = None;
    tell(&device, &superblock, &mut |event| {
        let first = event.record.lsn;
        if lsn < first || lsn >= event.record.next_lsn() {
            return ControlFlow::Continue(());
        }
        found = Some(details(event, &disk));
        ControlFlow::Break(())
    })
    .map_err(text)?;
    found.ok_or_else(|| {
        let survey = scan(&image.disk(work), &superblock).map(|survey| survey.records).unwrap_or(0);
        format!("the log has no record {lsn}; it has {} records", number(survey))
    })
}

fn details(event: &Event<'_>, disk: &Disk) -> Sheet {
    let record = event.record;
    let bytes = event.bytes();
    let wall = time::format_utc(record.wall.secs, record.wall.nanos);
    let seal = disk.read(event.byte, SEAL_BYTES).ok();
    let hash = seal.and_then(|seal| Seal::hash_of(&seal));
    let mut rows = vec![
        fact("operation", format!("{} at {wall}", record.op.name())),
        fact("in group", format!("{} at b:{:#x}", event.group.number, event.byte))
            .to([Spot::byte(event.byte)]),
        fact(
            "bytes",
            Cell::new(Role::Link, format!("b:{:#x}+{}", bytes.start, bytes.end - bytes.start)),
        )
        .to([Spot::byte(bytes.start)]),
        fact(
            "hash of the group",
            hash.map_or_else(|| "unreadable".into(), |hash| hash.to_string()),
        ),
        fact("next zone, inode, tag", {
            let next = record.next;
            format!("{}, {}, {}", next.zone, next.ino, next.tag)
        }),
    ];
    for path in event.paths() {
        let cell = Cell::new(Role::Link, printable(&path));
        let spot = path.starts_with(b"/").then(|| Spot::At(Address::Path(path.clone())));
        rows.push(fact("path", cell).to(spot));
    }
    for part in &event.bound {
        let (where_, spot) = match part.to {
            Target::Leaf(leaf) => {
                (format!("{} at b:{:#x}", leaf.node, part.to.place()), Some(leaf.node))
            }
            Target::Slice(slice) => {
                (format!("{} at b:{:#x}", slice.node, part.to.place()), Some(slice.node))
            }
            Target::Inline(_) => ("the log itself".into(), None),
            Target::Null => ("NULL: obsolete at once".into(), None),
        };
        let cell = Cell::new(
            Role::Good,
            format!("{} values from message {} on: {where_}", part.values.count, part.values.first),
        );
        let byte = part.to.extent().map(|_| Spot::byte(part.to.place()));
        rows.push(fact("bound to", cell).to(spot.map(Spot::node).into_iter().chain(byte)));
    }
    for (touched, message) in event.touched.iter().zip(&record.messages) {
        let path = event.path(touched);
        let cell = Cell::from(format!(
            "{} {}  {}, {} bytes",
            words::act(touched),
            printable(&path),
            keys(touched),
            message.encoded_bytes()
        ));
        let key = Spot::At(Address::Key(touched.tree, touched.lo.clone()));
        rows.push(fact(&touched.msn.to_string(), cell).to([key]));
    }
    Sheet::facts(format!("record {}", record.lsn), rows)
}

fn keys(touched: &Touched) -> String {
    let lo = key_of(touched.tree, &touched.lo);
    match touched.lo.successor() == touched.hi {
        true => format!("[{lo}]"),
        false => format!("[{lo} up to {}]", key_of(touched.tree, &touched.hi)),
    }
}

/// The moments to step through: snapshots, older epochs, the checkpoint, the end of each log group, now.
pub(crate) fn moments(image: &Image) -> Vec<betr_core::volume::Moment> {
    use betr_core::log::LogReader;
    use betr_core::volume::{Moment, Ring, RingSlot};
    /// The most log groups to step through.
    const GROUPS_MAX: usize = 4096;
    let disk = Disk::new(image.base().clone());
    let ring = image.identity.as_ref().and_then(|identity| Ring::read(&disk, identity).ok());
    let Some(ring) = ring else { return Vec::new() };
    let Some(newest) = ring.newest() else { return Vec::new() };
    let mut epochs: Vec<_> = ring
        .slots()
        .iter()
        .filter_map(RingSlot::superblock)
        .map(|superblock| superblock.birth.epoch)
        .filter(|epoch| *epoch < newest.birth.epoch)
        .collect();
    epochs.sort_unstable();
    epochs.dedup();
    let holds = betr_core::volume::holds_of(&disk, newest).unwrap_or_default();
    let kept = holds.into_iter().map(|hold| Moment::Snapshot(hold.name.into()));
    let mut moments: Vec<Moment> = kept.chain(epochs.into_iter().map(Moment::Epoch)).collect();
    moments.push(Moment::Checkpoint);
    let mut reader = LogReader::new(&disk, newest);
    while let Ok(Ok(scanned)) = reader.next() {
        if let Some(last) = scanned.group.records.last() {
            moments.push(Moment::Record(last.lsn));
        }
        if moments.len() > GROUPS_MAX {
            break;
        }
    }
    // The end of the last group is the same state as now.
    if matches!(moments.last(), Some(Moment::Record(_))) {
        moments.pop();
    }
    moments.push(Moment::Now);
    moments
}
