"""Jobs on an image that is not mounted: `betr import`, `cp`, `cat`, `ls`, `export` and `rm` work on the image itself.
Others, and betr in a column of its own, mount the image, do the same with cp, cat, ls, tar and rm, and unmount it. A
time is that of the whole job, cold, until the image is on the disk. What is read from the host is in its page
cache."""

import os
import time

from ..inputs import read_once
from ..programs import call, expect, load
from ..systems import SYSTEMS, Betr, drop_caches
from . import KERNEL

TITLE = "Tools on an image"
PAPER = "no paper; tasks of a user who builds and reads images"
KINDS = ("betr", *KERNEL)
MOUNTED = False
FILES, MIB = 5_000, 500
PIPED = ("bash", "-c", 'set -o pipefail; "$@" | cat >/dev/null', "bash")


def sizes(options):
    return f"a source tree of {tree_files(options):,} files, a file of {mib(options):,} MiB"


def tree_files(options):
    return options.sized(FILES, 100)


def mib(options):
    return options.sized(MIB, 8)


def room(options):
    return 3 * tree_files(options) * (32 << 10) + 3 * (mib(options) << 20)


def systems(options, work):
    return [Betr(options, work), Betr(options, work, name="betr mounted"), *(SYSTEMS[k](options, work) for k in KERNEL)]


def job(bench, step, tool, mounted):
    """Adds the seconds of a job by the tool, or by a mount."""
    fs, is_tool = bench.fs, bench.fs.name == "betr"
    fs.sync_image()
    drop_caches()
    load(bench.options.betr, "mount", "umount", "cat", "tar", *(tool if is_tool else mounted)[:1])
    # Libraries.
    for program in (bench.options.betr, "mount", "cp", "bash"):
        call(program, "--version")
    start = time.monotonic()
    if is_tool:
        call(*tool)
    else:
        fs.mount()
        call(*mounted)
        fs.unmount()
    fs.sync_image()
    bench.add(step, "s", time.monotonic() - start)


def measure(bench):
    fs, betr, options = bench.fs, bench.options.betr, bench.options
    tree, size = bench.inputs.tree(tree_files(options)), mib(options) << 20
    source, large, at = tree.unpacked(), fs.work / "large", fs.dir
    if not large.exists():
        bench.helper("write", large, size)
    fs.make()
    read_once(source)
    job(bench, "copy a tree in", (betr, "import", fs.image, source, "/tree"), ("cp", "-r", source, at / "tree"))
    read_once(large)
    job(bench, "copy a large file in", (betr, "cp", fs.image, large, ":/large"), ("cp", large, at / "large"))
    job(bench, "list all names", (betr, "ls", "-R", fs.image), ("ls", "-R", at))
    job(bench, "cat the large file", (*PIPED, betr, "cat", fs.image, "/large"), (*PIPED, "cat", at / "large"))
    packed = (*PIPED, "tar", "-cf", "-", "-C", at, "tree")
    job(bench, "pack the tree as tar", (*PIPED, betr, "export", fs.image, "/tree", "-"), packed)
    fs.mount()
    tree.compare(at / "tree")
    call("cmp", large, at / "large")
    fs.unmount()
    job(bench, "delete the tree", (betr, "rm", "-r", fs.image, "/tree"), ("rm", "-rf", at / "tree"))
    fs.mount()
    expect(sorted(set(os.listdir(at)) - {"lost+found"}), ["large"], f"{fs.name}: names in the root directory")
    fs.unmount()
    fs.check()
