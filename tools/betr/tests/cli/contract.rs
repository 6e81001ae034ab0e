//! Rules for every tool, written once and applied to each: help, usage errors, locks, and that tools which only read
//! do not change the image.

use std::fs;
use std::path::Path;

use predicates::prelude::*;
use serde_json::Value;

use crate::support::*;

/// A command line of a tool, and its exit codes.
pub(crate) struct Tool {
    /// The command line; see [`words`].
    pub line: &'static str,
    /// The exit code for an operation that fails.
    pub failed: i32,
    /// The exit code for a file that is not an image.
    pub foreign: i32,
    /// The exit code for a damaged image.
    pub damaged: i32,
    /// Whether it writes to an undamaged image.
    pub writes: bool,
}

const fn tool(line: &'static str, writes: bool) -> Tool {
    Tool { line, failed: 1, foreign: 3, damaged: 3, writes }
}

const fn fsck(line: &'static str, writes: bool) -> Tool {
    Tool { line, failed: 8, foreign: 8, damaged: 4, writes }
}

/// Every tool that works on an existing image, which is the last argument or precedes the operands.
pub(crate) const TOOLS: [Tool; 53] = [
    fsck("fsck -n IMG", false),
    fsck("fsck -fn IMG", false),
    fsck("fsck -n --data --json IMG", false),
    fsck("fsck -p IMG", true),
    fsck("fsck -fy IMG", true),
    tool("ls IMG", false),
    tool("ls -lR IMG", false),
    tool("ls -R --json IMG", false),
    tool("cat IMG /hello", false),
    tool("stat IMG /", false),
    tool("info IMG", false),
    tool("info --json IMG", false),
    tool("stat --json IMG /sub /sub/inner", false),
    tool("explain IMG /hello", false),
    tool("explain IMG /hello@0 --json", false),
    tool("replay IMG list --json", false),
    tool("replay IMG verify", false),
    tool("dump IMG space --json", false),
    tool("export IMG DIR/out", false),
    tool("export IMG /hello DIR/out-file", false),
    tool("export IMG /hello -", false),
    tool("import IMG DIR/file /new", true),
    tool("find IMG /sub", false),
    tool("find --json --type f IMG", false),
    tool("du IMG", false),
    tool("du --json -d 1 IMG", false),
    tool("getfattr -d IMG /hello", false),
    tool("getfattr --json IMG /hello /sub", false),
    tool("cp IMG :/hello DIR/out-copy", false),
    tool("cp IMG DIR/file :/copy", true),
    tool("cp IMG :/hello :/copy", true),
    tool("mv IMG /link /renamed", true),
    tool("rm -f IMG /gone", true),
    tool("rm -rf IMG /gone", true),
    tool("mkdir -p IMG /fresh/below", true),
    tool("ln IMG /hello /again", true),
    tool("chmod -R IMG go-rwx /sub", true),
    tool("chown -R IMG 1:2 /sub", true),
    tool("setfattr -n user.x -v y IMG /hello", true),
    tool("truncate -s 3 IMG /hello", true),
    tool("mknod IMG /pipe p", true),
    tool("touch IMG /hello", true),
    tool("shell -c ls IMG", true),
    tool("shell -r -c ls IMG", false),
    tool("tune IMG -L new", true),
    tool("tune --json IMG -U clear", true),
    tool("resize IMG 3M", true),
    tool("resize --json IMG", true),
    tool("snapshot create IMG monday", true),
    tool("snapshot list IMG", false),
    tool("snapshot list --json IMG", false),
    tool("snapshot prune -n IMG --keep-daily 7", false),
    tool("snapshot prune --json IMG --keep-within 7d", false),
];

const NAMES: [(&str, i32); 41] = [
    ("mkfs", 1),
    ("fsck", 16),
    ("undo", 2),
    ("salvage", 2),
    ("ls", 2),
    ("cat", 2),
    ("stat", 2),
    ("export", 2),
    ("import", 2),
    ("dump", 2),
    ("explain", 2),
    ("replay", 2),
    ("diff", 2),
    ("pack", 2),
    ("unpack", 2),
    ("verify", 2),
    ("prove", 2),
    ("verify-proof", 2),
    ("find", 2),
    ("du", 2),
    ("cp", 2),
    ("clone", 2),
    ("mv", 2),
    ("rm", 2),
    ("mkdir", 2),
    ("ln", 2),
    ("chmod", 2),
    ("chown", 2),
    ("getfattr", 2),
    ("setfattr", 2),
    ("truncate", 2),
    ("mknod", 2),
    ("touch", 2),
    ("shell", 2),
    ("probe", 4),
    ("tune", 2),
    ("info", 2),
    ("resize", 2),
    ("snapshot", 2),
    ("send", 2),
    ("receive", 2),
];

