//! The ring of superblocks: 32 slots in two places far apart, two for each of the last 16 epochs.
//!
//! The superblock of epoch e is in slot 2·(e mod 16), in the first place, and in the next slot, in the second place. A
//! checkpoint writes the first slot, flushes, and then writes the second. So if only the first slot of the next epoch
//! does not verify, a power cut tore it, and nothing is lost. If neither slot of the next epoch verifies, that epoch
//! had been durable, and is lost.

use crate::device::SECTOR;
use crate::disk::Disk;
use crate::error::{Error, Fault, Place, Result};
use crate::format::limits::SUPERBLOCK_SLOTS;
use crate::format::{Fields, Identity, Magic, Seal, Superblock};
use crate::ids::*;
use crate::mutation::{Mutation, is_broken};
use crate::space::{Layout, ring_of, slot_block};

/// 16 epochs fit into the ring.
const EPOCHS: u64 = SUPERBLOCK_SLOTS as u64 / 2;

/// A slot of the superblock ring.
pub struct RingSlot {
    /// Its index.
    pub slot: u32,
    /// Its byte address.
    pub byte: u64,
    /// Its content.
    pub state: SlotState,
    /// Whether the device failed to read it, so that its content is unknown.
    pub unreadable: bool,
    /// Whether its seal verifies: then it was written completely.
    sealed: bool,
}

/// The content of a slot.
pub enum SlotState {
    /// Zeros: never written.
    Empty,
    /// A superblock that verifies.
    Valid(Box<Superblock>),
    /// Anything else.
    Invalid(Fault),
}

/// All slots of the ring.
pub struct Ring {
    slots: Vec<RingSlot>,
}

/// The two slots of an epoch.
pub fn slots_of(epoch: Epoch) -> [u32; 2] {
    let first = 2 * (epoch.0 % EPOCHS) as u32;
    [first, first + 1]
}

impl RingSlot {
    /// The valid superblock in the slot.
    pub fn superblock(&self) -> Option<&Superblock> {
        match &self.state {
            SlotState::Valid(superblock) => Some(superblock),
            SlotState::Empty | SlotState::Invalid(_) => None,
        }
    }

    fn is_invalid(&self) -> bool {
        matches!(self.state, SlotState::Invalid(_))
    }

    fn may_be_torn(&self) -> bool {
        self.is_invalid() && !self.sealed
    }

    /// Whether the slot holds the superblock of this epoch.
    fn holds(&self, epoch: Epoch) -> bool {
        self.superblock().is_some_and(|found| found.birth.epoch == epoch)
    }
}

impl Ring {
    /// Reads all slots.
    pub fn read(disk: &Disk, identity: &Identity) -> Result<Ring> {
        let read = |slot| {
            let byte = slot_block(identity.ring, slot).byte();
            let (state, unreadable, sealed) = match disk.read(byte, BLOCK_SIZE) {
                Ok(bytes) => {
                    let seal = Seal::decode(&mut Fields::new(&bytes), Magic::Superblock);
                    (state_of(&bytes, slot, identity), false, seal.is_ok())
                }
                Err(error) => (SlotState::Invalid(Fault::Missing(error.to_string())), true, false),
            };
            RingSlot { slot, byte, state, unreadable, sealed }
        };
        let mut slots = (0..SUPERBLOCK_SLOTS).map(read).collect::<Vec<_>>();
        slots.chunks_mut(2).for_each(compare);
        Ok(Ring { slots })
    }

    /// Fails if an unreadable slot may hold the newest superblock: a writer must not continue from an older one.
    pub fn check_readable(&self) -> Result<()> {
        let newest = self.newest().map_or(Epoch(0), |newest| newest.birth.epoch);
        let next = self.next_epoch().unwrap_or(newest);
        let near = [slots_of(newest), slots_of(next)].concat();
        let bad = self.slots.iter().find(|slot| slot.unreadable && near.contains(&slot.slot));
        match bad {
            None => Ok(()),
            Some(slot) => {
                let text = format!("superblock slot {} cannot be read", slot.slot);
                Err(Error::corrupt(Place::Byte(slot.byte), Fault::Missing(text)))
            }
        }
    }

    /// The slots, in order.
    pub fn slots(&self) -> &[RingSlot] {
        &self.slots
    }

    /// The valid superblock of the highest epoch.
    pub fn newest(&self) -> Option<&Superblock> {
        self.slots.iter().filter_map(RingSlot::superblock).max_by_key(|found| found.birth.epoch)
    }

