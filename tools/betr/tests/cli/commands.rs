//! Commands that change files of an image, each on its own and in a shell.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::*;

/// Runs lines in sequence, all of which must succeed. Returns their output.
fn all(lines: &[&str], image: &Path, dir: &Path) -> String {
    lines.iter().map(|line| run(line, image, dir, 0).0).collect()
}

/// The output of `ls -lR`, without the times.
fn listing(image: &Path, dir: &Path) -> Vec<String> {
    let out = run("ls -lR IMG", image, dir, 0).0;
    let brief = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let date = words.iter().position(|word| word.ends_with('Z')).unwrap();
        [&words[..date], &words[date + 1..]].concat().join(" ")
    };
    out.lines().map(brief).collect()
}

#[test]
fn files_are_made_moved_and_removed() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    all(
        &[
            "mkdir -m 2775 IMG /group",
            "chown IMG 5:6 /group",
            "mkdir -p IMG /group/a/b ./group/../group/c",
            "touch IMG /group/f",
            "ln IMG /group/f /group/hard",
            "ln -s IMG ../nowhere /group/soft",
            "ln -sf IMG elsewhere /group/soft",
            "chmod IMG u=rwx,go=rX /group/f",
            "mknod -m 600 IMG /group/c/null c 1 3",
            "mknod IMG /group/c/pipe p",
            "truncate -s 1M IMG /group/f",
            "truncate -s -1K IMG /group/f",
            "mv IMG /hello /link /group/a",
            "mv IMG /sub /bus",
            "rm IMG /group/hard",
        ],
        &image,
        &dir,
    );
    assert_eq!(
        listing(&image, &dir),
        [
            "drwxr-xr-x 2 0 0 0 bus",
            "-rw-r--r-- 1 0 0 10000 bus/inner",
            "drwxrwsr-x 4 5 6 0 group",
            "-rwxr-xr-x 1 0 6 1047552 group/f",
            "lrwxrwxrwx 1 0 6 9 group/soft -> elsewhere",
            "drwxr-sr-x 3 0 6 0 group/a",
            "-rw-r--r-- 1 0 0 6 group/a/hello",
            "lrwxrwxrwx 1 0 0 5 group/a/link -> hello",
            "drwxr-sr-x 2 0 6 0 group/a/b",
            "drwxr-sr-x 2 0 6 0 group/c",
            "crw------- 1 0 6 1, 3 group/c/null",
            "prw-r--r-- 1 0 6 0 group/c/pipe",
        ]
    );
    all(&["mv --exchange IMG /bus /group/f", "rm -r IMG /group"], &image, &dir);
    assert_eq!(listing(&image, &dir), ["-rwxr-xr-x 1 0 6 1047552 bus"]);
    run("fsck -fn IMG", &image, &dir, 0);
}

#[test]
fn what_is_refused_changes_nothing() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    run("mkdir IMG /sub/deep", &image, &dir, 0);
    let before = run("stat --json IMG / /hello /link /sub /sub/deep", &image, &dir, 0);
    for (line, why) in [
        ("mkdir IMG /new /hello", "/hello: file exists"),
        ("mkdir IMG /new /no/where", "/no/where: no such file"),
        ("mkdir IMG /", "/: file exists"),
        ("mkdir -p IMG /new /hello/below", "/hello/below: not a directory"),
        ("touch IMG /new /no/where", "no such file"),
        ("rm IMG /hello /sub", "/sub: is a directory"),
        ("rm IMG /hello /nothing", "/nothing: no such file"),
        ("rm -d IMG /sub", "/sub: directory not empty"),
        ("rm -r IMG /", "the root directory stays"),
        ("mv IMG /hello /no/where", "no such file"),
        ("mv IMG /nothing /new", "/nothing: no such file"),
        ("mv IMG /sub /sub/deep/sub", "invalid argument"),
        ("mv -n IMG /hello /link", "/link: file exists"),
        ("mv --exchange IMG /hello /nothing", "no such file"),
        ("mv IMG /link /hello /sub/inner", "/sub/inner: not a directory"),
        ("ln IMG /sub /new", "operation not permitted"),
        ("ln IMG /hello /link", "/link: file exists"),
        ("chmod IMG 600 /hello /nothing", "/nothing: no such file"),
        ("chown IMG 7 /hello /nothing", "/nothing: no such file"),
        ("truncate -s 0 IMG /hello /sub", "/sub: is a directory"),
        ("truncate -s 9E IMG /hello", "unknown unit"),
        ("setfattr -x user.none IMG /hello", "no such attribute"),
        ("getfattr -n user.none IMG /hello", "no such attribute"),
        ("mknod IMG /hello p", "/hello: file exists"),
        ("cp IMG :/sub :/new", "is a directory: -r"),
        ("cp -r IMG :/sub :/sub/deep/sub", "invalid argument"),
        ("cp IMG :/hello :/hello", "the same file"),
        ("cp -r IMG :/sub :/hello", "/hello: file exists"),
        ("cp IMG DIR/nothing :/new", "cannot"),
        ("cp IMG DIR/file DIR/other", "put a colon before"),
        ("chmod IMG frob /hello", "no mode"),
        ("chown IMG root /hello", "no number"),
        ("mknod IMG /new c", "required"),
        ("mknod IMG /new p 1 2", "only devices"),
    ] {
        let output = betr(words(line, &image, &dir)).output().unwrap();
        let (out, err) = text(&output);
        assert!(matches!(output.status.code(), Some(1 | 2)), "betr {line}: {err}");
        assert!(err.contains(why) && out.is_empty(), "betr {line}: {err}");
    }
    let after = run("stat --json IMG / /hello /link /sub /sub/deep", &image, &dir, 0);
    assert_eq!(before, after);
    run("fsck -fn IMG", &image, &dir, 0);
}

