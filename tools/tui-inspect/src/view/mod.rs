//! Draws the model. Nothing here changes the model or reads the image.

mod hex;
mod map;
mod sheet;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::border;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Widget};

use crate::action::{ACTIONS, Action, fitting};
use crate::model::{Kind, Model, Pane, Screen};
use crate::query::Content;
use crate::sheet::Role;
use crate::spot::Spot;
use crate::words;

pub(crate) use hex::byte_at;
pub(crate) use map::{block_at, cells as map_cells};
pub(crate) use sheet::row_at;

/// The smallest terminal that is supported, in columns and lines.
const LEAST: (u16, u16) = (60, 15);
/// From 80 columns on, the tab line shows the names of all screens.
const FULL: u16 = 80;
/// From 100 columns on there are two panes, from 132 columns on three.
const TWO: u16 = 100;
const THREE: u16 = 132;
/// Lines above and below the panes.
const ABOVE: u16 = 3;
const BELOW: u16 = 2;
/// From 110 columns on, the help shows the names of actions.
const HELP_WITH_NAMES: u16 = 110;
/// Lines that the text of the tour takes.
const TOUR: u16 = 7;
/// The most suggestions that the palette shows.
const SUGGESTED: usize = 8;

/// The style of a role. Only the sixteen colours of the user's theme are used, and no information is in colour alone.
pub(crate) fn style(role: Role) -> Style {
    let plain = Style::new();
    match role {
        Role::Plain => plain,
        Role::Dim => plain.fg(Color::DarkGray),
        Role::Strong => plain.add_modifier(Modifier::BOLD),
        Role::Good => plain.fg(Color::Green),
        Role::Warn => plain.fg(Color::Yellow),
        Role::Bad => plain.fg(Color::Red).add_modifier(Modifier::BOLD),
        Role::Link => plain.fg(Color::Cyan),
    }
}

/// Draws a frame.
pub(crate) fn view(model: &Model, frame: &mut Frame) {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!(
            "betr inspect needs {} x {} cells, and has {} x {}; q ends",
            LEAST.0, LEAST.1, area.width, area.height
        );
        put(buffer, area.x, area.y, area.width, Role::Warn, &text);
        return;
    }
    header(model, buffer, area);
    tabs(model, buffer, area);
    address(model, buffer, area);
    if model.help.is_some() {
        help(model, buffer, body(model));
    } else {
        for (at, area) in layout(model) {
            if let Some(pane) = model.panes.get(at) {
                draw(model, at, pane, buffer, area);
            }
        }
    }
    tour(model, buffer, area);
    status(model, buffer, area);
    footer(model, buffer, area);
    suggestions(model, buffer, area);
    plain(model, buffer);
}

/// Removes colours if they are off, and replaces non-ASCII characters on an ASCII terminal.
fn plain(model: &Model, buffer: &mut Buffer) {
    if model.has_color && !model.is_ascii {
        return;
    }
    for cell in &mut buffer.content {
        if !model.has_color {
            (cell.fg, cell.bg) = (Color::Reset, Color::Reset);
        }
        if model.is_ascii && !cell.symbol().is_ascii() {
            cell.set_symbol("?");
        }
    }
}

/// Writes a text at a position, cut to a width.
pub(crate) fn put(buffer: &mut Buffer, x: u16, y: u16, width: u16, role: Role, text: &str) {
    if buffer.area.contains(Position::new(x, y)) {
        buffer.set_stringn(
            x,
            y,
            text,
            width.min(buffer.area.right().saturating_sub(x)).into(),
            style(role),
        );
    }
}

/// The area of the panes.
fn body(model: &Model) -> Rect {
    let (width, height) = model.size;
    let tour = if model.tour.is_some() { TOUR } else { 0 };
    Rect::new(0, ABOVE, width, height.saturating_sub(ABOVE + BELOW + tour))
}

/// The arrangement of a screen's panes.
enum Lie {
    /// The first pane on the left, with `percent` of the columns; the others to its right.
    Beside(u16),
    /// The first pane on top, with `percent` of the lines; the others below it.
    Above(u16),
}

/// The visible panes and their areas.
pub(crate) fn layout(model: &Model) -> Vec<(usize, Rect)> {
    shown(model, model.panes.len())
}

