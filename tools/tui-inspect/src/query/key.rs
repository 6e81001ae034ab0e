//! A path or key: the origin of its value, its neighbours, and the value itself.

use std::sync::Arc;

use betr_cli::{json, time, words};
use betr_core::address::Address;
use betr_core::format::{Action, FileType, Key, MetaKey, data_key, parse_data_key};
use betr_core::fs::{Fs, LastLink, Object, Resolved, Slot, data_prefix};
use betr_core::ids::{NodeId, TreeId};
use betr_core::node::Deed;
use betr_core::path::Operand;
use betr_core::text::printable;
use betr_core::tree::explain;
use betr_core::volume::{Mode, Until};
use betr_offline::history::{KeyDeed, of_key};
use bytes::Bytes;

use super::{key_of, range, text};
use crate::image::Image;
use crate::sheet::{Cell, Role, Row, Rows, Sheet, column, fact, numbers, rest};
use crate::spot::Spot;
use crate::words::wrap;
use crate::work::Work;

/// The most entries of a directory that are listed.
const ENTRIES_MAX: usize = 1 << 22;
/// Bytes of a value per line.
const LINE: usize = 16;
/// The most lines of a value.
const LINES_MAX: usize = 4096;

/// The key of a path, of a block of a file (`/file@3`), or a key given directly.
fn key(image: &Image, spot: &Spot, work: &Arc<Work>) -> Result<(TreeId, Key), String> {
    let path = match spot {
        Spot::At(Address::Key(tree, key)) => return Ok((*tree, key.clone())),
        Spot::At(Address::Path(path)) => path,
        _ => return Err(format!("{spot}: expected a path or a key: press i and type one")),
    };
    image.files(work, |fs| match (look_up(fs, path), block_of(path)) {
        (Ok(found), _) => Ok((TreeId::Metadata, found.object.place().encode())),
        (Err(betr_core::Error::Refused(_)), Some((file, block))) => {
            let object = look_up(fs, file).map_err(|error| format!("{spot}: {error}"))?.object;
            match object.kind() {
                FileType::Regular => Ok((TreeId::Data, data_key(&data_prefix(&object), block))),
                _ => Err(format!("{spot}: only regular files have blocks")),
            }
        }
        (Err(error), _) => Err(format!("{spot}: {error}")),
    })
}

/// Resolves a path; a symbolic link in the last component is not followed.
pub(super) fn look_up(fs: &Fs, path: &[u8]) -> betr_core::Result<Resolved> {
    fs.look_up(&Operand::new(path), LastLink::Keep)
}

fn block_of(path: &[u8]) -> Option<(&[u8], u64)> {
    let at = path.iter().rposition(|byte| *byte == b'@')?;
    let block = std::str::from_utf8(&path[at + 1..]).ok()?.parse().ok()?;
    Some((&path[..at], block))
}

