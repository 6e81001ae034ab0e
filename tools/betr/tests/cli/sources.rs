//! The image depends only on the contents of a tree, not on its location or form: on any file system, with holes or
//! with zeros, as a directory or as an archive, as root or under fakeroot.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use betr_cli::skip::{need, program};

use crate::support::*;
use crate::tree::{set_mode, set_times};

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";
const MIB: u64 = 1 << 20;

/// How the zeros in a file are created.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Zeros {
    /// Written.
    Written,
    /// Left as holes.
    Holes,
    /// Written, and whole blocks of zeros then punched out.
    Punched,
}

/// The ranges of a file that are not zero: offsets and lengths.
type Parts = &'static [(u64, usize)];

/// A tree of files with zeros everywhere else.
fn grow(root: &Path, zeros: Zeros) {
    fs::create_dir_all(root.join("d/e")).unwrap();
    let files: [(&str, u64, Parts); 8] = [
        ("d/e/tail", 1_300_000, &[(0, 5000)]),
        ("d/head", 3 * MIB + 7, &[(2 * MIB - 50, 100), (3 * MIB, 7)]),
        ("d.x", 40_000, &[]),
        ("edges", 3 * MIB, &[(0, 1), (4095, 2), (MIB - 1, 2), (3 * MIB - 1, 1)]),
        ("parts", 2 * MIB, &[(512, 512), (2048, 100), (70_000, 9000), (200_000, 4096)]),
        ("small", 5000, &[(10, 20)]),
        ("whole", 300_000, &[(0, 300_000)]),
        ("empty", 0, &[]),
    ];
    for (name, size, parts) in files {
        let path = root.join(name);
        let file = fs::File::create(&path).unwrap();
        if zeros != Zeros::Holes {
            file.write_all_at(&vec![0; size as usize], 0).unwrap();
        }
        file.set_len(size).unwrap();
        for (at, len) in parts {
            let data: Vec<u8> = pattern(*len).iter().map(|byte| byte | 1).collect();
            file.write_all_at(&data, *at).unwrap();
        }
        drop(file);
        if zeros == Zeros::Punched {
            assert!(Command::new("fallocate").arg("-d").arg(&path).status().unwrap().success());
        }
        set_mode(&path, 0o640);
    }
    fs::hard_link(root.join("small"), root.join("d/e/again")).unwrap();
    symlink("whole", root.join("link")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, root.join("pipe"), 0o600.into()).unwrap();
    for path in crate::tree::read(root).into_keys() {
        let path = root.join(String::from_utf8(path).unwrap());
        if path.is_dir() {
            set_mode(&path, 0o755);
        }
    }
    let mut paths: Vec<_> = crate::tree::read(root).into_keys().collect();
    paths.reverse();
    for path in paths {
        set_times(&root.join(String::from_utf8(path).unwrap()), 1_600_000_000, 123_456_789);
    }
}

/// Creates an image of `contents`, which is then removed. Returns a hash of the image. mkfs chooses its size.
fn image_of(contents: &Path, dir: &Path) -> String {
    let image = dir.join("image");
    let mut mkfs = betr(["mkfs", "-q", "-U", UUID, "-d"]);
    mkfs.arg(contents).arg(&image).env("SOURCE_DATE_EPOCH", "1700000000").assert().success();
    let found = fingerprint(&image).0;
    assert_eq!(fs::metadata(&image).unwrap().len(), 16 * MIB);
    fs::remove_file(&image).unwrap();
    found
}

#[test]
fn the_image_does_not_depend_on_holes_or_archives() {
    let (_guard, dir) = scratch();
    let mut found = Vec::new();
    for (name, zeros) in
        [("written", Zeros::Written), ("holes", Zeros::Holes), ("punched", Zeros::Punched)]
    {
        let tree = dir.join(name);
        grow(&tree, zeros);
        found.push((name.to_owned(), image_of(&tree, &dir)));
        for sparse in [&["-S"][..], &[]] {
            let archive = dir.join(format!("{name}{}.tar", sparse.len()));
            let mut tar = Command::new("tar");
            tar.args(["--sort=name", "--format=pax", "-cf"]).arg(&archive).args(sparse);
            assert!(tar.arg("-C").arg(&tree).arg(".").status().unwrap().success());
            found.push((archive.display().to_string(), image_of(&archive, &dir)));
        }
    }
    assert!(found.iter().all(|(_, bytes)| *bytes == found[0].1), "{found:#?}");
}

/// A file system of the kernel in an image file, unmounted when the test ends.
struct Mounted(PathBuf);

