//! Tar archives: an archive that is read and written again gives the same members.

use std::io::Cursor;

use betr_copy::host::{Kind, Meta};
use betr_copy::tar::{Archive, Input as Source, Member, Segments, TarError, What, Writer};

use super::Input;

const BLOCK: usize = 512;

/// A member, and its data by offset.
type Whole = (Member, Vec<(u64, Vec<u8>)>);

/// Archives; checksums of headers are corrected.
pub fn tar(bytes: &[u8]) -> bool {
    let Some(input) = Input::of(bytes, 1) else { return false };
    let mut bytes = input.bytes.to_vec();
    if !input.as_it_is {
        bytes.as_chunks_mut::<BLOCK>().0.iter_mut().for_each(sum_up);
    }
    let all = bytes.len() as u64;
    let Ok(members) = read(bytes) else { return false };
    let data: u64 = members.iter().flat_map(|(_, data)| data).map(|(_, d)| d.len() as u64).sum();
    assert!(data + (members.len() * BLOCK) as u64 <= all, "more than the archive has");
    let archive = write(&members);
    let again = read(archive).unwrap_or_else(|error| panic!("{error}: {members:?}"));
    assert_eq!(members.len(), again.len());
    for (before, after) in members.iter().zip(&again) {
        same(before, after);
    }
    !members.is_empty()
}

/// Corrects the checksum of a block with the magic of a header.
fn sum_up(block: &mut [u8; BLOCK]) {
    if block[257..].starts_with(b"ustar") {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    }
}

fn read(bytes: Vec<u8>) -> Result<Vec<Whole>, TarError> {
    let mut archive = Archive::new(Source::stream("archive", Cursor::new(bytes)));
    let mut members = Vec::new();
    let mut buffer = [0; 700];
    while let Some(member) = archive.next_member()? {
        let components = || member.path.split(|byte| *byte == b'/');
        let sound = |name: &[u8]| !name.is_empty() && name != b"." && name != b"..";
        assert!(member.path.is_empty() || components().all(sound), "{member:?}");
        let mut data: Vec<(u64, Vec<u8>)> = Vec::new();
        while let Some((offset, len)) = archive.next_segment(&mut buffer)? {
            match data.last_mut() {
                Some((at, bytes)) if *at + bytes.len() as u64 == offset => {
                    bytes.extend_from_slice(&buffer[..len]);
                }
                last => {
                    assert!(last.is_none_or(|(at, bytes)| *at + (bytes.len() as u64) < offset));
                    data.push((offset, buffer[..len].to_vec()));
                }
            }
        }
        let end = data.last().map_or(0, |(at, bytes)| at + bytes.len() as u64);
        assert!(end <= size(&member), "{member:?}");
        members.push((member, data));
    }
    Ok(members)
}

/// The length of a member's data, including holes.
fn size(member: &Member) -> u64 {
    match &member.what {
        What::Object(meta) if meta.kind == Kind::File => meta.size,
        What::Link { size, .. } => *size,
        What::Object(_) => 0,
    }
}

fn write(members: &[Whole]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    for (member, data) in members {
        let name = &member.path;
        match &member.what {
            What::Link { to, modified, .. } => {
                writer.link(name, to, &Meta::new(Kind::File, 0, *modified))
            }
            What::Object(meta) if meta.kind == Kind::File => {
                let mut segments = Segments::new(meta.size);
                for (offset, bytes) in data {
                    segments.push(*offset, offset + bytes.len() as u64);
                }
                let begun = writer.file(name, meta, &segments);
                begun.and_then(|()| data.iter().try_for_each(|(_, bytes)| writer.data(bytes)))
            }
            What::Object(meta) => writer.object(name, meta),
        }
        .unwrap_or_else(|error| panic!("{error}: {member:?}"));
    }
    writer.finish().expect("memory can be written to")
}

/// Asserts that a member is equal after writing and reading. A link is written without data, and its time without
/// nanoseconds.
fn same((before, data): &Whole, (after, data_after): &Whole) {
    assert_eq!(before.path, after.path);
    match (&before.what, &after.what) {
        (What::Link { to, .. }, What::Link { to: to_after, .. }) => assert_eq!(to, to_after),
        (before, after) => {
            assert_eq!(before, after);
            assert_eq!(data, data_after);
        }
    }
}
