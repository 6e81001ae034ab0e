//! The structures and fields of an image, by number, so that an input can refer to them.

use std::ops::Range;
use std::sync::Arc;

use betr_core::device::{Device, MemoryDevice};
use betr_core::disk::Disk;
use betr_lab::damage::reseal;
use betr_offline::anatomy::{Anatomy, Part};

/// All structures of an image, and their places.
pub(crate) struct Parts {
    anatomy: Anatomy,
    /// The byte ranges of all copies of all structures.
    places: Vec<Range<usize>>,
    fields: Vec<Range<usize>>,
}

impl Parts {
    /// Lists the structures of an image without scattered extents.
    pub(crate) fn of(image: &[u8]) -> Parts {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from(image.to_vec()));
        let anatomy = Anatomy::of(&device).expect("the image is sound");
        let disk = Disk::new(device);
        let (mut places, mut fields) = (Vec::new(), Vec::new());
        for part in anatomy.parts().iter().filter(|part| !part.is_empty()) {
            let of_part = part.fields(&disk).expect("what is sound decodes");
            for rows in &part.copies {
                let &[(at, len)] = &rows[..] else { panic!("{} is scattered", part.name) };
                let at = at as usize;
                places.push(at..at + len);
                let bytes = of_part.iter().map(|field| &field.bytes);
                let bytes = bytes.filter(|bytes| !bytes.is_empty());
                fields.extend(bytes.map(|bytes| at + bytes.start..at + bytes.end));
            }
        }
        Parts { anatomy, places, fields }
    }

    /// All structures.
    pub(crate) fn all(&self) -> &[Part] {
        self.anatomy.parts()
    }

    /// The byte range of a structure; any number is valid.
    pub(crate) fn part(&self, number: usize) -> Range<usize> {
        self.places[number % self.places.len()].clone()
    }

    /// The byte range of a field; any number is valid.
    pub(crate) fn field(&self, number: usize) -> Range<usize> {
        self.fields[number % self.fields.len()].clone()
    }

    /// Corrects the hashes of all structures with bytes at `changed`, and of all above them.
    pub(crate) fn seal(&self, device: &Arc<dyn Device>, changed: &[usize]) {
        let disk = Disk::new(device.clone());
        // A structure comes after the one that refers to it.
        for part in self.all().iter().rev() {
            if changed.iter().any(|at| part.contains(*at as u64)) {
                reseal(&disk, &self.anatomy, part).expect("memory can be written to");
            }
        }
    }
}
