//! Stepping through moments.

use std::sync::Arc;

use betr_core::volume::Moment;

use super::{Effect, Model};
use crate::image::Source;
use crate::query::Query;
use crate::sheet::Role;
use crate::work::Work;

impl Model {
    /// Steps to an older or newer moment, once the list of moments is known.
    pub(super) fn step(&mut self, by: i32, effects: &mut Vec<Effect>) {
        self.steps += by;
        let Some(moments) = self.moments.clone() else {
            if self.looking.is_none() {
                let (generation, work) = (self.next_generation(), Arc::new(Work::default()));
                let image = self.image.clone();
                self.looking = Some((generation, work.clone()));
                effects.push(Effect::Ask { generation, query: Query::Moments, image, work });
            }
            return;
        };
        let steps = std::mem::take(&mut self.steps);
        let now = self.image.moment.clone().unwrap_or(Moment::Now);
        let at = moments.iter().position(|moment| *moment == now).unwrap_or_else(|| {
            // The moment is between two of the list: counted from the last older one.
            let older = |moment: &&Moment| match (moment, &now) {
                (Moment::Record(a), Moment::Record(b)) => a <= b,
                (Moment::Now, _) => false,
                _ => true,
            };
            moments.iter().take_while(older).count().saturating_sub(usize::from(steps > 0))
        });
        let to = at.saturating_add_signed(steps as isize).min(moments.len().saturating_sub(1));
        match moments.get(to) {
            Some(moment) if *moment != now => self.open_at(Some(moment.clone()), effects),
            _ => {
                let words = if steps < 0 {
                    "this is as far back as the image remembers"
                } else {
                    "this is now"
                };
                self.say(Role::Dim, words);
            }
        }
    }

    /// Opens the image at a moment.
    pub(crate) fn open_at(&mut self, moment: Option<Moment>, effects: &mut Vec<Effect>) {
        self.open(self.image.source.clone(), moment, effects);
    }

    /// Opens an image; an open that is still running is cancelled.
    pub(super) fn open(
        &mut self,
        source: Source,
        moment: Option<Moment>,
        effects: &mut Vec<Effect>,
    ) {
        let (generation, work) = (self.next_generation(), Arc::new(Work::default()));
        if let Some((_, before)) = self.opening.replace((generation, work.clone())) {
            before.cancel();
        }
        effects.push(Effect::Open { generation, source, moment, work });
    }

    pub(super) fn say(&mut self, role: Role, text: impl ToString) {
        self.status = Some((role, text.to_string()));
    }
}
