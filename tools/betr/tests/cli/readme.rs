//! Runs the examples in the documents as they are. `BETR_BLESS=1` writes their output into the documents.

use std::fs;
use std::path::Path;
use std::process::Command;

use betr_cli::skip::need;

use crate::support::scratch;

/// A command of a document, and the output below it.
struct Example {
    command: String,
    output: String,
}

/// A part of a document.
enum Piece {
    /// Lines outside of examples.
    Text(String),
    Example(Example),
}

fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces = vec![Piece::Text(String::new())];
    let mut inside = false;
    for line in text.lines() {
        inside = match inside {
            true => line != "```",
            false => line == "```console",
        };
        if let Some(command) = line.strip_prefix("$ ").filter(|_| inside) {
            pieces.push(Piece::Example(Example { command: command.into(), output: String::new() }));
            continue;
        }
        if matches!(pieces.last(), Some(Piece::Example(_))) && !inside {
            pieces.push(Piece::Text(String::new()));
        }
        if let Some(Piece::Text(text) | Piece::Example(Example { output: text, .. })) =
            pieces.last_mut()
        {
            *text += line;
            text.push('\n');
        }
    }
    pieces
}

/// Runs all commands in one shell; an end marker separates their outputs.
fn run_all(examples: &[&mut Example], dir: &Path) -> Vec<String> {
    const END: &str = "=== end of example ===";
    let commands =
        examples.iter().map(|example| format!("{} 2>&1; echo '{END}'\n", example.command));
    let bin = Path::new(env!("CARGO_BIN_EXE_betr")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output = Command::new("sh")
        .args(["-c", &format!("umask 022\n{}", commands.collect::<String>())])
        .current_dir(dir)
        .env("PATH", path)
        .env_remove("SOURCE_DATE_EPOCH")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let end = format!("{END}\n");
    text.split(&end).map(str::to_owned).take(examples.len()).collect()
}

impl Piece {
    fn example(&mut self) -> Option<&mut Example> {
        match self {
            Piece::Example(example) => Some(example),
            Piece::Text(_) => None,
        }
    }
}

fn can_mount() -> bool {
    rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists()
}

/// Runs the examples of a document, and compares or replaces their output.
fn check(document: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    let mut pieces = pieces(&fs::read_to_string(&path).unwrap());
    let mut examples: Vec<&mut Example> = pieces.iter_mut().filter_map(Piece::example).collect();
    let mounted = examples.iter().position(|example| example.command.contains("betr mount"));
    if let Some(mounted) = mounted
        && !need("root, and /dev/fuse", can_mount())
    {
        examples.truncate(mounted);
    }
    let (_guard, dir) = scratch();
    let found = run_all(&examples, &dir);
    if std::env::var_os("BETR_BLESS").is_none() {
        for (example, found) in examples.iter().zip(found) {
            assert_eq!(found, example.output, "{document}: $ {}", example.command);
        }
        return;
    }
    examples.iter_mut().zip(found).for_each(|(example, found)| example.output = found);
    let text = |piece: &Piece| match piece {
        Piece::Text(text) => text.clone(),
        Piece::Example(Example { command, output }) => format!("$ {command}\n{output}"),
    };
    fs::write(path, pieces.iter().map(text).collect::<String>()).unwrap();
}

#[test]
fn the_readme_says_what_happens() {
    check("README.md");
}

#[test]
fn the_tour_says_what_happens() {
    check("docs/TOUR.md");
}

#[test]
fn the_worked_image_has_these_bytes() {
    check("docs/DATA_FILE.md");
}
