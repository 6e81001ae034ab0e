"""Writes 4 bytes, and blocks of 4 KiB, at random places of a cold file, then an fsync; reads the file cold from its
beginning to its end, which pays for what a Bε-tree has deferred; and reads random blocks of it, cold. The curves are
the writes a second since the first write, without the fsync."""

from . import WITH_FUSE, sequential

TITLE = "Random writes and reads"
PAPER = "BetrFS 0.2 §7.3, table 2, and §7.5, figure 10; thesis, random I/O"
KINDS = WITH_FUSE
MIB, WRITES_4, WRITES_4096, READS = 1_000, 100_000, 20_000, 10_000


def sizes(options):
    mib, small, blocks, reads = scaled(options)
    return f"files of {mib:,} MiB; {small:,} writes of 4 bytes, {blocks:,} of 4 KiB, {reads:,} reads of 4 KiB"


def scaled(options):
    counts = (options.sized(count, 100) for count in (WRITES_4, WRITES_4096, READS))
    return options.sized(MIB, 8), *counts


def room(options):
    return 3 * scaled(options)[0] << 20


def measure(bench):
    mib, small, blocks, reads = scaled(bench.options)
    size = mib << 20
    for writes, each, unit in ((small, 4, "4-byte"), (blocks, 4096, "4 KiB")):
        file = bench.fs.dir / f"file {each}"
        sequential.write(bench, file, size)
        bench.cold()
        took = bench.helper("overwrite", file, size, writes, each)
        bench.curve(f"{unit} writes", "writes/s", "writes", took)
        bench.rate(f"{unit} writes, cold, durable", writes, "writes/s", took["durable"])
        bench.cold(f"{unit} writes")
        took = bench.helper("read", file, size, writes, each)
        bench.rate(f"read after {unit} writes, cold", size / 1e6, "MB/s", took["read"])
    bench.cold()
    took = bench.helper("read-random", file, size, reads)
    bench.rate("random reads of 4 KiB, cold", reads, "reads/s", took["read"])
