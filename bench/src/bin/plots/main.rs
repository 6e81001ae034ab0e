//! Draws the results of `bench/run --json`: a curve for each step that has points, a plot of ratios for the other steps of
//! each experiment, and a summary. `bench/run` calls it:
//!
//!     plots RESULTS.json bench/plots
//!
//! It prints the names of the files that it writes. It measures nothing.

mod curves;
mod ratios;
mod results;
mod style;

use std::error::Error;
use std::path::PathBuf;

use clap::Parser;

/// Draw the results of bench/run
#[derive(Parser)]
struct Args {
    /// What `run --json` wrote
    results: PathBuf,
    /// The directory for the plots
    directory: PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let experiments = results::read(&args.results)?;
    for experiment in &experiments {
        for curve in experiment.curves() {
            let file = args.directory.join(file_name(&experiment.name, &curve.step));
            curves::draw(&file, &experiment.title, &curve)?;
            println!("{}", file.display());
        }
        let rows = experiment.ratios();
        if !rows.is_empty() {
            let file = args.directory.join(format!("{}.svg", experiment.name));
            ratios::draw(&file, &experiment.title, &experiment.baseline, &rows)?;
            println!("{}", file.display());
        }
    }
    let rows = results::summary(&experiments);
    if rows.len() > 1 {
        let file = args.directory.join("summary.svg");
        ratios::draw(&file, "Geometric means", results::BASELINE, &rows)?;
        println!("{}", file.display());
    }
    Ok(())
}

fn file_name(experiment: &str, step: &str) -> String {
    let words = step.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(str::to_lowercase).collect();
    format!("{experiment}-{}.svg", words.join("-"))
}
