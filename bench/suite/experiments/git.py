"""Clones a repository of a source tree; git status of the clone, cold. Then clones a repository with a history, and
git diff of two of its commits a hundred and more apart, cold. The repositories are on the host, in its page cache."""

from ..inputs import read_once
from ..programs import call, expect
from . import WITH_FUSE

TITLE = "git clone, status and diff"
PAPER = "BetrFS 0.2 §7.4, figure 9 (git-clone, git-diff); thesis, git"
KINDS = WITH_FUSE
PROGRAMS = ("git",)
FILES = 20_000


def sizes(options):
    return f"a tree of {tree_files(options):,} files, and the repository of --history"


def tree_files(options):
    return options.sized(FILES, 100)


def room(options):
    return tree_files(options) * (40 << 10) + (200 << 20)


def measure(bench):
    tree, clone = bench.inputs.tree(tree_files(bench.options)), bench.fs.dir / "clone"
    repository = tree.repository()
    read_once(repository)
    seconds, _ = bench.timed("git", "clone", "-q", "--no-hardlinks", repository, clone, durable=True)
    bench.rate("git clone of the tree, durable", tree.files, "files/s", seconds)
    bench.cold("git clone")
    seconds, out = bench.timed("git", "status", "--porcelain", cwd=clone)
    expect(out, "", f"{bench.fs.name}: git status of a fresh clone")
    bench.rate("git status of the tree, cold", tree.files, "files/s", seconds)
    bench.cold()
    tree.compare(clone / "tree")
    history, clone = bench.inputs.history(8), bench.fs.dir / "history"
    read_once(history.git)
    seconds, _ = bench.timed("git", "clone", "-q", "--no-hardlinks", history.git, clone, durable=True)
    bench.add("git clone of the history, durable", "s", seconds)
    bench.cold()
    first, last = history.pulls[-3][1], history.pulls[-1][1]
    diff = ("git", "diff", "--stat", first, last)
    seconds, out = bench.timed(*diff, cwd=clone)
    expect(out, call(*diff, cwd=history.git), f"{bench.fs.name}: git diff")
    bench.add("git diff in the history, cold", "s", seconds)
