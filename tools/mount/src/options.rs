//! The options of `-o`, in the syntax of mount(8).

use std::path::PathBuf;
use std::time::Duration;

use betr_cli::{Failure, show};
use betr_core::format::is_hold_name;

/// How an image is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// The absolute path of the image.
    pub image: PathBuf,
    pub read_only: bool,
    /// Show the last checkpoint, without recovery from the log.
    pub no_recovery: bool,
    /// The snapshot to show.
    pub snapshot: Option<String>,
    /// Show all snapshots below `.betr/snapshots`.
    pub snapshots: bool,
    /// The file of a repair plan that is applied to the view, not to the image.
    pub overlay: Option<PathBuf>,
    /// Byte offset of the image in its file.
    pub offset: u64,
    pub allow_other: bool,
    /// The owner shown for all files, instead of the stored one.
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Each change is durable on return.
    pub sync: bool,
    /// Reading leaves times of access unchanged, and files are opened without a request.
    pub noatime: bool,
    /// Whether any error of the image or its device makes the mount read-only.
    pub read_only_after_errors: bool,
    /// Interval of syncs: changes are durable after this time at the latest.
    pub commit: Duration,
    /// Interval of checkpoints, which shorten the log.
    pub checkpoint: Duration,
    /// Size of the cache, in bytes.
    pub cache: usize,
    /// Change the options of an existing mount.
    pub remount: bool,
    /// Options that the kernel enforces.
    pub nosuid: bool,
    pub nodev: bool,
    pub noexec: bool,
    pub nosymfollow: bool,
    /// Whether freed blocks are returned to the host (discard).
    pub discard: bool,
    /// Accepted options without effect here, each with the reason.
    pub ignored: Vec<(String, &'static str)>,
}

/// Options of other file systems that occur in fstab(5) and have no effect here.
const IGNORED: [(&[&str], &str); 5] = [
    (&["noacl", "nouser_xattr"], "lists and attributes are always kept and obeyed"),
    (&["umask", "fmask", "dmask"], "each file has permissions of its own"),
    (
        &["quota", "usrquota", "grpquota", "prjquota", "usrjquota", "grpjquota", "jqfmt"],
        "there are no quotas",
    ),
    (&["mand"], "there are no mandatory locks"),
    (
        &["barrier", "nobarrier", "data"],
        "the log is always in order, and flushed when something is to be durable",
    ),
];

/// The smallest cache, in bytes.
pub(crate) const CACHE_MIN: u64 = 8 << 20;

impl Options {
    /// Parses the words of `-o`.
    ///
    /// An unknown option is an error, unless `sloppy` is set.
    pub(crate) fn parse(
        image: PathBuf,
        words: &[String],
        sloppy: bool,
    ) -> Result<Options, Failure> {
        let mut options = Options {
            image,
            read_only: false,
            no_recovery: false,
            snapshot: None,
            snapshots: false,
            overlay: None,
            offset: 0,
            // root mounts for all users, as with other file systems: permissions decide about access.
            allow_other: rustix::process::geteuid().is_root(),
            uid: None,
            gid: None,
            sync: false,
            noatime: true,
            read_only_after_errors: false,
            commit: Duration::from_secs(1),
            checkpoint: Duration::from_secs(60),
            cache: 256 << 20,
            remount: false,
            nosuid: false,
            nodev: false,
            noexec: false,
            nosymfollow: false,
            discard: true,
            ignored: Vec::new(),
        };
        let words = words.iter().flat_map(|words| words.split(','));
        // For a remount mount(8) repeats the options that the kernel lists.
        let sloppy = sloppy || words.clone().any(|word| word == "remount");
        for word in words.filter(|word| !word.is_empty()) {
            options.take(word, sloppy)?;
        }
        if options.nosymfollow && !rustix::process::geteuid().is_root() {
            let why = "the program that mounts for others than root does not know it";
            options.ignored.push(("nosymfollow".into(), why));
        }
        if options.no_recovery && !options.read_only {
            let text = "norecovery needs ro: what the log holds would be lost";
            return Err(Failure::usage(format!("-o norecovery: {text}")));
        }
        if let Some(name) = options.snapshot.as_ref().filter(|_| !options.read_only) {
            let text = "needs ro: a snapshot can only be read";
            return Err(Failure::usage(format!(
                "-o snapshot={}: {text}",
                show::bytes(name.as_bytes())
            )));
        }
        if options.snapshots && options.snapshot.is_some() {
            let text = "not with snapshot=: a snapshot has none itself";
            return Err(Failure::usage(format!("-o snapshots: {text}")));
        }
        if let Some(overlay) = options.overlay.as_ref().filter(|_| !options.read_only) {
            let text = "needs ro: what a plan is laid over can only be read";
            return Err(Failure::usage(format!("-o overlay={}: {text}", show::path(overlay))));
        }
        Ok(options)
    }