#[test]
fn copies_go_in_out_and_within() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let tree = dir.join("tree");
    fs::create_dir_all(tree.join("below")).unwrap();
    fs::write(tree.join("data"), pattern(3_000_000)).unwrap();
    fs::hard_link(tree.join("data"), tree.join("below/same")).unwrap();
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    sparse.set_len(50_000_000).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", 40_000_000).unwrap();
    let image = {
        let large = dir.join("large.img");
        run("mkfs -q IMG 64M", &large, &dir, 0);
        drop(image);
        large
    };
    all(
        &[
            "cp -r IMG DIR/tree :/in",
            "setfattr -n user.note -v 0x00ff IMG /in/data",
            "cp -r IMG :/in :/within",
            "cp -r IMG :/within DIR/out",
            "cp IMG DIR/file :/in/data",
        ],
        &image,
        &dir,
    );
    for name in ["data", "below/same", "sparse"] {
        let [from, to] = [&tree, &dir.join("out")].map(|root| fs::read(root.join(name)).unwrap());
        assert!(from == to, "{name}");
    }
    let (out, _) = run("stat --json IMG /within/data /within/below/same /in/data", &image, &dir, 0);
    let value: Value = serde_json::from_str(&out).unwrap();
    let [first, second, replaced] = [0, 1, 2].map(|at| &value["objects"][at]);
    assert_eq!(first["inode"], second["inode"]);
    assert_eq!(first["links"], 2);
    assert_eq!(first["xattrs"][0]["value"], "00ff");
    assert_eq!((&replaced["size"], &replaced["links"]), (&Value::from(14), &Value::from(1)));
    let (out, _) = run("du IMG /within", &image, &dir, 0);
    assert_eq!(out, "0\t/within/below\n2936\t/within\n", "holes take nothing, and links once");
    let (out, _) = run("du -b -s IMG /within", &image, &dir, 0);
    assert_eq!(out, "53000000\t/within\n");
    run("fsck -fn --data IMG", &image, &dir, 0);
}

/// The space of deleted files is freed in the image file, if the host's file system supports holes.
#[test]
fn space_is_given_back_to_the_host() {
    use std::os::unix::fs::MetadataExt;
    let (_guard, dir) = scratch();
    let image = dir.join("holes.img");
    fs::write(dir.join("data"), pattern(20 << 20)).unwrap();
    run("mkfs -q IMG 64M", &image, &dir, 0);
    let stored = |image: &Path| fs::metadata(image).unwrap().blocks() * 512;
    let empty = stored(&image);
    run("cp IMG DIR/data :/data", &image, &dir, 0);
    let full = stored(&image);
    if !betr_cli::skip::need("a temporary directory with holes in files", full < 40 << 20) {
        return;
    }
    assert!(full >= empty + (20 << 20));
    run("rm IMG /data", &image, &dir, 0);
    let after = stored(&image);
    assert!(after < empty + (2 << 20), "{empty} bytes at first, {full} with data, {after} without");
    run("fsck -fn --data IMG", &image, &dir, 0);
}

