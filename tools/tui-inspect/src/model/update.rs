//! Handles events.

use std::sync::Arc;

use crossterm::event::KeyEventKind;

use super::{Effect, Model, Msg};

impl Model {
    /// Handles an event; returns the effects to carry out.
    pub(crate) fn update(&mut self, msg: Msg) -> Vec<Effect> {
        let mut effects = Vec::new();
        match msg {
            Msg::Key(key) if key.kind != KeyEventKind::Release => self.key(key, &mut effects),
            Msg::Key(_) | Msg::Tick => {}
            Msg::Mouse(mouse) => self.mouse(mouse, &mut effects),
            Msg::Resize(width, height) => {
                self.size = (width, height);
                self.follow();
            }
            Msg::Answer(generation, answer) => self.answer(generation, answer, &mut effects),
            Msg::Found(generation, found) => self.found(generation, found),
            Msg::Filtered(generation, text, filtered) => self.filtered(generation, text, filtered),
            Msg::Opened(generation, opened) => self.opened(generation, opened),
            Msg::Moved(image) => self.has_moved |= Arc::ptr_eq(&image, &self.image),
            Msg::Paste(text) => {
                if let Some(prompt) = &mut self.prompt {
                    prompt.paste(&text);
                }
            }
            Msg::Wrote(what, wrote) => self.wrote(what, wrote, &mut effects),
        }
        self.sync(&mut effects);
        effects
    }
}
