//! The seal: the first 72 bytes of every separately hashed structure.
//!
//! ```text
//!  0  magic       8   which structure this is
//!  8  hash       32   SHA-256 of everything from offset 40 to the structure's end
//! 40  volume id  16
//! 56  epoch       8   the checkpoint that the structure was written for
//! 64  nonce       8   of that epoch
//! ```

use super::fields::{Fields, FormatError, FormatFault, Writer};
use crate::ids::{Epoch, Hash, Nonce, VolumeId};
use crate::mutation::{Mutation, is_broken};

/// Bytes of a seal.
pub const SEAL_BYTES: usize = 72;
const HASH_AT: usize = 8;
const HASHED_FROM: usize = 40;

/// The kinds of structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Magic {
    /// The identity block.
    Identity,
    /// A superblock slot.
    Superblock,
    /// A page of the allocation table.
    TablePage,
    /// A slot of a space-map page.
    SpaceMap,
    /// The head of a leaf.
    Leaf,
    /// The head of an internal node.
    Internal,
    /// A run of messages.
    Run,
    /// A log group.
    LogGroup,
    /// A scatter map.
    ScatterMap,
    /// A page of holds.
    HoldsPage,
    /// A page of a dead list.
    DeadPage,
    /// The header of a plan, which is a separate file.
    Plan,
}

impl Magic {
    /// Every kind.
    pub const ALL: [Magic; 12] = [
        Magic::Identity,
        Magic::Superblock,
        Magic::TablePage,
        Magic::SpaceMap,
        Magic::Leaf,
        Magic::Internal,
        Magic::Run,
        Magic::LogGroup,
        Magic::ScatterMap,
        Magic::HoldsPage,
        Magic::DeadPage,
        Magic::Plan,
    ];

    /// The bytes on disk. The first is not ASCII and the last is a line end, so that a transfer in text mode is
    /// detected.
    pub fn bytes(self) -> &'static [u8; 8] {
        match self {
            Magic::Identity => b"\xbeBETRid\n",
            Magic::Superblock => b"\xbeBETRsb\n",
            Magic::TablePage => b"\xbeBETRtp\n",
            Magic::SpaceMap => b"\xbeBETRsm\n",
            Magic::Leaf => b"\xbeBETRlf\n",
            Magic::Internal => b"\xbeBETRin\n",
            Magic::Run => b"\xbeBETRrn\n",
            Magic::LogGroup => b"\xbeBETRlg\n",
            Magic::ScatterMap => b"\xbeBETRsc\n",
            Magic::HoldsPage => b"\xbeBETRho\n",
            Magic::DeadPage => b"\xbeBETRde\n",
            Magic::Plan => b"\xbeBETRpl\n",
        }
    }

    /// The kind that `bytes` begin with.
    pub fn of(bytes: &[u8]) -> Option<Magic> {
        Magic::ALL.into_iter().find(|magic| bytes.starts_with(magic.bytes()))
    }
}

/// The origin of a structure: volume, epoch and nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Birth {
    /// The volume that it belongs to.
    pub volume: VolumeId,
    /// The checkpoint that it was written for.
    pub epoch: Epoch,
    /// The nonce of that epoch.
    pub nonce: Nonce,
}

/// The first 72 bytes of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The hash of the rest of the structure.
    pub hash: Hash,
    /// Volume, epoch and nonce.
    pub birth: Birth,
}

impl Seal {
    /// Reads the seal of a structure that is exactly the cursor's bytes, and verifies its hash.
    pub fn decode(fields: &mut Fields<'_, '_>, magic: Magic) -> Result<Seal, FormatError> {
        fields.enter("seal", None);
        let found = fields.raw::<8>("magic")?;
        if &found != magic.bytes() {
            let [expected, found] = [&magic.bytes()[..], &found[..]].map(crate::text::printable);
            return Err(fields.fail_at(0, "magic", FormatFault::Value { expected, found }));
        }
        let hash = fields.hash("hash")?;
        let volume = VolumeId(fields.raw("volume id")?);
        let epoch = Epoch(fields.u64("epoch")?);
        let nonce = Nonce(fields.u64("nonce")?);
        let computed = Hash::of(&fields.all()[HASHED_FROM..]);
        let ignored = magic == Magic::LogGroup && is_broken(Mutation::GroupHashIgnored);
        if computed != hash && !ignored {
            let fault = FormatFault::Hash { expected: hash, computed };
            return Err(fields.fail_at(HASH_AT, "hash", fault));
        }
        fields.leave();
        Ok(Seal { hash, birth: Birth { volume, epoch, nonce } })
    }

    /// The birth that a seal states, without verification.
    pub fn birth_of(sealed: &[u8]) -> Option<Birth> {
        let number = |at: usize| Some(u64::from_le_bytes(*sealed.get(at..)?.first_chunk()?));
        let volume = VolumeId(*sealed.get(HASHED_FROM..)?.first_chunk()?);
        let at = HASHED_FROM + 16;
        Some(Birth { volume, epoch: Epoch(number(at)?), nonce: Nonce(number(at + 8)?) })
    }

    /// The hash that a seal states, without verification.
    pub fn hash_of(sealed: &[u8]) -> Option<Hash> {
        Some(Hash(*sealed.get(HASH_AT..)?.first_chunk()?))
    }

    /// Writes a seal whose hash [`Seal::close`] fills in.
    pub fn open(writer: &mut Writer, magic: Magic, birth: Birth) {
        assert!(writer.is_empty(), "a seal stands at the start of its structure");
        writer.bytes(magic.bytes());
        writer.hash(&Hash::default());
        writer.bytes(&birth.volume.0);
        writer.u64(birth.epoch.0);
        writer.u64(birth.nonce.0);
    }

    /// Changes the hash in a seal, so that the structure does not verify.
    pub fn spoil(bytes: &mut [u8]) {
        bytes[HASH_AT] ^= 1;
    }

    /// Hashes the finished structure, `bytes`, and writes the hash into its seal.
    pub fn close(bytes: &mut [u8]) -> Hash {
        let hash = Hash::of(&bytes[HASHED_FROM..]);
        bytes[HASH_AT..HASHED_FROM].copy_from_slice(&hash.0);
        hash
    }
}
