//! `betr dev man` and `betr dev completions`: made from the command line's own description.

use std::path::{Path, PathBuf};

use betr_cli::{Exit, Failure, Io, show};
use clap::CommandFactory;
use clap_complete::Shell;

/// Write the manual pages into a directory
#[derive(clap::Args, Debug)]
pub(crate) struct ManArgs {
    /// The directory, which must exist
    directory: PathBuf,
}

/// Print completions for a shell
#[derive(clap::Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(crate) fn man(args: &ManArgs, io: &mut Io) -> Result<Exit, Failure> {
    let mut command = crate::Betr::command();
    command.build();
    page(&args.directory, &command, "betr", io)?;
    for tool in command.get_subcommands().filter(|tool| tool.get_name() != "help") {
        page(&args.directory, tool, &format!("betr-{}", tool.get_name()), io)?;
    }
    Ok(Exit::DONE)
}

fn page(directory: &Path, command: &clap::Command, name: &str, io: &mut Io) -> Result<(), Failure> {
    let path = directory.join(format!("{name}.8"));
    let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", show::path(&path)));
    let mut text = Vec::new();
    let man = clap_mangen::Man::new(command.clone()).title(name).section("8");
    man.render(&mut text).map_err(failed)?;
    std::fs::write(&path, text).map_err(failed)?;
    Ok(writeln!(io.out, "{}", show::path(&path))?)
}

pub(crate) fn completions(args: &CompletionsArgs, io: &mut Io) -> Result<Exit, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Betr::command(), "betr", &mut text);
    io.out.write_all(&text)?;
    Ok(Exit::DONE)
}
