//! Damages images on purpose: changes a field of a structure, and optionally all hashes of it.
//!
//! Tests of a checker need known damage. Without resealing, the damage is like bit rot. With all hashes corrected up to
//! the superblock, it is like a bug or an attack, and only the rules of the format can reveal it.

mod broken;
mod verb;

use std::ops::Range;
use std::sync::Arc;

pub use broken::make_broken;
pub use verb::Verb;

use betr_core::device::Device;
use betr_core::disk::Disk;
use betr_core::error::{Error, Result};
use betr_core::format::Seal;
use betr_core::ids::Hash;
use betr_core::space::map::map_hash;
use betr_offline::anatomy::{Above, Anatomy, Part, Seals};

/// A change of some bytes.
#[derive(Clone, Debug)]
pub struct Damage<'p> {
    /// The structure.
    pub part: &'p Part,
    /// The bytes within it.
    pub bytes: Range<usize>,
    /// The change.
    pub verb: Verb,
    /// Whether all hashes of the bytes are corrected, up to the superblock.
    pub sealed: bool,
}

impl Damage<'_> {
    /// Damages the image on `device`, in all copies of the structure. Returns the bytes of the first copy before and
    /// after. Fails if nothing has changed, since a test of a sound image shows nothing.
    pub fn inflict(
        &self,
        device: &Arc<dyn Device>,
        anatomy: &Anatomy,
    ) -> Result<(Vec<u8>, Vec<u8>)> {
        let disk = Disk::new(device.clone());
        let mut first = None;
        for copy in 0..self.part.copies.len() {
            let mut bytes = self.part.read(&disk, copy)?;
            let field = bytes.get_mut(self.bytes.clone()).ok_or_else(|| self.no_such_bytes())?;
            let before = field.to_vec();
            self.verb.apply(field);
            if field == before {
                return Err(self.did_not_land("the bytes are what they would become"));
            }
            self.part.write(&disk, copy, &bytes)?;
            first.get_or_insert(before);
        }
        if self.sealed {
            reseal(&disk, anatomy, self.part)?;
        }
        let before = first.unwrap_or_default();
        let after = self.part.read(&disk, 0)?[self.bytes.clone()].to_vec();
        match before == after {
            true => Err(self.did_not_land("it is a hash that was made right again")),
            false => Ok((before, after)),
        }
    }

    fn no_such_bytes(&self) -> Error {
        let (name, len) = (&self.part.name, self.part.len());
        Error::Input(format!("{name} has {len} bytes, not {:#x}", self.bytes.end))
    }

    fn did_not_land(&self, why: &str) -> Error {
        let Range { start, end } = self.bytes;
        Error::Input(format!(
            "'{}' of {} at {start:#x}+{} changes nothing: {why}",
            self.verb,
            self.part.name,
            end - start
        ))
    }
}

/// Corrects all hashes of a structure's bytes.
pub fn reseal(disk: &Disk, anatomy: &Anatomy, part: &Part) -> Result<()> {
    let mut hash = Hash::default();
    for copy in 0..part.copies.len() {
        let mut bytes = part.read(disk, copy)?;
        match part.seals {
            Seals::Own => {
                hash = Seal::close(&mut bytes);
                part.write(disk, copy, &bytes)?;
            }
            Seals::Above => hash = Hash::of(&bytes),
            Seals::Nothing => {}
        }
    }
    for above in &part.above {
        let (index, told) = match *above {
            Above::Bytes { part } => (part, None),
            Above::Hash { part, at } => (part, Some((at, hash))),
            Above::Map { part, at } => {
                let hashes = anatomy.map().map(|page| seal_of(disk, page));
                let hashes = hashes.collect::<Result<Vec<Hash>>>()?;
                (part, Some((at, map_hash(hashes.into_iter()))))
            }
        };
        let above = &anatomy.parts()[index];
        if let Some((at, hash)) = told {
            for copy in 0..above.copies.len() {
                let mut bytes = above.read(disk, copy)?;
                bytes[at..at + hash.0.len()].copy_from_slice(&hash.0);
                above.write(disk, copy, &bytes)?;
            }
        }
        reseal(disk, anatomy, above)?;
    }
    Ok(())
}

/// The hash in the seal of a structure.
fn seal_of(disk: &Disk, part: &Part) -> Result<Hash> {
    let bytes = part.read(disk, 0)?;
    Ok(Seal::hash_of(&bytes).unwrap_or_default())
}
