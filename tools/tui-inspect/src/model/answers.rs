//! Sends the queries of the panes and handles their answers.

use std::path::PathBuf;
use std::sync::Arc;

use betr_core::address::Address;

use super::pane::{Pane, Running};
use super::{CACHE_MAX, Effect, Model, Screen, Wrote};
use crate::image::{Image, Source};
use crate::query::{Content, Query};
use crate::sheet::{Role, Sheet};
use crate::spot::Spot;
use crate::work::Work;

/// The most rows that are searched for the selected spot.
const ROWS_SEARCHED: usize = 100_000;

impl Model {
    /// Sends the query of every pane that lacks its answer.
    pub(crate) fn sync(&mut self, effects: &mut Vec<Effect>) {
        // The query of a later pane depends on the selection in an earlier one.
        for at in 0.. {
            let wanted = self.wanted();
            // Only visible panes, and those they depend on, are queried.
            let last_seen = crate::view::last_pane(self, wanted.len());
            if at == wanted.len() {
                for pane in self.panes.drain(at..) {
                    if let Some(running) = pane.running {
                        running.work.cancel();
                    }
                }
                break;
            }
            let query = &wanted[at];
            if at == self.panes.len() {
                self.panes.push(Pane::new(query.clone()));
            } else if self.panes[at].query != *query {
                self.panes[at].cancel();
                let old = std::mem::replace(&mut self.panes[at], Pane::new(query.clone()));
                let pane = &mut self.panes[at];
                pane.running = old.running;
                // The old content stays visible until the new answer arrives, if both are of the same kind.
                if std::mem::discriminant(&old.query) == std::mem::discriminant(query) {
                    pane.answer = old.answer.filter(Result::is_ok);
                }
            }
            let pane = &mut self.panes[at];
            if pane.is_fresh || pane.running.is_some() || at > last_seen {
                continue;
            }
            if let Some((_, content)) = self.cache.iter().find(|(known, _)| *known == pane.query) {
                let content = content.clone();
                self.show(at, Ok(content));
                continue;
            }
            let generation = self.next_generation();
            let work = Arc::new(Work::default());
            let (query, image) = (self.panes[at].query.clone(), self.image.clone());
            let running = Running { generation, work: work.clone(), query: query.clone() };
            self.panes[at].running = Some(running);
            effects.push(Effect::Ask { generation, query, image, work });
        }
        self.focus = self.focus.min(self.panes.len().saturating_sub(1));
    }

    pub(super) fn answer(
        &mut self,
        generation: u64,
        answer: Result<Content, String>,
        effects: &mut Vec<Effect>,
    ) {
        if self.looking.take_if(|looking| looking.0 == generation).is_some() {
            match answer {
                Ok(Content::Moments(moments)) => {
                    self.moments = Some(moments);
                    self.step(0, effects);
                }
                Ok(_) => {}
                Err(why) => {
                    self.steps = 0;
                    self.say(Role::Bad, why);
                }
            }
            return;
        }
        let is_of = |pane: &Pane| {
            pane.running.as_ref().is_some_and(|running| running.generation == generation)
        };
        let Some(at) = self.panes.iter().position(is_of) else { return };
        let pane = &mut self.panes[at];
        let Some(running) = pane.running.take() else { return };
        // The pane has another query by now, or gave this one up.
        if running.query != pane.query || pane.is_fresh || running.work.is_cancelled() {
            return;
        }
        if let Ok(content) = &answer {
            self.remember(at, content);
        }
        self.show(at, answer);
    }

    /// Caches an answer for a return to it.
    pub(super) fn remember(&mut self, at: usize, content: &Content) {
        let query = self.panes[at].query.clone();
        if let (Query::Check { .. }, Content::Sheet(sheet)) = (&query, content) {
            let report = self.image.report.lock().clone();
            let errors = report.iter().flat_map(|report| &report.findings);
            let errors = errors
                .filter(|finding| finding.code.severity() == betr_core::check::Severity::Error)
                .count();
            self.findings = Some((errors, sheet.len() - errors.min(sheet.len())));
            // Cached answers about findings belong to an earlier check.
            self.cache.retain(|(known, _)| !matches!(known, Query::Problem(_) | Query::Repair));
            for pane in &mut self.panes[at + 1..] {
                pane.is_fresh = false;
            }
        }
        if let Content::Repair(planned, _) = content {
            self.planned = Some(planned.clone());
        }
        self.cache.retain(|(known, _)| *known != query);
        if self.cache.len() >= CACHE_MAX {
            self.cache.remove(0);
        }
        self.cache.push((query, content.clone()));
    }

    /// Shows an answer in a pane.
    pub(super) fn show(&mut self, at: usize, answer: Result<Content, String>) {
        let height = self.height_of(at);
        let wanted = self.start_of(at, &answer);
        if let Some(Err(())) = wanted {
            let text = format!("there is no {} here", self.spot);
            self.say(Role::Warn, text);
        }
        let returned = self.returning.get_mut(at).and_then(Option::take);
        let pane = &mut self.panes[at];
        pane.answer = Some(answer);
        pane.is_fresh = true;
        pane.filter = None;
        let wanted = wanted.and_then(Result::ok);
        let start = wanted.or_else(|| pane.whole().map(|sheet| sheet.start)).unwrap_or(0);
        match returned {
            Some((cursor, top)) => {
                pane.top = top;
                pane.go(cursor, height);
            }
            None => pane.go(start, height),
        }
    }

