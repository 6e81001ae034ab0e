//! Progress on a terminal: a line that appears after a second, and is erased at the end.

use std::fs;
use std::process::Command;

use betr_cli::skip::need;

use crate::support::*;

/// The prefix of the line for an import.
const LINE: &str = "Importing: ";

/// Imports from a pipe that stays open for a while. Returns the output on the terminal.
fn imported(dir: &std::path::Path, term: &str, seconds: &str, end: &str) -> Option<String> {
    if !need("script(1)", Command::new("script").arg("--version").output().is_ok()) {
        return None;
    }
    let image = small_image(dir);
    let (image, archive) = (image.display(), dir.join("t.tar"));
    let archive = archive.display();
    let line = format!(
        "(cat {archive}; sleep {seconds}) | {BETR} import {image} - /new {end}; echo \"ended with $?\""
    );
    let mut terminal = Command::new("script");
    let output = terminal.args(["-qec", &line, "/dev/null"]).env("TERM", term).output().unwrap();
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn scratch_with_archive() -> (tempfile::TempDir, std::path::PathBuf) {
    let (guard, dir) = scratch();
    fs::create_dir(dir.join("tree")).unwrap();
    fs::write(dir.join("tree/file"), pattern(100_000)).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-cf").arg(dir.join("t.tar")).arg("-C").arg(dir.join("tree")).arg(".");
    assert!(tar.status().unwrap().success());
    (guard, dir)
}

#[test]
fn a_line_is_drawn_and_wiped() {
    let (_guard, dir) = scratch_with_archive();
    let Some(out) = imported(&dir, "xterm", "3", "") else { return };
    assert!(out.contains(&format!("{LINE}1 files and directories, 97.7 KiB")), "{out:?}");
    // The last line is erased before the result is printed.
    let (line, rest) = out.rsplit_once(LINE).unwrap();
    assert!(line.contains('\r') || rest.contains('\r'), "{out:?}");
    assert!(rest.contains("\u{1b}[2K") || rest.contains("\u{1b}[K"), "{out:?}");
    assert!(rest.contains("1 files of 100000 bytes") && rest.contains("ended with 0"), "{out:?}");
}

#[test]
fn nothing_is_drawn_where_it_is_not_wanted() {
    let (_guard, dir) = scratch_with_archive();
    for (term, seconds, end) in
        [("dumb", "2", ""), ("xterm", "0", ""), ("xterm", "2", "-q"), ("xterm", "2", "2>/dev/null")]
    {
        let Some(out) = imported(&dir, term, seconds, end) else { return };
        assert!(!out.contains(LINE) && out.contains("ended with 0"), "{term} {end}: {out:?}");
    }
}

#[test]
fn an_interrupt_leaves_a_clean_line() {
    let (_guard, dir) = scratch_with_archive();
    let end = "& sleep 2; kill -INT $!; wait $!";
    let Some(out) = imported(&dir, "xterm", "4", end) else { return };
    let (_, rest) = out.rsplit_once(LINE).unwrap();
    assert!(rest.contains("\u{1b}[2K") || rest.contains("\u{1b}[K"), "{out:?}");
}
