//! Random overwrites, checkpoints, and what they come to.

use std::sync::Arc;

use betr_core::Result;
use betr_core::device::MemoryDevice;
use betr_core::format::{Action, Key, Op, RecordMessage};
use betr_core::ids::{BLOCK_SIZE, Time, TreeId};
use betr_core::space::Bitmap;
use betr_core::store::{CacheBudget, Geometry};
use betr_core::volume::{Content, CreateOptions, Pruned, Transaction, Volume};
use betr_lab::explore::Random;

use crate::Args;
use crate::schedule::Schedule;

/// Entries of a transaction.
const AT_ONCE: u64 = 100;
/// Checkpoints of a row of the table.
const ROW: u64 = 100;

/// What checkpoints used: the state after one of them.
struct State {
    used: Bitmap,
    used_blocks: u64,
    held_blocks: u64,
    hold_pages: u64,
}

/// What became of blocks between two states.
#[derive(Clone, Copy, Default)]
struct Operations {
    added: u64,
    removed: u64,
    pages: u64,
}

impl State {
    fn of(volume: &Volume) -> State {
        let superblock = volume.superblock();
        State {
            used: volume.store().space.used().clone(),
            used_blocks: superblock.used_blocks,
            held_blocks: superblock.holds.blocks,
            hold_pages: volume.counters().hold_pages,
        }
    }

    /// What became of blocks since an older state. One that was given up is not reused before two checkpoints more, so no block has
    /// gone and come in between. What the live volume no longer uses is counted whether or not a snapshot keeps it.
    fn since(&self, before: &State) -> Operations {
        let pages = self.hold_pages - before.hold_pages;
        let runs = self.used.set_runs();
        let added: u64 = runs.map(|(start, len)| before.clear_within(start, len)).sum();
        let added = added.saturating_sub(pages);
        let live = |state: &State| state.used_blocks - state.held_blocks;
        Operations { added, removed: (live(before) + added).saturating_sub(live(self)), pages }
    }

    fn clear_within(&self, start: u64, len: u64) -> u64 {
        self.used.clear_runs(start..start + len).map(|(_, len)| len).sum()
    }
}

impl Operations {
    fn all(self) -> u64 {
        self.added + self.removed
    }

    fn plus(self, other: Operations) -> Operations {
        Operations {
            added: self.added + other.added,
            removed: self.removed + other.removed,
            pages: self.pages + other.pages,
        }
    }
}

/// Fills a volume, overwrites it, and prints what that comes to.
pub(crate) fn run(args: &Args) -> Result<()> {
    let bytes = args.gib << 30;
    let usual = Geometry::of_image(bytes);
    let geometry = args.node.map_or(usual, |kib| Geometry::new(kib << 10, usual.basement_size));
    let mut nonce = 0;
    let nonces = Box::new(move || {
        nonce += 1;
        nonce
    });
    let options = CreateOptions {
        geometry,
        content: Content::Keys,
        cache: CacheBudget { total_bytes: 1 << 30, dirty_bytes: 512 << 20 },
        ..CreateOptions::new(*b"a volume of keys", bytes, nonces)
    };
    // It does not log: what is durable when is not the question.
    let mut volume = Volume::create(Arc::new(MemoryDevice::new(bytes)), options)?;
    let mut random = Random::new(args.seed);
    for first in (0..args.entries).step_by(AT_ONCE as usize) {
        let numbers = first..(first + AT_ONCE).min(args.entries);
        put(&mut volume, numbers, &mut random)?;
    }
    volume.drain()?;
    volume.checkpoint()?;
    let Geometry { node_size, leaf_size, .. } = geometry;
    println!("Nodes of {} KiB, leaves of {} KiB.\n", node_size >> 10, leaf_size >> 10);
    println!(
        "| checkpoints | operations each | added | removed | pages | pages for an operation |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: |");
    let (mut schedule, mut all) = (Schedule::default(), Operations::default());
    let (mut row, mut most) = (Operations::default(), 0f64);
    // How many entries are changed for each checkpoint follows from what the last one came to.
    let mut changes = args.operations / 4;
    for number in 1..=args.checkpoints {
        let before = State::of(&volume);
        let mut left = changes;
        while left > 0 {
            let here = left.min(AT_ONCE);
            let numbers: Vec<u64> = (0..here).map(|_| random.below(args.entries)).collect();
            put(&mut volume, numbers.into_iter(), &mut random)?;
            left -= here;
        }
        let is_hour = number.is_multiple_of(args.hour);
        let mut old = None;
        if is_hour {
            let hour = number / args.hour;
            let (name, dropped) = schedule.hour(hour, hour.is_multiple_of(args.day));
            volume.take_hold(&name)?;
            old = dropped;
        } else {
            let checkpoint = volume.begin_checkpoint(Pruned::None)?;
            let waited = checkpoint.wait();
            volume.end_checkpoint(checkpoint, waited)?;
        }
        let mut done = State::of(&volume).since(&before);
        if let Some(old) = old {
            // What a drop frees is no operation of the volume; the pages that it writes count.
            let pages = volume.counters().hold_pages;
            volume.drop_hold(&old)?;
            done.pages += volume.counters().hold_pages - pages;
        }
        changes = (changes * args.operations / done.all().max(1)).clamp(1, 2 * changes);
        (all, row) = (all.plus(done), row.plus(done));
        if number.is_multiple_of(ROW) || number == args.checkpoints {
            most = most.max(told(&number.to_string(), row, (number - 1) % ROW + 1));
            row = Operations::default();
        }
    }
    told("all", all, args.checkpoints);
    let (held, live) = (volume.superblock().holds.blocks, volume.superblock().used_blocks);
    println!(
        "\n{} snapshots at the end keep {} MiB, beside {} MiB of the volume; at the most {most:.5} in a row.",
        schedule.len(),
        mib(held),
        mib(live - held)
    );
    Ok(())
}

/// Prints a row, and returns the pages for an operation.
fn told(name: &str, done: Operations, checkpoints: u64) -> f64 {
    let each = done.pages as f64 / done.all() as f64;
    let Operations { added, removed, pages } = done;
    println!(
        "| {name} | {} | {added} | {removed} | {pages} | {each:.5} |",
        done.all() / checkpoints
    );
    each
}

fn mib(blocks: u64) -> u64 {
    (blocks * BLOCK_SIZE as u64) >> 20
}

/// Gives entries new values, in one transaction.
fn put(volume: &mut Volume, numbers: impl Iterator<Item = u64>, random: &mut Random) -> Result<()> {
    let insert = |number: u64| {
        let key = Key::copied(&number.to_be_bytes());
        let action = Action::Insert(vec![random.next() as u8; BLOCK_SIZE].into());
        RecordMessage::Point(TreeId::Data, key, action)
    };
    let messages = numbers.map(insert).collect();
    volume.commit(Transaction { op: Op::Raw, wall: Time::default(), messages })?;
    Ok(())
}
