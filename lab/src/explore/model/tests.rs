//! The model against plain bytes, and what it refuses.

use super::*;
use crate::explore::{Fill, parse};

#[test]
fn contents_are_what_was_written() {
    let mut model = Model::new();
    let mut plain: Vec<u8> = Vec::new();
    model.apply(&Step::Create(b"/f".to_vec())).unwrap();
    for (offset, len, fill) in [
        (3, 9000, Fill::Seed(1)),
        (4096, 4096, Fill::Zeros),
        (20_000, 10, Fill::Seed(2)),
        (0, 5000, Fill::Seed(3)),
    ] {
        let path = b"/f".to_vec();
        model.apply(&Step::Write { path, offset, len, fill }).unwrap();
        plain.resize(plain.len().max(offset as usize + len), 0);
        plain[offset as usize..offset as usize + len].copy_from_slice(&fill.bytes(len));
        assert!(model.read(b"/f", 0, 1 << 20).unwrap() == plain);
        assert!(model.read(b"/f", 4000, 5000).unwrap() == plain[4000..9000]);
    }
    for size in [20_005, 8000, 30_000] {
        model.apply(&Step::Truncate(b"/f".to_vec(), size)).unwrap();
        plain.resize(size as usize, 0);
        assert!(model.read(b"/f", 0, 1 << 20).unwrap() == plain);
    }
}

#[test]
fn what_posix_refuses_is_refused() {
    let mut model = Model::new();
    let script = "mkdir /d\ncreate /d/f\nmkdir /e\nsymlink /s to\nlink /d/f /e/g\nmkdir /d/x\n";
    for step in parse(script).unwrap() {
        model.apply(&step).unwrap();
    }
    for (line, refusal) in [
        ("mkdir /d", Refusal::Exists),
        ("mkdir /", Refusal::Invalid),
        ("create /no/f", Refusal::NotFound),
        ("create /d/f/g", Refusal::NotADirectory),
        ("symlink /t -", Refusal::NotFound),
        ("write /d 0 1 1", Refusal::IsADirectory),
        ("truncate /s 1", Refusal::Invalid),
        ("unlink /d", Refusal::IsADirectory),
        ("rmdir /d", Refusal::NotEmpty),
        ("rmdir /s", Refusal::NotADirectory),
        ("rename /d /d/x/y", Refusal::Invalid),
        ("rename /d /s", Refusal::NotADirectory),
        ("rename /s /d", Refusal::IsADirectory),
        ("rename /e /d", Refusal::NotEmpty),
        ("link /d /l", Refusal::NotPermitted),
        ("link /s /d", Refusal::Exists),
        ("clone-directory /d /d/x/y", Refusal::Invalid),
        ("clone-directory /s /c", Refusal::NotADirectory),
        ("clone-directory /d /e", Refusal::Exists),
        ("rmxattr /d user.x", Refusal::NoAttribute),
    ] {
        assert_eq!(model.apply(&parse(line).unwrap()[0]), Err(refusal), "{line}");
    }
    assert_eq!(model.apply(&parse("rename /d/f /e/g").unwrap()[0]), Ok(()));
    assert_eq!(model.paths(true), [&b"/"[..], b"/d", b"/e", b"/d/x"]);
}
