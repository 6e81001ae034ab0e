//! Colors and the text of numbers, which all plots share.

use plotters::prelude::*;

/// The color of a system is the same in all plots.
const COLORS: [(&str, RGBColor); 7] = [
    ("betr", RGBColor(200, 30, 30)),
    ("ext4", RGBColor(40, 90, 170)),
    ("xfs", RGBColor(30, 130, 70)),
    ("btrfs", RGBColor(190, 120, 0)),
    ("bindfs", RGBColor(120, 120, 120)),
    ("betr mounted", RGBColor(150, 60, 160)),
    ("tar", RGBColor(60, 60, 60)),
];
/// The colors of other columns, by their place among the names.
const OTHERS: [RGBColor; 5] = [
    RGBColor(200, 30, 30),
    RGBColor(40, 90, 170),
    RGBColor(30, 130, 70),
    RGBColor(190, 120, 0),
    RGBColor(150, 60, 160),
];

pub(crate) fn color(system: &str, names: &[String]) -> RGBColor {
    let known = COLORS.iter().find(|(name, _)| *name == system).map(|(_, color)| *color);
    let place = || names.iter().position(|name| name == system).unwrap_or(0);
    known.unwrap_or_else(|| OTHERS[place() % OTHERS.len()])
}

/// A size in bytes with its unit.
pub(crate) fn size(bytes: f64) -> String {
    match bytes as u64 {
        bytes if bytes >= 1 << 30 => format!("{} GiB", bytes >> 30),
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    }
}

/// A number in few characters.
pub(crate) fn number(value: f64) -> String {
    let short = |value: f64, unit: &str| {
        let text = if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") };
        format!("{}{unit}", text.strip_suffix(".0").unwrap_or(&text))
    };
    match value {
        value if value >= 1e6 => short(value / 1e6, " M"),
        value if value >= 1e4 => short(value / 1e3, " k"),
        value if value >= 1.0 || value == 0.0 => short(value, ""),
        value => format!("{value:.3}").trim_end_matches('0').to_owned(),
    }
}

/// A ratio that is a power of two, as a whole number or a fraction.
pub(crate) fn ratio(value: f64) -> String {
    if value >= 1.0 { format!("{value:.0}") } else { format!("1/{:.0}", 1.0 / value) }
}
