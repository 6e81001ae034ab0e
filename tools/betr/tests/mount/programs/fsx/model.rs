//! The expected contents of a file.

/// The bytes of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Model(Vec<u8>);

impl Model {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The expected result of a read: short at the end of the file.
    pub(super) fn read(&self, at: usize, len: usize) -> &[u8] {
        let end = self.0.len().min(at + len);
        &self.0[at.min(end)..end]
    }

    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.grow(at + bytes.len());
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub(super) fn resize(&mut self, len: usize) {
        self.0.resize(len, 0);
    }

    pub(super) fn grow(&mut self, len: usize) {
        self.0.resize(len.max(self.0.len()), 0);
    }

    /// Zeros the part of a range that is within the file.
    pub(super) fn clear(&mut self, at: usize, len: usize) {
        let end = self.0.len().min(at + len);
        self.0[at.min(end)..end].fill(0);
    }

    /// Panics with the first difference, if there is one.
    #[track_caller]
    pub(super) fn assert_is(&self, at: usize, expected_len: usize, found: &[u8]) {
        let expected = self.read(at, expected_len);
        if expected == found {
            return;
        }
        let place = expected.iter().zip(found).position(|(one, other)| one != other);
        let around = |bytes: &[u8]| match place {
            Some(place) => format!("{:02x?}", &bytes[place..bytes.len().min(place + 16)]),
            None => format!("{} bytes", bytes.len()),
        };
        panic!(
            "{} bytes at {at} of {}: expected {}, found {}, at {:?}",
            expected_len,
            self.0.len(),
            around(expected),
            around(found),
            place.map(|place| at + place)
        );
    }
}
