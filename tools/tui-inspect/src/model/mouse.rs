//! Mouse events.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

use super::{Effect, Model, Screen};
use crate::action::Action;
use crate::view;

/// Rows per step of the wheel.
const WHEEL: isize = 3;

impl Model {
    pub(super) fn mouse(&mut self, mouse: MouseEvent, effects: &mut Vec<Effect>) {
        let at = Position::new(mouse.column, mouse.row);
        if self.prompt.is_some() || self.help.is_some() {
            if let MouseEventKind::Down(_) = mouse.kind {
                (self.prompt, self.help) = (None, None);
            }
            return;
        }
        if let MouseEventKind::Down(MouseButton::Left) = mouse.kind
            && let Some(screen) = view::tab_at(self, at)
        {
            return self.act(Action::Show(screen), effects);
        }
        let layout = self.layout();
        let Some((pane, area)) = layout.into_iter().find(|(_, area)| area.contains(at)) else {
            return;
        };
        match mouse.kind {
            MouseEventKind::ScrollDown => self.wheel(pane, WHEEL),
            MouseEventKind::ScrollUp => self.wheel(pane, -WHEEL),
            MouseEventKind::Down(MouseButton::Left) => {
                let was = (self.focus, self.panes.get(pane).map(|pane| pane.cursor));
                self.focus = pane;
                self.click(pane, area, at, false);
                // A second click on the selected row opens it.
                let is_again = was == (pane, self.panes.get(pane).map(|pane| pane.cursor));
                let is_list = !matches!((self.screen, pane), (Screen::Space | Screen::Hex, 0));
                if is_again && is_list && view::row_at(self, pane, area, at).is_some() {
                    self.open_selected();
                }
            }
            MouseEventKind::Drag(MouseButton::Left) if self.focus == pane => {
                self.click(pane, area, at, true)
            }
            _ => {}
        }
        self.follow();
    }

    pub(super) fn wheel(&mut self, pane: usize, by: isize) {
        let focus = std::mem::replace(&mut self.focus, pane);
        self.down(by);
        self.focus = focus;
    }

    pub(super) fn click(&mut self, pane: usize, area: Rect, at: Position, is_drag: bool) {
        match (self.screen, pane) {
            (Screen::Space, 0) => {
                if let Some(block) = view::block_at(self, area, at) {
                    let from = if is_drag {
                        self.map.marked.map_or(self.map.cursor, |(from, _)| from)
                    } else {
                        block
                    };
                    self.map.marked = is_drag.then_some((from, block));
                    self.map.cursor = block.min(self.map_blocks().saturating_sub(1));
                }
            }
            (Screen::Hex, 0) => {
                if let Some(byte) =
                    view::byte_at(self, area, at).filter(|byte| *byte < self.image.len())
                {
                    self.stand_on(byte);
                    self.move_byte(0);
                }
            }
            _ => {
                let height = self.height_of(pane);
                if let Some(row) = view::row_at(self, pane, area, at) {
                    self.panes[pane].go(row, height);
                    self.selection_moved();
                }
            }
        }
    }
}
