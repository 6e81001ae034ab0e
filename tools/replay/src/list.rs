//! `replay list`: prints one line per record.

use std::ops::ControlFlow;

use betr_cli::{Exit, Failure, Io, JsonList};
use serde_json::json;

use crate::filter::Filter;
use crate::{Log, event};

/// What `list` takes.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    filter: Filter,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print JSON, a record in each line
    #[arg(long, conflicts_with = "json")]
    ndjson: bool,
}

impl Args {
    pub(crate) fn run(&self, log: &Log, io: &mut Io) -> Result<Exit, Failure> {
        let mut list = self.json.then(|| JsonList::new("betr.replay.list", 1, "records"));
        let mut counts = (0, 0);
        if self.ndjson {
            writeln!(io.out, "{}", json!({ "schema": "betr.replay.list", "version": 1 }))?;
        }
        let survey = log.tell(|told| {
            counts.1 += 1;
            if !self.filter.admits(told) {
                return Ok(ControlFlow::Continue(()));
            }
            counts.0 += 1;
            match &mut list {
                Some(list) => list.push(io, &event::object(told))?,
                None if self.ndjson => writeln!(io.out, "{}", event::object(told))?,
                None => writeln!(io.out, "{}", event::line(told))?,
            }
            Ok(ControlFlow::Continue(()))
        })?;
        match list {
            Some(list) => list.end(io)?,
            None if self.ndjson => {}
            None => writeln!(io.out, "{} of {} records", counts.0, counts.1)?,
        }
        log.end(&survey, io)
    }
}
