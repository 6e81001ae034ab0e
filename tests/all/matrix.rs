//! Damage matrix: every field of every structure is changed in every way, with and without corrected hashes. The
//! results of checker and repair are listed in `format/DAMAGE.md`, which `BETR_BLESS=1` rewrites.
//!
//! Each image contributes one field of each kind; if the value is a single digit, one field for each digit. By default a
//! field is changed in two of the eight ways, which depend on its row of the table. `BETR_MATRIX=1` takes all eight, and
//! `BETR_MATRIX=1000` up to 1000 fields of each kind.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use betr_core::check::{CheckOptions, Repairable, Severity, check};
use betr_core::device::Device;
use betr_core::disk::Disk;
use betr_core::ids::Time;
use betr_core::mend::repair_all;
use betr_lab::damage::{Damage, Verb};
use betr_lab::explore::devices::ForkDevice;
use betr_offline::anatomy::{Anatomy, Field, Kind, Part};
use betr_tests::contents::{Contents, all_is_told};

use crate::{crafted, hostile, mended};

const ALL: CheckOptions = CheckOptions::ALL;
/// The number of fields of a kind that are damaged in each image, by default.
const INSTANCES: usize = 1;
/// 4: by default every fourth way is tried, which takes a quarter of the processor time of all.
const STRIDE: usize = 4;
/// The seed of random bytes.
const SEED: u64 = 7;

/// Changed fields after which an image may still be sound: structure, field, and reason. All other changes must be
/// found.
const LEGAL: &[(&str, &str, &str)] = &[
    ("log group that none calls flushed", "*", LAST),
    ("what such a log group binds", "*", LAST),
    ("log group", "flushed", "only where a group is damaged is it asked for"),
    ("log group", "nonce before", "only where the superblock is lost is it asked for"),
    ("log group", "record, message, second", CONTENTS),
    ("log group", "record, next inode", GREATER),
    ("log group", "record, next tag", GREATER),
    ("log group", "record, next zone id", GREATER),
    ("log group", "record, operation", "it is for people"),
    ("log group", "record, wall nanoseconds", "it is for people"),
    ("log group", "record, wall seconds", "it is for people"),
    ("head of a leaf that the log binds", "lower bound", BOUND),
    ("head of a leaf that the log binds", "upper bound", BOUND),
    ("head of a leaf that the log binds", "seal, nonce", BOUND),
    ("head of a leaf that the log binds", "write sequence", BOUND),
    ("value of the metadata index", "accessed", ANY),
    ("value of the metadata index", "born", ANY),
    ("value of the metadata index", "changed", ANY),
    ("value of the metadata index", "modified", ANY),
    ("value of the metadata index", "nanoseconds", ANY),
    ("value of the metadata index", "uid", ANY),
    ("value of the metadata index", "gid", ANY),
    ("value of the metadata index", "mode", ANY),
    ("value of the metadata index", "inode", "no other has the number"),
    (
        "value of the metadata index",
        "size",
        "it has no blocks behind that, and what it lacks is zeros",
    ),
    ("value of the metadata index", "target", ANY),
    ("value of the metadata index", "kind", "of what is no directory either says the same"),
    ("chunk", "bytes", CONTENTS),
    ("value", "bytes", CONTENTS),
    ("identity block", "UUID", "it is any"),
    ("identity block", "label", "it is any UTF-8"),
    ("head of a leaf", "seal, nonce", NONCE),
    ("head of an internal node", "seal, nonce", NONCE),
    ("run header", "seal, nonce", NONCE),
    ("table page", "seal, nonce", NONCE),
    ("scatter map", "seal, nonce", NONCE),
    ("scatter map", "seal, epoch", "it is any that is not yet to come"),
    ("head of a leaf", "write sequence", SEQUENCE),
    (
        "head of a leaf",
        "basement, first key length",
        "a zero of the padding ends the last first key",
    ),
    ("head of an internal node", "write sequence", SEQUENCE),
    (
        "head of an internal node",
        "child, first live run",
        "there are no messages for the child in the runs between",
    ),
    ("head of an internal node", "next run", GREATER),
    ("key section", "entry, suffix", "it is another key in the same order"),
    ("range messages", "range message, MSN", ORDER),
    ("range messages", "range message, hi", "it covers other keys, of which there are none"),
    ("range messages", "range message, lo", "it covers other keys, of which there are none"),
    ("slice", "message, age", ORDER),
    ("slice", "message, value", CONTENTS),
    ("update", "stage, flags", "it does the same to the value that is there"),
    ("update", "stage, piece, bytes", CONTENTS),
    ("update", "stage, trim", "the value is no longer than that"),
    (
        "update",
        "stage, piece, offset",
        "it writes elsewhere, no further behind than its own length",
    ),
    ("space-map page that does not count", "next MSN", "the page does not count"),
    ("space-map page that does not count", "seal, epoch", "the page does not count"),
    ("space-map page that does not count", "seal, nonce", "the page does not count"),
    ("superblock, both slots", "basement size", SHAPE),
    ("superblock, both slots", "fanout", SHAPE),
    ("superblock, both slots", "leaf size", SHAPE),
    ("superblock, both slots", "node size", SHAPE),
    ("superblock, both slots", "zone maximum", SHAPE),
    ("superblock, both slots", "zone minimum", SHAPE),
    ("superblock, both slots", "compatible features", "who does not know them ignores them"),
    ("superblock, both slots", "read-only compatible features", "nodes may be shared, and none is"),
    ("superblock, both slots", "first group", LOG),
    ("superblock, both slots", "log epoch", LOG),
    ("superblock, both slots", "log head", LOG),
    ("superblock, both slots", "next inode", GREATER),
    ("superblock, both slots", "next tag", GREATER),
    ("superblock, both slots", "next node id", GREATER),
    ("superblock, both slots", "next zone id", GREATER),
    ("head of a leaf of a snapshot", "seal, nonce", NONCE),
    ("head of a leaf of a snapshot", "write sequence", SEQUENCE),
    (
        "head of an internal node of a snapshot",
        "child, first live run",
        "there are no messages for the child in the runs between",
    ),
    ("head of an internal node of a snapshot", "next run", GREATER),
    ("head of an internal node of a snapshot", "seal, nonce", NONCE),
    ("head of an internal node of a snapshot", "write sequence", SEQUENCE),
    ("table page of a snapshot", "seal, nonce", NONCE),
    (
        "page of snapshots",
        "hold, epoch",
        "it is before what died after it, and behind what it uses",
    ),
    ("page of snapshots", "hold, table root, birth epoch", GOING),
    ("page of snapshots", "hold, used blocks", GOING),
    ("page of snapshots", "hold, flags", "it is for tools that prune snapshots"),
    ("page of snapshots", "hold, image blocks", "it is how large the volume was"),
    ("page of snapshots", "hold, name", "it is any"),
    ("page of snapshots", "hold, next MSN", GREATER),
    ("page of snapshots", "hold, next inode", GREATER),
    ("page of snapshots", "hold, next tag", GREATER),
    ("page of snapshots", "hold, next node id", GREATER),
    ("page of snapshots", "hold, next zone id", GREATER),
    ("page of snapshots", "hold, nonce", NONCE),
    ("page of snapshots", "hold, wall nanoseconds", "it is any time"),
    ("page of snapshots", "hold, wall seconds", "it is any time"),
    ("page of snapshots", "seal, epoch", "it is that of its pointer"),
    ("page of snapshots", "seal, nonce", NONCE),
    ("page of a dead list", "record, died", AT),
    ("page of a dead list", "seal, nonce", NONCE),
    ("superblock, both slots", "wall nanoseconds", "it is any time"),
    ("superblock, both slots", "wall seconds", "it is any time"),
];

