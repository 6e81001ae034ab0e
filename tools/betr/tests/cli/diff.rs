//! `betr diff`: two images by their files and by their structure.

use std::fs;

use crate::support::*;

#[test]
fn images_are_compared_by_their_files() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let copy = dir.join("copy.img");
    fs::copy(&image, &copy).unwrap();
    let diff =
        |words: &str, code| run(&format!("diff IMG DIR/copy.img {words}"), &image, &dir, code).0;
    assert_eq!(diff("", 0), "");
    assert_eq!(diff("--structure", 0), "");
    fs::write(dir.join("new"), "something else\n").unwrap();
    run("rm IMG /link", &copy, &dir, 0);
    run("import IMG DIR/new /sub/new", &copy, &dir, 0);
    run("chmod IMG 600 /hello", &copy, &dir, 0);
    run("setfattr IMG -n user.note -v x /sub/inner", &copy, &dir, 0);
    run("truncate IMG -s 9999 /sub/inner", &copy, &dir, 0);
    assert_eq!(
        diff("", 1),
        "~ /  modified\n\
         ~ /hello  mode 0644 to 0600\n\
         - /link  symbolic link\n\
         ~ /sub  modified\n\
         ~ /sub/inner  size 10000 to 9999, modified, attribute user.note, contents from byte 9999 on, in 1 blocks\n\
         + /sub/new  regular file\n"
    );
    assert_eq!(diff("--quiet", 1), "");
    let json: serde_json::Value = serde_json::from_str(&diff("--json", 1)).unwrap();
    assert_eq!(json["schema"], "betr.diff");
    assert_eq!(json["changes"].as_array().unwrap().len(), 6);
    let structure = diff("--structure", 1);
    assert!(
        structure.contains("superblock, seal, epoch") && structure.contains("~ n:1  metadata"),
        "{structure}"
    );
    let (_, err) = run("diff IMG DIR/new", &image, &dir, 2);
    assert!(err.contains("not a betr image"), "{err}");
    run("diff IMG", &image, &dir, 2);
}

#[test]
fn damage_is_told_of_the_image_that_has_it() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    let bad = dir.join("bad.img");
    let mut bytes = fs::read(&image).unwrap();
    let contents = pattern(4096);
    let at = bytes.windows(contents.len()).position(|window| window == contents).unwrap();
    bytes[at + 5] ^= 4;
    fs::write(&bad, bytes).unwrap();
    for line in ["diff IMG DIR/bad.img", "diff DIR/bad.img IMG"] {
        let (out, err) = run(line, &image, &dir, 2);
        assert_eq!(out, "", "{line}");
        assert!(err.contains("bad.img: ") && err.contains("fsck -fn"), "{line}: {err}");
        assert!(!err.contains("small.img"), "{line}: {err}");
    }
}

#[test]
fn snapshots_are_named_behind_the_image() {
    let (_guard, dir) = scratch();
    let image = small_image(&dir);
    fs::write(dir.join("new"), "something else\n").unwrap();
    run("snapshot create IMG one", &image, &dir, 0);
    run("import IMG DIR/new /sub/new", &image, &dir, 0);
    run("rm IMG /link", &image, &dir, 0);
    run("snapshot create IMG two", &image, &dir, 0);
    run("truncate IMG -s 9999 /sub/inner", &image, &dir, 0);
    let at = |line: &str, code| run(line, &image, &dir, code);
    let (out, _) = at("diff DIR/small.img@one DIR/small.img@two", 1);
    assert_eq!(
        out,
        "~ /  modified\n- /link  symbolic link\n~ /sub  modified\n+ /sub/new  regular file\n"
    );
    let (out, _) = at("diff DIR/small.img@two IMG", 1);
    assert_eq!(
        out,
        "~ /sub/inner  size 10000 to 9999, modified, contents from byte 9999 on, in 1 blocks\n"
    );
    assert_eq!(at("diff DIR/small.img@one DIR/small.img@one", 0).0, "");
    // The same differences between copies.
    fs::copy(&image, dir.join("copy.img")).unwrap();
    let (whole, _) = at("diff DIR/copy.img@one IMG", 1);
    assert_eq!(whole.lines().count(), 5, "{whole}");
    let (_, err) = at("diff DIR/small.img@three IMG", 2);
    assert!(err.contains("there is no snapshot 'three'; there are 'one' and 'two'"), "{err}");
    let (_, err) = at("diff DIR/small.img@one IMG --a-as-of now", 2);
    assert!(err.contains("small.img@one: that is a moment already"), "{err}");
    let (_, err) = at("diff --structure DIR/small.img@one IMG", 2);
    assert!(err.contains("the structure of the newest checkpoint is compared"), "{err}");
    // An existing file with such a name takes precedence.
    fs::copy(&image, dir.join("small.img@one")).unwrap();
    let (out, _) = at("diff DIR/small.img@one IMG", 0);
    assert_eq!(out, "");
}