#[test]
fn find_answers_to_all_that_is_asked_for() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    for (line, expected) in [
        ("find IMG", "/\n/hello\n/link\n/sub\n/sub/inner\n"),
        ("find IMG /sub", "/sub\n/sub/inner\n"),
        ("find IMG /hello", "/hello\n"),
        ("find --type f IMG", "/hello\n/sub/inner\n"),
        ("find --type l --name l* IMG", "/link\n"),
        ("find --name *n* --min-size 1K IMG", "/sub/inner\n"),
        ("find --max-size 100 --type f IMG", "/hello\n"),
        ("find --max-depth 1 --type d IMG", "/\n/sub\n"),
        ("find --max-depth 0 IMG", "/\n"),
        ("find --uid 4711 IMG", ""),
        ("find -0 --name {hello,inner} IMG", "/hello\0/sub/inner\0"),
    ] {
        assert_eq!(run(line, &image, &dir, 0).0, expected, "betr {line}");
    }
    run("find --name [ IMG", &image, &dir, 2);
}

#[test]
fn attributes_are_those_of_getfattr() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    all(
        &[
            "setfattr -n user.text -v plain IMG /hello",
            "setfattr -n user.bytes -v 0sAP8= IMG /hello",
            "setfattr -n user.empty IMG /hello",
        ],
        &image,
        &dir,
    );
    for (line, expected) in [
        ("getfattr IMG /hello", "# file: /hello\nuser.bytes\nuser.empty\nuser.text\n\n"),
        (
            "getfattr -d IMG /hello",
            "# file: /hello\nuser.bytes=0sAP8=\nuser.empty=\"\"\nuser.text=\"plain\"\n\n",
        ),
        ("getfattr -e hex -n user.text IMG /hello", "# file: /hello\nuser.text=0x706c61696e\n\n"),
        ("getfattr --only-values -n user.text IMG /hello", "plain"),
        ("getfattr IMG /sub", ""),
    ] {
        assert_eq!(run(line, &image, &dir, 0).0, expected, "betr {line}");
    }
    // An access control list and the permission bits change together.
    let list = "0x0200000001000700ffffffff02000600e803000004000500ffffffff10000600ffffffff20000100ffffffff";
    run(&format!("setfattr -n system.posix_acl_access -v {list} IMG /hello"), &image, &dir, 0);
    assert!(run("ls -l IMG /hello", &image, &dir, 0).0.starts_with("-rwxrw---x"));
    run("chmod IMG g=r /hello", &image, &dir, 0);
    let (out, _) = run("getfattr -d -e hex IMG /hello", &image, &dir, 0);
    assert!(out.contains("10000400ffffffff"), "the mask follows: {out}");
    // New objects inherit the default list of their directory.
    run(&format!("setfattr -n system.posix_acl_default -v {list} IMG /sub"), &image, &dir, 0);
    all(&["mkdir IMG /sub/d", "touch IMG /sub/f"], &image, &dir);
    let (out, _) = run("getfattr IMG /sub/d /sub/f", &image, &dir, 0);
    assert_eq!(out.matches("posix_acl_access").count(), 2, "{out}");
    assert_eq!(out.matches("posix_acl_default").count(), 1, "{out}");
    assert!(run("ls -l IMG /sub/f", &image, &dir, 0).0.starts_with("-rw-r-----"));
    run("fsck -fn IMG", &image, &dir, 0);
}

/// Runs a shell with this script on standard input.
fn shell(script: &str, image: &Path) -> (i32, String, String) {
    let output = betr([PathBuf::from("shell"), image.into()]).write_stdin(script).output().unwrap();
    let (out, err) = text(&output);
    (output.status.code().unwrap(), out, err)
}