    fn next_epoch(&self) -> Option<Epoch> {
        self.newest()?.birth.epoch.0.checked_add(1).map(Epoch)
    }

    /// The two slots of the next epoch.
    fn next_pair(&self) -> Option<[&RingSlot; 2]> {
        Some(slots_of(self.next_epoch()?).map(|slot| &self.slots[slot as usize]))
    }

    /// The epoch of a lost checkpoint: it was durable, and its superblock verifies in neither slot.
    pub fn lost(&self) -> Option<Epoch> {
        let lost = self.next_pair()?.iter().all(|slot| slot.is_invalid());
        self.next_epoch().filter(|_| lost)
    }

    /// Whether a slot belongs to a lost checkpoint.
    pub fn is_lost(&self, slot: u32) -> bool {
        let epochs = self.lost().zip(self.last_lost());
        epochs.is_some_and(|(first, last)| {
            (first.0..=last.0).any(|epoch| slots_of(Epoch(epoch)).contains(&slot))
        })
    }

    /// The last of consecutive epochs that are lost.
    pub fn last_lost(&self) -> Option<Epoch> {
        let pair = |epoch: &u64| slots_of(Epoch(*epoch)).map(|slot| &self.slots[slot as usize]);
        let is_lost = |epoch: &u64| pair(epoch).iter().all(|slot| slot.is_invalid());
        let first = self.lost()?;
        (first.0..first.0.saturating_add(EPOCHS - 1)).take_while(is_lost).last().map(Epoch)
    }

    /// The slot of the newest superblock that a power cut tore after the other slot was durable: the second of the
    /// pair; or the first, if the volume grew in that epoch.
    pub fn torn_copy(&self) -> Option<&RingSlot> {
        let newest = self.newest()?;
        let epoch = newest.birth.epoch;
        let [first, second] = slots_of(epoch).map(|slot| &self.slots[slot as usize]);
        if first.holds(epoch) {
            return second.may_be_torn().then_some(second);
        }
        let before = self.slots.iter().find(|slot| slot.holds(Epoch(epoch.0 - 1)));
        let before = before.and_then(RingSlot::superblock);
        let grew = before.is_some_and(|before| before.image_blocks < newest.image_blocks);
        (grew && first.may_be_torn()).then_some(first)
    }

    /// The first slot of the next epoch, if a power cut tore it.
    pub fn torn(&self) -> Option<&RingSlot> {
        let [first, second] = self.next_pair()?;
        (first.is_invalid() && !second.is_invalid()).then_some(first)
    }

    /// Repairs slots that a power cut or bit rot damaged, before anything else is written.
    ///
    /// A torn first slot is invalidated. The blocks that its superblock points to are about to be overwritten, and if
    /// the slot were torn again, sectors of both writes must not combine into that superblock. One sector is written,
    /// which cannot tear.
    ///
    /// A slot that is bad for another reason is rewritten from its pair. Otherwise, rot of the only good copy of the
    /// newest superblock would lose it. And a bad slot beside one that is torn in a later epoch would look like a lost
    /// checkpoint.
    ///
    /// If no slot holds a superblock, or the newest is lost, bad slots stay: they may be all that is left.
    pub fn mend_slots(&self, disk: &Disk) -> Result<()> {
        let Some(newest) = self.newest().filter(|_| !is_broken(Mutation::TornSlotKept)) else {
            return Ok(());
        };
        let torn = self.torn().map(|slot| slot.slot);
        let mut is_settled = true;
        for slot in &self.slots {
            let bytes = match torn == Some(slot.slot) {
                true => vec![0; SECTOR],
                false if self.is_lost(slot.slot) => continue,
                false if Ring::lacks(slot, newest.birth.epoch) => self.fresh(slot),
                false if slot.is_invalid() && !slot.unreadable => self.fresh(slot),
                false => continue,
            };
            disk.write(slot.byte, &bytes)?;
            is_settled = false;
        }
        if is_settled { Ok(()) } else { disk.flush() }
    }

    /// Whether the superblock of an epoch belongs into a slot that holds something else.
    fn lacks(slot: &RingSlot, epoch: Epoch) -> bool {
        slots_of(epoch).contains(&slot.slot) && !slot.holds(epoch)
    }

    /// The new content of a bad slot: a copy of the other slot of its pair, or zeros.
    pub fn fresh(&self, slot: &RingSlot) -> Vec<u8> {
        let twin = self.slots[slot.slot as usize ^ 1].superblock();
        let copy = twin.map(|twin| Superblock { slot: slot.slot, ..twin.clone() }.encode());
        copy.unwrap_or_else(|| vec![0; BLOCK_SIZE])
    }

