//! Recognises the content of an image by signature.
//!
//! Two messages depend on this: "this holds an ext4 file system labelled …, use -f to replace it", and "this is no betr
//! image but a gzip file". The probe reads a few fixed places, trusts nothing it reads and interprets no further. An
//! image without a known signature may still hold data: [`crate::image::create`] also looks for non-zero bytes.

use crate::show;
use std::fmt;
use std::io;

/// A recognised format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The name of the format: `ext4`, `gzip`.
    pub name: &'static str,
    /// The kind of content: `file system`, `file`.
    pub kind: &'static str,
    /// The label as stored, without padding; never empty.
    pub label: Option<Vec<u8>>,
}

impl Foreign {
    /// Whether the format is betr.
    pub fn is_betr(&self) -> bool {
        self.name == "betr"
    }

    /// The format with its indefinite article, for use in a sentence: `an ext4 file system`.
    pub fn with_article(&self) -> String {
        // Names that are pronounced with an initial vowel.
        let vowels = ["e", "E", "f2fs", "iso", "lz4", "LVM", "MBR", "ntfs", "xfs", "xz"];
        let article = match vowels.iter().any(|begin| self.name.starts_with(begin)) {
            true => "an",
            false => "a",
        };
        format!("{article} {self}")
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.kind)?;
        match &self.label {
            Some(label) => write!(f, " labelled \"{}\"", show::bytes(label)),
            None => Ok(()),
        }
    }
}

/// The first bytes of the identity of a betr image, at [`BETR_AT`].
const BETR: &[u8] = b"\xbeBETRid\n";
const BETR_AT: u64 = 65536;
const EXT_AT: u64 = 1024;

const FS: &str = "file system";
const FILE: &str = "file";

/// A format recognised by magic bytes at a fixed offset.
struct Signature {
    name: &'static str,
    kind: &'static str,
    at: u64,
    magic: &'static [u8],
    /// Offset and length of the label in bytes.
    label: Option<(u64, usize)>,
}

const fn sig(
    name: &'static str,
    kind: &'static str,
    at: u64,
    magic: &'static [u8],
    label: Option<(u64, usize)>,
) -> Signature {
    Signature { name, kind, at, magic, label }
}

/// The signatures in the order in which they are tried; the first match wins. Long signatures come first. The boot
/// sector's is last, because other formats also carry it.
static SIGNATURES: [Signature; 35] = [
    sig("betr", FS, BETR_AT, BETR, Some((BETR_AT + 96, 64))),
    sig("btrfs", FS, 0x10040, b"_BHRfS_M", Some((0x1012b, 256))),
    sig("xfs", FS, 0, b"XFSB", Some((108, 12))),
    sig("squashfs", FS, 0, b"hsqs", None),
    sig("erofs", FS, 1024, b"\xe2\xe1\xf5\xe0", Some((1024 + 64, 16))),
    sig("f2fs", FS, 1024, b"\x10\x20\xf5\xf2", None),
    sig("iso9660", FS, 0x8001, b"CD001", Some((0x8000 + 40, 32))),
    sig("swap", "area", 4086, b"SWAPSPACE2", Some((1052, 16))),
    sig("swap", "area", 4086, b"SWAP-SPACE", None),
    sig("LUKS", "encrypted volume", 0, b"LUKS\xba\xbe\0\x02", Some((24, 48))),
    sig("LUKS", "encrypted volume", 0, b"LUKS\xba\xbe", None),
    sig("LVM2", "physical volume", 512 + 24, b"LVM2 001", None),
    sig("LVM2", "physical volume", 24, b"LVM2 001", None),
    sig("LVM2", "physical volume", 1024 + 24, b"LVM2 001", None),
    sig("LVM2", "physical volume", 1536 + 24, b"LVM2 001", None),
    sig("ntfs", FS, 3, b"NTFS    ", None),
    sig("exfat", FS, 3, b"EXFAT   ", None),
    sig("vfat", FS, 82, b"FAT32   ", Some((71, 11))),
    sig("vfat", FS, 54, b"FAT16   ", Some((43, 11))),
    sig("vfat", FS, 54, b"FAT12   ", Some((43, 11))),
    sig("GPT", "partition table", 512, b"EFI PART", None),
    sig("GPT", "partition table", 4096, b"EFI PART", None),
    sig("qcow2", "disk image", 0, b"QFI\xfb", None),
    sig("gzip", FILE, 0, b"\x1f\x8b\x08", None),
    sig("xz", FILE, 0, b"\xfd7zXZ\0", None),
    sig("zstd", FILE, 0, b"\x28\xb5\x2f\xfd", None),
    sig("bzip2", FILE, 0, b"BZh", None),
    sig("lz4", FILE, 0, b"\x04\x22\x4d\x18", None),
    sig("zip", FILE, 0, b"PK\x03\x04", None),
    sig("zip", FILE, 0, b"PK\x05\x06", None),
    sig("7z", FILE, 0, b"7z\xbc\xaf\x27\x1c", None),
    sig("tar", FILE, 257, b"ustar", None),
    sig("ELF", FILE, 0, b"\x7fELF", None),
    sig("PDF", FILE, 0, b"%PDF-", None),
    sig("MBR", "partition table or boot sector", 510, b"\x55\xaa", None),
];

/// Returns the first recognised format in an image of `len` bytes. `read` reads exactly at an offset; a failed read
/// counts as no match.
pub fn probe(read: Read, len: u64) -> Option<Foreign> {
    each(&|at, count| get(read, len, at, count)).next()
}

