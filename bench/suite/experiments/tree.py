"""A source tree at two sizes, one ten times the other: find by name, find by size (which needs a stat of each file),
grep of a string that no file contains, cp -r within the file system, and rm -rf, cold each."""

from ..programs import call
from . import WITH_FUSE

TITLE = "Source trees: find, grep, copy, delete"
PAPER = "BetrFS 0.2 §7.2 and §7.3, table 1; thesis, directory operations"
KINDS = WITH_FUSE
RUNS_MAX = 2
FILES = (2_000, 20_000)


def sizes(options):
    return f"{' and '.join(f'{files:,}' for files in scaled(options))} files"


def scaled(options):
    return [options.sized(files, 100) for files in FILES]


def room(options):
    return 2 * sum(scaled(options)) * (24 << 10)


def measure(bench):
    for files in scaled(bench.options):
        tree = bench.inputs.tree(files)
        directory, copy = bench.untar(tree), bench.fs.dir / "copy"

        def add(step, seconds):
            bench.rate(f"{step}, {files:,} files, cold", files, "files/s", seconds)

        add("find -name", bench.find(directory, "-name", "*", found=files))
        bench.cold()
        add("find -size", bench.find(directory, "-size", "+1023c", found=tree.large_files))
        bench.cold()
        add("grep -r", bench.grep(directory))
        bench.cold()
        add("cp -r, durable", bench.timed("cp", "-r", directory, copy, durable=True)[0])
        bench.cold()
        tree.compare(copy)
        bench.cold()
        add("rm -rf, durable", bench.timed("rm", "-rf", directory, durable=True)[0])
        bench.cold(f"rm -rf, {files:,} files")
        bench.names(["copy"])
        tree.compare(copy)
        call("rm", "-rf", copy)
