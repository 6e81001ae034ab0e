//! How many requests of the kernel things take.

use std::fs;

use serde_json::Value;

use super::status::{count, status};
use crate::fixture::{Mounted, betr_only};

const FILES: u64 = 1000;

/// The operations that were counted between two states: those that open and look at files, and reads.
fn between(before: &Value, after: &Value) -> (u64, u64) {
    let grown = |name: &str| count(after, name) - count(before, name);
    let looks = ["lookup", "getattr", "open"].map(grown).iter().sum();
    (looks, grown("read"))
}

/// Small files are read with one request each after a listing where opens need none: on a mount for reading only.
/// Elsewhere an open comes before.
#[test]
fn small_files_are_read_with_one_request_each() {
    if !betr_only() {
        return;
    }
    let Some(mut mount) = Mounted::new("") else { return };
    fs::create_dir(mount.at("dir")).unwrap();
    for number in 0..FILES {
        fs::write(mount.at(&format!("dir/{number:04}")), number.to_string().repeat(50)).unwrap();
    }
    for (options, opens) in [("ro", 0), ("noatime", FILES)] {
        mount.unmount();
        mount.mount(options);
        let listed = fs::read_dir(mount.at("dir")).unwrap();
        let mut paths: Vec<_> = listed.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        assert_eq!(paths.iter().filter(|path| path.metadata().unwrap().is_file()).count(), 1000);
        let before = status(mount.point());
        for (number, path) in paths.iter().enumerate() {
            assert_eq!(fs::read_to_string(path).unwrap(), number.to_string().repeat(50));
        }
        let (looks, reads) = between(&before, &status(mount.point()));
        println!("-o {options}: {looks} looks and opens, {reads} reads");
        // The first open learns that none is needed; `betr status` takes a few requests as well.
        assert!((opens..opens + 10).contains(&looks), "-o {options}: {looks} looks and opens");
        assert_eq!(reads, FILES, "-o {options}");
    }
}
