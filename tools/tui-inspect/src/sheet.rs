//! Sheets: the content of a pane as rows of cells with links to spots.
//!
//! A query makes a sheet in another thread; afterwards the sheet does not change. A long sheet keeps only the data of
//! its rows and makes each row when it is displayed.

use serde_json::{Map, Value};

use crate::spot::Spot;

/// The meaning of a text, from which its style follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    #[default]
    Plain,
    Dim,
    Strong,
    Good,
    Warn,
    Bad,
    Link,
}

/// A text in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    pub text: String,
    pub role: Role,
}

/// A row and its links: `Enter` follows the first spot, other keys the first spot of their kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub cells: Vec<Cell>,
    pub spots: Vec<Spot>,
    /// The depth in a tree.
    pub depth: usize,
}

/// A column of a sheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub name: &'static str,
    /// The width in characters; 0 takes the remaining width.
    pub width: u16,
    pub right: bool,
}

/// Rows that are made on demand.
pub(crate) trait Rows: Send + Sync {
    fn len(&self) -> usize;
    fn row(&self, at: usize) -> Row;

    /// The index of a row in the unfiltered sheet.
    fn origin(&self, at: usize) -> usize {
        at
    }
}

impl Rows for Vec<Row> {
    fn len(&self) -> usize {
        Vec::len(self)
    }

    fn row(&self, at: usize) -> Row {
        self.get(at).cloned().unwrap_or_default()
    }
}

/// The content of a pane.
pub(crate) struct Sheet {
    pub title: String,
    pub columns: Vec<Column>,
    /// Lines above the rows.
    pub notes: Vec<Cell>,
    pub rows: Box<dyn Rows>,
    /// The row that is selected first.
    pub start: usize,
}

impl Cell {
    pub(crate) fn new(role: Role, text: impl ToString) -> Cell {
        Cell { text: text.to_string(), role }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::new(Role::Plain, text)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell { text, role: Role::Plain }
    }
}

impl Row {
    /// A row without links.
    pub(crate) fn of(cells: Vec<Cell>) -> Row {
        Row { cells, spots: Vec::new(), depth: 0 }
    }

    /// A line of text in the first column.
    pub(crate) fn line(role: Role, text: impl ToString) -> Row {
        Row::of(vec![Cell::new(role, text)])
    }

    /// The same row with links to some spots.
    pub(crate) fn to(mut self, spots: impl IntoIterator<Item = Spot>) -> Row {
        self.spots.extend(spots);
        self
    }

    /// The whole row as one text, for search and filter.
    pub(crate) fn text(&self) -> String {
        let cells: Vec<&str> = self.cells.iter().map(|cell| cell.text.as_str()).collect();
        cells.join(" ")
    }
}

/// A column of fixed width.
pub(crate) const fn column(name: &'static str, width: u16) -> Column {
    Column { name, width, right: false }
}

/// A right-aligned column of numbers.
pub(crate) const fn numbers(name: &'static str, width: u16) -> Column {
    Column { name, width, right: true }
}

/// A column that takes the remaining width.
pub(crate) const fn rest(name: &'static str) -> Column {
    Column { name, width: 0, right: false }
}

impl Sheet {
    /// A sheet whose rows are all in memory.
    pub(crate) fn new(title: impl ToString, columns: Vec<Column>, rows: Vec<Row>) -> Sheet {
        Sheet {
            title: title.to_string(),
            columns,
            notes: Vec::new(),
            rows: Box::new(rows),
            start: 0,
        }
    }

    /// A sheet of names and values.
    pub(crate) fn facts(title: impl ToString, rows: Vec<Row>) -> Sheet {
        Sheet::new(title, vec![column("", 18), rest("")], rows)
    }

    /// The same sheet with a note above its rows.
    pub(crate) fn note(mut self, role: Role, text: impl ToString) -> Sheet {
        self.notes.push(Cell::new(role, text));
        self
    }

    /// The same sheet with the first selected row set.
    pub(crate) fn at(mut self, start: usize) -> Sheet {
        self.start = start;
        self
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// A row as JSON: its cells by column name, and its first address.
    pub(crate) fn object(&self, at: usize) -> Value {
        let row = self.rows.row(at);
        let mut object = Map::new();
        for (index, cell) in row.cells.iter().enumerate() {
            let name =
                self.columns.get(index).map(|column| column.name).filter(|name| !name.is_empty());
            let name =
                name.map_or_else(|| format!("column_{index}"), |name| name.replace(' ', "_"));
            // Numbers are displayed in groups of digits; JSON has them as numbers.
            let is_number = self.columns.get(index).is_some_and(|column| column.right);
            let number = cell.text.replace(' ', "").parse::<u64>().ok().filter(|_| is_number);
            object.insert(name, number.map_or_else(|| cell.text.as_str().into(), Value::from));
        }
        if let Some(spot) = row.spots.first() {
            object.insert("address".into(), spot.to_string().into());
        }
        Value::Object(object)
    }
}

/// A row with a name and a value, for a sheet with these two columns.
pub(crate) fn fact(name: &str, value: impl Into<Cell>) -> Row {
    Row::of(vec![Cell::new(Role::Dim, name), value.into()])
}
