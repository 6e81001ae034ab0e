//! Draws ratios: a row for each step and a dot for each peer, on a logarithmic axis with a line at 1.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::results::Row;
use crate::style;

/// 860 pixels, of which 330 are for the names of rows.
const WIDTH: u32 = 860;
const LABELS: u32 = 330;
/// 22 pixels for each row, 110 for the title, the names of peers and the axis.
const ROW: u32 = 22;
const REST: u32 = 110;
/// The axis has at least 1/4 to 4.
const LEAST_RANGE: f64 = 4.0;

/// Draws one plot.
pub(crate) fn draw(
    file: &Path,
    title: &str,
    baseline: &str,
    rows: &[Row],
) -> Result<(), Box<dyn Error>> {
    let spreads = || rows.iter().flat_map(|row| &row.ratios).map(|(_, spread)| spread);
    let most = spreads().map(|spread| spread.most).fold(LEAST_RANGE, f64::max);
    let least = spreads().map(|spread| spread.least).fold(1.0 / LEAST_RANGE, f64::min);
    let height = REST + ROW * rows.len() as u32;
    let area = SVGBackend::new(file, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .margin_top(8)
        .margin_left(LABELS)
        .x_label_area_size(40)
        .build_cartesian_2d(
            (least / 1.2..most * 1.2).log_scale().base(2.0),
            0.0..rows.len() as f64,
        )?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .light_line_style(WHITE)
        .x_label_formatter(&|value| style::ratio(*value))
        .x_desc(format!("time of the peer / time of {baseline}; right of 1 {baseline} is faster"))
        .draw()?;
    let one = vec![(1.0, 0.0), (1.0, rows.len() as f64)];
    chart.draw_series([PathElement::new(one, BLACK.stroke_width(1))])?;
    let mut names: Vec<String> = Vec::new();
    for (peer, _) in rows.iter().flat_map(|row| &row.ratios) {
        if !names.contains(peer) {
            names.push(peer.clone());
        }
    }
    let right = Pos::new(HPos::Right, VPos::Center);
    for (number, row) in rows.iter().enumerate() {
        // The first row is above.
        let top = (rows.len() - number) as f64;
        let (_, y) = chart.backend_coord(&(1.0, top - 0.5));
        let font = ("sans-serif", 13).into_font().color(&BLACK).pos(right);
        area.draw(&Text::new(row.label.clone(), (LABELS as i32 - 10, y), font))?;
        for (peer, spread) in &row.ratios {
            let place = names.iter().position(|name| name == peer).unwrap_or(0);
            let y = top - (place as f64 + 1.0) / (names.len() as f64 + 1.0);
            let color = style::color(peer, &names);
            let range = vec![(spread.least, y), (spread.most, y)];
            chart.draw_series([PathElement::new(range, color.stroke_width(1))])?;
            chart.draw_series([Circle::new((spread.median, y), 3, color.filled())])?;
        }
    }
    // The names of peers are below the axis, at the left.
    let mut x = 16;
    for name in &names {
        let font = ("sans-serif", 13).into_font().color(&style::color(name, &names));
        area.draw(&Text::new(name.clone(), (x, height as i32 - 26), font))?;
        x += 12 + 8 * name.len() as i32;
    }
    area.present()?;
    Ok(())
}
