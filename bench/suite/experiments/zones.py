"""The same work with images of other zone sizes (`betr mkfs --zone-size`). With a zone size of 0 each file and
directory is a zone, as an inode is: a rename moves a reference, and a scan jumps from zone to zone. Without a limit
(inf, the default) keys are whole paths: a scan reads keys in a row, and a rename moves them, or clones the range if
it is large. Between them a subtree that outgrows the size becomes a zone. Ratios are of the default; above 1 the
default is faster."""

from ..systems import Betr
from . import rename, sequential

TITLE = "Zone sizes"
PAPER = "BetrFS 0.2 §7.1, figure 3"
KINDS = ("betr",)
BASELINE = "inf"
RUNS_MAX = 2
# Arguments of --zone-size.
SIZES = ("inf", "4M", "512K", "64K", "0")
FILES, FILE_MIB, WRITES = 6_000, 256, 20_000
RENAMED_KIB = (4, 64, 512, 4096, 16384)


def sizes(options):
    return (f"{tree_files(options):,} files of sources; {file_mib(options):,} MiB with "
            f"{writes(options):,} writes; zones of {', '.join(SIZES)}")


def tree_files(options):
    return options.sized(FILES, 100)


def file_mib(options):
    return options.sized(FILE_MIB, 8)


def writes(options):
    return options.sized(WRITES, 100)


def room(options):
    return (file_mib(options) << 20) + tree_files(options) * (32 << 10) + rename.OBJECTS * (64 << 20)


def systems(options, work):
    return [Betr(options, work, name=size, zones=size) for size in SIZES]


def measure(bench):
    fs, options = bench.fs, bench.options
    rename.measure_kind(bench, "file", RENAMED_KIB)
    tree = bench.inputs.tree(tree_files(options))
    directory = bench.untar(tree)
    bench.rate("find -name, cold", tree.files, "files/s", bench.find(directory, "-name", "*", found=tree.files))
    bench.cold()
    bench.rate("grep -r, cold", tree.files, "files/s", bench.grep(directory))
    bench.cold()
    took = bench.helper("rename", directory, fs.dir / "moved", rename.REPEATED, "each")
    bench.rate("rename of the tree with fsync, cold", rename.REPEATED, "renames/s", took["durable"])
    tree.compare(fs.dir / "moved")
    file, size = fs.dir / "large", file_mib(options) << 20
    sequential.write(bench, file, size)
    bench.cold()
    took = bench.helper("overwrite", file, size, writes(options), 4)
    bench.rate("4-byte writes, cold, durable", writes(options), "writes/s", took["durable"])
    bench.cold()
    bench.helper("read", file, size, writes(options), 4)
