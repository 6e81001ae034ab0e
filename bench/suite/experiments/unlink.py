"""Unlinks files of growing sizes, cold, each with an fsync of the directory: the value is the time of both. Then the
seconds of unmounting, which free what was unlinked, have a row."""

import os
import time

from ..programs import expect
from . import MOUNTS, sequential

TITLE = "Unlink by size"
PAPER = "BetrFS 0.2 §7.2, figures 6 and 7"
KINDS = MOUNTS
MIB = (1, 4, 16, 64, 256, 1024)


def sizes(options):
    return f"files of 1 to {scaled(options)[-1]:,} MiB"


def scaled(options):
    """At a small scale the largest files are left out."""
    return [mib for mib in MIB if mib <= options.sized(MIB[-1], 16)]


def room(options):
    return sum(scaled(options)) << 20


def measure(bench):
    for mib in scaled(bench.options):
        sequential.write(bench, bench.fs.dir / f"file {mib}", mib << 20)
    bench.cold()
    parent = os.open(bench.fs.dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for mib in scaled(bench.options):
            file = bench.fs.dir / f"file {mib}"
            # The inode is looked up before, as a shell with completion would.
            expect(file.stat().st_size, mib << 20, f"{bench.fs.name}: size of {file.name}")
            start = time.monotonic()
            file.unlink()
            os.fsync(parent)
            bench.add("unlink with fsync, cold", "ms", (time.monotonic() - start) * 1e3, "bytes", mib << 20)
    finally:
        os.close(parent)
    bench.cold("unlinks")
    bench.names([])
