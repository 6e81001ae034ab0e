"""The directory clone of BetrFS 0.5: 8 directories of 8 files; eight rounds of a clone of the last clone (`betr
clone`; `cp -r --reflink=auto`, which copies where the file system has no reflinks), 16 bytes written into each of its
files, and a grep of it, cold. Each clone is durable when it is done, and includes the start of the program. *Growth*
is of the image in a round."""

import time
from pathlib import Path

from ..programs import expect
from . import MOUNTS, rename

TITLE = "Clones of clones"
PAPER = "thesis, directory clones"
KINDS = MOUNTS
ROUNDS, FILES, MIB = 8, 64, 4
PATCH = b"16 other bytes.."


def sizes(options):
    return f"{FILES} files of {kib(options):,} KiB"


def kib(options):
    return options.sized(MIB << 10, 64)


def room(options):
    return (ROUNDS + 1) * FILES * kib(options) << 10


def measure(bench):
    fs, size = bench.fs, kib(bench.options) << 10
    last = fs.dir / "0"
    for number in range(FILES):
        (last / str(number // 8)).mkdir(parents=True, exist_ok=True)
        rename.fill(last / str(number // 8) / str(number % 8), "file", size)
    bench.cold()
    for number in range(1, ROUNDS + 1):
        clone = fs.dir / str(number)
        source, target = (f"/{last.name}", f"/{clone.name}") if fs.kind == "betr" else (last, clone)
        before = fs.disk_bytes()
        seconds, _ = bench.timed(*fs.clones, source, target, durable=True)
        bench.add("clone, durable", "ms", seconds * 1e3, "round", number)
        files = sorted(filter(Path.is_file, clone.rglob("*")))
        expect(len(files), FILES, f"{fs.name}: files of a clone")
        start = time.monotonic()
        for file in files:
            with open(file, "r+b") as opened:
                opened.seek(size // 2 + 5)
                opened.write(PATCH)
        fs.settle()
        bench.add("16 bytes into each file, durable", "ms", (time.monotonic() - start) * 1e3, "round", number)
        bench.cold()
        bench.add("growth", "KiB", (fs.disk_bytes() - before) / 1024, "round", number)
        bench.add("grep, cold", "ms", bench.grep(clone) * 1e3, "round", number)
        check(clone, files[0].relative_to(clone), size, last)
        last = clone


def check(clone, name, size, last):
    """A clone has the write; what it was cloned from differs nowhere else, and only the first has no write at all."""
    new, old = (clone / name).read_bytes(), bytearray((last / name).read_bytes())
    old[size // 2 + 5 : size // 2 + 5 + len(PATCH)] = PATCH
    expect(new == old, True, f"{clone.name}: contents of a clone")
