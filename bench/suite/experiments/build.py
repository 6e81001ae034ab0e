"""Makes an image of a directory with an fsync: `betr mkfs -d`, `mke2fs -d`, `mkfs.btrfs --rootdir`, and tar, which
only copies. The directory is in the page cache. *Space* is what the image takes of the disk. xfs has no such
option."""

import time

from ..inputs import read_once
from ..programs import call, load
from ..systems import SYSTEMS, System

TITLE = "Building an image of a tree"
PAPER = "no paper, but the usual way to make an image"
KINDS = ("betr", "ext4", "btrfs", "tar")
MOUNTED = False
FILES = (4_000, 40_000)


class Tar(System):
    kind = "tar"


def sizes(options):
    return f"source trees of {' and '.join(f'{files:,}' for files in scaled(options))} files"


def scaled(options):
    return [options.sized(files, 100) for files in FILES]


def room(options):
    return 2 * sum(scaled(options)) * (24 << 10)


def systems(options, work):
    return [*(SYSTEMS[kind](options, work) for kind in KINDS[:-1]), Tar(options, work)]


def image_size(content, files):
    """512 MiB at least, which xfs and btrfs need; otherwise twice the content, and 8 KiB for each file."""
    return max(512 << 20, 2 * content + files * (8 << 10) + (64 << 20)) >> 20 << 20


def build(fs, source):
    """Makes the image of a directory."""
    if fs.kind == "betr":
        call(fs.betr, "mkfs", "-q", "-d", source, fs.image, fs.image_bytes)
        return
    if fs.kind == "tar":
        call("tar", "-cf", fs.image, "-C", source, ".")
        return
    with open(fs.image, "xb") as image:
        image.truncate(fs.image_bytes)
    # ext4 gets an inode for each 8 KiB, which image_size adds for each file.
    how = ("-i", 8192, "-d") if fs.kind == "ext4" else ("--rootdir",)
    call(*fs.maker, *how, source, fs.image)


def measure(bench):
    fs = bench.fs
    for files in scaled(bench.options):
        tree = bench.inputs.tree(files)
        source = tree.unpacked()
        read_once(source)
        load(fs.options.betr, "tar", "mkfs.ext4", "mkfs.btrfs")
        fs.image_bytes = image_size(tree.bytes, files)
        start = time.monotonic()
        build(fs, source)
        fs.sync_image()
        seconds = time.monotonic() - start
        bench.rate(f"build from {files:,} files, durable", files, "files/s", seconds)
        bench.add(f"space of {files:,} files", "MB", fs.disk_bytes() / 1e6)
        if fs.kind == "tar":
            call("tar", "-df", fs.image, "-C", source)
        else:
            fs.check()
            fs.mount()
            tree.compare(fs.dir)
            fs.unmount()
        fs.remove()
