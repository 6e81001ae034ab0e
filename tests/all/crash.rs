//! Crash exploration: every event of every workload, and many of the states that a power cut may leave.
//! `betr_lab::explore` defines the conditions on each state.

use betr_lab::explore::devices::Fate;
use betr_lab::explore::{
    Cut, Exploration, Failure, Fill, Flaw, Options, Setup, State, Step, Story, Workload, explore,
    parse, print,
};
use betr_tests::rounds;

/// A failure as text: what is wrong, where, and how to reproduce it.
fn text(failure: &Failure) -> String {
    let Failure { workload, seed, verdict, description, steps, .. } = failure;
    let description = description.join("\n");
    format!("{workload}, seed {seed}: {verdict}\n{description}\n{}", print(steps))
}

fn sound(exploration: &Exploration) {
    if let Some(failure) = &exploration.failure {
        panic!("{}", text(failure));
    }
}

#[test]
fn every_state_recovers_to_an_operation_boundary() {
    // `betr dev crash` explores a hundred thousand states; CI runs that as well.
    let states = 500 * rounds(1);
    let explored = explore(&Workload::all(), Options { states, ..Options::default() });
    sound(&explored);
    for (name, tally) in &explored.tallies {
        assert!(tally.distinct > 400, "{name}: only {} states", tally.distinct);
        assert!(tally.inside > 50, "{name}: only {} inside recoveries", tally.inside);
        assert!(tally.groups > 50, "{name}: {tally:?}");
        let spread = tally.rules.get("recovery: entry spread over several nodes");
        assert!(spread.is_some_and(|count| *count > 5), "{name}: {tally:?}");
    }
    let count = |rule| explored.tallies.iter().filter_map(|(_, tally)| tally.rules.get(rule)).sum();
    for rule in RULES {
        let count: u64 = count(rule);
        println!("{count:>10} × {rule}");
        assert!(count > 0, "nothing exercised the rule '{rule}'");
    }
}

/// The durability rules that a power cut can exercise.
const RULES: [&str; 23] = [
    "checker: superblock slot torn",
    "checkpoint because space is short",
    "checkpoint because the log is full",
    "everything pending carried out for space",
    "extent pinned after its node moved on",
    "fence before the first record",
    "operation through a checkpoint of its own",
    "recovery: checkpoint between two groups",
    "recovery: entry spread over several nodes",
    "recovery: extent pinned",
    "recovery: group replayed",
    "recovery: log empty",
    "recovery: node with values of several entries",
    "recovery: tail torn in the group",
    "recovery: tail torn in what it binds",
    "recovery: value bound to NULL",
    "recovery: value from a leaf",
    "recovery: value from a run",
    "recovery: value from the log",
    "step of a carve",
    "step refused",
    "step without room in the image",
    "volume opened again on the way",
];

#[test]
fn workloads_checkpoint_and_go_round_the_log() {
    for seed in 1..6 {
        let explored = explore(&Workload::all(), Options { states: 1, seed, ..Options::default() });
        sound(&explored);
        for (name, tally) in &explored.tallies {
            assert!(tally.checkpoints >= 3, "{name}, seed {seed}: {tally:?}");
            assert!(tally.wraps >= 1, "{name}, seed {seed}: {tally:?}");
        }
        for workload in Workload::all() {
            let steps = workload.steps(seed);
            assert_eq!(parse(&print(&steps)).unwrap(), steps);
        }
    }
}

#[test]
fn a_flaw_is_found_and_made_small() {
    for flaw in [Flaw::SuperblockUnfenced, Flaw::SyncUnflushed] {
        let options = Options { states: 1000, flaw, ..Options::default() };
        let failure = explore(&Workload::all(), options).failure.expect("it is found");
        assert!(failure.steps.len() <= 8, "{}", text(&failure));
        assert!(failure.state.is_some() && !failure.image.is_empty());
        // The steps alone reproduce it.
        let mut script = Workload::script(failure.steps.clone());
        let volume = Workload::all().into_iter().find(|w| w.name == failure.workload);
        script.setup = volume.expect("a workload of that name").setup;
        let again = explore(&[script], options).failure.expect("it is found again");
        assert_eq!(again.steps, failure.steps);
    }
}

#[test]
fn a_superblock_that_is_torn_twice_does_not_come_together() {
    let steps =
        parse("create /f\nsync\nwrite /f 0 20000 1\nsync\nreopen\nwrite /f 0 9000 2\nsync\n");
    let setup = Setup::tiny(1 << 20);
    let story = Story::record(setup, &steps.unwrap(), 1, Flaw::None).expect("it is recorded");
    for first in [0b1, 0b11, 0b1001, 0b10] {
        for events in 1..=story.events() {
            for inner in 1..30 {
                let cut = |events, mask| Cut { events, fates: vec![Fate::Torn(mask)] };
                let state = State { cut: cut(events, first), inside: Some(cut(inner, !first)) };
                assert_eq!(story.fault(&state), None, "{state:?}");
            }
        }
    }
}

#[test]
fn a_torn_second_slot_is_no_loss_sixteen_epochs_later() {
    for seed in 0..8 {
        let mut script = format!("create /f\ncheckpoint\ncheckpoint\ncrash {seed}\n");
        (0..17).for_each(|_| script.push_str("checkpoint\n"));
        let mut workload = Workload::script(parse(&script).unwrap());
        workload.setup = Setup::tiny(1 << 20);
        sound(&explore(&[workload], Options { states: 600, seed, ..Options::default() }));
    }
}

#[test]
fn threads_and_shortcuts_change_no_verdict() {
    let some = || {
        let mut all = Workload::all();
        all.retain(|workload| ["append", "repeat", "links"].contains(&workload.name));
        all
    };
    let options = Options { states: 150, threads: 1, ..Options::default() };
    let first = explore(&some(), options);
    sound(&first);
    let second = explore(&some(), Options { threads: 3, ..options });
    assert_eq!(first.tallies, second.tallies);
    let thorough = explore(&some(), Options { shortcuts: false, ..options });
    sound(&thorough);
    for ((_, quick), (_, slow)) in first.tallies.iter().zip(&thorough.tallies) {
        assert_eq!(slow.recovered, slow.distinct);
        assert!(quick.recovered < quick.distinct);
    }
    for flaw in [Flaw::SuperblockUnfenced, Flaw::SyncUnflushed] {
        for shortcuts in [true, false] {
            let options = Options { states: 1000, flaw, shortcuts, ..options };
            assert!(explore(&some(), options).failure.is_some(), "{flaw:?}, {shortcuts}");
        }
    }
}

#[test]
fn a_step_that_goes_wrong_without_a_cut_is_a_failure_too() {
    let mut steps = parse("create /a\ncreate /f\nmkdir /d\nsync\n").unwrap();
    // A longer write than one operation allows; the parser of scripts never produces it.
    let (path, fill) = (b"/f".to_vec(), Fill::Zeros);
    steps.insert(3, Step::Write { path, offset: 0, len: (16 << 20) + 1, fill });
    let setup = Workload::script(Vec::new()).setup;
    let mishap = Story::record(setup, &steps, 1, Flaw::None).err().expect("it goes wrong");
    assert_eq!(mishap.step, 3);
    let failure = explore(&[Workload::script(steps)], Options::default()).failure.unwrap();
    assert_eq!(print(&failure.steps), "create /f\nwrite /f 0 16777217 zeros\n");
    assert!(failure.state.is_none());
}
