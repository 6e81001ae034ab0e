//! A worker that changes a tree as fast as possible, and records acknowledgements.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ledger::{Ledger, parent};
use crate::fixture::{Random, System, system};

/// Limits on the files in a directory, and on the bytes in a tree: every check reads all of it.
const FILES: usize = 12;
const BYTES: usize = 8 << 20;
/// The most changes of a file that are not synced.
const PENDING: usize = 6;

/// When a change counts as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Promise {
    /// When an fsync of it has returned.
    Fsync,
    /// When the call itself has returned, as with the option `sync`.
    AtOnce,
}

/// Whether the mount has been stopped. An operation that fails before that is a test failure.
#[derive(Clone, Default)]
pub(super) struct End(Arc<AtomicBool>);

impl End {
    pub(super) fn set(&self, come: bool) {
        self.0.store(come, Ordering::SeqCst);
    }

    pub(super) fn has_come(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Fails if an operation returned too late to count. When ext4 is shut down during an operation, the operation
    /// may still report success; a killed daemon does not reply.
    fn not_yet(&self) -> io::Result<()> {
        match self.has_come() && system() == System::Ext4 {
            true => Err(io::Error::other("too late")),
            false => Ok(()),
        }
    }
}

pub(super) struct Worker {
    top: PathBuf,
    end: End,
    promise: Promise,
    random: Random,
    ledger: Ledger,
    made: u64,
}

impl Worker {
    /// A worker with a new, durable directory of its own.
    pub(super) fn new(top: PathBuf, end: End, promise: Promise, random: Random) -> Self {
        fs::create_dir(&top).unwrap();
        File::open(top.parent().unwrap()).unwrap().sync_all().unwrap();
        Self { top, end, promise, random, ledger: Ledger::new(), made: 0 }
    }

    /// Works until an operation fails, as all do after a crash. Returns the error.
    pub(super) fn work(&mut self) -> io::Error {
        loop {
            if let Err(error) = self.step() {
                return error;
            }
        }
    }

    /// Compares the tree with its permitted states.
    pub(super) fn check(&mut self) {
        self.ledger.check(&self.top);
    }

    /// The number of completed operations.
    pub(super) fn made(&self) -> u64 {
        self.made
    }

