//! The cursor over named fields that all decoders use, and the writer of the encoders.

use std::fmt;
use std::ops::Range;

use nom::IResult;
use nom::bytes::complete::take;
use nom::error::{Error, ErrorKind};
use nom::number::complete::{le_i64, le_u8, le_u16, le_u32, le_u64};

use crate::ids::{BLOCK_SIZE, Hash, is_zero};
use crate::text::Printable;

/// Receives the fields of a decoder: their places and values.
pub trait Trace {
    /// Starts a group of fields: its name, and its index if there are several.
    fn enter(&mut self, name: &'static str, index: Option<usize>);
    /// Ends the innermost group.
    fn leave(&mut self);
    /// A field: its bytes within the structure, and its value as text that is safe to print.
    fn field(&mut self, name: &'static str, bytes: Range<usize>, value: &dyn fmt::Display);
}

/// A decoding error: its place in the structure, and the fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatError {
    /// Byte offset within the structure.
    pub at: usize,
    /// The names of groups and field.
    pub field: String,
    /// The fault of the field.
    pub fault: FormatFault,
}

impl FormatError {
    /// The error of a structure at offset `at` of a larger one.
    pub fn within(self, at: usize) -> FormatError {
        FormatError { at: self.at + at, ..self }
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {:#x}: {}", self.field, self.at, self.fault)
    }
}

impl std::error::Error for FormatError {}

/// The fault of a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatFault {
    /// The structure ends too soon.
    #[error("{need} bytes expected, {left} left")]
    Short {
        /// Bytes wanted.
        need: usize,
        /// Bytes there.
        left: usize,
    },
    /// A value that is not allowed.
    #[error("expected {expected}, found {found}")]
    Value {
        /// What is allowed.
        expected: String,
        /// What was found.
        found: String,
    },
    /// A number beyond its limit.
    #[error("{found} is beyond the limit of {limit}")]
    Limit {
        /// The greatest value allowed.
        limit: u64,
        /// The value found.
        found: u64,
    },
    /// Bytes that must be zero are not.
    #[error("padding is not zero")]
    Padding,
    /// Bytes follow the end of the structure.
    #[error("{0} bytes too many")]
    Trailing(usize),
    /// The bytes do not match their hash.
    #[error("hash does not match: expected {expected}, computed {computed}")]
    Hash {
        /// The hash that the structure or its parent states.
        expected: Hash,
        /// The hash of the bytes.
        computed: Hash,
    },
}

type Input<'a> = &'a [u8];

/// 4: the deepest nesting of groups.
const DEPTH: usize = 4;

/// A cursor over the fields of one structure.
pub struct Fields<'a, 't> {
    bytes: Input<'a>,
    at: usize,
    groups: [(&'static str, Option<usize>); DEPTH],
    depth: usize,
    trace: Option<&'t mut dyn Trace>,
}

impl<'a, 't> Fields<'a, 't> {
    /// A cursor at the start of `bytes`, without a trace.
    pub fn new(bytes: &'a [u8]) -> Self {
        Fields { bytes, at: 0, groups: [("", None); DEPTH], depth: 0, trace: None }
    }

    /// A cursor at the start of `bytes` that reports to `trace`, if any.
    pub fn traced(bytes: &'a [u8], trace: Option<&'t mut dyn Trace>) -> Self {
        Fields { trace, ..Fields::new(bytes) }
    }

    /// The whole structure.
    pub fn all(&self) -> &'a [u8] {
        self.bytes
    }

    /// The offset of the next field.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Number of bytes left.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Starts a group of fields.
    pub fn enter(&mut self, name: &'static str, index: Option<usize>) {
        if self.depth < DEPTH {
            self.groups[self.depth] = (name, index);
        }
        self.depth += 1;
        if let Some(trace) = &mut self.trace {
            trace.enter(name, index);
        }
    }

    /// Ends the innermost group.
    pub fn leave(&mut self) {
        self.depth -= 1;
        if let Some(trace) = &mut self.trace {
            trace.leave();
        }
    }

    /// The error `fault` for field `name` at offset `at`.
    pub fn fail_at(&self, at: usize, name: &str, fault: FormatFault) -> FormatError {
        let mut field = String::new();
        for (group, index) in &self.groups[..self.depth.min(DEPTH)] {
            field.push_str(group);
            if let Some(index) = index {
                field.push_str(&format!(" {index}"));
            }
            field.push_str(", ");
        }
        field.push_str(name);
        FormatError { at, field, fault }
    }

    /// The error that the field just read has a value that is not allowed.
    pub fn wrong(
        &self,
        name: &str,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> FormatError {
        let fault = FormatFault::Value { expected: expected.to_string(), found: found.to_string() };
        self.fail_at(self.at, name, fault)
    }

    fn parse<T>(
        &mut self,
        name: &str,
        need: usize,
        parser: impl FnOnce(Input<'a>) -> IResult<Input<'a>, T>,
    ) -> Result<(Range<usize>, T), FormatError> {
        let rest = &self.bytes[self.at..];
        match parser(rest) {
            Ok((after, value)) => {
                let start = self.at;
                self.at = self.bytes.len() - after.len();
                Ok((start..self.at, value))
            }
            Err(_) => {
                let fault = FormatFault::Short { need, left: rest.len() };
                Err(self.fail_at(self.at, name, fault))
            }
        }
    }

    fn number<T: fmt::Display>(
        &mut self,
        name: &'static str,
        parser: impl FnOnce(Input<'a>) -> IResult<Input<'a>, T>,
    ) -> Result<T, FormatError> {
        let (range, value) = self.parse(name, size_of::<T>(), parser)?;
        self.report(name, range, &value);
        Ok(value)
    }

    fn report(&mut self, name: &'static str, range: Range<usize>, value: &dyn fmt::Display) {
        if let Some(trace) = &mut self.trace {
            trace.field(name, range, value);
        }
    }

    /// One byte.
    pub fn u8(&mut self, name: &'static str) -> Result<u8, FormatError> {
        self.number(name, le_u8)
    }

    /// Two bytes.
    pub fn u16(&mut self, name: &'static str) -> Result<u16, FormatError> {
        self.number(name, le_u16)
    }

    /// Four bytes.
    pub fn u32(&mut self, name: &'static str) -> Result<u32, FormatError> {
        self.number(name, le_u32)
    }

    /// Eight bytes.
    pub fn u64(&mut self, name: &'static str) -> Result<u64, FormatError> {
        self.number(name, le_u64)
    }

    /// A number of `N` bytes, at most 8.
    pub fn bytes_number<const N: usize>(&mut self, name: &'static str) -> Result<u64, FormatError> {
        let (range, bytes) = self.parse(name, N, take(N))?;
        let number = bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        self.report(name, range, &number);
        Ok(number)
    }

    /// Eight bytes, signed.
    pub fn i64(&mut self, name: &'static str) -> Result<i64, FormatError> {
        self.number(name, le_i64)
    }

    /// A variable-length number: seven bits in each byte, the lowest first; the eighth bit is set in all but the last.
    pub fn varint(&mut self, name: &'static str) -> Result<u64, FormatError> {
        let start = self.at;
        match varint(&self.bytes[start..]) {
            Ok((after, value)) => {
                self.at = self.bytes.len() - after.len();
                self.report(name, start..self.at, &value);
                Ok(value)
            }
            Err(nom::Err::Incomplete(_)) => {
                let fault = FormatFault::Short { need: self.left() + 1, left: self.left() };
                Err(self.fail_at(start, name, fault))
            }
            Err(_) => Err(self.wrong(name, "a number of 64 bits in its shortest form", "another")),
        }
    }

    /// A count or length as a variable-length number, of at most `limit`.
    pub fn length(&mut self, name: &'static str, limit: usize) -> Result<usize, FormatError> {
        let at = self.at;
        let found = self.varint(name)?;
        self.within(at, name, found, limit as u64)?;
        Ok(found as usize)
    }

    /// A count or length of four bytes, of at most `limit`.
    pub fn limited(&mut self, name: &'static str, limit: usize) -> Result<usize, FormatError> {
        let at = self.at;
        let found = self.u32(name)? as usize;
        self.within(at, name, found as u64, limit as u64)?;
        Ok(found)
    }

    /// A number of one byte, of at most `limit`.
    pub fn limited8(&mut self, name: &'static str, limit: u8) -> Result<u8, FormatError> {
        let at = self.at;
        let found = self.u8(name)?;
        self.within(at, name, found.into(), limit.into())?;
        Ok(found)
    }

    /// A length of two bytes, of at most `limit`.
    pub fn short_limited(
        &mut self,
        name: &'static str,
        limit: usize,
    ) -> Result<usize, FormatError> {
        let at = self.at;
        let found = usize::from(self.u16(name)?);
        self.within(at, name, found as u64, limit as u64)?;
        Ok(found)
    }

    /// A count of items of at least `each` bytes that follow; it is limited by the bytes left, too.
    pub fn count(
        &mut self,
        name: &'static str,
        limit: usize,
        each: usize,
    ) -> Result<usize, FormatError> {
        let at = self.at;
        let count = self.limited(name, limit)?;
        self.within(at, name, count as u64, (self.left() / each) as u64)?;
        Ok(count)
    }

    /// Fails if a number exceeds its limit.
    pub fn within(&self, at: usize, name: &str, found: u64, limit: u64) -> Result<(), FormatError> {
        if found <= limit {
            return Ok(());
        }
        Err(self.fail_at(at, name, FormatFault::Limit { limit, found }))
    }

    /// A hash.
    pub fn hash(&mut self, name: &'static str) -> Result<Hash, FormatError> {
        let (range, bytes) = self.parse(name, 32, take(32usize))?;
        let hash = Hash(bytes.try_into().unwrap_or_default());
        self.report(name, range, &hash);
        Ok(hash)
    }

    /// `len` bytes, reported as text.
    pub fn bytes(&mut self, name: &'static str, len: usize) -> Result<&'a [u8], FormatError> {
        let (range, bytes) = self.parse(name, len, take(len))?;
        self.report(name, range, &Printable(bytes));
        Ok(bytes)
    }

    /// `N` bytes, reported in hexadecimal.
    pub fn raw<const N: usize>(&mut self, name: &'static str) -> Result<[u8; N], FormatError> {
        let (range, bytes) = self.parse(name, N, take(N))?;
        self.report(name, range, &Hex(bytes));
        Ok(bytes.try_into().unwrap_or([0; N]))
    }

    /// `len` bytes, reported in hexadecimal.
    pub fn hex(&mut self, name: &'static str, len: usize) -> Result<&'a [u8], FormatError> {
        let (range, bytes) = self.parse(name, len, take(len))?;
        self.report(name, range, &Hex(bytes));
        Ok(bytes)
    }

    /// `len` bytes that must be zero.
    pub fn zeros(&mut self, name: &'static str, len: usize) -> Result<(), FormatError> {
        let at = self.at;
        let (range, bytes) = self.parse(name, len, take(len))?;
        if !is_zero(bytes) {
            return Err(self.fail_at(at, name, FormatFault::Padding));
        }
        if len > 0 {
            self.report(name, range, &"zero");
        }
        Ok(())
    }

    /// The rest of the structure, which must be zero.
    pub fn zeros_to_end(&mut self) -> Result<(), FormatError> {
        self.zeros("padding", self.left())
    }

    /// The rest of a structure of one block, which must be zero.
    pub fn zeros_to_block_end(&mut self) -> Result<(), FormatError> {
        if self.bytes.len() != BLOCK_SIZE {
            return Err(self.wrong("block", BLOCK_SIZE, self.bytes.len()));
        }
        self.zeros_to_end()
    }

    /// Fails if bytes are left.
    pub fn end(&self) -> Result<(), FormatError> {
        match self.left() {
            0 => Ok(()),
            left => Err(self.fail_at(self.at, "end", FormatFault::Trailing(left))),
        }
    }
}

/// Takes a variable-length number from the front.
pub(super) fn varint(bytes: Input<'_>) -> IResult<Input<'_>, u64> {
    let wrong = || nom::Err::Error(Error::new(bytes, ErrorKind::TooLarge));
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if at == 9 && bits > 1 {
            return Err(wrong());
        }
        value |= bits << (7 * at);
        if byte & 0x80 == 0 {
            let shortest = at == 0 || bits > 0;
            return if shortest { Ok((&bytes[at + 1..], value)) } else { Err(wrong()) };
        }
    }
    Err(if bytes.len() < 10 { nom::Err::Incomplete(nom::Needed::new(1)) } else { wrong() })
}

/// Bytes of a number as a variable-length number.
pub(super) fn varint_bytes(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Bytes in hexadecimal.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Appends fields to a buffer; the counterpart of [`Fields`] for encoders.
#[derive(Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl From<Vec<u8>> for Writer {
    /// Appends to existing bytes.
    fn from(bytes: Vec<u8>) -> Writer {
        Writer { bytes }
    }
}

impl Writer {
    /// An empty buffer with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Writer {
        Writer { bytes: Vec::with_capacity(capacity) }
    }

    /// Number of bytes written.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// One byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    /// Two bytes.
    pub fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A length or count in two bytes; the caller must have checked its limit.
    pub fn len16(&mut self, value: usize) {
        self.u16(u16::try_from(value).expect("a length within its limit"));
    }

    /// A length or count in four bytes; the caller must have checked its limit.
    pub fn len32(&mut self, value: usize) {
        self.u32(u32::try_from(value).expect("a length within its limit"));
    }

    /// Eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Eight bytes, signed.
    pub fn i64(&mut self, value: i64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A variable-length number.
    pub fn varint(&mut self, value: u64) {
        let mut rest = value;
        while rest >= 0x80 {
            self.bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.bytes.push(rest as u8);
    }

    /// A hash.
    pub fn hash(&mut self, value: &Hash) {
        self.bytes.extend_from_slice(&value.0);
    }

    /// Raw bytes.
    pub fn bytes(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
    }

    /// Zeros up to offset `to`.
    pub fn pad_to(&mut self, to: usize) {
        assert!(to >= self.bytes.len(), "a structure outgrew its place");
        self.bytes.resize(to, 0);
    }

    /// Replaces the bytes at `at`.
    pub fn patch(&mut self, at: usize, value: &[u8]) {
        self.bytes[at..at + value.len()].copy_from_slice(value);
    }

    /// The bytes written so far.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes written.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}
