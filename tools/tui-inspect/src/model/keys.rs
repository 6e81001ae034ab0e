//! Handles keys and typed lines.

use betr_core::address::Address;
use betr_core::volume::Moment;
use crossterm::event::KeyEvent;

use super::pane::Pane;
use super::prompt::{Kind, Prompt, Typed};
use super::{Effect, Model, Screen};
use crate::action::{Action, fitting, of_key};
use crate::image::Source;
use crate::query::{Query, SpaceMode};
use crate::sheet::Role;
use crate::spot::Spot;
use crate::view;

impl Model {
    pub(super) fn key(&mut self, key: KeyEvent, effects: &mut Vec<Effect>) {
        self.status = None;
        if let Some(prompt) = &mut self.prompt {
            match prompt.key(key) {
                Typed::On => {}
                Typed::Never => self.prompt = None,
                Typed::Done => {
                    let prompt = self.prompt.take().expect("it was just there");
                    self.typed(prompt, effects);
                }
            }
            return;
        }
        if self.tour.is_some() && self.tour_key(key, effects) {
            return;
        }
        let Some(action) = of_key(key.code, key.modifiers, self.screen) else { return };
        if let Some(top) = &mut self.help {
            match action {
                Action::Down => *top += 1,
                Action::Up => *top = top.saturating_sub(1),
                Action::PageDown | Action::HalfDown => *top += 10,
                Action::PageUp | Action::HalfUp => *top = top.saturating_sub(10),
                Action::First => *top = 0,
                Action::Last => *top = usize::MAX,
                Action::Quit => effects.push(Effect::Quit),
                _ => self.help = None,
            }
            let most = view::help_rows(self).1;
            self.help = self.help.map(|top| top.min(most));
            return;
        }
        self.act(action, effects);
    }

    /// Carries out an action.
    pub(super) fn act(&mut self, action: Action, effects: &mut Vec<Effect>) {
        let page = self.height_of(self.focus).saturating_sub(1).max(1) as isize;
        match action {
            Action::Quit => effects.push(Effect::Quit),
            Action::Help => self.help = Some(0),
            Action::Open => self.open_selected(),
            Action::Out => self.out(),
            Action::Up => self.down(-1),
            Action::Down => self.down(1),
            Action::PageUp => self.down(-page),
            Action::PageDown => self.down(page),
            Action::HalfUp => self.down(-(page / 2).max(1)),
            Action::HalfDown => self.down((page / 2).max(1)),
            Action::Left => self.right(-1),
            Action::Right => self.right(1),
            Action::First => self.end_of(false),
            Action::Last => self.end_of(true),
            Action::NextPane => self.focus = (self.focus + 1) % self.panes.len().max(1),
            Action::PreviousPane => {
                self.focus = (self.focus + self.panes.len().max(1) - 1) % self.panes.len().max(1)
            }
            Action::Command => self.prompt = Some(Prompt::new(Kind::Command, "")),
            Action::Input => self.prompt = Some(Prompt::new(Kind::Input, "/")),
            Action::Search => self.prompt = Some(Prompt::new(Kind::Search, "")),
            Action::Next => self.search(false, effects),
            Action::Previous => self.search(true, effects),
            Action::Filter => self.prompt = Some(Prompt::new(Kind::Filter, "")),
            Action::Older => self.step(-1, effects),
            Action::Newer => self.step(1, effects),
            Action::AsOfHere => match self.selected(0).and_then(|row| row.spots.into_iter().next())
            {
                Some(Spot::At(Address::Record(lsn))) => {
                    self.open_at(Some(Moment::Record(lsn)), effects)
                }
                _ => self.say(Role::Warn, "no record is selected"),
            },
            Action::Compare => self.prompt = Some(Prompt::new(Kind::Compare, "checkpoint")),
            Action::Hex => self.go_to_first(
                Screen::Hex,
                |spot| spot.as_byte().is_some(),
                "nothing here has a place in bytes",
            ),
            Action::Refs => {
                let is_some = |spot: &Spot| {
                    !matches!(spot, Spot::Finding(..) | Spot::Image | Spot::At(Address::Record(_)))
                };
                self.go_to_first(Screen::Refs, is_some, "there are no references to this");
            }
            Action::Story => self.go_to_first(Screen::Key, Spot::is_key, "nothing here has a key"),
            Action::CopyAddress => {
                let text = self.spots().first().map_or_else(String::new, Spot::to_string);
                self.say(Role::Good, format!("copied {text}"));
                effects.push(Effect::Copy(text));
            }
            Action::CopyCommand => match self.command() {
                Some(text) => {
                    self.say(Role::Good, format!("copied: {text}"));
                    effects.push(Effect::Copy(text));
                }
                None => self.say(Role::Warn, "no command prints this by itself"),
            },
            Action::Back => self.back(),
            Action::Forward => {
                if let Some(visit) = self.forward.pop() {
                    let here = self.here();
                    self.back.push(here);
                    self.return_to(visit);
                }
            }
            Action::Mark => self.prompt = Some(Prompt::new(Kind::Mark, "")),
            Action::Jump => self.prompt = Some(Prompt::new(Kind::Jump, "")),
            Action::SiblingNext => self.sibling(1),
            Action::SiblingPrevious => self.sibling(-1),
            Action::Order => (self.by_msn, self.is_flushed) = (!self.by_msn, false),
            Action::Flushed => self.is_flushed = !self.is_flushed,
            Action::ZoomIn => self.zoom(true),
            Action::ZoomOut => self.zoom(false),
            Action::Colours => {
                let at = SpaceMode::ALL.iter().position(|mode| *mode == self.map.mode).unwrap_or(0);
                self.map.mode = SpaceMode::ALL[(at + 1) % SpaceMode::ALL.len()];
            }
            Action::Data => {
                self.checks_data = true;
                self.wants_repair = false;
            }
            Action::Preview => {
                self.wants_repair = true;
                self.cache.retain(|(query, _)| *query != Query::Repair);
            }
            Action::Overlay => match (&self.planned, &self.image.source) {
                (None, _) => self.say(Role::Warn, "there is no previewed repair: p makes one"),
                (Some(_), Source::Memory { .. }) => {
                    self.say(Role::Warn, "this image is in memory only")
                }
                (Some(_), Source::File { .. }) if self.image.moment.is_some() => {
                    self.say(Role::Warn, "a repair is of the image as it is now: ] goes there");
                }
                (Some(_), Source::File { .. }) => {
                    self.prompt = Some(Prompt::new(Kind::Overlay, ""))
                }
            },
            Action::Undo => match &self.image.source {
                Source::File { path, overlay: Some(_) } => {
                    let source = Source::File { path: path.clone(), overlay: None };
                    self.open(source, None, effects);
                }
                _ => self.say(Role::Warn, "the image is not seen through an overlay"),
            },
            Action::Expand => self.is_expanded = !self.is_expanded,
            Action::Save => match self.panes.get(self.focus).and_then(Pane::sheet) {
                Some(_) => self.prompt = Some(Prompt::new(Kind::Save, "")),
                None => self.say(
                    Role::Warn,
                    "this pane has no rows to save: Y has the command that prints it",
                ),
            },
            Action::Reload => {
                let moment = self.image.moment.clone();
                self.open_at(moment, effects);
            }
            Action::Show(screen) => {
                let spot = self.default_spot(screen);
                self.go(screen, spot);
            }
        }
        self.follow();
    }

