//! The permitted contents of one file after a crash: the durable state, plus any subset of the later changes.

/// A requested change, which may have been made.
enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Resize,
}

/// The bytes of a file: the last ones known to be durable, and the current ones.
#[derive(Default)]
pub(super) struct Content {
    durable: Vec<u8>,
    now: Vec<u8>,
    since: Vec<Change>,
    /// The minimum and maximum length since the durable state.
    lengths: (usize, usize),
}

impl Content {
    /// A file with these durable bytes.
    pub(super) fn durable(bytes: Vec<u8>) -> Self {
        let lengths = (bytes.len(), bytes.len());
        Self { now: bytes.clone(), durable: bytes, since: Vec::new(), lengths }
    }

    pub(super) fn len(&self) -> usize {
        self.now.len()
    }

    /// The number of changes that are not known to be durable.
    pub(super) fn pending(&self) -> usize {
        self.since.len()
    }

    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        self.now.resize(self.now.len().max(at + bytes.len()), 0);
        self.now[at..at + bytes.len()].copy_from_slice(bytes);
        self.since.push(Change::Write { at, bytes: bytes.to_vec() });
        self.note_length();
    }

    pub(super) fn resize(&mut self, len: usize) {
        self.now.resize(len, 0);
        self.since.push(Change::Resize);
        self.note_length();
    }

    fn note_length(&mut self) {
        let (least, greatest) = self.lengths;
        self.lengths = (least.min(self.len()), greatest.max(self.len()));
    }

    /// Marks everything as durable.
    pub(super) fn acknowledge(&mut self) {
        *self = Self::durable(std::mem::take(&mut self.now));
    }

    /// Whether a file may have these contents after a crash, or why not. Each byte is judged on its own: the order in
    /// which pages reach the disk is not specified.
    pub(super) fn admits(&self, found: &[u8]) -> Result<(), String> {
        let (least, greatest) = self.lengths;
        if !(least..=greatest).contains(&found.len()) {
            return Err(format!("{} bytes long, not {least}..={greatest}", found.len()));
        }
        if found == self.now || found == self.durable {
            return Ok(());
        }
        let resized = self.since.iter().any(|change| matches!(change, Change::Resize));
        let written = |place: usize, byte: u8| {
            self.since.iter().any(|change| match change {
                Change::Write { at, bytes } => {
                    place.checked_sub(*at).and_then(|index| bytes.get(index)) == Some(&byte)
                }
                Change::Resize => false,
            })
        };
        for (place, byte) in found.iter().copied().enumerate() {
            let durable = self.durable.get(place);
            // After a crash a byte past the durable end may be within the length but not yet written, so zero.
            let empty = byte == 0 && (durable.is_none() || resized);
            if durable != Some(&byte) && !empty && !written(place, byte) {
                return Err(format!(
                    "byte {place} of {} is {byte:#04x}; durable was {durable:02x?}, of {} bytes, and {} changes \
                     came since",
                    found.len(),
                    self.durable.len(),
                    self.since.len()
                ));
            }
        }
        Ok(())
    }
}

#[test]
fn what_was_durable_must_be_there() {
    let mut content = Content::durable(vec![1; 10]);
    content.write(5, &[2; 3]);
    for (found, fine) in [
        (&[1, 1, 1, 1, 1, 1, 1, 1, 1, 1][..], true),
        (&[1, 1, 1, 1, 1, 2, 2, 2, 1, 1], true),
        (&[1, 1, 1, 1, 1, 1, 2, 1, 1, 1], true),
        (&[1, 1, 1, 1, 2, 2, 2, 2, 1, 1], false),
        (&[1, 1, 1, 1, 1, 2, 0, 2, 1, 1], false),
        (&[1, 1, 1, 1, 1, 2, 2, 2, 1], false),
        (&[1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 0], false),
    ] {
        assert_eq!(content.admits(found).is_ok(), fine, "{found:?}");
    }
    content.acknowledge();
    assert!(content.admits(&[1; 10]).is_err());
    content.write(10, &[3; 2]);
    for (found, fine) in [
        (&[1, 1, 1, 1, 1, 2, 2, 2, 1, 1][..], true),
        (&[1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 3], true),
        (&[1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 0, 3], true),
        (&[1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 4], false),
    ] {
        assert_eq!(content.admits(found).is_ok(), fine, "{found:?}");
    }
    content.acknowledge();
    content.resize(2);
    content.resize(12);
    assert!(content.admits(&[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_ok());
    assert!(content.admits(&[1]).is_err());
}
