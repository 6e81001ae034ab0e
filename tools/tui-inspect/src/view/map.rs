//! Draws the device as a grid in which a cell stands for a power of two of blocks.

use betr_core::ids::BLOCK_SIZE;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Modifier;

use super::{put, style};
use crate::model::Model;
use crate::query::Space;
use crate::sheet::Role;
use crate::words;

/// Lines below the cells.
const LEGEND: u16 = 3;

/// The columns and lines of cells in a pane, whose area includes its border.
pub(crate) fn cells(area: Rect) -> (u16, u16) {
    (area.width.saturating_sub(2).max(1), area.height.saturating_sub(2 + LEGEND).max(1))
}

/// The block at a position of the screen.
pub(crate) fn block_at(model: &Model, area: Rect, at: Position) -> Option<u64> {
    let (width, height) = cells(area);
    let (x, y) = (at.x.checked_sub(area.x + 1)?, at.y.checked_sub(area.y + 1)?);
    let cell = u64::from(y) * u64::from(width) + u64::from(x);
    let block = model.map.first.saturating_add(cell.saturating_mul(model.per_cell()));
    (x < width && y < height && block < model.map_blocks()).then_some(block)
}

pub(super) fn draw(model: &Model, space: &Space, buffer: &mut Buffer, area: Rect) {
    let (width, per_cell) = (u64::from(area.width.max(1)), model.per_cell());
    let height = area.height.saturating_sub(LEGEND);
    let map = &model.map;
    let all = usize::from(area.width) * usize::from(height);
    let cells = space.paint(map.first, per_cell, all, map.mode);
    for line in 0..height {
        for column in 0..area.width {
            let cell = u64::from(line) * width + u64::from(column);
            let start = map.first.saturating_add(cell.saturating_mul(per_cell));
            let Some(paint) = cells.get(cell as usize) else { continue };
            let (x, y) = (area.x + column, area.y + line);
            let has_cursor = (start..start.saturating_add(per_cell)).contains(&map.cursor);
            let is_marked =
                map.marked.is_some_and(|(a, b)| start + per_cell > a.min(b) && start <= a.max(b));
            let mut style = style(paint.role);
            if has_cursor || is_marked {
                style = style.add_modifier(Modifier::REVERSED);
            }
            if has_cursor {
                style = style.add_modifier(Modifier::BOLD);
            }
            buffer.set_string(x, y, paint.letter.encode_utf8(&mut [0; 4]), style);
        }
    }
    legend(
        model,
        space,
        buffer,
        Rect::new(area.x, area.y + height, area.width, LEGEND.min(area.height)),
    );
}

fn legend(model: &Model, space: &Space, buffer: &mut Buffer, area: Rect) {
    let (map, per_cell) = (&model.map, model.per_cell());
    let at = map.cursor.saturating_mul(BLOCK_SIZE as u64);
    let here = space.cell(map.cursor, 1, map.mode);
    let marked = map.marked.map_or(String::new(), |(a, b)| {
        format!("  marked {}", words::blocks(a.abs_diff(b) + per_cell))
    });
    let text = format!(
        "block {} (b:{at:#x}) {} {}   a cell: {}{marked}",
        words::number(map.cursor),
        here.letter,
        here.name,
        words::blocks(per_cell)
    );
    put(buffer, area.x, area.y, area.width, Role::Strong, &text);
    let (mut x, mut y) = (area.x, area.y + 1);
    for paint in space.legend(map.mode) {
        let width = paint.name.len() as u16 + 4;
        if x + width > area.right() {
            (x, y) = (area.x, y + 1);
        }
        if y >= area.bottom() {
            break;
        }
        buffer.set_stringn(x, y, paint.letter.to_string(), 1, style(paint.role));
        put(buffer, x + 2, y, area.right().saturating_sub(x + 2), Role::Dim, paint.name);
        x += width;
    }
}
