//! Carving within a volume: each step waits for its space, with a checkpoint before it where space is short.

use super::Volume;
use super::checkpoint::Continued;
use super::reserve::Claim;
use super::trees::Trees;
use crate::error::{Error, Result};
use crate::format::{Bounds, Key};
use crate::ids::*;

/// 768 children of a node that is kept wide: its fanout, and one for each key of the carve. The rest of the 1,024 that a
/// node may have is for leaves that are split meanwhile.
const CARVED_CHILDREN_MAX: usize = 768;

/// What a carve is for.
#[derive(Clone, Copy)]
pub(super) enum CarvedFor {
    /// An operation, with what it may use of the reserve for deletes.
    Operation(Claim),
    /// The replay of a record, whose group these groups continue. The reserve was whole when the record was written; the
    /// replay may use it.
    Replay(Continued),
}

impl Volume {
    /// Makes keys boundaries of nodes at every height below the roots, and keeps them so until [`Volume::end_carve`].
    /// Changes no content. Fails if there is no space for a step, or if a node on the way cannot be read; then the keys
    /// may be boundaries of some nodes, which does no harm.
    pub fn carve(&mut self, keys: &[(TreeId, Key)]) -> Result<()> {
        self.ensure_ready()?;
        for (tree, key) in keys {
            self.trees.wait_mut().balance.carve(*tree, key);
        }
        self.finish_carve(CarvedFor::Operation(Claim::Takes))
    }

    /// Makes the ends of pairs of ranges boundaries of nodes below some height, and flushes what is pending for the ranges
    /// into those nodes. Returns the height of each pair; a node of this height has each of its ranges as consecutive
    /// children. No two ranges overlap.
    pub(super) fn carve_apart(
        &mut self,
        pairs: &[(TreeId, [Bounds; 2])],
        purpose: CarvedFor,
    ) -> Result<Vec<Height>> {
        let Trees { store, balance, .. } = self.trees.wait_mut();
        let heights = pairs.iter().map(|(tree, ranges)| balance.carve_apart(store, *tree, ranges));
        let heights = heights.collect::<Result<_>>()?;
        self.finish_carve(purpose).map(|()| heights)
    }

    fn finish_carve(&mut self, purpose: CarvedFor) -> Result<()> {
        // A node that is kept wide gets a child for each cut, and must not get more than the format allows.
        let Trees { store, balance, .. } = self.trees.wait();
        let (fanout, cuts) = (store.geometry.fanout, balance.cuts());
        if fanout as usize + cuts > CARVED_CHILDREN_MAX {
            self.end_carve();
            let text = format!(
                "ranges with {cuts} ends at once, and a fanout of {fanout}: together at most {CARVED_CHILDREN_MAX}"
            );
            return Err(Error::Unsupported(text));
        }
        let carved = self.carve_all(purpose);
        if carved.is_err() {
            self.end_carve();
        }
        match carved {
            // The step that did not begin, or failed, has changed nothing.
            Err(error) if error.is_unreadable() || matches!(error, Error::NoSpace { .. }) => {
                Err(error)
            }
            carved => self.poison_on_error(carved),
        }
    }

    /// Allows merges of nodes across the boundaries again.
    pub fn end_carve(&mut self) {
        self.trees.wait_mut().balance.end_carve();
    }

    fn carve_all(&mut self, purpose: CarvedFor) -> Result<()> {
        while !self.trees.wait().is_carved()? {
            let has_room = match purpose {
                CarvedFor::Operation(claim) => self.has_room_for_next(claim)?,
                CarvedFor::Replay(_) => {
                    let Trees { store, balance, .. } = self.trees.wait();
                    store.space.has(store.checkpoint_need_with(balance.next_need(store)?.dirty))
                }
            };
            if has_room {
                self.counters.carved += 1;
                self.trees.wait_mut().step()?;
            } else if !self.checkpoint_in_carve(purpose)? {
                return Err(self.no_space(1));
            }
        }
        Ok(())
    }

    /// Makes a checkpoint that frees space. Returns whether it did.
    fn checkpoint_in_carve(&mut self, purpose: CarvedFor) -> Result<bool> {
        match purpose {
            CarvedFor::Operation(_) if self.is_logged() && self.gains_by_checkpoint() => {
                self.counters.for_space += 1;
                self.checkpoint().map(|()| true)
            }
            CarvedFor::Operation(_) => Ok(false),
            CarvedFor::Replay(before) => self.checkpoint_before(before),
        }
    }

