//! A pane: its query, the answer, and the cursor.

use std::sync::Arc;

use crate::query::{Content, Query};
use crate::sheet::{Row, Sheet};
use crate::work::Work;

/// The running query of a pane.
pub(crate) struct Running {
    pub generation: u64,
    pub work: Arc<Work>,
    pub query: Query,
}

/// A pane of the screen.
pub(crate) struct Pane {
    pub query: Query,
    /// The answer; an old one stays until the new one arrives.
    pub answer: Option<Result<Content, String>>,
    /// Whether `answer` is the answer to `query`.
    pub is_fresh: bool,
    pub running: Option<Running>,
    pub cursor: usize,
    pub top: usize,
    pub left: u16,
    /// The filter text, and the rows that contain it.
    pub filter: Option<(String, Arc<Sheet>)>,
}

impl Pane {
    pub(crate) fn new(query: Query) -> Pane {
        Pane {
            query,
            answer: None,
            is_fresh: false,
            running: None,
            cursor: 0,
            top: 0,
            left: 0,
            filter: None,
        }
    }

    pub(crate) fn content(&self) -> Option<&Content> {
        self.answer.as_ref()?.as_ref().ok()
    }

    /// The sheet without the filter.
    pub(crate) fn whole(&self) -> Option<&Arc<Sheet>> {
        match self.content()? {
            Content::Sheet(sheet) | Content::Repair(_, sheet) => Some(sheet),
            Content::Fields(fields) => Some(&fields.sheet),
            Content::Space(_) | Content::Bytes(_) | Content::Moments(_) => None,
        }
    }

    /// The sheet as displayed, with the filter.
    pub(crate) fn sheet(&self) -> Option<&Arc<Sheet>> {
        self.filter.as_ref().map(|(_, sheet)| sheet).or_else(|| self.whole())
    }

    pub(crate) fn len(&self) -> usize {
        self.sheet().map_or(0, |sheet| sheet.len())
    }

    /// The selected row.
    pub(crate) fn selected(&self) -> Option<Row> {
        let sheet = self.sheet().filter(|_| self.is_fresh)?;
        (self.cursor < sheet.len()).then(|| sheet.rows.row(self.cursor))
    }

    /// The index of the selected row in the unfiltered sheet.
    pub(crate) fn real_cursor(&self) -> usize {
        match &self.filter {
            Some((_, sheet)) => sheet.rows.origin(self.cursor),
            None => self.cursor,
        }
    }

    /// Moves the cursor and scrolls, with `height` visible rows.
    pub(crate) fn go(&mut self, to: usize, height: usize) {
        self.cursor = to.min(self.len().saturating_sub(1));
        self.follow(height);
    }

    /// Scrolls to the cursor.
    pub(crate) fn follow(&mut self, height: usize) {
        let height = height.max(1);
        self.top = self.top.min(self.cursor).max((self.cursor + 1).saturating_sub(height));
        let last = self.len().saturating_sub(height);
        self.top = self.top.min(last.max(self.cursor.saturating_sub(height - 1)));
    }

    /// Cancels the running query.
    pub(crate) fn cancel(&mut self) {
        if let Some(running) = &self.running {
            running.work.cancel();
        }
    }

    /// Cancels the running query until the user requests it again.
    pub(crate) fn give_up(&mut self) {
        if self.running.is_some() && !self.is_fresh {
            self.cancel();
            self.answer = Some(Err("given up: Enter asks again".into()));
            self.is_fresh = true;
        }
    }
}