    fn step(&mut self) -> io::Result<()> {
        self.made += 1;
        match self.random.below(20) {
            0..4 => self.create(),
            4..7 => self.append(),
            7..10 => self.overwrite(),
            10 => self.resize(),
            11..14 => self.replace(),
            14 => self.make_directory(),
            15 => self.remove(),
            16..18 => self.move_file(),
            18 => self.remove_directory(),
            _ => self.sync_all(),
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        // Joining "" would append a slash.
        if path.is_empty() { self.top.clone() } else { self.top.join(path) }
    }

    /// True with a probability of `percent` per cent.
    fn often(&mut self, percent: usize) -> bool {
        self.random.below(100) < percent
    }

    fn directory(&mut self) -> String {
        let names = self.ledger.names();
        let mut directories: Vec<_> =
            names.keys().filter(|path| !self.ledger.is_file(path)).cloned().collect();
        directories.push(String::new());
        directories.swap_remove(self.random.below(directories.len()))
    }

    fn some_file(&mut self) -> Option<String> {
        let files: Vec<_> =
            self.ledger.names().keys().filter(|path| self.ledger.is_file(path)).collect();
        let index = (!files.is_empty()).then(|| self.random.below(files.len()))?;
        Some(files[index].clone())
    }

    /// A name for a file, which an existing file may have.
    fn name(&mut self) -> String {
        let (directory, number) = (self.directory(), self.random.below(FILES));
        if directory.is_empty() { format!("f{number}") } else { format!("{directory}/f{number}") }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let most = [50, 5000, 60_000, 60_000, 2_500_000][self.random.below(5)];
        let room = BYTES.saturating_sub(self.ledger.bytes()).max(100);
        let len = self.random.below(most.min(room)) + 1;
        // No zeros, so that unwritten bytes are recognised.
        let mut bytes = self.random.bytes(len);
        bytes.iter_mut().for_each(|byte| *byte |= 1);
        bytes
    }

    fn write(&mut self, path: &str, file: &File, at: usize, bytes: &[u8]) -> io::Result<()> {
        self.ledger.write(path, at, bytes);
        file.write_all_at(bytes, at as u64)?;
        self.done_to(path, file, 60)
    }

    /// Called after a change of a file: syncs it with a probability, and always if too many changes are pending.
    fn done_to(&mut self, path: &str, file: &File, percent: usize) -> io::Result<()> {
        if self.promise == Promise::Fsync {
            if !self.often(percent) && self.ledger.file(path).pending() <= PENDING {
                return Ok(());
            }
            if self.often(50) { file.sync_all()? } else { file.sync_data()? }
        }
        self.end.not_yet()?;
        self.ledger.file_synced(path);
        Ok(())
    }

    /// Called after a change of names in these directories.
    fn renamed_in(&mut self, directories: &[&str], percent: usize) -> io::Result<()> {
        let promised = self.promise == Promise::AtOnce;
        if !promised && !self.often(percent) {
            return Ok(());
        }
        for directory in directories {
            if !promised {
                File::open(self.at(directory))?.sync_all()?;
            }
            self.end.not_yet()?;
            self.ledger.directory_synced(directory);
        }
        Ok(())
    }

    fn create(&mut self) -> io::Result<()> {
        let path = self.name();
        if self.ledger.names().contains_key(&path) {
            return Ok(());
        }
        self.ledger.create(&path);
        let file = File::create_new(self.at(&path))?;
        self.renamed_in(&[parent(&path)], 20)?;
        let bytes = self.bytes();
        self.write(&path, &file, 0, &bytes)?;
        self.renamed_in(&[parent(&path)], 50)
    }

    fn open(&self, path: &str) -> io::Result<File> {
        File::options().read(true).write(true).open(self.at(path))
    }

    fn append(&mut self) -> io::Result<()> {
        let Some(path) = self.some_file() else { return Ok(()) };
        let (file, bytes) = (self.open(&path)?, self.bytes());
        self.write(&path, &file, self.ledger.file(&path).len(), &bytes)
    }

    fn overwrite(&mut self) -> io::Result<()> {
        let Some(path) = self.some_file() else { return Ok(()) };
        let (file, bytes) = (self.open(&path)?, self.bytes());
        let at = self.random.below(self.ledger.file(&path).len() + 1);
        self.write(&path, &file, at, &bytes)
    }

    fn resize(&mut self) -> io::Result<()> {
        let Some(path) = self.some_file() else { return Ok(()) };
        let (file, len) = (self.open(&path)?, self.ledger.file(&path).len());
        let len = self.random.below(len + len / 4 + 1);
        self.ledger.resize(&path, len);
        file.set_len(len as u64)?;
        if self.promise == Promise::AtOnce && system() == System::Ext4 {
            // ext4's `-o sync` makes writes and changes of names durable, but not this operation; XFS does.
            file.sync_all()?;
        }
        self.done_to(&path, &file, 70)
    }

    /// Replaces a file as editors and databases do: a new file, an fsync, and a rename over the old one.
    fn replace(&mut self) -> io::Result<()> {
        let path = self.name();
        let temporary = format!("{path}.new");
        if self.ledger.names().contains_key(&temporary) {
            // Left by a crash.
            self.ledger.remove(&temporary);
            fs::remove_file(self.at(&temporary))?;
        }
        self.ledger.create(&temporary);
        let file = File::create_new(self.at(&temporary))?;
        let bytes = self.bytes();
        self.ledger.write(&temporary, 0, &bytes);
        file.write_all_at(&bytes, 0)?;
        file.sync_all()?;
        self.end.not_yet()?;
        self.ledger.file_synced(&temporary);
        self.ledger.rename(&temporary, &path);
        fs::rename(self.at(&temporary), self.at(&path))?;
        self.renamed_in(&[parent(&path)], 70)
    }

    fn make_directory(&mut self) -> io::Result<()> {
        let above = self.directory();
        let name = format!("d{}", self.random.below(2));
        let path = if above.is_empty() { name } else { format!("{above}/{name}") };
        if path.matches('/').count() > 2 || self.ledger.names().contains_key(&path) {
            return Ok(());
        }
        self.ledger.mkdir(&path);
        fs::create_dir(self.at(&path))?;
        self.renamed_in(&[&above], 60)
    }

    fn remove(&mut self) -> io::Result<()> {
        let Some(path) = self.some_file() else { return Ok(()) };
        self.ledger.remove(&path);
        fs::remove_file(self.at(&path))?;
        self.renamed_in(&[parent(&path)], 60)
    }

    fn move_file(&mut self) -> io::Result<()> {
        let (Some(from), to) = (self.some_file(), self.name()) else { return Ok(()) };
        if from == to {
            return Ok(());
        }
        self.ledger.rename(&from, &to);
        fs::rename(self.at(&from), self.at(&to))?;
        self.renamed_in(&[parent(&from), parent(&to)], 60)
    }

    fn remove_directory(&mut self) -> io::Result<()> {
        let path = self.directory();
        let below = format!("{path}/");
        if path.is_empty() || self.ledger.names().keys().any(|name| name.starts_with(&below)) {
            return Ok(());
        }
        self.ledger.remove(&path);
        fs::remove_dir(self.at(&path))?;
        self.renamed_in(&[parent(&path)], 60)
    }

    fn sync_all(&mut self) -> io::Result<()> {
        rustix::fs::syncfs(File::open(&self.top)?)?;
        self.end.not_yet()?;
        // The kernel sends a FUSE server no request for this; it only writes back its dirty pages.
        if system() == System::Ext4 {
            self.ledger.all_synced();
        }
        Ok(())
    }
}

/// A log to which all workers append.
pub(super) struct Log {
    path: PathBuf,
    end: End,
    writer: usize,
    next: u64,
    acknowledged: u64,
}

/// The length of a record, in bytes.
const RECORD: usize = 64;

impl Log {
    pub(super) fn new(path: &Path, end: End, writer: usize) -> Self {
        File::create(path).unwrap().sync_all().unwrap();
        File::open(path.parent().unwrap()).unwrap().sync_all().unwrap();
        Self { path: path.to_owned(), end, writer, next: 0, acknowledged: 0 }
    }