/// The origin of a key's value: the path from the root to the leaf, every message for the key, the log, and the value
/// that a read returns.
pub(super) fn story(image: &Image, spot: &Spot, work: &Arc<Work>) -> Result<Sheet, String> {
    let (tree, key) = key(image, spot, work)?;
    let origin = image.origin.as_ref().ok_or("no superblock leads into this image")?;
    let volume = image.base_checkpoint(work)?;
    let explained = explain(volume.store(), tree, &key).map_err(text)?;
    let shown = |value: Option<&Bytes>| {
        value.map_or("nothing".into(), |value| words::value(tree, &key, value))
    };
    let mut rows = Vec::new();
    let put = |rows: &mut Vec<Row>, role, at: &str, what: String| {
        rows.push(Row::of(vec![Cell::new(role, at), Cell::new(role, what)]));
    };
    put(
        &mut rows,
        Role::Strong,
        "DOWN",
        format!("from the root of the {tree} index, checkpoint of epoch {}", origin.birth.epoch.0),
    );
    for stop in &explained.way {
        let place = stop.entry.map(|entry| entry.extent.start.byte());
        let spots = std::iter::once(Spot::node(stop.node)).chain(place.map(Spot::byte));
        let at = place.map_or("in memory".into(), |place| format!("b:{place:#x}"));
        let what = match &stop.chosen {
            Some(chosen) => format!(
                "height {}, {at}: child {} of {}, {}: {}",
                stop.height.0,
                chosen.index,
                chosen.children,
                chosen.child,
                range(tree, &chosen.bounds)
            ),
            None => format!("leaf, {at}: {}", range(tree, &stop.bounds)),
        };
        rows.push(Row::of(vec![Cell::new(Role::Link, stop.node), Cell::from(what)]).to(spots));
        if let Some(lens) = stop.chosen.as_ref().and_then(|chosen| chosen.lens.as_ref()) {
            let [to, from] = [lens.to(), lens.from()].map(|prefix| key_of(tree, prefix));
            let what = format!("  a lens: keys that begin with {to} begin with {from} below");
            put(&mut rows, Role::Plain, "", what);
        }
        for (pending, _) in &stop.messages {
            let at = pending.run.map_or("in memory".into(), |run| format!("run {run}"));
            let what = format!("  pending in {at}: {}", deed(tree, &pending.deed));
            let row =
                Row::of(vec![Cell::new(Role::Warn, pending.msn), Cell::new(Role::Warn, what)]);
            rows.push(row.to(pending.byte.map(Spot::byte)));
        }
    }
    put(
        &mut rows,
        Role::Strong,
        "UP",
        "what is lower is older: the leaf first, then the messages".into(),
    );
    let leaf = explained.way.last().map_or(NodeId(0), |stop| stop.node);
    let stored = Row::of(vec![
        Cell::new(Role::Link, leaf),
        Cell::from(format!("holds {}", shown(explained.stored.as_ref()))),
    ]);
    rows.push(stored.to([Spot::node(leaf)]));
    for stop in explained.way.iter().rev() {
        for (pending, after) in &stop.messages {
            let what = format!("{} leaves {}", deed(tree, &pending.deed), shown(after.as_ref()));
            let row = Row::of(vec![Cell::from(pending.msn.to_string()), Cell::from(what)]);
            rows.push(
                row.to(pending.byte.map(Spot::byte).into_iter().chain([Spot::node(stop.node)])),
            );
        }
    }
    put(&mut rows, Role::Strong, "LOG", "what was written since, the oldest first".into());
    let before = explained.value.clone();
    let until = match &image.found {
        None => Some(Until::End),
        Some(found) => (found.mode != Mode::Checkpoint).then_some(found.until),
    };
    let steps = match until {
        None => Vec::new(),
        Some(until) => of_key(&image.raw(work), origin, tree, &key, until, before).map_err(text)?,
    };
    for step in &steps {
        let wall = time::format_utc(step.wall.secs, step.wall.nanos);
        let after = match (&step.after, &step.deed) {
            (Some(after), _) => shown(after.as_ref()),
            (None, KeyDeed::Clone(_)) => "what that key had then".into(),
            (None, _) => "a value that was never written".into(),
        };
        let what =
            format!("{} {wall}: {} leaves {after}", step.op.name(), log_deed(tree, &step.deed));
        let row = Row::of(vec![Cell::new(Role::Link, step.lsn), Cell::from(what)]);
        rows.push(row.to([Spot::At(Address::Record(step.lsn))]));
    }
    if steps.is_empty() {
        put(&mut rows, Role::Dim, "", "no record touches it".into());
    }
    let value = image.files(work, |fs| fs.volume().get(tree, &key).map_err(text))?;
    put(&mut rows, Role::Strong, "READ", format!("returns {}", shown(value.as_ref())));
    let title = format!("{tree} index, {}", key_of(tree, &key));
    let rows = rows.into_iter().flat_map(broken).collect();
    Ok(Sheet::new(title, vec![column("where", 10), rest("what happens")], rows).at(1))
}

/// Wraps the text of a row so that a small terminal shows all of it.
fn broken(row: Row) -> Vec<Row> {
    const WIDTH: usize = 64;
    let [at, what] = &row.cells[..] else { return vec![row] };
    let lines = wrap(&what.text, WIDTH);
    let one = |(index, line): (usize, String)| {
        let at = if index == 0 { at.clone() } else { Cell::default() };
        let indent = if index == 0 { "" } else { "  " };
        Row {
            cells: vec![at, Cell::new(what.role, format!("{indent}{line}"))],
            spots: row.spots.clone(),
            depth: 0,
        }
    };
    lines.into_iter().enumerate().map(one).collect()
}

fn deed(tree: TreeId, deed: &Deed) -> String {
    match deed {
        Deed::Point(action) => action_words(action),
        Deed::RangeDelete(lo, hi) => {
            format!("range delete from {} up to {}", key_of(tree, lo), key_of(tree, hi))
        }
    }
}

