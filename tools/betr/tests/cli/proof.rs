//! `betr verify`, `prove` and `verify-proof`: exit code 0 only for true statements.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::*;

/// The root hash that `info` prints.
fn root(image: &Path, dir: &Path) -> String {
    let info: Value = serde_json::from_str(&run("info --json IMG", image, dir, 0).0).unwrap();
    info["root_hash"].as_str().unwrap().to_owned()
}

#[test]
fn an_image_is_the_one_of_its_root_hash() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let (hash, other) = (root(&image, &dir), "0".repeat(64));
    let verify = format!("verify --root {hash} IMG");
    let (out, err) = run(&verify, &image, &dir, 0);
    assert!(
        out.contains(&hash) && out.contains("blocks of files verify") && err.is_empty(),
        "{out}"
    );
    let (_, err) = run(&format!("verify --root {other} IMG"), &image, &dir, 1);
    assert!(err.contains(&format!("expected root {other}, found {hash}")), "{err}");
    run("verify --root 00 IMG", &image, &dir, 2);
    // With corrupt contents the root is the same, but they do not verify.
    let mut bytes = fs::read(&image).unwrap();
    let at = bytes.windows(6).position(|window| window == b"hello\n").unwrap();
    bytes[at] ^= 1;
    fs::write(&image, &bytes).unwrap();
    let (_, err) = run(&verify, &image, &dir, 3);
    assert!(err.contains("not all of it verifies: 1 problems, the first at n:"), "{err}");
    // Another state has another root.
    run("touch IMG /new", &image, &dir, 0);
    run(&verify, &image, &dir, 1);
}

#[test]
fn a_file_is_proved_without_the_image() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let hash = root(&image, &dir);
    age(&image);
    let before = fingerprint(&image);
    let proofs = dir.join("proofs");
    fs::create_dir(&proofs).unwrap();
    for (path, name) in
        [("/hello", "hello"), ("sub//inner", "inner"), ("/sub", "sub"), ("/link", "link")]
    {
        let (out, _) = run(&format!("prove IMG {path} -o DIR/proofs/{name}"), &image, &dir, 0);
        assert!(out.contains(&hash), "{out}");
    }
    run("prove --metadata IMG /hello -o DIR/proofs/metadata", &image, &dir, 0);
    run("prove --absent IMG /sub/none -o DIR/proofs/none", &image, &dir, 0);
    let piped = betr(words("prove IMG /hello", &image, &dir)).output().unwrap();
    assert_eq!(piped.stdout, fs::read(proofs.join("hello")).unwrap());
    for name in names(&proofs) {
        let len = fs::metadata(proofs.join(&name)).unwrap().len();
        assert!(len < 24 << 10, "{name}: {len}");
    }
    assert!(fingerprint(&image) == before);
    fs::remove_file(&image).unwrap();
    fs::write(dir.join("same"), "hello\n").unwrap();
    fs::write(dir.join("other"), "hullo\n").unwrap();
    fs::write(dir.join("longer"), "hello\n\n").unwrap();
    for (line, code, says) in [
        ("hello", 0, "/hello: a regular file of 6 bytes, mode 0644, owner 0:0, with its contents"),
        ("hello --path hello --contents DIR/same", 0, "with the contents of "),
        ("hello --contents DIR/other", 1, "other contents: they differ in the block at byte 0"),
        ("hello --contents DIR/longer", 1, "expected 6 bytes, found 7"),
        ("hello --contents DIR/proofs", 1, "expected a regular file"),
        ("hello --path /sub", 1, "expected /sub, found /hello"),
        ("hello --absent", 1, "expected nothing there, found a regular file"),
        ("inner", 0, "/sub/inner: a regular file of 10000 bytes"),
        ("sub", 0, "/sub: a directory, mode 0755"),
        ("sub --contents DIR/same", 1, "no contents to compare"),
        ("link", 0, "/link: a symbolic link to hello"),
        ("metadata", 0, "owner 0:0, by root"),
        ("metadata --contents DIR/same", 1, "no contents to compare"),
        ("none", 1, "/sub/none: nothing is there"),
        ("none --absent", 0, "/sub/none: nothing is there"),
        ("../same", 3, "this is no proof: length"),
        ("missing", 1, "No such file"),
    ] {
        let line = format!("verify-proof --root {hash} DIR/proofs/{line}");
        let (out, err) = run(&line, &image, &dir, code);
        let says_so = if code == 0 { &out } else { &err };
        assert!(says_so.contains(says) && out.is_empty() == (code != 0), "betr {line}: {out}{err}");
    }
    let other = format!("verify-proof DIR/proofs/hello --root {}", "1".repeat(64));
    assert!(run(&other, &image, &dir, 3).1.contains("hash of the root: expected 1111"));
    let at = fs::read(proofs.join("hello")).unwrap().windows(6).position(|six| six == b"hello\n");
    let mut bytes = fs::read(proofs.join("hello")).unwrap();
    bytes[at.unwrap()] ^= 1;
    fs::write(proofs.join("hello"), bytes).unwrap();
    let line = format!("verify-proof --root {hash} DIR/proofs/hello");
    assert!(run(&line, &image, &dir, 3).1.contains("it does not show what root"));
}

#[test]
fn what_is_not_proved_is_said() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    for (line, says) in [
        ("prove IMG /none -o DIR/none.proof", "--absent proves that"),
        ("prove --absent IMG /hello -o DIR/none.proof", "found something"),
        ("prove IMG /hello -o DIR/file", "is there already"),
    ] {
        let (out, err) = run(line, &image, &dir, 1);
        assert!(err.contains(says) && out.is_empty(), "betr {line}: {err}");
    }
    assert!(!dir.join("none.proof").exists());
    let image = dir.join("log.img");
    run("mkfs -q IMG 16M --log-size 512K", &image, &dir, 0);
    run("dev powercut IMG", &image, &dir, 0);
    let hash = root(&image, &dir);
    for line in [format!("verify --root {hash} IMG"), "prove IMG / -o DIR/log.proof".into()] {
        let (_, err) = run(&line, &image, &dir, 0);
        assert!(err.contains("records of the log are not in the trees yet"), "{err}");
    }
}