fn shown(model: &Model, all: usize) -> Vec<(usize, Rect)> {
    let (width, height) = model.size;
    if width < LEAST.0 || height < LEAST.1 {
        return Vec::new();
    }
    let area = body(model);
    let focus = model.focus;
    let room = match width {
        _ if model.is_expanded => 1,
        THREE.. => 3,
        TWO.. => 2,
        _ => 1,
    };
    let lie = match model.screen {
        Screen::Node => Lie::Beside(32),
        Screen::Space => Lie::Beside(66),
        Screen::Hex if width >= THREE => Lie::Beside(58),
        Screen::Overview
        | Screen::Zones
        | Screen::Key
        | Screen::Log
        | Screen::Refs
        | Screen::Findings
        | Screen::Hex => Lie::Above(52),
    };
    let split = |percent: u16, area: Rect, is_beside: bool| -> [Rect; 2] {
        let parts = [Constraint::Percentage(percent), Constraint::Fill(1)];
        if is_beside {
            Layout::horizontal(parts).areas(area)
        } else {
            Layout::vertical(parts).areas(area)
        }
    };
    match room.min(all) {
        0 => Vec::new(),
        1 => vec![(focus, area)],
        2 => {
            // The focused pane, and the one on whose selection it depends.
            let first = if all == 2 { 0 } else { focus.saturating_sub(1).min(all - 2) };
            let [a, b] = match lie {
                Lie::Beside(percent) if first == 0 => split(percent, area, true),
                Lie::Beside(_) => split(40, area, false),
                Lie::Above(percent) => split(percent, area, false),
            };
            vec![(first, a), (first + 1, b)]
        }
        _ => match lie {
            Lie::Beside(percent) => {
                let [a, rest] = split(percent, area, true);
                let [b, c] = split(50, rest, false);
                vec![(0, a), (1, b), (2, c)]
            }
            Lie::Above(percent) => {
                let [a, rest] = split(percent, area, false);
                let [b, c] = split(50, rest, true);
                vec![(0, a), (1, b), (2, c)]
            }
        },
    }
}

/// The last visible pane of `all` panes.
pub(crate) fn last_pane(model: &Model, all: usize) -> usize {
    shown(model, all).into_iter().map(|(pane, _)| pane).max().unwrap_or(model.focus)
}

/// The number of rows that fit in a pane.
pub(crate) fn rows_of(model: &Model, pane: usize, area: Rect) -> usize {
    match model.panes.get(pane).and_then(Pane::content) {
        Some(Content::Bytes(_)) => usize::from(area.height.saturating_sub(2)),
        Some(Content::Space(_)) => usize::from(map_cells(area).1),
        _ => sheet::height(model, pane, area),
    }
}

/// The screen whose tab is at a position.
pub(crate) fn tab_at(model: &Model, at: Position) -> Option<Screen> {
    if at.y != 1 {
        return None;
    }
    tab_places(model)
        .into_iter()
        .find(|(_, start, end)| (*start..*end).contains(&at.x))
        .map(|(screen, ..)| screen)
}

fn tab_places(model: &Model) -> Vec<(Screen, u16, u16)> {
    let is_short = model.size.0 < FULL;
    let mut x = 1;
    let place = |screen: Screen| {
        let text = tab_text(screen, is_short);
        let start = x;
        x += text.len() as u16 + 2;
        (screen, start, x - 2)
    };
    Screen::ALL.into_iter().map(place).collect()
}

fn tab_text(screen: Screen, is_short: bool) -> String {
    let name = screen.name();
    let name = if is_short { &name[..name.len().min(3)] } else { name };
    format!("{} {name}", screen.index() + 1)
}

