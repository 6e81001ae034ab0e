//! The command line.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
use serde::Serialize;

use crate::engine::NAMES;
use crate::phase::{Contents, Phase};
use crate::units::{parse_count, parse_size};

/// Compares embedded key-value engines on the same work
///
/// Every run of every engine is a process of its own, so that memory and bytes are its own. The
/// tables show medians of all runs.
#[derive(Parser, Debug)]
#[command(version, max_term_width = 100, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to compare.
    #[command(flatten)]
    pub compare: Compare,
    /// What a process is told that was started to do a part of it.
    #[command(subcommand)]
    pub part: Option<Part>,
}

/// What to compare, and where.
#[derive(Args, Debug)]
pub struct Compare {
    /// The work.
    #[command(flatten)]
    pub load: Load,
    /// Engines to compare
    #[arg(long, value_delimiter = ',', default_values = NAMES)]
    #[arg(value_parser = PossibleValuesParser::new(NAMES))]
    pub engines: Vec<String>,
    /// Runs of each engine; engines take turns
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// Keep the database of each engine, and let engines take turns with each phase
    ///
    /// The runs of gets, scans and updates follow one another closely, so that a machine whose
    /// speed changes does not favour an engine. Phases that need a database of their own have one
    /// run.
    #[arg(long)]
    pub by_phase: bool,
    /// Directory on a real disk to work in; nothing stays there [default: /var/tmp]
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Write everything that was measured to a file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The work that every engine is given.
#[derive(Args, Clone, Debug, Serialize)]
pub struct Load {
    /// Keys in the database; k, M and G stand for thousands, millions and so on
    #[arg(long, default_value = "5M", value_parser = parse_count)]
    pub keys: u64,
    /// What an engine may use to cache what it read; KiB, MiB and GiB are known
    #[arg(long, default_value = "256MiB", value_parser = parse_size)]
    pub cache: u64,
    /// Everything random follows from this number
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Phases to run, always in this order [default: all]
    #[arg(long, value_delimiter = ',', hide_default_value = true)]
    #[arg(default_values_t = <Phase as clap::ValueEnum>::value_variants().to_vec())]
    pub phases: Vec<Phase>,
}

/// The hidden half of the command line.
#[derive(Subcommand, Debug)]
pub enum Part {
    /// Runs one engine once, and prints an object in JSON for each phase
    #[command(hide = true)]
    Child(Child),
}

/// One run of one engine.
#[derive(Args, Debug)]
pub struct Child {
    /// The work.
    #[command(flatten)]
    pub load: Load,
    /// The engine.
    #[arg(long)]
    pub engine: String,
    /// The number of the run.
    #[arg(long)]
    pub run: u32,
    /// The directory of the database.
    #[arg(long)]
    pub dir: PathBuf,
    /// What the database holds already
    #[arg(long, default_value_t)]
    pub holds: Contents,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn defaults_are_as_the_help_says() {
        let cli = Cli::try_parse_from(["engines"]).unwrap();
        assert_eq!(cli.compare.load.keys, 5_000_000);
        assert_eq!(cli.compare.load.cache, 256 << 20);
        assert_eq!(cli.compare.load.phases.len(), 8);
        assert_eq!(cli.compare.engines, NAMES);
    }

    #[test]
    fn lists_are_divided_at_commas() {
        let words = ["engines", "--engines", "redb,lmdb", "--phases", "cold-get,random-insert"];
        let cli = Cli::try_parse_from(words).unwrap();
        assert_eq!(cli.compare.engines, ["redb", "lmdb"]);
        assert_eq!(cli.compare.load.phases, [Phase::ColdGet, Phase::RandomInsert]);
        assert!(Cli::try_parse_from(["engines", "--engines", "none"]).is_err());
        assert!(Cli::try_parse_from(["engines", "--runs", "0"]).is_err());
    }
}
