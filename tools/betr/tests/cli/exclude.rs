//! Exclusion of files from imports and exports.

use std::fs;
use std::path::Path;

use crate::support::*;
use crate::tree::set_mode;

/// A tree, and the same tree as an image and as an archive.
fn planted(dir: &Path) {
    let tree = dir.join("tree");
    for name in ["src/.git", "src/build/deep", "build", "docs"] {
        fs::create_dir_all(tree.join(name)).unwrap();
    }
    for name in ["src/main.c", "src/main.o", "src/build/deep/x", "build/y", "docs/a.o", "docs/b"] {
        fs::write(tree.join(name), name).unwrap();
    }
    let image = dir.join("whole.img");
    run("mkfs -q IMG 4M -d DIR/tree", &image, dir, 0);
    let archive = betr(words("export IMG -", &image, dir)).output().unwrap().stdout;
    fs::write(dir.join("tree.tar"), archive).unwrap();
}

#[test]
fn patterns_leave_out_names_or_paths() {
    let (_guard, dir) = scratch();
    planted(&dir);
    let (image, again) = (dir.join("t.img"), dir.join("again.img"));
    fs::write(dir.join("patterns"), "/build\n\n*.o\n").unwrap();
    let all = "build build/y docs docs/a.o docs/b src src/.git src/build src/build/deep \
               src/build/deep/x src/main.c src/main.o";
    for (options, expected) in [
        ("", all),
        ("--exclude nothing", all),
        ("--exclude *", ""),
        ("--exclude build", "docs docs/a.o docs/b src src/.git src/main.c src/main.o"),
        (
            "--exclude *.o --exclude .git --exclude /build --exclude src/*/deep/",
            "docs docs/b src src/build src/main.c",
        ),
        (
            "--exclude-from DIR/patterns --exclude .g?t",
            "docs docs/b src src/build src/build/deep src/build/deep/x src/main.c",
        ),
        ("--exclude src/**/x --exclude {docs,build}", "src src/.git src/main.c src/main.o"),
    ] {
        let expected: Vec<&str> = expected.split_whitespace().collect();
        let check = |image: &Path, below: &str| {
            let (out, _) = run(&format!("ls -R IMG {below}"), image, &dir, 0);
            let mut found: Vec<&str> = out.lines().collect();
            found.sort_unstable();
            assert_eq!(found, expected, "{options}");
        };
        run(&format!("mkfs -qf IMG 4M -d DIR/tree {options}"), &image, &dir, 0);
        check(&image, "/");
        run(&format!("import IMG DIR/tree /new {options}"), &image, &dir, 0);
        check(&image, "/new");
        run(&format!("mkfs -qf IMG 4M -d DIR/tree.tar {options}"), &image, &dir, 0);
        check(&image, "/");
        run(&format!("import --tar IMG DIR/tree.tar /new {options}"), &image, &dir, 0);
        check(&image, "/new");
        // Exports exclude, too.
        let whole = dir.join("whole.img");
        let line = format!("export IMG - {options}");
        fs::write(dir.join("some.tar"), betr(words(&line, &whole, &dir)).output().unwrap().stdout)
            .unwrap();
        run("mkfs -qf IMG 4M -d DIR/some.tar", &again, &dir, 0);
        check(&again, "/");
        run(&format!("export -q IMG DIR/out {options}"), &whole, &dir, 0);
        run("mkfs -qf IMG 4M -d DIR/out", &again, &dir, 0);
        check(&again, "/");
        fs::remove_dir_all(dir.join("out")).unwrap();
    }
}

#[test]
fn what_is_left_out_is_not_read() {
    let (_guard, dir) = scratch();
    planted(&dir);
    let (secret, image) = (dir.join("tree/build"), dir.join("out/t.img"));
    fs::create_dir(dir.join("out")).unwrap();
    set_mode(&dir, 0o755);
    set_mode(&dir.join("out"), 0o777);
    set_mode(&secret, 0);
    let Some(mut process) = powerless(&dir) else { return };
    let line = words("mkfs -q IMG 4M -d DIR/tree --exclude /build", &image, &dir);
    let output = process.args(line).output().unwrap();
    set_mode(&secret, 0o755);
    assert!(output.status.success(), "{:?}", text(&output));
    assert!(!run("ls IMG", &image, &dir, 0).0.contains("build"));
}

#[test]
fn malformed_patterns_are_refused_before_anything_is_made() {
    let (_guard, dir) = scratch();
    planted(&dir);
    let image = dir.join("t.img");
    for (options, expected) in [
        ("--exclude [", "'['"),
        ("--exclude /", "'/'"),
        ("--exclude a --exclude {b", "'{b'"),
        ("--exclude-from DIR/none", "none"),
    ] {
        let (_, err) = run(&format!("mkfs IMG 4M -d DIR/tree {options}"), &image, &dir, 1);
        assert!(err.contains("--exclude") && err.contains(expected), "{err}");
        assert!(!image.exists());
        let whole = dir.join("whole.img");
        let (_, err) = run(&format!("import IMG DIR/tree /new {options}"), &whole, &dir, 2);
        assert!(err.contains(expected), "{err}");
        let (out, err) = run(&format!("export IMG - {options}"), &whole, &dir, 2);
        assert!(out.is_empty() && err.contains(expected), "{err}");
    }
}

#[test]
fn a_file_of_an_archive_keeps_the_names_that_are_not_excluded() {
    let (_guard, dir) = scratch();
    let tree = dir.join("tree");
    fs::create_dir_all(tree.join("kept")).unwrap();
    fs::write(tree.join("a"), "contents").unwrap();
    fs::hard_link(tree.join("a"), tree.join("b")).unwrap();
    fs::hard_link(tree.join("a"), tree.join("kept/c")).unwrap();
    fs::write(tree.join("alone"), "not kept").unwrap();
    let mut tar = std::process::Command::new("tar");
    tar.args(["--sort=name", "-cf"]).arg(dir.join("t.tar")).arg("-C").arg(&tree).arg(".");
    assert!(tar.status().unwrap().success());
    let image = dir.join("i");
    run("mkfs -q IMG -d DIR/t.tar --exclude /a --exclude alone", &image, &dir, 0);
    assert_eq!(run("find IMG /", &image, &dir, 0).0, "/\n/b\n/kept\n/kept/c\n");
    assert_eq!(run("cat IMG /kept/c", &image, &dir, 0).0, "contents");
    assert!(run("stat --json IMG /b", &image, &dir, 0).0.contains("\"links\": 2"));
    run("fsck -fn --data IMG", &image, &dir, 0);
    // A pipe can be read only once.
    let mut import = betr(["import", "--exclude", "/a"]);
    import.arg(&image).args(["-", "/x"]).write_stdin(fs::read(dir.join("t.tar")).unwrap());
    let failed = import.assert().failure();
    let (_, err) = text(failed.get_output());
    assert!(
        err.contains("'b': is a hard link to 'a', which is excluded")
            || err.contains("which is excluded"),
        "{err}"
    );
    run("import -q --tar --exclude a IMG DIR/t.tar /x", &image, &dir, 0);
    assert_eq!(run("cat IMG /x/b", &image, &dir, 0).0, "contents");
}
