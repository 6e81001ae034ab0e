//! The table of all actions, from which keys, footer, help, palette and manual are generated.

use crossterm::event::{KeyCode, KeyModifiers};

use crate::model::Screen;

/// An action of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Open,
    Out,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    HalfUp,
    HalfDown,
    First,
    Last,
    NextPane,
    PreviousPane,
    Command,
    Input,
    Search,
    Next,
    Previous,
    Filter,
    Older,
    Newer,
    AsOfHere,
    Compare,
    Hex,
    Refs,
    Story,
    CopyAddress,
    CopyCommand,
    Back,
    Forward,
    Mark,
    Jump,
    SiblingNext,
    SiblingPrevious,
    Order,
    Flushed,
    ZoomIn,
    ZoomOut,
    Colours,
    Data,
    Preview,
    Overlay,
    Undo,
    Expand,
    Save,
    Reload,
    Show(Screen),
    Help,
    Quit,
}

/// A row of the table.
pub(crate) struct Entry {
    pub action: Action,
    /// Its name in the palette.
    pub id: &'static str,
    pub keys: &'static [(KeyCode, KeyModifiers)],
    /// The screens on which it applies; empty for all.
    pub screens: &'static [Screen],
    /// A word or two for the footer; empty to keep it out of the footer.
    pub title: &'static str,
    pub help: &'static str,
}

const NONE: KeyModifiers = KeyModifiers::NONE;
const CONTROL: KeyModifiers = KeyModifiers::CONTROL;
const SHIFT: KeyModifiers = KeyModifiers::SHIFT;
const ALL: &[Screen] = &[];

macro_rules! table {
    ($($action:expr, $id:literal, [$($key:expr, $modifier:expr);*], $screens:expr, $title:literal, $help:literal;)*) => {
        /// All actions, the most useful first.
        pub(crate) const ACTIONS: &[Entry] = &[$(Entry {
            action: $action,
            id: $id,
            keys: &[$(($key, $modifier)),*],
            screens: $screens,
            title: $title,
            help: $help,
        }),*];
    };
}

use Action as A;
use KeyCode::Char;