#[test]
fn help_goes_to_standard_output_and_speaks_of_the_image() {
    for (name, _) in NAMES {
        for option in ["-h", "--help"] {
            let assert = betr([name, option]).assert().success().stderr("");
            assert.stdout(
                predicate::str::contains("Usage: betr").and(predicate::str::contains("image")),
            );
        }
        betr([name, "--version"]).assert().success().stdout(predicate::str::contains("0."));
        betr([name, "-V"]).assert().success().stdout(predicate::str::contains("0."));
    }
    betr(["--help"]).assert().success().stdout(predicate::str::contains("fsck"));
    betr(["--version"]).assert().success().stdout(predicate::str::starts_with("betr "));
}

#[test]
fn a_wrong_command_line_is_a_usage_error() {
    for (name, code) in NAMES {
        for args in [&["--no-such-option", "x.img"][..], &["-@", "x.img"], &[]] {
            let assert = betr([name]).args(args).assert().code(code).stdout("");
            assert.stderr(predicate::str::contains("Usage: betr"));
        }
    }
    betr(["no-such-tool"]).assert().code(2).stdout("");
    betr([] as [&str; 0]).assert().code(2).stdout("");
}

#[test]
fn a_sound_image_is_a_success_with_nothing_on_standard_error() {
    for tool in &TOOLS {
        let (_guard, dir) = scratch();
        let image = small_image(&dir);
        let (_, err) = run(tool.line, &image, &dir, 0);
        assert_eq!(err, "", "betr {}", tool.line);
    }
}

#[test]
fn what_only_reads_leaves_no_trace_and_says_the_same_twice() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    age(&image);
    let before = fingerprint(&image);
    for tool in TOOLS.iter().filter(|tool| !tool.writes) {
        let out = |dir: &Path| run(tool.line, &image, dir, 0).0;
        let (_first_guard, first) = scratch();
        let (_second_guard, second) = scratch();
        assert_eq!(out(&first), out(&second), "betr {}", tool.line);
        assert!(fingerprint(&image) == before, "betr {} wrote to the image", tool.line);
    }
    let mut read_only = fs::metadata(&image).unwrap().permissions();
    read_only.set_readonly(true);
    fs::set_permissions(&image, read_only).unwrap();
    for tool in TOOLS.iter().filter(|tool| !tool.writes) {
        let (_out_guard, out) = scratch();
        run(tool.line, &image, &out, 0);
    }
}

#[test]
fn a_clean_image_is_not_written_to_by_a_repair() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    age(&image);
    let before = fingerprint(&image);
    for line in ["fsck -p IMG", "fsck -a IMG", "fsck -y IMG", "fsck -fp IMG", "fsck -fy IMG"] {
        run(line, &image, &dir, 0);
        assert!(fingerprint(&image) == before, "betr {line} wrote to the image");
    }
}

#[test]
fn json_parses_and_begins_with_schema_and_version() {
    let lines = TOOLS.iter().map(|tool| tool.line).filter(|line| line.contains("--json"));
    for line in lines.chain(["mkfs --json DIR/new.img 2M", "mkfs -n --json DIR/new2.img 2M"]) {
        let (_guard, dir) = scratch();
        let image = small_image(&dir);
        let (out, _) = run(line, &image, &dir, 0);
        let value: Value = serde_json::from_str(&out).unwrap();
        let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
        assert_eq!(keys[..2], ["schema", "version"], "betr {line}");
        let name = line.split(' ').next().unwrap();
        assert!(value["schema"].as_str().unwrap().starts_with(&format!("betr.{name}")), "{line}");
        assert!(value["version"].is_u64(), "betr {line}");
    }
}

#[test]
fn a_lock_keeps_others_out_and_is_named() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let before = fingerprint(&image);
    let file = fs::File::open(&image).unwrap();
    let line = format!("process {} (", std::process::id());
    let refused = |line: &str, code: i32| {
        let (out, err) = run(line, &image, &dir, code);
        assert_eq!(out, "", "betr {line}");
        assert!(err.contains("small.img is in use: locked by"), "betr {line}: {err}");
        err
    };
    file.lock().unwrap();
    for tool in &TOOLS {
        let err = refused(tool.line, tool.failed);
        // If the kernel does not show which process holds a lock, the message says how to find out.
        assert!(err.contains(&line) || err.contains("lslocks"), "{err}");
    }
    refused("mkfs -f IMG 2M", 1);
    file.lock_shared().unwrap();
    for tool in &TOOLS {
        match tool.writes {
            true => drop(refused(tool.line, tool.failed)),
            false => drop(run(tool.line, &image, &dir, 0)),
        }
    }
    refused("mkfs -f IMG 2M", 1);
    assert!(fingerprint(&image) == before);
}

#[test]
fn colour_is_never_forced_upon_anybody() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    for tool in TOOLS.iter().filter(|tool| !tool.writes) {
        let (_out_guard, out) = scratch();
        let mut command = betr(words(tool.line, &image, &out));
        command.env("TERM", "xterm").env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1");
        command.assert().success().stdout(predicate::str::contains("\x1b").not());
    }
}
