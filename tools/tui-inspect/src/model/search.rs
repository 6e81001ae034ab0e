//! Search and filter of rows, and the shell command that prints them.

use std::sync::Arc;

use super::pane::Pane;
use super::{Aside, Effect, Model};
use crate::image::Source;
use crate::query::Query;
use crate::sheet::{Role, Sheet};
use crate::spot::Spot;
use crate::work::Work;

impl Model {
    pub(super) fn search(&mut self, back: bool, effects: &mut Vec<Effect>) {
        let (text, pane) = (self.last_text.clone(), self.focus);
        let Some(sheet) = self.panes.get(pane).and_then(Pane::sheet).cloned() else {
            return self.say(Role::Warn, "this pane has no rows: Tab goes to the next");
        };
        if text.is_empty() || sheet.len() == 0 {
            return self.say(Role::Warn, "nothing to look for: / asks what");
        }
        let from = self.panes[pane].cursor;
        let (generation, work) = self.start_aside("search", pane, &sheet);
        effects.push(Effect::Find { generation, sheet, text, from, back, work });
    }

    pub(super) fn filter(&mut self, text: String, effects: &mut Vec<Effect>) {
        let pane = self.focus;
        let Some(sheet) = self.panes.get(pane).and_then(Pane::whole).cloned() else {
            return self.say(Role::Warn, "this pane has no rows");
        };
        if text.is_empty() {
            self.panes[pane].filter = None;
            return;
        }
        self.last_text = text.clone();
        let (generation, work) = self.start_aside("filter", pane, &sheet);
        effects.push(Effect::Filter { generation, sheet, text, work });
    }

    /// Starts a search or filter of the rows of a pane; a previous one is cancelled.
    fn start_aside(
        &mut self,
        what: &'static str,
        pane: usize,
        sheet: &Arc<Sheet>,
    ) -> (u64, Arc<Work>) {
        self.give_up_aside();
        let (generation, work) = (self.next_generation(), Arc::new(Work::default()));
        let sheet = sheet.clone();
        self.aside = Some(Aside { generation, work: work.clone(), what, pane, sheet });
        (generation, work)
    }

    pub(super) fn give_up_aside(&mut self) {
        if let Some(aside) = self.aside.take() {
            aside.work.cancel();
        }
    }

    /// The shell command that prints the content of the focused pane; `None` if no command does.
    pub(super) fn command(&self) -> Option<String> {
        let (tool, words) = self.panes.get(self.focus)?.query.command()?;
        let Source::File { path, overlay } = &self.image.source else { return None };
        let image = path.to_str()?.to_owned();
        let mut line = vec!["betr".to_owned(), tool.to_owned()];
        let mut words = words;
        if let Query::Messages { .. } = self.panes[self.focus].query {
            let row = self.selected(1);
            let child = row.and_then(|row| row.spots.first().and_then(Spot::as_node));
            words.extend(child.map(|child| child.to_string()));
        }
        match tool {
            "fsck" => line.extend(words.into_iter().chain([image])),
            _ => line.extend([image].into_iter().chain(words)),
        }
        if let Some(moment) =
            self.image.moment.as_ref().filter(|_| matches!(tool, "dump" | "explain" | "ls"))
        {
            line.extend(["--as-of".to_owned(), crate::words::moment(moment)]);
        }
        if let Some(overlay) = overlay {
            line.extend(["--overlay".to_owned(), overlay.to_str()?.to_owned()]);
        }
        shlex::try_join(line.iter().map(String::as_str)).ok()
    }
}