table! {
    A::Open, "open", [KeyCode::Enter, NONE], ALL, "open", "Go to what the selected row stands for.";
    A::Out, "out", [KeyCode::Esc, NONE], ALL, "out", "Close what is open, stop what runs, go back; at last, to the overview.";
    A::Preview, "preview-repair", [Char('p'), NONE], &[Screen::Findings], "preview repair", "Make the repair in memory, and show what it would change and lose.";
    A::Overlay, "write-overlay", [Char('w'), NONE], &[Screen::Findings], "write overlay", "Write the previewed repair to an overlay file, and look at the image through it.";
    A::Undo, "leave-overlay", [Char('u'), NONE], &[Screen::Findings], "leave overlay", "Look at the image without the overlay again.";
    A::Data, "check-data", [Char('d'), NONE], &[Screen::Findings], "check data", "Check again, with the values of all files.";
    A::AsOfHere, "as-of-here", [Char('t'), NONE], &[Screen::Log], "as of here", "See everything as it was right after the selected record.";
    A::Compare, "compare", [Char('D'), SHIFT], &[Screen::Log], "compare", "Compare the moment that is shown with another one: paths, keys, nodes.";
    A::Flushed, "flushed", [Char('a'), NONE], &[Screen::Node], "after flush", "Show the leaf as it would be after this flush; again for the messages.";
    A::Order, "order", [Char('o'), NONE], &[Screen::Node], "order", "Messages in the order of keys, or of their numbers.";
    A::SiblingNext, "sibling-next", [Char('J'), SHIFT], &[Screen::Node], "sibling", "Go to the next node below the same parent.";
    A::SiblingPrevious, "sibling-previous", [Char('K'), SHIFT], &[Screen::Node], "", "Go to the node before it.";
    A::ZoomIn, "zoom-in", [Char('+'), NONE; Char('+'), SHIFT], &[Screen::Space], "zoom", "Half as many blocks in a cell, around the cursor.";
    A::ZoomOut, "zoom-out", [Char('-'), NONE], &[Screen::Space], "", "Twice as many blocks in a cell.";
    A::Colours, "colours", [Char('c'), NONE], &[Screen::Space], "colours", "Paint by owner, by age, by fill, by what is pending.";
    A::Input, "input", [Char('i'), NONE], ALL, "path or key", "Type a path or a key, and see how its value comes about.";
    A::NextPane, "next-pane", [KeyCode::Tab, NONE], ALL, "pane", "Go to the next pane.";
    A::PreviousPane, "previous-pane", [KeyCode::BackTab, SHIFT; KeyCode::BackTab, NONE], ALL, "", "Go to the pane before.";
    A::Search, "search", [Char('/'), NONE], ALL, "search", "Look for a text in this pane.";
    A::Next, "next", [Char('n'), NONE], ALL, "", "Go to the next row with the text.";
    A::Previous, "previous", [Char('N'), SHIFT], ALL, "", "Go to the row with the text before.";
    A::Filter, "filter", [Char('f'), NONE], ALL, "filter", "Show only rows with a text; Esc shows all again.";
    A::Command, "command", [Char(':'), NONE; Char(':'), SHIFT], ALL, "go/command", "Go to an address, or do something by its name.";
    A::Older, "older", [Char('['), NONE], ALL, "as-of", "Go back in time: over log groups to the checkpoint, and to older epochs.";
    A::Newer, "newer", [Char(']'), NONE], ALL, "", "Go forward in time.";
    A::Hex, "hex", [Char('x'), NONE], ALL, "hex", "Show the bytes of the selection.";
    A::Refs, "refs", [Char('r'), NONE], ALL, "refs", "Show who points to the selection.";
    A::Story, "story", [Char('='), NONE], ALL, "key", "Show how the value of the selection comes about.";
    A::CopyAddress, "copy-address", [Char('y'), NONE], ALL, "copy", "Copy the address of the selection.";
    A::CopyCommand, "copy-command", [Char('Y'), SHIFT], ALL, "", "Copy the shell command that prints the same.";
    A::Back, "back", [Char('H'), SHIFT], ALL, "", "Go back to where you were.";
    A::Forward, "forward", [Char('L'), SHIFT], ALL, "", "Go forward again.";
    A::Mark, "mark", [Char('m'), NONE], ALL, "", "Remember this place under the next letter.";
    A::Jump, "jump", [Char('\''), NONE], ALL, "", "Go to the place that was remembered under the next letter.";
    A::Expand, "expand", [Char('e'), NONE], ALL, "", "Give this pane all of the room, or what it had before.";
    A::Save, "save", [Char('s'), NONE], ALL, "", "Save the rows of this pane as JSON.";
    A::Reload, "reload", [Char('R'), SHIFT], ALL, "", "Read the image again, after another process changed it.";
    A::Up, "up", [KeyCode::Up, NONE; Char('k'), NONE], ALL, "", "Move up.";
    A::Down, "down", [KeyCode::Down, NONE; Char('j'), NONE], ALL, "", "Move down.";
    A::Left, "left", [KeyCode::Left, NONE; Char('h'), NONE], ALL, "", "Move left.";
    A::Right, "right", [KeyCode::Right, NONE; Char('l'), NONE], ALL, "", "Move right.";
    A::PageUp, "page-up", [KeyCode::PageUp, NONE], ALL, "", "Move up by a page.";
    A::PageDown, "page-down", [KeyCode::PageDown, NONE], ALL, "", "Move down by a page.";
    A::HalfUp, "half-up", [Char('u'), CONTROL], ALL, "", "Move up by half a page.";
    A::HalfDown, "half-down", [Char('d'), CONTROL], ALL, "", "Move down by half a page.";
    A::First, "first", [Char('g'), NONE; KeyCode::Home, NONE], ALL, "", "Go to the first row.";
    A::Last, "last", [Char('G'), SHIFT; KeyCode::End, NONE], ALL, "", "Go to the last row.";
    A::Show(Screen::Overview), "overview", [Char('1'), NONE], ALL, "", "Superblocks, geometry, nodes by height.";
    A::Show(Screen::Space), "space", [Char('2'), NONE], ALL, "", "The whole device as a map.";
    A::Show(Screen::Zones), "zones", [Char('3'), NONE], ALL, "", "The zones, with what they hold and may hold.";
    A::Show(Screen::Node), "node", [Char('4'), NONE], ALL, "", "A node: children, buffers, basements.";
    A::Show(Screen::Key), "key", [Char('5'), NONE], ALL, "", "A path or key: how its value comes about.";
    A::Show(Screen::Log), "log", [Char('6'), NONE], ALL, "", "The log, record by record.";
    A::Show(Screen::Refs), "refs-screen", [Char('7'), NONE], ALL, "", "Who points where.";
    A::Show(Screen::Findings), "findings", [Char('8'), NONE], ALL, "", "What a check finds, and the repair.";
    A::Show(Screen::Hex), "hex-screen", [Char('9'), NONE], ALL, "", "Bytes, and the fields that they are.";
    A::Help, "help", [Char('?'), NONE; Char('?'), SHIFT], ALL, "help", "All keys.";
    A::Quit, "quit", [Char('q'), NONE; Char('c'), CONTROL], ALL, "quit", "End.";
}

