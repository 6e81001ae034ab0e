//! Requests after the kernel has dropped its caches of names and inodes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use betr_cli::skip::need;
use rustix::fs::{AtFlags, OFlags, openat, unlinkat};

use crate::fixture::{Mounted, open};

const FILES: usize = 600;

/// Drops unused names and inodes from the kernel's caches; `false`, with a note, if that is not permitted.
fn forget() -> bool {
    let done = fs::write("/proc/sys/vm/drop_caches", "2").is_ok();
    need("a kernel whose caches may be dropped", done)
}

#[test]
fn what_was_forgotten_is_found_again() {
    let Some(mut mount) = Mounted::new("") else { return };
    let path = |number: usize| mount.at(&format!("d{}/f{number}", number % 7));
    let mut inos: BTreeMap<usize, u64> = BTreeMap::new();
    for number in 0..FILES {
        let path = path(number);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, number.to_string()).unwrap();
        inos.insert(number, fs::metadata(&path).unwrap().ino());
    }
    // In use, so not forgotten: an unlinked file, a renamed file, and a directory.
    let nameless = open(&mount.at("nameless"), OFlags::empty());
    nameless.write_all_at(b"still here", 0).unwrap();
    fs::remove_file(mount.at("nameless")).unwrap();
    let renamed = File::open(path(8)).unwrap();
    let directory = File::open(mount.at("d3")).unwrap();
    for round in 0..5 {
        if !forget() {
            return;
        }
        for (number, ino) in &inos {
            assert_eq!(fs::metadata(path(*number)).unwrap().ino(), *ino, "round {round}");
        }
        // Changes through an open directory, and by names that were looked up long ago.
        let number = 7 * round + 3;
        assert!(forget());
        unlinkat(&directory, format!("f{number}"), AtFlags::empty()).unwrap();
        inos.remove(&number);
        let (old, new) = (path(8 + round * 50), mount.at(&format!("moved-{round}")));
        fs::rename(&old, &new).unwrap();
        assert!(forget());
        fs::hard_link(&new, &old).unwrap();
        fs::remove_file(&new).unwrap();
        let made = openat(&directory, "made", OFlags::CREATE | OFlags::RDWR, 0o600.into()).unwrap();
        assert!(forget());
        rustix::io::write(&made, b"made").unwrap();
        assert_eq!(fs::read(mount.at("d3/made")).unwrap(), b"made");
        unlinkat(&directory, "made", AtFlags::empty()).unwrap();
        let mut bytes = [0; 10];
        nameless.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!((&bytes, nameless.metadata().unwrap().nlink()), (b"still here", 0));
        assert_eq!(renamed.metadata().unwrap().ino(), inos[&8]);
    }
    drop((nameless, renamed, directory));
    mount.settle();
}

#[test]
fn caches_are_dropped_under_those_who_work() {
    const WORKERS: usize = 3;
    let Some(mut mount) = Mounted::new("") else { return };
    if !forget() {
        return;
    }
    let tops: Vec<PathBuf> = (0..WORKERS).map(|worker| mount.at(&worker.to_string())).collect();
    std::thread::scope(|scope| {
        let work = |top: &PathBuf| {
            for round in 0..40 {
                let dir = top.join(format!("a{round}/b/c"));
                fs::create_dir_all(&dir).unwrap();
                for number in 0..10 {
                    fs::write(dir.join(number.to_string()), vec![number; 3000]).unwrap();
                }
                fs::rename(top.join(format!("a{round}/b")), top.join(format!("b{round}"))).unwrap();
                for number in 0..10 {
                    let path = top.join(format!("b{round}/c/{number}"));
                    assert_eq!(fs::read(&path).unwrap(), vec![number; 3000]);
                }
                if round % 2 == 0 {
                    fs::remove_dir_all(top.join(format!("b{round}"))).unwrap();
                }
            }
        };
        let workers: Vec<_> = tops.iter().map(|top| scope.spawn(move || work(top))).collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            assert!(forget());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    });
    mount.settle();
}
