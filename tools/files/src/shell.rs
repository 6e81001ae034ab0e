//! `betr shell`: commands on one image, interactive or from a script.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, IsTerminal};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use betr_cli::view::PastArgs;
use betr_cli::{Exit, Failure, Io};
use betr_core::error::Refusal;
use betr_core::format::FileType;
use betr_core::fs::LastLink;
use betr_core::volume::Mode;
use clap::error::ErrorKind;
use clap::{FromArgMatches, Subcommand};
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{CompletionType, Editor, Helper, Highlighter, Hinter, Validator};
use shlex::bytes::Shlex;

use crate::session::shown;
use crate::{Session, Verb};

/// Run commands on an image, one after another
///
/// All commands on files, without the image among their arguments; `cd`, which resolves symbolic links as cd -P does, and
/// `pwd`; `help` lists them. Each is durable when the next begins, and does all that it is to do, or nothing. Commands come
/// from -c, from standard input, or, where that is a terminal, from the keyboard, with completion by the Tab key and a
/// history, which is kept in $XDG_STATE_HOME/betr/history. A script ends with the first command that fails, and so does the
/// shell, with the exit code of that. Words are separated as in sh(1), with quotation marks and backslashes; a # begins a
/// comment.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Change nothing; with --overlay or --as-of nothing can be changed anyway
    #[arg(short, long)]
    read_only: bool,
    /// Run this command; may be given several times
    #[arg(short, long, value_name = "COMMAND")]
    command: Vec<String>,
    #[command(flatten)]
    image: PastArgs,
}

impl Args {
    /// Runs the tool.
    pub fn run(&self, io: &mut Io) -> Result<Exit, Failure> {
        let view = self.image.view();
        let read_only = self.read_only || view.overlay.is_some() || view.as_of.is_some();
        let mode = if read_only { Mode::ReadOnly } else { Mode::ReadWrite };
        let shell = Shell { session: RefCell::new(Session::open(view, mode, io)?) };
        if !self.command.is_empty() {
            let lines = self.command.iter().map(|line| Ok(line.clone().into_bytes()));
            return shell.script("-c", lines, io);
        }
        let input = std::io::stdin();
        if input.is_terminal() {
            return shell.by_hand(io);
        }
        shell.script("standard input", input.lock().split(b'\n'), io)
    }
}

/// The result of a line.
enum Done {
    /// A command ran; its exit code.
    Ran(Exit),
    /// The line ends the shell.
    Left,
}

struct Shell {
    session: RefCell<Session>,
}

impl Shell {
    fn script(
        &self,
        name: &str,
        lines: impl Iterator<Item = std::io::Result<Vec<u8>>>,
        io: &mut Io,
    ) -> Result<Exit, Failure> {
        for (number, line) in lines.enumerate() {
            let at = format!("{name}, line {}", number + 1);
            let line = line.map_err(|error| Failure::failed(format!("{at}: {error}")))?;
            match self.line(&line, io) {
                Ok(Done::Ran(Exit::DONE)) => {}
                Ok(Done::Ran(exit)) => return Ok(exit),
                Ok(Done::Left) => break,
                Err(failure) if failure.is_broken_pipe() => return Err(failure),
                Err(mut failure) => {
                    failure.message = format!("{at}: {}", failure.message);
                    return Err(failure);
                }
            }
        }
        Ok(Exit::DONE)
    }

    fn by_hand(&self, io: &mut Io) -> Result<Exit, Failure> {
        let broken = |error: ReadlineError| Failure::failed(format!("the terminal: {error}"));
        let config = rustyline::Config::builder().completion_type(CompletionType::List).build();
        let mut editor: Editor<Names<'_>, DefaultHistory> =
            Editor::with_config(config).map_err(broken)?;
        editor.set_helper(Some(Names { shell: self }));
        // Without a history the shell works all the same.
        let history = history();
        if let Some(path) = &history {
            let _ = editor.load_history(path);
        }
        let ended = self.prompt(&mut editor, io);
        if let Some(path) = &history {
            let _ = std::fs::create_dir_all(path.parent().unwrap_or(path));
            let _ = editor.save_history(path);
        }
        ended
    }

    fn prompt(
        &self,
        editor: &mut Editor<Names<'_>, DefaultHistory>,
        io: &mut Io,
    ) -> Result<Exit, Failure> {
        let broken = |error: ReadlineError| Failure::failed(format!("the terminal: {error}"));
        loop {
            let prompt =
                format!("{}> ", shown(&self.session.borrow().operand(Path::new(".")).shown()));
            let line = match editor.readline(&prompt) {
                Ok(line) => line,
                Err(ReadlineError::Interrupted) => continue,
                Err(ReadlineError::Eof) => return Ok(Exit::DONE),
                Err(error) => return Err(broken(error)),
            };
            // A line that the history rejects still runs.
            let _ = editor.add_history_entry(&line);
            match self.line(line.as_bytes(), io) {
                Ok(Done::Left) => return Ok(Exit::DONE),
                Ok(Done::Ran(_)) => {}
                Err(failure) => io.note(&format!("betr: {failure}"))?,
            }
            io.out.flush()?;
        }
    }

