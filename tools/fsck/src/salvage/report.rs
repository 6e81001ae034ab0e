//! The report: one line or JSON item for each incomplete object, then the totals.

use std::collections::HashMap;
use std::io;
use std::ops::Range;

use betr_cli::{Exit, Io, JsonList, json, progress, show};
use betr_copy::Salvaged;
use betr_core::Place;
use betr_core::format::MetaKey;
use betr_core::fs::Object;
use betr_core::ids::TreeId;
use betr_core::mend::{Change, Loss};
use betr_core::text::printable;
use serde_json::{Value, json};

use crate::salvage::Args;
use crate::salvage::losses::{Losses, Missing};
use crate::salvage::opened::Found;

/// Reports on each object.
pub(crate) struct Reporter<'r, 'i> {
    io: &'r mut Io<'i>,
    /// The prefix of messages.
    name: String,
    /// The top of the copied tree, which is prefixed to all paths.
    top: Vec<u8>,
    verbose: bool,
    list: Option<JsonList>,
    losses: Losses<'r>,
    /// The changes of the repair by the key of their object, removed when the object is reported.
    changes: HashMap<Vec<u8>, &'r Change>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    complete: u64,
    partial: u64,
    lost: u64,
    bytes: u64,
    refused: u64,
    warnings: u64,
}

impl<'r, 'i> Reporter<'r, 'i> {
    /// Starts the report with the findings about the whole image.
    pub(super) fn new(
        args: &Args,
        top: &[u8],
        found: &'r Found,
        io: &'r mut Io<'i>,
    ) -> io::Result<Reporter<'r, 'i>> {
        let name = show::path(args.image.path());
        let superblock = &found.superblock;
        let list = args.json.then(|| {
            let fields = json!({
                "image": name,
                "slot": superblock.slot,
                "epoch": superblock.birth.epoch.0,
                "dry_run": args.dry_run,
                "notes": found.notes,
            });
            JsonList::with("betr.salvage", 1, fields, "entries")
        });
        if list.is_none() {
            found.notes.iter().try_for_each(|note| writeln!(io.out, "{name}: {note}"))?;
        }
        let changes = found.changes.iter().filter(|change| !change.is_count());
        let changes = changes.filter_map(|change| match &change.place {
            Place::Key(TreeId::Metadata, key) => Some((key.clone(), change)),
            _ => None,
        });
        let (losses, top) = (Losses::new(&found.losses), absolute(b"", top));
        let (changes, counts) = (changes.collect(), Counts::default());
        let verbose = args.verbose;
        Ok(Reporter { io, name, top, verbose, list, losses, changes, counts })
    }

    /// Reports the result for an object.
    pub(super) fn tell(&mut self, salvaged: Salvaged<'_>) -> io::Result<()> {
        match salvaged {
            Salvaged::Directory(path, object) => {
                let missing = self.losses.of(object);
                let change = self.change_of(object);
                let path = absolute(&self.top, path);
                if missing.entries {
                    self.counts.lost += 1;
                    let text = "entries may be missing, with what was below them";
                    self.entry("lost", &path, json!({ "what": text }), text)?;
                }
                self.made_good(&path, change, None)
            }
            Salvaged::Object { path, object, bytes, gaps } => {
                self.counts.bytes += bytes;
                let mut missing = self.losses.of(object);
                missing.lack(gaps);
                self.object(&absolute(&self.top, path), object, &missing)
            }
            Salvaged::Link(path, object) => {
                let change = self.change_of(object);
                self.made_good(&absolute(&self.top, path), change, Some("link"))
            }
            Salvaged::Unread(path, error) => {
                self.counts.lost += 1;
                let text = format!("cannot be read: {error}");
                self.entry("lost", &absolute(&self.top, path), json!({ "what": text }), &text)
            }
            Salvaged::Refused(path, error) => {
                self.counts.refused += 1;
                let text = format!("not written: {error}");
                self.entry("refused", &absolute(&self.top, path), json!({ "what": text }), &text)
            }
            Salvaged::Warning(warning) => {
                self.counts.warnings += 1;
                self.io.note(&format!("betr salvage: warning: {warning}"))
            }
        }
    }

    /// Reports an object without contents: as partial if the repair changed it, else as `else_kind` if that is given and
    /// the output is verbose.
    fn made_good(
        &mut self,
        path: &[u8],
        change: Option<String>,
        else_kind: Option<&str>,
    ) -> io::Result<()> {
        match (change, else_kind) {
            (Some(what), _) => {
                self.counts.partial += 1;
                self.entry("partial", path, json!({ "what": what }), &what)
            }
            (None, Some(kind)) if self.verbose => self.entry(kind, path, json!({}), kind),
            (None, _) => Ok(()),
        }
    }

    fn object(&mut self, path: &[u8], object: &Object, missing: &Missing) -> io::Result<()> {
        let change = self.change_of(object);
        if change.is_none() && *missing == Missing::default() {
            self.counts.complete += 1;
            return match self.verbose {
                true => self.entry("complete", path, json!({}), "complete"),
                false => Ok(()),
            };
        }
        self.counts.partial += 1;
        if self.list.is_none() {
            for Range { start, end } in &missing.bytes {
                self.line(path, &format!("bytes {start} to {} are missing", end - 1))?;
            }
            for Range { start, end } in &missing.older {
                let last = end - 1;
                self.line(path, &format!("bytes {start} to {last} may be older than they were"))?;
            }
            return change.map_or(Ok(()), |what| self.line(path, &what));
        }
        let list = |ranges: &[Range<u64>]| -> Value {
            ranges
                .iter()
                .map(|range| json!({ "first": range.start, "last": range.end - 1 }))
                .collect()
        };
        let mut fields = json!({
            "size": object.inode().size,
            "missing": list(&missing.bytes),
            "older": list(&missing.older),
        });
        if let Some(what) = change {
            fields["what"] = what.into();
        }
        self.entry("partial", path, fields, "")
    }

