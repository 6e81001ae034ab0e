"""The work, and the measuring of it. Everything is verified, so that nobody times what was not done."""

import os
import statistics
import sys
import time
from pathlib import Path

from programs import call, expect
from report import Sample, show
from source import read_once

MIB = 1 << 20
FILE_BYTES = 200
# Odd, so that what was renamed has another name in the end.
RENAMES, SYNCED_RENAMES = 1001, 101
# Renames of each size; sizes in KiB; files of directories.
MOVED, MOVED_KIB, PIECE = 8, [4, 64, 256, 1024, 4096, 16384, 65536], 64 << 10
ABSENT = "this is in no source file: 6b3f0d4e9f0a4c7e"


class Bench:
    """Measures one workload on one file system."""

    def __init__(self, fs, options, source, workload, run, samples):
        self.fs, self.options, self.source, self.samples = fs, options, source, samples
        self.workload, self.run = workload, run

    def add(self, step, unit, value, seconds):
        self.samples.append(Sample(self.workload, step, unit, self.fs.name, self.run, value, seconds))
        shown = f"{show(value):>10} {unit:<9} {show(seconds):>8} {'s' if seconds is not None else ''}"
        print(f"{self.workload:<6} {self.fs.name:<7} {step:<35} {shown}".rstrip(), file=sys.stderr)

    def rate(self, step, amount, unit, seconds):
        self.add(step, unit, amount / seconds, seconds)

    def cold(self, after=None):
        """Forgets what is cached; `after` names the row for what was put off until then."""
        seconds = self.fs.cold()
        if after:
            self.add(f"unmount after {after}", "", None, seconds)

    def helper(self, *command):
        """What a command of helper.c measured itself, in seconds."""
        lines = call(self.fs.helper, *command).splitlines()
        return {name: float(seconds) for name, seconds in map(str.split, lines)}

    def timed(self, *command, durable=False, cwd=None, status=0):
        """Seconds that a program takes, and what it prints."""
        # The programs were dropped from the cache as well, and reading them is not what is measured.
        call(command[0], "--version")
        self.fs.settle()
        start = time.monotonic()
        out = call(*command, cwd=cwd, status=status)
        if durable:
            self.fs.settle()
        return time.monotonic() - start, out

    def find(self, directory, files, test, value, found):
        """Has a test made of all files, cold, and counts those that are found."""
        seconds, out = self.timed("find", directory, "-type", "f", test, value, "-printf", ".")
        expect(len(out), found, f"{self.fs.name}: files found in {directory.name}")
        self.rate(f"find {test}, cold", files, "files/s", seconds)

    def names(self, wanted):
        """Compares the names in the root directory."""
        found = set(call("ls", "-A", self.fs.dir).split()) - {"lost+found", "anchor"}
        expect(found, set(wanted), f"{self.fs.name}: names in the root directory")

    def small(self):
        files, tree = self.options.files, self.fs.dir / "small"
        self.helper("tree", tree, files)
        self.fs.settle()
        start = time.monotonic()
        self.helper("create", tree, files, FILE_BYTES, self.options.threads)
        self.fs.settle()
        self.rate("create, durable", files, "files/s", time.monotonic() - start)
        self.cold("create")
        self.find(tree, files, "-name", "*", found=files)
        self.cold()
        self.helper("check-files", tree, files, FILE_BYTES, files // 1000 + 1)

    def large(self):
        size, writes, file = self.options.large_bytes, self.options.writes, self.fs.dir / "large"
        took = self.helper("write", file, size)
        self.rate("write, durable", size / 1e6, "MB/s", took["durable"])
        self.cold("write")
        self.rate("read, cold", size / 1e6, "MB/s", self.helper("read", file, size, 0)["read"])
        self.cold()
        took = self.helper("overwrite", file, size, writes)
        self.rate("4-byte writes, cold, returned", writes, "writes/s", took["returned"])
        self.rate("4-byte writes, cold, durable", writes, "writes/s", took["durable"])
        self.rate("the same", writes * 4 / 1e6, "MB/s", took["durable"])
        self.cold("4-byte writes")
        self.rate("read after them, cold", size / 1e6, "MB/s", self.helper("read", file, size, writes)["read"])
        self.cold()
        moved = self.fs.dir / "moved"
        took = self.helper("rename", file, moved, SYNCED_RENAMES, "each")
        self.rate("rename with fsync, cold", SYNCED_RENAMES, "renames/s", took["durable"])
        self.cold()
        self.names(["moved"])
        seconds, _ = self.timed("rm", moved, durable=True)
        self.rate("unlink, cold, durable", 1, "files/s", seconds)
        self.cold("unlink")
        self.names([])

    def tree(self):
        source, tree, copy = self.source, self.fs.dir / "tree", self.fs.dir / "copy"
        read_once(source.tar)
        seconds, _ = self.timed("tar", "-xf", source.tar, "-C", self.fs.dir, durable=True)
        self.rate("tar -x, durable", source.files, "files/s", seconds)
        self.cold("tar -x")
        self.find(tree, source.files, "-name", "*", found=source.files)
        self.cold()
        self.find(tree, source.files, "-size", "+1023c", found=source.large_files)
        self.cold()
        seconds, _ = self.timed("grep", "-rF", ABSENT, tree, status=1)
        self.rate("grep -r, cold", source.files, "files/s", seconds)
        self.cold()
        seconds, _ = self.timed("cp", "-a", tree, copy, durable=True)
        self.rate("cp -a, cold, durable", source.files, "files/s", seconds)
        self.cold("cp -a")
        source.compare(copy)
        source.compare(tree)
        self.cold()
        moved, inner = self.fs.dir / "moved", copy / "inner"
        took = self.helper("rename", tree, moved, SYNCED_RENAMES, "each")
        self.rate("rename with fsync, cold", SYNCED_RENAMES, "renames/s", took["durable"])
        took = self.helper("rename", moved, tree, RENAMES, "end")
        self.rate("rename, durable", RENAMES, "renames/s", took["durable"])
        took = self.helper("rename", tree, inner, RENAMES, "end")
        self.rate("rename across directories, durable", RENAMES, "renames/s", took["durable"])
        self.cold("renames")
        self.names(["copy"])
        source.compare(inner)
        call("mv", inner, tree)
        self.cold()
        seconds, _ = self.timed("rm", "-rf", tree, durable=True)
        self.rate("rm -rf, cold, durable", source.files, "files/s", seconds)
        self.cold("rm -rf")
        self.names(["copy"])
        source.compare(copy)

    def moves(self):
        """Renames files and directories of growing sizes to another directory, each once, with an fsync."""
        here, there = self.fs.dir / "here", self.fs.dir / "there"
        here.mkdir()
        there.mkdir()
        parent = os.open(there, os.O_RDONLY | os.O_DIRECTORY)
        for kind in ("file", "directory"):
            for kib in MOVED_KIB:
                names = [f"{kind} {kib} {number}" for number in range(MOVED)]
                for name in names:
                    self.fill(here / name, kind, kib << 10)
                self.fs.settle()
                seconds = []
                for name in names:
                    start = time.monotonic()
                    os.rename(here / name, there / name)
                    os.fsync(parent)
                    seconds.append(time.monotonic() - start)
                self.add(f"{kind} of {kib} KiB, median", "us", statistics.median(seconds) * 1e6, None)
        os.close(parent)

    def fill(self, path, kind, size):
        """Makes a file of this size, or a directory with as much in files of at most 64 KiB."""
        if kind == "directory":
            path.mkdir()
            for at in range(0, size, PIECE):
                self.fill(path / f"{at:012}", "file", min(PIECE, size - at))
            return
        with open(path, "wb") as file:
            for at in range(0, size, MIB):
                file.write(os.urandom(min(MIB, size - at)))

    def clones(self):
        """The directory clone of BetrFS 0.5: 8 directories of 8 files of 4 MiB; a clone of the last clone, 16 bytes into
        each of its files, and a grep of it, cold; eight rounds."""
        last = self.fs.dir / "0"
        for number in range(64):
            (last / str(number // 8)).mkdir(parents=True, exist_ok=True)
            self.fill(last / str(number // 8) / str(number % 8), "file", 4 * MIB)
        self.cold()
        for number in range(1, 9):
            clone = self.fs.dir / str(number)
            source, target = (f"/{last.name}", f"/{clone.name}") if self.fs.name == "betr" else (last, clone)
            before = self.fs.disk_bytes()
            seconds, _ = self.timed(*self.fs.clones, source, target, durable=True)
            self.add(f"round {number}: clone, durable", "ms", seconds * 1e3, None)
            for file in sorted(filter(Path.is_file, clone.rglob("*"))):
                with open(file, "r+b") as opened:
                    opened.seek(2 * MIB + 5)
                    opened.write(b"a few other byte")
            self.cold()
            self.add(f"round {number}: growth", "KiB", (self.fs.disk_bytes() - before) / 1024, None)
            seconds, _ = self.timed("grep", "-rF", ABSENT, clone, status=1)
            self.add(f"round {number}: grep, cold", "ms", seconds * 1e3, None)
            last = clone

    def git(self):
        source, clone = self.source, self.fs.dir / "clone"
        repository = source.repository()
        for file in filter(Path.is_file, repository.rglob("*")):
            read_once(file)
        seconds, _ = self.timed("git", "clone", "-q", "--no-hardlinks", repository, clone, durable=True)
        self.rate("git clone, durable", source.files, "files/s", seconds)
        self.cold("git clone")
        seconds, out = self.timed("git", "status", "--porcelain", cwd=clone)
        expect(out, "", f"{self.fs.name}: git status of a fresh clone")
        self.rate("git status, cold", source.files, "files/s", seconds)
        self.cold()
        source.compare(clone / "tree")


WORKLOADS = {
    "small": (Bench.small, lambda o: f"{o.files:,} files of {FILE_BYTES} bytes, {o.threads} threads"),
    "large": (Bench.large, lambda o: f"a file of {o.large_bytes // MIB:,} MiB, {o.writes:,} writes of 4 bytes"),
    "tree": (Bench.tree, lambda o: f"a source tree of {o.tree_files:,} files"),
    "moves": (Bench.moves, lambda o: "renames to another directory, each with an fsync"),
    "clones": (Bench.clones, lambda o: "8 directories of 8 files of 4 MiB, cloned eight times, 16 bytes into each file"),
    "git": (Bench.git, lambda o: f"a repository of that tree of {o.tree_files:,} files"),
}