#[test]
fn a_shell_runs_scripts_to_the_first_error() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let script = "# a comment\n\nmkdir '/with space'\ncd \"/with space\"\ntouch a\\ b c\nls\npwd\n";
    let found = shell(script, &image);
    assert_eq!(found, (0, "a b\nc\n/with space\n".into(), String::new()));
    let (code, out, err) = shell("rm c\ncd with\\ space\nrm c\nmkdir x\nrm y\nmkdir z\n", &image);
    assert_eq!((code, &out[..]), (1, ""));
    assert!(err.contains("standard input, line 1: ") && err.contains("/c: no such file"), "{err}");
    let (code, _, err) = shell("cd '/with space'\nrm c\nmkdir x\nrm y\nmkdir z\n", &image);
    assert!(code == 1 && err.contains("line 4: "), "{err}");
    let (_, out, _) = shell("ls '/with space'\nexit\nfrob\n", &image);
    assert_eq!(out, "a b\nx\n", "each command before the error is done, and none after it");
    for (script, why) in [
        ("frob", "frob: no such command"),
        ("mkdir", "required"),
        ("ls 'open", "has no end"),
        ("cd /hello", "not a directory"),
        ("pwd now", "too many words"),
    ] {
        let (code, out, err) = shell(script, &image);
        assert!(code != 0 && out.is_empty() && err.contains(why), "{script}: {err}");
        assert!(!err.contains("<IMAGE>"), "{script}: {err}");
    }
    let (out, _) = text(
        &betr(["shell", "-c", "cd sub", "-c", "ls", "-c", "help"]).arg(&image).output().unwrap(),
    );
    assert!(out.starts_with("inner\n") && out.contains("  mkdir "), "{out}");
    let read_only = betr(["shell", "-r", "-c", "mkdir /new"]).arg(&image).output().unwrap();
    assert_eq!(read_only.status.code(), Some(1));
    run("fsck -fn IMG", &image, &dir, 0);
}

#[test]
fn a_shell_completes_names() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let line = format!("shell {}", image.display());
    // The Tab key, twice in the middle of a word.
    let keys = b"sta\t/sub/in\t\npwd\nexit\n";
    let Some((_, out)) = on_terminal(&line, keys, &dir) else { return };
    assert!(out.contains("Path: /sub/inner"), "{out}");
    let history = fs::read_to_string(dir.join("betr/history")).unwrap();
    assert!(history.contains("stat /sub/inner"), "{history}");
}

/// Two hard links that one command copies stay links of one file: into the image, within it and out of it.
#[test]
fn links_between_sources_stay() {
    use std::os::unix::fs::MetadataExt;

    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    fs::create_dir_all(dir.join("from/sub")).unwrap();
    fs::write(dir.join("from/a"), pattern(9000)).unwrap();
    for name in ["from/b", "from/sub/c"] {
        fs::hard_link(dir.join("from/a"), dir.join(name)).unwrap();
    }
    fs::write(dir.join("from/alone"), "alone").unwrap();
    run("mkdir IMG /into /within", &image, &dir, 0);
    let line = "cp -a IMG DIR/from/a DIR/from/b DIR/from/sub DIR/from/alone :/into";
    run(line, &image, &dir, 0);
    run("cp -a IMG :/into/b :/into/sub :/into/a :/within", &image, &dir, 0);
    let number = |path: &str| {
        let value: Value =
            serde_json::from_str(&run(&format!("stat --json IMG {path}"), &image, &dir, 0).0)
                .unwrap();
        let of = |name: &str| value["objects"][0][name].as_u64().unwrap();
        (of("inode"), of("links"))
    };
    for place in ["/into", "/within"] {
        let numbers = ["a", "b", "sub/c"].map(|name| number(&format!("{place}/{name}")));
        assert_eq!(numbers, [(numbers[0].0, 3); 3], "{place}");
    }
    assert_eq!(number("/into/alone").1, 1);
    assert_ne!(number("/into/a").0, number("/within/a").0);
    fs::create_dir(dir.join("out")).unwrap();
    run("cp -a IMG :/into/a :/into/sub :/into/b :/into/alone DIR/out", &image, &dir, 0);
    let number = |name: &str| fs::metadata(dir.join("out").join(name)).unwrap().ino();
    assert_eq!([number("b"), number("sub/c")], [number("a"); 2]);
    assert_eq!(fs::metadata(dir.join("out/alone")).unwrap().nlink(), 1);
    assert!(fs::read(dir.join("out/sub/c")).unwrap() == pattern(9000));
    // Existing entries are not replaced.
    run("cp -a IMG :/into/a DIR/out", &image, &dir, 1);
    run("fsck -fn --data IMG", &image, &dir, 0);
}
