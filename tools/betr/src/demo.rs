//! `betr demo`: works on a real tree, and shows every command as a user would type it.
//!
//! It makes an image of the tree, changes it, cuts the power during a write, shows the state, repairs the image,
//! inspects it, exports everything again and compares the result with the original.

mod compare;

use std::path::{Path, PathBuf};

use betr_cli::{Exit, Failure, Io, show};

use crate::dev::powercut;

/// Make an image of a real tree, cut its power, check it, look inside, and compare with the original
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The tree [default: the current directory, without what is tagged as a cache]
    directory: Option<PathBuf>,
}

/// Lines of a dump that the demo shows.
const SHOWN: usize = 24;

/// Runs one command line, given as words without the program's name.
type Betr = fn(&[&str], &mut Io) -> Result<Exit, Failure>;

/// Runs the demo.
pub(crate) fn run(args: &Args, io: &mut Io, betr: Betr) -> Result<Exit, Failure> {
    let tree = args.directory.clone().unwrap_or_else(|| PathBuf::from("."));
    let work = std::env::temp_dir().join(format!("betr-demo-{}", std::process::id()));
    let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", show::path(&work)));
    std::fs::create_dir(&work).map_err(failed)?;
    let result = Demo { work: &work, betr, io }.story(&tree);
    std::fs::remove_dir_all(&work).map_err(failed)?;
    result
}

struct Demo<'d, 'i> {
    work: &'d Path,
    betr: Betr,
    io: &'d mut Io<'i>,
}

impl Demo<'_, '_> {
    fn story(mut self, tree: &Path) -> Result<Exit, Failure> {
        let path = |name: &str| self.work.join(name).to_string_lossy().into_owned();
        let (image, out) = (path("demo.img"), path("out"));
        let (image, out, source) = (image.as_str(), out.as_str(), tree.to_string_lossy());

        self.say(
            "An image of a real tree, in one pass: every byte is hashed, one hash stands for all.",
        )?;
        self.step(&[
            "mkfs",
            image,
            "-d",
            &source,
            "--exclude-caches",
            "-L",
            "demo",
            "--node-size",
            "64K",
        ])?;
        self.step(&["fsck", "-fnv", image])?;

        self.say("Work on it, and cut the power while a sync is under way.")?;
        self.step(&["dev", "powercut", image])?;
        self.say(
            "The log holds what was synced. With -n it is replayed in memory; nothing is written.",
        )?;
        self.step(&["fsck", "-fn", image])?;
        self.excerpt(&["dump", image, "log"])?;
        self.say("Now for good.")?;
        self.step(&["fsck", "-fy", image])?;
        self.step(&["fsck", "-f", "-n", "-v", image])?;

        self.say("Messages wait in the root of the data tree until there are enough to move on.")?;
        self.excerpt(&["dump", image, "tree"])?;
        self.excerpt(&["dump", image, "node", "n:2"])?;

        self.say("Everything out again, and compared with the original.")?;
        self.step(&["export", image, out])?;
        let out = Path::new(out);
        let files = self
            .survivors(&out.join(std::str::from_utf8(powercut::DIRECTORY).unwrap_or_default()))?;
        let same = compare::compare(tree, out, &[powercut::DIRECTORY])?;
        writeln!(
            self.io.out,
            "equal: {same} files, directories and links, with types, modes, owners, sizes, contents and times"
        )?;
        writeln!(
            self.io.out,
            "equal: {files} files of the work before the power cut: all that were synced, none half written"
        )?;
        self.say("What to try next:")?;
        writeln!(
            self.io.out,
            "    betr mkfs my.img -d SOME/DIRECTORY    then: betr ls -lR my.img\n    \
             betr import my.img FILE /name         then: betr cat my.img /name\n    \
             betr dump my.img super                every byte of the superblock\n    \
             betr fsck --explain L02               what a finding means"
        )?;
        Ok(Exit::DONE)
    }

    fn say(&mut self, text: &str) -> Result<(), Failure> {
        Ok(writeln!(self.io.out, "\n# {text}")?)
    }

    /// Runs a command, and shows its whole output.
    fn step(&mut self, words: &[&str]) -> Result<(), Failure> {
        writeln!(self.io.out, "$ betr {}", words.join(" "))?;
        let exit = (self.betr)(words, self.io)?;
        succeeded(words, exit)
    }

    /// Runs a command, and shows the first [`SHOWN`] lines of its output.
    fn excerpt(&mut self, words: &[&str]) -> Result<(), Failure> {
        writeln!(self.io.out, "$ betr {}", words.join(" "))?;
        let mut printed = Vec::new();
        let exit = (self.betr)(words, &mut Io::plain(&mut printed, self.io.err))?;
        let text = String::from_utf8_lossy(&printed);
        let mut lines = text.lines();
        for line in lines.by_ref().take(SHOWN) {
            let end = line.char_indices().nth(110).map_or(line.len(), |(end, _)| end);
            writeln!(self.io.out, "{}", &line[..end])?;
        }
        let (more, last) = (lines.clone().count().saturating_sub(1), lines.last());
        if let Some(last) = last {
            writeln!(self.io.out, "  … {more} more lines …\n{last}")?;
        }
        succeeded(words, exit)
    }

    /// Counts the files that survived the power cut: they must be a prefix of the written ones, each complete.
    fn survivors(&self, directory: &Path) -> Result<u32, Failure> {
        let mut count = 0;
        while let Ok(found) = std::fs::read(directory.join(powercut::file_name(count))) {
            // Creating a file and writing it are two operations, so the last file may be empty.
            if found != powercut::contents(count) && !found.is_empty() {
                return Err(Failure::failed(format!(
                    "file {count} of the power cut is not what was written"
                )));
            }
            count += 1;
        }
        let acknowledged = powercut::acknowledged(powercut::FILES);
        if count < acknowledged {
            return Err(Failure::failed(format!(
                "{acknowledged} files were synced before the power cut, {count} are left"
            )));
        }
        Ok(count)
    }
}

fn succeeded(words: &[&str], exit: Exit) -> Result<(), Failure> {
    // `fsck` ends with 1 if it has repaired something.
    let fine = match words[0] {
        "fsck" => exit == Exit::DONE || exit == Exit::CORRECTED,
        // Only root may set owners.
        "export" => exit == Exit::DONE || exit == Exit::FAILED,
        _ => exit == Exit::DONE,
    };
    if fine {
        Ok(())
    } else {
        Err(Failure::failed(format!("betr {} ended with {}", words[0], exit.code())))
    }
}
