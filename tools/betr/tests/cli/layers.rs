//! Archives imported into existing trees: merged, as layers of container images, compressed.

use std::fs;
use std::path::Path;
use std::process::Command;

use betr_cli::skip::{need, program};

use crate::support::*;
use crate::tree::assert_same;

/// Creates `$1`, `$2` and `$3`, the layers of an image: with whiteouts, an opaque directory, hard links to members of
/// earlier layers, a directory that becomes a file and vice versa, and paths through symbolic links.
const LAYERS: &str = r#"set -e; umask 022
    layer() { find . -exec touch -hd "@$2" {} +; tar --sort=name --format=pax -cf "$1" .; cd ..; }
    mkdir one; cd one
    mkdir -p usr/lib etc/conf.d var/cache/deep/er opt/app
    ln -s usr/lib lib
    for name in a b c d; do echo "$name" >"usr/lib/$name"; done
    echo 1 >etc/conf.d/one; echo 2 >etc/conf.d/two; echo x >var/cache/deep/er/x; echo y >var/cache/y
    echo file >opt/app/file; echo tool >usr/tool; mkdir dir; echo in >dir/in; echo plain >plain
    chmod 750 etc; ln usr/tool usr/tool-too
    layer "$1" 1500000000
    mkdir two; cd two
    mkdir -p usr/lib etc/conf.d var/cache opt/app
    : >usr/lib/.wh.b; : >usr/lib/.wh.none; : >var/cache/.wh.deep; : >.wh.plain
    : >etc/conf.d/.wh..wh..opq; echo 3 >etc/conf.d/three; echo again >etc/conf.d/one
    echo dir >dir; echo C >usr/lib/c; mkdir plain; echo new >plain/new
    layer "$2" 1600000000
    mkdir three; cd three
    mkdir -p lib usr/lib; echo e >lib/e; : >lib/.wh.d; echo tool >usr/tool; ln usr/tool usr/tool-three
    : >.wh.opt; mkdir -p missing; : >missing/.wh.nothing
    find . -exec touch -hd @1700000000 {} +
    tar --format=pax -cf "$3" --no-recursion . ./usr ./usr/tool ./usr/tool-three ./.wh.opt ./missing ./missing/.wh.nothing ./lib/e ./lib/.wh.d ./usr/lib
    tar --delete -f "$3" ./usr/tool; cd .."#;

/// Unpacks layers by the rules of their specification, with tar and rm, into `out`.
const UNPACK: &str = r#"set -e; mkdir out
    for layer; do
        tar -tf "$layer" | sed 's|^\./||' | grep -E '(^|/)\.wh\.' | while read -r path; do
            dir=$(dirname "$path"); name=$(basename "$path"); name=${name#.wh.}
            case $name in
                .wh..opq) find "out/$dir" -mindepth 1 -delete ;;
                *) rm -rf "out/$dir/$name" ;;
            esac
        done
        tar -tf "$layer" | sed 's|^\./||' | while read -r path; do
            case $path in */ | '') continue ;; esac
            if [ -d "out/$path" ] && [ ! -L "out/$path" ]; then rm -rf "out/$path"; fi
        done
        tar -C out -xpf "$layer" --exclude='.wh.*' --overwrite --numeric-owner
    done"#;

fn script(text: &str, dir: &Path, args: &[&Path]) {
    let mut sh = Command::new("sh");
    sh.args(["-c", text, "sh"]).args(args).current_dir(dir);
    let output = sh.output().unwrap();
    assert!(output.status.success(), "{:?}", self::text(&output));
}

#[test]
fn layers_give_the_tree_that_others_unpack() {
    let (_guard, dir) = scratch();
    if !need("root", is_root()) {
        return;
    }
    let layers = ["1.tar", "2.tar", "3.tar"].map(|name| dir.join(name));
    let paths: Vec<&Path> = layers.iter().map(|path| &**path).collect();
    script(LAYERS, &dir, &paths);
    script(UNPACK, &dir, &paths);
    let image = dir.join("i");
    run("mkfs -q IMG 16M", &image, &dir, 0);
    // Into a directory that does not exist, and then into the result.
    for layer in ["1.tar", "2.tar", "3.tar"] {
        run(&format!("import -q --oci IMG DIR/{layer} /rootfs"), &image, &dir, 0);
        run("fsck -fn --data IMG", &image, &dir, 0);
    }
    run("export -q IMG /rootfs DIR/exported", &image, &dir, 0);
    assert_same(&dir.join("exported"), &dir.join("out"));
    let (out, _) = run("stat --json IMG /rootfs/usr/tool", &image, &dir, 0);
    assert!(out.contains("\"links\": 3"), "{out}");
}

