"""Creates files of 200 bytes in a balanced tree of directories with a fanout of 128, with a thread for each
processor; each thread goes through all leaf directories and makes a file in each. The curve is the number of files
created so far divided by the time since the start, before anything is synced. The second size is ten times the first,
in a new tree beside the first. Then the files are found, cold."""

import time

from . import WITH_FUSE

TITLE = "Small files (TokuBench)"
PAPER = "BetrFS 0.2 §7.3, figure 8; thesis, TokuBench"
KINDS = WITH_FUSE
RUNS_MAX = 2
FILES, BYTES = (30_000, 300_000), 200


def sizes(options):
    return f"{' and '.join(f'{files:,}' for files in scaled(options))} files, {options.threads} threads"


def scaled(options):
    return [options.sized(files, 300) for files in FILES]


def room(options):
    return sum(scaled(options)) * 6 << 10


def measure(bench):
    for files in scaled(bench.options):
        tree = bench.fs.dir / f"tree {files}"
        bench.helper("tree", tree, files)
        bench.fs.settle()
        start = time.monotonic()
        took = bench.helper("create", tree, files, BYTES, bench.options.threads)
        bench.fs.settle()
        bench.rate(f"create {files:,}, durable", files, "files/s", time.monotonic() - start)
        bench.curve(f"creation so far, of {files:,} files", "files/s", "files", took)
        bench.cold(f"the creation of {files:,}")
        seconds = bench.find(tree, "-name", "*", found=files)
        bench.rate(f"find -name in {files:,}, cold", files, "files/s", seconds)
        bench.cold()
        bench.helper("check-files", tree, files, BYTES, files // 1000 + 1)
