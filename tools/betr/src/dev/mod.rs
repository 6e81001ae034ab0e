//! `betr dev`: tools for those who develop or teach betr.

mod crash;
pub(crate) mod powercut;

use betr_cli::{Exit, Failure, Io};

/// Tools for developers
#[derive(clap::Subcommand, Debug)]
pub(crate) enum Dev {
    Crash(crash::Args),
    Powercut(powercut::Args),
}

impl Dev {
    pub(crate) fn run(&self, io: &mut Io) -> Result<Exit, Failure> {
        match self {
            Dev::Crash(args) => crash::run(args, io),
            Dev::Powercut(args) => powercut::run(args, io),
        }
    }
}
