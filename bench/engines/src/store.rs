//! The database of a run: made, closed, opened anew.

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::engine::{self, Engine, Settings};
use crate::meter::Meter;
use crate::proc::{self, Io};
use crate::record::Reopened;

/// A directory, and the engine that has a database in it open.
pub struct Store {
    name: String,
    settings: Settings,
    engine: Option<Box<dyn Engine>>,
}

impl Store {
    /// A directory that has no database yet.
    pub fn new(name: String, settings: Settings) -> Self {
        Store { name, settings, engine: None }
    }

    /// The open engine.
    pub fn engine(&mut self) -> Result<&mut (dyn Engine + 'static)> {
        self.engine.as_deref_mut().context("no database is open")
    }

    /// The open engine, and a meter that measures from now on what it does.
    pub fn measured(&mut self) -> Result<(&mut (dyn Engine + 'static), Meter)> {
        let meter = Meter::start(&self.settings.dir)?;
        Ok((self.engine()?, meter))
    }

    /// Puts a new database in the place of the one that may be there.
    pub fn renew(&mut self) -> Result<()> {
        self.close()?;
        let dir = &self.settings.dir;
        if dir.exists() {
            fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
        }
        fs::create_dir(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        // What was left to write of the old one must not be in the way of the new one.
        rustix::fs::sync();
        self.open()
    }

    /// Closes the database, drops the page cache, and opens the database again.
    pub fn reopen_cold(&mut self) -> Result<Reopened> {
        let io = Io::now()?;
        let start = Instant::now();
        self.close()?;
        let close_seconds = start.elapsed().as_secs_f64();
        proc::drop_caches()?;
        let start = Instant::now();
        self.open()?;
        let open_seconds = start.elapsed().as_secs_f64();
        Ok(Reopened { close_seconds, open_seconds, io: Io::now()?.since(&io) })
    }

    /// Closes the database, if one is open.
    pub fn close(&mut self) -> Result<()> {
        match self.engine.take() {
            Some(engine) => engine.close().context("cannot close the database"),
            None => Ok(()),
        }
    }

    /// Opens the database; makes it, if there is none.
    pub fn open(&mut self) -> Result<()> {
        let opened = engine::open(&self.name, &self.settings);
        self.engine = Some(opened.context("cannot open the database")?);
        Ok(())
    }
}
