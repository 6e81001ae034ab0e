//! The fields of a structure, as its decoder reads them.

use std::fmt;
use std::ops::Range;

use betr_core::format::Trace;

/// A field of a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, after the names of its groups, as in errors: `child 3, pivot`.
    pub name: String,
    /// Its byte range in the structure.
    pub bytes: Range<usize>,
    /// Its value, as text that is safe to print.
    pub value: String,
}

/// Collects the fields of a decoder.
#[derive(Default)]
pub(super) struct Collector {
    groups: Vec<String>,
    pub fields: Vec<Field>,
}

impl Trace for Collector {
    fn enter(&mut self, name: &'static str, index: Option<usize>) {
        self.groups.push(match index {
            Some(index) => format!("{name} {index}, "),
            None => format!("{name}, "),
        });
    }

    fn leave(&mut self) {
        self.groups.pop();
    }

    fn field(&mut self, name: &'static str, bytes: Range<usize>, value: &dyn fmt::Display) {
        let name = format!("{}{name}", self.groups.concat());
        self.fields.push(Field { name, bytes, value: value.to_string() });
    }
}
