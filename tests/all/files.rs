//! The file system against a model in memory: random operations, with tiny nodes, and with syncs,
//! checkpoints, reopening and recovery at random steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use betr_core::check::{CheckOptions, check};
use betr_core::device::{Device, MemoryDevice};
use betr_core::error::Refusal;
use betr_core::format::FileType;
use betr_core::fs::{Attributes, Changes, Fs, New, Object};
use betr_core::ids::{Msn, Time};
use betr_core::volume::Mode;
use betr_core::{Error, Result};
use betr_tests::{Random, clock, create, open, rounds, tight, tiny};
use bytes::Bytes;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    kind: FileType,
    perm: u32,
    links: u32,
    data: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    entries: BTreeMap<Vec<u8>, usize>,
}

/// Nodes by number; 0 is the root. What is unlinked stays, unreachable.
#[derive(Clone, Debug)]
pub(crate) struct Model(Vec<Node>);

impl Model {
    pub(crate) fn new() -> Model {
        Model(vec![Model::node(FileType::Directory)])
    }

    fn node(kind: FileType) -> Node {
        let links = if kind == FileType::Directory { 2 } else { 1 };
        Node {
            kind,
            perm: 0o600,
            links,
            data: vec![],
            xattrs: BTreeMap::new(),
            entries: BTreeMap::new(),
        }
    }

    fn find(&self, path: &[Vec<u8>]) -> Option<usize> {
        path.iter().try_fold(0, |at, name| self.0[at].entries.get(name).copied())
    }

    fn is_below(&self, at: usize, ancestor: usize) -> bool {
        at == ancestor
            || self.0[ancestor].entries.values().any(|child| {
                self.0[*child].kind == FileType::Directory && self.is_below(at, *child)
            })
    }

    fn drop_link(&mut self, at: usize) {
        if self.0[at].kind != FileType::Directory {
            self.0[at].links -= 1;
        }
    }

    /// All paths of directories, or of everything.
    fn paths(&self, directories: bool) -> Vec<Vec<Vec<u8>>> {
        let mut found = vec![vec![]];
        let mut at = 0;
        while at < found.len() {
            let node = &self.0[self.find(&found[at]).unwrap()];
            for (name, child) in &node.entries {
                if !directories || self.0[*child].kind == FileType::Directory {
                    let mut path = found[at].clone();
                    path.push(name.clone());
                    found.push(path);
                }
            }
            at += 1;
        }
        found
    }
}

pub(crate) struct Run {
    pub(crate) fs: Fs,
    pub(crate) model: Model,
    pub(crate) random: Random,
}

fn name_of(random: &mut Random) -> Vec<u8> {
    match random.below(20) {
        0 => vec![b'n'; 255],
        1 => b"odd \xff\n".to_vec(),
        _ => format!("n{}", random.below(12)).into_bytes(),
    }
}

fn refusal<T>(result: Result<T>) -> std::result::Result<T, Refusal> {
    match result {
        Ok(value) => Ok(value),
        Err(Error::Refused(refusal)) => Err(refusal),
        Err(error) => panic!("{error}"),
    }
}

impl Run {
    fn pick(&mut self, directories: bool) -> Vec<Vec<u8>> {
        let paths = self.model.paths(directories);
        paths[self.random.below(paths.len() as u64) as usize].clone()
    }

    fn object(&self, path: &[Vec<u8>]) -> Object {
        self.fs.resolve(&path.join(&b'/')).unwrap()
    }

    pub(crate) fn step(&mut self) {
        match self.random.below(12) {
            0..=3 => self.make(),
            4 | 5 => self.write(),
            6 => self.truncate(),
            7 => self.remove(),
            8 => self.rename(),
            9 => self.link(),
            10 => self.xattr(),
            _ => self.chmod(),
        }
    }

    fn make(&mut self) {
        let parent = self.pick(true);
        let name = name_of(&mut self.random);
        let kind = match self.random.below(6) {
            0 | 1 => FileType::Directory,
            2 => FileType::Symlink,
            3 => FileType::Fifo,
            _ => FileType::Regular,
        };
        let mut new = New::of(kind, Attributes::at(Time::default()));
        let mut node = Model::node(kind);
        if kind == FileType::Symlink {
            new.target = b"some/where".to_vec();
            node.data = new.target.clone();
        }
        let directory = self.object(&parent);
        let made = refusal(self.fs.make(&directory, &name, new));
        let at = self.model.find(&parent).unwrap();
        if self.model.0[at].entries.contains_key(&name) {
            assert_eq!(made.unwrap_err(), Refusal::Exists);
            return;
        }
        made.unwrap();
        self.model.0[at].links += u32::from(kind == FileType::Directory);
        self.model.0.push(node);
        let new = self.model.0.len() - 1;
        self.model.0[at].entries.insert(name, new);
    }

