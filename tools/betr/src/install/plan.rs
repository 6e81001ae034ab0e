//! The files of an installation, and their paths.

use std::path::{Path, PathBuf};

use betr_cli::{Failure, show};
use clap_complete::Shell;

use crate::{NAMES, completions, man};

const MAGIC: &str = include_str!("betr.magic");
const RULES: &str = include_str!("betr.rules");

/// The directories in which shells search completions.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "share/bash-completion/completions/betr"),
    (Shell::Zsh, "share/zsh/site-functions/_betr"),
    (Shell::Fish, "share/fish/vendor_completions.d/betr.fish"),
];

/// A file or a link of the installation.
pub(super) struct Item {
    /// The path below the prefix.
    pub path: PathBuf,
    /// The contents.
    pub what: What,
}

/// The contents of an item.
pub(super) enum What {
    /// A regular file.
    File { bytes: Vec<u8>, executable: bool },
    /// A symbolic link.
    Link { target: PathBuf },
}

impl What {
    /// A file that is not executable.
    pub(super) fn file(bytes: Vec<u8>) -> What {
        What::File { bytes, executable: false }
    }
}

/// All items for this prefix, which is absolute.
pub(super) fn items(prefix: &Path) -> Result<Vec<Item>, Failure> {
    let mut items = Vec::new();
    let mut add = |path: PathBuf, what| items.push(Item { path, what });
    add("bin/betr".into(), What::File { bytes: program()?, executable: true });
    for (name, ..) in NAMES {
        add(format!("sbin/{name}").into(), What::Link { target: "../bin/betr".into() });
    }
    for page in man::pages()? {
        add(Path::new("share/man").join(page.path), What::file(page.text));
    }
    for (shell, path) in COMPLETIONS {
        add(path.into(), What::file(completions::text(shell)));
    }
    add("share/betr/magic".into(), What::file(MAGIC.into()));
    let rules = RULES.replace("@PROGRAM@", &quoted(&prefix.join("bin/betr"))?);
    add("lib/udev/rules.d/61-betr.rules".into(), What::file(rules.into_bytes()));
    Ok(items)
}

/// The bytes of the running program.
fn program() -> Result<Vec<u8>, Failure> {
    let read = std::env::current_exe().and_then(std::fs::read);
    read.map_err(|error| Failure::failed(format!("this program cannot be read: {error}")))
}

/// Quotes a path for a command in a udev rule. udev replaces `%` and `$`, and cannot escape quotes.
fn quoted(path: &Path) -> Result<String, Failure> {
    let text = path
        .to_str()
        .filter(|text| !text.chars().any(|c| c.is_control() || matches!(c, '\'' | '"' | '\\')));
    let Some(text) = text else {
        let name = show::path(path);
        return Err(Failure::usage(format!("{name}: a rule of udev cannot name this path")));
    };
    let text = text.replace('%', "%%").replace('$', "$$");
    Ok(if text.contains(char::is_whitespace) { format!("'{text}'") } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_a_rule() {
        let quoted = |path: &str| quoted(Path::new(path)).ok();
        assert_eq!(quoted("/usr/bin/betr").as_deref(), Some("/usr/bin/betr"));
        assert_eq!(quoted("/a b/50%/$x").as_deref(), Some("'/a b/50%%/$$x'"));
        for path in ["/a\nb", "/a'b", "/a\"b", "/a\\b"] {
            assert_eq!(quoted(path), None, "{path:?}");
        }
    }

    #[test]
    fn the_magic_file_begins_with_the_magic_of_the_identity_block() {
        let at = betr_core::format::IDENTITY_AT;
        let line = MAGIC.lines().find(|line| line.contains("BETRid")).unwrap();
        assert!(line.starts_with(&at.to_string()));
        let version = format!(">{}\t\tlelong", at + 72);
        assert!(MAGIC.contains(&version), "{version}");
    }
}
