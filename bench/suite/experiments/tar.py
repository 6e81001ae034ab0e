"""Unpacks an archive that is in the file system, and packs the tree again into the file system, cold and durable
each."""

import shutil

from ..programs import call
from . import WITH_FUSE

TITLE = "tar and untar"
PAPER = "BetrFS 0.2 §7.4, figure 9 (tar); thesis, tar"
KINDS = WITH_FUSE
FILES = 10_000


def sizes(options):
    return f"a source tree of {tree_files(options):,} files, not compressed"


def tree_files(options):
    return options.sized(FILES, 100)


def room(options):
    return tree_files(options) * (60 << 10)


def measure(bench):
    tree, fs = bench.inputs.tree(tree_files(bench.options)), bench.fs
    archive, again = fs.dir / "tree.tar", fs.dir / "again.tar"
    shutil.copyfile(tree.tar, archive)
    bench.cold()
    seconds, _ = bench.timed("tar", "-xf", archive, "-C", fs.dir, durable=True)
    bench.rate("untar, cold, durable", tree.files, "files/s", seconds)
    bench.cold("untar")
    seconds, _ = bench.timed("tar", "-cf", again, "-C", fs.dir, "tree", durable=True)
    bench.rate("tar, cold, durable", tree.files, "files/s", seconds)
    bench.cold("tar")
    tree.compare(fs.dir / "tree")
    call("tar", "-df", again, "-C", fs.dir)