fn header(model: &Model, buffer: &mut Buffer, area: Rect) {
    let image = &model.image;
    let mut left = vec![
        Span::styled(" betr inspect ", Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(format!(" {}  {}", image.source.name(), betr_cli::size::human(image.len()))),
    ];
    let mut flag = |role, text: &str| left.push(Span::styled(format!("  [{text}]"), style(role)));
    let errors = model.findings.map_or(0, |(errors, _)| errors);
    match &image.superblock {
        None => flag(Role::Bad, "NO SUPERBLOCK"),
        Some(_) if !image.damage.is_empty() => flag(Role::Bad, "DAMAGED"),
        Some(_) => {}
    }
    match model.findings {
        Some((0, 0)) => flag(Role::Good, "sound"),
        Some((0, notes)) => flag(Role::Good, &words::some(notes, "note")),
        Some((errors, _)) => flag(Role::Bad, &words::some(errors, "error")),
        None => {}
    }
    if image.is_dirty {
        flag(Role::Warn, "LOG");
    } else if image.damage.is_empty() && errors == 0 && image.superblock.is_some() {
        flag(Role::Good, "log empty");
    }
    if image.source.overlay().is_some() {
        flag(Role::Warn, "OVERLAY");
    }
    if model.has_moved {
        flag(Role::Warn, "CHANGED");
    }
    if let Some(identity) = &image.identity {
        let uuid = betr_cli::json::hex(&identity.uuid);
        left.push(Span::styled(format!("  {}..{}", &uuid[..4], &uuid[30..]), style(Role::Dim)));
    }
    buffer.set_line(area.x, area.y, &Line::from(left), area.width);
    let epoch = image
        .origin
        .as_ref()
        .map_or_else(|| "?".to_owned(), |superblock| superblock.birth.epoch.0.to_string());
    let (role, text) = match &image.moment {
        None => (Role::Plain, format!(" AS OF now, epoch {epoch} ")),
        Some(moment) => {
            (Role::Warn, format!(" AS OF {}, epoch {epoch}, NOT NOW ", words::moment(moment)))
        }
    };
    let width = text.chars().count() as u16;
    if width < area.width {
        put(buffer, area.right() - width, area.y, width, role, &text);
    }
    buffer.set_style(
        Rect::new(area.x, area.y, area.width, 1),
        Style::new().add_modifier(Modifier::REVERSED),
    );
}

fn tabs(model: &Model, buffer: &mut Buffer, area: Rect) {
    let is_short = model.size.0 < FULL;
    for (screen, start, end) in tab_places(model) {
        let is_here = screen == model.screen;
        let text = tab_text(screen, is_short);
        let text = if is_here { text.to_uppercase() } else { text };
        put(
            buffer,
            start,
            area.y + 1,
            end - start,
            if is_here { Role::Strong } else { Role::Dim },
            &text,
        );
        if is_here {
            buffer.set_style(
                Rect::new(start, area.y + 1, end - start, 1),
                Style::new().add_modifier(Modifier::UNDERLINED),
            );
        }
    }
}

fn address(model: &Model, buffer: &mut Buffer, area: Rect) {
    let y = area.y + 2;
    let left = match &model.spot {
        Spot::Image => format!(" {}", model.screen.name()),
        spot => format!(" {} > {spot}", model.screen.name()),
    };
    put(buffer, area.x, y, area.width, Role::Dim, &left);
    let spot = model.spots().into_iter().next().unwrap_or(Spot::Image);
    let text = format!("addr {spot} ");
    let width = (text.chars().count() as u16).min(area.width / 2);
    put(buffer, area.right() - width, y, width, Role::Strong, &text);
}

/// The border of a pane.
fn frame_of(model: &Model, title: String, is_focused: bool) -> Block<'static> {
    const ASCII: border::Set = border::Set {
        top_left: "+",
        top_right: "+",
        bottom_left: "+",
        bottom_right: "+",
        vertical_left: "|",
        vertical_right: "|",
        horizontal_top: "-",
        horizontal_bottom: "-",
    };
    let set = match (model.is_ascii, is_focused) {
        (true, _) => ASCII,
        (false, true) => border::THICK,
        (false, false) => border::PLAIN,
    };
    let mark = if is_focused && model.is_ascii { ">" } else { "" };
    let role = if is_focused { Role::Strong } else { Role::Dim };
    let title = Line::styled(format!("{mark} {title} "), style(role));
    Block::bordered().border_set(set).border_style(style(role)).title(title)
}