    /// The change that the repair made at the key of an object.
    fn change_of(&mut self, object: &Object) -> Option<String> {
        if self.changes.is_empty() {
            return None;
        }
        self.changes.remove(&*object.place().encode()).map(|change| change.what.clone())
    }

    /// Ends the report.
    pub(super) fn end(mut self, found: &Found) -> io::Result<Exit> {
        let whole = self.top == b"/";
        let left: Vec<&Loss> = self.losses.left().filter(|_| whole).collect();
        for loss in left {
            self.counts.lost += 1;
            self.lost(&format!("{}: {}", keys(loss), loss.why))?;
        }
        let unmet: Vec<&Change> =
            found.changes.iter().filter(|change| self.is_unmet(change)).collect();
        for change in unmet.into_iter().filter(|_| whole) {
            self.counts.lost += 1;
            let place = match &change.place {
                Place::Key(tree, key) => words(*tree, key),
                other => other.to_string(),
            };
            self.lost(&format!("{place}: {}", change.what))?;
        }
        for finding in &found.operations {
            self.counts.lost += 1;
            self.lost(&format!("{}: {}", finding.place, finding.detail))?;
        }
        for Range { start, end } in found.missing() {
            let fields = json!({ "first": start, "last": end - 1 });
            let text = format!("bytes {start} to {} of the image cannot be read", end - 1);
            self.item("unreadable", fields, &text)?;
        }
        let Counts { complete, partial, lost, bytes, refused, warnings } = self.counts;
        let summary = json!({
            "complete": complete,
            "partial": partial,
            "lost": lost,
            "refused": refused,
            "warnings": warnings,
            "bytes": bytes,
        });
        let mut text =
            format!("{complete} complete, {partial} partial, {lost} lost, {bytes} bytes");
        if refused > 0 {
            text += &format!(", {refused} not written");
        }
        if warnings > 0 {
            text += &format!(", {warnings} details not kept");
        }
        self.item("summary", summary, &text)?;
        if let Some(list) = self.list {
            list.end(self.io)?;
        }
        Ok(match (refused + warnings, partial + lost) {
            (0, 0) if !found.doubtful => Exit::DONE,
            (0, _) => Exit::DAMAGED,
            _ => Exit::FAILED,
        })
    }

    /// Whether no object was reported at the key of a change.
    fn is_unmet(&self, change: &Change) -> bool {
        match &change.place {
            _ if !change.is_loss() => false,
            Place::Key(TreeId::Metadata, key) => {
                self.changes.get(key).is_some_and(|last| std::ptr::eq(*last, change))
            }
            _ => true,
        }
    }

    fn lost(&mut self, what: &str) -> io::Result<()> {
        self.item("lost", json!({ "what": what }), &format!("lost: {what}"))
    }

    /// Reports an object at a path.
    fn entry(&mut self, kind: &str, path: &[u8], fields: Value, text: &str) -> io::Result<()> {
        if self.list.is_none() {
            return self.line(path, text);
        }
        let mut item = json!({ "path": json::text(path, &printable(path)) });
        for (name, value) in fields.as_object().into_iter().flatten() {
            item[name] = value.clone();
        }
        self.item(kind, item, "")
    }

    fn line(&mut self, path: &[u8], text: &str) -> io::Result<()> {
        progress::beside(|| writeln!(self.io.out, "{}: {text}", printable(path)))
    }

    /// Reports on the image as a whole.
    fn item(&mut self, kind: &str, fields: Value, text: &str) -> io::Result<()> {
        let Some(list) = &mut self.list else {
            return writeln!(self.io.out, "{}: {text}", self.name);
        };
        let mut item = json!({ "kind": kind });
        for (name, value) in fields.as_object().into_iter().flatten() {
            item[name] = value.clone();
        }
        list.push(self.io, &item)
    }
}

/// The absolute path of `path`, which is relative to `top`.
fn absolute(top: &[u8], path: &[u8]) -> Vec<u8> {
    let names = betr_core::fs::components(top).chain(betr_core::fs::components(path));
    let mut all: Vec<u8> = names.flat_map(|name| [b"/", name].concat()).collect();
    if all.is_empty() {
        all.push(b'/');
    }
    all
}

/// Describes the keys of a loss.
fn keys(loss: &Loss) -> String {
    let what = match (loss.tree, loss.pending) {
        (TreeId::Metadata, false) => "files and directories",
        (TreeId::Metadata, true) => "changes of files and directories",
        (TreeId::Data, false) => "contents",
        (TreeId::Data, true) => "changes of contents",
    };
    let from = words(loss.tree, &loss.keys.lo);
    match &loss.keys.hi {
        Some(hi) => format!("{what} from {from} to {}", words(loss.tree, hi)),
        None => format!("{what} from {from} on"),
    }
}

/// Describes a key as a path within its zone, as far as it decodes.
fn words(tree: TreeId, key: &[u8]) -> String {
    if key.is_empty() {
        return "the beginning".into();
    }
    let (path, block) = match tree {
        TreeId::Metadata => (key, None),
        TreeId::Data => match betr_core::format::parse_data_key(key) {
            Some((path, block)) => (path, Some(block)),
            None => (key, None),
        },
    };
    let Some(place) = MetaKey::decode(path) else {
        return Place::Key(tree, key.to_vec()).to_string();
    };
    let mut text = format!("zone {} {}", place.zone(), printable(&absolute(b"", &place.path())));
    if let Some(name) = &place.xattr() {
        text += &format!(" attribute {}", printable(name));
    }
    if let Some(block) = block {
        text += &format!(" block {block}");
    }
    text
}
