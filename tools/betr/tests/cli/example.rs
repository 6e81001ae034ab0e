//! How a project can keep a text of its images under version control: a fixed UUID and SOURCE_DATE_EPOCH give the
//! same image for the same files, and a dump contains no times, paths or machine names besides.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use assert_cmd::cargo::cargo_bin_cmd;

#[test]
fn an_image_stays_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (tree, image) = (dir.path().join("tree"), dir.path().join("product.img"));
    fs::create_dir_all(tree.join("etc")).unwrap();
    fs::write(tree.join("etc/motd"), "welcome\n").unwrap();
    // The mode would depend on the umask.
    fs::set_permissions(tree.join("etc/motd"), fs::Permissions::from_mode(0o644)).unwrap();
    let betr = |words: &[&str]| {
        let mut command = cargo_bin_cmd!("betr");
        let output = command.env("SOURCE_DATE_EPOCH", "1700000000").args(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let (tree, image) = (tree.to_str().unwrap(), image.to_str().unwrap());
    let uuid = "6b3f0d4e-9f0a-4c7e-8f5d-2d1f4c1e7a90";
    betr(&["mkfs", "-q", "-U", uuid, "--all-root", "-d", tree, image, "2M"]);
    insta::assert_snapshot!("example_tree", betr(&["dump", image, "tree"]));
    insta::assert_snapshot!("example_space", betr(&["dump", image, "space"]));
    insta::assert_snapshot!(
        "example_inode",
        betr(&["dump", image, "--ndjson", "path", "/etc/motd"])
    );
}