fn draw(model: &Model, at: usize, pane: &Pane, buffer: &mut Buffer, area: Rect) {
    let title = match &pane.answer {
        Some(Ok(Content::Bytes(_))) => "bytes".to_owned(),
        Some(Ok(Content::Space(_))) => format!("space by {}", model.map.mode.name()),
        _ => {
            pane.sheet().map_or_else(|| pane.query.title().to_owned(), |sheet| sheet.title.clone())
        }
    };
    let title = if pane.is_fresh { title } else { format!("{title} ...") };
    let block = frame_of(model, title, at == model.focus);
    let inner = block.inner(area);
    block.render(area, buffer);
    match &pane.answer {
        None => waiting(pane, buffer, inner),
        Some(Err(why)) => {
            let why = betr_cli::show::bytes(why.as_bytes());
            for (line, text) in
                words::wrap(&why, inner.width.into()).iter().take(inner.height.into()).enumerate()
            {
                put(buffer, inner.x, inner.y + line as u16, inner.width, Role::Bad, text);
            }
        }
        Some(Ok(Content::Bytes(bytes))) => {
            hex::draw(model, bytes, at == model.focus, buffer, inner)
        }
        Some(Ok(Content::Space(space))) => map::draw(model, space, buffer, inner),
        Some(Ok(_)) => sheet::draw(model, at, buffer, inner),
    }
}

fn waiting(pane: &Pane, buffer: &mut Buffer, area: Rect) {
    let text = match &pane.running {
        Some(running) => progress(running.query.title(), &running.work),
        None => String::new(),
    };
    put(buffer, area.x, area.y, area.width, Role::Dim, &text);
}

/// The progress of a running query.
fn progress(what: &str, work: &crate::work::Work) -> String {
    let (bytes, _) = work.read();
    let read = betr_cli::size::human(bytes);
    match work.percent() {
        Some(percent) => format!("{what} {percent} %, {read} read"),
        None => format!("{what}: {read} read"),
    }
}

fn status(model: &Model, buffer: &mut Buffer, area: Rect) {
    let y = area.bottom().saturating_sub(2);
    if let Some(prompt) = &model.prompt {
        let title = prompt.title();
        put(buffer, area.x + 1, y, area.width, Role::Strong, title);
        let x = area.x + 1 + title.chars().count() as u16;
        // The end of a long line stays visible, because that is where the user types.
        let width = usize::from(area.width.saturating_sub(x + 2));
        let shown = betr_cli::show::bytes(prompt.text.as_bytes());
        let hidden = shown.chars().count().saturating_sub(width);
        let tail: String = shown.chars().skip(hidden).chain(['_']).collect();
        put(buffer, x, y, area.width.saturating_sub(x), Role::Plain, &tail);
        return;
    }
    let running = model.running();
    if let Some((role, text)) = &model.status {
        put(buffer, area.x + 1, y, area.width - 1, *role, text);
    } else if !running.is_empty() {
        let shown: Vec<String> = running.iter().map(|(what, work)| progress(what, work)).collect();
        put(
            buffer,
            area.x + 1,
            y,
            area.width - 1,
            Role::Dim,
            &format!("{}; Esc gives up", shown.join(";  ")),
        );
    } else if model.has_moved {
        put(
            buffer,
            area.x + 1,
            y,
            area.width - 1,
            Role::Warn,
            "the image has changed: R reads it again",
        );
    } else if let Some(Some((text, _))) = model.panes.get(model.focus).map(|pane| &pane.filter) {
        let text =
            format!("only rows with '{}'; Esc shows all", betr_cli::show::bytes(text.as_bytes()));
        put(buffer, area.x + 1, y, area.width - 1, Role::Warn, &text);
    }
}

/// The actions that apply on this screen, as many as fit.
fn footer(model: &Model, buffer: &mut Buffer, area: Rect) {
    let y = area.bottom().saturating_sub(1);
    let mut spans = vec![Span::raw(" ")];
    let mut used = 1;
    let of_here = ACTIONS.iter().filter(|entry| {
        entry.applies(model.screen) && !entry.title.is_empty() && model.offers(entry.action)
    });
    // Help and Quit are always shown.
    let is_last = |action: Action| matches!(action, Action::Help | Action::Quit);
    let last: Vec<_> = of_here.clone().filter(|entry| is_last(entry.action)).collect();
    let width =
        |entry: &crate::action::Entry| first_key(entry).chars().count() + entry.title.len() + 3;
    let reserved: usize = last.iter().map(|entry| width(entry)).sum();
    for entry in of_here.filter(|entry| !is_last(entry.action)) {
        if used + width(entry) + reserved > usize::from(area.width) {
            continue;
        }
        used += width(entry);
        push(&mut spans, entry);
    }
    last.into_iter().for_each(|entry| push(&mut spans, entry));
    buffer.set_line(area.x, y, &Line::from(spans), area.width);
}

