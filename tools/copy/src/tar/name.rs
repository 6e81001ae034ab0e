//! Names of members as paths below a root.

use crate::tar::error::Fault;

/// The path of a name: without leading slash, empty components and `.`; empty for the root.
pub(crate) fn clean(what: &'static str, name: &[u8]) -> Result<Vec<u8>, Fault> {
    if name.is_empty() {
        return Err(Fault::new(what, "a name", "none"));
    }
    if name.contains(&0) {
        return Err(Fault::text(what, "no zero bytes", name));
    }
    let mut path = Vec::with_capacity(name.len());
    for component in name.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => continue,
            b".." => return Err(Fault::text(what, "no way up ('..')", name)),
            _ => {}
        }
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(component);
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_paths_below_the_root() {
        for (name, expected) in [
            (&b"a"[..], Some(&b"a"[..])),
            (b"./a/b/", Some(b"a/b")),
            (b"/etc//passwd", Some(b"etc/passwd")),
            (b"a/./b", Some(b"a/b")),
            (b"./", Some(b"")),
            (b"/", Some(b"")),
            (b"...", Some(b"...")),
            (b"a\nb\xff", Some(b"a\nb\xff")),
            (b"", None),
            (b"..", None),
            (b"a/../b", None),
            (b"/..", None),
            (b"a\0b", None),
        ] {
            assert_eq!(clean("name", name).ok().as_deref(), expected, "{name:?}");
        }
    }
}
