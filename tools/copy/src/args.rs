//! The options that `mkfs`, `import` and `export` have in common.

use std::path::{Path, PathBuf};

use crate::host::Excludes;
use betr_core::text::printable;

use crate::{Numbers, Owners};

/// What is left out.
#[derive(clap::Args, Debug, Default)]
pub struct ExcludeArgs {
    /// Leave out what matches GLOB, and everything below it. Can be given several times
    ///
    /// Without a slash GLOB stands for a name in any directory: '*.o'. With a slash it stands for a path from
    /// the root of the tree on: '/build', 'usr/share/doc', 'home/**/.cache'. '*' stands for any characters of
    /// one name, '?' for one character, '**' between slashes for any number of directories, '[a-z]' and '[!a-z]'
    /// for one character of a set, '{a,b}' for either; '\' takes the meaning from what is behind it. A slash
    /// at the end does not count.
    #[arg(long = "exclude", value_name = "GLOB")]
    globs: Vec<String>,
    /// Leave out what the lines of FILE match; empty lines do not count
    #[arg(long = "exclude-from", value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Who is to own what is imported.
#[derive(clap::Args, Debug, Default)]
pub struct OwnerArgs {
    /// Make root the owner and the group of everything
    #[arg(long, conflicts_with_all = ["force_uid", "force_gid"])]
    all_root: bool,
    /// Make UID, a number, the owner of everything
    #[arg(long, value_name = "UID")]
    force_uid: Option<u32>,
    /// Make GID, a number, the group of everything
    #[arg(long, value_name = "GID")]
    force_gid: Option<u32>,
    /// Add N to the numbers of all owners, forced ones too
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    uid_offset: i64,
    /// Add N to the numbers of all groups, forced ones too
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    gid_offset: i64,
}

impl ExcludeArgs {
    /// Compiles the patterns; an error names the malformed pattern or the unreadable file.
    pub fn excludes(&self) -> Result<Excludes, String> {
        let mut patterns = self.globs.clone();
        for file in &self.files {
            patterns.extend(lines(file)?);
        }
        Excludes::new(patterns).map_err(|error| format!("--exclude: {error}"))
    }
}

fn lines(file: &Path) -> Result<Vec<String>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        let name = printable(std::os::unix::ffi::OsStrExt::as_bytes(file.as_os_str()));
        format!("--exclude-from {name}: {error}")
    })?;
    Ok(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

impl OwnerArgs {
    /// The mapping of owners and groups.
    pub fn owners(&self) -> Owners {
        let root = self.all_root.then_some(0);
        Owners {
            users: Numbers { force: self.force_uid.or(root), offset: self.uid_offset },
            groups: Numbers { force: self.force_gid.or(root), offset: self.gid_offset },
        }
    }
}
