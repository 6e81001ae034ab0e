//! The operations, each applied to a file and to its model.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{
    Advice, FallocateFlags, OFlags, SeekFrom, copy_file_range, fadvise, fallocate, seek,
};
use rustix::io::Errno;

use super::model::Model;
use crate::fixture::{Mapping, Random, Share, open};

const NAMES: [&str; 2] = ["one", "two"];
/// The number of recent operations that a failure prints.
const SHOWN: usize = 30;
/// The alignment for direct I/O, in bytes.
const BLOCK: usize = 4096;

/// The two models, and the state of the random sequence of operations.
pub(super) struct Exerciser {
    random: Random,
    max_len: usize,
    models: [Model; 2],
    history: History,
}

/// The recent operations, printed when this is dropped during a panic.
struct History {
    seed: u64,
    last: VecDeque<String>,
    count: u64,
}

impl Drop for History {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("with BETR_TEST_SEED={}, at operation {}, after", self.seed, self.count);
            self.last.iter().for_each(|line| eprintln!("  {line}"));
        }
    }
}

/// The two open files.
struct Files {
    handles: [File; 2],
    paths: [std::path::PathBuf; 2],
}

impl Files {
    fn open(root: &Path) -> Self {
        let paths = NAMES.map(|name| root.join(name));
        let open = |path: &std::path::PathBuf| open(path, OFlags::empty());
        Self { handles: [open(&paths[0]), open(&paths[1])], paths }
    }
}

impl Exerciser {
    pub(super) fn new(seed: u64, user: u64, max_len: usize) -> Self {
        let history = History { seed, last: VecDeque::new(), count: 0 };
        Self { random: Random::new(seed, user), max_len, models: Default::default(), history }
    }

    /// Applies a number of operations to the files in a directory.
    pub(super) fn run(&mut self, root: &Path, operations: u64) {
        let mut files = Files::open(root);
        for _ in 0..operations {
            self.history.count += 1;
            self.step(root, &mut files);
            for (handle, model) in files.handles.iter().zip(&self.models) {
                assert_eq!(handle.metadata().unwrap().size(), model.len() as u64);
            }
        }
        self.compare(root);
    }

    /// Compares the whole files with the models.
    pub(super) fn compare(&self, root: &Path) {
        for (name, model) in NAMES.iter().zip(&self.models) {
            model.assert_is(0, usize::MAX / 2, &fs::read(root.join(name)).unwrap());
        }
    }

    fn note(&mut self, line: String) {
        self.history.last.push_back(line);
        if self.history.last.len() > SHOWN {
            self.history.last.pop_front();
        }
    }

    /// A small or large range within the maximum length, often at a block boundary.
    fn range(&mut self) -> (usize, usize) {
        let random = &mut self.random;
        let mut at = random.below(self.max_len);
        if random.below(3) == 0 {
            at -= at % BLOCK;
        }
        let most = [100, 5000, 70_000, self.max_len][random.below(4)].min(self.max_len - at);
        let mut len = random.below(most) + 1;
        if random.below(4) == 0 && len > BLOCK {
            len -= len % BLOCK;
        }
        (at, len)
    }

    /// A range within the current file; `None` if the file is empty.
    fn inside(&mut self, file: usize) -> Option<(usize, usize)> {
        let size = self.models[file].len();
        let (at, len) = self.range();
        (size > 0).then(|| (at % size, len.min(size - at % size)))
    }

    fn step(&mut self, root: &Path, files: &mut Files) {
        let file = self.random.below(2);
        match self.random.below(24) {
            0..4 => self.write(files, file),
            4..8 => self.read(files, file),
            8 => self.append(files, file),
            9..11 => self.truncate(files, file),
            11..13 => self.punch(files, file),
            13 => self.zero(files, file),
            14 => self.allocate(files, file),
            15..17 => self.copy(files, file),
            17..19 => self.map(files, file),
            19 => self.direct(root, file),
            20 => self.find_holes(files, file),
            21 => {
                self.note(format!("sync {file}"));
                files.handles[file].sync_data().unwrap();
            }
            22 => {
                self.note(format!("forget {file}"));
                files.handles[file].sync_all().unwrap();
                fadvise(&files.handles[file], 0, None, Advice::DontNeed).unwrap();
            }
            _ => {
                self.note("reopen".into());
                *files = Files::open(root);
            }
        }
    }

    fn write(&mut self, files: &Files, file: usize) {
        let (at, len) = self.range();
        self.note(format!("write {file} {at}+{len}"));
        let bytes = self.random.bytes(len);
        files.handles[file].write_all_at(&bytes, at as u64).unwrap();
        self.models[file].write(at, &bytes);
    }

    fn read(&mut self, files: &Files, file: usize) {
        let (at, len) = self.range();
        self.note(format!("read {file} {at}+{len}"));
        let mut bytes = vec![0; len];
        let expected = self.models[file].read(at, len).len();
        files.handles[file].read_exact_at(&mut bytes[..expected], at as u64).unwrap();
        self.models[file].assert_is(at, len, &bytes[..expected]);
    }

    fn append(&mut self, files: &Files, file: usize) {
        let size = self.models[file].len();
        let len = self.range().1.min(self.max_len - size.min(self.max_len));
        self.note(format!("append {file} {len}"));
        let bytes = self.random.bytes(len);
        File::options().append(true).open(&files.paths[file]).unwrap().write_all(&bytes).unwrap();
        self.models[file].write(size, &bytes);
    }

