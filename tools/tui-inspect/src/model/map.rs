//! The map of the device: its start, its scale and its cursor.

use betr_core::ids::BLOCK_SIZE;

use super::Model;
use crate::view;

impl Model {
    /// The columns and lines of cells of the map.
    pub(crate) fn map_size(&self) -> (u16, u16) {
        let area = self.layout().into_iter().find(|(pane, _)| *pane == 0).map(|(_, area)| area);
        area.map_or((1, 1), view::map_cells)
    }

    pub(crate) fn map_blocks(&self) -> u64 {
        self.image.len() / BLOCK_SIZE as u64
    }

    /// Blocks per cell: the chosen scale, at most the one that fits the whole device.
    pub(crate) fn per_cell(&self) -> u64 {
        let (width, height) = self.map_size();
        let cells = (u64::from(width) * u64::from(height)).max(1);
        let all = self.map_blocks().div_ceil(cells).max(1).next_power_of_two();
        if self.map.per_cell == 0 { all } else { self.map.per_cell.min(all) }
    }

    pub(super) fn keep_map(&mut self) {
        let (width, height) = self.map_size();
        let per_cell = self.per_cell();
        let line = per_cell.saturating_mul(width.into()).max(1);
        self.map.cursor = self.map.cursor.min(self.map_blocks().saturating_sub(1));
        let at = self.map.cursor - self.map.cursor % line;
        let window = line.saturating_mul(u64::from(height.max(1)) - 1);
        let first = self.map.first - self.map.first % line;
        self.map.first = first.min(at).max(at.saturating_sub(window));
    }

    pub(super) fn move_block(&mut self, by: i64) {
        let last = self.map_blocks().saturating_sub(1);
        let per_cell = self.per_cell();
        let at = self.map.cursor - self.map.cursor % per_cell;
        self.map.cursor = match by {
            i64::MIN => 0,
            i64::MAX => last,
            by => {
                let by = by.saturating_mul(per_cell as i64);
                at.saturating_add_signed(by).min(last)
            }
        };
        self.map.marked = None;
        self.keep_map();
    }

    pub(super) fn zoom(&mut self, inwards: bool) {
        let per_cell = self.per_cell();
        self.map.per_cell =
            if inwards { (per_cell / 2).max(1) } else { per_cell.saturating_mul(2) };
        if !inwards && self.per_cell() < self.map.per_cell {
            self.map.per_cell = 0;
        }
        let (width, height) = self.map_size();
        let line = self.per_cell().saturating_mul(width.into()).max(1);
        let half = u64::from(height / 2).saturating_mul(line);
        self.map.first = (self.map.cursor - self.map.cursor % line).saturating_sub(half);
        self.keep_map();
    }
}
