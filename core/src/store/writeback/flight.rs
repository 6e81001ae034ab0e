//! Nodes in flight: write-back beside the foreground.
//!
//! When memory is short, write-back starts for a batch of dirty nodes: the leaves that were changed longest ago, or the
//! one internal node with the largest product of its weight and of the wait for its next messages. A job encodes them. Then their extents are allocated,
//! and another job writes them. When it finishes, the allocation table gets their entries and they are clean. The
//! foreground's steps depend on the operations alone, never on the progress of jobs: it waits where it must. So the
//! same operations make the same image.
//!
//! A node in flight does not change: a change waits until its write-back has finished. If it fails, the node is dirty
//! as before.

use std::collections::VecDeque;
use std::sync::Arc;

use rayon::prelude::*;

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::format::{Entry, Inflow, limits};
use crate::ids::*;
use crate::node::{EncodedLeaf, Internal, Leaf, Node, SealedNode, WrittenNode};
use crate::store::Store;
use crate::store::job::Job;
use crate::tuning::{ENCODING_MAX, FLIGHTS_MAX, FLIGHTS_SHARE};

/// Batches in flight, the oldest first.
#[derive(Default)]
pub(in crate::store) struct Flights {
    flights: VecDeque<Flight>,
    /// Bytes of the nodes in flight that count as dirty.
    bytes: usize,
}

/// Nodes that are written together: leaves, or one internal node.
struct Flight {
    nodes: Vec<Arc<Node>>,
    bytes: usize,
    stage: Stage,
}

enum Stage {
    Encoding(Job<Result<Encoded>>),
    Writing(Job<Result<Written>>),
}

/// Which part of an internal node is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Part {
    /// All of it.
    All,
    /// The messages that came since the last write.
    OpenRun,
}

/// Encoded nodes, before extents are allocated.
enum Encoded {
    Leaves(Vec<EncodedLeaf>),
    Internal(Box<SealedNode>),
}

/// What was written, and where.
enum Written {
    Leaves(Vec<Entry>),
    Internal(Box<WrittenNode>),
}

impl Flights {
    /// Bytes of the nodes in flight that count as dirty.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a node is in flight.
    pub(crate) fn has(&self, id: NodeId) -> bool {
        self.flights.iter().any(|flight| flight.nodes.iter().any(|node| node.id() == id))
    }
}

impl Drop for Flights {
    /// Waits for all jobs, so that nothing is written after a volume is closed.
    fn drop(&mut self) {
        for flight in self.flights.drain(..) {
            match flight.stage {
                Stage::Encoding(job) => drop(job.wait()),
                Stage::Writing(job) => drop(job.wait()),
            }
        }
    }
}

impl Store {
    /// Starts the write-back of dirty leaves; all must be open.
    pub(in crate::store) fn start_writeback(&mut self, leaves: Vec<Arc<Node>>) -> Result<()> {
        leaves.iter().try_for_each(|leaf| check_leaf(leaf_of(leaf)))?;
        let (birth, basement_size) = (self.birth, self.geometry.basement_size as usize);
        let first_seq = self.write_seq + 1;
        self.write_seq += leaves.len() as u64;
        let (nodes, disk) = (leaves.clone(), self.disk.clone());
        let most = leaves.iter().map(|leaf| self.blocks_of(leaf.id()));
        let most = most.collect::<Result<Vec<_>>>()?;
        let encode = move || {
            let image = |(at, node): (usize, &Arc<Node>)| {
                let seal = (birth, first_seq + at as u64);
                leaf_of(node).image(&disk, seal, basement_size, most[at])
            };
            Ok(Encoded::Leaves(nodes.par_iter().enumerate().map(image).collect()))
        };
        self.begin(leaves, encode)
    }

    /// Starts the write-back of a dirty internal node, or of its open run only: then the node stays dirty.
    pub(in crate::store) fn start_internal_writeback(
        &mut self,
        id: NodeId,
        part: Part,
    ) -> Result<()> {
        self.finish_writeback(id)?;
        self.wait_for(id);
        let node = self.node(id)?;
        self.write_seq += u64::from(part == Part::All);
        let (birth, write_seq, compact) = (self.birth, self.write_seq, self.compact);
        let (disk, sealed) = (self.disk.clone(), node.clone());
        let known = internal_of(&node).known();
        let seal = move || {
            let node = internal_of(&sealed).clone().without_others(&known);
            let sealed = match part {
                Part::All => node.seal(&disk, birth, write_seq, compact)?,
                Part::OpenRun => node.seal_open(&disk, birth)?,
            };
            Ok(Encoded::Internal(Box::new(sealed)))
        };
        self.begin(vec![node], seal)
    }

    fn begin(
        &mut self,
        nodes: Vec<Arc<Node>>,
        encode: impl FnOnce() -> Result<Encoded> + Send + 'static,
    ) -> Result<()> {
        // Older flights have had time to be encoded.
        self.start_writes(self.flights.flights.len().saturating_sub(ENCODING_MAX))?;
        let bytes = self.lock().dirty_of(&nodes);
        let others = (self.budget.dirty_bytes / FLIGHTS_SHARE).saturating_sub(bytes);
        while self.flights.flights.len() >= FLIGHTS_MAX || self.flights.bytes > others {
            self.finish_first_writeback()?;
        }
        let stage = Stage::Encoding(Job::start(&self.disk, encode));
        self.lock().fly(&nodes);
        self.flights.bytes += bytes;
        self.flights.flights.push_back(Flight { nodes, bytes, stage });
        Ok(())
    }

