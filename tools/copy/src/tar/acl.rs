//! Access control lists as text (POSIX.1e) and as the kernel's extended attribute.
//!
//! Entries are separated by newlines or commas: `user:NAME:rwx`, with letters for permissions or `-`; a fourth part
//! is the number of the named user or group. A numeric name is that number; any other name needs the fourth part,
//! since names are not looked up here.

use betr_core::fs::acl::tag::{GROUP, GROUP_OBJ, MASK, OTHER, USER, USER_OBJ};
use betr_core::fs::acl::{Acl, Entry, NOBODY};

/// The value of the attribute for a list; `None` for a list that is equivalent to permission bits.
pub(crate) fn attribute(text: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    let text = std::str::from_utf8(text).map_err(|_| "it is no text")?;
    let mut entries = Vec::new();
    for line in text.split(['\n', ',']) {
        let line = line.split('#').next().unwrap_or("").trim();
        if !line.is_empty() {
            entries.push(entry(line)?);
        }
    }
    entries.sort_unstable();
    if entries.windows(2).any(|pair| (pair[0].tag, pair[0].id) == (pair[1].tag, pair[1].id)) {
        return Err("it has an entry twice");
    }
    let has = |tag: u16| entries.iter().any(|entry| entry.tag == tag);
    if ![USER_OBJ, GROUP_OBJ, OTHER].into_iter().all(has) {
        return Err("it has not all of user, group and other");
    }
    if (has(USER) || has(GROUP)) && !has(MASK) {
        return Err("it has no mask");
    }
    let list = Acl::of(entries).ok_or("it is no list that the kernel would take")?;
    Ok((!list.is_minimal()).then(|| list.encode()))
}

/// The text of an attribute's value, with commas; `None` if it is not a valid list.
pub(crate) fn text(value: &[u8]) -> Option<String> {
    let mut texts = Vec::new();
    for &Entry { tag, id, perm } in Acl::parse(value)?.entries() {
        let (kind, named) = match tag {
            USER_OBJ => ("user", false),
            USER => ("user", true),
            GROUP_OBJ => ("group", false),
            GROUP => ("group", true),
            MASK => ("mask", false),
            _ => ("other", false),
        };
        let letter = |bit: u16, letter: char| if perm & bit != 0 { letter } else { '-' };
        let letters: String = [letter(4, 'r'), letter(2, 'w'), letter(1, 'x')].iter().collect();
        let name = if named { id.to_string() } else { String::new() };
        texts.push(format!("{kind}:{name}:{letters}"));
    }
    Some(texts.join(","))
}

fn entry(line: &str) -> Result<Entry, &'static str> {
    let line = line.strip_prefix("default:").unwrap_or(line);
    let parts: Vec<&str> = line.split(':').map(str::trim).collect();
    let (kind, name, perm, number) = match parts[..] {
        // The short form of entries without a name.
        [kind @ ("mask" | "m" | "other" | "o"), perm] => (kind, "", perm, None),
        [kind, name, perm] => (kind, name, perm, None),
        [kind, name, perm, number] => (kind, name, perm, Some(number)),
        _ => return Err("an entry has not three or four parts"),
    };
    let tag = match (kind, name.is_empty()) {
        ("user" | "u", true) => USER_OBJ,
        ("user" | "u", false) => USER,
        ("group" | "g", true) => GROUP_OBJ,
        ("group" | "g", false) => GROUP,
        ("mask" | "m", true) => MASK,
        ("other" | "o", true) => OTHER,
        _ => return Err("an entry is of no known kind"),
    };
    let id = match (name, number) {
        ("", _) => NOBODY,
        (name, number) => {
            let id = number.unwrap_or(name).parse().map_err(|_| "it has names without numbers")?;
            if id == NOBODY {
                return Err("its number is not one of a user or group");
            }
            id
        }
    };
    let mut bits = 0;
    for letter in perm.chars() {
        bits |= match letter {
            'r' => 4,
            'w' => 2,
            'x' => 1,
            '-' => 0,
            _ => return Err("an entry has permissions other than r, w and x"),
        };
    }
    Ok(Entry { tag, id, perm: bits })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_become_attributes() {
        let value = |entries: &[(u16, u16, u32)]| {
            let mut value = vec![2, 0, 0, 0];
            for (tag, perm, id) in entries {
                value.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
                value.extend(id.to_le_bytes());
            }
            value
        };
        let none = u32::MAX;
        let expected = value(&[
            (USER_OBJ, 6, none),
            (USER, 4, 7),
            (USER, 5, 1000),
            (GROUP_OBJ, 4, none),
            (MASK, 5, none),
            (OTHER, 0, none),
        ]);
        for text in [
            "user::rw-,user:1000:r-x,user:lisa:r--:7,group::r--,mask::r-x,other::---",
            "user::rw-\nuser:1000:r-x\nuser:7:r--\ngroup::r--\nmask::r-x\nother::---\n",
            "o:---,m:r-x,u:7:r,u:1000:rx #effective:r-x\n\n,u::rw,g::r",
            "default:user::rw-,default:user:1000:r-x,user:7:r--,group::r--,mask::r-x,other::---",
        ] {
            assert_eq!(attribute(text.as_bytes()), Ok(Some(expected.clone())), "{text}");
        }
        let back = super::text(&expected).unwrap();
        assert_eq!(back, "user::rw-,user:7:r--,user:1000:r-x,group::r--,mask::r-x,other::---");
        for bad in [&b""[..], b"\x01\0\0\0", &expected[..expected.len() - 1]] {
            assert_eq!(super::text(bad), None);
        }
        assert_eq!(attribute(b"user::rw-,group::r--,other::---"), Ok(None));
    }

    #[test]
    fn what_cannot_be_told_is_refused() {
        for text in [
            "",
            "user::rw-",
            "user::rw-,group::r--,other::---,user:lisa:r--,mask::r--",
            "user::rw-,group::r--,other::---,user:5:r--",
            "user::rw-,group::r--,other::---,other::---",
            "user::rw-,group::r--,other::---,user:4294967295:r--,mask::r--",
            "user::q,group::r--,other::---",
            "sorry::r,group::r--,other::---",
            "user::r:::,group::r--,other::---",
        ] {
            assert!(attribute(text.as_bytes()).is_err(), "{text}");
        }
        assert!(attribute(b"\xff").is_err());
    }
}
