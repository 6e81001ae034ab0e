//! Rules of durability broken on purpose, one at a time: the crash explorer must find each.
//!
//! A rule is broken for the whole process, so this is one test, in a binary of its own. A release has no rules that can
//! be broken.
#![cfg(debug_assertions)]

use std::time::Instant;

use betr_core::mutation::{Mutation, break_rule};
use betr_lab::explore::{Options, Workload, explore, print};
use betr_tests::clones;

/// Distinct states of each workload that are looked at, at most. Most rules are missed much sooner.
const STATES: u64 = 2500;
/// Seeds of the operations with clones, at most.
const SEEDS: u64 = 20;

/// The workloads that can miss a rule, if that is not all.
fn workloads(mutation: Mutation) -> Vec<Workload> {
    let name = match mutation {
        Mutation::HeldFreed
        | Mutation::DeadForgotten
        | Mutation::DropTooMuch
        | Mutation::AbandonedKept => Some("snapshots"),
        Mutation::InlineEmpty => Some("large"),
        Mutation::GroupHashIgnored => Some("append"),
        _ => None,
    };
    let mut workloads = Workload::all();
    workloads.retain(|workload| name.is_none_or(|name| workload.name == name));
    workloads
}

/// Looks for a rule that only volumes of keys with cloned ranges can miss.
fn is_missed_by_clones(mutation: Mutation) -> bool {
    let start = Instant::now();
    break_rule(Some(mutation));
    let found =
        (0..SEEDS).find_map(|seed| clones::sweep(seed, 40, 3).err().map(|what| (seed, what)));
    break_rule(None);
    let seconds = start.elapsed().as_secs_f32();
    if let Some((seed, what)) = &found {
        println!("{mutation:?}: found with seed {seed} in {seconds:.1} s: {what}");
    }
    found.is_none()
}

#[test]
fn every_broken_rule_is_found() {
    let options = Options { states: STATES, shrinks: false, ..Options::default() };
    let mut missed = Vec::new();
    let (of_clones, others): (Vec<_>, Vec<_>) =
        Mutation::ALL.into_iter().partition(|mutation| mutation.is_of_clones());
    missed.extend(of_clones.into_iter().filter(|mutation| is_missed_by_clones(*mutation)));
    for mutation in others {
        let start = Instant::now();
        break_rule(Some(mutation));
        let explored = explore(&workloads(mutation), options);
        break_rule(None);
        let states: u64 = explored.tallies.iter().map(|(_, tally)| tally.distinct).sum();
        let seconds = start.elapsed().as_secs_f32();
        match explored.failure {
            None => missed.push(mutation),
            Some(failure) => println!(
                "{mutation:?}: found among {states} states of '{}' in {seconds:.1} s, {} steps: {}\n{}",
                failure.workload,
                failure.steps.len(),
                failure.verdict,
                print(&failure.steps),
            ),
        }
    }
    assert!(missed.is_empty(), "nobody noticed {missed:?}");
}
