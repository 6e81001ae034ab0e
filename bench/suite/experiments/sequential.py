"""Writes a file in calls of 1 MiB with an fsync, and reads it cold, at two sizes of which one is ten times the
other."""

from . import WITH_FUSE

TITLE = "Sequential writes and reads"
PAPER = "BetrFS 0.2 §7.2, figure 5; thesis, sequential I/O"
KINDS = WITH_FUSE
MIB = (200, 2_000)


def sizes(options):
    return f"files of {' and '.join(f'{mib:,}' for mib in scaled(options))} MiB"


def scaled(options):
    return [options.sized(mib, 4) for mib in MIB]


def room(options):
    return sum(scaled(options)) << 20


def write(bench, file, size):
    return bench.helper("write", file, size)["durable"]


def measure(bench):
    for mib in scaled(bench.options):
        file, size = bench.fs.dir / f"file {mib}", mib << 20
        bench.rate(f"write, {mib:,} MiB, durable", size / 1e6, "MB/s", write(bench, file, size))
        bench.cold(f"the write of {mib:,} MiB")
        took = bench.helper("read", file, size, 0, 4)
        bench.rate(f"read, {mib:,} MiB, cold", size / 1e6, "MB/s", took["read"])
        bench.cold()