    fn take(&mut self, word: &str, sloppy: bool) -> Result<(), Failure> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let wrong = |what: &str| Failure::usage(format!("-o {word}: {what}"));
        let number = || -> Result<u64, Failure> {
            let value = value.ok_or_else(|| wrong("a number is missing"))?;
            betr_cli::size::parse_size(value).map_err(|error| wrong(&error))
        };
        let id = || number().and_then(|id| u32::try_from(id).map_err(|_| wrong("it is too large")));
        let seconds = || match number()? {
            0 => Err(wrong("it must be at least 1")),
            seconds => Ok(Duration::from_secs(seconds)),
        };
        match name {
            "overlay" => match value {
                Some(plan) if !plan.is_empty() => self.overlay = Some(plan.into()),
                _ => return Err(wrong("the file with the plan is missing")),
            },
            "snapshot" => match value {
                Some(name) if is_hold_name(name) => self.snapshot = Some(name.to_owned()),
                _ => return Err(wrong("the name of a snapshot is missing")),
            },
            "offset" => self.offset = number()?,
            "errors" => match value {
                Some("continue") => self.read_only_after_errors = false,
                Some("remount-ro") => self.read_only_after_errors = true,
                _ => return Err(wrong("it is continue or remount-ro")),
            },
            "uid" => self.uid = Some(id()?),
            "gid" => self.gid = Some(id()?),
            "commit" => self.commit = seconds()?,
            "checkpoint" => self.checkpoint = seconds()?,
            "cache" => match number()? {
                bytes if bytes < CACHE_MIN => return Err(wrong("it must be at least 8M")),
                bytes => self.cache = bytes as usize,
            },
            _ if name.starts_with("x-") || name.starts_with("X-") => {}
            // Options for mount(8) itself and other programs.
            "user" | "helper" | "uhelper" | "comment" => {}
            "strictatime" => {
                self.noatime = false;
                self.ignored.push((word.to_owned(), "times of access are kept as relatime does"));
            }
            _ if let Some(why) = why_ignored(name) => self.ignored.push((word.to_owned(), why)),
            _ if value.is_some() && !sloppy => return Err(wrong("no such option")),
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "norecovery" | "noload" => self.no_recovery = true,
            "snapshots" => self.snapshots = true,
            "remount" => self.remount = true,
            "allow_other" => self.allow_other = true,
            "noallow_other" => self.allow_other = false,
            "discard" => self.discard = true,
            "nodiscard" => self.discard = false,
            "sync" => self.sync = true,
            "async" => self.sync = false,
            "noatime" => self.noatime = true,
            "relatime" | "atime" => self.noatime = false,
            "nosuid" => self.nosuid = true,
            "suid" => self.nosuid = false,
            "nodev" => self.nodev = true,
            "dev" => self.nodev = false,
            "noexec" => self.noexec = true,
            "exec" => self.noexec = false,
            "nosymfollow" => self.nosymfollow = true,
            "symfollow" => self.nosymfollow = false,
            "defaults" | "auto" | "noauto" | "nofail" | "_netdev" | "nouser" | "users"
            | "nousers" | "owner" | "noowner" | "group" | "nogroup" | "loop" | "silent"
            | "loud" => {}
            // The default here, or without effect.
            "diratime"
            | "nodiratime"
            | "norelatime"
            | "nostrictatime"
            | "lazytime"
            | "nolazytime"
            | "iversion"
            | "noiversion"
            | "nomand"
            | "noquota"
            | "acl"
            | "user_xattr"
            | "default_permissions"
            | "nonempty" => {}
            "dirsync" => self.sync = true,
            _ if sloppy => {}
            _ => return Err(wrong("no such option")),
        }
        Ok(())
    }

    /// The image's path, printable.
    pub(crate) fn shown(&self) -> String {
        show::path(&self.image).to_string()
    }
}

