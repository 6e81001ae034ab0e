//! Maps of the data in sparse files.
//!
//! A map is an ordered list of segments that do not overlap. GNU's formats store it in headers (old GNU), in pax
//! records (0.0 and 0.1), or before the data (1.0). Format 1.0 has decimal numbers, each with a newline: the number
//! of segments, then offset and length of each, padded with zeros to whole blocks.

use crate::tar::error::Fault;
use crate::tar::{BLOCK, number};

/// The most segments of one file: 1,048,576.
pub const SEGMENTS_MAX: usize = 1 << 20;

/// The most digits of a number in format 1.0.
const DIGITS_MAX: usize = 20;

/// A range of a file with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub offset: u64,
    pub len: u64,
}

/// Checks that a map is ordered, lies within `size`, and covers `stored` bytes.
pub(crate) fn check(map: &[Segment], size: u64, stored: u64) -> Result<(), Fault> {
    let (mut end, mut sum) = (0, 0u64);
    for Segment { offset, len } in map {
        let found = format!("{len} bytes at {offset}");
        if *offset < end {
            return Err(Fault::new(
                "map of the sparse file",
                format!("order, from {end} on"),
                found,
            ));
        }
        end = match offset.checked_add(*len).filter(|end| *end <= size) {
            Some(end) => end,
            None => {
                let expected = format!("data within its {size} bytes");
                return Err(Fault::new("map of the sparse file", expected, found));
            }
        };
        sum += len;
    }
    if sum != stored {
        let expected = format!("{stored} bytes of data, as the archive has");
        return Err(Fault::new("map of the sparse file", expected, sum));
    }
    Ok(())
}

/// Checks the number of segments against [`SEGMENTS_MAX`].
pub(crate) fn check_count(count: u64) -> Result<(), Fault> {
    match count <= SEGMENTS_MAX as u64 {
        true => Ok(()),
        false => {
            let expected = format!("at most {SEGMENTS_MAX} segments");
            Err(Fault::new("map of the sparse file", expected, count))
        }
    }
}

/// Parses the map of format 0.1: offsets and lengths, separated by commas.
pub(crate) fn parse_list(text: &[u8]) -> Result<Vec<Segment>, Fault> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let malformed = || Fault::text("GNU.sparse.map", "pairs of numbers, with commas", text);
    let numbers: Option<Vec<u64>> = text.split(|byte| *byte == b',').map(number::decimal).collect();
    let numbers =
        numbers.filter(|numbers| numbers.len().is_multiple_of(2)).ok_or_else(malformed)?;
    check_count(numbers.len() as u64 / 2)?;
    let pairs = numbers.chunks_exact(2);
    Ok(pairs.map(|pair| Segment { offset: pair[0], len: pair[1] }).collect())
}

/// Parses a map of format 1.0, block by block.
#[derive(Default)]
pub(crate) struct MapReader {
    digits: Vec<u8>,
    count: Option<u64>,
    offset: Option<u64>,
    map: Vec<Segment>,
}

impl MapReader {
    /// Parses a block. Returns the map after the last one.
    pub(super) fn take(&mut self, block: &[u8; BLOCK]) -> Result<Option<Vec<Segment>>, Fault> {
        for byte in block {
            if *byte != b'\n' {
                self.digits.push(*byte);
                if self.digits.len() > DIGITS_MAX || !byte.is_ascii_digit() {
                    return Err(self.malformed());
                }
                continue;
            }
            let number = number::decimal(&self.digits).ok_or_else(|| self.malformed())?;
            self.digits.clear();
            match (self.count, self.offset.take()) {
                (None, _) => {
                    check_count(number)?;
                    self.count = Some(number);
                }
                (Some(_), None) => self.offset = Some(number),
                (Some(_), Some(offset)) => self.map.push(Segment { offset, len: number }),
            }
            if self.count == Some(self.map.len() as u64) {
                return Ok(Some(std::mem::take(&mut self.map)));
            }
        }
        Ok(None)
    }

    fn malformed(&self) -> Fault {
        let expected = "a decimal number and a newline";
        Fault::text("map in front of the data of the sparse file", expected, &self.digits)
    }
}

/// The data ranges of a file to write.
///
/// With more than [`SEGMENTS_MAX`] segments, the smallest holes become data.
#[derive(Clone, Debug)]
pub struct Segments {
    map: Vec<Segment>,
    size: u64,
    /// Holes below this size, in bytes, become data.
    hole_min: u64,
    most: usize,
}

impl Segments {
    /// A file of `size` bytes that is one hole so far.
    pub fn new(size: u64) -> Segments {
        Segments { map: Vec::new(), size, hole_min: 1, most: SEGMENTS_MAX }
    }

    /// A file of `size` bytes without holes.
    pub fn whole(size: u64) -> Segments {
        let mut segments = Segments::new(size);
        segments.push(0, size);
        segments
    }

    /// Adds data at `[from, to)`, after all previous ones.
    pub fn push(&mut self, from: u64, to: u64) {
        assert!(from <= to && to <= self.size && from >= self.end(), "segments come in order");
        self.join(Segment { offset: from, len: to - from });
        // Leaves room for the segment that marks the end.
        while self.map.len() >= self.most {
            self.hole_min *= 2;
            for segment in std::mem::take(&mut self.map) {
                self.join(segment);
            }
        }
    }

