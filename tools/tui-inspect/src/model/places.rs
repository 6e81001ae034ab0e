//! Navigation: the current place and its history.

use betr_core::address::Address;

use super::pane::Pane;
use super::{Model, Screen, VISITS_MAX, Visit};
use crate::query::Content;
use crate::sheet::Role;
use crate::spot::Spot;

impl Model {
    pub(super) fn here(&self) -> Visit {
        let cursors = self.panes.iter().map(|pane| (pane.cursor, pane.top)).collect();
        Visit { screen: self.screen, spot: self.spot.clone(), focus: self.focus, cursors }
    }

    /// Adds the current place to the history.
    pub(super) fn leave(&mut self) {
        let here = self.here();
        if self.back.len() >= VISITS_MAX {
            self.back.remove(0);
        }
        self.back.push(here);
        self.forward.clear();
    }

    /// Goes to a spot on a screen.
    pub(super) fn go(&mut self, screen: Screen, spot: Spot) {
        if (screen, &spot) == (self.screen, &self.spot) {
            return;
        }
        self.leave();
        self.give_up_aside();
        self.stand(screen, spot);
        // Filters do not apply to the new place.
        for pane in &mut self.panes {
            pane.filter = None;
        }
    }

    /// Goes to the first spot that satisfies `will_do`.
    pub(super) fn go_to_first(
        &mut self,
        screen: Screen,
        will_do: impl Fn(&Spot) -> bool,
        otherwise: &str,
    ) {
        match self.spots().into_iter().find(|spot| will_do(spot)) {
            Some(spot) => self.go(screen, spot),
            None => self.say(Role::Warn, otherwise),
        }
    }

    pub(super) fn open_selected(&mut self) {
        if let Some(pane) = self.panes.get_mut(self.focus)
            && matches!(pane.answer, Some(Err(_)))
        {
            // A query that failed or was given up is sent again.
            pane.answer = None;
            pane.is_fresh = false;
            return;
        }
        let spots = self.spots();
        match (self.screen, spots.first()) {
            (Screen::Hex, Some(_)) if self.focus == 0 => {
                self.focus = 1.min(self.panes.len().saturating_sub(1))
            }
            (Screen::Space, Some(spot)) if self.focus == 0 => {
                // The node that owns the block, if there is one; otherwise the byte.
                let node = match self.panes[0].content() {
                    Some(Content::Space(space)) => space.node_at(self.map.cursor),
                    _ => None,
                };
                let spot = node.map_or_else(|| spot.clone(), Spot::node);
                self.go(spot.screen(), spot);
            }
            // A record is shown on the log screen itself.
            (Screen::Log, Some(Spot::At(Address::Record(_)))) if self.focus == 0 => {
                self.focus = 1.min(self.panes.len().saturating_sub(1))
            }
            (_, Some(Spot::Image)) | (_, None) => self.say(Role::Dim, "this leads nowhere"),
            (_, Some(spot)) => {
                let spot = spot.clone();
                self.go(spot.screen(), spot);
            }
        }
    }

    /// Goes one step out.
    pub(super) fn out(&mut self) {
        if !self.running().is_empty() {
            for pane in &mut self.panes {
                pane.give_up();
            }
            self.give_up_aside();
            for (_, work) in [self.opening.take(), self.looking.take()].into_iter().flatten() {
                work.cancel();
            }
            self.steps = 0;
            self.say(Role::Warn, "given up: Enter asks again");
        } else if let Some(pane) =
            self.panes.get_mut(self.focus).filter(|pane| pane.filter.is_some())
        {
            let row = pane.real_cursor();
            pane.filter = None;
            let height = self.height_of(self.focus);
            self.panes[self.focus].go(row, height);
        } else if self.is_expanded {
            self.is_expanded = false;
        } else if self.compared.is_some() && self.screen == Screen::Log {
            self.compared = None;
        } else if self.wants_repair {
            self.wants_repair = false;
        } else {
            self.back();
        }
    }

    pub(super) fn back(&mut self) {
        match self.back.pop() {
            Some(visit) => {
                let here = self.here();
                self.forward.push(here);
                self.return_to(visit);
            }
            None if self.screen != Screen::Overview => self.stand(Screen::Overview, Spot::Image),
            None => {}
        }
    }

    pub(super) fn return_to(&mut self, visit: Visit) {
        self.give_up_aside();
        self.stand(visit.screen, visit.spot);
        self.focus = visit.focus;
        self.returning = visit.cursors.into_iter().map(Some).collect();
    }

    pub(super) fn sibling(&mut self, by: isize) {
        let Some(sheet) = self.panes.first().and_then(Pane::sheet) else { return };
        let Some(here) = self.spot.as_node() else { return };
        let row = |at: usize| {
            let row = sheet.rows.row(at);
            (row.spots.first().and_then(Spot::as_node), row.depth)
        };
        let rows: Vec<_> = (0..sheet.len()).map(row).collect();
        let Some(at) = rows.iter().position(|(node, _)| *node == Some(here)) else { return };
        let siblings: Vec<_> = rows
            .iter()
            .filter(|(_, depth)| *depth == rows[at].1)
            .filter_map(|(node, _)| *node)
            .collect();
        let place = siblings.iter().position(|node| *node == here);
        let next = place
            .and_then(|place| place.checked_add_signed(by))
            .and_then(|place| siblings.get(place));
        match next {
            Some(id) => {
                let spot = Spot::node(*id);
                self.go(Screen::Node, spot);
            }
            None => self.say(Role::Dim, "there is no sibling there"),
        }
    }
}
