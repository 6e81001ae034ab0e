//! Mechanical style checks: layers, module heads, lengths, words, links, and lists that are kept by hand.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use betr_core::check::{CATALOG, Repairable, Severity};
use betr_core::format::limits::FORMAT_VERSION;

/// A file has at most 700 lines: a longer one has two jobs.
const LINES_MAX: usize = 700;
/// README.md has at most 6 KiB, ARCHITECTURE.md 14 KiB: they are the first pages that a newcomer reads.
const README_BYTES: usize = 6 << 10;
const ARCHITECTURE_BYTES: usize = 14 << 10;
/// Words that name neither a mechanism nor a component.
const BANNED: [&str; 6] = ["so many", "so much", "whoever", "somebody", "nobody", "who comes"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// All files of the project with this extension, by path from the root. Directories of builds and of git are skipped.
fn files(extension: &str) -> BTreeMap<String, String> {
    let (root, mut found) = (root(), BTreeMap::new());
    let mut waiting = vec![root.clone()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                waiting.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                let relative = path.strip_prefix(&root).unwrap().display().to_string();
                found.insert(relative, fs::read_to_string(&path).unwrap());
            }
        }
    }
    assert!(!found.is_empty());
    found
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

fn none(found: Vec<String>) {
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The code of a file without comments and without the test module at its end.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The lines of the code map that list modules of the core.
fn layers() -> Vec<Vec<String>> {
    let map = read("ARCHITECTURE.md");
    let lines = map.lines().skip_while(|line| !line.starts_with("core/ ")).skip(1);
    let rows = lines.take_while(|line| line.starts_with("  "));
    let modules = |row: &str| -> Vec<String> {
        let column = row.trim_start().split("   ").next().unwrap_or_default();
        column.split(' ').map(str::to_owned).collect()
    };
    rows.filter(|row| !row.starts_with("    ")).map(modules).collect()
}

#[test]
fn the_core_imports_downwards() {
    let layers = layers();
    let rank = |module: &str| layers.iter().position(|row| row.iter().any(|name| name == module));
    let mut wrong = Vec::new();
    // Unit tests may use what is above: those of a file are cut off, and here those in a file of their own.
    let is_core = |path: &str| {
        path.starts_with("core/src/") && !path.ends_with("/tests.rs") && !path.contains("/tests/")
    };
    for (path, text) in files("rs").iter().filter(|(path, _)| is_core(path)) {
        let module = path["core/src/".len()..].split(['/', '.']).next().unwrap();
        if module == "lib" {
            continue;
        }
        let Some(mine) = rank(module) else {
            wrong.push(format!("{path}: the code map of ARCHITECTURE.md has no module '{module}'"));
            continue;
        };
        for used in code(text).split("crate::").skip(1) {
            let name: String =
                used.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if rank(&name).is_some_and(|theirs| theirs > mine) {
                wrong.push(format!("{path}: {module} uses {name}, which is above it"));
            }
        }
    }
    none(wrong);
}

#[test]
fn tools_know_no_other_tool() {
    let mut wrong = Vec::new();
    for (path, text) in files("toml") {
        let Some(tool) = path.strip_prefix("tools/").and_then(|path| path.split('/').next()) else {
            continue;
        };
        let dependencies = text.split("[dev-dependencies]").next().unwrap_or_default();
        let named = dependencies.lines().filter_map(|line| line.split('.').next());
        let names = named.filter_map(|name| name.strip_prefix("betr-"));
        for other in names.filter(|_| tool != "betr") {
            if !["core", "offline", "lab", "cli", "copy"].contains(&other) {
                wrong.push(format!("{path}: {tool} uses the tool {other}"));
            }
        }
    }
    none(wrong);
}

/// Images are opened in one room, which locks them and checks what they are.
#[test]
fn only_the_image_module_opens_images() {
    const ROOMS: [&str; 3] = ["core/src/", "tools/cli/src/image", "offline/src/device/scratch.rs"];
    let used = |text: &str| code(text).contains("FileDevice");
    let all = files("rs").into_iter();
    let sources = all.filter(|(path, _)| path.contains("/src/") && !path.starts_with("bench/"));
    none(
        sources
            .filter(|(path, text)| used(text) && !ROOMS.iter().any(|room| path.starts_with(room)))
            .map(|(path, _)| format!("{path} opens a device"))
            .collect(),
    );
}

#[test]
fn the_code_map_names_every_crate() {
    let map = read("ARCHITECTURE.md");
    let mut missing = Vec::new();
    for path in files("toml").keys().filter(|path| path.ends_with("/Cargo.toml")) {
        let directory = path.trim_end_matches("/Cargo.toml");
        let name = directory.split('/').next_back().unwrap();
        if !map.contains(directory) && !map.contains(&format!(" {name}")) {
            missing.push(format!("ARCHITECTURE.md does not name {directory}"));
        }
    }
    none(missing);
}

#[test]
fn every_file_begins_with_what_it_is_and_is_short() {
    let mut wrong = Vec::new();
    for (path, text) in files("rs") {
        if !text.starts_with("//!") && !text.starts_with("#![") {
            wrong.push(format!("{path}: begins without '//!'"));
        }
        let lines = text.lines().count();
        if lines > LINES_MAX {
            wrong.push(format!("{path}: {lines} lines, at most {LINES_MAX} are allowed"));
        }
    }
    for (path, most) in [("README.md", README_BYTES), ("ARCHITECTURE.md", ARCHITECTURE_BYTES)] {
        let bytes = read(path).len();
        if bytes > most {
            wrong.push(format!("{path}: {bytes} bytes, at most {most} are allowed"));
        }
    }
    none(wrong);
}

#[test]
fn comments_and_documents_name_the_mechanism() {
    let mut wrong = Vec::new();
    for (path, text) in files("rs").into_iter().chain(files("md")) {
        let is_code = path.ends_with(".rs");
        for (number, line) in text.lines().enumerate() {
            let line = match is_code {
                true => line.split_once("//").map_or("", |(_, comment)| comment),
                false => line,
            };
            // Quoted names are exempt.
            let plain: String = line.split(['`', '"']).step_by(2).collect();
            let plain = format!(" {} ", plain.to_lowercase());
            let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
            for word in BANNED {
                let is_word = plain.match_indices(word).any(|(at, _)| {
                    let (before, after) = (&plain[..at], &plain[at + word.len()..]);
                    !is_letter(before.chars().next_back()) && !is_letter(after.chars().next())
                });
                if is_word {
                    wrong.push(format!("{path}:{}: '{word}'", number + 1));
                }
            }
        }
    }
    none(wrong);
}

#[test]
fn links_in_documents_lead_somewhere() {
    let mut broken = Vec::new();
    let documents = files("md");
    for (path, text) in &documents {
        let directory = Path::new(path).parent().unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") || link.contains(' ') {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => path.clone(),
                file => normal(&directory.join(file)),
            };
            if !root().join(&target).exists() {
                broken.push(format!("{path}: {link}"));
            } else if !anchor.is_empty()
                && documents
                    .get(&target)
                    .is_some_and(|text| !anchors(text).contains(&anchor.into()))
            {
                broken.push(format!("{path}: {link}: there is no such heading"));
            }
        }
    }
    none(broken);
}

