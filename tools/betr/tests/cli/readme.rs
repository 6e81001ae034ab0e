//! The examples of the README, run as they stand there.

use std::fs;
use std::path::Path;
use std::process::Command;

use betr_cli::skip::need;

use crate::support::scratch;

/// A command of the README, and what stands below it.
struct Example {
    command: String,
    output: String,
}

fn examples(text: &str) -> Vec<Example> {
    let mut found: Vec<Example> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match (inside, line.strip_prefix("$ ")) {
            (false, _) => inside = line == "```console",
            (true, _) if line == "```" => inside = false,
            (true, Some(command)) => {
                found.push(Example { command: command.into(), output: String::new() })
            }
            (true, None) => {
                let example = found.last_mut().expect("a command comes before its output");
                example.output += line;
                example.output.push('\n');
            }
        }
    }
    found
}

/// Runs all commands in one shell; a line of its own ends the output of each.
fn run_all(examples: &[Example], dir: &Path) -> Vec<String> {
    const END: &str = "=== end of example ===";
    let commands =
        examples.iter().map(|example| format!("{} 2>&1; echo '{END}'\n", example.command));
    let bin = Path::new(env!("CARGO_BIN_EXE_betr")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output = Command::new("sh")
        .args(["-c", &commands.collect::<String>()])
        .current_dir(dir)
        .env("PATH", path)
        .env_remove("SOURCE_DATE_EPOCH")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let end = format!("{END}\n");
    text.split(&end).map(str::to_owned).take(examples.len()).collect()
}

fn can_mount() -> bool {
    rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists()
}

#[test]
fn says_what_happens() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = fs::read_to_string(&readme).unwrap();
    let mut examples = examples(&text);
    assert!(examples.len() > 10);
    let mounted = examples.iter().position(|example| example.command.contains("betr mount"));
    let mounted = mounted.expect("an example of a mount");
    if !need("root, and /dev/fuse", can_mount()) {
        examples.truncate(mounted);
    }
    let (_guard, dir) = scratch();
    for (example, found) in examples.iter().zip(run_all(&examples, &dir)) {
        assert_eq!(found, example.output, "$ {}", example.command);
    }
}
