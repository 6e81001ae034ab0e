//! Rows that contain a text.

use std::sync::Arc;

use crate::sheet::{Row, Rows, Sheet};
use crate::work::Work;

/// A subset of the rows of a sheet.
pub(crate) struct Filtered {
    base: Arc<Sheet>,
    rows: Vec<u32>,
}

impl Rows for Filtered {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn row(&self, at: usize) -> Row {
        self.rows.get(at).map(|row| self.base.rows.row(*row as usize)).unwrap_or_default()
    }

    fn origin(&self, at: usize) -> usize {
        self.rows.get(at).map_or(0, |row| *row as usize)
    }
}

impl Filtered {
    /// The rows of a sheet that contain a text, ignoring case.
    pub(crate) fn of(base: &Arc<Sheet>, text: &str, work: &Work) -> Sheet {
        let wanted = text.to_lowercase();
        let all = base.len();
        let mut rows = Vec::new();
        for at in 0..all {
            if at % 1024 == 0 {
                work.step(at as u64, all as u64);
                if work.is_cancelled() {
                    break;
                }
            }
            if base.rows.row(at).text().to_lowercase().contains(&wanted) {
                rows.push(at as u32);
            }
        }
        let title = format!("{}  [{} with '{text}']", base.title, rows.len());
        let rows = Box::new(Filtered { base: base.clone(), rows });
        let (columns, notes) = (base.columns.clone(), base.notes.clone());
        Sheet { title, columns, notes, rows, start: 0 }
    }
}

/// The first row that contains a text, searched from `from` on with wrap-around; backwards if `back` is set.
pub(crate) fn find(
    sheet: &Sheet,
    text: &str,
    from: usize,
    back: bool,
    work: &Work,
) -> Option<usize> {
    let (wanted, all) = (text.to_lowercase(), sheet.len());
    for step in 1..=all {
        if step % 1024 == 0 {
            work.step(step as u64, all as u64);
            if work.is_cancelled() {
                return None;
            }
        }
        let at = if back { (from + all - step % all) % all } else { (from + step) % all };
        if sheet.rows.row(at).text().to_lowercase().contains(&wanted) {
            return Some(at);
        }
    }
    None
}
