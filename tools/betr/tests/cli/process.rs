//! Streams that are closed or full, and signals.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::*;

/// Runs a command line, reads some bytes of its output, and closes the pipe. The tool must end with `code`.
fn reader_leaves(line: &str, image: &Path, code: i32, read: impl FnOnce(&mut dyn BufRead)) {
    let mut child = Command::new(BETR)
        .args(words(line, image, image))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::with_capacity(16, child.stdout.take().unwrap());
    read(&mut out);
    drop(out);
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output).1, "", "betr {line}");
    assert_eq!(output.status.code(), Some(code), "betr {line}");
}

#[test]
fn a_reader_that_leaves_a_listing_is_no_error() {
    let (_guard, dir) = scratch();
    let tree = dir.join("tree");
    fs::create_dir(&tree).unwrap();
    // More names than fit into a pipe and the buffers before it.
    for number in 0..1500 {
        fs::write(tree.join(format!("{number:0200}")), "").unwrap();
    }
    fs::write(tree.join("large"), pattern(3 << 20)).unwrap();
    let image = dir.join("t.img");
    run("mkfs -q IMG -d DIR/tree", &image, &dir, 0);
    for line in ["ls IMG", "ls -R IMG", "ls -lR IMG", "ls -R --json IMG"] {
        reader_leaves(line, &image, 0, |out| {
            let mut first = String::new();
            out.read_line(&mut first).unwrap();
            assert!(first.ends_with('\n'), "betr {line}");
        });
    }
    // File contents are data, not a listing.
    reader_leaves("cat IMG /large", &image, 1, |out| out.read_exact(&mut [0; 3]).unwrap());
    // The exit code shows the findings even if the output was not read.
    reader_leaves("fsck -fn IMG", &image, 0, |_| ());
    fs::File::options().write(true).open(&image).unwrap().set_len(1 << 20).unwrap();
    reader_leaves("fsck -fn IMG", &image, 4, |_| ());
    reader_leaves("fsck -fn --json IMG", &image, 4, |_| ());
}

/// Runs a command line whose output is closed; it must end with `code`, and print no message.
fn closed_output(line: &str, image: &Path, code: i32) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let words = words(line, image, image).into_iter();
    let words = words.map(|word| word.to_str().unwrap().replace('~', " "));
    let output = Command::new(BETR).args(words).stdout(writer).stderr(Stdio::piped()).output();
    let output = output.unwrap();
    assert_eq!(text(&output).1, "", "betr {line}");
    assert_eq!(output.status.code(), Some(code), "betr {line}");
}

/// Truncated data is a failure, even if all of it fits into a buffer.
#[test]
fn data_that_is_cut_off_is_a_failure() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    run("setfattr -n user.x -v y IMG /hello", &image, &dir, 0);
    for line in [
        "cat IMG /hello",
        "cat IMG /sub/inner",
        "export IMG -",
        "export IMG /hello -",
        "pack IMG -",
        "pack --data IMG -",
        "prove IMG /hello",
        "getfattr --only-values -n user.x IMG /hello",
        "shell -r -c cat~/hello IMG",
        "completions bash",
    ] {
        closed_output(line, &image, 1);
    }
    for line in
        ["ls IMG", "find IMG", "stat IMG /hello", "info IMG", "dump IMG super", "ls --json IMG"]
    {
        closed_output(line, &image, 0);
    }
    closed_output("probe IMG", &image, 0);
    closed_output("diff IMG IMG", &image, 0);
}

/// Details that the host refuses give a warning and a failure. The rest is copied.
#[test]
fn what_the_host_refuses_is_a_failure() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    run("chown IMG 12345:54321 /hello", &image, &dir, 0);
    fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let as_nobody = |line: &str| {
        let mut process = powerless(&dir)?;
        let output = process.args(words(line, &image, &dir)).output().unwrap();
        Some((output.status.code(), text(&output)))
    };
    for (line, file, said) in [
        ("export IMG DIR/out", "out/sub/inner", "owner 12345 and group 54321 were not set"),
        ("export -q IMG /hello DIR/hello", "hello", "owner 12345 and group 54321 were not set"),
        ("cp -r IMG :/ DIR/copy", "copy/sub/inner", "owner 12345 and group 54321 were not set"),
        ("cp IMG :/hello DIR/hello-2", "hello-2", "owner 12345 and group 54321 were not set"),
        ("salvage IMG DIR/saved", "saved/sub/inner", "owner 12345 and group 54321 were not set"),
    ] {
        let Some((code, (_, err))) = as_nobody(line) else { return };
        assert!(err.contains(said), "betr {line}: {err}");
        assert_eq!(code, Some(1), "betr {line}: {err}");
        assert!(dir.join(file).exists(), "betr {line}");
    }
    run("chown IMG 65534:65534 /hello", &image, &dir, 0);
    run("mknod IMG /null c 1 3", &image, &dir, 0);
    for line in [
        "export IMG /null DIR/null",
        "cp -r IMG :/null DIR/null",
        "salvage --only /null IMG DIR/null",
    ] {
        let Some((code, (_, err))) = as_nobody(line) else { return };
        assert!(err.contains("the device 1:3 was not made"), "betr {line}: {err}");
        assert_eq!(code, Some(1), "betr {line}: {err}");
    }
    let Some((code, (_, err))) = as_nobody("export IMG /hello DIR/own") else { return };
    assert_eq!((code, &err[..]), (Some(0), ""), "its own files a user may have");
}

/// A program that writes more than the archive into a pipe gets no SIGPIPE.
#[test]
fn all_of_standard_input_is_taken() {
    use std::io::Write;
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let archive = betr(words("export IMG -", &image, &dir)).output().unwrap().stdout;
    let behind = vec![0; 4 << 20];
    for line in [
        "import -q IMG - /unpacked",
        "import -q --tar IMG /dev/stdin /again",
        "mkfs -q DIR/new.img 4M -d -",
    ] {
        let mut child = Command::new(BETR)
            .args(words(line, &image, &dir))
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        // More than a pipe holds, and more than a record.
        let written = input.write_all(&archive).and_then(|()| input.write_all(&behind));
        drop(input);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "betr {line}: {:?}", text(&output));
        assert!(written.is_ok(), "betr {line}: {written:?}");
    }
    let listed = |line: &str, image: &Path| run(line, image, &dir, 0).0;
    let whole = listed("ls -R IMG", &dir.join("new.img"));
    assert_eq!(listed("ls -R IMG /unpacked", &image), whole);
    // A device may be endless.
    run("import -q --tar IMG /dev/zero /nothing", &image, &dir, 0);
}

#[test]
fn output_that_does_not_arrive_is_a_failure() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    for (line, code) in [
        ("ls IMG", 1),
        ("cat IMG /sub/inner", 1),
        ("info --json IMG", 1),
        ("fsck -fn IMG", 8),
        ("fsck -n --json IMG", 8),
    ] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut process = Command::new(BETR);
        let output =
            process.args(words(line, &image, &dir)).stdout(full).stderr(Stdio::piped()).output();
        let output = output.unwrap();
        let err = text(&output).1;
        assert_eq!(output.status.code(), Some(code), "betr {line}: {err}");
        assert!(err.contains("No space left on device"), "betr {line}: {err}");
    }
}