fn log_deed(tree: TreeId, deed: &KeyDeed) -> String {
    match deed {
        KeyDeed::Point(action) => action_words(action),
        KeyDeed::RangeDelete(lo, hi) => {
            format!("range delete from {} up to {}", key_of(tree, lo), key_of(tree, hi))
        }
        KeyDeed::Clone(from) => format!("range clone, from {}", key_of(tree, from)),
        KeyDeed::Bound { node: Some(node), byte } => {
            format!("bound late, in {node} at b:{byte:#x}")
        }
        KeyDeed::Bound { node: None, .. } => "bound late, in the log itself".into(),
        KeyDeed::Null => "bound late to NULL: obsolete at once".into(),
    }
}

fn action_words(action: &Action) -> String {
    match action {
        Action::Insert(_) => "insert".into(),
        Action::Delete => "delete".into(),
        Action::Update(update) => format!("update ({})", words::update(update)),
    }
}

/// The entries of a directory, without limit on their number: all names in one buffer, with type and inode.
pub(crate) struct Entries {
    path: Vec<u8>,
    names: Vec<u8>,
    /// The end of each name, its file type and its inode number.
    ends: Vec<(u64, FileType, u64)>,
}

impl Entries {
    pub(crate) fn new(path: Vec<u8>) -> Entries {
        Entries { path, names: Vec::new(), ends: Vec::new() }
    }

    pub(crate) fn push(&mut self, name: &[u8], kind: FileType, ino: u64) {
        self.names.extend_from_slice(name);
        self.ends.push((self.names.len() as u64, kind, ino));
    }
}

impl Rows for Entries {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn row(&self, at: usize) -> Row {
        let Some((end, kind, ino)) = self.ends.get(at) else { return Row::default() };
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before].0);
        let name = &self.names[start as usize..*end as usize];
        let role = if *kind == FileType::Directory { Role::Link } else { Role::Plain };
        let cells = vec![
            Cell::new(role, printable(name)),
            Cell::from(kind.name()),
            Cell::from(ino.to_string()),
        ];
        let slash: &[u8] = if self.path.ends_with(b"/") { b"" } else { b"/" };
        Row::of(cells).to([Spot::At(Address::Path([&self.path, slash, name].concat()))])
    }
}

/// The entries of a directory; for any other path, the entries of its parent.
pub(super) fn beside(image: &Image, spot: &Spot, work: &Arc<Work>) -> Result<Sheet, String> {
    let path = match spot {
        Spot::At(Address::Path(path)) => path.clone(),
        Spot::At(Address::Key(tree, key)) => return keys(image, *tree, key, work),
        _ => b"/".to_vec(),
    };
    image.files(work, |fs| {
        let found = look_up(fs, &path)
            .or_else(|_| look_up(fs, block_of(&path).map_or(&path, |(file, _)| file)));
        let Resolved { object, path } = found.map_err(|error| format!("{spot}: {error}"))?;
        let (directory, at, name) = match object.is_directory() {
            true => (object, path, None),
            false => {
                let Slot { directory, name, .. } =
                    fs.slot(&Operand::new(path.clone())).map_err(text)?;
                let up = path[..path.len() - name.len()].to_vec();
                (directory, up, Some(name))
            }
        };
        entries(fs, &directory, at, name.as_deref(), work)
    })
}

fn entries(
    fs: &Fs,
    directory: &Object,
    at: Vec<u8>,
    name: Option<&[u8]>,
    work: &Work,
) -> Result<Sheet, String> {
    let mut listing = fs.listing(directory, None).map_err(text)?;
    let mut found = Entries::new(at);
    let mut start = 0;
    let mut is_whole = true;
    while let Some(entry) = fs.next_entry(&mut listing).map_err(text)? {
        if Some(&entry.name[..]) == name {
            start = found.ends.len();
        }
        if found.ends.len() >= ENTRIES_MAX {
            is_whole = false;
            break;
        }
        if work.is_cancelled() {
            return Err("given up".into());
        }
        work.step(found.ends.len() as u64, 0);
        found.push(&entry.name, entry.kind, entry.ino.0);
    }
    let title = format!(
        "{}  {} entries",
        printable(&found.path),
        crate::words::number(found.ends.len() as u64)
    );
    let columns = vec![column("name", 30), column("type", 12), rest("inode")];
    let sheet = Sheet { rows: Box::new(found), ..Sheet::new(title, columns, Vec::new()) }.at(start);
    Ok(if is_whole { sheet } else { sheet.note(Role::Warn, "there are more") })
}

