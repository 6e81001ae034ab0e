//! Records what a decoder reads: fields with their byte ranges, in groups.

use std::fmt;
use std::ops::Range;

use betr_core::format::Trace;

/// A field, or a group of them.
pub(crate) enum Item {
    /// A field: name, byte range, value.
    Field(&'static str, Range<usize>, String),
    /// A group: name, index if there are several, items.
    Group(&'static str, Option<usize>, Vec<Item>),
}

/// The trace that records a decoder's fields.
#[derive(Default)]
pub(crate) struct Recorder {
    open: Vec<(&'static str, Option<usize>, Vec<Item>)>,
    items: Vec<Item>,
    end: usize,
}

impl Recorder {
    /// The recorded items, and the end of the last field. Fields follow one another from the start.
    pub(crate) fn finish(mut self) -> (Vec<Item>, usize) {
        while !self.open.is_empty() {
            self.leave();
        }
        (self.items, self.end)
    }

    fn push(&mut self, item: Item) {
        match self.open.last_mut() {
            Some((.., items)) => items.push(item),
            None => self.items.push(item),
        }
    }
}

impl Trace for Recorder {
    fn enter(&mut self, name: &'static str, index: Option<usize>) {
        self.open.push((name, index, Vec::new()));
    }

    fn leave(&mut self) {
        if let Some((name, index, items)) = self.open.pop() {
            self.push(Item::Group(name, index, items));
        }
    }

    fn field(&mut self, name: &'static str, bytes: Range<usize>, value: &dyn fmt::Display) {
        if bytes.start > self.end {
            self.push(Item::Field("gap", self.end..bytes.start, "not decoded".into()));
        }
        self.end = self.end.max(bytes.end);
        self.push(Item::Field(name, bytes, value.to_string()));
    }
}
