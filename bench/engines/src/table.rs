//! Tables of text in aligned columns.

use std::fmt;

/// A head and rows; the first column is aligned to the left, all others to the right.
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table that has no rows yet.
    pub fn new(head: Vec<String>) -> Self {
        Table { head, rows: Vec::new() }
    }

    /// Adds a row; one that is shorter than the head ends in text that may run on to the right.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    fn widths(&self) -> Vec<usize> {
        let full = self.rows.iter().filter(|row| row.len() == self.head.len());
        let mut widths = vec![0; self.head.len()];
        for row in full.chain([&self.head]) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for row in &self.rows {
            widths[0] = widths[0].max(row[0].chars().count());
        }
        widths
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        for row in [&self.head].into_iter().chain(&self.rows) {
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                match column {
                    0 => write!(out, "{cell:<width$}")?,
                    _ if row.len() < self.head.len() => write!(out, "  {cell}")?,
                    _ => write!(out, "  {cell:>width$}")?,
                }
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect();
        let mut table = Table::new(words("engine rate s"));
        table.row(words("a 12 1.5"));
        table.row(words("longer 1,234 0.25"));
        table.row(vec!["b".into(), "skipped for a reason".into()]);
        let expected = "engine   rate     s\n\
                        a          12   1.5\n\
                        longer  1,234  0.25\n\
                        b       skipped for a reason\n";
        assert_eq!(table.to_string(), expected);
    }
}
