"""Ages a file system as a developer does: clones an early state of a repository with a history (--history), then
pulls the rest in steps; after each pull a build removes the object files of a fifth of all sources and makes new
ones, of seeded random sizes from 1 to 512 KiB. In between, and at the end, the working directory is searched by grep,
cold: the curve is by the number of commits so far. Then find, grep, tar and git status of the aged tree, and the same of a
*fresh* copy, which is unpacked from that archive into an empty file system. Both have the same contents, as tar
confirms."""

import random

from ..programs import call, expect
from . import MOUNTS

TITLE = "Aged by the history of a repository"
PAPER = "thesis, aged file systems: directory operations, git, tar"
KINDS = MOUNTS
PROGRAMS = ("git",)
RUNS_MAX = 1
PULLS, MEASURED_APART = 48, 8
BUILT, KIB_MIN, KIB_MAX = 0.2, 1, 512
# 768 MiB, of which a sixth is in use at the end (a third in the thesis): all builds together write 1 GB, so space is reused.
IMAGE_BYTES = 768 << 20
SUFFIXES = (".rs", ".c", ".h", ".py", ".go", ".cpp", ".md", ".snap", ".toml")


def sizes(options):
    return f"{pulls(options)} pulls, each with a build, in an image of {IMAGE_BYTES >> 20} MiB"


def pulls(options):
    return options.sized(PULLS, 4)


def room(options):
    return IMAGE_BYTES


class Project:
    """A clone of the repository with a directory of object files."""

    def __init__(self, bench, history, directory):
        self.bench, self.history, self.dir, self.objects = bench, history, directory, {}
        self.random = random.Random(1)
        self.pool = self.random.randbytes(2 * KIB_MAX << 10)
        call("git", "clone", "-q", "--no-hardlinks", "--no-tags", "--single-branch", history.git, directory)
        (directory / ".git" / "info" / "exclude").write_text("/objects/\n")

    def pull(self, tag):
        call("git", "pull", "-q", "--ff-only", "--no-tags", self.history.git, f"refs/tags/{tag}", cwd=self.dir)

    def build(self, round_number):
        """Replaces object files of random sources, and those of sources that are gone."""
        sources = [path for path in call("git", "ls-files", cwd=self.dir).splitlines() if path.endswith(SUFFIXES)]
        chosen = {path for path in sources if path not in self.objects or self.random.random() < BUILT}
        for path in sorted(chosen | (set(self.objects) - set(sources))):
            if path in self.objects:
                self.objects.pop(path).unlink()
            if path in chosen:
                file = self.dir / "objects" / f"{path}.{round_number}.o"
                file.parent.mkdir(parents=True, exist_ok=True)
                size = int(1024 * KIB_MIN * (KIB_MAX / KIB_MIN) ** self.random.random())
                at = self.random.randrange(len(self.pool) - size)
                file.write_bytes(self.pool[at : at + size])
                self.objects[path] = file


def tree_bytes(directory):
    return sum(map(int, call("find", directory, "-type", "f", "-printf", "%s\n").split()))


def look(bench, directory, name):
    """Times find, grep and tar of a tree, cold. The archive goes to the host."""
    size, files = tree_bytes(directory), len(call("find", directory, "-type", "f", "-printf", "."))
    bench.cold()
    bench.rate(f"find, {name}, cold", files, "files/s", bench.find(directory, "-name", "*", found=files))
    bench.cold()
    bench.rate(f"grep, {name}, cold", size / 1e6, "MB/s", bench.grep(directory))
    bench.cold()
    archive = bench.fs.work / f"{name}.tar"
    seconds, _ = bench.timed("tar", "--sort=name", "-cf", archive, "-C", directory.parent, directory.name)
    bench.rate(f"tar, {name}, cold", size / 1e6, "MB/s", seconds)
    call("sync", "-f", archive)
    # The index has inode numbers and times of files. Where those are new, status would read all contents.
    call("git", "update-index", "-q", "--refresh", cwd=directory)
    bench.cold()
    seconds, out = bench.timed("git", "status", "--porcelain", cwd=directory)
    expect(out, "", f"{bench.fs.name}: git status, {name}")
    bench.rate(f"git status, {name}, cold", files, "files/s", seconds)
    return archive


def measure(bench):
    fs, history = bench.fs, bench.inputs.history(pulls(bench.options))
    project = Project(bench, history, fs.dir / "project")
    project.build(0)
    for number, (commits, tag) in enumerate(history.pulls):
        if number > 0:
            project.pull(tag)
            project.build(number)
        apart = max(1, min(MEASURED_APART, (len(history.pulls) - 1) // 4))
        if number % apart == 0:
            bench.cold()
            seconds = bench.grep(project.dir)
            bench.rate("grep by age, cold", tree_bytes(project.dir) / 1e6, "MB/s", seconds, "commits", commits)
    aged = look(bench, project.dir, "aged")
    bench.add("growth of the aged image", "MB", fs.end() / 1e6)
    fs.begin()
    call("tar", "-xf", aged, "-C", fs.dir)
    fresh = look(bench, fs.dir / "project", "fresh")
    call("cmp", aged, fresh)
    aged.unlink()
    fresh.unlink()
