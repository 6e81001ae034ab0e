//! fio(1), which verifies the data it wrote, and fs_mark(1).

use std::fs;

use crate::fixture::{Mounted, program, said};

#[test]
fn fio_finds_what_it_wrote() {
    let Some(mut mount) = program("fio").and_then(|_| Mounted::new("")) else { return };
    let jobs: [(&str, &[&str]); 5] = [
        (
            "buffered",
            &["--ioengine=psync", "--rw=randwrite", "--bsrange=512-64k", "--bs_unaligned=1"],
        ),
        ("direct", &["--ioengine=psync", "--rw=randwrite", "--bsrange=4k-128k", "--direct=1"]),
        ("mapped", &["--ioengine=mmap", "--rw=randwrite", "--bs=4k"]),
        ("synced", &["--ioengine=psync", "--rw=randwrite", "--bs=16k", "--fdatasync=8"]),
        ("sequential", &["--ioengine=psync", "--rw=write", "--bs=1m", "--direct=1", "--numjobs=2"]),
    ];
    let fio = |name: &str, words: &[&str]| {
        let name = format!("--name={name}");
        let common = [
            &*name,
            "--size=16m",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--end_fsync=1",
            "--randseed=7",
        ];
        said("fio", mount.point(), common.iter().chain(words));
    };
    for (name, words) in jobs {
        fio(name, words);
    }
    mount.settle();
    // The same jobs again, only reading.
    let fio = |name: &str, words: &[&str]| {
        let name = format!("--name={name}");
        let common = [
            &*name,
            "--size=16m",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_only",
            "--randseed=7",
        ];
        said("fio", mount.point(), common.iter().chain(words));
    };
    for (name, words) in jobs {
        fio(name, words);
    }
}

#[test]
fn fs_mark_makes_files_that_are_synced() {
    let Some(mut mount) = program("fs_mark").and_then(|_| Mounted::new("")) else { return };
    // The ways of fs_mark to make files durable: fsync before close, sync, fsync afterwards, all of them at the end.
    for way in ["1", "2", "4", "6"] {
        let dir = mount.at(way);
        fs::create_dir(&dir).unwrap();
        let words = ["-d", ".", "-n", "150", "-s", "20000", "-t", "2", "-D", "3", "-k", "-S", way];
        said("fs_mark", &dir, words.into_iter().chain(["-l", "/dev/null"]));
        let mut files = 0;
        for entry in fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()) {
            let below =
                fs::read_dir(entry).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
            files += below.inspect(|meta| assert_eq!(meta.len(), 20_000)).count();
        }
        assert_eq!(files, 300);
    }
    mount.settle();
}
