//! Draws a sheet: its notes, its column names, and the rows that fit.

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Span;

use super::{put, style};
use crate::model::Model;
use crate::sheet::{Column, Role, Row, Sheet};
use crate::words;

/// The notes of a sheet, wrapped. If the sheet has rows, the notes take at most a third of the pane.
fn notes(sheet: &Sheet, area: Rect) -> Vec<(Role, String)> {
    let lines = sheet.notes.iter().flat_map(|note| {
        words::wrap(&note.text, area.width.into()).into_iter().map(|line| (note.role, line))
    });
    let mut lines: Vec<_> = lines.collect();
    let most = usize::from(area.height / 3).max(1);
    if sheet.len() > 0 && lines.len() > most {
        let left = lines.len() - most + 1;
        lines.truncate(most - 1);
        lines.push((Role::Dim, format!("({left} more lines: e gives the pane all of the room)")));
    }
    lines
}

/// Lines above the rows: notes and column names.
fn head(sheet: &Sheet, area: Rect) -> u16 {
    (notes(sheet, area).len() as u16).saturating_add(u16::from(has_names(sheet)))
}

fn has_names(sheet: &Sheet) -> bool {
    sheet.columns.iter().any(|column| !column.name.is_empty())
}

/// A pane without its border.
fn inner_of(area: Rect) -> Rect {
    let (width, height) = (area.width.saturating_sub(2), area.height.saturating_sub(2));
    Rect::new(area.x + 1, area.y + 1, width, height)
}

/// The number of rows that fit in a pane, which includes its border.
pub(super) fn height(model: &Model, pane: usize, area: Rect) -> usize {
    let inner = inner_of(area).height;
    let head = model
        .panes
        .get(pane)
        .and_then(|pane| pane.sheet())
        .map_or(0, |sheet| head(sheet, inner_of(area)));
    usize::from(inner.saturating_sub(head)).max(1)
}

/// The row at a position of the screen.
pub(crate) fn row_at(model: &Model, pane: usize, area: Rect, at: Position) -> Option<usize> {
    let pane = model.panes.get(pane)?;
    let sheet = pane.sheet()?;
    let first = area.y + 1 + head(sheet, inner_of(area));
    let line = at.y.checked_sub(first).filter(|_| at.y + 1 < area.bottom())?;
    let row = pane.top + usize::from(line);
    (row < sheet.len()).then_some(row)
}

/// The widths of the columns: a column of width 0 gets the remaining width.
fn widths(columns: &[Column], width: u16) -> Vec<u16> {
    let fixed: u16 = columns.iter().map(|column| column.width + 1).sum();
    let left = width.saturating_sub(fixed);
    columns.iter().map(|column| if column.width == 0 { left } else { column.width }).collect()
}

pub(super) fn draw(model: &Model, at: usize, buffer: &mut Buffer, area: Rect) {
    let pane = &model.panes[at];
    let Some(sheet) = pane.sheet() else { return };
    let mut y = area.y;
    for (role, line) in notes(sheet, area) {
        if y < area.bottom() {
            put(buffer, area.x, y, area.width, role, &line);
        }
        y += 1;
    }
    let widths = widths(&sheet.columns, area.width.saturating_sub(1));
    if has_names(sheet) {
        let mut x = area.x + 1;
        for (column, width) in sheet.columns.iter().zip(&widths) {
            if y < area.bottom() {
                let text = if column.right {
                    format!("{:>1$}", column.name, usize::from(*width))
                } else {
                    column.name.to_owned()
                };
                put(buffer, x, y, (*width).min(area.right().saturating_sub(x)), Role::Dim, &text);
            }
            x = x.saturating_add(width + 1);
        }
        y += 1;
    }
    let room = usize::from(area.bottom().saturating_sub(y));
    for (line, at_row) in (pane.top..sheet.len()).take(room).enumerate() {
        let y = y + line as u16;
        let is_selected = at_row == pane.cursor;
        draw_row(
            &sheet.rows.row(at_row),
            &sheet.columns,
            &widths,
            pane.left,
            buffer,
            Rect::new(area.x, y, area.width, 1),
        );
        if is_selected {
            let is_focused = at == model.focus;
            put(buffer, area.x, y, 1, Role::Strong, ">");
            let modifier = if is_focused { Modifier::REVERSED } else { Modifier::BOLD };
            buffer.set_style(
                Rect::new(area.x, y, area.width, 1),
                Style::new().add_modifier(modifier),
            );
        }
    }
    // The position of the cursor in the sheet.
    if sheet.len() > room && room > 0 {
        let text = format!(
            " {}/{} ",
            words::number(pane.cursor as u64 + 1),
            words::number(sheet.len() as u64)
        );
        let width = text.len() as u16;
        if width + 2 < area.width {
            put(buffer, area.right() - width, area.bottom(), width, Role::Dim, &text);
        }
    }
}

fn draw_row(
    row: &Row,
    columns: &[Column],
    widths: &[u16],
    left: u16,
    buffer: &mut Buffer,
    area: Rect,
) {
    let mut x = area.x + 1;
    if let ([cell], [_, _, ..]) = (&row.cells[..], columns) {
        // A line of text, which spans all columns.
        return put(buffer, x, area.y, area.width - 1, cell.role, &cell.text);
    }
    for (index, cell) in row.cells.iter().enumerate() {
        let (width, is_right) = match (columns.get(index), widths.get(index)) {
            (Some(column), Some(width)) => (*width, column.right),
            _ => break,
        };
        let is_rest = columns[index].width == 0;
        let room = width.min(area.right().saturating_sub(x));
        if room > 0 {
            let mut text = cell.text.as_str();
            if is_rest && left > 0 {
                text = text.char_indices().nth(left.into()).map_or("", |(at, _)| &text[at..]);
            }
            let len = Span::raw(text).width();
            let is_cut = len > usize::from(room);
            let pad = if is_right && !is_cut { room - len as u16 } else { 0 };
            buffer.set_stringn(x + pad, area.y, text, usize::from(room - pad), style(cell.role));
            if is_cut {
                put(buffer, x + room - 1, area.y, 1, Role::Dim, ">");
            }
        }
        x = x.saturating_add(width + 1);
        if x >= area.right() {
            break;
        }
    }
}
