//! Trees that are copied in and out by tar(1), rsync(1) and cp(1) without loss.

use std::fs;
use std::path::Path;

use super::tree::plant;
use crate::fixture::{BETR, Manifest, Mounted, betr_only, program, said};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn tar_in_and_out() {
    let Some(mut mount) = program("tar").and_then(|_| Mounted::new("")) else { return };
    let (source, archive) = (mount.beside("source"), mount.beside("source.tar"));
    plant(&source);
    let whole = ["--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner", "-S"];
    let tar = |words: &[&str]| said("tar", Path::new("/"), whole.iter().chain(words));
    tar(&["-C", text(&source), "-cf", text(&archive), "."]);
    let copy = mount.at("copy");
    fs::create_dir(&copy).unwrap();
    tar(&["-C", text(&copy), "-xpf", text(&archive)]);
    let expected = Manifest::of(&source);
    expected.assert_same(&Manifest::of(&copy));
    assert!(expected.len() > 500);
    mount.settle();
    tar(&["-C", text(&copy), "-df", text(&archive)]);

    // An archive on the mount, of a tree on the mount, unpacked outside.
    let (inner, back) = (mount.at("copy.tar"), mount.beside("back"));
    tar(&["-C", text(&copy), "-cf", text(&inner), "."]);
    fs::create_dir(&back).unwrap();
    tar(&["-C", text(&back), "-xpf", text(&inner)]);
    expected.assert_same(&Manifest::of(&back));
    fs::remove_dir_all(copy).unwrap();
    mount.settle();
}

#[test]
fn rsync_in_and_out() {
    let Some(mut mount) = program("rsync").and_then(|_| Mounted::new("")) else { return };
    let (source, copy) = (mount.beside("source"), mount.at("copy"));
    plant(&source);
    let rsync = |options: &[&str], from: &Path, to: &Path| {
        let (from, to) = (format!("{}/", from.display()), format!("{}/", to.display()));
        let words = ["-aHAX", "--numeric-ids", "--modify-window=-1", "-i"].into_iter();
        said("rsync", Path::new("/"), words.chain(options.iter().copied()).chain([&*from, &*to]))
    };
    let same = |from: &Path, to: &Path| {
        assert_eq!(rsync(&["-n", "--checksum", "--delete"], from, to), "");
        Manifest::of(from).assert_same(&Manifest::of(to));
    };
    rsync(&["--sparse"], &source, &copy);
    same(&source, &copy);
    mount.settle();

    // The source changes, and rsync updates the copy, in place and with new files.
    fs::remove_dir_all(source.join("dir 5")).unwrap();
    fs::rename(source.join("dir 6"), source.join("renamed")).unwrap();
    let mut large = fs::read(source.join("large")).unwrap();
    large[3_000_000..3_000_100].fill(0);
    large.extend(b"and more");
    fs::write(source.join("large"), large).unwrap();
    fs::write(source.join("dir 7/f7"), "changed").unwrap();
    rsync(&["--delete", "--inplace", "--no-whole-file"], &source, &copy);
    same(&source, &copy);
    fs::write(source.join("large"), "short").unwrap();
    rsync(&["--delete", "--fsync"], &source, &copy);
    same(&source, &copy);
    mount.settle();
    let back = mount.beside("back");
    rsync(&[], &copy, &back);
    same(&source, &back);
}

#[test]
fn cp_within() {
    let Some(mut mount) = Mounted::new("") else { return };
    let first = mount.at("first");
    plant(&first);
    let expected = Manifest::of(&first);
    // By copy_file_range, if the program and the kernel support it.
    for sparse in ["auto", "always", "never"] {
        let (sparse, copy) = (format!("--sparse={sparse}"), mount.at("second"));
        said("cp", Path::new("/"), ["-a", &sparse, text(&first), text(&copy)]);
        expected.assert_same(&Manifest::of(&copy));
        fs::remove_dir_all(copy).unwrap();
    }
    // By rename; and out and in again by copying and removing.
    let outside = mount.beside("outside");
    for (from, to) in
        [(&first, &mount.at("third")), (&mount.at("third"), &outside), (&outside, &first)]
    {
        said("mv", Path::new("/"), [text(from), text(to)]);
        expected.assert_same(&Manifest::of(to));
        assert!(!from.exists());
    }
    mount.settle();
}

#[test]
fn the_tools_see_what_the_mount_shows() {
    let Some(mut mount) = betr_only().then(|| Mounted::new("")).flatten() else { return };
    let (source, back, image) =
        (mount.beside("source"), mount.beside("back"), mount.image().to_owned());
    plant(&source);
    let expected = Manifest::of(&source);
    // Export from an image that was filled through a mount.
    said("cp", Path::new("/"), ["-a", text(&source), text(&mount.at("copy"))]);
    mount.unmount();
    said(BETR, Path::new("/"), ["export", text(&image), "/copy", text(&back)]);
    expected.assert_same(&Manifest::of(&back));
    // Mount of an image that was filled by `betr import`.
    said(BETR, Path::new("/"), ["import", text(&image), text(&source), "/imported"]);
    mount.fsck();
    mount.mount("");
    expected.assert_same(&Manifest::of(&mount.at("imported")));
    expected.assert_same(&Manifest::of(&mount.at("copy")));
}
