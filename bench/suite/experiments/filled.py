"""The same work in an image that is almost empty, 40 % full and 90 % full. It is filled with files of seeded random
sizes from 16 KiB to 4 MiB; every second one is deleted, and it is filled again, so that free space is in pieces. How
full it is, is what df says. Then a file is written, overwritten and read, and a source tree unpacked, searched and
deleted."""

import os
import random

from ..programs import Failure, call
from . import MOUNTS, sequential

TITLE = "Empty, 40 % and 90 % full"
PAPER = "thesis, aged file systems (36 % full); fullness besides"
KINDS = MOUNTS
RUNS_MAX = 1
LEVELS = (0, 40, 90)
# At no scale smaller: below 1 GiB btrfs has too little room for its metadata.
IMAGE_BYTES = 2 << 30
FILE_MIB, WRITES, FILES = 48, 10_000, 1_000
KIB_MIN, KIB_MAX = 16, 4096


def sizes(options):
    file, writes, files = scaled(options)
    return (f"an image of {IMAGE_BYTES >> 20:,} MiB; a file of {file:,} MiB with {writes:,} writes of 4 bytes; "
            f"a tree of {files:,} files")


def scaled(options):
    return options.sized(FILE_MIB, 8), options.sized(WRITES, 100), options.sized(FILES, 100)


def room(options):
    return IMAGE_BYTES


def percent(directory):
    """As df counts: what is in use, of that and of what users may still take."""
    of = os.statvfs(directory)
    used = of.f_blocks - of.f_bfree
    return 100 * used / (used + of.f_bavail)


def fill(bench, level, seed):
    """Fills to the level with pieces of random sizes, deletes every second one, and fills again."""
    pieces, choose = bench.fs.dir / "pieces", random.Random(seed)
    pool = choose.randbytes(2 * KIB_MAX << 10)
    pieces.mkdir()
    number = 0
    for turn in range(2):
        while percent(bench.fs.dir) < level:
            size = int(1024 * KIB_MIN * (KIB_MAX / KIB_MIN) ** choose.random())
            at = choose.randrange(len(pool) - size)
            (pieces / f"{number:06}").write_bytes(pool[at : at + size])
            number += 1
            # Delayed allocation and deferred frees count only when they are done.
            if number % 64 == 0:
                bench.fs.settle()
        if turn == 0:
            for each in range(0, number, 2):
                (pieces / f"{each:06}").unlink()
            bench.cold()
    bench.cold()
    if percent(bench.fs.dir) < level - 5:
        raise Failure(f"{bench.fs.name} is {percent(bench.fs.dir):.0f} % full, expected {level}")


def measure(bench):
    fs = bench.fs
    mib, writes, files = scaled(bench.options)
    tree = bench.inputs.tree(files)
    for level in LEVELS:
        if level:
            fs.end()
            fs.begin()
            fill(bench, level, level)
        name = f"{level} % full" if level else "empty"
        file, size = fs.dir / "file", mib << 20
        bench.rate(f"write, {name}, durable", size / 1e6, "MB/s", sequential.write(bench, file, size))
        bench.cold()
        took = bench.helper("overwrite", file, size, writes, 4)
        bench.rate(f"4-byte writes, {name}, cold, durable", writes, "writes/s", took["durable"])
        bench.cold()
        bench.rate(f"read, {name}, cold", size / 1e6, "MB/s", bench.helper("read", file, size, writes, 4)["read"])
        bench.cold()
        seconds, _ = bench.timed("tar", "-xf", tree.tar, "-C", fs.dir, durable=True)
        bench.rate(f"untar, {name}, durable", tree.files, "files/s", seconds)
        bench.cold()
        bench.rate(f"grep -r, {name}, cold", tree.files, "files/s", bench.grep(fs.dir / "tree"))
        tree.compare(fs.dir / "tree")
        bench.cold()
        seconds, _ = bench.timed("rm", "-rf", fs.dir / "tree", durable=True)
        bench.rate(f"rm -rf, {name}, cold, durable", tree.files, "files/s", seconds)
        call("rm", "-rf", file)
