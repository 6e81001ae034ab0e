//! Properties of all decoders, for any bytes.
//!
//! - It does not panic, and an error has its place among the bytes.
//! - It gives the same result with a trace, which gets every byte once, in order, with text that is safe to print.
//! - A decoded structure encodes to the same bytes, since there is one encoding of everything. So with a byte less or
//!   more, nothing decodes.

use std::fmt::{Debug, Display};
use std::ops::Range;

use betr_core::format::limits::{FORMAT_VERSION, PLAN_VERSION};
use betr_core::format::{FormatError, Magic, RUN_HEADER_BYTES, SEAL_BYTES, Seal, Trace};
use betr_core::ids::BLOCK_SIZE;

use super::Input;

/// 107 bytes: the shortest head, of an empty leaf without bounds.
const HEAD_MIN: usize = 107;

/// Decodes a structure that starts with `magic`. The input has all of its bytes, or only its hashed part; in that case,
/// fields that a fuzzer does not find are corrected.
pub(super) fn sealed<T: Debug + PartialEq>(
    input: &Input<'_>,
    magic: Magic,
    decode: impl Fn(&[u8], Option<&mut dyn Trace>) -> Result<T, FormatError>,
    encode: impl Fn(&T) -> Vec<u8>,
) -> Option<T> {
    let bytes = if input.as_it_is { input.bytes.to_vec() } else { made_right(magic, input.bytes) };
    let value = plain(&bytes, &decode, encode)?;
    let (mut shorter, mut longer) =
        (bytes[..bytes.len() - 1].to_vec(), [&bytes[..], &[0]].concat());
    for other in [&mut shorter, &mut longer] {
        Seal::close(other);
        assert!(decode(other, None).is_err(), "{magic:?} of {} bytes", other.len());
    }
    Some(value)
}

/// As [`sealed`], for a structure without a seal: the bytes are used as they are.
pub(super) fn plain<T: Debug + PartialEq>(
    bytes: &[u8],
    decode: impl Fn(&[u8], Option<&mut dyn Trace>) -> Result<T, FormatError>,
    encode: impl Fn(&T) -> Vec<u8>,
) -> Option<T> {
    let mut fields = Tiles::default();
    let traced = decode(bytes, Some(&mut fields));
    let decoded = decode(bytes, None);
    assert_eq!(decoded, traced);
    match decoded {
        Ok(value) => {
            assert_eq!((fields.end, fields.depth), (bytes.len(), 0), "not every byte is a field's");
            assert!(encode(&value) == bytes, "another encoding of {value:?}");
            Some(value)
        }
        Err(error) => {
            assert!(error.at <= bytes.len(), "{error}");
            assert!(is_safe(&error.to_string()), "{error:?}");
            None
        }
    }
}

/// A structure whose hashed part is `body`, with corrected fields.
fn made_right(magic: Magic, body: &[u8]) -> Vec<u8> {
    let mut bytes = [&magic.bytes()[..], &[0; 32], body].concat();
    let len = match magic {
        Magic::Run => RUN_HEADER_BYTES,
        Magic::Leaf | Magic::Internal | Magic::LogGroup => bytes.len().max(HEAD_MIN),
        _ => BLOCK_SIZE,
    };
    bytes.resize(len, 0);
    let used: u32 = bytes.iter().skip(96).map(|byte| byte.count_ones()).sum();
    let (at, number) = match magic {
        Magic::Identity => (72, FORMAT_VERSION),
        Magic::Superblock => (76, FORMAT_VERSION),
        Magic::Plan => (72, PLAN_VERSION),
        Magic::SpaceMap => (80, used),
        Magic::Leaf | Magic::Internal => (96, len as u32),
        Magic::LogGroup => (92, len as u32),
        Magic::Run | Magic::TablePage | Magic::ScatterMap => (0, 0),
        Magic::HoldsPage | Magic::DeadPage => (0, 0),
    };
    if at >= SEAL_BYTES {
        bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
    }
    Seal::close(&mut bytes);
    bytes
}

/// Whether text is one line without control characters.
fn is_safe(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

/// A trace that expects every byte once, in order.
#[derive(Default)]
struct Tiles {
    end: usize,
    depth: usize,
}

impl Trace for Tiles {
    fn enter(&mut self, _: &'static str, _: Option<usize>) {
        self.depth += 1;
    }

    fn leave(&mut self) {
        self.depth -= 1;
    }

    fn field(&mut self, name: &'static str, bytes: Range<usize>, value: &dyn Display) {
        assert_eq!(bytes.start, self.end, "{name}");
        self.end = bytes.end;
        assert!(is_safe(&value.to_string()), "{name}");
    }
}