const BOUND: &str = "of such a leaf only the values are read, by their keys";
const ANY: &str = "it is any";
const LAST: &str =
    "no later group calls it flushed: it cannot be told from one that a power cut stopped";
const CONTENTS: &str = "it is any bytes of a file, or of an attribute";
const NONCE: &str = "hashes lead to it; nonces tell apart what nothing leads to";
const SEQUENCE: &str = "it tells apart what nothing leads to";
const GREATER: &str = "greater than every one in use";
const ORDER: &str = "it is as old, compared with those to the same keys";
const SHAPE: &str = "it says how trees are to be shaped, not how they are";
const LOG: &str = "the log goes on there, and holds nothing";
const GOING: &str = "the snapshot is being dropped";
const AT: &str = "it is any time from the snapshot before to the one after";

/// The outcome of a change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// The bytes did not change.
    NoChange,
    /// The image is still sound.
    Legal,
    /// The damage was found and repaired.
    Repaired,
    /// The damage was found and cannot be repaired.
    Refused,
}

/// The outcomes of a cell, and the findings.
type Cell = (BTreeSet<Outcome>, BTreeSet<&'static str>);
/// Structure, field, sealed, verb.
type Place = (&'static str, String, bool, usize);

/// An image to be damaged.
struct Subject {
    base: ForkDevice,
    anatomy: Anatomy,
    contents: Contents,
    notes: usize,
    /// The number of the last log group that a later one calls flushed.
    flushed: u64,
    /// Whether nothing is pending, so that the values in leaves are current.
    settled: bool,
}

impl Subject {
    fn new(image: &[u8]) -> Subject {
        let base = ForkDevice::of(image);
        let device: Arc<dyn Device> = Arc::new(base.fork());
        let report = check(&device, ALL, &mut ());
        assert!(report.is_clean(), "{:?}", report.findings);
        let (anatomy, contents) = (Anatomy::of(&device).unwrap(), mended::contents(&device));
        let (notes, settled) = (report.findings.len(), report.counts.pending == 0);
        let flushed = flushed(&anatomy, &Disk::new(device));
        Subject { base, anatomy, contents, notes, flushed, settled }
    }

    /// Changes a field; returns the outcome and the findings.
    fn damaged(
        &self,
        part: &Part,
        field: &Field,
        verb: Verb,
        sealed: bool,
    ) -> Result<Cell, String> {
        let device: Arc<dyn Device> = Arc::new(self.base.fork());
        let damage = Damage { part, bytes: field.bytes.clone(), verb, sealed };
        let one = |outcome| BTreeSet::from([outcome]);
        if damage.inflict(&device, &self.anatomy).is_err() {
            return Ok((one(Outcome::NoChange), BTreeSet::new()));
        }
        let before = check(&device, ALL, &mut ());
        let errors = before.findings.iter().filter(|f| f.code.severity() == Severity::Error);
        let codes: BTreeSet<&str> = errors.map(|finding| finding.code.name()).collect();
        if before.is_clean() && before.findings.len() <= self.notes {
            hostile::read_all(device).map_err(|error| format!("it is sound, but: {error}"))?;
            return Ok((one(Outcome::Legal), codes));
        }
        if before.repairable() == Repairable::No {
            return Ok((one(Outcome::Refused), codes));
        }
        let (done, after) = repair_all(&device, &before, ALL, Time::default(), Box::new(|| 7))
            .map_err(|error| format!("{codes:?}: {error}"))?;
        if !after.findings.is_empty() {
            return Err(format!("{codes:?}, repaired: {:?}", after.findings));
        }
        let after = mended::contents(&device);
        // Losses from the log are reported by the check, not by the repair.
        if !sealed && !part.name.starts_with("log:") {
            let what = format!("{} {} {verb}", part.name, field.name);
            all_is_told(&what, &self.contents, &after, &done.mended.unwrap_or_default());
        }
        Ok((one(Outcome::Repaired), codes))
    }
}

/// The name of the kind of a structure; structures with different outcomes have different names.
fn structure(part: &Part, flushed: u64) -> &'static str {
    let last = group_of(part).is_some_and(|group| group > flushed);
    match part.kind {
        Kind::Superblock if part.copies.len() > 1 => "superblock, both slots",
        Kind::Superblock => "superblock, one slot",
        Kind::MapPage if part.above.is_empty() => "space-map page that does not count",
        Kind::Group if last => "log group that none calls flushed",
        _ if last => "what such a log group binds",
        Kind::Leaf if part.name.starts_with("log:") => "head of a leaf that the log binds",
        Kind::Slice { .. } if part.name.starts_with("log:") => "slice that the log binds",
        Kind::TablePage if part.name.starts_with("s:") => "table page of a snapshot",
        Kind::Leaf if part.name.starts_with("s:") => "head of a leaf of a snapshot",
        Kind::Internal if part.name.starts_with("s:") => "head of an internal node of a snapshot",
        kind => kind.name(),
    }
}

/// The number of the log group that contains a structure.
fn group_of(part: &Part) -> Option<u64> {
    part.name.strip_prefix("log:")?.split('/').next()?.parse().ok()
}

/// The number of the last group that the log calls flushed.
fn flushed(anatomy: &Anatomy, disk: &Disk) -> u64 {
    let groups = anatomy.parts().iter().filter(|part| part.kind == Kind::Group);
    let fields = groups.flat_map(|part| part.fields(disk).unwrap());
    let flushed = fields.filter(|field| field.name == "flushed");
    flushed.map(|field| field.value.parse().unwrap()).max().unwrap_or(0)
}

/// A field's name without its numbers.
fn general(name: &str) -> String {
    let without =
        |group: &str| group.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end().to_owned();
    name.split(", ").map(without).collect::<Vec<_>>().join(", ")
}

fn subjects() -> Vec<Subject> {
    let images = [
        hostile::image(2 << 20),
        mended::eventful(5),
        mended::logged(),
        crafted::scattered_image(),
        mended::settled(),
        mended::held(),
        mended::cloned(),
    ];
    images.iter().map(|image| Subject::new(image)).collect()
}

/// The fields to damage.
fn chosen(subjects: &[Subject]) -> Vec<(&Subject, &Part, Field)> {
    let instances = mended::setting("BETR_MATRIX").unwrap_or(INSTANCES);
    let mut chosen = Vec::new();
    for subject in subjects {
        let mut seen: BTreeMap<(&str, String, Option<String>), usize> = BTreeMap::new();
        let device: Arc<dyn Device> = Arc::new(subject.base.fork());
        let disk = Disk::new(device);
        // A value that a pending message replaces is not read.
        let is_read = |part: &&Part| part.kind != Kind::MetaValue || subject.settled;
        // Structures of snapshots are treated like those of the live volume, so only these kinds are tested separately.
        let heads = [Kind::TablePage, Kind::Leaf, Kind::Internal];
        let is_apart = |part: &&Part| !part.name.starts_with("s:") || heads.contains(&part.kind);
        for part in subject.anatomy.parts().iter().filter(is_read).filter(is_apart) {
            for field in part.fields(&disk).unwrap() {
                let name = structure(part, subject.flushed);
                // A field with few possible values is tested with each of them.
                let says = Some(field.value.clone()).filter(|value| value.len() == 1);
                let count = seen.entry((name, general(&field.name), says)).or_default();
                *count += 1;
                if *count <= instances {
                    chosen.push((subject, part, field));
                }
            }
        }
    }
    chosen
}

#[test]
fn every_field_is_damaged_in_every_way() {
    let subjects = subjects();
    let chosen = chosen(&subjects);
    let row = |subject: &Subject, part: &Part, field: &Field| {
        (structure(part, subject.flushed), general(&field.name))
    };
    let rows: BTreeSet<_> =
        chosen.iter().map(|(subject, part, field)| row(subject, part, field)).collect();
    let rows: BTreeMap<_, _> = rows.into_iter().zip(0..).collect();
    let all = is_whole();
    let cells: Mutex<BTreeMap<Place, Cell>> = Mutex::default();
    let wrong: Mutex<Vec<String>> = Mutex::default();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((subject, part, field)) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            let row = row(subject, part, field);
            let shift: usize = rows[&row];
            let verbs = Verb::all(SEED).into_iter().enumerate();
            for (number, verb) in
                verbs.filter(|(number, _)| all || (number + shift).is_multiple_of(STRIDE))
            {
                for sealed in [false, true] {
                    let place = (row.0, row.1.clone(), sealed, number);
                    match subject.damaged(part, field, verb, sealed) {
                        Ok((outcomes, codes)) => {
                            let mut cells = cells.lock().unwrap();
                            let cell = cells.entry(place).or_default();
                            cell.0.extend(outcomes);
                            cell.1.extend(codes);
                        }
                        Err(what) => {
                            let sealed = if sealed { "sealed" } else { "left" };
                            let what: String = what.chars().take(400).collect();
                            let name = format!("{} '{}' {verb} {sealed}", part.name, field.name);
                            wrong.lock().unwrap().push(format!("{name}: {what}"));
                        }
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(work));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let (cells, wrong) = (cells.into_inner().unwrap(), wrong.into_inner().unwrap());
    let ways = if all { Verb::all(SEED).len() } else { Verb::all(SEED).len() / STRIDE };
    println!("{} fields, {} cells", chosen.len(), 2 * ways * chosen.len());
    assert!(wrong.is_empty(), "{} cells:\n{}", wrong.len(), wrong.join("\n"));
    legal_is_explained(&cells);
    match mended::setting("BETR_MATRIX") {
        None if !all => sample_is_documented(&cells),
        None | Some(INSTANCES) => is_documented(&table(&cells)),
        // More fields of a kind may have other outcomes.
        Some(_) => {}
    }
}

/// Whether all ways are tried.
fn is_whole() -> bool {
    std::env::var("BETR_MATRIX").is_ok() || std::env::var("BETR_BLESS").is_ok()
}

/// Every legal outcome is listed with its reason, and no reason is listed that does not occur.
fn legal_is_explained(cells: &BTreeMap<Place, Cell>) {
    let is_legal = |cell: &Cell| cell.0.contains(&Outcome::Legal);
    let found: BTreeSet<(&str, &str, bool)> = cells
        .iter()
        .filter(|(_, cell)| is_legal(cell))
        .map(|((structure, field, sealed, _), _)| (*structure, &**field, *sealed))
        .collect();
    let said = |structure: &str, field: &str| reason(structure, field).is_some();
    let unsaid: Vec<_> = found.iter().filter(|(s, f, _)| !said(s, f)).collect();
    assert!(unsaid.is_empty(), "{} legal cells without a reason: {unsaid:#?}", unsaid.len());
    let occurs = |s: &str, f: &str| {
        found.iter().any(|(structure, field, _)| *structure == s && (*field == f || f == "*"))
    };
    let unused: Vec<_> = LEGAL.iter().filter(|(s, f, _)| !occurs(s, f)).collect();
    // Some occur only with more fields of their kind than the default.
    let all = mended::setting("BETR_MATRIX").is_some_and(|instances| instances > INSTANCES);
    assert!(!all || unused.is_empty(), "reasons for what is never legal: {unused:#?}");
}

fn reason(structure: &str, field: &str) -> Option<&'static str> {
    let is_it = |(s, f, _): &&(&str, &str, &str)| *s == structure && (*f == field || *f == "*");
    LEGAL.iter().find(is_it).map(|(.., reason)| *reason)
}

/// The table as a document.
fn table(cells: &BTreeMap<Place, Cell>) -> String {
    let mut text = include_str!("matrix/head.txt").to_owned();
    let mut rows: BTreeSet<(&str, &str)> = BTreeSet::new();
    rows.extend(cells.keys().map(|(structure, field, ..)| (*structure, &**field)));
    let mut before = "";
    for (structure, field) in rows {
        if structure != before {
            write!(text, "\n## {structure}\n\n| field | left | right | problems | sound, because |\n| --- | --- | --- | --- | --- |\n").unwrap();
            before = structure;
        }
        let mut codes: BTreeSet<&str> = BTreeSet::new();
        let mut columns = [false, true].map(|sealed| {
            let mut letters = String::new();
            for number in 0..Verb::all(SEED).len() {
                let cell =
                    cells.get(&(structure_of(cells, structure), field.to_owned(), sealed, number));
                let Some((outcomes, found)) = cell else { continue };
                codes.extend(found);
                letters.push(letter(outcomes));
            }
            letters
        });
        let [left, right] = &mut columns;
        let codes = codes.into_iter().collect::<Vec<_>>().join(" ");
        let reason = reason(structure, field).unwrap_or_default();
        writeln!(text, "| {field} | `{left}` | `{right}` | {codes} | {reason} |").unwrap();
    }
    text
}

fn structure_of(cells: &BTreeMap<Place, Cell>, name: &str) -> &'static str {
    cells.keys().find(|(structure, ..)| *structure == name).expect("it is one of them").0
}

/// The letter for the outcomes of a cell.
fn letter(outcomes: &BTreeSet<Outcome>) -> char {
    let has = |outcome| outcomes.contains(&outcome);
    match (has(Outcome::Repaired), has(Outcome::Legal), has(Outcome::Refused)) {
        (true, true, _) => 'm',
        (_, _, true) => 'x',
        (true, false, false) => 'f',
        (false, true, false) => 's',
        (false, false, false) => '-',
    }
}

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../format/DAMAGE.md")
}

