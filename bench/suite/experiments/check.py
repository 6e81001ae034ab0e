"""Checks whole images of small files, cold and read-only: `betr fsck -fn`, `e2fsck -fn`, `xfs_repair -n`, `btrfs
check`. betr and btrfs also verify contents, by `fsck --data` and `check --check-data-csum`. Images are made as in
"Building an image of a tree"; that of xfs is mounted for it."""

import time

from ..programs import call, load
from ..systems import drop_caches
from . import MOUNTS, build

TITLE = "Checking an image"
PAPER = "no paper; fsck beside its peers"
KINDS = MOUNTS
MOUNTED = False
FILES, BYTES = (20_000, 200_000), 1_000


def sizes(options):
    return f"{' and '.join(f'{files:,}' for files in scaled(options))} files of {BYTES:,} bytes"


def scaled(options):
    return [options.sized(files, 300) for files in FILES]


def room(options):
    return 2 * sum(scaled(options)) * (6 << 10)


def cold(fs, *command):
    """The seconds of a check."""
    drop_caches()
    load(command[0])
    call(command[0], "--version" if command[0] in (fs.options.betr, "btrfs") else "-V")
    start = time.monotonic()
    call(*command)
    return time.monotonic() - start


def measure(bench):
    fs = bench.fs
    for files in scaled(bench.options):
        source = bench.inputs.small_files(files, BYTES)
        fs.image_bytes = build.image_size(files * BYTES, files)
        if fs.kind == "xfs":
            fs.make()
            fs.mount()
            call("cp", "-r", source, fs.dir / "small")
            fs.unmount()
        else:
            build.build(fs, source)
        fs.sync_image()
        checker = (fs.betr, "fsck", "-fn") if fs.kind == "betr" else fs.checker
        bench.rate(f"check of {files:,} files, cold", files, "files/s", cold(fs, *checker, fs.image))
        deep = {"betr": ("--data",), "btrfs": ("--check-data-csum",)}.get(fs.kind)
        if deep:
            seconds = cold(fs, *checker, *deep, fs.image)
            bench.rate(f"check of {files:,} files and their contents, cold", files, "files/s", seconds)
        fs.mount()
        tree = fs.dir / "small" if fs.kind == "xfs" else fs.dir
        bench.helper("check-files", tree, files, BYTES, files // 1000 + 1)
        fs.unmount()
        fs.remove()