    /// Handles a completed line.
    pub(super) fn typed(&mut self, prompt: Prompt, effects: &mut Vec<Effect>) {
        let text = prompt.text.trim().to_owned();
        match prompt.kind {
            Kind::Command => self.command_typed(&text, prompt.chosen, effects),
            Kind::Input => match text.parse::<Spot>() {
                Ok(spot) if spot.is_key() => self.go(Screen::Key, spot),
                Ok(spot) => self.go(spot.screen(), spot),
                Err(why) => self.say(Role::Bad, why),
            },
            Kind::Search => {
                self.last_text = prompt.text;
                self.search(false, effects);
            }
            Kind::Filter => self.filter(prompt.text, effects),
            Kind::Compare => match betr_cli::moment::parse_moment(&text) {
                Ok(moment) => {
                    self.compared = Some(moment);
                    self.focus = 2;
                    self.sync(effects);
                }
                Err(why) => self
                    .say(Role::Bad, format!("{}: {why}", betr_cli::show::bytes(text.as_bytes()))),
            },
            Kind::Save => {
                if let Some(pane) = self.panes.get(self.focus)
                    && let Some(sheet) = pane.sheet()
                    && !text.is_empty()
                {
                    let (query, sheet, spot) =
                        (pane.query.clone(), sheet.clone(), self.spot.clone());
                    effects.push(Effect::Save { path: text.into(), query, sheet, spot });
                }
            }
            Kind::Overlay => {
                if let Some(planned) = self.planned.clone().filter(|_| !text.is_empty()) {
                    effects.push(Effect::WriteOverlay { planned, path: text.into() });
                }
            }
            Kind::Mark => {
                if let Some(letter) = prompt.text.chars().next() {
                    let here = self.here();
                    self.marks.retain(|(known, _)| *known != letter);
                    self.marks.push((letter, here));
                    self.say(Role::Good, format!("marked as {letter}"));
                }
            }
            Kind::Jump => {
                let letter = prompt.text.chars().next();
                let found = self.marks.iter().find(|(known, _)| Some(*known) == letter);
                match found.map(|(_, visit)| visit.clone()) {
                    Some(visit) => {
                        self.leave();
                        self.return_to(visit);
                    }
                    None => self.say(Role::Warn, "there is no such mark"),
                }
            }
        }
        self.follow();
    }

    pub(super) fn command_typed(&mut self, text: &str, chosen: usize, effects: &mut Vec<Effect>) {
        if let Ok(spot) = text.parse::<Spot>() {
            return self.go(spot.screen(), spot);
        }
        let fitting = fitting(text, self.screen);
        match fitting.get(chosen.min(fitting.len().saturating_sub(1))) {
            Some(entry) if !text.is_empty() => self.act(entry.action, effects),
            _ => {
                let why = text.parse::<Spot>().err().unwrap_or_default();
                self.say(Role::Bad, why);
            }
        }
    }
}
