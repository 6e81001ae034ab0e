//! Extended attributes.

use bytes::Bytes;

use super::acl::{self, Acl};
use super::draft::Counts;
use super::{Delta, Fs, Object};
use crate::error::{Refusal, Result};
use crate::format::*;
use crate::ids::*;

impl Fs {
    /// The extended attributes of an object, in the order of their names.
    pub fn xattrs(&self, object: &Object) -> Result<Vec<(Vec<u8>, Bytes)>> {
        self.xattrs_at(&object.place())
    }

    pub(super) fn xattrs_at(&self, place: &MetaKey) -> Result<Vec<(Vec<u8>, Bytes)>> {
        let (lo, hi) = place.xattr_range();
        let mut found = Vec::new();
        for entry in self.volume.cursor(TreeId::Metadata, lo, Some(hi)) {
            let (key, value) = entry?;
            let place = MetaPlace::of(&key);
            let name = place.as_ref().and_then(|place| place.xattr(&key));
            found.push((name.ok_or_else(|| self.bad_key(&key))?.to_vec(), value));
        }
        Ok(found)
    }

    /// The metadata bytes of the extended attributes under a key.
    pub(super) fn xattr_bytes(&self, place: &MetaKey) -> Result<usize> {
        Ok(self.xattrs_at(place)?.iter().map(|(name, value)| xattr_bytes(name, value.len())).sum())
    }

    /// An extended attribute.
    pub fn xattr(&self, object: &Object, name: &[u8]) -> Result<Bytes> {
        self.find_xattr(object, name)?.ok_or(Refusal::NoAttribute.into())
    }

    pub(super) fn find_xattr(&self, object: &Object, name: &[u8]) -> Result<Option<Bytes>> {
        check_xattr_name(name)?;
        let key = object.place().with_xattr(name).encode();
        self.volume.get(TreeId::Metadata, &key)
    }

    /// Sets extended attributes in one operation. The permission bits follow an access control list; a list that they
    /// express completely is not stored (posix_acl_update_mode of the kernel).
    pub fn set_xattrs(&mut self, object: &Object, xattrs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        check_xattrs(xattrs)?;
        let mut all = Room::default();
        for (name, value) in self.xattrs(object)? {
            if xattrs.iter().all(|(other, _)| *other != name) {
                all.take(&name, value.len());
            }
        }
        xattrs.iter().for_each(|(name, value)| all.take(name, value.len()));
        all.check()?;
        let list = xattrs.iter().find(|(name, _)| name == acl::ACCESS);
        let list = list.and_then(|(_, value)| Acl::parse(value));
        let is_kept =
            |name: &[u8]| name != acl::ACCESS || !list.as_ref().is_some_and(Acl::is_minimal);
        let mut delta = Delta::default();
        let mut gone = None;
        for (name, value) in xattrs {
            let old = self.find_xattr(object, name)?;
            delta = delta - Delta::meta(old.as_ref().map_or(0, |old| xattr_bytes(name, old.len())));
            match is_kept(name) {
                true => delta = delta + Delta::meta(xattr_bytes(name, value.len())),
                false => gone = old.map(|_| name),
            }
        }
        self.change_xattrs(object, Op::SetXattr, delta, |draft, place| {
            for (name, value) in xattrs.iter().filter(|(name, _)| is_kept(name)) {
                draft.insert(&place.with_xattr(name), value.clone());
            }
            if let Some(name) = gone {
                draft.delete(&place.with_xattr(name));
            }
            if let Some(perm) = list.as_ref().map(Acl::perm) {
                let inode = draft.inode(object);
                inode.perm = inode.perm & !0o777 | perm;
            }
        })
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&mut self, object: &Object, name: &[u8]) -> Result<()> {
        let old = self.xattr(object, name)?;
        let delta = -Delta::meta(xattr_bytes(name, old.len()));
        self.change_xattrs(object, Op::RemoveXattr, delta, |draft, place| {
            draft.delete(&place.with_xattr(name));
        })
    }

    fn change_xattrs(
        &mut self,
        object: &Object,
        op: Op,
        delta: Delta,
        change: impl FnOnce(&mut super::Draft, &MetaKey),
    ) -> Result<()> {
        let mut draft = self.begin()?;
        if object.zone().is_none()
            && let Some((directory, _)) = object.up()
        {
            self.make_way(&directory, 0, || {
                let mut counts = Counts::default();
                counts.add(&directory, delta);
                counts
            })?;
            draft.count(&directory, delta);
        }
        change(&mut draft, &object.place());
        let now = draft.now;
        draft.inode(object).changed = now;
        self.commit(op, draft)
    }
}

/// The metadata bytes of an attribute.
pub fn xattr_bytes(name: &[u8], value: usize) -> usize {
    1 + name.len() + value
}

/// The total sizes of an object's attributes.
#[derive(Default)]
struct Room {
    names: usize,
    values: usize,
}

impl Room {
    fn take(&mut self, name: &[u8], value: usize) {
        self.names += name.len() + 1;
        self.values += value;
    }

    fn check(&self) -> Result<()> {
        let Room { names, values } = *self;
        match names <= limits::XATTR_NAMES_MAX && names + values <= limits::XATTRS_MAX {
            true => Ok(()),
            false => Err(Refusal::TooManyAttributes.into()),
        }
    }
}

/// Checks that these are valid attributes of an object.
pub(super) fn check_xattrs(xattrs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
    let mut all = Room::default();
    xattrs.iter().for_each(|(name, value)| all.take(name, value.len()));
    all.check()?;
    for (at, (name, value)) in xattrs.iter().enumerate() {
        check_xattr_name(name)?;
        if value.len() > limits::VALUE_MAX {
            return Err(Refusal::TooBig.into());
        }
        if xattrs[..at].iter().any(|(other, _)| other == name) {
            return Err(Refusal::Invalid.into());
        }
    }
    Ok(())
}

fn check_xattr_name(name: &[u8]) -> Result<()> {
    match name.len() {
        0 => Err(Refusal::Invalid.into()),
        1..=limits::XATTR_NAME_MAX if !name.contains(&0) => Ok(()),
        1..=limits::XATTR_NAME_MAX => Err(Refusal::Invalid.into()),
        _ => Err(Refusal::NameTooLong.into()),
    }
}