    /// Writes a superblock to both of its slots, which hold nothing.
    pub fn write(&self, disk: &Disk, superblock: &Superblock) -> Result<()> {
        for slot in slots_of(superblock.birth.epoch) {
            let copy = Superblock { slot, ..superblock.clone() };
            disk.write(self.slots[slot as usize].byte, &copy.encode())?;
            disk.flush()?;
        }
        Ok(())
    }

    /// The superblock to start from: that of `slot`; or the newest, unless a newer one is lost.
    pub fn choose(&self, slot: Option<u32>) -> Result<&Superblock> {
        let missing = |what: String| Error::corrupt(Place::Image, Fault::Missing(what));
        if let Some(slot) = slot {
            let found = self.slots.get(slot as usize).and_then(RingSlot::superblock);
            return found.ok_or_else(|| {
                missing(format!("superblock slot {slot} does not verify: choose another with -b"))
            });
        }
        let newest = self.newest().ok_or_else(|| missing("no superblock slot verifies".into()))?;
        match self.lost() {
            None => Ok(newest),
            Some(lost) => Err(missing(format!(
                "the superblock slots of epoch {} do not verify: the newest checkpoint is lost; \
                 'betr fsck -y' looks for what they said elsewhere; the checkpoint of epoch {} is \
                 still there: fsck and dump start from it with -b {}",
                lost.0, newest.birth.epoch.0, newest.slot
            ))),
        }
    }
}

/// Two superblocks of one epoch must be equal. If not, only the first slot counts.
fn compare(pair: &mut [RingSlot]) {
    let [first, second] = pair else { return };
    if let (SlotState::Valid(a), SlotState::Valid(b)) = (&first.state, &second.state)
        && a.birth.epoch == b.birth.epoch
        && **a != (Superblock { slot: a.slot, ..(**b).clone() })
    {
        let fault = Fault::mismatch("superblock", "that of the slot before", "another");
        second.state = SlotState::Invalid(fault);
    }
}

fn state_of(bytes: &[u8], slot: u32, identity: &Identity) -> SlotState {
    if is_zero(bytes) {
        return SlotState::Empty;
    }
    match Superblock::decode(bytes, None) {
        Err(error) => SlotState::Invalid(error.into()),
        Ok(found) => match misplaced(&found, slot, identity) {
            Some(fault) => SlotState::Invalid(fault),
            None => SlotState::Valid(Box::new(found)),
        },
    }
}

/// Checks that a superblock belongs to this volume and slot, and that its places match the sizes of image and log.
fn misplaced(found: &Superblock, slot: u32, identity: &Identity) -> Option<Fault> {
    if found.birth.volume != identity.volume {
        return Some(Fault::mismatch("volume", identity.volume, found.birth.volume));
    }
    if found.slot != slot || !slots_of(found.birth.epoch).contains(&slot) {
        let found = format_args!("slot {} of epoch {}", found.slot, found.birth.epoch.0);
        return Some(Fault::mismatch("slot", slot, found));
    }
    let (log_units, incompatible) = (found.log_units, found.features.incompatible);
    if log_units != identity.log_units {
        return Some(Fault::mismatch("log units", identity.log_units, log_units));
    }
    if incompatible != identity.incompatible {
        let (identity, found) = (identity.incompatible, incompatible);
        return Some(Fault::mismatch(
            "incompatible features",
            format!("{identity:#x}"),
            format!("{found:#x}"),
        ));
    }
    // A superblock may be older than the last growth of the volume.
    if found.image_blocks > identity.image_blocks {
        return Some(Fault::mismatch("image blocks", identity.image_blocks, found.image_blocks));
    }
    let is_smaller = found.image_blocks < identity.image_blocks;
    if !identity.map.begin_with(&found.map) || !(is_smaller || found.map == identity.map) {
        let fault = Fault::mismatch("segments of the space map", &identity.map, &found.map);
        return Some(fault);
    }
    let layout = match Layout::of(found) {
        Ok(layout) => layout,
        Err(error) => return Some(Fault::Missing(error.to_string())),
    };
    let ring = ring_of(identity.image_blocks);
    let places = [found.log_start, identity.ring[0], identity.ring[1]];
    let expected = [layout.log_start, ring[0], ring[1]];
    let text = |places: [BlockNr; 3]| places.map(|place| place.0.to_string()).join(", ");
    (places != expected).then(|| Fault::mismatch("fixed places", text(expected), text(places)))
}