impl Mounted {
    fn new(kind: &str, dir: &Path) -> Option<Mounted> {
        let (image, at) = (dir.join(format!("{kind}.img")), dir.join(kind));
        fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        if kind == "tmpfs" {
            mount.args(["-t", "tmpfs", "none"]);
        } else {
            fs::File::create(&image).unwrap().set_len(400 * MIB).unwrap();
            let mkfs = program(&format!("mkfs.{kind}"))?;
            assert!(Command::new(mkfs).arg("-q").arg(&image).status().unwrap().success());
            mount.args(["-o", "loop"]).arg(&image);
        }
        mount.arg(&at).status().unwrap().success().then_some(Mounted(at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn the_image_does_not_depend_on_the_file_system_of_the_tree() {
    let (_guard, dir) = scratch();
    grow(&dir.join("tree"), Zeros::Holes);
    let expected = image_of(&dir.join("tree"), &dir);
    for kind in ["ext4", "xfs", "btrfs", "tmpfs"] {
        let mounted = Mounted::new(kind, &dir);
        if !need(&format!("a mount of {kind}"), mounted.is_some()) {
            continue;
        }
        for (name, zeros) in [("a", Zeros::Written), ("b", Zeros::Holes)] {
            let tree = dir.join(kind).join(name);
            grow(&tree, zeros);
            assert_eq!(image_of(&tree, &dir), expected, "{kind} {name}");
        }
    }
}

/// Creates a tree with owners and a device in `$1`, as root or under a library that simulates it; creates an image of
/// the tree, exports the image, and lists the exported tree.
const FAKED: &str = r#"set -e
    cd "$1"; mkdir tree tree/d; echo a >tree/a; ln tree/a tree/d/b; ln -s a tree/s
    mknod tree/null c 1 3; chmod 600 tree/a tree/null; chmod 755 tree tree/d
    chown -hR 0:0 tree; chown 7:8 tree/a; chown 9 tree/d
    find tree -exec touch -hd @1600000000 {} +
    "$0" mkfs -q -U "$2" -d tree image 16M
    "$0" export -q image / out
    cd out; find . -printf '%p %y %m %U %G %l\n' | sort"#;

#[test]
fn trees_look_the_same_under_fakeroot_and_pseudo() {
    let (_guard, dir) = scratch();
    let run = |name: &str, program: &str, env: &[(&str, &Path)]| {
        let place = dir.join(name);
        fs::create_dir(&place).unwrap();
        let mut sh = Command::new(program);
        if program != "sh" {
            sh.arg("sh");
        }
        sh.args(["-c", FAKED, BETR]).arg(&place).arg(UUID);
        sh.env("SOURCE_DATE_EPOCH", "1700000000").envs(env.iter().copied());
        let output = sh.output().unwrap();
        assert!(output.status.success(), "{name}: {:?}", text(&output));
        (text(&output).0, fingerprint(&place.join("image")).0)
    };
    let mut found = Vec::new();
    if need("root", is_root()) {
        found.push(run("root", "sh", &[]));
    }
    if need("fakeroot", program("fakeroot").is_some()) {
        found.push(run("fakeroot", "fakeroot", &[]));
    }
    if need("pseudo", program("pseudo").is_some()) {
        let state = dir.join("state");
        fs::create_dir(&state).unwrap();
        let env = [("PSEUDO_PREFIX", Path::new("/usr")), ("PSEUDO_LOCALSTATEDIR", &state)];
        found.push(run("pseudo", "pseudo", &env));
    }
    let expected = ". d 755 0 0 \n./a f 600 7 8 \n./d d 755 9 0 \n./d/b f 600 7 8 \n\
                    ./null c 600 0 0 \n./s l 777 0 0 a\n";
    assert!(found.iter().all(|(tree, _)| tree == expected), "{found:#?}");
    assert!(found.iter().all(|(_, bytes)| *bytes == found[0].1), "{found:#?}");
}

#[test]
fn an_image_has_the_size_of_what_is_stored() {
    let (_guard, dir) = scratch();
    let tree = dir.join("tree");
    fs::create_dir(&tree).unwrap();
    let file = fs::File::create(tree.join("sparse")).unwrap();
    if !need("a temporary directory with files of 8 TB", file.set_len(8 << 40).is_ok()) {
        return;
    }
    file.write_all_at(b"end", (8 << 40) - 3).unwrap();
    file.write_all_at(b"middle", 1 << 40).unwrap();
    run("mkfs -q IMG -d DIR/tree", &dir.join("i"), &dir, 0);
    assert_eq!(fs::metadata(dir.join("i")).unwrap().len(), 16 * MIB);
    let (out, _) = run("stat --json IMG /sparse", &dir.join("i"), &dir, 0);
    assert!(out.contains("8796093022208"), "{out}");
    run("fsck -fn --data IMG", &dir.join("i"), &dir, 0);
}
