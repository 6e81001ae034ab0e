//! Panes with many rows, to benchmark scrolling.

use std::convert::Infallible;
use std::sync::Arc;

use betr_core::device::{Device, MemoryDevice};
use betr_core::format::{Action, FileType, Key, Message, MessageRef, Writer, encode_slice};
use betr_core::ids::{Msn, NodeId, RunSeq, TreeId};
use bytes::Bytes;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use crate::image::{Image, Source};
use crate::model::{Model, Msg, Screen};
use crate::query::{Content, Entries, Messages, Records, Slice};
use crate::sheet::{Rows, Sheet, column, numbers, rest};
use crate::tour;
use crate::view::view;
use crate::work::Work;

/// A pane with many rows.
pub struct Scroll {
    model: Model,
    terminal: Terminal<TestBackend>,
}

/// Messages per slice, as the engine splits runs.
const IN_A_SLICE: u64 = 500;
/// The number of runs with these messages.
const RUNS: u64 = 8;

impl Scroll {
    /// A buffer of `count` messages in eight runs, as if read from a node.
    pub fn buffer(count: u64) -> Scroll {
        let mut slices = Vec::new();
        for run in 0..RUNS {
            let of_run: Vec<u64> = (run..count).step_by(RUNS as usize).collect();
            for numbers in of_run.chunks(IN_A_SLICE as usize) {
                slices.push(slice(run, numbers));
            }
        }
        let place = (NodeId(2), 0, TreeId::Data);
        let messages = Messages::new(place, slices, Vec::new(), false, &Work::default())
            .unwrap_or_else(|why| panic!("{why}"));
        Scroll::of(Box::new(messages))
    }

    /// A directory with `count` entries.
    pub fn directory(count: u64) -> Scroll {
        let mut entries = Entries::new(b"/some/directory".to_vec());
        (0..count).for_each(|number| {
            entries.push(format!("file-{number:09}").as_bytes(), FileType::Regular, number)
        });
        Scroll::of(Box::new(entries))
    }

    /// A log with `count` records.
    pub fn log(count: u64) -> Scroll {
        let mut records = Records::new();
        (0..count).for_each(|number| records.made_up(number));
        Scroll::of(Box::new(records))
    }

    fn of(rows: Box<dyn Rows>) -> Scroll {
        let size = (132, 43);
        let bytes = tour::states().unwrap_or_else(|error| panic!("{error}")).swap_remove(0);
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from(bytes));
        let source = Source::Memory { name: "measured.img".into(), device };
        let image = Image::open(source, None, &Arc::default())
            .unwrap_or_else(|failure| panic!("{}", failure.message));
        let (mut model, _) = Model::begin(Arc::new(image), None, Some(Screen::Refs), size);
        let columns = vec![
            column("a", 10),
            column("b", 12),
            numbers("c", 8),
            column("d", 20),
            column("e", 8),
            column("f", 10),
            rest("g"),
        ];
        let sheet = Sheet { rows, ..Sheet::new("measured", columns, Vec::new()) };
        model.panes[0].answer = Some(Ok(Content::from(sheet)));
        model.panes[0].is_fresh = true;
        model.is_expanded = true;
        let terminal: Result<_, Infallible> = Terminal::new(TestBackend::new(size.0, size.1));
        let Ok(terminal) = terminal;
        Scroll { model, terminal }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.model.panes[0].len()
    }

    /// Scrolls down one page, or from the end to the start; draws a frame.
    pub fn page(&mut self) {
        let is_end = self.model.panes[0].cursor + 1 >= self.rows();
        self.press(if is_end { KeyCode::Home } else { KeyCode::PageDown });
    }

    /// Jumps to the end and to the start, and draws a frame at each.
    pub fn ends(&mut self) {
        self.press(KeyCode::End);
        self.press(KeyCode::Home);
    }

    fn press(&mut self, code: KeyCode) {
        drop(self.model.update(Msg::Key(KeyEvent::new(code, KeyModifiers::NONE))));
        let Ok(_) = self.terminal.draw(|frame| view(&self.model, frame));
    }
}

/// A slice of messages to blocks of files.
fn slice(run: u64, numbers: &[u64]) -> Slice {
    let messages: Vec<(Key, Message)> = numbers
        .iter()
        .map(|number| {
            let key = betr_core::format::data_key(&[&7u64.to_be_bytes()[..]].concat(), *number);
            (
                key,
                Message {
                    msn: Msn(number + 1),
                    action: Action::Insert(Bytes::from_static(b"sixteen bytes...")),
                },
            )
        })
        .collect();
    let greatest = numbers.last().map_or(0, |number| number + 1);
    let mut w = Writer::with_capacity(16 << 10);
    encode_slice(
        &mut w,
        Msn(greatest),
        messages.iter().map(|(key, message)| MessageRef::of(key, message)),
    );
    Slice::new(RunSeq(run), 0x10_0000, numbers.len() as u32, Bytes::from(w.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_panes_have_all_their_rows() {
        for mut scroll in [Scroll::buffer(10_007), Scroll::directory(10_007), Scroll::log(10_007)] {
            assert_eq!(scroll.rows(), 10_007);
            scroll.ends();
            (0..400).for_each(|_| scroll.page());
        }
    }
}
