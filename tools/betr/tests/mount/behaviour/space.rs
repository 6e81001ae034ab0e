//! Free space: its amount, running out of it, and freeing it.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, StatVfs, statvfs};
use rustix::io::Errno;

use crate::fixture::{Mounted, Random, System, betr, betr_only, said, system};

const MIB: u64 = 1 << 20;

fn free(of: &StatVfs) -> u64 {
    of.f_bavail * of.f_frsize
}

/// Syncs until a number of bytes is free: deleted blocks may belong to the last durable state, and are freed a little
/// later.
#[track_caller]
fn wait_for_space(point: &Path, bytes: u64) {
    let begun = Instant::now();
    loop {
        let dir = File::open(point).unwrap();
        rustix::fs::syncfs(&dir).unwrap();
        let now = free(&statvfs(point).unwrap());
        if now >= bytes {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{now} bytes free, not {bytes}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn the_numbers_make_sense() {
    let Some(mount) = Mounted::sized("", 512 * MIB) else { return };
    let stat = statvfs(mount.point()).unwrap();
    let total = stat.f_blocks * stat.f_frsize;
    assert!((400 * MIB..=512 * MIB).contains(&total), "{total}");
    assert!(stat.f_bfree <= stat.f_blocks && stat.f_bavail <= stat.f_bfree);
    assert!(free(&stat) > 350 * MIB, "{}", free(&stat));
    if system() == System::Betr {
        assert_eq!((stat.f_files, stat.f_ffree), (0, 0), "nobody counts inodes");
    }
    assert_eq!((stat.f_namemax, stat.f_bsize), (255, 4096));
    let df = said("df", Path::new("."), ["-B1".as_ref(), mount.point().as_os_str()]);
    let line = df.lines().nth(1).unwrap();
    assert!(line.split_whitespace().any(|word| word == total.to_string()), "{df}");
}

#[test]
fn space_is_taken_and_given_back() {
    let Some(mut mount) = Mounted::sized("", 256 * MIB) else { return };
    let before = free(&statvfs(mount.point()).unwrap());
    let content = Random::new(8, 0).bytes(32 << 20);
    for how in ["remove", "cut", "unlink while open", "unmount"] {
        let mut file = File::create(mount.at("file")).unwrap();
        file.write_all(&content).unwrap();
        file.sync_all().unwrap();
        let full = free(&statvfs(mount.point()).unwrap());
        assert!(before - full >= 30 * MIB, "{how}: {before} and {full} bytes free");
        let blocks = std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) * 512;
        assert!((30 * MIB..40 * MIB).contains(&blocks), "{how}: {blocks}");
        match how {
            "cut" => file.set_len(0).unwrap(),
            "unlink while open" => {
                fs::remove_file(mount.at("file")).unwrap();
                assert!(free(&statvfs(mount.point()).unwrap()) < before - 30 * MIB);
            }
            _ => fs::remove_file(mount.at("file")).unwrap(),
        }
        drop(file);
        if how == "unmount" {
            mount.settle();
        }
        wait_for_space(mount.point(), before - 4 * MIB);
    }
}

#[test]
fn a_full_image_says_so_and_recovers() {
    let Some(mut mount) = Mounted::sized("", 48 * MIB) else { return };
    let before = free(&statvfs(mount.point()).unwrap());
    let content = Random::new(9, 0).bytes(1 << 20);
    let mut whole = Vec::new();
    for round in 0..3 {
        // Either the write fails, or the fsync after it.
        let refused = (0..200).find_map(|number| {
            let path = mount.at(&format!("{round}-{number}"));
            let written = File::create(&path)
                .and_then(|mut file| file.write_all(&content).and_then(|()| file.sync_all()));
            if written.is_ok() {
                whole.push(path);
            }
            written.err()
        });
        let refused = refused.expect("more fits than there is space");
        assert_eq!(Errno::from_io_error(&refused), Some(Errno::NOSPC), "{refused}");
        // All acknowledged data are readable, now and after a remount.
        for path in &whole {
            assert!(fs::read(path).unwrap() == content, "{}", path.display());
        }
        mount.settle();
        // A full image can be read and emptied.
        for entry in fs::read_dir(mount.point()).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_file() {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        assert!(whole.len() as u64 * MIB > before / 2, "{} fit", whole.len());
        whole.clear();
        wait_for_space(mount.point(), before - 4 * MIB);
    }
    mount.settle();
}

#[test]
fn a_small_write_into_a_full_image_is_whole_or_refused() {
    let Some(mut mount) = Mounted::sized("", 32 * MIB) else { return };
    fs::write(mount.at("kept"), vec![1; 500_000]).unwrap();
    let mut filler = File::create(mount.at("filler")).unwrap();
    let content = Random::new(10, 0).bytes(1 << 16);
    while filler.write_all(&content).and_then(|()| filler.sync_data()).is_ok() {}
    let mut made = 0;
    for number in 0..3000 {
        match fs::write(mount.at(&format!("small-{number}")), vec![2; 1000]) {
            Ok(()) => made += 1,
            Err(error) => assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC), "{error}"),
        }
    }
    drop(filler);
    // ext4 may notice later that a page has no block (delayed allocation).
    let lenient = system() == System::Ext4;
    mount.unmount();
    mount.fsck();
    mount.mount("");
    let whole = (0..3000)
        .filter_map(|number| fs::read(mount.at(&format!("small-{number}"))).ok())
        .filter(|bytes| *bytes == vec![2; 1000])
        .count();
    assert!(whole >= made || lenient, "{made} were written, and {whole} are there");
    assert!(fs::read(mount.at("kept")).unwrap() == vec![1; 500_000]);
    fs::remove_file(mount.at("filler")).unwrap();
    fs::write(mount.at("after"), &content).unwrap();
    mount.settle();
}

/// On a full image a large tree can be removed, although one atomic operation would not fit.
#[test]
fn much_can_be_removed_at_once_from_a_full_image() {
    if !betr_only() {
        return;
    }
    let Some(mut mount) = Mounted::sized("", 24 << 20) else { return };
    let mut random = Random::new(1, 1);
    let made = (0..).take_while(|number: &usize| {
        let contents = random.bytes(1 + number * 37 % 3000);
        fs::write(mount.at(&number.to_string()), contents).is_ok()
    });
    let made = made.count();
    mount.unmount();
    let names = (0..made / 5 * 4).map(|number| format!("/{number}"));
    let said = betr(["rm"]).arg(mount.image()).args(names).output().unwrap();
    let text = String::from_utf8(said.stderr).unwrap();
    assert!(said.status.success() && text.contains("it went in "), "{text}");
    mount.fsck();
}

/// Deleted blocks that are not free yet count as available, and an allocation that does not fit is refused as a
/// whole.
#[test]
fn what_is_allocated_could_be_written_now() {
    let Some(mount) = Mounted::sized("", 64 * MIB) else { return };
    let room = free(&statvfs(mount.point()).unwrap());
    let content = Random::new(11, 0).bytes(1 << 20);
    for round in 0..3 {
        for number in 0..room / MIB - 8 {
            fs::write(mount.at(&number.to_string()), &content).unwrap();
        }
        for number in 0..room / MIB - 8 {
            fs::remove_file(mount.at(&number.to_string())).unwrap();
        }
        let file = File::create(mount.at("file")).unwrap();
        for flags in [FallocateFlags::empty(), FallocateFlags::KEEP_SIZE] {
            for bytes in [room + 8 * MIB, 1 << 40, 8 << 40] {
                let refused = rustix::fs::fallocate(&file, flags, 0, bytes);
                assert_eq!(refused, Err(Errno::NOSPC), "{bytes} bytes");
                assert_eq!(file.metadata().unwrap().len(), 0, "{bytes} bytes");
            }
        }
        let bytes = room - 8 * MIB;
        let flags = if round == 1 { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        rustix::fs::fallocate(&file, flags, 0, bytes).unwrap();
        assert_eq!(file.metadata().unwrap().len(), if round == 1 { 0 } else { bytes });
        for at in (0..bytes / MIB).map(|piece| piece * MIB) {
            file.write_all_at(&content, at).unwrap();
        }
        file.sync_all().unwrap();
        drop(file);
        fs::remove_file(mount.at("file")).unwrap();
    }
}

/// cp(1) copies by copy_file_range(2).
#[test]
fn a_copy_by_a_program_shares_blocks() {
    let Some(mut mount) = Mounted::sized("", 256 * MIB) else { return };
    if system() != System::Betr {
        return;
    }
    let mut content = Random::new(9, 0).bytes(24 << 20);
    fs::write(mount.at("file"), &content).unwrap();
    mount.settle();
    // The reserve of a volume that shares nodes is larger: all that is free counts.
    let stored = |mount: &Mounted| {
        let stat = statvfs(mount.point()).unwrap();
        (stat.f_blocks - stat.f_bfree) * stat.f_frsize
    };
    let (before, was_free) = (stored(&mount), free(&statvfs(mount.point()).unwrap()));
    for copy in ["one", "two", "three"] {
        said("cp", mount.point(), ["file", copy]);
    }
    mount.settle();
    let taken = stored(&mount) - before;
    assert!(taken < 4 * MIB, "{taken} bytes for three copies");
    let file = File::options().write(true).open(mount.at("two")).unwrap();
    file.write_all_at(b"changed", 9 << 20).unwrap();
    drop(file);
    let copy = |content: &[u8], name: &str| assert!(fs::read(mount.at(name)).unwrap() == content);
    for name in ["file", "one", "three"] {
        copy(&content, name);
    }
    content[9 << 20..][..7].copy_from_slice(b"changed");
    copy(&content, "two");
    fs::remove_file(mount.at("file")).unwrap();
    fs::remove_file(mount.at("one")).unwrap();
    mount.settle();
    assert!(fs::read(mount.at("two")).unwrap() == content);
    for name in ["two", "three"] {
        fs::remove_file(mount.at(name)).unwrap();
    }
    wait_for_space(mount.point(), was_free + 12 * MIB);
}
