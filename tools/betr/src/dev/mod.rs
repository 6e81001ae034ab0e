//! `betr dev`: tools for developers of betr, and for teaching.

mod crash;
mod damage;
mod make_broken;
pub(crate) mod powercut;

use betr_cli::{Exit, Failure, Io};

/// Tools for developers
#[derive(clap::Subcommand, Debug)]
pub(crate) enum Dev {
    Crash(crash::Args),
    Damage(damage::Args),
    MakeBroken(make_broken::Args),
    Powercut(powercut::Args),
}

impl Dev {
    pub(crate) fn run(&self, io: &mut Io) -> Result<Exit, Failure> {
        match self {
            Dev::Crash(args) => crash::run(args, io),
            Dev::Damage(args) => damage::run(args, io),
            Dev::MakeBroken(args) => make_broken::run(args, io),
            Dev::Powercut(args) => powercut::run(args, io),
        }
    }
}