    fn write(&mut self) {
        let path = self.pick(false);
        let at = self.model.find(&path).unwrap();
        let object = self.object(&path);
        let offset = self.random.below(20_000) as usize;
        let len = self.random.below(12_000) as usize;
        let data = match self.random.below(4) {
            0 => vec![0; len],
            _ => self.random.bytes(len),
        };
        let result = refusal(self.fs.write(&object, offset as u64, &Bytes::from(data.clone())));
        let node = &mut self.model.0[at];
        if node.kind != FileType::Regular {
            result.unwrap_err();
            return;
        }
        result.unwrap();
        if len > 0 {
            let size = node.data.len().max(offset + len);
            node.data.resize(size, 0);
            node.data[offset..offset + len].copy_from_slice(&data);
        }
    }

    fn truncate(&mut self) {
        let path = self.pick(false);
        let at = self.model.find(&path).unwrap();
        let object = self.object(&path);
        let size = self.random.below(25_000);
        let result = refusal(self.fs.truncate(&object, size));
        let node = &mut self.model.0[at];
        if node.kind == FileType::Regular {
            result.unwrap();
            node.data.resize(size as usize, 0);
        } else {
            result.unwrap_err();
        }
    }

    fn remove(&mut self) {
        let mut path = self.pick(false);
        let Some(name) = path.pop() else { return };
        let directory = self.object(&path);
        let at = self.model.find(&path).unwrap();
        let child = self.model.0[at].entries[&name];
        let node = self.model.0[child].clone();
        if node.kind == FileType::Directory {
            assert_eq!(
                refusal(self.fs.unlink(&directory, &name)).unwrap_err(),
                Refusal::IsADirectory
            );
            let removed = refusal(self.fs.rmdir(&directory, &name));
            if !node.entries.is_empty() {
                assert_eq!(removed.unwrap_err(), Refusal::NotEmpty);
                return;
            }
            removed.unwrap();
            self.model.0[at].links -= 1;
        } else {
            assert_eq!(
                refusal(self.fs.rmdir(&directory, &name)).unwrap_err(),
                Refusal::NotADirectory
            );
            refusal(self.fs.unlink(&directory, &name)).unwrap();
            self.model.drop_link(child);
        }
        self.model.0[at].entries.remove(&name);
    }

    fn rename(&mut self) {
        let mut from = self.pick(false);
        let Some(name) = from.pop() else { return };
        let to = self.pick(true);
        let new_name = name_of(&mut self.random);
        let (from_object, to_object) = (self.object(&from), self.object(&to));
        let result = refusal(self.fs.rename(&from_object, &name, &to_object, &new_name));
        let (from, to) = (self.model.find(&from).unwrap(), self.model.find(&to).unwrap());
        let moved = self.model.0[from].entries[&name];
        let replaced = self.model.0[to].entries.get(&new_name).copied();
        if replaced == Some(moved) {
            result.unwrap();
            return;
        }
        let directory = |at: usize| self.model.0[at].kind == FileType::Directory;
        let expected = match replaced {
            Some(other) if directory(moved) && !directory(other) => Err(Refusal::NotADirectory),
            Some(other) if !directory(moved) && directory(other) => Err(Refusal::IsADirectory),
            Some(other) if !self.model.0[other].entries.is_empty() => Err(Refusal::NotEmpty),
            _ if directory(moved) && self.model.is_below(to, moved) => Err(Refusal::Invalid),
            _ => Ok(()),
        };
        assert_eq!(result, expected);
        if expected.is_err() {
            return;
        }
        let is_directory = directory(moved);
        if let Some(other) = replaced {
            self.model.drop_link(other);
            self.model.0[to].links -= u32::from(is_directory);
        }
        self.model.0[from].entries.remove(&name);
        self.model.0[from].links -= u32::from(is_directory);
        self.model.0[to].entries.insert(new_name, moved);
        self.model.0[to].links += u32::from(is_directory);
    }

    fn link(&mut self) {
        let path = self.pick(false);
        let parent = self.pick(true);
        let name = name_of(&mut self.random);
        let (object, directory) = (self.object(&path), self.object(&parent));
        let result = refusal(self.fs.link(&object, &directory, &name));
        let at = self.model.find(&path).unwrap();
        let parent = self.model.find(&parent).unwrap();
        if self.model.0[at].kind == FileType::Directory {
            assert_eq!(result.unwrap_err(), Refusal::NotPermitted);
        } else if self.model.0[parent].entries.contains_key(&name) {
            assert_eq!(result.unwrap_err(), Refusal::Exists);
        } else {
            result.unwrap();
            self.model.0[at].links += 1;
            self.model.0[parent].entries.insert(name, at);
        }
    }

