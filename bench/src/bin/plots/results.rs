//! The samples of a run, by experiment, as curves and as ratios.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// The column that ratios are of, unless an experiment names another one.
pub(crate) const BASELINE: &str = "betr";
/// 3 points: fewer are no curve.
const POINTS_MIN: usize = 3;

/// An experiment with its samples, in the order in which they were measured.
pub(crate) struct Experiment {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) baseline: String,
    samples: Vec<Sample>,
}

struct Sample {
    step: String,
    unit: String,
    system: String,
    value: f64,
    /// The axis of a curve, and the place on it.
    place: Option<(String, f64)>,
}

/// The values of all runs.
#[derive(Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) most: f64,
}

/// The lines of a plot, one for each system.
pub(crate) struct Curve {
    pub(crate) step: String,
    pub(crate) unit: String,
    pub(crate) axis: String,
    pub(crate) lines: Vec<(String, Vec<(f64, Spread)>)>,
}

/// How many times as fast the baseline is as each peer; greater is better.
pub(crate) struct Row {
    pub(crate) label: String,
    pub(crate) ratios: Vec<(String, Spread)>,
}

/// Reads all experiments, in the order of their first samples.
pub(crate) fn read(path: &Path) -> Result<Vec<Experiment>, Box<dyn Error>> {
    let results: Value = serde_json::from_slice(&fs::read(path)?)?;
    let samples = results["samples"].as_array().ok_or("no samples in the results")?;
    let mut experiments: Vec<Experiment> = Vec::new();
    for sample in samples {
        let text = |field: &str| sample[field].as_str().unwrap_or_default().to_owned();
        let name = text("experiment");
        if experiments.iter().all(|experiment| experiment.name != name) {
            let about = &results["experiments"][&name];
            let of = |field: &str| about[field].as_str().unwrap_or_default().to_owned();
            let (title, baseline) = (of("title"), of("baseline"));
            experiments.push(Experiment { name: name.clone(), title, baseline, samples: vec![] });
        }
        let place = sample["axis"].as_str().zip(sample["x"].as_f64());
        let sample = Sample {
            step: text("step"),
            unit: text("unit"),
            system: text("system"),
            value: sample["value"].as_f64().ok_or("a sample without a value")?,
            place: place.map(|(axis, x)| (axis.to_owned(), x)),
        };
        let experiment = experiments.iter_mut().find(|experiment| experiment.name == name);
        experiment.ok_or("no experiment")?.samples.push(sample);
    }
    Ok(experiments)
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => (values[middle - 1] + values[middle]) / 2.0,
            _ => values[middle],
        };
        Some(Spread { least, median, most })
    }

    /// How many times as fast this is as a peer. None if the unit is of an amount.
    fn times_as_fast(self, peer: Spread, unit: &str) -> Option<Spread> {
        let by = |over: Spread, under: Spread| Spread {
            least: over.least / under.most,
            median: over.median / under.median,
            most: over.most / under.least,
        };
        if self.least <= 0.0 || peer.least <= 0.0 {
            return None;
        }
        match unit {
            "s" | "ms" | "us" => Some(by(peer, self)),
            _ if unit.ends_with("/s") => Some(by(self, peer)),
            _ => None,
        }
    }
}

impl Experiment {
    /// The names of systems, the baseline last, so that it is drawn above others.
    fn systems(&self) -> Vec<&str> {
        let mut found = Vec::new();
        for sample in &self.samples {
            if !found.contains(&&*sample.system) {
                found.push(&*sample.system);
            }
        }
        found.sort_by_key(|system| *system == self.baseline);
        found
    }

    /// All curves with enough points.
    pub(crate) fn curves(&self) -> Vec<Curve> {
        let mut found: Vec<Curve> = Vec::new();
        for sample in &self.samples {
            let Some((axis, _)) = &sample.place else { continue };
            let (step, unit) = (&sample.step, &sample.unit);
            if found.iter().any(|curve| curve.step == *step && curve.unit == *unit) {
                continue;
            }
            let lines =
                self.systems().into_iter().map(|s| (s.to_owned(), self.line(s, step, unit)));
            let lines: Vec<_> = lines.filter(|(_, points)| !points.is_empty()).collect();
            if lines.iter().any(|(_, points)| points.len() >= POINTS_MIN) {
                let (step, unit, axis) = (step.clone(), unit.clone(), axis.clone());
                found.push(Curve { step, unit, axis, lines });
            }
        }
        // One step may have curves in several units: all but the first are named by their unit.
        for number in 1..found.len() {
            if found[..number].iter().any(|earlier| earlier.step == found[number].step) {
                found[number].step = format!("{}, {}", found[number].step, found[number].unit);
            }
        }
        found
    }

