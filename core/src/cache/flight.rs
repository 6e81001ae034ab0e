//! Leaves that are being written beside the foreground.
//!
//! When memory is short the oldest dirty leaves take off: a job serialises and hashes them, and once that is
//! done they get their places, and another job writes them. Then they land: the allocation table learns where
//! they are, and they are clean. The steps that the foreground takes depend on what it is asked to do, never on
//! how far the jobs are: it waits where it must. So the same operations make the same image.
//!
//! A leaf in flight does not change: whoever wants to change it waits until it has landed.

use std::collections::VecDeque;
use std::sync::Arc;

use rayon::prelude::*;

use super::Store;
use super::job::Job;
use crate::device::Disk;
use crate::error::Result;
use crate::format::Entry;
use crate::ids::*;
use crate::node::{Leaf, LeafImage, Node};

/// Batches that are in flight at once.
const FLIGHTS_MAX: usize = 2;

/// Batches in flight, the oldest first.
#[derive(Default)]
pub(super) struct Flights {
    flights: VecDeque<Flight>,
    /// The weight of all leaves in flight.
    bytes: usize,
}

/// Leaves that are written together.
struct Flight {
    leaves: Vec<Arc<Node>>,
    bytes: usize,
    stage: Stage,
}

enum Stage {
    Encoding(Job<Vec<LeafImage>>),
    Writing(Vec<Entry>, Job<Result<()>>),
}

impl Flights {
    /// The weight of what is in flight.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a node is in flight.
    pub fn has(&self, id: NodeId) -> bool {
        self.flights.iter().any(|flight| flight.leaves.iter().any(|leaf| leaf.id() == id))
    }
}

impl Drop for Flights {
    /// Nothing is written once a volume has been closed.
    fn drop(&mut self) {
        for flight in self.flights.drain(..) {
            match flight.stage {
                Stage::Encoding(job) => drop(job.wait()),
                Stage::Writing(_, job) => drop(job.wait()),
            }
        }
    }
}

impl Store {
    /// Lets dirty leaves take off, which are open and weigh so many bytes.
    pub(super) fn take_off(&mut self, leaves: Vec<Arc<Node>>, bytes: usize) -> Result<()> {
        while self.flights.flights.len() >= FLIGHTS_MAX {
            self.land_first()?;
        }
        // What was encoded meanwhile can be written meanwhile.
        if let Some(flight) = self.flights.flights.pop_front() {
            let flight = self.write_flight(flight)?;
            self.flights.flights.push_front(flight);
        }
        let (birth, basement_size) = (self.birth, self.geometry.basement_size as usize);
        let first_seq = self.write_seq + 1;
        self.write_seq += leaves.len() as u64;
        let (nodes, disk) = (leaves.clone(), self.disk.clone());
        let encode = move || {
            let image = |(at, node): (usize, &Arc<Node>)| {
                leaf_of(node).image(&disk, birth, first_seq + at as u64, basement_size)
            };
            nodes.par_iter().enumerate().map(image).collect()
        };
        let stage = Stage::Encoding(Job::start(&self.disk, encode));
        self.lock().fly(&leaves);
        self.flights.bytes += bytes;
        self.flights.flights.push_back(Flight { leaves, bytes, stage });
        Ok(())
    }

    /// Waits until all leaves are on disk.
    pub(super) fn land_all(&mut self) -> Result<()> {
        while !self.flights.flights.is_empty() {
            self.land_first()?;
        }
        Ok(())
    }

    /// Waits until a node can be changed.
    pub(super) fn land(&mut self, id: NodeId) -> Result<()> {
        while self.flights.has(id) {
            self.land_first()?;
        }
        Ok(())
    }

    fn land_first(&mut self) -> Result<()> {
        let Some(flight) = self.flights.flights.pop_front() else { return Ok(()) };
        self.flights.bytes -= flight.bytes;
        let Flight { leaves, stage, .. } = self.write_flight(flight)?;
        let Stage::Writing(entries, job) = stage else { return Ok(()) };
        job.wait()??;
        for (node, entry) in leaves.iter().zip(entries) {
            self.place(node.id(), Some(entry))?;
            self.bind_leaf(leaf_of(node), entry)?;
            self.lock().cleaned(node.id());
        }
        Ok(())
    }

    /// Gives the leaves of a flight their places, once they are encoded, and begins to write them.
    fn write_flight(&mut self, flight: Flight) -> Result<Flight> {
        let Flight { leaves, bytes, stage } = flight;
        let images = match stage {
            Stage::Encoding(job) => job.wait()?,
            Stage::Writing(..) => return Ok(Flight { leaves, bytes, stage }),
        };
        let mut entries = Vec::with_capacity(leaves.len());
        for (node, image) in leaves.iter().zip(&images) {
            entries.push(self.place_leaf(leaf_of(node), image)?);
        }
        let (disk, extents) = (self.disk.clone(), entries.clone());
        let write = move || write_leaves(&disk, &extents, images);
        let stage = Stage::Writing(entries, Job::start(&self.disk, write));
        Ok(Flight { leaves, bytes, stage })
    }
}

fn write_leaves(disk: &Disk, entries: &[Entry], images: Vec<LeafImage>) -> Result<()> {
    entries.iter().zip(images).try_for_each(|(entry, image)| {
        disk.write(entry.extent.start.byte(), &image.bytes)?;
        disk.recycle(image.bytes);
        Ok(())
    })
}

fn leaf_of(node: &Node) -> &Leaf {
    match node {
        Node::Leaf(leaf) => leaf,
        Node::Internal(_) => unreachable!("only leaves take off"),
    }
}
