//! pjdfstest: the POSIX test suite of FreeBSD, ZFS and FUSE file systems.
//!
//! This is the Rust version from crates.io: `cargo install --locked pjdfstest --version 0.2.2 --root DIR`; `.ci/run`
//! installs it. The test searches it at `BETR_PJDFSTEST` and in `PATH`. On ext4 each of its 398 cases passes;
//! `expected-failures` lists the cases that betr cannot pass, each with the reason. A listed case that passes, or
//! that the suite does not contain, fails the test, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use betr_cli::skip::{self, need};

use crate::fixture::{Mounted, System, system};

/// The number of cases in version 0.2.2.
const CASES: usize = 398;
/// The cases that remount the file system read-only.
const REMOUNTING: &str = "erofs";
const LIMIT: Duration = Duration::from_secs(240);

/// The configuration of the suite; `allow_remount` is filled in. Both users exist on Debian, each with a group of its
/// own.
const SETTINGS: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}

[settings]
# Longer than any clock of a file system takes to move on.
naptime = 0.02
allow_remount = REMOUNT

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

fn pjdfstest() -> Option<PathBuf> {
    let named = std::env::var_os("BETR_PJDFSTEST").map(PathBuf::from);
    let found = named.or_else(|| skip::program("pjdfstest")).filter(|path| path.is_file());
    need("pjdfstest", found.is_some()).then_some(found).flatten()
}

/// The cases that must fail on betr. Each has its reason above it.
fn expected_failures() -> BTreeSet<String> {
    let mut expected = BTreeSet::new();
    let mut explained = false;
    for line in include_str!("expected-failures").lines() {
        match line.strip_prefix('#') {
            Some(_) => explained = true,
            None if line.is_empty() => explained = false,
            None => {
                assert!(explained, "{line} is expected to fail for no reason");
                assert!(expected.insert(line.to_owned()), "{line} is expected to fail twice");
            }
        }
    }
    if system() == System::Betr { expected } else { BTreeSet::new() }
}

/// The result of each case, and its output.
type Outcome = BTreeMap<String, (String, String)>;

/// Parses lines such as `chmod::eloop ok`, and the indented lines below them.
fn outcome(out: &str) -> Outcome {
    let mut cases = Outcome::new();
    let mut last = String::new();
    for line in out.lines() {
        let split = line.split_once(' ').filter(|(name, _)| name.contains("::"));
        if let Some((name, ended)) = split {
            last = name.to_owned();
            cases.insert(last.clone(), (ended.trim().to_owned(), String::new()));
        } else if let Some((_, said)) = cases.get_mut(&last) {
            said.push_str(line);
            said.push('\n');
        }
    }
    cases
}

/// Runs the suite, or the cases with `pattern` in their names.
fn suite(binary: &Path, mount: &Mounted, pattern: Option<&str>) -> Outcome {
    let (config, second) = (mount.beside("pjdfstest.toml"), mount.beside("second"));
    let remount = if pattern == Some(REMOUNTING) { "true" } else { "false" };
    fs::write(&config, SETTINGS.replace("REMOUNT", remount)).unwrap();
    fs::create_dir_all(&second).unwrap();
    let mut command = assert_cmd::Command::new(binary);
    // mount(8) must do the remount itself, without a helper of an installed FUSE package.
    let bin = mount.beside("bin");
    fs::create_dir_all(&bin).unwrap();
    let mount_program = skip::program("mount").unwrap();
    fs::write(
        bin.join("mount"),
        format!("#!/bin/sh\nexec {} -i \"$@\"\n", mount_program.display()),
    )
    .unwrap();
    rustix::fs::chmod(bin.join("mount"), rustix::fs::Mode::RWXU).unwrap();
    let path = std::env::var("PATH").unwrap();
    command.env_clear().env("PATH", format!("{}:{path}", bin.display())).env("NO_COLOR", "1");
    command.arg("-c").arg(config).arg("-p").arg(mount.point()).arg("-s").arg(second);
    let output = command.args(pattern).timeout(LIMIT).output().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(out.contains("Summary: "), "{}: {err}{out}", output.status);
    outcome(&out)
}

#[test]
fn the_suite_passes() {
    let Some(binary) = pjdfstest() else { return };
    let Some(mut mount) = Mounted::new("allow_other") else { return };
    rustix::fs::chmod(mount.point(), rustix::fs::Mode::from(0o755)).unwrap();
    let mut cases = suite(&binary, &mount, None);
    assert_eq!(cases.len(), CASES);
    mount.settle();
    // These run separately: a file that another case has open would prevent the remount.
    cases.extend(suite(&binary, &mount, Some(REMOUNTING)));
    mount.settle();

    let mut expected = expected_failures();
    let mut wrong = Vec::new();
    for (name, (ended, said)) in cases {
        match (&*ended, expected.remove(&name)) {
            ("ok", false) | ("FAILED" | "skipped", true) => {}
            ("ok", true) => wrong.push(format!("{name} passes, and is expected to fail")),
            _ => wrong.push(format!("{name}: {ended}\n{said}")),
        }
    }
    wrong.extend(expected.iter().map(|name| format!("{name} is expected to fail, and is no case")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn its_output_is_understood() {
    let out = "chmod::one                 ok\nopen::two::fifo      FAILED\n\tassertion failed\n\nSummary: 1";
    let cases = outcome(out);
    assert_eq!(cases.len(), 2);
    assert_eq!(cases["chmod::one"].0, "ok");
    assert_eq!(cases["open::two::fifo"].0, "FAILED");
    assert!(cases["open::two::fifo"].1.starts_with("\tassertion failed\n"));
    expected_failures();
}
