//! The line editor of prompts.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The purpose of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An address, or the name of an action.
    Command,
    /// A path or key.
    Input,
    Search,
    Filter,
    /// A moment to compare with.
    Compare,
    /// The file to save the pane to.
    Save,
    /// The file for the repair plan: typing it is the consent.
    Overlay,
    /// The letter of a mark.
    Mark,
    Jump,
}

/// A line that is being edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prompt {
    pub kind: Kind,
    pub text: String,
    /// The index of the selected suggestion.
    pub chosen: usize,
}

/// The most bytes in a line.
const TEXT_MAX: usize = 4096;

/// The effect of a key on a line.
pub(crate) enum Typed {
    /// Editing continues.
    On,
    /// The line is complete.
    Done,
    /// The line is cancelled.
    Never,
}

impl Prompt {
    pub(crate) fn new(kind: Kind, text: impl Into<String>) -> Prompt {
        Prompt { kind, text: text.into(), chosen: 0 }
    }

    /// The text before the line.
    pub(crate) fn title(&self) -> &'static str {
        match self.kind {
            Kind::Command => "go to, or do: ",
            Kind::Input => "path or key: ",
            Kind::Search => "search: ",
            Kind::Filter => "show rows with: ",
            Kind::Compare => "compare with (checkpoint, now, l:LSN, t:TIME, e:EPOCH): ",
            Kind::Save => "save as JSON to: ",
            Kind::Overlay => "write the repair to a new file, and look through it: ",
            Kind::Mark => "mark with a letter: ",
            Kind::Jump => "go to the mark: ",
        }
    }

    /// Inserts the first line of a pasted text.
    pub(crate) fn paste(&mut self, text: &str) {
        let line = text.lines().next().unwrap_or_default();
        let room = TEXT_MAX.saturating_sub(self.text.len());
        let mut used = 0;
        let fits = |letter: &char| {
            used += letter.len_utf8();
            used <= room
        };
        self.text.extend(line.chars().filter(|letter| !letter.is_control()).take_while(fits));
    }

    pub(crate) fn key(&mut self, key: KeyEvent) -> Typed {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Esc => return Typed::Never,
            KeyCode::Char('c' | 'g') if control => return Typed::Never,
            KeyCode::Enter => return Typed::Done,
            KeyCode::Backspace => match self.text.pop() {
                Some(_) => {}
                None => return Typed::Never,
            },
            KeyCode::Char('u') if control => self.text.clear(),
            KeyCode::Char('w') if control => {
                // Deletes the last word with its separator.
                let before = self.text.trim_end_matches(['/', ' ']);
                let end = before.rfind(['/', ' ']).map_or(0, |at| at + 1);
                self.text.truncate(end);
            }
            KeyCode::Down | KeyCode::Tab => self.chosen = self.chosen.saturating_add(1),
            KeyCode::Up | KeyCode::BackTab => self.chosen = self.chosen.saturating_sub(1),
            KeyCode::Char(letter) if !control => {
                if matches!(self.kind, Kind::Mark | Kind::Jump) {
                    self.text = letter.to_string();
                    return Typed::Done;
                }
                if self.text.len() < TEXT_MAX {
                    self.text.push(letter);
                }
                self.chosen = 0;
            }
            _ => {}
        }
        Typed::On
    }
}
