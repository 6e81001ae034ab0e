"""betr's library alone, without FUSE and without peers. *Renames* are those of "Renames by size", with the requests
to the device (`moves`: reads, writes and flushes). *Operations* are on a volume in memory, on one thread: the
creation of a file of 200 bytes, and a blind write of 4 bytes (`operations`). *Pages for an operation* are what
checkpoints write for snapshots, for each block operation (`holds`, see [holds](holds/README.md); the aim is 0.010).
`engines` compares the library with key-value engines and is a program of its own."""

from ..programs import call
from ..systems import Betr
from . import rename

TITLE = "The library"
PAPER = "thesis, file and directory renames; Backlog (FAST 2010) §6.2.1"
KINDS = ("betr",)
BASELINE = "none"
MOUNTED = False
BINARIES = ("moves", "operations", "holds")
OPERATIONS, CHECKPOINTS = 100_000, 200


def sizes(options):
    return (f"renames of up to {rename.kib(options)[-1]:,} KiB, {options.sized(OPERATIONS, 1000):,} operations, "
            f"{options.sized(CHECKPOINTS, 10):,} checkpoints of 4,000 block operations")


def room(options):
    return 16 * (rename.kib(options)[-1] << 10) + (64 << 20)


def systems(options, work):
    return [Betr(options, work, name="library")]


def measure(bench):
    options = bench.options
    printed = call(options.target / "moves", "--objects", 8, "--kib", rename.kib(options)[-1], "--dir", bench.fs.work)
    for line in printed.splitlines()[1:]:
        kib, *kind, median, _worst, reads, writes, flushes, _written = line.split()
        requests = sum(map(float, (reads, writes, flushes)))
        for step, unit, value in (("time", "us", float(median)), ("device", "requests", requests)):
            bench.add(f"rename of a {kind[-1]}, {step}", unit, value, "bytes", int(kib) << 10)
    for what, step in (("create", "create a file"), ("write", "write 4 bytes")):
        printed = call(options.target / "operations", what, "--count", options.sized(OPERATIONS, 1000))
        bench.add(f"{step}, in memory", "us", float(printed.split()[0]) / 1e3)
    printed = call(
        options.target / "holds", "--gib", 2, "--entries", 30_000, "--operations", 4_000,
        "--checkpoints", options.sized(CHECKPOINTS, 10),
    )
    total = next(line for line in printed.splitlines() if line.startswith("| all |"))
    bench.add("pages for an operation", "pages", float(total.split("|")[-2]))
