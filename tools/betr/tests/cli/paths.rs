//! Path operands of every command, in images and on the host: trailing slashes, `.`, `..` and symbolic links as in POSIX.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::support::*;

/// A small image with links, and a tree of the host beside it.
fn linked_image(dir: &Path) -> PathBuf {
    let image = small_image(dir);
    for line in [
        "ln -s IMG sub /to-sub",
        "ln -s IMG /hello /to-hello",
        "ln -s IMG nowhere /dangling",
        "ln -s IMG loop /loop",
        "mkdir -p IMG /sub/deep/deeper /other",
        "touch IMG /sub/deep/file",
    ] {
        run(line, &image, dir, 0);
    }
    symlink("folder", dir.join("to-folder")).unwrap();
    symlink("file", dir.join("to-file")).unwrap();
    fs::write(dir.join("folder/below/leaf"), "leaf").unwrap();
    image
}

/// All objects in the image: names, types, sizes, owners, times.
fn state(image: &Path, dir: &Path) -> String {
    run("ls -lR --json IMG", image, dir, 0).0
}

#[test]
fn what_a_path_does_not_lead_to_is_left_alone() {
    let (_guard, dir) = scratch();
    let image = linked_image(&dir);
    let before = state(&image, &dir);
    for (line, why) in [
        // Operands that end in `.` or `..` are not removed or renamed.
        ("rm -r IMG /sub/deep/..", "'.' or '..' is not removed"),
        ("rm -r IMG /sub/.", "'.' or '..' is not removed"),
        ("rm -rf IMG /sub/./", "'.' or '..' is not removed"),
        ("rm -rf IMG ..", "'.' or '..' is not removed"),
        ("rm -r IMG //", "the root directory stays"),
        ("mv IMG /sub/. /moved", "invalid argument"),
        ("mv IMG /sub/deep/.. /moved", "invalid argument"),
        ("mv IMG / /moved", "invalid argument"),
        ("rm -d IMG /sub/deep/deeper/.", "'.' or '..' is not removed"),
        // A trailing slash requires a directory; a symbolic link to a directory cannot be removed that way.
        ("rm IMG /hello/", "/hello/: not a directory"),
        ("rm IMG /to-sub/", "/to-sub/: not a directory"),
        ("rm -r IMG /to-sub/", "/to-sub/: not a directory"),
        ("mv IMG /hello/ /moved", "/hello/: not a directory"),
        ("mv IMG /to-sub/ /moved", "/to-sub/: not a directory"),
        ("mv IMG /hello /moved/", "/moved/: not a directory"),
        ("mv IMG /link /hello/", "/hello/: not a directory"),
        ("mv --exchange IMG /hello/ /sub", "/hello/: not a directory"),
        ("cat IMG /hello/", "/hello/: not a directory"),
        ("cat IMG /hello/.", "/hello: not a directory"),
        ("cat IMG /to-hello/", "/to-hello/: not a directory"),
        ("touch IMG /new/", "/new/: not a directory"),
        ("touch IMG /hello/", "/hello/: not a directory"),
        ("truncate -s 1 IMG /new/", "/new/: not a directory"),
        ("truncate -s 1 IMG /hello/", "/hello/: not a directory"),
        ("mknod IMG /new/ p", "/new/: not a directory"),
        ("ln IMG /hello /new/", "/new/: not a directory"),
        ("ln IMG /hello/ /new", "/hello/: not a directory"),
        ("ln -s IMG x /new/", "/new/: not a directory"),
        ("ln -sf IMG x /hello/", "/hello/: not a directory"),
        ("chmod IMG 777 /hello/", "/hello/: not a directory"),
        ("chown IMG 9 /hello/", "/hello/: not a directory"),
        ("setfattr -n user.x IMG /hello/", "/hello/: not a directory"),
        ("getfattr IMG /hello/", "/hello/: not a directory"),
        ("stat IMG /hello/", "/hello/: not a directory"),
        ("ls IMG /hello/", "/hello/: not a directory"),
        ("ls -d IMG /hello/.", "not a directory"),
        ("find IMG /hello/", "/hello/: not a directory"),
        ("du IMG /hello/", "/hello/: not a directory"),
        ("cp IMG :/hello/ :/new", "/hello/: not a directory"),
        ("cp IMG :/hello :/new/", "/new/: not a directory"),
        ("cp IMG :/sub/inner :/hello/", "/hello/: not a directory"),
        ("cp IMG DIR/file :/new/", "/new/: not a directory"),
        ("cp IMG DIR/file/ :/new", "file/'"),
        ("cp IMG DIR/file/. :/new", "file/.'"),
        ("cp IMG :/hello DIR/out/", "out/"),
        ("cp IMG :/hello DIR/out/.", "out/."),
        ("import IMG DIR/file/ /new", "file/'"),
        ("import IMG DIR/file/. /new", "file/.'"),
        ("import IMG DIR/file /new/", "/new/: not a directory"),
        ("import IMG DIR/folder /other/.", "file exists"),
        ("export IMG /hello/ DIR/out", "/hello/: not a directory"),
        ("export IMG /hello DIR/out/.", "out/."),
        ("export IMG /hello/ -", "/hello/: not a directory"),
        ("shell -c cat~/hello/ IMG", "/hello/: not a directory"),
        ("shell -c cd~/hello/.. IMG", "not a directory"),
        ("dump IMG path /hello/", "/hello/: not a directory"),
        ("explain IMG /hello/", "/hello/: not a directory"),
        ("salvage -n --only /hello/ IMG", "/hello/: not a directory"),
        ("prove IMG /hello/ -o DIR/out", "/hello/: not a directory"),
        ("replay IMG blame /hello/", "/hello/: not a directory"),
        ("replay IMG list --path /sub/../hello", "'..' depends on the tree"),
        // The component before `..` must be an existing directory.
        ("cat IMG /nothing/../hello", "/nothing/../hello: no such file"),
        ("cat IMG /hello/../hello", "/hello/../hello: not a directory"),
        ("mkdir IMG /nothing/../new", "no such file"),
        ("rm IMG /nothing/../hello", "no such file"),
        ("explain IMG /nothing/../hello", "no such file"),
        ("dump IMG path /nothing/../hello", "no such file"),
        ("salvage -n --only /nothing/../hello IMG", "no such file"),
        ("prove IMG /nothing/../hello -o DIR/out", "no such file"),
        ("replay IMG blame /nothing/../hello", "depends on the tree"),
        // Existing entries cannot be created.
        ("mkdir IMG /sub/", "file exists"),
        ("mkdir IMG /sub/.", "file exists"),
        ("mkdir IMG /sub/..", "file exists"),
        ("mkdir IMG /dangling", "file exists"),
        ("mkdir -p IMG /dangling/x", "file exists"),
        ("mkdir -p IMG /hello/", "not a directory"),
        ("mknod IMG /sub/. p", "file exists"),
        ("ln -s IMG /sub/.. /other", "file exists"),
        ("cat IMG /loop", "too many levels of symbolic links"),
        ("cat IMG /loop/x", "too many levels of symbolic links"),
        ("cat IMG /dangling", "no such file"),
        // No command replaces its own copies.
        ("cp IMG :/hello DIR/again/hello :/other", "/other/hello: file exists"),
        ("mv IMG /hello /sub/hello /other", "/other/hello: file exists"),
        ("cp -r IMG :/sub/. :/sub", "invalid argument"),
        ("cp -r IMG :/. :/other", "invalid argument"),
        ("cp -r IMG :/sub/. :/hello", "/hello: file exists"),
    ] {
        if line.contains("/sub/hello") {
            run("cp IMG DIR/file :/sub/hello", &image, &dir, 0);
        }
        fs::create_dir_all(dir.join("again")).unwrap();
        fs::write(dir.join("again/hello"), "another").unwrap();
        let words = words(line, &image, &dir).into_iter();
        let words = words.map(|word| word.to_str().unwrap().replace('~', " "));
        let output = betr(words).output().unwrap();
        let (out, err) = text(&output);
        assert!(matches!(output.status.code(), Some(1 | 2)), "betr {line}: {out}{err}");
        assert!(err.contains(why) && out.is_empty(), "betr {line}: {out}{err}");
        assert!(!dir.join("out").exists(), "betr {line}");
        if line.contains("/sub/hello") {
            run("rm IMG /sub/hello", &image, &dir, 0);
        }
    }
    let strip = |state: &str| {
        let lines = state
            .lines()
            .filter(|line| !line.contains("\"changed\"") && !line.contains("\"modified\""));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(strip(&state(&image, &dir)), strip(&before));
    run("fsck -fn IMG", &image, &dir, 0);
}

#[test]
fn paths_go_through_the_tree() {
    let (_guard, dir) = scratch();
    let image = linked_image(&dir);
    for (line, expected) in [
        ("cat IMG /to-hello", "hello\n"),
        ("cat IMG /to-sub/../hello", "hello\n"),
        ("cat IMG /sub/deep/../../hello", "hello\n"),
        ("cat IMG /../../hello", "hello\n"),
        ("ls IMG /to-sub", "deep\ninner\n"),
        ("ls IMG /to-sub/", "deep\ninner\n"),
        ("ls IMG /sub/deep/..", "deep\ninner\n"),
        ("ls -d IMG /to-sub", "/to-sub\n"),
        ("find --type l IMG /to-sub", "/to-sub\n"),
        ("find --name inner IMG /to-sub/", "/to-sub/inner\n"),
        ("du -b IMG /to-sub/deep", "0\t/to-sub/deep/deeper\n0\t/to-sub/deep\n"),
        ("du -b IMG /to-sub", "0\t/to-sub\n"),
        // `..` after a symbolic link is the parent of its target.
        ("shell -c cd~/to-sub/deep -c pwd -c cat~../../hello IMG", "/sub/deep\nhello\n"),
    ] {
        let words = words(line, &image, &dir).into_iter();
        let words = words.map(|word| word.to_str().unwrap().replace('~', " "));
        let output = betr(words).output().unwrap();
        assert_eq!(text(&output), (expected.into(), String::new()), "betr {line}");
    }
    for line in [
        "explain IMG /to-sub/inner@0",
        "dump IMG path /to-sub/deep/..",
        "salvage -n --only /to-sub/deep/../inner IMG",
        "replay IMG blame /to-sub/inner",
        "prove IMG /to-sub/deep/../inner -o DIR/inner.proof",
    ] {
        run(line, &image, &dir, 0);
    }
    let root = run("info IMG", &image, &dir, 0).0;
    let root = root.lines().find_map(|line| line.trim().strip_prefix("Root hash: ")).unwrap();
    let verify = |path: &str, code| {
        run(
            &format!("verify-proof --root {root} --path {path} DIR/inner.proof"),
            &image,
            &dir,
            code,
        )
    };
    assert!(verify("/sub//./inner", 0).0.starts_with("/sub/inner: a regular file"));
    assert!(verify("/sub/inner/", 1).1.contains("expected a directory"));
    assert!(verify("/sub/deep/../inner", 2).1.contains("depends on the tree"));
}

/// Whether a symbolic link that is the last component is followed depends on the command.
#[test]
fn links_are_followed_where_posix_says_so() {
    let (_guard, dir) = scratch();
    let image = linked_image(&dir);
    let stat = |path: &str| {
        let out = run(&format!("ls -ld IMG {path}"), &image, &dir, 0).0;
        let words: Vec<&str> = out.split_whitespace().collect();
        [words[0], words[2], words[3], words[4]].join(" ")
    };
    for (line, path, expected) in [
        ("chmod IMG 600 /to-hello", "/hello", "-rw------- 0 0 6"),
        ("chown IMG 5:6 /to-hello", "/hello", "-rw------- 5 6 6"),
        ("chown --no-dereference IMG 7:8 /to-hello", "/to-hello", "lrwxrwxrwx 7 8 6"),
        ("chown -R IMG 1:2 /to-sub", "/to-sub", "lrwxrwxrwx 1 2 3"),
        ("chown -R IMG 1:2 /to-sub/", "/sub/inner", "-rw-r--r-- 1 2 10000"),
        ("truncate -s 3 IMG /to-hello", "/hello", "-rw------- 5 6 3"),
        ("touch IMG /dangling", "/nowhere", "-rw-r--r-- 0 0 0"),
        ("cp IMG :/to-hello :/copy", "/copy", "-rw------- 5 6 3"),
        ("cp -r IMG :/to-hello :/link-copy", "/link-copy", "lrwxrwxrwx 7 8 6"),
        ("cp IMG :/sub/inner :/to-hello", "/to-hello", "lrwxrwxrwx 7 8 6"),
        ("cp IMG :/sub/inner :/to-hello", "/hello", "-rw-r--r-- 1 2 10000"),
        ("cp IMG DIR/to-file :/from-host", "/from-host", "-rw-r--r-- 0 0 14"),
        ("cp -r IMG DIR/to-file :/host-link", "/host-link", "lrwxrwxrwx 0 0 4"),
        ("cp -r IMG DIR/to-folder :/folder-link", "/folder-link", "lrwxrwxrwx 0 0 6"),
        ("cp -r IMG DIR/to-folder/ :/folder", "/folder/below/leaf", "-rw-r--r-- 0 0 4"),
        ("mv IMG /copy /to-sub", "/sub/copy", "-rw------- 5 6 3"),
        ("mv IMG /to-hello /renamed", "/renamed", "lrwxrwxrwx 7 8 6"),
        ("rm IMG /to-sub", "/sub/inner", "-rw-r--r-- 1 2 10000"),
        ("mkdir -p -m 700 IMG /made/on/the/way/.", "/made/on/the/way", "drwx------ 0 0 0"),
        ("mkdir IMG /with-slash/", "/with-slash", "drwxr-xr-x 0 0 0"),
        ("mv IMG /with-slash/ /without/", "/without", "drwxr-xr-x 0 0 0"),
    ] {
        run(line, &image, &dir, 0);
        // The copy of a file of the host belongs to the user of this test.
        if is_root() || !line.contains("DIR/") {
            assert_eq!(stat(path), expected, "betr {line}");
        }
    }
    run("setfattr -n user.x -v y IMG /renamed", &image, &dir, 0);
    assert!(run("getfattr IMG /hello", &image, &dir, 0).0.contains("user.x"));
    assert_eq!(run("getfattr --no-dereference IMG /renamed", &image, &dir, 0).0, "");
    run("touch --no-dereference IMG /never-made", &image, &dir, 0);
    run("stat IMG /never-made", &image, &dir, 1);
    run("fsck -fn IMG", &image, &dir, 0);
}

/// `dir/.` stands for the entries of `dir`, which are merged into the destination.
#[test]
fn contents_of_directories_are_copied_into_others() {
    let (_guard, dir) = scratch();
    let image = linked_image(&dir);
    let find = |path: &str| run(&format!("find IMG {path}"), &image, &dir, 0).0;
    run("chmod IMG 711 /other", &image, &dir, 0);
    run("cp -r IMG :/sub/. :/other", &image, &dir, 0);
    assert_eq!(
        find("/other"),
        "/other\n/other/inner\n/other/deep\n/other/deep/file\n/other/deep/deeper\n"
    );
    // Existing files are replaced, and directories are merged.
    run("cp IMG :/hello :/other/deep/kept", &image, &dir, 0);
    run("truncate -s 7 IMG /other/inner", &image, &dir, 0);
    run("chmod IMG 700 /other/deep", &image, &dir, 0);
    run("cp -r IMG :/sub/deep/.. :/other/", &image, &dir, 0);
    assert_eq!(run("cat IMG /other/deep/kept", &image, &dir, 0).0, "hello\n");
    let modes = run("ls -ld IMG /other /other/deep /other/inner", &image, &dir, 0).0;
    let modes: Vec<&str> = modes.lines().map(|line| &line[..10]).collect();
    assert_eq!(modes, ["drwx--x--x", "drwx------", "-rw-r--r--"]);
    assert!(run("ls -l IMG /other/inner", &image, &dir, 0).0.contains(" 10000 "));
    // From the host, and to the host.
    run("cp -r IMG DIR/folder/. :/other", &image, &dir, 0);
    assert_eq!(run("cat IMG /other/below/leaf", &image, &dir, 0).0, "leaf");
    fs::create_dir(dir.join("out")).unwrap();
    fs::write(dir.join("out/there"), "stays").unwrap();
    run("cp -r IMG :/sub/. DIR/out", &image, &dir, 0);
    assert_eq!(names(&dir.join("out")), ["deep", "inner", "there"]);
    let (_, err) = run("cp -r IMG :/sub/. DIR/out", &image, &dir, 1);
    assert!(err.contains("exists already"), "{err}");
    run("cp -r IMG :/sub DIR/out", &image, &dir, 0);
    assert_eq!(names(&dir.join("out")), ["deep", "inner", "sub", "there"]);
    // A missing destination is created.
    run("cp -r IMG :/sub/. :/fresh", &image, &dir, 0);
    assert_eq!(find("/fresh/deep"), "/fresh/deep\n/fresh/deep/file\n/fresh/deep/deeper\n");
    // An existing object of another type is an error at any depth, and nothing changes.
    run("rm IMG /other/deep/file", &image, &dir, 0);
    run("mkdir IMG /other/deep/file", &image, &dir, 0);
    run("rm IMG /other/inner", &image, &dir, 0);
    let (_, err) = run("cp -r IMG :/sub/. :/other", &image, &dir, 1);
    assert!(err.contains("/other/deep/file: is a directory"), "{err}");
    run("stat IMG /other/inner", &image, &dir, 1);
    run("fsck -fn --data IMG", &image, &dir, 0);
}

/// A file of the host with a trailing slash or dot is refused.
#[test]
fn files_of_the_host_are_named_exactly() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    for line in [
        "mkfs DIR/new/ 2M",
        "mkfs DIR/new/. 2M",
        "mkfs -f DIR/file/. 2M",
        "pack IMG DIR/new/.",
        "pack IMG DIR/new/",
        "prove IMG /hello -o DIR/new/.",
        "info DIR/small.img/.",
    ] {
        let output = betr(words(line, &image, &dir)).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "betr {line}: {:?}", text(&output));
        assert!(!dir.join("new").exists(), "betr {line}");
    }
    assert_eq!(fs::read(dir.join("file")).unwrap(), b"from the host\n");
}

/// A trailing slash restricts a search of the log to directories.
#[test]
fn records_are_found_by_path() {
    let (_guard, dir) = scratch();
    let image = dir.join("log.img");
    run("mkfs -q IMG 64M", &image, &dir, 0);
    run("dev powercut IMG", &image, &dir, 0);
    let count = |path: &str| {
        let out = run(&format!("replay IMG list --path {path}"), &image, &dir, 0).0;
        out.lines().filter(|line| line.contains("/powercut/file-0000")).count()
    };
    let all = count("/powercut/file-0000");
    assert!(all > 1);
    for path in ["/powercut//file-0000", "/powercut/./file-0000", "/powercut/", "/"] {
        assert_eq!(count(path), all, "{path}");
    }
    for path in ["/powercut/file-0000/", "/powercut/file-0000/."] {
        assert_eq!(count(path), 0, "{path}");
    }
    run("replay IMG blame /powercut/./file-0000", &image, &dir, 0);
    run("replay IMG blame /powercut/../powercut/file-0000", &image, &dir, 0);
    run("replay IMG blame /powercut/file-0000/", &image, &dir, 1);
}
