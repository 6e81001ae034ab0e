//! Reads a tree of the host ahead of its import: a thread lists directories, and the thread pool reads small files.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Builder};
use std::vec::IntoIter;

use betr_core::fs::Contents;
use rayon::Scope;

use crate::host::{Entry, HostError, Kind, Meta, Source};
use crate::put::{WINDOW, whole_contents};
use crate::{CopyError, join};

/// Steps travel in batches of at most 64, or 256 KiB of small files: to hand over each one would wake a thread each time.
const BATCH_STEPS: usize = 64;
const BATCH_BYTES: u64 = 256 << 10;
/// 4 batches are read before the import needs them, some 5 MiB at most. Not measured.
const BATCHES: usize = 4;

/// An object of a tree.
pub(crate) struct Step {
    pub path: Vec<u8>,
    pub meta: Meta,
    /// The contents of a file, if they have been read ahead.
    pub contents: Option<Contents>,
}

type Batch = Vec<Result<Step, CopyError>>;

/// The objects of a tree, without its root: in the order of their names, each directory followed by its entries. After an
/// error there are no more.
pub(crate) struct Steps {
    batches: Receiver<Receiver<Batch>>,
    batch: IntoIter<Result<Step, CopyError>>,
}

impl Iterator for Steps {
    type Item = Result<Step, CopyError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(step) = self.batch.next() {
                return Some(step);
            }
            let batch = self.batches.recv().ok()?;
            self.batch = batch.recv().ok()?.into_iter();
        }
    }
}

/// Calls `import` with the objects of a tree.
pub(crate) fn with_steps<T>(
    source: &Source,
    import: impl FnOnce(Steps) -> Result<T, CopyError>,
) -> Result<T, CopyError> {
    let (batches, received) = sync_channel(BATCHES);
    thread::scope(|scope| {
        let lister = Lister { source, batches, batch: Vec::new(), bytes: 0 };
        // When `import` returns early, the lister finds that nothing receives what it sends.
        let started = Builder::new().name("lister".into()).spawn_scoped(scope, || lister.run());
        started.map_err(|error| HostError::Io {
            op: "start a thread to list",
            path: source.shown(b""),
            source: error,
        })?;
        import(Steps { batches: received, batch: Vec::new().into_iter() })
    })
}

struct Lister<'s> {
    source: &'s Source,
    batches: SyncSender<Receiver<Batch>>,
    batch: Batch,
    /// Bytes of the small files in the batch.
    bytes: u64,
}

impl<'s> Lister<'s> {
    fn run(mut self) {
        rayon::in_place_scope(|jobs| {
            if let Err(error) = self.list(jobs) {
                self.batch.push(Err(error));
            }
            self.send(jobs);
        });
    }

    /// Lists until the end, or until nothing receives the steps.
    fn list(&mut self, jobs: &Scope<'s>) -> Result<(), CopyError> {
        // The remaining entries of the directories from the root to the current one.
        let mut open = vec![(Vec::new(), self.source.list(b"")?.into_iter())];
        while let Some((above, entries)) = open.last_mut() {
            let Some(Entry { name, meta }) = entries.next() else {
                open.pop();
                continue;
            };
            let path = join(above, &name);
            let is_directory = meta.kind == Kind::Directory;
            if is_small(&meta) {
                self.bytes += meta.size;
            }
            self.batch.push(Ok(Step { path: path.clone(), meta, contents: None }));
            let is_full = self.batch.len() >= BATCH_STEPS || self.bytes >= BATCH_BYTES;
            if is_full && !self.send(jobs) {
                return Ok(());
            }
            if is_directory {
                let entries = self.source.list(&path)?.into_iter();
                open.push((path, entries));
            }
        }
        Ok(())
    }

    /// Starts to read the files of a batch, and hands it over. Returns whether it is received.
    fn send(&mut self, jobs: &Scope<'s>) -> bool {
        self.bytes = 0;
        let (source, batch) = (self.source, std::mem::take(&mut self.batch));
        let (read, receiver) = sync_channel(1);
        let is_received = self.batches.send(receiver).is_ok();
        if is_received {
            // The import may end while this reads.
            jobs.spawn(move |_| drop(read.send(read_files(source, batch))));
        }
        is_received
    }
}

/// Reads the small files among some objects, up to the first error.
fn read_files(source: &Source, mut batch: Batch) -> Batch {
    for at in 0..batch.len() {
        let Ok(step) = &mut batch[at] else { break };
        if is_small(&step.meta) {
            match contents(source, &step.path, &step.meta) {
                Ok(contents) => step.contents = Some(contents),
                Err(error) => {
                    batch.truncate(at);
                    batch.push(Err(error));
                    break;
                }
            }
        }
    }
    batch
}

/// Whether a file is read ahead. Large ones are left to the import, and those with several names, of which it reads one.
fn is_small(meta: &Meta) -> bool {
    meta.kind == Kind::File && (1..WINDOW).contains(&meta.size) && meta.nlink == 1
}

fn contents(source: &Source, path: &[u8], meta: &Meta) -> Result<Contents, CopyError> {
    let mut reader = source.reader(path, meta)?;
    let contents = whole_contents(meta.size, &mut |piece| Ok(reader.next_segment(piece)?))?;
    reader.finish()?;
    Ok(contents)
}