    fn line(&self, system: &str, step: &str, unit: &str) -> Vec<(f64, Spread)> {
        // Places are whole numbers.
        let mut points: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for sample in &self.samples {
            if (&*sample.system, &*sample.step, &*sample.unit) == (system, step, unit)
                && let Some((_, x)) = sample.place
            {
                points.entry(x as u64).or_default().push(sample.value);
            }
        }
        points.into_iter().filter_map(|(x, all)| Some((x as f64, Spread::of(all)?))).collect()
    }

    fn spread(&self, system: &str, step: &str, unit: &str) -> Option<Spread> {
        let of = |sample: &&Sample| {
            (&*sample.system, &*sample.step, &*sample.unit) == (system, step, unit)
                && sample.place.is_none()
        };
        Spread::of(self.samples.iter().filter(of).map(|sample| sample.value).collect())
    }

    /// The ratios of all steps that are no curves.
    pub(crate) fn ratios(&self) -> Vec<Row> {
        let mut steps: Vec<(&str, &str)> = Vec::new();
        for sample in self.samples.iter().filter(|sample| sample.place.is_none()) {
            if !steps.contains(&(&sample.step, &sample.unit)) {
                steps.push((&sample.step, &sample.unit));
            }
        }
        let row = |(step, unit): (&str, &str)| {
            let base = self.spread(&self.baseline, step, unit)?;
            let peers = self.systems().into_iter().filter(|system| *system != self.baseline);
            let ratio = |peer: &str| {
                let spread = self.spread(peer, step, unit)?;
                Some((peer.to_owned(), base.times_as_fast(spread, unit)?))
            };
            let ratios: Vec<_> = peers.filter_map(ratio).collect();
            (!ratios.is_empty()).then(|| Row { label: step.to_owned(), ratios })
        };
        steps.into_iter().filter_map(row).collect()
    }

    /// The ratios of the points of its curves: all sizes, but only the last point of a count.
    fn curve_ratios(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for curve in self.curves() {
            let of = |name: &str| curve.lines.iter().find(|(system, _)| system == name);
            let Some((_, base)) = of(&self.baseline) else { continue };
            let last = base.last().map(|(x, _)| *x);
            for (x, spread) in base {
                if curve.axis != "bytes" && Some(*x) != last {
                    continue;
                }
                let peers = curve.lines.iter().filter(|(system, _)| *system != self.baseline);
                let ratio = |(peer, points): &(String, Vec<(f64, Spread)>)| {
                    let (_, other) = points.iter().find(|(place, _)| place == x)?;
                    Some((peer.clone(), spread.times_as_fast(*other, &curve.unit)?))
                };
                rows.push(Row {
                    label: curve.step.clone(),
                    ratios: peers.filter_map(ratio).collect(),
                });
            }
        }
        rows
    }
}

/// The geometric mean of the medians of each experiment's ratios, with the least and the greatest ratio.
pub(crate) fn summary(experiments: &[Experiment]) -> Vec<Row> {
    let mut rows = Vec::new();
    for experiment in experiments.iter().filter(|experiment| experiment.baseline == BASELINE) {
        let mut of: Vec<(String, Vec<f64>)> = Vec::new();
        for row in experiment.ratios().into_iter().chain(experiment.curve_ratios()) {
            for (peer, spread) in row.ratios {
                match of.iter_mut().find(|(name, _)| *name == peer) {
                    Some((_, all)) => all.push(spread.median),
                    None => of.push((peer, vec![spread.median])),
                }
            }
        }
        let mean = |(peer, all): (String, Vec<f64>)| {
            let median = (all.iter().map(|value| value.ln()).sum::<f64>() / all.len() as f64).exp();
            let Spread { least, most, .. } = Spread::of(all)?;
            Some((peer, Spread { least, median, most }))
        };
        let ratios: Vec<_> = of.into_iter().filter_map(mean).collect();
        if !ratios.is_empty() {
            rows.push(Row { label: experiment.title.clone(), ratios });
        }
    }
    rows
}