    /// The segments to write: offset and length.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.map.iter().map(|segment| (segment.offset, segment.len))
    }

    /// The size of the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The number of bytes to write.
    pub fn stored(&self) -> u64 {
        self.map.iter().map(|segment| segment.len).sum()
    }

    /// Whether there are holes.
    pub fn is_sparse(&self) -> bool {
        self.stored() < self.size
    }

    /// The map of format 1.0, in whole blocks. A segment of length 0 marks a hole at the end.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let tail = (self.end() < self.size).then_some((self.size, 0));
        let count = self.map.len() + usize::from(tail.is_some());
        let mut text = format!("{count}\n").into_bytes();
        for (offset, len) in self.iter().chain(tail) {
            text.extend_from_slice(format!("{offset}\n{len}\n").as_bytes());
        }
        text.resize(text.len().next_multiple_of(BLOCK), 0);
        text
    }

    fn end(&self) -> u64 {
        self.map.last().map_or(0, |last| last.offset + last.len)
    }

    fn join(&mut self, segment: Segment) {
        match self.map.last_mut() {
            _ if segment.len == 0 => {}
            Some(last) if segment.offset - (last.offset + last.len) < self.hole_min => {
                last.len = segment.offset + segment.len - last.offset;
            }
            _ => self.map.push(segment),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(u64, u64)]) -> Vec<Segment> {
        pairs.iter().map(|(offset, len)| Segment { offset: *offset, len: *len }).collect()
    }

    #[test]
    fn maps_are_in_order_and_within_their_file() {
        type Pairs = &'static [(u64, u64)];
        let cases: [(Pairs, u64, u64, &str); 9] = [
            (&[], 10, 0, ""),
            (&[(0, 4), (4, 1), (9, 1), (10, 0)], 10, 6, ""),
            (&[(4, 4), (0, 4)], 10, 8, "order"),
            (&[(0, 4), (3, 4)], 10, 8, "order"),
            (&[(8, 4)], 10, 4, "within"),
            (&[(u64::MAX, 4)], 10, 4, "within"),
            (&[(11, 0)], 10, 0, "within"),
            (&[(0, 4)], 10, 5, "5 bytes"),
            (&[(0, 4)], 10, 3, "3 bytes"),
        ];
        for (pairs, size, stored, expected) in cases {
            match check(&map(pairs), size, stored) {
                Ok(()) => assert!(expected.is_empty(), "{pairs:?}"),
                Err(fault) => {
                    let text = fault.to_string();
                    assert!(!expected.is_empty() && text.contains(expected), "{pairs:?}: {text}");
                }
            }
        }
    }

    #[test]
    fn lists_are_pairs() {
        assert_eq!(parse_list(b"").unwrap(), map(&[]));
        assert_eq!(parse_list(b"0,5,10,1").unwrap(), map(&[(0, 5), (10, 1)]));
        for bad in [&b"1"[..], b"1,2,3", b"1,,2", b",", b"1,2,", b"a,b", b"1,-1"] {
            assert!(parse_list(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_encoded_is_read() {
        for (size, parts) in [
            (0, &[][..]),
            (100, &[]),
            (100, &[(0, 100)]),
            (1 << 40, &[(0, 1), (1 << 39, 1 << 40)]),
            (90_000, &[(0, 4096), (8192, 12_288), (80_000, 90_000)]),
        ] {
            let mut segments = Segments::new(size);
            parts.iter().for_each(|(from, to)| segments.push(*from, *to));
            let text = segments.encode();
            let mut reader = MapReader::default();
            let blocks: Vec<_> = text.chunks_exact(BLOCK).collect();
            for (at, block) in blocks.iter().enumerate() {
                let read = reader.take((*block).try_into().unwrap()).unwrap();
                assert_eq!(read.is_some(), at + 1 == blocks.len());
                if let Some(read) = read {
                    check(&read, size, segments.stored()).unwrap();
                }
            }
        }
    }

    #[test]
    fn maps_in_front_of_data_are_numbers() {
        for text in ["x\n", "\n", "-1\n", "99999999999999999999999\n", "1\n0\n\n", "1048577\n"] {
            let mut block = [b'\n'; BLOCK];
            block[..text.len()].copy_from_slice(text.as_bytes());
            assert!(MapReader::default().take(&block).is_err(), "{text:?}");
        }
        let mut endless = MapReader::default();
        assert!(endless.take(&[b'1'; BLOCK]).is_err());
    }

    #[test]
    fn too_many_segments_become_fewer() {
        let mut segments = Segments { most: 8, ..Segments::new(10_000) };
        let mut from = 0;
        for step in 0..100 {
            segments.push(from, from + 10);
            from += 10 + 1 + step % 7;
        }
        assert!(segments.map.len() < 8);
        assert_eq!(segments.map[0].offset, 0);
        let stored = segments.stored();
        assert!((1000..=from).contains(&stored), "{stored}");
        check(&segments.map, 10_000, stored).unwrap();
    }
}
