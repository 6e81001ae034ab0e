//! The manual and the completions: every tool has a page, and man(1) can show it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use betr_cli::skip::{need, program};

use crate::support::*;

/// The manual in a directory of its own, and the names in its section 1.
fn manual(dir: &Path) -> (PathBuf, Vec<String>) {
    let man = dir.join("a/man");
    let (out, _) = run("man DIR/a/man", dir, dir, 0);
    let (first, eighth) = (names(&man.join("man1")), names(&man.join("man8")));
    assert_eq!(eighth, ["fsck.betr.8", "mkfs.betr.8", "mount.betr.8", "mount.fuse.betr.8"]);
    assert_eq!(out.lines().count(), first.len() + eighth.len());
    (man, first)
}

fn text_of(page: &Path) -> String {
    fs::read_to_string(page).unwrap()
}

#[test]
fn every_tool_has_a_page_with_its_codes() {
    let (_guard, dir) = scratch();
    let (man, pages) = manual(&dir);
    let (help, _) = run("--help", &dir, &dir, 0);
    let commands = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    for line in commands.lines().filter(|line| !line.starts_with("   ")) {
        let tool = line.split_whitespace().next().unwrap();
        assert!(tool == "help" || pages.contains(&format!("betr-{tool}.1")), "{tool}");
    }
    assert!(pages.iter().any(|page| page == "betr.1"));
    assert!(pages.iter().all(|page| !page.contains("help")));
    for page in &pages {
        let text = text_of(&man.join("man1").join(page));
        for section in ["NAME", "SYNOPSIS", "EXIT STATUS", "ENVIRONMENT", "SEE ALSO"] {
            assert_eq!(
                text.matches(&format!("\n.SH \"{section}\"\n")).count()
                    + text.matches(&format!("\n.SH {section}\n")).count(),
                1,
                "{page}: {section}"
            );
        }
        assert!(!text.contains("Exit codes"), "{page}");
    }
    let fsck = text_of(&man.join("man1/betr-fsck.1"));
    assert!(
        fsck.contains("\\fB16\\fR\nwrong usage") && fsck.contains("The codes add up."),
        "{fsck}"
    );
    assert!(text_of(&man.join("man1/betr-mkfs.1")).contains("SOURCE_DATE_EPOCH"));
    assert!(!fsck.contains("SOURCE_DATE_EPOCH"));
}

#[test]
fn a_page_refers_only_to_pages_that_are_there() {
    let (_guard, dir) = scratch();
    let (man, pages) = manual(&dir);
    for page in &pages {
        let text = text_of(&man.join("man1").join(page)).replace("\\-", "-");
        for word in text.split_whitespace().filter(|word| word.starts_with("betr")) {
            if let Some((name, _)) = word.split_once("(1)") {
                assert!(pages.contains(&format!("{name}.1")), "{page} refers to {name}(1)");
            }
        }
    }
    for (alias, page) in [("mkfs.betr.8", "man1/betr-mkfs.1"), ("fsck.betr.8", "man1/betr-fsck.1")]
    {
        assert_eq!(text_of(&man.join("man8").join(alias)), format!(".so {page}\n"));
        assert!(man.join(page).exists());
    }
}

#[test]
fn man_shows_them_without_a_warning() {
    let (_guard, dir) = scratch();
    let (man, pages) = manual(&dir);
    let program = program("man");
    if !need("man of man-db", program.is_some()) {
        return;
    }
    let program = program.unwrap();
    let shown = |args: &[&str]| {
        let mut command = Command::new(&program);
        let output = command.env("LC_ALL", "C").env("MANWIDTH", "100").args(args).output().unwrap();
        let (out, err) = text(&output);
        assert!(output.status.success() && err.is_empty(), "man {args:?}: {err}");
        out
    };
    for page in &pages {
        let path = man.join("man1").join(page);
        let out = shown(&["--warnings", "-E", "ascii", "-l", path.to_str().unwrap()]);
        let (name, version) = (page.trim_end_matches(".1"), env!("CARGO_PKG_VERSION"));
        assert!(out.contains(&format!("{name}(1)")), "{page}: {out}");
        assert!(out.contains(&format!("betr {version}")), "{page}: {out}");
    }
    let out = shown(&["-M", man.to_str().unwrap(), "-E", "ascii", "8", "fsck.betr"]);
    assert!(out.contains("betr-fsck - Check a betr image"), "{out}");
}

#[test]
fn completions_are_what_the_shell_understands() {
    let (_guard, dir) = scratch();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (out, _) = run(&format!("completions {shell}"), &dir, &dir, 0);
        assert!(out.contains("betr") && out.contains("mkfs") && out.contains("fsck"), "{shell}");
        fs::write(dir.join(shell), out).unwrap();
    }
    let bash = program("bash");
    if need("bash", bash.is_some()) {
        let script = format!(
            ". {}/bash; COMP_WORDS=(betr fs); COMP_CWORD=1; _betr betr fs betr; echo \"${{COMPREPLY[@]}}\"",
            dir.display()
        );
        let output = Command::new(bash.unwrap()).args(["-c", &script]).output().unwrap();
        assert_eq!(text(&output), ("fsck\n".to_owned(), String::new()));
    }
    betr(["completions", "csh"]).assert().code(2).stdout("");
}