    /// The row of the current spot; an error if the sheet should contain it and does not.
    fn start_of(&self, at: usize, answer: &Result<Content, String>) -> Option<Result<usize, ()>> {
        let Ok(Content::Sheet(sheet)) = answer else { return None };
        let with = |wanted: &Spot| {
            let mut rows = 0..sheet.len().min(ROWS_SEARCHED);
            let found = rows.find(|row| sheet.rows.row(*row).spots.contains(wanted));
            Some(found.ok_or(()))
        };
        match (self.screen, at, &self.spot) {
            (Screen::Node, 1, Spot::Buffer(id, child, _)) => with(&Spot::Buffer(*id, *child, None)),
            (Screen::Node, 2, Spot::Buffer(_, _, Some(_))) => with(&self.spot),
            (Screen::Node, 1, Spot::Part(..)) => with(&self.spot),
            (Screen::Findings, 0, Spot::Finding(..)) => with(&self.spot),
            (Screen::Zones, 0, Spot::At(Address::Zone(_))) => with(&self.spot),
            (Screen::Log, 0, Spot::At(Address::Record(lsn))) => {
                // Records are in the order of their LSNs.
                let lsn_of = |row: usize| match sheet.rows.row(row).spots.first() {
                    Some(Spot::At(Address::Record(lsn))) => lsn.0,
                    _ => 0,
                };
                let (mut low, mut high) = (0, sheet.len());
                while low < high {
                    let middle = low + (high - low) / 2;
                    if lsn_of(middle) <= lsn.0 { low = middle + 1 } else { high = middle }
                }
                // A record covers as many LSNs as it has messages, so the last record at or before the LSN is the one.
                Some(low.checked_sub(1).ok_or(()))
            }
            _ => None,
        }
    }

    pub(super) fn found(&mut self, generation: u64, found: Result<Option<usize>, String>) {
        let Some(aside) = self.aside.take_if(|aside| aside.generation == generation) else {
            return;
        };
        let height = self.height_of(aside.pane);
        let pane = self.panes.get_mut(aside.pane);
        // The pane may show another sheet by now.
        let pane =
            pane.filter(|pane| pane.sheet().is_some_and(|sheet| Arc::ptr_eq(sheet, &aside.sheet)));
        match (found, pane) {
            (Ok(Some(row)), Some(pane)) => {
                pane.go(row, height);
                self.selection_moved();
            }
            (Ok(None), Some(_)) => {
                let text = betr_cli::show::bytes(self.last_text.as_bytes());
                self.say(Role::Warn, format!("no row has '{text}'"));
            }
            (Err(why), _) => self.say(Role::Bad, why),
            (_, None) => {}
        }
    }

    pub(super) fn filtered(
        &mut self,
        generation: u64,
        text: String,
        filtered: Result<Arc<Sheet>, String>,
    ) {
        let Some(aside) = self.aside.take_if(|aside| aside.generation == generation) else {
            return;
        };
        let height = self.height_of(aside.pane);
        let pane = self.panes.get_mut(aside.pane);
        let pane =
            pane.filter(|pane| pane.whole().is_some_and(|sheet| Arc::ptr_eq(sheet, &aside.sheet)));
        match (filtered, pane) {
            (Ok(sheet), Some(pane)) => {
                pane.filter = Some((text, sheet));
                pane.go(0, height);
            }
            (Err(why), _) => self.say(Role::Bad, why),
            (Ok(_), None) => {}
        }
    }

    /// An image was opened, at another moment or anew: all queries are sent again.
    pub(super) fn opened(&mut self, generation: u64, opened: Result<Arc<Image>, String>) {
        if self.opening.take_if(|opening| opening.0 == generation).is_none() {
            return;
        }
        match opened {
            Err(why) => self.say(Role::Bad, why),
            Ok(image) => self.take(image),
        }
    }

    /// Drops every answer.
    pub(super) fn forget(&mut self) {
        self.cache.clear();
        self.give_up_aside();
        for pane in &mut self.panes {
            pane.cancel();
            // A late answer would be about the old image.
            pane.running = None;
            pane.is_fresh = false;
            pane.filter = None;
        }
    }

    pub(super) fn wrote(
        &mut self,
        what: Wrote,
        wrote: Result<PathBuf, String>,
        effects: &mut Vec<Effect>,
    ) {
        match (what, wrote) {
            (_, Err(why)) => self.say(Role::Bad, why),
            (Wrote::Json, Ok(path)) => {
                self.say(Role::Good, format!("saved to {}", betr_cli::show::path(path)))
            }
            (Wrote::Overlay, Ok(overlay)) => {
                let shown = betr_cli::show::path(&overlay);
                self.say(Role::Good, format!("{shown} holds the repair; the image is seen through it, and is as it was: u leaves it, betr fsck --apply writes it"));
                if let Source::File { path, .. } = &self.image.source {
                    let source = Source::File { path: path.clone(), overlay: Some(overlay) };
                    self.open(source, None, effects);
                }
            }
        }
    }
}
