"""Renames files and directories of growing sizes to another directory, eight of each size, each once and with an
fsync of the new directory. The value of a run is the median of the eight. A directory has files of at most 64 KiB. In
betr the first rename of an object that has grown large is a range clone and a range delete in one log record. Then a
source tree is renamed back and forth, as the papers do with one object."""

import os
import statistics
import time

from ..programs import call, expect
from . import MOUNTS

TITLE = "Renames by size"
PAPER = "BetrFS 0.2 §7.1, figure 4, and table 1 (mv); thesis, file and directory renames"
KINDS = MOUNTS
# 8 objects of each size.
OBJECTS, PIECE, MIB = 8, 64 << 10, 1 << 20
KIB = (4, 64, 256, 1024, 4096, 16384, 65536)
# Odd counts: the last rename leaves another name than the first.
REPEATED, REPEATED_END = 101, 1001
FILES = 3_000


def sizes(options):
    return f"sizes of 4 KiB to {kib(options)[-1]:,} KiB, and a source tree of {tree_files(options):,} files"


def kib(options):
    """At a small scale the largest sizes are left out."""
    return [size for size in KIB if size <= options.sized(KIB[-1], 1024)]


def tree_files(options):
    return options.sized(FILES, 100)


def room(options):
    return 4 * OBJECTS * (kib(options)[-1] << 10) + tree_files(options) * (32 << 10)


def fill(path, kind, size):
    """Makes a file of this size, or a directory with as much in files of at most 64 KiB."""
    if kind == "directory":
        path.mkdir()
        for at in range(0, size, PIECE):
            fill(path / f"{at:012}", "file", min(PIECE, size - at))
        return
    with open(path, "wb") as file:
        for at in range(0, size, MIB):
            file.write(os.urandom(min(MIB, size - at)))


def measure_kind(bench, kind, sizes_kib):
    here, there = bench.fs.dir / f"{kind} here", bench.fs.dir / f"{kind} there"
    here.mkdir()
    there.mkdir()
    parent = os.open(there, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for size in sizes_kib:
            names = [f"{size} {number}" for number in range(OBJECTS)]
            for name in names:
                fill(here / name, kind, size << 10)
            bench.fs.settle()
            seconds = []
            for name in names:
                start = time.monotonic()
                os.rename(here / name, there / name)
                os.fsync(parent)
                seconds.append(time.monotonic() - start)
            bench.add(f"rename of a {kind}", "us", statistics.median(seconds) * 1e6, "bytes", size << 10)
    finally:
        os.close(parent)
    bench.cold()
    wanted = OBJECTS * sum(size << 10 for size in sizes_kib)
    found = sum(map(int, call("find", there, "-type", "f", "-printf", "%s\n").split()))
    expect((found, list(here.iterdir())), (wanted, []), f"{bench.fs.name}: bytes of what was renamed")


def measure(bench):
    fs, options = bench.fs, bench.options
    measure_kind(bench, "file", kib(options))
    measure_kind(bench, "directory", kib(options))
    tree = bench.inputs.tree(tree_files(options))
    directory, moved, inner = bench.untar(tree), fs.dir / "moved", fs.dir / "file here" / "inner"
    took = bench.helper("rename", directory, moved, REPEATED, "each")
    bench.rate("rename of a tree with fsync, cold", REPEATED, "renames/s", took["durable"])
    took = bench.helper("rename", moved, directory, REPEATED_END, "end")
    bench.rate("rename of a tree, one fsync", REPEATED_END, "renames/s", took["durable"])
    took = bench.helper("rename", directory, inner, REPEATED_END, "end")
    bench.rate("rename of a tree across directories, one fsync", REPEATED_END, "renames/s", took["durable"])
    bench.cold()
    tree.compare(inner)
