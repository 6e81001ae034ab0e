//! Skips tests that need something the machine may lack.
//!
//! On a developer's machine such a test prints what is missing and returns. With `CI=true` it fails instead, so that a
//! test cannot stay skipped unnoticed. The tests of all crates use this.

use std::io::Write;
use std::path::PathBuf;

/// Returns `present`; when it is false, prints `SKIPPED: what` first, or panics if `CI=true`.
///
/// ```
/// if !betr_cli::skip::need("the root directory", std::path::Path::new("/").exists()) {
///     return;
/// }
/// ```
pub fn need(what: &str, present: bool) -> bool {
    if present {
        return true;
    }
    assert!(
        std::env::var_os("CI").is_none_or(|value| value != "true"),
        "this test needs {what}, which is absent, and CI=true"
    );
    // The test harness hides the output of println! when the test passes.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
    false
}

/// The path of the program `name`: from `PATH` or from the sbin directories, which `PATH` often omits.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.into_iter().map(|folder| folder.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_present_is_not_skipped() {
        assert!(need("nothing", true));
        assert!(program("sh").is_some());
        assert!(program("no-such-program-of-betr").is_none());
    }
}