/// Compares cells with the document, which has the same rows.
fn sample_is_documented(cells: &BTreeMap<Place, Cell>) {
    let text = std::fs::read_to_string(document()).unwrap();
    let mut written = BTreeMap::new();
    let mut structure = "";
    for line in text.lines() {
        structure = line.strip_prefix("## ").unwrap_or(structure);
        let columns: Vec<&str> =
            line.split('|').map(|column| column.trim().trim_matches('`')).collect();
        if let ["", field, left, right, codes, reason, ""] = columns[..]
            && left.len() == Verb::all(SEED).len()
        {
            written.insert((structure, field), ([left, right], codes, reason));
        }
    }
    let found: BTreeSet<(&str, &str)> = cells.keys().map(|place| (place.0, &*place.1)).collect();
    assert!(found.iter().eq(written.keys()), "format/DAMAGE.md has other rows");
    for ((structure, field, sealed, number), (outcomes, codes)) in cells {
        let (letters, all, said) = written[&(*structure, &**field)];
        let place = format!("{structure}, {field}, sealed: {sealed}, way {number}");
        let letter = letter(outcomes);
        assert!(letters[usize::from(*sealed)][*number..].starts_with(letter), "{place}: {letter}");
        let all: Vec<&str> = all.split(' ').collect();
        assert!(codes.iter().all(|code| all.contains(code)), "{place}: {codes:?}");
        assert_eq!(reason(structure, field).unwrap_or_default(), said, "{place}");
    }
}

fn is_documented(table: &str) {
    let path = document();
    if std::env::var("BETR_BLESS").is_ok() {
        std::fs::write(&path, table).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == table,
        "format/DAMAGE.md is not what came out: BETR_BLESS=1 writes it afresh"
    );
}
