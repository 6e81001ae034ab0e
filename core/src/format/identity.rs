//! The identity block: found by probers at a fixed place. It is rewritten only to change label, UUID or size, or to set
//! or clear the error flag.
//!
//! ```text
//!   0  seal            72   epoch 0, nonce 0
//!  72  version          4
//!  76  block size       4
//!  80  UUID            16
//!  96  label           64   UTF-8, zero padded
//! 160  image blocks     8
//! 168  superblock slots 4
//! 172  flags            4   1 = an error was met
//! 176  ring place A     8   first block of the first half of the ring
//! 184  ring place B     8   first block of the second half
//! 192  log units        8
//! 200  incompatible     8   features, as in every superblock
//! 208  map segments   264   where the space map is
//! 472  zero          3624
//! ```

use super::fields::{Fields, FormatError, Trace, Writer};
use super::limits::{FORMAT_VERSION, IMAGE_BLOCKS_MAX, LABEL_MAX, SUPERBLOCK_SLOTS};
use super::seal::{Birth, Magic, Seal};
use super::segments::Segments;
use crate::ids::{BLOCK_SIZE, BlockNr, Epoch, Nonce, VolumeId};

/// The byte address of the identity block.
pub const IDENTITY_AT: u64 = 64 << 10;
const ERROR_MET: u32 = 1;

/// The identity of an image, and the places of its superblocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The internal volume id.
    pub volume: VolumeId,
    /// The UUID that users see and may change.
    pub uuid: [u8; 16],
    /// The label; no zero bytes, at most [`LABEL_MAX`] bytes.
    pub label: String,
    /// The size of the image in blocks.
    pub image_blocks: u64,
    /// The first block of each half of the superblock ring.
    pub ring: [BlockNr; 2],
    /// The length of the log in units of a block.
    pub log_units: u64,
    /// The incompatible features.
    pub incompatible: u64,
    /// The segments of the space map.
    pub map: Segments,
    /// Whether a read failed, or bytes did not verify, since the last check without findings.
    pub error_met: bool,
}

impl Identity {
    /// Parses a whole block.
    pub fn decode(block: &[u8], trace: Option<&mut dyn Trace>) -> Result<Identity, FormatError> {
        let mut fields = Fields::traced(block, trace);
        let seal = Seal::decode(&mut fields, Magic::Identity)?;
        let version = fields.u32("version")?;
        if version != FORMAT_VERSION {
            return Err(fields.wrong("version", FORMAT_VERSION, version));
        }
        let block_size = fields.u32("block size")?;
        if block_size as usize != BLOCK_SIZE {
            return Err(fields.wrong("block size", BLOCK_SIZE, block_size));
        }
        let uuid = fields.raw("UUID")?;
        let label = decode_label(&mut fields)?;
        let image_blocks = fields.u64("image blocks")?;
        let slots = fields.u32("superblock slots")?;
        if slots != SUPERBLOCK_SLOTS {
            return Err(fields.wrong("superblock slots", SUPERBLOCK_SLOTS, slots));
        }
        let flags = fields.u32("flags")?;
        if flags & !ERROR_MET != 0 {
            return Err(fields.wrong("flags", "0 or 1", flags));
        }
        let error_met = flags == ERROR_MET;
        let ring = [BlockNr(fields.u64("ring place A")?), BlockNr(fields.u64("ring place B")?)];
        let log_units = fields.u64("log units")?;
        let incompatible = fields.u64("incompatible features")?;
        let map = Segments::decode(&mut fields)?;
        fields.zeros_to_block_end()?;
        if (seal.birth.epoch, seal.birth.nonce) != (Epoch(0), Nonce(0)) {
            return Err(fields.wrong("epoch", 0, seal.birth.epoch));
        }
        fields.within(160, "image blocks", image_blocks, IMAGE_BLOCKS_MAX)?;
        let volume = seal.birth.volume;
        Ok(Identity {
            volume,
            uuid,
            label,
            image_blocks,
            ring,
            log_units,
            incompatible,
            map,
            error_met,
        })
    }

    /// The whole block.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(BLOCK_SIZE);
        let birth = Birth { volume: self.volume, epoch: Epoch(0), nonce: Nonce(0) };
        Seal::open(&mut w, Magic::Identity, birth);
        w.u32(FORMAT_VERSION);
        w.u32(BLOCK_SIZE as u32);
        w.bytes(&self.uuid);
        w.bytes(self.label.as_bytes());
        w.pad_to(160);
        w.u64(self.image_blocks);
        w.u32(SUPERBLOCK_SLOTS);
        w.u32(if self.error_met { ERROR_MET } else { 0 });
        w.u64(self.ring[0].0);
        w.u64(self.ring[1].0);
        w.u64(self.log_units);
        w.u64(self.incompatible);
        self.map.encode(&mut w);
        w.pad_to(BLOCK_SIZE);
        let mut block = w.finish();
        Seal::close(&mut block);
        block
    }
}

fn decode_label(fields: &mut Fields<'_, '_>) -> Result<String, FormatError> {
    let bytes = fields.bytes("label", LABEL_MAX)?;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(LABEL_MAX);
    let (text, padding) = bytes.split_at(end);
    match std::str::from_utf8(text) {
        Ok(text) if padding.iter().all(|byte| *byte == 0) => Ok(text.to_owned()),
        _ => Err(fields.wrong("label", "UTF-8 padded with zeros", crate::text::Printable(bytes))),
    }
}
