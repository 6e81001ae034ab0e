//! Cloned ranges and snapshots together: each snapshot keeps what it had, and all space comes back.

use super::*;

const CACHE: CacheBudget = CacheBudget { total_bytes: 64 << 10, dirty_bytes: 24 << 10 };

/// The contents of a hold.
fn held(volume: &Volume, name: &str) -> Model {
    let hold = volume.hold(name).unwrap();
    contents(&volume.open_hold(&hold, CACHE).unwrap(), &[], None)
}

fn drop_any(volume: &mut Volume, holds: &mut BTreeMap<String, Model>, random: &mut Random) {
    let at = random.below(holds.len() as u64) as usize;
    let name = holds.keys().nth(at).unwrap().clone();
    volume.drop_hold(&name).unwrap();
    holds.remove(&name);
}

#[test]
fn holds_of_a_volume_with_clones_keep_what_they_had() {
    let mut dying = 0;
    for seed in 0..6 {
        let (device, mut volume) = volume(64 << 20);
        let mut random = Random::new(seed);
        let mut model = Model::new();
        let mut holds: BTreeMap<String, Model> = BTreeMap::new();
        let mut clones = 0;
        for round in 0..100u64 {
            let name = format!("seed {seed}, round {round}");
            for _ in 0..random.below(10) {
                change(&mut volume, &mut model, &mut random);
            }
            while clone(&mut volume, &mut model, &mut random) {
                clones += 1;
                if random.below(2) == 0 {
                    break;
                }
            }
            match random.below(10) {
                0..3 => {
                    // Names in the order of the holds.
                    let hold = format!("{round:03}");
                    volume.take_hold(&hold).unwrap();
                    dying += volume.hold(&hold).unwrap().dying;
                    holds.insert(hold, model.clone());
                }
                3 if holds.len() > 2 => drop_any(&mut volume, &mut holds, &mut random),
                4 if !holds.is_empty() => {
                    let at = random.below(holds.len() as u64) as usize;
                    let to = holds.keys().nth(at).unwrap().clone();
                    volume.roll_back(&to, true).unwrap();
                    holds.retain(|name, _| *name <= to);
                    model = holds[&to].clone();
                }
                5 => volume.checkpoint().unwrap(),
                6 => {
                    volume.sync().unwrap();
                    drop(volume);
                    volume = opened(&device, round << 30);
                }
                7 => volume.drain().unwrap(),
                _ => {}
            }
            if round % 3 == 0 {
                volume.sync().unwrap();
                assert_sound(&device, &name);
            }
            assert!(contents(&volume, &[], None) == model, "{name}");
            for (hold, kept) in &holds {
                assert!(held(&volume, hold) == *kept, "{name}: {hold}");
            }
        }
        assert!(clones > 30, "{clones}");
        while !holds.is_empty() {
            drop_any(&mut volume, &mut holds, &mut random);
        }
        let all = RecordMessage::RangeDelete(TREE, Key::default(), Key::copied(&[0xff; 9]));
        commit(&mut volume, vec![all]);
        volume.drain().unwrap();
        for _ in 0..3 {
            volume.checkpoint().unwrap();
        }
        assert_sound(&device, "at the end");
        let store = &volume.trees.wait().store;
        assert_eq!((store.dying(), store.space.held_blocks()), (0, 0));
        assert!(store.table.nodes() < 20, "{} nodes", store.table.nodes());
    }
    println!("{dying} nodes without edges in holds");
}

/// The hold is of a moment when nodes waited to be freed; a rollback to it frees them.
#[test]
fn a_rollback_frees_what_waited_then() {
    let device: Arc<dyn Device> = filled(32 << 20, 1500, SMALL);
    let mut volume = opened(&device, 1 << 30);
    let (a, b, c) = (Key::copied(b"a"), Key::copied(b"b"), Key::copied(b"c"));
    clone_range(&mut volume, &a, &b).unwrap();
    volume.checkpoint().unwrap();
    let before = volume.trees.wait().store.table.nodes();
    for (lo, hi) in [(&b, &c), (&a, &b)] {
        let delete = RecordMessage::RangeDelete(TREE, lo.clone(), hi.clone());
        commit(&mut volume, vec![delete]);
    }
    volume.drain().unwrap();
    volume.take_hold("one").unwrap();
    let waiting = volume.hold("one").unwrap().dying;
    assert!(waiting > 0);
    volume.checkpoint().unwrap();
    commit(&mut volume, vec![put(b"x", b"later")]);
    assert_sound(&device, "with a hold");
    volume.roll_back("one", false).unwrap();
    assert_eq!(volume.trees.wait().store.dying(), waiting);
    assert_sound(&device, "rolled back");
    for _ in 0..3 {
        volume.drain().unwrap();
        volume.checkpoint().unwrap();
    }
    let store = &volume.trees.wait().store;
    assert!(store.dying() == 0 && store.table.nodes() < before, "{}", store.table.nodes());
    assert!(contents(&volume, &[], None).is_empty());
    drop(volume);
    assert_sound(&device, "freed");
}

/// A wrong number of edges, or of nodes without one, in a hold alone is found.
#[test]
fn wrong_counts_in_a_hold_are_found() {
    let image = filled(16 << 20, 400, SMALL).snapshot();
    for wrong in [0, 1, 3] {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from(image.clone()));
        let mut volume = opened(&device, 1 << 30);
        clone_range(&mut volume, &Key::copied(b"a"), &Key::copied(b"b")).unwrap();
        volume.checkpoint().unwrap();
        let store = &mut volume.trees.wait_mut().store;
        let shared = seen_through(store)[0];
        let right = store.table.references(shared).unwrap();
        store.table.set_references(shared, wrong).unwrap();
        volume.take_hold("one").unwrap();
        let store = &mut volume.trees.wait_mut().store;
        store.table.set_references(shared, right).unwrap();
        volume.checkpoint().unwrap();
        drop(volume);
        let report = check(&device, CheckOptions::ALL, &mut ());
        let found = report.findings.iter().any(|finding| finding.detail.contains("references"));
        assert!(found && report.damaged_holds == ["one"], "{wrong}: {:?}", report.findings);
    }
}
