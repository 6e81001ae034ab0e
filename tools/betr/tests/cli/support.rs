//! Helpers of the tests: running the binary, small images, and inspecting files.
//!
//! Every run has a clean environment, no terminal and a time limit, so that a tool that waits fails its test.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use assert_cmd::Command;
use betr_cli::skip::need;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// The path of the binary.
pub(crate) const BETR: &str = env!("CARGO_BIN_EXE_betr");
/// 65,534: an unprivileged user and group of every Debian system.
const NOBODY: u32 = 65534;
/// Variables of the environment that must not influence the tests.
const VARIABLES: [&str; 6] =
    ["SOURCE_DATE_EPOCH", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "TZ"];

/// A command that runs the binary with some arguments.
pub(crate) fn betr<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = assert_cmd::cargo::cargo_bin_cmd!("betr");
    for name in VARIABLES {
        command.env_remove(name);
    }
    command.timeout(Duration::from_secs(60)).args(args);
    command
}

/// The words of a command line. `IMG` is the image, and `DIR/…` a path in `dir`.
pub(crate) fn words(line: &str, image: &Path, dir: &Path) -> Vec<PathBuf> {
    let word = |word: &str| match (word, word.strip_prefix("DIR/")) {
        ("IMG", _) => image.to_owned(),
        (_, Some(name)) => dir.join(name),
        _ => PathBuf::from(word),
    };
    line.split_whitespace().map(word).collect()
}

/// Runs a command line, which must end with `code`. Returns both output streams.
pub(crate) fn run(line: &str, image: &Path, dir: &Path, code: i32) -> (String, String) {
    let output = betr(words(line, image, dir)).output().unwrap();
    let streams = text(&output);
    assert_eq!(output.status.code(), Some(code), "betr {line}: {streams:?}");
    streams
}

/// Both output streams as text.
pub(crate) fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

/// The bytes that a sound image uses.
pub(crate) fn used(image: &Path, dir: &Path) -> u64 {
    let (out, _) = run("fsck -fn --data --json IMG", image, dir, 0);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    report["counts"]["used_blocks"].as_u64().unwrap_or_else(|| panic!("{out}")) * 4096
}

/// A new temporary directory, with a path without symbolic links.
pub(crate) fn scratch() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    (dir, path)
}

/// Puts an image of 2 MiB with a few files into `dir`, and a file and a directory of the host beside it.
pub(crate) fn small_image(dir: &Path) -> PathBuf {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| {
        let (_guard, dir) = scratch();
        let (tree, image) = (dir.join("tree"), dir.join("t.img"));
        fs::create_dir_all(tree.join("sub")).unwrap();
        fs::write(tree.join("hello"), "hello\n").unwrap();
        fs::write(tree.join("sub/inner"), pattern(10_000)).unwrap();
        std::os::unix::fs::symlink("hello", tree.join("link")).unwrap();
        betr(words("mkfs -q IMG 2M -d DIR/tree", &image, &dir)).assert().success();
        fs::read(&image).unwrap()
    });
    let image = dir.join("small.img");
    fs::write(&image, bytes).unwrap();
    fs::write(dir.join("file"), "from the host\n").unwrap();
    fs::create_dir_all(dir.join("folder/below")).unwrap();
    image
}

/// Bytes without zeros, and without a short period.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 | 1).collect()
}

/// The hash of a file and its time of last modification, to detect writes.
pub(crate) fn fingerprint(path: &Path) -> (String, SystemTime) {
    let hash = Sha256::digest(fs::read(path).unwrap());
    let hash = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    (hash, fs::metadata(path).unwrap().modified().unwrap())
}

/// Sets an old time of last modification, which no write can produce.
pub(crate) fn age(path: &Path) {
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
}

/// The names in a directory, sorted.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.unwrap().file_name().to_string_lossy().into_owned()
    };
    let mut names: Vec<String> = fs::read_dir(dir).unwrap().map(name).collect();
    names.sort();
    names
}

/// Whether the tests run as root, for which permissions have no effect.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A command that runs the binary as an unprivileged user; `None`, with a note, if that is impossible.
pub(crate) fn powerless(dir: &Path) -> Option<Process> {
    if !is_root() {
        return Some(Process::new(BETR));
    }
    let as_nobody = |binary: &Path| {
        let mut process = Process::new(binary);
        process.uid(NOBODY).gid(NOBODY);
        process
    };
    let works = |binary: &Path| as_nobody(binary).arg("--version").output().is_ok();
    let mut binary = PathBuf::from(BETR);
    if !works(&binary) {
        // The copy is made by another process: a file that this process has open for writing could not be executed.
        binary = dir.join("betr-for-all");
        Process::new("cp").args([Path::new(BETR), &binary]).status().unwrap();
    }
    need("a place where another user may run the binary", works(&binary))
        .then(|| as_nobody(&binary))
}

/// Runs a shell script with the binary as `$0`, a mounted tmpfs of the given size as `$1`, and `other` as `$2`.
/// Returns the names in the tmpfs afterwards, standard error, and the exit code; `None`, with a note, if the user
/// cannot mount one.
pub(crate) fn in_tmpfs(
    bytes: u64,
    at: &Path,
    script: &str,
    other: &Path,
) -> Option<(String, String, Option<i32>)> {
    let script = format!(
        r#"mount -t tmpfs -o size={bytes} none "$1" || exit 77; echo mounted
        {script} >/dev/null; code=$?; ls -A "$1"; exit $code"#
    );
    let mut unshare = Process::new("unshare");
    unshare.args(if is_root() { &["-m"][..] } else { &["-m", "-r"] });
    unshare.args(["sh", "-c", &script, BETR]).args([at, other]);
    let streams = unshare.output().ok().map(|output| (text(&output), output.status.code()));
    let done = streams.and_then(|((out, err), code)| {
        let listed = out.strip_prefix("mounted\n")?.to_owned();
        Some((listed, err, code))
    });
    if done.is_none() {
        eprintln!("SKIPPED: a private mount of a tmpfs");
    }
    done
}

/// Runs a command line on a pseudo-terminal with these keys as input. Returns the exit code and the output; `None`,
/// with a note, if that is impossible.
pub(crate) fn on_terminal(line: &str, keys: &[u8], dir: &Path) -> Option<(i32, String)> {
    let has_script = Process::new("script").arg("--version").output().is_ok();
    if !need("script(1)", has_script) {
        return None;
    }
    let mut terminal = Process::new("script")
        .args(["-qec", &format!("{BETR} {line}"), "/dev/null"])
        .env("TERM", "xterm")
        .env("XDG_STATE_HOME", dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut terminal.stdin.take().unwrap(), keys).unwrap();
    let output = terminal.wait_with_output().unwrap();
    Some((output.status.code().unwrap(), String::from_utf8_lossy(&output.stdout).into_owned()))
}
