//! Runs the committed fuzz corpora through their targets, with any toolchain.

use std::path::PathBuf;

use betr_tests::fuzz::{TARGETS, Target, seeds};

/// The size limit of all corpora together (1 MiB).
const BYTES_MAX: usize = 1 << 20;

/// The files of a corpus, by name.
fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut files: Vec<_> = files
        .map(|file| {
            let path = file.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            (path, bytes)
        })
        .collect();
    files.sort();
    files
}

/// Runs a target on its corpus. At least one input must be meaningful to the target, or the corpus is stale.
fn replay(name: &str, target: Target) {
    let files = corpus(name);
    let meant = files.iter().filter(|(path, bytes)| {
        println!("{}", path.display());
        target(bytes)
    });
    let meant = meant.count();
    assert!(
        meant > 0,
        "nothing of {} inputs for {name} means anything: it has grown stale",
        files.len()
    );
}

#[test]
fn every_target_treats_its_corpus_as_it_must() {
    for (name, target) in TARGETS {
        replay(name, *target);
    }
}

#[test]
fn corpora_stay_small() {
    let bytes = TARGETS.iter().flat_map(|(name, _)| corpus(name)).map(|(_, bytes)| bytes.len());
    let bytes: usize = bytes.sum();
    assert!(bytes <= BYTES_MAX, "{bytes} bytes");
}

#[test]
fn corpora_have_targets() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let names = |what: &str| {
        let found = std::fs::read_dir(folder.join(what)).unwrap();
        let mut names: Vec<_> = found
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    let mut targets: Vec<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    targets.sort();
    assert_eq!(names("corpus"), targets);
    assert_eq!(names("fuzz_targets"), targets);
}

#[test]
fn seeds_mean_something() {
    for (name, _) in TARGETS {
        assert!(seeds().iter().any(|(target, _)| target == name), "no seed for {name}");
    }
    for (name, bytes) in seeds() {
        let target = TARGETS.iter().find(|(target, _)| *target == name).expect("a target").1;
        // A chunk may hold several values.
        assert!(target(&bytes) || name == "values", "{name}: {bytes:?}");
    }
}