fn first_key(entry: &crate::action::Entry) -> String {
    match entry.action {
        // Pairs of keys that belong together.
        Action::Older => "[ ]".into(),
        Action::ZoomIn => "+ -".into(),
        Action::SiblingNext => "J K".into(),
        _ => entry.keys().split(' ').next().unwrap_or_default().to_owned(),
    }
}

fn push(spans: &mut Vec<Span<'static>>, entry: &crate::action::Entry) {
    spans.push(Span::styled(first_key(entry), style(Role::Strong)));
    spans.push(Span::styled(format!(" {}  ", entry.title), style(Role::Dim)));
}

/// The suggestions of the palette.
fn suggestions(model: &Model, buffer: &mut Buffer, area: Rect) {
    let Some(prompt) = model.prompt.as_ref().filter(|prompt| prompt.kind == Kind::Command) else {
        return;
    };
    if prompt.text.parse::<Spot>().is_ok() {
        return;
    }
    let found = fitting(prompt.text.trim(), model.screen);
    let shown = found.len().min(SUGGESTED) as u16;
    if shown == 0 {
        return;
    }
    let width = area.width.min(72);
    let y = area.bottom().saturating_sub(BELOW + shown + 2).max(area.y);
    let place = Rect::new(area.x + 1, y, width.saturating_sub(2), shown + 2).intersection(area);
    Clear.render(place, buffer);
    let block = frame_of(model, "an address, or one of these".into(), true);
    let inner = block.inner(place);
    block.render(place, buffer);
    let chosen = prompt.chosen.min(found.len() - 1);
    let first = (chosen + 1).saturating_sub(SUGGESTED);
    for (line, entry) in found[first..].iter().take(SUGGESTED).enumerate() {
        let mark = if first + line == chosen { ">" } else { " " };
        let text = format!("{mark}{:<18} {:<8} {}", entry.id, entry.keys(), entry.help);
        let role = if first + line == chosen { Role::Strong } else { Role::Plain };
        put(buffer, inner.x, inner.y + line as u16, inner.width, role, &text);
    }
}

/// The number of rows of the help that fit, and the largest scroll position.
pub(crate) fn help_rows(model: &Model) -> (usize, usize) {
    let rows = usize::from(body(model).height.saturating_sub(2));
    let all = ACTIONS.iter().filter(|entry| entry.applies(model.screen)).count();
    (rows, all.saturating_sub(rows))
}

fn help(model: &Model, buffer: &mut Buffer, area: Rect) {
    let block = frame_of(
        model,
        format!("keys on {}: up and down scroll, any other key closes", model.screen.name()),
        true,
    );
    let inner = block.inner(area);
    block.render(area, buffer);
    let top = model.help.unwrap_or(0);
    let entries = ACTIONS.iter().filter(|entry| entry.applies(model.screen));
    for (line, entry) in entries.skip(top).take(inner.height.into()).enumerate() {
        let y = inner.y + line as u16;
        put(buffer, inner.x, y, inner.width, Role::Strong, &entry.keys());
        if inner.width > HELP_WITH_NAMES {
            put(buffer, inner.x + 12, y, inner.width.saturating_sub(12), Role::Link, entry.id);
        }
        let at = if inner.width > HELP_WITH_NAMES { 32 } else { 12 };
        put(buffer, inner.x + at, y, inner.width.saturating_sub(at), Role::Plain, entry.help);
    }
}

fn tour(model: &Model, buffer: &mut Buffer, area: Rect) {
    let Some(tour) = &model.tour else { return };
    let place = Rect::new(area.x, area.bottom().saturating_sub(BELOW + TOUR), area.width, TOUR)
        .intersection(area);
    let step = tour.step();
    let title = format!("{} of {}: {}", tour.at + 1, tour.steps.len(), step.title);
    let block = frame_of(model, title, true)
        .title_bottom(" Space goes on, Backspace goes back; all other keys work as always ");
    let inner = block.inner(place);
    block.render(place, buffer);
    for (line, text) in
        words::wrap(step.text, inner.width.into()).iter().take(inner.height.into()).enumerate()
    {
        put(buffer, inner.x, inner.y + line as u16, inner.width, Role::Plain, text);
    }
}
