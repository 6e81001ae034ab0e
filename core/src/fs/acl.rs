//! POSIX access control lists, in the attributes `system.posix_acl_access` and `system.posix_acl_default`: their
//! relation to permission bits, and their inheritance by new objects (acl(5)).
//!
//! ```text
//! version   u32: 2
//! entries   tag u16, permissions u16, id u32; in the order of tags, and of ids
//! ```
//!
//! All little-endian. Permission checks are done by the layer that mounts the volume.

/// The attribute with the access list of an object.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute with the default list for objects made in a directory.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;

/// Tags of entries.
#[allow(missing_docs)]
pub mod tag {
    pub const USER_OBJ: u16 = 0x01;
    pub const USER: u16 = 0x02;
    pub const GROUP_OBJ: u16 = 0x04;
    pub const GROUP: u16 = 0x08;
    pub const MASK: u16 = 0x10;
    pub const OTHER: u16 = 0x20;
}

use tag::*;

/// The id of entries that name no user or group.
pub const NOBODY: u32 = u32::MAX;

/// An access control list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<Entry>);

/// An entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The class: one of [`tag`].
    pub tag: u16,
    /// The user or group, or [`NOBODY`].
    pub id: u32,
    /// The permissions: three bits.
    pub perm: u16,
}

impl Acl {
    /// Decodes the value of an attribute; `None` if the kernel would not accept it.
    pub fn parse(bytes: &[u8]) -> Option<Acl> {
        let (version, rest) = bytes.split_first_chunk()?;
        if u32::from_le_bytes(*version) != VERSION || rest.len() % 8 != 0 {
            return None;
        }
        let entries = rest
            .chunks_exact(8)
            .map(|bytes| Entry {
                tag: u16::from_le_bytes([bytes[0], bytes[1]]),
                perm: u16::from_le_bytes([bytes[2], bytes[3]]),
                id: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            })
            .collect();
        Acl::of(entries)
    }

    /// A list of these entries, in the order of tags; `None` if the kernel would not accept it.
    pub fn of(entries: Vec<Entry>) -> Option<Acl> {
        let count = |tag| entries.iter().filter(|entry| entry.tag == tag).count();
        let known = [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER];
        let named = count(USER) + count(GROUP) > 0;
        let sound = entries.iter().all(|entry| known.contains(&entry.tag) && entry.perm <= 7)
            && entries.is_sorted_by_key(|entry| entry.tag)
            && [USER_OBJ, GROUP_OBJ, OTHER].into_iter().all(|tag| count(tag) == 1)
            && (count(MASK) == 1 || count(MASK) == 0 && !named);
        sound.then_some(Acl(entries))
    }

    /// The entries.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// Encodes the list as the value of an attribute.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for Entry { tag, id, perm } in &self.0 {
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&perm.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    /// The nine permission bits of the list. The bits of the group are the mask, if the list has one.
    pub fn perm(&self) -> u32 {
        let [user, group, other] = self.classes().map(|at| u32::from(self.0[at].perm));
        user << 6 | group << 3 | other
    }

    /// The list after chmod(2) to these bits.
    pub fn with_perm(mut self, perm: u32) -> Acl {
        for (at, shift) in self.classes().into_iter().zip([6, 3, 0]) {
            self.0[at].perm = (perm >> shift & 7) as u16;
        }
        self
    }

    /// The list of an object made with these permission bits, if this is the default list, and the resulting bits.
    /// `None` if the bits alone express the list.
    pub fn inherited(mut self, perm: u32) -> (Option<Acl>, u32) {
        for (at, shift) in self.classes().into_iter().zip([6, 3, 0]) {
            self.0[at].perm &= (perm >> shift & 7) as u16;
        }
        let perm = perm & !0o777 | self.perm();
        (Some(self).filter(|acl| !acl.is_minimal()), perm)
    }

    /// Whether nine permission bits express the list.
    pub fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }

    /// The indexes of the entries of owner, group class and others.
    fn classes(&self) -> [usize; 3] {
        let at = |tag| self.0.iter().position(|entry| entry.tag == tag);
        let found = [at(USER_OBJ), at(MASK).or(at(GROUP_OBJ)), at(OTHER)];
        found.map(|at| at.expect("every list has these"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        Acl(entries.iter().map(|&(tag, perm, id)| Entry { tag, perm, id }).collect()).encode()
    }

    #[test]
    fn bits_and_lists_go_together() {
        let plain = acl(&[(USER_OBJ, 6, NOBODY), (GROUP_OBJ, 4, NOBODY), (OTHER, 0, NOBODY)]);
        let plain = Acl::parse(&plain).unwrap();
        assert_eq!((plain.perm(), plain.is_minimal()), (0o640, true));
        assert_eq!(plain.clone().with_perm(0o751).perm(), 0o751);
        assert_eq!(plain.inherited(0o2777), (None, 0o2640));

        let rich = acl(&[
            (USER_OBJ, 7, NOBODY),
            (USER, 7, 1000),
            (GROUP_OBJ, 5, NOBODY),
            (MASK, 6, NOBODY),
            (OTHER, 1, NOBODY),
        ]);
        let rich = Acl::parse(&rich).unwrap();
        assert_eq!(rich.perm(), 0o761, "the mask stands for the group");
        let changed = rich.clone().with_perm(0o600);
        assert_eq!((changed.perm(), changed.0[2].perm), (0o600, 5), "the group's own entry stays");
        let (list, perm) = rich.inherited(0o644);
        assert_eq!((list.unwrap().perm(), perm), (0o640, 0o640));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let whole = acl(&[(USER_OBJ, 7, NOBODY), (GROUP_OBJ, 7, NOBODY), (OTHER, 7, NOBODY)]);
        assert_eq!(Acl::parse(&whole).unwrap().encode(), whole);
        for cut in 0..whole.len() {
            assert_eq!(Acl::parse(&whole[..cut]), None, "{cut} bytes");
        }
        for (at, byte) in [(0, 1), (4, 0x40), (6, 8), (4, OTHER as u8), (12, 2)] {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            assert_eq!(Acl::parse(&bytes), None, "byte {at}");
        }
    }
}
