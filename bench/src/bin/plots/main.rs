//! Draws the curves among what `bench/mount/run.py --json` measured. A curve is made of steps whose names differ in one number
//! alone, the round or the size; each file system is a line of it.
//!
//!     cargo run --release -p betr-bench --bin plots -- RESULTS.json bench/mount

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use serde_json::Value;

/// 720 and 420 pixels: two plots beside each other on a usual screen.
const SIZE: (u32, u32) = (720, 420);
/// 96 pixels beside a plot, for the names of its lines.
const LEGEND: u32 = 96;
/// 14 pixels: a line of text.
const LINE: i32 = 14;
/// 3 points: fewer are no curve.
const POINTS_MIN: usize = 3;
/// A factor of 16 between the greatest and the smallest value: beyond it the axis is logarithmic.
const LINEAR_MAX: f64 = 16.0;
/// The color of a file system is the same in all plots.
const COLORS: [(&str, RGBColor); 5] = [
    ("betr", RGBColor(200, 30, 30)),
    ("ext4", RGBColor(40, 90, 170)),
    ("xfs", RGBColor(30, 130, 70)),
    ("btrfs", RGBColor(190, 120, 0)),
    ("bindfs", RGBColor(120, 120, 120)),
];

/// Draws the curves of a run of bench/mount/run.py.
#[derive(Parser)]
struct Args {
    /// What run.py wrote with --json.
    results: PathBuf,
    /// The directory for the plots.
    directory: PathBuf,
}

/// The name of a plot: workload, step without its number, and unit.
type Name = (String, String, String);
/// All values at a number, which may be of several runs.
type Points = BTreeMap<u64, Vec<f64>>;
/// The lines of a plot, by file system.
type Lines = BTreeMap<String, Points>;

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let results: Value = serde_json::from_slice(&fs::read(&args.results)?)?;
    let samples = results["samples"].as_array().ok_or("no samples in the results")?;
    let mut plots: BTreeMap<Name, Lines> = BTreeMap::new();
    for sample in samples {
        let text = |field: &str| sample[field].as_str().map(str::to_owned);
        let (Some(workload), Some(step)) = (text("workload"), text("step")) else { continue };
        let (Some(system), Some(unit)) = (text("file_system"), text("unit")) else { continue };
        let (Some((number, rest)), Some(value)) = (split(&step), sample["value"].as_f64()) else {
            continue;
        };
        let lines = plots.entry((workload, rest, unit)).or_default();
        lines.entry(system).or_default().entry(number).or_default().push(value);
    }
    for (name, lines) in plots {
        let numbers: BTreeSet<u64> = lines.values().flat_map(Points::keys).copied().collect();
        if numbers.len() >= POINTS_MIN {
            let file = args.directory.join(file_name(&name));
            draw(&file, &name, &lines, &numbers)?;
            println!("{}", file.display());
        }
    }
    Ok(())
}

/// The first number in the name of a step, in bytes if it is a size, and the name with a letter in its place.
fn split(step: &str) -> Option<(u64, String)> {
    let from = step.find(|c: char| c.is_ascii_digit())?;
    let len = step[from..].find(|c: char| !c.is_ascii_digit()).unwrap_or(step.len() - from);
    let (number, rest) = (step[from..from + len].parse().ok()?, &step[from + len..]);
    let (number, letter, rest) = match rest.strip_prefix(" KiB") {
        Some(rest) => (number << 10, "size", rest),
        None => (number, "N", rest),
    };
    Some((number, format!("{}{letter}{rest}", &step[..from])))
}

fn file_name((workload, step, _): &Name) -> String {
    let words = step.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(str::to_lowercase).collect();
    format!("{workload}-{}.svg", words.join("-"))
}

/// Draws one plot.
fn draw(
    file: &Path,
    name: &Name,
    lines: &Lines,
    numbers: &BTreeSet<u64>,
) -> Result<(), Box<dyn Error>> {
    let values = || lines.values().flat_map(|points| points.values().map(|all| median(all)));
    let most = values().fold(0.0, f64::max);
    let least = values().fold(f64::MAX, f64::min);
    let (first, last) = (numbers.first().copied(), numbers.last().copied());
    let ends = (first.unwrap_or(0) as f64, last.unwrap_or(0) as f64);
    let (is_size, is_wide) = (name.1.contains("size"), least > 0.0 && most > LINEAR_MAX * least);
    match (is_size, is_wide) {
        (true, true) => drawn(
            file,
            (name, lines),
            (ends.0..ends.1).log_scale().base(2.0),
            (least / 1.5..most * 1.5).log_scale(),
        ),
        (true, false) => {
            drawn(file, (name, lines), (ends.0..ends.1).log_scale().base(2.0), 0.0..most * 1.1)
        }
        (false, true) => {
            drawn(file, (name, lines), ends.0..ends.1, (least / 1.5..most * 1.5).log_scale())
        }
        (false, false) => drawn(file, (name, lines), ends.0..ends.1, 0.0..most * 1.1),
    }
}

/// Draws one plot with these axes.
fn drawn<X, Y>(
    file: &Path,
    ((workload, step, unit), lines): (&Name, &Lines),
    x: X,
    y: Y,
) -> Result<(), Box<dyn Error>>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{workload}: {step}"), ("sans-serif", 18))
        .margin(12)
        .margin_right(LEGEND)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(x, y)?;
    let is_size = step.contains("size");
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_labels(10)
        .x_desc(if is_size { "size" } else { "N" })
        .y_desc(unit)
        .x_label_formatter(&|number| if is_size { size(*number) } else { format!("{number:.0}") })
        .y_label_formatter(&|value| format!("{value}"))
        .draw()?;
    let mut labels = Vec::new();
    for (system, points) in lines {
        let known = COLORS.iter().find(|(name, _)| name == system);
        let color = known.map_or(BLACK, |(_, color)| *color);
        let points: Vec<(f64, f64)> =
            points.iter().map(|(number, all)| (*number as f64, median(all))).collect();
        chart.draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))?;
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, color.filled())))?;
        let end = points.last().map(|end| chart.backend_coord(end));
        labels.extend(end.map(|(x, y)| (y - LINE / 2, x + LINE, system, color)));
    }
    // Each line has its name behind its end; names of lines that end together are below each other.
    labels.sort_by_key(|(y, ..)| *y);
    let mut free = 0;
    for (y, x, system, color) in labels {
        let at = y.max(free);
        free = at + LINE;
        area.draw(&Text::new(
            system.clone(),
            (x, at),
            ("sans-serif", 13).into_font().color(&color),
        ))?;
    }
    area.present()?;
    Ok(())
}

/// The median of some values.
fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 => (values[middle - 1] + values[middle]) / 2.0,
        _ => values[middle],
    }
}

/// A size in bytes with its unit.
fn size(bytes: f64) -> String {
    match bytes as u64 {
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    }
}