/// The keys that follow a key.
fn keys(image: &Image, tree: TreeId, key: &Key, work: &Arc<Work>) -> Result<Sheet, String> {
    const AROUND: usize = 512;
    image.files(work, |fs| {
        let mut rows = Vec::new();
        for entry in fs.volume().cursor(tree, key.clone(), None).take(AROUND) {
            let (key, value) = entry.map_err(text)?;
            let cells = vec![
                Cell::from(key_of(tree, &key)),
                Cell::from(value.len().to_string()),
                Cell::new(Role::Dim, words::value(tree, &key, &value)),
            ];
            rows.push(Row::of(cells).to([Spot::At(Address::Key(tree, key))]));
        }
        let columns = vec![column("key", 34), numbers("bytes", 6), rest("value")];
        Ok(Sheet::new(format!("{tree} index from here on"), columns, rows))
    })
}

/// The value of a path, field by field; the value of a key, as bytes.
pub(super) fn value(image: &Image, spot: &Spot, work: &Arc<Work>) -> Result<Sheet, String> {
    let (tree, key) = key(image, spot, work)?;
    let value = image.files(work, |fs| fs.volume().get(tree, &key).map_err(text))?;
    let mut rows = vec![fact("key", format!("k#{}:{}", tree.code(), json::hex(&key)))];
    if let Spot::At(Address::Path(path)) = spot {
        image.files(work, |fs| {
            if let Ok(found) = look_up(fs, path) {
                rows.extend(object_rows(&found.object));
            }
            Ok(())
        })?;
    }
    let Some(value) = value else {
        rows.push(fact("value", Cell::new(Role::Warn, "none: a read says that it is not there")));
        return Ok(Sheet::facts("value", rows));
    };
    if let Some(place) = MetaKey::decode(&key).filter(|_| tree == TreeId::Metadata) {
        rows.push(
            fact("zone", Cell::new(Role::Link, place.zone()))
                .to([Spot::At(Address::Zone(place.zone()))]),
        );
    }
    if let Some((prefix, block)) = parse_data_key(&key).filter(|_| tree == TreeId::Data) {
        rows.push(fact("block", block.to_string()));
        let of = Key::copied(prefix);
        rows.push(
            fact("file", Cell::new(Role::Link, key_of(TreeId::Metadata, &of)))
                .to([Spot::At(Address::Key(TreeId::Metadata, of))]),
        );
    }
    rows.push(fact("bytes", value.len().to_string()));
    for (at, line) in value.chunks(LINE).take(LINES_MAX).enumerate() {
        rows.push(fact(&format!("{:#06x}", at * LINE), hex_line(line)));
    }
    Ok(Sheet::facts("value", rows))
}

fn object_rows(object: &Object) -> Vec<Row> {
    let inode = object.inode();
    let at = |time: betr_core::ids::Time| time::format_utc(time.secs, time.nanos);
    let mut rows = vec![
        fact("type", inode.kind.name()),
        fact("inode", inode.ino.0.to_string()),
        fact("mode", format!("{:04o}", inode.perm)),
        fact("owner", format!("{}:{}", inode.uid, inode.gid)),
        fact("links", inode.links.to_string()),
        fact("size", crate::words::number(inode.size)),
        fact("modified", at(inode.modified)),
        fact("changed", at(inode.changed)),
    ];
    if let Some(zone) = object.zone() {
        rows.push(
            fact("own zone", Cell::new(Role::Link, zone)).to([Spot::At(Address::Zone(zone))]),
        );
    }
    if inode.kind == FileType::Regular {
        let first = data_key(&data_prefix(object), 0);
        let cell = Cell::new(Role::Link, format!("k#2:{}", json::hex(&first)));
        rows.push(fact("first block", cell).to([Spot::At(Address::Key(TreeId::Data, first))]));
    }
    if !inode.target.is_empty() {
        rows.push(fact("target", printable(&inode.target)));
    }
    rows
}

/// Bytes in hexadecimal, followed by the printable characters.
pub(super) fn hex_line(line: &[u8]) -> String {
    let hex = json::hex(line);
    let print =
        |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' };
    format!("{hex:<32}  {}", line.iter().map(print).collect::<String>())
}
