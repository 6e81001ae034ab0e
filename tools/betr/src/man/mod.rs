//! `betr man`: the manual, generated from the definition of the command line.
//!
//! Section 1 has a page for betr, for each tool, and for each command of a tool with several. Section 8 has pages for
//! the names by which mkfs(8), fsck(8) and mount(8) call the tools; they refer to those in section 1.

mod page;

use std::io;
use std::path::{Path, PathBuf};

use betr_cli::{Exit, Failure, Io, show};
use clap::CommandFactory;

/// Write the manual pages
///
/// They go into the subdirectories man1 and man8, as man(1) wants them: "man -M DIR betr" then shows the first.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The directory, such as /usr/local/share/man
    directory: PathBuf,
}

/// A page of the manual.
pub(crate) struct Page {
    /// The path below the directory of the manual.
    pub path: PathBuf,
    /// The roff source.
    pub text: Vec<u8>,
}

pub(crate) fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    for page in pages()? {
        let path = args.directory.join(&page.path);
        write(&path, &page.text)
            .map_err(|error| Failure::failed(format!("{}: {error}", show::path(&path))))?;
        writeln!(io.out, "{}", show::path(&path))?;
    }
    Ok(Exit::DONE)
}

fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    std::fs::write(path, text)
}

/// All pages of the manual.
pub(crate) fn pages() -> io::Result<Vec<Page>> {
    let mut command = crate::Betr::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    let mut waiting = vec![&command];
    while let Some(command) = waiting.pop() {
        let path = PathBuf::from(format!("man1/{}.1", page::name(command)));
        pages.push(Page { path, text: page::render(command)? });
        waiting.extend(command.get_subcommands());
    }
    for (alias, tool, _) in crate::NAMES {
        let path = PathBuf::from(format!("man8/{alias}.8"));
        pages.push(Page { path, text: format!(".so man1/betr-{tool}.1\n").into_bytes() });
    }
    pages.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(pages)
}