#[test]
fn a_tree_is_merged_with_what_is_there() {
    let (_guard, dir) = scratch();
    for (tree, files) in [("old", &["same", "kept", "sub/kept"][..]), ("new", &["same", "sub/new"])]
    {
        for file in files {
            let path = dir.join(tree).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{tree} {file}")).unwrap();
        }
    }
    let mut tar = Command::new("tar");
    tar.arg("-cf").arg(dir.join("new.tar")).arg("-C").arg(dir.join("new")).arg(".");
    assert!(tar.status().unwrap().success());
    for source in ["DIR/new", "--tar IMG DIR/new.tar"] {
        let image = dir.join("i");
        run("mkfs -qf IMG 16M -d DIR/old", &image, &dir, 0);
        let line = match source.strip_prefix("--tar ") {
            Some(rest) => format!("import -q --tar --merge {rest} /"),
            None => format!("import -q --merge IMG {source} /"),
        };
        run(&line.replace(" --merge", ""), &image, &dir, 1);
        run(&line, &image, &dir, 0);
        for (file, text) in [
            ("same", "new same"),
            ("kept", "old kept"),
            ("sub/kept", "old sub/kept"),
            ("sub/new", "new sub/new"),
        ] {
            assert_eq!(run(&format!("cat IMG /{file}"), &image, &dir, 0).0, text, "{source}");
        }
        // A directory that is not empty is not replaced, and then nothing has changed.
        fs::create_dir_all(dir.join("bad")).unwrap();
        fs::write(dir.join("bad/sub"), "file").unwrap();
        let before = run("ls -lR IMG /", &image, &dir, 0).0;
        run("import --merge IMG DIR/bad /", &image, &dir, 1);
        run("import --merge IMG DIR/bad/sub /", &image, &dir, 1);
        assert_eq!(run("ls -lR IMG /", &image, &dir, 0).0, before);
        run("fsck -fn --data IMG", &image, &dir, 0);
    }
}

#[test]
fn compressed_archives_are_unpacked() {
    let (_guard, dir) = scratch();
    fs::create_dir(dir.join("tree")).unwrap();
    fs::write(dir.join("tree/text"), "text ".repeat(100_000)).unwrap();
    fs::write(dir.join("tree/noise"), pattern(300_000)).unwrap();
    let script = |text: &str| script(text, &dir, &[]);
    script("tar --sort=name -cf t.tar -C tree .; split -n 2 t.tar part.");
    let image = dir.join("i");
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    let make = |archive: &str, code: i32| {
        let mut mkfs = betr(["mkfs", "-qf", "-U", uuid, "-d"]);
        mkfs.arg(dir.join(archive)).arg(&image).arg("16M").env("SOURCE_DATE_EPOCH", "1700000000");
        text(mkfs.assert().code(code).get_output()).1
    };
    make("t.tar", 0);
    let expected = fingerprint(&image).0;
    for (name, program_name) in [("gz", "gzip"), ("xz", "xz"), ("zst", "zstd")] {
        if !need(program_name, program(program_name).is_some()) {
            continue;
        }
        // As one file, and as two concatenated ones.
        script(&format!(
            "{program_name} -c t.tar >t.tar.{name}; {program_name} -c part.aa >two.{name}; {program_name} -c part.ab >>two.{name}"
        ));
        for archive in [format!("t.tar.{name}"), format!("two.{name}")] {
            make(&archive, 0);
            assert_eq!(fingerprint(&image).0, expected, "{archive}");
        }
        let mut piped = betr(["mkfs", "-qf", "-U", uuid, "-d", "-"]);
        let packed = fs::read(dir.join(format!("t.tar.{name}"))).unwrap();
        piped.arg(&image).arg("16M").env("SOURCE_DATE_EPOCH", "1700000000");
        piped.write_stdin(packed.clone()).assert().success();
        assert_eq!(fingerprint(&image).0, expected, "{name}");
        // A damaged or truncated archive is refused.
        let middle = packed.len() / 2;
        fs::write(dir.join("cut"), &packed[..middle]).unwrap();
        let mut broken = packed;
        broken[middle] ^= 0x10;
        fs::write(dir.join("broken"), broken).unwrap();
        for damaged in ["cut", "broken"] {
            let err = make(damaged, 1);
            assert!(
                err.contains(&format!("as {program_name}"))
                    || err.contains("cut off")
                    || err.contains("byte"),
                "{err}"
            );
            assert_eq!(fingerprint(&image).0, expected, "nothing has changed");
        }
    }
}
