//! Growing images.

use std::fs;

use crate::support::*;

#[test]
fn an_image_grows_with_all_that_it_holds() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let listing = |image: &_| run("ls -lR --json IMG", image, &dir, 0).0;
    let before = listing(&image);
    for (size, bytes) in [("3M", 3 << 20), ("300M", 300 << 20), ("20G", 20u64 << 30)] {
        let (out, _) = run(&format!("resize IMG {size}"), &image, &dir, 0);
        assert!(out.contains(&format!("({bytes} bytes)")), "{out}");
        assert_eq!(fs::metadata(&image).unwrap().len(), bytes);
        assert_eq!(listing(&image), before);
        run("fsck -fn --data IMG", &image, &dir, 0);
    }
    let stored = std::os::unix::fs::MetadataExt::blocks(&fs::metadata(&image).unwrap()) * 512;
    assert!(stored < 64 << 20, "what is new takes no room: {stored} bytes");
    fs::write(dir.join("data"), pattern(30 << 20)).unwrap();
    run("cp IMG DIR/data :/data", &image, &dir, 0);
    let (out, _) = run("resize IMG", &image, &dir, 0);
    assert!(out.contains("already"), "{out}");
    let (_, err) = run("resize IMG 1G", &image, &dir, 1);
    assert!(err.contains("does not become smaller"), "{err}");
    run("fsck -fn --data IMG", &image, &dir, 0);
    run("export IMG /data DIR/back", &image, &dir, 0);
    assert!(fs::read(dir.join("back")).unwrap() == pattern(30 << 20));
}

/// After a refused size the file has its old length.
#[test]
fn what_is_refused_leaves_the_file_as_it_was() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let before = fingerprint(&image).0;
    let (_, err) = run(&format!("resize IMG {}", (2 << 20) + 4096), &image, &dir, 1);
    assert!(err.contains("the next size is"), "{err}");
    assert_eq!(fs::metadata(&image).unwrap().len(), 2 << 20);
    assert_eq!(fingerprint(&image).0, before);
    run("resize IMG 99T", &image, &dir, 1);
    assert_eq!(fs::metadata(&image).unwrap().len(), 2 << 20);
    run("fsck -fn IMG", &image, &dir, 0);
}

/// After a rollback to a checkpoint before its growth, an image is smaller than its file; it first grows to its old
/// size.
#[test]
fn an_image_that_went_back_grows_again() {
    let (_guard, dir) = scratch();
    let image = dir.join("image");
    run("mkfs -q IMG 130M", &image, &dir, 0);
    run("mkdir IMG /a", &image, &dir, 0);
    run("resize IMG 200M", &image, &dir, 0);
    // The slot of the checkpoint before the last one.
    let (out, _) = run("dump IMG super", &image, &dir, 0);
    let slots = out.lines().filter(|line| line.starts_with(" slot") && line.contains("epoch"));
    let slots: Vec<&str> = slots.filter_map(|line| line.split_whitespace().nth(1)).collect();
    let slot = slots[slots.len() - 2];
    run(&format!("replay -b {slot} IMG apply --in-place"), &image, &dir, 0);
    let before = fingerprint(&image).0;
    let (_, err) = run("resize IMG 150M", &image, &dir, 1);
    assert!(err.contains("the next size is 209715200"), "{err}");
    assert_eq!(fingerprint(&image).0, before);
    for size in ["200M", "300M"] {
        let (out, _) = run(&format!("resize IMG {size}"), &image, &dir, 0);
        assert!(!out.contains("already"), "{out}");
        run("fsck -fn --data IMG", &image, &dir, 0);
        assert!(run("ls IMG /", &image, &dir, 0).0.contains('a'));
    }
}
