//! The explanation of a key agrees with a read: for every key that ever existed, with all kinds of pending messages, on
//! the current tree and on a checkpoint with its log.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use betr_core::device::Device;
use betr_core::disk::Disk;
use betr_core::format::{Action, Key};
use betr_core::ids::{BLOCK_SIZE, TreeId};
use betr_core::node::Deed;
use betr_core::tree::explain;
use betr_core::volume::{Mode, OpenOptions, Ring, Until, Volume, read_identity};
use betr_lab::explore::devices::ForkDevice;
use betr_lab::explore::{Run, Setup, Workload, random_steps};
use betr_offline::history::{KeyDeed, KeyStep, of_key, tell};
use betr_tests::{nonces, rounds};

/// How often each kind of message occurred.
#[derive(Debug, Default)]
struct Met {
    keys: u64,
    inserts: u64,
    deletes: u64,
    updates: u64,
    ranges: u64,
    deep: u64,
    logged: u64,
    late: u64,
}

#[test]
fn what_is_explained_is_what_is_read() {
    let mut met = Met::default();
    let tiny = Setup::tiny(2 << 20);
    let mut stories: Vec<_> =
        (0..rounds(3)).map(|seed| (seed, tiny, random_steps(seed, 120))).collect();
    for workload in Workload::all() {
        stories.push((7, workload.setup, workload.steps(7)));
    }
    for (seed, setup, steps) in stories {
        let device = Arc::new(ForkDevice::new(setup.image_bytes as usize / BLOCK_SIZE));
        setup.format(device.clone(), seed).unwrap();
        let mut run = Run::start(setup, device.clone(), seed).unwrap();
        let mut keys = BTreeSet::new();
        for (at, step) in steps.iter().enumerate() {
            run.step(step).unwrap();
            if at % 20 == 19 {
                let volume = run.fs().volume();
                for tree in TreeId::ALL {
                    let found = volume.cursor(tree, Key::default(), None);
                    keys.extend(found.map(|entry| (tree, entry.unwrap().0)));
                }
                compare(volume, &keys, &mut met);
            }
        }
        with_log(&(device as Arc<dyn Device>), &mut met);
    }
    println!("{met:?}");
    let Met { inserts, deletes, updates, ranges, deep, logged, late, .. } = met;
    let all = [inserts, deletes, updates, ranges, deep, logged, late];
    assert!(all.into_iter().all(|count| count > 20), "{met:?}");
}

/// Compares every key and its successor.
fn compare(volume: &Volume, keys: &BTreeSet<(TreeId, Key)>, met: &mut Met) {
    for (tree, key) in keys {
        for key in [key.clone(), key.successor()] {
            let explained = explain(volume.store(), *tree, &key).unwrap();
            assert_eq!(explained.value, volume.get(*tree, &key).unwrap(), "{tree} {key:?}");
            met.keys += 1;
            let messages = explained.way.iter().flat_map(|stop| &stop.messages);
            // Messages lower on the path are older.
            let msns: Vec<_> = explained
                .way
                .iter()
                .rev()
                .flat_map(|stop| stop.messages.iter().map(|(message, _)| message.msn))
                .collect();
            assert!(msns.is_sorted(), "{tree} {key:?}: {msns:?}");
            met.deep += u64::from(msns.len() > 1);
            for (message, _) in messages {
                match &message.deed {
                    Deed::Point(Action::Insert(_)) => met.inserts += 1,
                    Deed::Point(Action::Delete) => met.deletes += 1,
                    Deed::Point(Action::Update(_)) => met.updates += 1,
                    Deed::RangeDelete(..) => met.ranges += 1,
                }
            }
        }
    }
}

/// Compares the keys that occur in the log.
fn with_log(device: &Arc<dyn Device>, met: &mut Met) {
    let disk = Disk::new(device.clone());
    let ring = Ring::read(&disk, &read_identity(&disk).unwrap()).unwrap();
    let superblock = ring.choose(None).unwrap();
    let mut keys = BTreeSet::new();
    tell(device, superblock, &mut |event| {
        keys.extend(event.touched.iter().map(|touched| (touched.tree, touched.lo.clone())));
        ControlFlow::Continue(())
    })
    .unwrap();
    let open = |mode| Volume::open(device.clone(), OpenOptions::new(mode, nonces(1))).unwrap().0;
    let (checkpoint, now) = (open(Mode::Checkpoint), open(Mode::ReadOnly));
    for (tree, key) in keys {
        let stored = explain(checkpoint.store(), tree, &key).unwrap().value;
        let steps = of_key(device, superblock, tree, &key, Until::End, stored.clone()).unwrap();
        let value = now.get(tree, &key).unwrap();
        if let Some(KeyStep { deed: KeyDeed::Clone(_), after, .. }) = steps.last() {
            assert_eq!(*after, None, "what a clone shows is not in the log");
            continue;
        }
        let after = steps.last().map_or(Some(stored), |step| step.after.clone());
        assert_eq!(after, Some(value), "{tree} {key:?}: {steps:?}");
        met.logged += steps.len() as u64;
        let is_late = |deed: &KeyDeed| matches!(deed, KeyDeed::Bound { .. } | KeyDeed::Null);
        met.late += steps.iter().filter(|step| is_late(&step.deed)).count() as u64;
    }
}
