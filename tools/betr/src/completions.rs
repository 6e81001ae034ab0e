//! `betr completions`: generated from the definition of the command line.

use betr_cli::{Exit, Failure, Io};
use clap::CommandFactory;
use clap_complete::Shell;

/// Print completions for a shell
///
/// The output goes where the shell looks for completions of "betr"; "betr install" puts those of bash, zsh
/// and fish there.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args, io: &mut Io) -> Result<Exit, Failure> {
    io.data().write_all(&text(args.shell))?;
    Ok(Exit::DONE)
}

/// The completions for a shell.
pub(crate) fn text(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut crate::Betr::command(), "betr", &mut text);
    text
}