    /// Makes checkpoints that free space, continued by groups of the log that is being replayed. Returns whether they did.
    pub(super) fn checkpoint_before(&mut self, continued: Continued) -> Result<bool> {
        let store = &self.trees.wait().store;
        let (free, is_dirty) = (store.space.free_blocks(), store.dirty_bytes() > 0);
        // One for what is dirty, and two that free what it replaced.
        for _ in 0..3 {
            self.write_checkpoint(continued)?;
        }
        let gains = is_dirty || self.trees.wait().store.space.free_blocks() > free;
        self.counters.for_space += u64::from(gains);
        Ok(gains)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::check::{CheckOptions, Finding, check};
    use crate::device::{Device, MemoryDevice};
    use crate::format::{Action, Bounds, Op, RecordMessage};
    use crate::node::Node;
    use crate::random::Random;
    use crate::store::{Geometry, Store};
    use crate::tree::Scan;
    use crate::volume::{Content, CreateOptions, Mode, NonceSource, OpenOptions, Transaction};

    fn nonces(mut last: u64) -> NonceSource {
        Box::new(move || {
            last += 1;
            last
        })
    }

    fn volume(bytes: u64) -> (Arc<dyn Device>, Volume) {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes));
        let options = CreateOptions {
            geometry: Geometry { node_size: 4096, leaf_size: 4096, basement_size: 1024, fanout: 4 },
            log_bytes: 128 << 10,
            content: Content::Keys,
            ..CreateOptions::new(*b"a volume of keys", bytes, nonces(0))
        };
        Volume::create(device.clone(), options).unwrap().checkpoint().unwrap();
        let volume = opened(&device);
        (device, volume)
    }

    fn opened(device: &Arc<dyn Device>) -> Volume {
        let options = OpenOptions { content: None, ..OpenOptions::new(Mode::ReadWrite, nonces(9)) };
        Volume::open(device.clone(), options).unwrap().0
    }

    type Model = BTreeMap<(TreeId, Vec<u8>), Vec<u8>>;

    /// Up to 20 random inserts, deletes and range deletes.
    fn change(volume: &mut Volume, model: &mut Model, random: &mut Random) {
        let key = |random: &mut Random| (random.below(1 << 14) as u16).to_be_bytes().to_vec();
        let mut messages = Vec::new();
        for _ in 0..1 + random.below(20) {
            let tree = TreeId::ALL[random.below(2) as usize];
            let lo = key(random);
            match random.below(40) {
                0 => {
                    let hi = key(random);
                    let (lo, hi) = (lo.clone().min(hi.clone()), lo.max(hi));
                    if lo < hi {
                        model.retain(|(of, key), _| *of != tree || *key < lo || *key >= hi);
                        let (lo, hi) = (Key::new(lo), Key::new(hi));
                        messages.push(RecordMessage::RangeDelete(tree, lo, hi));
                    }
                }
                1..10 => {
                    model.remove(&(tree, lo.clone()));
                    messages.push(RecordMessage::Point(tree, Key::new(lo), Action::Delete));
                }
                _ => {
                    let len = [0, 9, 100, 900, 4096][random.below(5) as usize];
                    let value = random.bytes(len);
                    model.insert((tree, lo.clone()), value.clone());
                    let action = Action::Insert(value.into());
                    messages.push(RecordMessage::Point(tree, Key::new(lo), action));
                }
            }
        }
        let wall = Time::default();
        volume.commit(Transaction { op: Op::Raw, wall, messages }).unwrap();
    }

    fn contents(volume: &Volume) -> Model {
        let mut found = Model::new();
        for tree in TreeId::ALL {
            let mut scan = Scan::new(tree, Key::default(), None);
            while let Some((key, value)) = volume.advance(&mut scan).unwrap() {
                found.insert((tree, key.to_vec()), value.to_vec());
            }
        }
        found
    }

    /// Panics if a node below the root has keys on both sides of `key`.
    fn assert_carved(store: &Store, tree: TreeId, key: &Key) {
        let mut waiting = vec![store.root(tree).unwrap()];
        while let Some(node) = waiting.pop() {
            let Bounds { lo, hi } = node.bounds();
            let divided = *lo < *key && hi.as_ref().is_none_or(|hi| *key < *hi);
            assert!(
                !divided || node.id() == tree.root(),
                "{} has both sides of {key:?}",
                node.id()
            );
            if let Node::Internal(internal) = &*node
                && divided
            {
                assert_eq!(internal.children()[internal.child_for(key)].pivot, *key);
                let children = 0..internal.children().len();
                waiting.extend(children.map(|at| store.child(internal, at).unwrap()));
            }
        }
    }

    #[test]
    fn keys_become_boundaries_and_nothing_else_changes() {
        let (device, mut volume) = volume(64 << 20);
        let mut random = Random::new(11);
        let mut model = Model::new();
        let mut heights = 0;
        for round in 0..150 {
            for _ in 0..random.below(30) {
                change(&mut volume, &mut model, &mut random);
            }
            let any = |random: &mut Random| {
                let len = random.below(4) as usize;
                let key = Key::new(random.bytes(len));
                (TreeId::ALL[random.below(2) as usize], key)
            };
            let keys: Vec<_> = (0..1 + random.below(4)).map(|_| any(&mut random)).collect();
            volume.carve(&keys).unwrap();
            let store = &volume.trees.wait().store;
            for (tree, key) in &keys {
                assert_carved(store, *tree, key);
                heights = heights.max(store.root(*tree).unwrap().height().0);
            }
            assert_eq!(volume.error_passed_over(), None, "round {round}");
            assert!(contents(&volume) == model, "round {round}");
            match random.below(3) {
                0 => volume.end_carve(),
                // Nodes stay divided over a checkpoint.
                1 => {
                    volume.checkpoint().unwrap();
                    let store = &volume.trees.wait().store;
                    keys.iter().for_each(|(tree, key)| assert_carved(store, *tree, key));
                    volume.end_carve();
                    let report = check(&device, CheckOptions::ALL, &mut ());
                    // Keys of this test have no meaning in the schema of files.
                    let bad = |finding: &&Finding| !finding.code.name().starts_with('F');
                    let bad: Vec<&Finding> = report.findings.iter().filter(bad).collect();
                    assert!(bad.is_empty(), "{bad:?}");
                }
                _ => {
                    volume.end_carve();
                    volume.checkpoint().unwrap();
                }
            }
        }
        assert!(heights >= 4, "{heights}");
        assert!(contents(&volume) == model);
        // What is deleted leaves a small tree: nodes merge again after a carve.
        for tree in TreeId::ALL {
            let messages =
                vec![RecordMessage::RangeDelete(tree, Key::default(), Key::copied(&[0xff; 9]))];
            volume.commit(Transaction { op: Op::Raw, wall: Time::default(), messages }).unwrap();
        }
        volume.drain().unwrap();
        volume.checkpoint().unwrap();
        assert!(contents(&volume).is_empty());
    }

    #[test]
    fn a_carve_stops_at_a_node_that_cannot_be_read() {
        let (device, mut volume) = volume(8 << 20);
        let put = |volume: &mut Volume, key: u16| {
            let action = Action::Insert(Bytes::from(vec![7; 200]));
            let key = Key::copied(&key.to_be_bytes());
            let messages = vec![RecordMessage::Point(TreeId::Data, key, action)];
            volume.commit(Transaction { op: Op::Raw, wall: Time::default(), messages }).unwrap();
        };
        (0..2000).for_each(|number| put(&mut volume, number * 10));
        volume.drain().unwrap();
        volume.checkpoint().unwrap();
        let store = &volume.trees.wait().store;
        let bad = Key::copied(&5005u16.to_be_bytes());
        let mut node = store.root(TreeId::Data).unwrap();
        assert!(node.height() >= Height(3), "{}", node.height());
        while let Some(internal) = node.clone().internal() {
            node = store.child(internal, internal.child_for(&bad)).unwrap();
        }
        let extent = store.table.get(node.id()).unwrap().unwrap().extent;
        device.write_at(extent.start.byte() + 80, &[0xff; 100]).unwrap();
        drop((node, volume));

        let mut volume = opened(&device);
        let error = volume.carve(&[(TreeId::Data, bad.clone())]).unwrap_err();
        assert!(error.is_unreadable(), "{error}");
        // All else goes on, also below the nodes that were divided on the way.
        let good = Key::copied(&15_005u16.to_be_bytes());
        volume.carve(&[(TreeId::Data, good.clone())]).unwrap();
        assert_carved(&volume.trees.wait().store, TreeId::Data, &good);
        volume.end_carve();
        (0..200).for_each(|number| put(&mut volume, 10_000 + number));
        volume.checkpoint().unwrap();
        for number in 0..200u16 {
            let found = volume.get(TreeId::Data, &(10_000 + number).to_be_bytes()).unwrap();
            assert_eq!(found.as_deref(), Some(&[7; 200][..]), "{number}");
        }
    }

    #[test]
    fn a_full_volume_refuses_a_carve_and_stays_as_it_is() {
        let (_, mut volume) = volume(4 << 20);
        let mut random = Random::new(5);
        let mut model = Model::new();
        for number in 0u32.. {
            let key = number.wrapping_mul(0x9e37_79b9).to_be_bytes().to_vec();
            let value = Bytes::from(random.bytes(900));
            let action = Action::Insert(value.clone());
            let messages = vec![RecordMessage::Point(TreeId::Data, Key::copied(&key), action)];
            match volume.commit(Transaction { op: Op::Raw, wall: Time::default(), messages }) {
                Ok(_) => model.insert((TreeId::Data, key), value.to_vec()),
                Err(error) => {
                    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
                    break;
                }
            };
        }
        let mut refused = 0;
        for _ in 0..200 {
            let keys = [(TreeId::Data, Key::new(random.bytes(4)))];
            match volume.carve(&keys) {
                Ok(()) => volume.end_carve(),
                Err(error) => {
                    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 0);
        assert!(contents(&volume) == model);
        // It is not stuck.
        let all = RecordMessage::RangeDelete(TreeId::Data, Key::default(), Key::copied(&[0xff; 9]));
        let transaction = Transaction { op: Op::Raw, wall: Time::default(), messages: vec![all] };
        volume.commit(transaction).unwrap();
        volume.drain().unwrap();
        volume.checkpoint().unwrap();
        assert!(contents(&volume).is_empty());
    }
}
