//! git(1): many small files, renames, locks, and memory-mapped packs.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::fixture::{Mounted, Random, program, run, said};

const COMMITS: usize = 300;

/// Options for every command, which override the user's settings.
const SETTINGS: [&str; 8] = [
    "-c",
    "user.name=Test",
    "-c",
    "user.email=test@example.com",
    "-c",
    "init.defaultBranch=main",
    "-c",
    "gc.auto=0",
];

fn git(dir: &Path, words: &[&str]) -> String {
    said("git", dir, SETTINGS.iter().chain(words))
}

/// The sources of this workspace, and a history of changes to them, as a stream for git-fast-import(1).
fn history(root: &Path) -> String {
    let mut files = Vec::new();
    let mut waiting = vec![root.join("core/src"), root.join("tools")];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => waiting.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    files.sort();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let mut stream = String::new();
    let mut random = Random::new(21, 0);
    for commit in 0..COMMITS {
        let date = 1_700_000_000 + commit;
        write!(
            stream,
            "commit refs/heads/main\ncommitter T <t@example.com> {date} +0000\ndata 4\nwork\n"
        )
        .unwrap();
        // The first commit has all files, each later one a few of them.
        let count = if commit == 0 { files.len() } else { 5 };
        for index in 0..count {
            let path = &files[if commit == 0 { index } else { random.below(files.len()) }];
            let name = path.strip_prefix(root).unwrap().display();
            let mut text = fs::read_to_string(path).unwrap();
            write!(text, "// {}", random.next()).unwrap();
            write!(stream, "M 100644 inline {name}\ndata {}\n{text}\n", text.len()).unwrap();
        }
    }
    stream
}

#[test]
fn git_clones_and_works() {
    let Some(mut mount) = program("git").and_then(|_| Mounted::new("")) else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let (source, stream) = (mount.beside("source.git"), mount.beside("stream"));
    fs::write(&stream, history(&root)).unwrap();
    git(Path::new("/"), &["init", "-q", "--bare", source.to_str().unwrap()]);
    let import = format!("git -C {} fast-import --quiet < {}", source.display(), stream.display());
    run("sh", ["-c", &import]);

    let url = format!("file://{}", source.display());
    git(mount.point(), &["clone", "-q", &url, "clone"]);
    let clone = mount.at("clone");
    let sound = |dir: &Path| {
        git(dir, &["fsck", "--full", "--strict"]);
        assert_eq!(git(dir, &["status", "--porcelain"]), "");
        assert_eq!(git(dir, &["rev-list", "--count", "main"]).trim(), COMMITS.to_string());
    };
    sound(&clone);
    mount.settle();
    sound(&clone);

    // Checkouts of old and new commits, local changes, and a new pack.
    let before = git(&clone, &["ls-tree", "-r", "main~150"]);
    git(&clone, &["checkout", "-q", "-b", "other", "main~150"]);
    fs::remove_dir_all(clone.join("core")).unwrap();
    fs::write(clone.join("new file"), "new").unwrap();
    git(&clone, &["add", "-A"]);
    git(&clone, &["commit", "-q", "-m", "work"]);
    git(&clone, &["mv", "tools", "moved"]);
    git(&clone, &["commit", "-q", "-m", "a large rename"]);
    git(&clone, &["gc", "-q", "--aggressive", "--prune=now"]);
    git(&clone, &["checkout", "-q", "main"]);
    sound(&clone);
    assert_eq!(git(&clone, &["ls-tree", "-r", "other~2"]), before);
    // A clone within the mount shares the pack by hard links.
    git(mount.point(), &["clone", "-q", "clone", "second"]);
    sound(&mount.at("second"));
    git(&clone, &["worktree", "add", "-q", "../tree", "other"]);
    mount.settle();
    sound(&clone);
    assert_eq!(git(&mount.at("tree"), &["status", "--porcelain"]), "");
}