    /// Finishes all write-backs.
    pub(in crate::store) fn finish_all_writeback(&mut self) -> Result<()> {
        while !self.flights.flights.is_empty() {
            self.finish_first_writeback()?;
        }
        Ok(())
    }

    /// Finishes write-backs until the node is not in flight.
    pub(in crate::store) fn finish_writeback(&mut self, id: NodeId) -> Result<()> {
        while self.flights.has(id) {
            self.finish_first_writeback()?;
        }
        Ok(())
    }

    /// Starts the writes of the first `count` flights.
    fn start_writes(&mut self, count: usize) -> Result<()> {
        for at in 0..count {
            let Some(flight) = self.flights.flights.remove(at) else { break };
            let (nodes, bytes) = (flight.nodes.clone(), flight.bytes);
            match self.write_flight(flight) {
                Ok(flight) => self.flights.flights.insert(at, flight),
                Err(error) => return Err(self.aborted(&nodes, bytes, error)),
            }
        }
        Ok(())
    }

    fn finish_first_writeback(&mut self) -> Result<()> {
        // The second one is written while the first one is waited for.
        self.start_writes(2)?;
        let Some(flight) = self.flights.flights.pop_front() else { return Ok(()) };
        let (nodes, bytes) = (flight.nodes.clone(), flight.bytes);
        match self.write_flight(flight).and_then(|flight| self.arrive(flight)) {
            Ok(()) => self.flights.bytes -= bytes,
            Err(error) => return Err(self.aborted(&nodes, bytes, error)),
        }
        Ok(())
    }

    /// Aborts the write-back of nodes: they are dirty as before. Extents that they were given stay taken, since the volume
    /// takes no more changes after an error.
    fn aborted(&mut self, nodes: &[Arc<Node>], bytes: usize, error: Error) -> Error {
        self.flights.bytes -= bytes;
        self.lock().abort_writeback(nodes);
        error
    }

    /// Waits until a flight is encoded, allocates its extents, and starts the job that writes it.
    fn write_flight(&mut self, flight: Flight) -> Result<Flight> {
        let Flight { nodes, bytes, stage } = flight;
        let encoded = match stage {
            Stage::Encoding(job) => job.wait()??,
            Stage::Writing(_) => return Ok(Flight { nodes, bytes, stage }),
        };
        let disk = self.disk.clone();
        let job = match encoded {
            Encoded::Leaves(images) => {
                let mut entries = Vec::with_capacity(nodes.len());
                for (node, image) in nodes.iter().zip(&images) {
                    entries.push(self.place_leaf(leaf_of(node), image)?);
                }
                Job::start(&self.disk, move || {
                    write_leaves(&disk, &entries, images)?;
                    Ok(Written::Leaves(entries))
                })
            }
            Encoded::Internal(sealed) => {
                let places = sealed.blocks().map(|blocks| self.space.place(blocks, self.birth));
                let places = places.collect::<Result<Vec<Extent>>>()?;
                Job::start(&self.disk, move || {
                    Ok(Written::Internal(Box::new(sealed.write(&disk, &places)?)))
                })
            }
        };
        Ok(Flight { nodes, bytes, stage: Stage::Writing(job) })
    }

    /// Waits until a flight is written, enters its nodes in the allocation table, and makes them clean.
    fn arrive(&mut self, flight: Flight) -> Result<()> {
        let Flight { nodes, stage, .. } = flight;
        let Stage::Writing(job) = stage else { return Ok(()) };
        match job.wait()?? {
            Written::Leaves(entries) => {
                for (node, entry) in nodes.iter().zip(entries) {
                    self.place(node.id(), Some(entry))?;
                    self.bind_leaf(leaf_of(node), entry)?;
                    self.lock().cleaned(node.id());
                }
            }
            Written::Internal(written) => {
                let WrittenNode { node, head, runs, freed } = *written;
                let id = node.id;
                if let Some((extent, bytes, hash)) = head {
                    let entry = self.entry(node.tree, node.height, extent, bytes, hash);
                    self.place(id, Some(entry))?;
                }
                for (run, place) in runs {
                    self.bind_run(id, &run, place)?;
                }
                self.retire(freed)?;
                let before: Inflow = nodes.iter().map(|node| node.inflow()).sum();
                self.inflow = self.inflow + node.inflow() - before;
                let mut cache = self.lock();
                cache.replace(Arc::new(Node::Internal(node)));
                match head {
                    Some(_) => cache.cleaned(id),
                    None => cache.abort_writeback(&nodes),
                }
            }
        }
        Ok(())
    }
}

/// Checks that a leaf can be written: it is open, and within the size limit.
fn check_leaf(leaf: &Leaf) -> Result<()> {
    let (id, bytes) = (leaf.id, leaf.bytes());
    if !leaf.is_open() {
        return Err(Error::Bug(format!("{id} is to be written, but was not read")));
    }
    if bytes > limits::LEAF_MAX {
        return Err(Error::Bug(format!("{id} is to be written with {bytes} bytes")));
    }
    Ok(())
}

fn write_leaves(disk: &Disk, entries: &[Entry], images: Vec<EncodedLeaf>) -> Result<()> {
    entries.iter().zip(images).try_for_each(|(entry, image)| {
        disk.write(entry.extent.start.byte(), &image.bytes)?;
        disk.recycle(image.bytes);
        Ok(())
    })
}

fn leaf_of(node: &Node) -> &Leaf {
    node.leaf().expect("leaves take off together")
}

fn internal_of(node: &Node) -> &Internal {
    node.internal().expect("internal nodes take off alone")
}
