//! Four concurrent processes, in directories of their own and in a shared one.
//!
//! The conditions at the end do not depend on their timing.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, flock};

use crate::fixture::{Mounted, Random};

const WORKERS: usize = 4;
const TURNS: usize = 250;
/// Files of a pool from which all workers take.
const POOL: usize = 400;

/// The variable that makes a process a worker: its number and its directory.
const WORKER: &str = "BETR_TEST_WORKER";

#[test]
fn processes_share_directories() {
    let Some(mut mount) = Mounted::new("") else { return };
    fs::create_dir(mount.at("shared")).unwrap();
    fs::create_dir(mount.at("pool")).unwrap();
    fs::write(mount.at("counter"), "0").unwrap();
    for number in 0..POOL {
        fs::write(mount.at(&format!("pool/{number}")), number.to_string()).unwrap();
    }
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            fs::create_dir(mount.at(&format!("own-{worker}"))).unwrap();
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "programs::together::worker", "--ignored", "--nocapture"]);
            command.env(WORKER, worker.to_string()).current_dir(mount.point());
            command.stdout(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut worker in workers {
        assert!(worker.wait().unwrap().success());
    }
    check(mount.point());
    mount.settle();
    check(mount.point());
}

/// Checks the results of the processes.
fn check(root: &Path) {
    let names = |dir: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(root.join(dir)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let total = WORKERS * TURNS;
    assert_eq!(fs::read_to_string(root.join("counter")).unwrap(), total.to_string());
    // Every line of the log is complete, and those of each worker are in order.
    let log = fs::read_to_string(root.join("shared/log")).unwrap();
    assert_eq!(log.lines().count(), total);
    for worker in 0..WORKERS {
        let own = log.lines().filter_map(|line| line.strip_prefix(&format!("worker {worker} ")));
        assert!(own.map(String::from).eq((0..TURNS).map(|turn| format!("turn {turn:>40}"))));
    }
    // Each contested name was won by exactly one worker.
    let won = names("shared").into_iter().filter(|name| name.starts_with("won-")).count();
    assert_eq!(won, TURNS);
    let wins =
        (0..WORKERS).map(|worker| fs::read(root.join(format!("own-{worker}/wins"))).unwrap().len());
    assert_eq!(wins.sum::<usize>(), TURNS);
    // Every file of the pool was taken once.
    assert!(names("pool").is_empty());
    let taken: Vec<String> = (0..WORKERS)
        .flat_map(|worker| names(&format!("own-{worker}")))
        .filter_map(|name| name.strip_prefix("taken-").map(String::from))
        .collect();
    assert_eq!(taken.len(), POOL);
    assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), POOL);
    for worker in 0..WORKERS {
        let expected = (0..TURNS).filter(|turn| turn % 3 != 0);
        for turn in expected.clone() {
            let path = root.join(format!("shared/file-{worker}-{turn}"));
            assert_eq!(fs::read(path).unwrap(), content(worker, turn));
        }
        let prefix = format!("file-{worker}-");
        let there = names("shared").into_iter().filter(|name| name.starts_with(&prefix)).count();
        assert_eq!(there, expected.count());
    }
}

fn content(worker: usize, turn: usize) -> Vec<u8> {
    let mut random = Random::new(worker as u64, turn as u64);
    let len = random.below(40_000);
    random.bytes(len)
}

/// One of the worker processes; as an ordinary test it does nothing.
#[test]
#[ignore = "is run by processes_share_directories"]
fn worker() {
    let Ok(worker) = std::env::var(WORKER) else { return };
    let worker: usize = worker.parse().unwrap();
    let own = &PathBuf::from(format!("own-{worker}"));
    let shared = Path::new("shared");
    let append = |path: &Path| File::options().append(true).create(true).open(path).unwrap();
    let (mut log, mut wins) = (append(&shared.join("log")), append(&own.join("wins")));
    for turn in 0..TURNS {
        log.write_all(format!("worker {worker} turn {turn:>40}\n").as_bytes()).unwrap();
        // Created here, moved there; every third one is removed again.
        let (here, there) = (own.join("new"), shared.join(format!("file-{worker}-{turn}")));
        fs::write(&here, content(worker, turn)).unwrap();
        fs::rename(&here, &there).unwrap();
        if turn % 3 == 0 {
            fs::remove_file(&there).unwrap();
        }
        if let Ok(mut won) = File::create_new(shared.join(format!("won-{turn}"))) {
            write!(won, "{worker}").unwrap();
            wins.write_all(b"w").unwrap();
        }
        count();
        if turn % 10 == 0 {
            look(shared, worker, turn);
        }
        if turn % 50 == 0 {
            log.sync_all().unwrap();
        }
    }
    for number in 0..POOL {
        let _ = fs::rename(format!("pool/{number}"), own.join(format!("taken-{number}")));
    }
}

/// Increments the counter, under a lock.
fn count() {
    let mut file = File::options().read(true).write(true).open("counter").unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    write!(file, "{}", text.parse::<usize>().unwrap() + 1).unwrap();
}

/// Reads the shared directory: each remaining file of this worker must be listed once.
fn look(shared: &Path, worker: usize, turn: usize) {
    let prefix = format!("file-{worker}-");
    let mut seen = BTreeSet::new();
    for entry in fs::read_dir(shared).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(number) = name.strip_prefix(&prefix) {
            assert!(seen.insert(number.parse::<usize>().unwrap()), "{name} comes twice");
        }
    }
    assert!(seen.into_iter().eq((0..=turn).filter(|turn| turn % 3 != 0)));
}
