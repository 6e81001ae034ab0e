//! The daemon is killed at random moments during writes: acknowledged changes must be present afterwards.
//!
//! ext4 has no daemon; instead an ioctl (`EXT4_IOC_SHUTDOWN`) stops its journal and its writes. So these rules are
//! validated on another file system.
//!
//! `BETR_KILL_ROUNDS` sets the number of rounds (by default a few), and `BETR_TEST_SEED` the seed.

mod content;
mod ledger;
mod options;
mod worker;

use std::time::Duration;

use crate::fixture::{Manifest, Mounted, Random, amount, can_map, seed};
use worker::{End, Log, Promise, Worker};

const WORKERS: usize = 3;
const WRITERS: usize = 2;

/// Workers on a mount that is killed repeatedly.
struct Scene {
    mount: Mounted,
    options: &'static str,
    promise: Promise,
    end: End,
    random: Random,
    workers: Vec<Worker>,
    logs: Vec<Log>,
}

impl Scene {
    fn new(options: &'static str, promise: Promise, user: u64) -> Option<Self> {
        // Only ext4 needs the C helper, for its shutdown.
        let mount = can_map().then(|| Mounted::new(options)).flatten()?;
        let end = End::default();
        let top = |number| mount.at(&format!("worker-{number}"));
        let random = |number| Random::new(seed() + user, number);
        let worker = |number: usize| {
            Worker::new(top(number), end.clone(), promise, random(number as u64 + 1))
        };
        let workers = (0..WORKERS).map(worker).collect();
        let logs =
            (0..WRITERS).map(|writer| Log::new(&mount.at("log"), end.clone(), writer)).collect();
        Some(Self { options, promise, end: end.clone(), random: random(0), workers, logs, mount })
    }

    /// Lets all workers run, and kills the daemon during that.
    fn work_and_kill(&mut self) {
        let time = Duration::from_millis(
            [20, 100, 400, 400][self.random.below(4)] + self.random.below(100) as u64,
        );
        self.end.set(false);
        let end = &self.end;
        let expect = |error: std::io::Error| assert!(end.has_come(), "{error}");
        std::thread::scope(|scope| {
            for worker in &mut self.workers {
                scope.spawn(|| expect(worker.work()));
            }
            for log in &mut self.logs {
                scope.spawn(|| expect(log.work(self.promise)));
            }
            std::thread::sleep(time);
            end.set(true);
            self.mount.kill();
        });
        self.mount.clear();
    }

    fn check(&mut self) {
        self.workers.iter_mut().for_each(Worker::check);
        Log::check(&mut self.logs);
    }

    /// Kills the daemon while it is idle or recovers: the tree must be unchanged.
    fn kill_idle(&mut self) {
        let before = Manifest::of(self.mount.point());
        self.mount.crash();
        for _ in 0..self.random.below(3) {
            let time = Duration::from_micros(self.random.below(30_000) as u64);
            self.mount.mount_and_kill(self.options, time);
        }
        self.mount.mount(self.options);
        before.assert_same(&Manifest::of(self.mount.point()));
    }

    fn rounds(mut self, rounds: u64) {
        for round in 0..rounds {
            self.work_and_kill();
            self.mount.mount(self.options);
            self.check();
            if self.random.below(3) == 0 {
                self.kill_idle();
            }
            // The next round continues with the current tree, often on a mount that was never unmounted cleanly.
            if self.random.below(2) == 0 || round + 1 == rounds {
                self.mount.settle();
            }
        }
        let made: u64 = self.workers.iter().map(Worker::made).sum();
        assert!(made > rounds * 10, "only {made} operations in {rounds} rounds");
    }
}

#[test]
fn what_was_synced_survives() {
    let Some(scene) = Scene::new("", Promise::Fsync, 100) else { return };
    scene.rounds(amount("BETR_KILL_ROUNDS", 10));
}

#[test]
fn with_the_option_sync_everything_survives() {
    let Some(scene) = Scene::new("sync", Promise::AtOnce, 200) else { return };
    scene.rounds(amount("BETR_KILL_ROUNDS", 10).div_ceil(3));
}
