//! Cursors of rows and bytes, and the state that follows them.

use super::{Model, Screen};
use crate::query::Content;
use crate::spot::Spot;
use crate::view;

/// Bytes per line of the hex screen.
const LINE: u64 = 16;

impl Model {
    pub(super) fn height_of(&self, pane: usize) -> usize {
        let area = self.layout().into_iter().find(|(of, _)| *of == pane).map(|(_, area)| area);
        area.map_or(1, |area| view::rows_of(self, pane, area))
    }

    /// Scrolls every pane to its cursor.
    pub(super) fn follow(&mut self) {
        for at in 0..self.panes.len() {
            let height = self.height_of(at);
            self.panes[at].follow(height);
        }
        let lines = self.height_of(0).max(1) as u64;
        let line = self.byte - self.byte % LINE;
        let last = line.saturating_sub((lines - 1) * LINE);
        self.first_byte = self.first_byte.min(line).max(last);
        self.first_byte -= self.first_byte % LINE;
        self.keep_map();
    }

    pub(super) fn down(&mut self, by: isize) {
        match (self.screen, self.focus) {
            (Screen::Hex, 0) => self.move_byte(by as i64 * LINE as i64),
            (Screen::Space, 0) => {
                let (cells, _) = self.map_size();
                self.move_block(by as i64 * i64::from(cells));
            }
            (_, focus) => {
                let height = self.height_of(focus);
                if let Some(pane) = self.panes.get_mut(focus) {
                    pane.go(pane.cursor.saturating_add_signed(by), height);
                }
                self.selection_moved();
            }
        }
    }

    pub(super) fn right(&mut self, by: i64) {
        match (self.screen, self.focus) {
            (Screen::Hex, 0) => self.move_byte(by),
            (Screen::Space, 0) => self.move_block(by),
            (_, focus) => {
                if let Some(pane) = self.panes.get_mut(focus) {
                    let step = 8 * by as i16;
                    pane.left = pane.left.saturating_add_signed(step).min(4096);
                }
            }
        }
    }

    pub(super) fn end_of(&mut self, last: bool) {
        match (self.screen, self.focus) {
            (Screen::Hex, 0) => self.move_byte(if last { i64::MAX } else { i64::MIN }),
            (Screen::Space, 0) => self.move_block(if last { i64::MAX } else { i64::MIN }),
            (_, focus) => {
                let height = self.height_of(focus);
                if let Some(pane) = self.panes.get_mut(focus) {
                    pane.go(if last { usize::MAX } else { 0 }, height);
                }
                self.selection_moved();
            }
        }
    }

    /// Updates the state that depends on the selection.
    pub(super) fn selection_moved(&mut self) {
        if self.screen == Screen::Hex && self.focus == 1 {
            let byte = self.selected(1).and_then(|row| row.spots.first().and_then(Spot::as_byte));
            if let Some(byte) = byte {
                self.stand_on(byte);
            }
        }
        if self.screen == Screen::Node && self.focus == 1 {
            self.is_flushed = false;
        }
    }

    pub(super) fn move_byte(&mut self, by: i64) {
        let end = self.image.len().saturating_sub(1);
        let byte = match by {
            i64::MIN => 0,
            i64::MAX => end,
            by => self.byte.saturating_add_signed(by).min(end),
        };
        self.stand_on(byte);
        let height = self.height_of(1);
        if let Some(pane) = self.panes.get_mut(1)
            && let Some(Content::Fields(fields)) = pane.content()
            && let Some(row) = fields.row_of(byte)
        {
            pane.go(row, height);
        }
    }

    pub(super) fn stand_on(&mut self, byte: u64) {
        self.byte = byte;
        self.spot = Spot::byte(byte);
        self.last_spots[Screen::Hex.index()] = Some(self.spot.clone());
        self.follow();
    }
}
