//! make(1), cc(1) and ar(1): four parallel jobs that depend on times of modification.

use std::fs;
use std::path::Path;

use crate::fixture::{Manifest, Mounted, betr_only, clone, program, run, said};

const UNITS: usize = 60;

/// A program with several units in a library. Returns its expected output.
fn write_project(dir: &Path) -> String {
    let write = |name: &str, text: String| fs::write(dir.join(name), text).unwrap();
    let mut expected = 0_u64;
    let (mut calls, mut header) = (String::new(), "#include <stdint.h>\n".to_owned());
    for unit in 0..UNITS {
        let constant = (unit as u64 + 1) * 7919;
        write(
            &format!("unit{unit}.c"),
            format!(
                "#include \"units.h\"\nstatic const char filler[{}] = \"unit\";\n\
                 uint64_t unit{unit}(uint64_t x) {{ return x * 31 + {constant} + (filler[0] != 'u'); }}\n",
                1000 * unit + 100
            ),
        );
        header += &format!("uint64_t unit{unit}(uint64_t x);\n");
        calls += &format!("\tx = unit{unit}(x);\n");
        expected = expected.wrapping_mul(31).wrapping_add(constant);
    }
    write("units.h", header);
    let main = "#include <stdio.h>\n#include \"units.h\"\nint main(void)\n{\n\tuint64_t x = 0;\n";
    write(
        "main.c",
        format!("{main}{calls}\tprintf(\"%llu\\n\", (unsigned long long)x);\n\treturn 0;\n}}\n"),
    );
    let objects = (0..UNITS).map(|unit| format!("unit{unit}.o ")).collect::<String>();
    write(
        "Makefile",
        format!(
            "program: main.o libunits.a\n\tcc -o $@ main.o -L. -lunits\n\
             libunits.a: {objects}\n\trm -f $@ && ar rcs $@ $^\n\
             %.o: %.c units.h\n\tcc -O1 -c -o $@ $<\n"
        ),
    );
    expected.to_string()
}

#[test]
fn make_builds_what_is_out_of_date() {
    let programs = ["make", "cc", "ar"].iter().all(|name| program(name).is_some());
    let Some(mut mount) = programs.then(|| Mounted::new("")).flatten() else { return };
    let dir = mount.at("project");
    fs::create_dir(&dir).unwrap();
    let expected = write_project(&dir);
    let binary = dir.join("program");
    let result = || said(binary.to_str().unwrap(), &dir, [""; 0]).trim().to_owned();
    let make = |words: &[&str]| said("make", &dir, words);
    assert_eq!(make(&["-j4"]).matches(" -c -o ").count(), UNITS + 1);
    assert_eq!(result(), expected);
    make(&["-q"]);
    mount.settle();
    // After a remount nothing is out of date; after a change to a unit, only that unit.
    make(&["-q"]);
    assert_eq!(result(), expected);
    let unit = dir.join("unit7.c");
    let changed = fs::read_to_string(&unit).unwrap().replace("x * 31", "x * 33");
    fs::write(&unit, changed).unwrap();
    assert_eq!(make(&["-j4"]).matches(" -c -o ").count(), 1);
    assert_ne!(result(), expected);
    make(&["-q"]);
    mount.settle();
}

/// A build goes on in a clone as in a copy, and neither sees the other.
#[test]
fn a_build_goes_on_in_a_clone() {
    let programs = ["make", "cc", "ar"].iter().all(|name| program(name).is_some());
    if !betr_only() || !programs {
        return;
    }
    let Some(mut mount) = Mounted::new("") else { return };
    let dir = mount.at("project");
    fs::create_dir(&dir).unwrap();
    let expected = write_project(&dir);
    let make = |dir: &Path, words: &[&str]| said("make", dir, words);
    let result = |dir: &Path| {
        let binary = dir.join("program");
        said(binary.to_str().unwrap(), dir, [""; 0]).trim().to_owned()
    };
    make(&dir, &["-j4"]);
    clone(mount.point(), "/project", "/cloned", 0);
    let copy = mount.at("copy");
    run("cp", ["-a", "--reflink=auto", dir.to_str().unwrap(), copy.to_str().unwrap()]);
    let cloned = mount.at("cloned");
    for other in [&cloned, &copy] {
        Manifest::of(&dir).assert_same(&Manifest::of(other));
        make(other, &["-q"]);
        let unit = other.join("unit7.c");
        let changed = fs::read_to_string(&unit).unwrap().replace("x * 31", "x * 33");
        fs::write(&unit, changed).unwrap();
        assert_eq!(make(other, &["-j4"]).matches(" -c -o ").count(), 1);
        assert_ne!(result(other), expected);
    }
    assert_eq!(result(&cloned), result(&copy));
    make(&dir, &["-q"]);
    assert_eq!(result(&dir), expected);
    fs::remove_dir_all(&dir).unwrap();
    mount.settle();
    make(&cloned, &["-q"]);
    assert_eq!(result(&cloned), result(&copy));
    mount.settle();
}