    fn truncate(&mut self, files: &Files, file: usize) {
        let (at, _) = self.range();
        self.note(format!("truncate {file} {at}"));
        files.handles[file].set_len(at as u64).unwrap();
        self.models[file].resize(at);
    }

    fn punch(&mut self, files: &Files, file: usize) {
        let (at, len) = self.range();
        self.note(format!("punch {file} {at}+{len}"));
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&files.handles[file], flags, at as u64, len as u64).unwrap();
        self.models[file].clear(at, len);
    }

    fn zero(&mut self, files: &Files, file: usize) {
        let ((at, len), keep) = (self.range(), self.random.below(2) == 0);
        self.note(format!("zero {file} {at}+{len} keep={keep}"));
        let keep_size = if keep { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        let flags = FallocateFlags::ZERO_RANGE | keep_size;
        fallocate(&files.handles[file], flags, at as u64, len as u64).unwrap();
        self.models[file].clear(at, len);
        if !keep {
            self.models[file].grow(at + len);
        }
    }

    fn allocate(&mut self, files: &Files, file: usize) {
        let ((at, len), keep) = (self.range(), self.random.below(2) == 0);
        self.note(format!("allocate {file} {at}+{len} keep={keep}"));
        let flags = if keep { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        fallocate(&files.handles[file], flags, at as u64, len as u64).unwrap();
        if !keep {
            self.models[file].grow(at + len);
        }
    }

    /// Copies between the files, or within one if the ranges do not overlap.
    fn copy(&mut self, files: &Files, from: usize) {
        let Some((at, len)) = self.inside(from) else { return };
        let (to, (target, _)) = (self.random.below(2), self.range());
        let len = len.min(self.max_len - target);
        if len == 0 || from == to && target < at + len && at < target + len {
            return;
        }
        self.note(format!("copy {from} {at}+{len} to {to} {target}"));
        let (mut at_now, mut target_now, mut left) = (at as u64, target as u64, len);
        while left > 0 {
            let (source, sink) = (&files.handles[from], &files.handles[to]);
            let count =
                copy_file_range(source, Some(&mut at_now), sink, Some(&mut target_now), left);
            let count = count.unwrap();
            assert!(count > 0, "{left} bytes are left to copy");
            left -= count;
        }
        let bytes = self.models[from].read(at, len).to_vec();
        self.models[to].write(target, &bytes);
    }

    /// Reads and writes through a mapping, and through the file while it is mapped.
    fn map(&mut self, files: &Files, file: usize) {
        let size = self.models[file].len();
        if size == 0 {
            return;
        }
        let mut mapping = Mapping::new(&files.paths[file], size, Share::Shared);
        for _ in 0..2 {
            let (Some((at, len)), what) = (self.inside(file), self.random.below(4)) else { return };
            self.note(format!("map {file} {at}+{len} what={what}"));
            match what {
                0 => self.models[file].assert_is(at, len, &mapping.read(at, len)),
                1 => {
                    let bytes = self.random.bytes(len);
                    files.handles[file].write_all_at(&bytes, at as u64).unwrap();
                    self.models[file].write(at, &bytes);
                    self.models[file].assert_is(0, size, &mapping.read(0, size));
                }
                sync => {
                    let bytes = self.random.bytes(len);
                    mapping.write(at, &bytes);
                    self.models[file].write(at, &bytes);
                    if sync == 2 {
                        mapping.sync();
                    }
                }
            }
        }
    }

    /// Direct I/O of whole blocks.
    fn direct(&mut self, root: &Path, file: usize) {
        let ((at, len), write) = (self.range(), self.random.below(2) == 0);
        let (at, len) = (at - at % BLOCK, len.next_multiple_of(BLOCK));
        self.note(format!("direct {file} {at}+{len} write={write}"));
        let mut memory = vec![0_u8; len + BLOCK];
        let start = memory.as_ptr().align_offset(BLOCK);
        let bytes = &mut memory[start..start + len];
        let handle = open(&root.join(NAMES[file]), OFlags::DIRECT);
        if write {
            bytes.copy_from_slice(&self.random.bytes(len));
            handle.write_all_at(bytes, at as u64).unwrap();
            self.models[file].write(at, bytes);
        } else {
            let mut count = 0;
            // A read that ends within a block has reached the end of the file.
            while count < len && count % BLOCK == 0 {
                match handle.read_at(&mut bytes[count..], (at + count) as u64).unwrap() {
                    0 => break,
                    more => count += more,
                }
            }
            self.models[file].assert_is(at, len, &bytes[..count]);
        }
    }

    /// Every reported hole must read as zeros.
    fn find_holes(&mut self, files: &Files, file: usize) {
        self.note(format!("find holes {file}"));
        let (handle, model) = (&files.handles[file], &self.models[file]);
        let mut at = 0;
        while at < model.len() {
            let hole = seek(handle, SeekFrom::Hole(at as u64)).unwrap() as usize;
            assert!(hole >= at && hole <= model.len(), "hole at {hole}");
            if hole == model.len() {
                break;
            }
            let data = match seek(handle, SeekFrom::Data(hole as u64)) {
                Ok(data) => data as usize,
                Err(Errno::NXIO) => model.len(),
                Err(errno) => panic!("SEEK_DATA at {hole}: {errno}"),
            };
            assert!(data > hole, "data at {data} in the hole at {hole}");
            let zeros = model.bytes()[hole..data].iter().all(|byte| *byte == 0);
            assert!(zeros, "data in the hole {hole}..{data}");
            at = data;
        }
    }
}
