//! A page of the manual.

use std::io;

use betr_cli::ExitCodes;
use betr_cli::codes::GENERAL;
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// An environment variable, and its effect.
type Variable = (&'static str, &'static str);

/// Variables that every tool reads.
const COLOURS: [Variable; 2] = [
    ("NO_COLOR", "If it is set, and not empty, nothing is coloured."),
    ("CLICOLOR_FORCE", "If it is set, and not 0, colours go into pipes and files too."),
];

const EPOCH: Variable = (
    "SOURCE_DATE_EPOCH",
    "The time to take for now, in seconds since 1970: with it the same input gives the same image. mkfs and \
     import also let no time of what they copy be later.",
);

/// The tools that read the current time.
const TIMED: [&str; 16] = [
    "mkfs", "import", "cp", "clone", "mv", "rm", "mkdir", "ln", "chmod", "chown", "setfattr",
    "truncate", "mknod", "touch", "shell", "resize",
];

/// The name of a command's page, such as `betr-dump-tree`.
pub(super) fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// The roff source of a command's page.
pub(super) fn render(command: &Command) -> io::Result<Vec<u8>> {
    let name = name(command);
    let version = command.get_version().unwrap_or_default();
    let man = Man::new(command.clone());
    // Without `Man`, which omits an empty date, so that the next field takes its place.
    let title = format!(".TH {name} 1 \"\" \"betr {version}\" \"The betr file system\"\n");
    let mut text = title.into_bytes();
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if command.get_arguments().next().is_some() {
        man.render_options_section(&mut text)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    let tool = name.split('-').nth(1).unwrap_or_default();
    let codes = codes(tool);
    let mut rest = Roff::new();
    notes(&mut rest, command, &codes);
    exit_status(&mut rest, &codes);
    environment(&mut rest, tool);
    see_also(&mut rest, name, tool);
    rest.to_writer(&mut text)?;
    Ok(tidy(&text))
}

/// The exit codes of a tool.
fn codes(tool: &str) -> ExitCodes {
    match tool {
        "mkfs" => betr_mkfs::EXIT_CODES,
        "fsck" => betr_fsck::EXIT_CODES,
        "probe" => betr_volume::probe::EXIT_CODES,
        "mount" => betr_mount::EXIT_CODES,
        "salvage" => betr_fsck::salvage::EXIT_CODES,
        "diff" => betr_dump::diff::EXIT_CODES,
        "verify" | "verify-proof" => betr_pack::proof::EXIT_CODES,
        "" => crate::EXIT_CODES,
        _ => GENERAL,
    }
}

/// The text after the help, unless it is the exit codes, which have a section of their own.
fn notes(roff: &mut Roff, command: &Command, codes: &ExitCodes) {
    let Some(text) = command.get_after_help().map(ToString::to_string) else { return };
    if text != codes.to_string() {
        roff.control("SH", ["NOTES"]);
        roff.text([roman(text)]);
    }
}

fn exit_status(roff: &mut Roff, codes: &ExitCodes) {
    roff.control("SH", ["EXIT STATUS"]);
    for (exit, meaning) in codes.codes {
        roff.control("TP", []);
        roff.text([bold(exit.code().to_string())]);
        roff.text([roman(*meaning)]);
    }
    let how = codes.how.trim_start_matches(", which ");
    let add = if how.is_empty() { String::new() } else { format!("The codes {how}. ") };
    let note = format!("{add}{}", codes.note);
    if !note.is_empty() {
        roff.control("PP", []);
        roff.text([roman(note)]);
    }
}

fn environment(roff: &mut Roff, tool: &str) {
    roff.control("SH", ["ENVIRONMENT"]);
    let epoch = TIMED.contains(&tool).then_some(EPOCH);
    for (name, meaning) in epoch.into_iter().chain(COLOURS) {
        roff.control("TP", []);
        roff.text([bold(name)]);
        roff.text([roman(meaning)]);
    }
}

fn see_also(roff: &mut Roff, name: &str, tool: &str) {
    let related = match tool {
        "" => "betr-mkfs(1), betr-fsck(1), betr-ls(1)",
        "mkfs" => "betr(1), mkfs(8)",
        "fsck" => "betr(1), fsck(8)",
        "probe" => "betr(1), blkid(8), wipefs(8)",
        _ => "betr(1)",
    };
    // A command of a tool refers to that tool.
    let above = match name.splitn(3, '-').collect::<Vec<_>>()[..] {
        [betr, tool, _] => format!("{betr}-{tool}(1), "),
        _ => String::new(),
    };
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(format!("{above}{related}"))]);
}

/// Each section repeats the definitions at the beginning; only the first ones are kept. Backslashes and empty lines
/// get their roff names, and breaks beside empty lines are removed.
fn tidy(text: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(text).replace("\\\\", "\\e");
    let (preamble, body): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with(".ie ") || line.starts_with(".el "));
    let mut lines: Vec<&str> = preamble.into_iter().take(2).collect();
    for line in body {
        let line = if line.trim().is_empty() { ".sp" } else { line };
        match (lines.last(), line) {
            (Some(&".sp"), ".br" | ".sp") => continue,
            (Some(&".br"), ".sp") => drop(lines.pop()),
            _ => {}
        }
        lines.push(line);
    }
    lines.into_iter().flat_map(|line| [line, "\n"]).collect::<String>().into_bytes()
}