    fn xattr(&mut self) {
        let path = self.pick(false);
        let object = self.object(&path);
        let at = self.model.find(&path).unwrap();
        let name = format!("user.{}", self.random.below(4)).into_bytes();
        if self.random.below(3) == 0 {
            let removed = refusal(self.fs.remove_xattr(&object, &name));
            match self.model.0[at].xattrs.remove(&name) {
                Some(_) => removed.unwrap(),
                None => assert_eq!(removed.unwrap_err(), Refusal::NoAttribute),
            }
        } else {
            let len = self.random.below(300) as usize;
            let value = self.random.bytes(len);
            refusal(self.fs.set_xattrs(&object, &[(name.clone(), value.clone())])).unwrap();
            self.model.0[at].xattrs.insert(name, value);
        }
    }

    fn chmod(&mut self) {
        let path = self.pick(false);
        let object = self.object(&path);
        let perm = self.random.below(0o10000) as u32;
        let changes = Changes { perm: Some(perm), ..Changes::default() };
        refusal(self.fs.set_attributes(&object, changes)).unwrap();
        let at = self.model.find(&path).unwrap();
        self.model.0[at].perm = perm;
    }
}

/// The whole file system says what the model says.
pub(crate) fn same(fs: &Fs, model: &Model) {
    let mut waiting = vec![(fs.root().unwrap(), 0)];
    while let Some((object, at)) = waiting.pop() {
        let node = &model.0[at];
        let inode = &object.inode;
        if at != 0 {
            assert_eq!((inode.kind, inode.perm, inode.links), (node.kind, node.perm, node.links));
        }
        let xattrs: BTreeMap<_, _> = fs
            .xattrs(&object)
            .unwrap()
            .into_iter()
            .map(|(name, value)| (name, value.to_vec()))
            .collect();
        assert_eq!(xattrs, node.xattrs);
        match node.kind {
            FileType::Regular => {
                assert_eq!(inode.size, node.data.len() as u64);
                assert!(fs.read(&object, 0, 1 << 20).unwrap() == node.data, "contents differ");
            }
            FileType::Symlink => assert_eq!(inode.target, node.data),
            FileType::Directory => {
                let entries = fs.list(&object).unwrap();
                let names: Vec<_> = entries.iter().map(|entry| entry.name.clone()).collect();
                assert_eq!(names, node.entries.keys().cloned().collect::<Vec<_>>());
                for entry in entries {
                    let child = node.entries[&entry.name];
                    waiting.push((fs.entry_object(entry).unwrap(), child));
                }
            }
            _ => {}
        }
    }
}

#[test]
fn agrees_with_a_model() {
    for seed in 0..rounds(6) {
        run(seed, 250);
    }
}

fn run(seed: u64, steps: u64) {
    let device = Arc::new(MemoryDevice::new(32 << 20));
    let volume = create(device.clone(), tiny(), tight(), seed).unwrap();
    let root = Attributes::at(Time::default());
    let mut fs = Fs::format(volume, clock(0), root).unwrap();
    fs.checkpoint().unwrap();
    drop(fs);
    let reopen = |seed: u64| {
        let volume = open(device.clone(), Mode::ReadWrite, tight(), seed).unwrap().0;
        Fs::open(volume, clock(1_000_000))
    };
    let mut run = Run { fs: reopen(seed), model: Model::new(), random: Random::new(seed) };
    let mut history: Vec<(Msn, Model)> = vec![(run.fs.volume().next_msn(), run.model.clone())];
    for step in 0..steps {
        match run.random.below(40) {
            0 => run.fs.checkpoint().unwrap(),
            1 | 2 => run.fs.volume_mut().sync().unwrap(),
            3 => {
                drop(run.fs);
                run.fs = reopen(seed + step);
                let msn = run.fs.volume().next_msn();
                history.retain(|(at, _)| *at <= msn);
                run.model = history.last().expect("a state that was acknowledged").1.clone();
                same(&run.fs, &run.model);
            }
            _ => run.step(),
        }
        let msn = run.fs.volume().next_msn();
        if history.last().is_none_or(|(at, _)| *at != msn) {
            history.push((msn, run.model.clone()));
        }
        if step % 40 == 0 {
            same(&run.fs, &run.model);
        }
    }
    same(&run.fs, &run.model);
    run.fs.volume_mut().sync().unwrap();
    let device: Arc<dyn Device> = device.clone();
    let report = check(&device, CheckOptions { data: true, slot: None }, &mut ());
    assert!(
        report.is_clean(),
        "seed {seed}: {:?}",
        &report.findings[..report.findings.len().min(5)]
    );
}