impl Entry {
    pub(crate) fn applies(&self, screen: Screen) -> bool {
        self.screens.is_empty() || self.screens.contains(&screen)
    }

    /// Its keys as text.
    pub(crate) fn keys(&self) -> String {
        let mut names: Vec<String> =
            self.keys.iter().map(|(code, modifiers)| key_name(*code, *modifiers)).collect();
        names.dedup();
        names.join(" ")
    }
}

/// A key as text.
fn key_name(code: KeyCode, modifiers: KeyModifiers) -> String {
    let name = match code {
        Char(' ') => "Space".into(),
        Char(c) => c.to_string(),
        KeyCode::BackTab => "S-Tab".into(),
        other => format!("{other:?}"),
    };
    if modifiers.contains(CONTROL) { format!("C-{name}") } else { name }
}

/// The action of a key on a screen.
pub(crate) fn of_key(code: KeyCode, modifiers: KeyModifiers, screen: Screen) -> Option<Action> {
    // Terminals differ in whether they report Shift with a letter or sign, so only Control is compared.
    let modifiers = match code {
        Char(_) => modifiers & CONTROL,
        _ => modifiers,
    };
    let matches = |(wanted, with): &(KeyCode, KeyModifiers)| {
        let with = if matches!(wanted, Char(_)) { *with & CONTROL } else { *with };
        *wanted == code && with == modifiers
    };
    let found =
        ACTIONS.iter().find(|entry| entry.applies(screen) && entry.keys.iter().any(matches));
    found.map(|entry| entry.action)
}

/// The actions whose names contain the typed letters in order, the best match first.
pub(crate) fn fitting(typed: &str, screen: Screen) -> Vec<&'static Entry> {
    let mut found: Vec<(usize, &Entry)> = ACTIONS
        .iter()
        .filter(|entry| entry.applies(screen))
        .filter_map(|entry| Some((distance(entry.id, typed)?, entry)))
        .collect();
    found.sort_by_key(|(distance, entry)| (*distance, entry.id.len()));
    found.into_iter().map(|(_, entry)| entry).collect()
}

/// The total gap between the letters of `typed` in `name`; `None` unless `name` contains all of them in order.
fn distance(name: &str, typed: &str) -> Option<usize> {
    let mut letters = name.char_indices();
    let (mut last, mut sum) = (None, 0);
    for wanted in typed.chars() {
        let (at, _) = letters.find(|(_, letter)| letter.eq_ignore_ascii_case(&wanted))?;
        sum += last.map_or(at, |last: usize| at - last - 1);
        last = Some(at);
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_means_two_things() {
        for screen in Screen::ALL {
            let mut known = Vec::new();
            for entry in ACTIONS.iter().filter(|entry| entry.applies(screen)) {
                for (code, modifiers) in entry.keys {
                    let folded =
                        if matches!(code, Char(_)) { *modifiers & CONTROL } else { *modifiers };
                    let found = of_key(*code, *modifiers, screen);
                    assert_eq!(found, Some(entry.action), "{} of {}", entry.keys(), entry.id);
                    let key = (*code, folded);
                    assert!(
                        !known.contains(&(key, entry.action)) || entry.keys.len() > 1,
                        "{}",
                        entry.id
                    );
                    known.push((key, entry.action));
                }
            }
        }
        for (at, entry) in ACTIONS.iter().enumerate() {
            assert!(ACTIONS[..at].iter().all(|other| other.id != entry.id), "{} twice", entry.id);
        }
    }

    #[test]
    fn the_table() {
        let line = |entry: &Entry| {
            let screens: Vec<&str> = entry.screens.iter().map(|screen| screen.name()).collect();
            let screens = if screens.is_empty() { "everywhere".into() } else { screens.join(" ") };
            format!("{:<10} {:<18} {screens:<12} {}", entry.keys(), entry.id, entry.help)
        };
        let lines: Vec<String> = ACTIONS.iter().map(line).collect();
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn names_are_found_by_some_of_their_letters() {
        let first = |typed: &str| fitting(typed, Screen::Findings).first().map(|entry| entry.id);
        assert_eq!(first("wo"), Some("write-overlay"));
        assert_eq!(first("quit"), Some("quit"));
        assert_eq!(first("zoom"), None);
        assert_eq!(first("hex"), Some("hex"));
    }
}