    /// Appends until an operation fails.
    pub(super) fn work(&mut self, promise: Promise) -> io::Error {
        let append = |log: &mut Self| -> io::Result<()> {
            let file = File::options().append(true).open(&log.path)?;
            loop {
                let record = Self::record(log.writer, log.next);
                io::Write::write_all(&mut &file, record.as_bytes())?;
                log.next += 1;
                if promise == Promise::Fsync && !log.next.is_multiple_of(4) {
                    continue;
                }
                if promise == Promise::Fsync {
                    file.sync_data()?;
                }
                log.end.not_yet()?;
                log.acknowledged = log.next;
            }
        };
        append(self).unwrap_err()
    }

    /// After a crash every acknowledged record must be present, in order. Later records may be present, complete or
    /// not, and are cut off.
    pub(super) fn check(logs: &mut [Self]) {
        let path = logs[0].path.clone();
        let bytes = fs::read(&path).unwrap();
        let mut counts = vec![0; logs.len()];
        let mut whole = 0;
        for record in bytes.chunks_exact(RECORD) {
            let text = std::str::from_utf8(record).unwrap_or_default();
            let next =
                (0..logs.len()).find(|writer| text == Self::record(*writer, counts[*writer]));
            let Some(writer) = next else { break };
            counts[writer] += 1;
            whole += RECORD;
        }
        for (log, count) in logs.iter_mut().zip(counts) {
            assert!(
                (log.acknowledged..=log.next + 1).contains(&count),
                "writer {} had {} of {} records acknowledged; {count} are there, before byte {whole} of {}",
                log.writer,
                log.acknowledged,
                log.next,
                bytes.len()
            );
            (log.next, log.acknowledged) = (count, count);
        }
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(whole as u64).unwrap();
        file.sync_all().unwrap();
    }

    fn record(writer: usize, number: u64) -> String {
        format!("writer {writer} record {number:>width$}\n", width = RECORD - 17)
    }
}
