//! Frames without a terminal, for documents, tests and `--screenshot`.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use crate::model::{Effect, Model};
use crate::perform::perform;
use crate::view::view;

/// The most effects before a frame settles; more means an endless loop, which is a bug.
const STEPS_MAX: usize = 100_000;

/// Carries out effects one after another until none is left.
pub(crate) fn settle(model: &mut Model, effects: Vec<Effect>) {
    let mut waiting: std::collections::VecDeque<Effect> = effects.into();
    for _ in 0..STEPS_MAX {
        let Some(effect) = waiting.pop_front() else { return };
        if let Some(msg) = perform(effect) {
            waiting.extend(model.update(msg));
        }
    }
}

/// The frame as text, without trailing blanks.
pub(crate) fn frame(model: &Model) -> String {
    let (width, height) = model.size;
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let Ok(_) = terminal.draw(|frame| view(model, frame));
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for y in 0..height {
        let mut line = String::new();
        let mut skip = 0;
        for x in 0..width {
            let symbol = buffer[(x, y)].symbol();
            if skip == 0 {
                line.push_str(symbol);
                skip = ratatui::text::Span::raw(symbol).width().saturating_sub(1);
            } else {
                skip -= 1;
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