/// The path without `..`.
fn normal(path: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in path.components() {
        match part.as_os_str().to_string_lossy().as_ref() {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part.to_owned()),
        }
    }
    parts.join("/")
}

/// The anchors of all headings, by GitHub's rules.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let title = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// SPEC.md lists the rules by codes of findings; `BETR_BLESS=1` rewrites the list.
/// A reader made from the specification must not refuse the images of this version.
#[test]
fn the_specification_states_its_version_everywhere() {
    let (spec, version) = (read("format/SPEC.md"), FORMAT_VERSION);
    let is_version = |line: &&str| {
        let line = line.to_lowercase();
        line.contains("version of the format")
            && !line.contains(&format!("of the format | {version} |"))
            || line.starts_with("| format version")
                && !line.ends_with(&format!("| {version} | {version} |"))
            || line.split("version").skip(1).any(|rest| {
                let number: String = rest
                    .trim_start_matches(['-', ' '])
                    .chars()
                    .take_while(char::is_ascii_digit)
                    .collect();
                !number.is_empty() && number != version.to_string()
            })
    };
    none(spec.lines().filter(is_version).map(String::from).collect());
    assert!(
        spec.matches(&format!("| {version} |")).count() >= 3,
        "superblock, identity and limits"
    );
}

#[test]
fn the_spec_lists_the_rules_that_findings_cite() {
    const BEGIN: &str = "<!-- rules: written by tests/all/tidy.rs -->\n";
    const END: &str = "<!-- end of rules -->\n";
    let spec = read("format/SPEC.md");
    let (before, rest) = spec.split_once(BEGIN).expect("a list of rules");
    let (listed, after) = rest.split_once(END).expect("the end of the list of rules");
    let mut list = String::from(
        "| rule | section | violated if | | repair |\n| --- | --- | --- | --- | --- |\n",
    );
    for problem in CATALOG {
        let severity = if problem.severity == Severity::Error { "error" } else { "note" };
        let repair = match problem.repairable {
            Repairable::Nothing => "none needed",
            Repairable::Safely => "safe",
            Repairable::WithLoss => "may lose data",
            Repairable::No => "impossible",
        };
        let (name, rule, title) = (problem.name, problem.rule, problem.title);
        list += &format!("| {name} | {rule} | {title} | {severity} | {repair} |\n");
    }
    if std::env::var_os("BETR_BLESS").is_some() {
        fs::write(root().join("format/SPEC.md"), format!("{before}{BEGIN}{list}{END}{after}"))
            .unwrap();
    } else {
        assert_eq!(listed, list, "format/SPEC.md, 13.1: BETR_BLESS=1 writes it afresh");
    }
}
