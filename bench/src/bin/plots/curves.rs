//! Draws a curve: a line for each system, with the range of all runs at each point.

use std::error::Error;
use std::path::Path;

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use crate::results::Curve;
use crate::style;

/// 720 and 420 pixels: two plots beside each other on a usual screen.
const SIZE: (u32, u32) = (720, 420);
/// 96 pixels beside a plot, for the names of its lines.
const LEGEND: u32 = 96;
/// 14 pixels: a line of text.
const LINE: i32 = 14;
/// A factor of 16 between the greatest and the smallest value: beyond it the axis is logarithmic.
const LINEAR_MAX: f64 = 16.0;

/// Draws one plot. Sizes have a logarithmic axis.
pub(crate) fn draw(file: &Path, title: &str, curve: &Curve) -> Result<(), Box<dyn Error>> {
    let points = || curve.lines.iter().flat_map(|(_, points)| points);
    let most = points().map(|(_, spread)| spread.most).fold(0.0, f64::max);
    let least = points().map(|(_, spread)| spread.least).fold(f64::MAX, f64::min);
    let first = points().map(|(x, _)| *x).fold(f64::MAX, f64::min);
    let last = points().map(|(x, _)| *x).fold(0.0, f64::max);
    // All values may be zero.
    let linear = 0.0..if most > 0.0 { most * 1.1 } else { 1.0 };
    let wide = (least / 1.5..most * 1.5).log_scale();
    let sizes = (first..last).log_scale().base(2.0);
    match (curve.axis == "bytes", least > 0.0 && most > LINEAR_MAX * least) {
        (true, true) => drawn(file, title, curve, sizes, wide),
        (true, false) => drawn(file, title, curve, sizes, linear),
        (false, true) => drawn(file, title, curve, first..last, wide),
        (false, false) => drawn(file, title, curve, first..last, linear),
    }
}

/// Draws one plot with these axes.
fn drawn<X, Y>(file: &Path, title: &str, curve: &Curve, x: X, y: Y) -> Result<(), Box<dyn Error>>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{title}: {}", curve.step), ("sans-serif", 18))
        .margin(12)
        .margin_right(LEGEND)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(x, y)?;
    let is_size = curve.axis == "bytes";
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_labels(10)
        .x_desc(if is_size { "size" } else { &curve.axis })
        .y_desc(&curve.unit)
        .x_label_formatter(&|x| if is_size { style::size(*x) } else { style::number(*x) })
        .y_label_formatter(&|value| style::number(*value))
        .draw()?;
    let names: Vec<String> = curve.lines.iter().map(|(system, _)| system.clone()).collect();
    let mut labels = Vec::new();
    for (system, points) in &curve.lines {
        let color = style::color(system, &names);
        let medians = || points.iter().map(|(x, spread)| (*x, spread.median));
        chart.draw_series(LineSeries::new(medians(), color.stroke_width(2)))?;
        chart.draw_series(medians().map(|point| Circle::new(point, 3, color.filled())))?;
        let ranges = points.iter().filter(|(_, spread)| spread.least < spread.most);
        chart.draw_series(ranges.map(|(x, spread)| {
            PathElement::new(vec![(*x, spread.least), (*x, spread.most)], color.stroke_width(1))
        }))?;
        let end = medians().next_back().map(|end| chart.backend_coord(&end));
        labels.extend(end.map(|(x, y)| (y - LINE / 2, x + LINE, system, color)));
    }
    // Each line has its name behind its end; names of lines that end together are below each other.
    labels.sort_by_key(|(y, ..)| *y);
    let mut free = 0;
    for (y, x, system, color) in labels {
        let at = y.max(free);
        free = at + LINE;
        let font = ("sans-serif", 13).into_font().color(&color);
        area.draw(&Text::new(system.clone(), (x, at), font))?;
    }
    area.present()?;
    Ok(())
}