/// Returns every recognised format: an earlier file system may have left its signature.
pub fn probe_all(read: Read, len: u64) -> Vec<Foreign> {
    each(&|at, count| get(read, len, at, count)).collect()
}

/// Reads exactly at an offset.
type Read<'a> = &'a dyn Fn(u64, &mut [u8]) -> io::Result<()>;

fn get(read: Read, len: u64, at: u64, count: usize) -> Option<Vec<u8>> {
    if at.checked_add(count as u64)? > len {
        return None;
    }
    let mut bytes = vec![0; count];
    read(at, &mut bytes).ok()?;
    Some(bytes)
}

/// Yields the matches, the most reliable first.
fn each<'a>(get: Get<'a>) -> impl Iterator<Item = Foreign> + 'a {
    let (first, rest) = SIGNATURES.split_at(1);
    let signature = move |signature| by_signature(signature, get);
    let ext = std::iter::once_with(move || ext(get)).flatten();
    first.iter().filter_map(signature).chain(ext).chain(rest.iter().filter_map(signature))
}

/// Reads `count` bytes at an offset; `None` beyond the end of the image.
type Get<'a> = &'a dyn Fn(u64, usize) -> Option<Vec<u8>>;

fn by_signature(signature: &Signature, get: Get) -> Option<Foreign> {
    if get(signature.at, signature.magic.len())? != signature.magic {
        return None;
    }
    let label = signature.label.and_then(|(at, count)| unpadded(get(at, count)?));
    Some(Foreign { name: signature.name, kind: signature.kind, label })
}

/// ext2, ext3 and ext4 share a two-byte magic; the feature flags tell them apart.
fn ext(get: Get) -> Option<Foreign> {
    let superblock = get(EXT_AT, 1024)?;
    if superblock[0x38..0x3a] != [0x53, 0xef] {
        return None;
    }
    let word = |at: usize| u32::from_le_bytes(superblock[at..at + 4].try_into().unwrap());
    // Two bytes match by chance too often, so block size and revision must be plausible as well.
    if word(0x18) > 6 || word(0x4c) > 1 {
        return None;
    }
    let (compat, incompat, ro_compat) = (word(0x5c), word(0x60), word(0x64));
    // Features that ext3 had: filetype, recover, meta_bg; sparse_super, large_file, btree_dir.
    let (name, kind) = if incompat & 0x8 != 0 {
        ("ext", "journal device")
    } else if incompat & !0x16 != 0 || ro_compat & !0x7 != 0 {
        ("ext4", FS)
    } else if compat & 0x4 != 0 {
        ("ext3", FS)
    } else {
        ("ext2", FS)
    };
    Some(Foreign { name, kind, label: unpadded(superblock[0x78..0x88].to_vec()) })
}

/// The label up to its first zero byte, without trailing white space; `None` if that is empty.
fn unpadded(mut label: Vec<u8>) -> Option<Vec<u8>> {
    if let Some(end) = label.iter().position(|byte| *byte == 0) {
        label.truncate(end);
    }
    label.truncate(label.trim_ascii_end().len());
    // mkfs.vfat writes "NO NAME" if there is no label.
    (!label.is_empty() && label != b"NO NAME").then_some(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe_bytes(image: &[u8]) -> Option<Foreign> {
        let read = |at: u64, buffer: &mut [u8]| {
            let at = at as usize;
            buffer.copy_from_slice(&image[at..at + buffer.len()]);
            Ok(())
        };
        probe(&read, image.len() as u64)
    }

    #[test]
    fn every_signature_is_found_with_its_label() {
        for signature in &SIGNATURES {
            let mut image = vec![0; 1 << 17];
            image[signature.at as usize..][..signature.magic.len()]
                .copy_from_slice(signature.magic);
            let found = probe_bytes(&image).unwrap();
            assert_eq!((found.name, &found.label), (signature.name, &None));
            if let Some((at, _)) = signature.label {
                image[at as usize..][..3].copy_from_slice(b"a\x1bb");
                let found = probe_bytes(&image).unwrap();
                assert_eq!(found.label.as_deref(), Some(&b"a\x1bb"[..]), "{}", signature.name);
                assert!(found.to_string().ends_with("labelled \"a\\x1bb\""), "{found}");
            }
        }
    }

    #[test]
    fn ext_versions_differ_by_features() {
        let cases = [(0, 0x2, 0x1, "ext2"), (0x4, 0x6, 0x7, "ext3"), (0x4, 0x42, 0x1, "ext4")];
        for (compat, incompat, ro_compat, expected) in cases {
            let mut image = vec![0; 4096];
            image[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
            image[0x45c] = compat;
            image[0x460] = incompat;
            image[0x464] = ro_compat;
            image[0x478..0x47c].copy_from_slice(b"home");
            let found = probe_bytes(&image).unwrap();
            assert_eq!(found.to_string(), format!("{expected} file system labelled \"home\""));
            let spoken = format!("an {expected} file system labelled \"home\"");
            assert_eq!(found.with_article(), spoken);
        }
    }

    #[test]
    fn little_or_nothing_is_not_recognised() {
        for len in [0, 1, 511, 1024, 1080, 2047, 65536, 65543, 1 << 17] {
            assert_eq!(probe_bytes(&vec![0; len]), None, "{len}");
        }
        let fails = |_: u64, _: &mut [u8]| Err(io::ErrorKind::Other.into());
        assert_eq!(probe(&fails, 1 << 20), None);
    }
}