/// Why an option has no effect; `None` if it is not in the table.
fn why_ignored(name: &str) -> Option<&'static str> {
    IGNORED.into_iter().find(|(words, _)| words.contains(&name)).map(|(_, why)| why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Options, String> {
        Options::parse("/i".into(), &[words.into()], false).map_err(|failure| failure.message)
    }

    #[test]
    fn options_are_those_of_mount() {
        let options = parse("rw,nosuid,commit=5,cache=64M,uid=1000,x-systemd.automount").unwrap();
        assert_eq!((options.read_only, options.nosuid, options.uid), (false, true, Some(1000)));
        assert_eq!((options.commit.as_secs(), options.cache), (5, 64 << 20));
        assert!(parse("ro,norecovery").unwrap().no_recovery);
        assert!(parse("errors=remount-ro").unwrap().read_only_after_errors);
        let keeps_times = |words| !parse(words).unwrap().noatime;
        assert!(keeps_times("relatime") && keeps_times("atime") && keeps_times("strictatime"));
        assert!(!keeps_times("rw") && !keeps_times("defaults,relatime,noatime"));
        assert!(parse("snapshots").unwrap().snapshots && !parse("rw").unwrap().snapshots);
        assert!(!parse("errors=continue").unwrap().read_only_after_errors);
        assert_eq!(parse("overlay=a/plan,ro").unwrap().overlay, Some("a/plan".into()));
        for (words, expected) in [
            ("norecovery", "-o norecovery: norecovery needs ro"),
            ("snapshot=monday", "-o snapshot=monday: needs ro"),
            ("ro,snapshot=", "-o snapshot=: the name of a snapshot is missing"),
            ("ro,snapshots,snapshot=a", "-o snapshots: not with snapshot="),
            ("snapshots=a", "-o snapshots=a: no such option"),
            ("overlay=plan", "-o overlay=plan: needs ro"),
            ("ro,overlay=", "-o overlay=: the file with the plan is missing"),
            ("commit=0", "-o commit=0: it must be at least 1"),
            ("uid", "-o uid: a number is missing"),
            ("gid=5000000000", "-o gid=5000000000: it is too large"),
            ("cache=1M", "-o cache=1M: it must be at least 8M"),
            ("errors=panic", "-o errors=panic: it is continue or remount-ro"),
            ("errors", "-o errors: it is continue or remount-ro"),
            ("ro,inode64", "-o inode64: no such option"),
            ("ro=1", "-o ro=1: no such option"),
        ] {
            let message = parse(words).unwrap_err();
            assert!(message.starts_with(expected), "{words}: {message}");
        }
        assert!(Options::parse("/i".into(), &["inode64,a=b".into()], true).is_ok());
    }

    /// Lines of real fstab(5) files.
    #[test]
    fn words_of_other_file_systems_are_honoured_or_named() {
        let ignored = |words: &str| -> Vec<String> {
            let options = parse(words).unwrap();
            options.ignored.into_iter().map(|(word, _)| word).collect()
        };
        for words in [
            "defaults,noatime,discard,errors=remount-ro,commit=30,x-systemd.device-timeout=10",
            "rw,user,noauto,comment=backup,nofail,_netdev,acl,user_xattr,iversion,lazytime",
            "rw,nosuid,nodev,noexec,relatime,nosymfollow,default_permissions,allow_other",
        ] {
            assert!(ignored(words).is_empty(), "{words}");
        }
        let words = "ro,strictatime,umask=022,usrquota,data=ordered,noacl";
        assert_eq!(
            ignored(words),
            ["strictatime", "umask=022", "usrquota", "data=ordered", "noacl"]
        );
        assert!(!parse("nodiscard").unwrap().discard);
        assert!(parse("discard").unwrap().discard);
        assert!(!parse("noallow_other").unwrap().allow_other);
        assert!(parse("nosymfollow").unwrap().nosymfollow);
    }
}
