//! Draws bytes: sixteen per line, with their printable characters.

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Modifier, Style};

use super::{put, style};
use crate::model::Model;
use crate::query::{Bytes, Content, Seen};
use crate::sheet::Role;

const LINE: u64 = 16;
/// The columns at which the bytes of a line and its characters begin.
const BYTES_AT: u16 = 10;
const TEXT_AT: u16 = BYTES_AT + 16 * 3 + 1;

/// The byte at a position of the screen.
pub(crate) fn byte_at(model: &Model, area: Rect, at: Position) -> Option<u64> {
    let line = at.y.checked_sub(area.y + 1).filter(|_| at.y + 1 < area.bottom())?;
    let x = at.x.checked_sub(area.x + 1)?;
    let column = match x {
        TEXT_AT.. => x - TEXT_AT,
        BYTES_AT.. => (x - BYTES_AT) / 3,
        _ => return None,
    };
    let start = model.first_byte.saturating_add(u64::from(line) * LINE);
    (column < 16).then(|| start.saturating_add(column.into()))
}

/// The bytes of the field under the cursor.
fn field(model: &Model) -> Option<(u64, u64)> {
    let pane = model.panes.get(1)?;
    let Some(Content::Fields(fields)) = pane.content() else { return None };
    fields.range_of(model.byte)
}

pub(super) fn draw(
    model: &Model,
    bytes: &Bytes,
    is_focused: bool,
    buffer: &mut Buffer,
    area: Rect,
) {
    let field = field(model);
    for line in 0..area.height {
        let start = model.first_byte.saturating_add(u64::from(line) * LINE);
        if start >= bytes.end {
            break;
        }
        let y = area.y + line;
        put(buffer, area.x, y, area.width, Role::Dim, &format!("{start:09x}"));
        for column in 0..16u16 {
            let at = start + u64::from(column);
            let (shown, print, role) = match bytes.at(at) {
                Seen::Unknown => continue,
                Seen::Unreadable => ("??".to_owned(), '?', Role::Bad),
                Seen::Is(byte) if byte.is_ascii_graphic() || byte == b' ' => {
                    (format!("{byte:02x}"), char::from(byte), Role::Plain)
                }
                Seen::Is(0) => ("00".to_owned(), '.', Role::Dim),
                Seen::Is(byte) => (format!("{byte:02x}"), '.', Role::Plain),
            };
            let mut look = style(role);
            if field.is_some_and(|(start, end)| (start..end).contains(&at)) {
                look = look.add_modifier(Modifier::UNDERLINED);
            }
            if at == model.byte {
                let modifier = if is_focused { Modifier::REVERSED } else { Modifier::BOLD };
                look = look.add_modifier(modifier);
            }
            cell(buffer, area, area.x + BYTES_AT + column * 3, y, &shown, look);
            cell(buffer, area, area.x + TEXT_AT + column, y, print.encode_utf8(&mut [0; 4]), look);
        }
        let row = model.byte - model.byte % LINE;
        if row == start {
            put(buffer, area.x + 9, y, 1, Role::Strong, ">");
        }
    }
}

fn cell(buffer: &mut Buffer, area: Rect, x: u16, y: u16, text: &str, style: Style) {
    if x < area.right() {
        buffer.set_stringn(x, y, text, usize::from(area.right() - x), style);
    }
}
