"""Copies a source tree within the file system by rsync -a, cold and durable, without and with --inplace. Without it
rsync writes each file under a temporary name and renames it. Then 1 % of the files are changed, and rsync brings the
copy up to date, by times and sizes."""

from ..programs import call
from . import WITH_FUSE

TITLE = "rsync"
PAPER = "BetrFS 0.2 §7.4, figure 9a; thesis, rsync"
KINDS = WITH_FUSE
PROGRAMS = ("rsync",)
FILES = 6_000


def sizes(options):
    return f"a source tree of {tree_files(options):,} files"


def tree_files(options):
    return options.sized(FILES, 100)


def room(options):
    return 3 * tree_files(options) * (24 << 10)


def measure(bench):
    tree, fs = bench.inputs.tree(tree_files(bench.options)), bench.fs
    directory = bench.untar(tree)
    for step, option, name in (("rsync", (), "copy"), ("rsync --inplace", ("--inplace",), "inplace")):
        copy = fs.dir / name
        seconds, _ = bench.timed("rsync", "-a", *option, f"{directory}/", f"{copy}/", durable=True)
        bench.rate(f"{step}, cold, durable", tree.bytes / 1e6, "MB/s", seconds)
        bench.cold(step)
        tree.compare(copy)
        bench.cold()
    changed = sorted(path for path in call("find", directory, "-type", "f").splitlines())[::100]
    for path in changed:
        with open(path, "a") as file:
            file.write("a line more\n")
    bench.cold()
    seconds, _ = bench.timed("rsync", "-a", f"{directory}/", f"{fs.dir / 'copy'}/", durable=True)
    bench.rate("rsync of 1 % changes, cold, durable", tree.files, "files/s", seconds)
    bench.cold()
    call("diff", "-r", directory, fs.dir / "copy")