    fn line(&self, line: &[u8], io: &mut Io) -> Result<Done, Failure> {
        let words: Vec<Vec<u8>> = Shlex::new(line).collect();
        let sound = {
            let mut split = Shlex::new(line);
            split.by_ref().for_each(drop);
            !split.had_error
        };
        if !sound {
            return Err(Failure::usage("a quotation mark or a backslash has no end"));
        }
        let Some((verb, rest)) = words.split_first() else { return Ok(Done::Ran(Exit::DONE)) };
        let mut session = self.session.borrow_mut();
        match (&verb[..], rest) {
            (b"exit" | b"quit", []) => return Ok(Done::Left),
            (b"help", []) => writeln!(io.out, "{}", help())?,
            (b"pwd", []) => {
                writeln!(io.out, "{}", shown(&session.operand(Path::new(".")).shown()))?
            }
            (b"cd", []) => session.directory.clear(),
            (b"cd", [path]) => {
                let path = session.operand(Path::new(OsStr::from_bytes(path)));
                let found = session.look_up(&path, LastLink::Follow)?;
                if !found.object.is_directory() {
                    return Err(session.refused(&path, Refusal::NotADirectory));
                }
                session.directory = found.path;
            }
            (b"exit" | b"quit" | b"help" | b"pwd" | b"cd", _) => {
                return Err(Failure::usage("too many words"));
            }
            _ => {
                let image = session.image().as_os_str().to_owned();
                let line = [OsString::from_vec(verb.clone()), image].into_iter();
                let line = line.chain(rest.iter().cloned().map(OsString::from_vec));
                let parsed = parser().try_get_matches_from(line);
                let verb = parsed.and_then(|matches| Verb::from_arg_matches(&matches));
                let verb = match verb {
                    Ok(verb) => verb,
                    Err(error) if !error.use_stderr() => {
                        io.out.write_all(without_image(&error).as_bytes())?;
                        return Ok(Done::Ran(Exit::DONE));
                    }
                    Err(error) if error.kind() == ErrorKind::InvalidSubcommand => {
                        let text =
                            format!("{}: no such command; 'help' lists them", shown(&words[0]));
                        return Err(Failure::usage(text));
                    }
                    Err(error) => return Err(Failure::usage(without_image(&error))),
                };
                if verb.command().image().0.overlay.is_some() {
                    let text = "--overlay: say it to the shell, for all of its commands";
                    return Err(Failure::usage(text));
                }
                return verb.command().act(&mut session, io).map(Done::Ran);
            }
        }
        Ok(Done::Ran(Exit::DONE))
    }
}

/// The file with the history of all shells.
fn history() -> Option<PathBuf> {
    let directory =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || Some(directory("HOME")?.join(".local/state"));
    Some(directory("XDG_STATE_HOME").or_else(home)?.join("betr/history"))
}

/// The parser for a line, whose image is inserted after the first word.
fn parser() -> clap::Command {
    let parser = clap::Command::new("betr").no_binary_name(true).max_term_width(100);
    Verb::augment_subcommands(parser)
}

/// A message of clap, without the image argument that a shell's commands lack.
fn without_image(error: &clap::Error) -> String {
    error.to_string().replace(" <IMAGE>", "")
}

fn help() -> String {
    let own = [
        ("cd", "Change the directory that paths begin in"),
        ("pwd", "Show that directory"),
        ("help", "Show this; COMMAND --help shows more"),
        ("exit", "Leave"),
    ];
    let verbs = parser();
    let verbs = verbs.get_subcommands().map(|verb| {
        let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
        (verb.get_name().to_owned(), about)
    });
    let own = own.map(|(name, about)| (name.to_owned(), about.to_owned()));
    let lines = verbs.chain(own).map(|(name, about)| format!("  {name:<10} {about}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Completes the names of commands, and paths of the image.
#[derive(Helper, Highlighter, Hinter, Validator)]
struct Names<'s> {
    shell: &'s Shell,
}

impl Completer for Names<'_> {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let start = line[..at].rfind(char::is_whitespace).map_or(0, |space| space + 1);
        let word = &line[start..at];
        if line[..start].trim().is_empty() {
            let verbs = parser();
            let verbs = verbs.get_subcommands().map(|verb| verb.get_name().to_owned());
            let own = ["cd", "exit", "help", "pwd"].map(str::to_owned);
            let found = verbs.chain(own).filter(|name| name.starts_with(word));
            return Ok((start, found.map(|name| pair(&name, " ")).collect()));
        }
        // A directory that cannot be listed has no completions.
        Ok((start, self.paths(word).unwrap_or_default()))
    }
}

impl Names<'_> {
    fn paths(&self, word: &str) -> Option<Vec<Pair>> {
        let colon = if word.starts_with(':') { ":" } else { "" };
        let word = &word[colon.len()..];
        let (directory, begun) = match word.rfind('/') {
            Some(slash) => word.split_at(slash + 1),
            None => ("", word),
        };
        let session = self.shell.session.borrow();
        let operand =
            session.operand(Path::new(if directory.is_empty() { "." } else { directory }));
        let found = session.look_up(&operand, LastLink::Follow).ok()?;
        let fs = session.fs();
        let mut listing = fs.listing(&found.object, None).ok()?;
        let mut found = Vec::new();
        while let Some(entry) = fs.next_entry(&mut listing).ok()? {
            let Ok(name) = std::str::from_utf8(&entry.name) else { continue };
            if name.starts_with(begun) && found.len() < COMPLETIONS {
                let end = if entry.kind == FileType::Directory { "/" } else { " " };
                let quoted = shlex::try_quote(name).ok()?;
                found.push(pair(&format!("{colon}{directory}{quoted}"), end));
            }
        }
        Some(found)
    }
}

/// The most completions that are offered.
const COMPLETIONS: usize = 1000;

fn pair(text: &str, end: &str) -> Pair {
    Pair { display: shown(text.as_bytes()), replacement: format!("{text}{end}") }
}
