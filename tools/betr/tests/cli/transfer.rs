//! `betr send` and `betr receive`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::*;

/// An image with three very different snapshots.
fn with_snapshots(dir: &Path) -> std::path::PathBuf {
    let image = small_image(dir);
    fs::write(dir.join("data"), pattern(300_000)).unwrap();
    run("snapshot create IMG one", &image, dir, 0);
    run("import IMG DIR/data /sub/data", &image, dir, 0);
    run("setfattr -n user.note -v some IMG /hello", &image, dir, 0);
    run("ln IMG /sub/data /again", &image, dir, 0);
    run("snapshot create IMG two", &image, dir, 0);
    run("truncate -s 70001 IMG /sub/data", &image, dir, 0);
    run("rm IMG /link", &image, dir, 0);
    run("mv IMG /sub/inner /outer", &image, dir, 0);
    run("snapshot create IMG three", &image, dir, 0);
    run("rm -r IMG /sub", &image, dir, 0);
    image
}

/// Pipes a stream into `betr receive`.
fn receive(image: &Path, stream: &[u8]) -> (i32, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_betr"))
        .args(["receive".as_ref(), image.as_os_str()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let stream = stream.to_vec();
    // The tool may stop reading early.
    let writer = std::thread::spawn(move || drop(std::io::Write::write_all(&mut input, &stream)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

#[test]
fn what_was_sent_is_received() {
    let (_guard, dir) = scratch();
    let image = with_snapshots(&dir);
    let copy = dir.join("copy.img");
    let at = |line: &str, code| run(line, &image, &dir, code);
    at("send -q -o DIR/one DIR/small.img@one", 0);
    at("send -q -o DIR/two --from one DIR/small.img@two", 0);
    at("send -q -o DIR/three --from two DIR/small.img@three", 0);
    at("send -q -o DIR/again DIR/small.img@one", 0);
    let [one, two, three, again] =
        ["one", "two", "three", "again"].map(|name| fs::read(dir.join(name)).unwrap());
    assert!(one == again, "the same snapshot gives the same stream");
    assert!(two.len() > 300_000 && three.len() < 20_000, "{} and {}", two.len(), three.len());

    let (out, _) = at("receive -i DIR/one DIR/copy.img 4M", 0);
    assert!(out.contains("copy.img: snapshot 'one' received"), "{out}");
    let (code, out) = receive(&copy, &two);
    assert!(code == 0 && out.contains("snapshot 'two' received"), "{out}");
    assert!(!dir.join("copy.img.partial").exists());
    at("receive -q -i DIR/three DIR/copy.img", 0);
    for name in ["one", "two", "three"] {
        let line = format!("diff DIR/small.img@{name} DIR/copy.img@{name}");
        assert_eq!(at(&line, 0).0, "", "{name}");
        let listed = |image: &str| at(&format!("ls -lR --json {image} --as-of s:{name}"), 0).0;
        assert_eq!(listed("DIR/copy.img"), listed("IMG"), "{name}");
    }
    at("diff DIR/small.img@three DIR/copy.img", 0);
    at("fsck -fn --data DIR/copy.img", 0);
    // The copy can be sent on; the stream is the same except for the volume id.
    at("send -q -o DIR/on --from two DIR/copy.img@three", 0);
    assert_eq!(fs::read(dir.join("on")).unwrap().len(), three.len());
    // A new file in the copy gets an unused inode number.
    at("import DIR/copy.img DIR/data /fresh", 0);
    at("fsck -fn --data DIR/copy.img", 0);
}

#[test]
fn a_stream_that_ends_early_is_gone_on_with() {
    let (_guard, dir) = scratch();
    let image = with_snapshots(&dir);
    let copy = dir.join("copy.img");
    let at = |line: &str, code| run(line, &image, &dir, code);
    at("send -q -o DIR/two DIR/small.img@two", 0);
    let whole = fs::read(dir.join("two")).unwrap();
    let partial = dir.join("copy.img.partial");
    for cut in [300_000, 500, 310_000] {
        let (code, err) = receive(&copy, &whole[..cut]);
        assert!(code == 3 && err.contains("it ends before it is complete"), "{cut}: {err}");
        assert!(!copy.exists());
        let kept = fs::metadata(&partial).unwrap().len();
        assert!(err.contains(&format!("'betr send --skip {kept}' sends the rest")), "{err}");
        assert!(kept <= cut as u64);
    }
    // The rest with a wrong byte; then the remaining rest, unchanged.
    let kept = fs::metadata(&partial).unwrap().len() as usize;
    assert!(kept > 200_000, "{kept}");
    let mut wrong = whole[kept..].to_vec();
    wrong[1000] ^= 1;
    let (code, err) = receive(&copy, &wrong);
    assert!(code == 3 && err.contains("hash of a chunk"), "{err}");
    assert_eq!(fs::metadata(&partial).unwrap().len() as usize, kept);
    at(&format!("send -q --skip {kept} -o DIR/rest DIR/small.img@two"), 0);
    let rest = fs::read(dir.join("rest")).unwrap();
    assert!(rest == whole[kept..]);
    let (code, out) = receive(&copy, &rest);
    assert!(code == 0, "{out}");
    assert!(!partial.exists());
    at("diff DIR/small.img@two DIR/copy.img", 0);
    at("fsck -fn --data DIR/copy.img", 0);
    let (code, err) = receive(&dir.join("other.img"), b"not a stream at all");
    assert!(code == 3 && err.contains("no stream of betr send"), "{err}");
    assert!(!dir.join("other.img").exists());
}

#[test]
fn what_does_not_fit_changes_nothing() {
    let (_guard, dir) = scratch();
    let image = with_snapshots(&dir);
    let at = |line: &str, code| run(line, &image, &dir, code);
    at("send -q -o DIR/one DIR/small.img@one", 0);
    at("send -q -o DIR/two --from one DIR/small.img@two", 0);
    at("send -q -o DIR/three --from two DIR/small.img@three", 0);
    at("receive -q -i DIR/one DIR/copy.img", 0);
    let refused = |line: &str, expected: &str| {
        let before = fs::read(dir.join("copy.img")).unwrap();
        let (_, err) = at(line, 1);
        assert!(err.contains(expected), "{line}: {err}");
        assert!(fs::read(dir.join("copy.img")).unwrap() == before, "{line}: it has changed");
    };
    refused("receive -i DIR/three DIR/copy.img", "there is no snapshot 'two'; there is 'one'");
    refused("receive -i DIR/one DIR/copy.img", "copy.img");
    at("rm DIR/copy.img /hello", 0);
    refused(
        "receive -i DIR/two DIR/copy.img",
        "it has changed since snapshot 'one' was taken, first at",
    );
    at("snapshot rollback DIR/copy.img one", 0);
    // Another snapshot of the same name is not accepted.
    at("snapshot rename DIR/copy.img one past", 0);
    at("touch DIR/copy.img /hello", 0);
    at("snapshot create DIR/copy.img one", 0);
    refused(
        "receive -i DIR/two DIR/copy.img",
        "snapshot 'one', from which the stream was made: expected content hash",
    );
    at("snapshot rollback --drop-younger DIR/copy.img past", 0);
    at("snapshot rename DIR/copy.img past one", 0);
    at("receive -q -i DIR/two DIR/copy.img", 0);
    refused("receive -i DIR/two DIR/copy.img", "there is a snapshot 'two' already");
    let (_, err) = at("send DIR/small.img@four", 1);
    assert!(err.contains("there is no snapshot 'four'"), "{err}");
    let (_, err) = at("send -o DIR/x IMG", 2);
    assert!(err.contains("expected IMAGE@SNAPSHOT"), "{err}");
}
