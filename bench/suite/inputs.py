"""The inputs of experiments: a source tree, a repository of it, and a repository with a history. Each is made when needed."""

import functools
import hashlib
import io
import os
import tarfile
from pathlib import Path

from .programs import Failure, call

# No file may be ignored or converted because a file of the tree says so.
ATTRIBUTES = "* -text -filter -ident -working-tree-encoding\n"


def read_once(path):
    """Brings a file, or all files of a directory, into the page cache."""
    for each in [path] if path.is_file() else filter(Path.is_file, path.rglob("*")):
        with open(each, "rb") as file:
            while file.read(1 << 20):
                pass


class Tree:
    """A tar archive of a source tree, an unpacked copy of it, and the sums of some of its files."""

    def __init__(self, roots, work, wanted):
        self.wanted, self.dir = wanted, work / f"unpacked-{wanted}"
        self.tar, self.sums, self.git = (work / f"tree-{wanted}.{suffix}" for suffix in ("tar", "sha256", "git"))
        self.files = self.large_files = self.bytes = 0
        sums = []
        with tarfile.open(self.tar, "w", format=tarfile.GNU_FORMAT) as tar:
            while self.files < self.wanted:
                before, copy = self.files, f"tree/{self.files}"
                for number, root in enumerate(roots):
                    self.add(tar, Path(root).expanduser(), f"{copy}/{number}", sums)
                if self.files == before:
                    raise Failure(f"no files in {', '.join(roots)}: give a source tree with --tree")
        self.sums.write_text("".join(sums))
        with open(self.tar, "rb") as tar:
            os.fsync(tar.fileno())

    def add(self, tar, root, prefix, sums):
        """Adds files until there are enough, and the sums of 500 of them."""
        for directory, names, files in os.walk(root):
            # git clone would leave out a repository inside of a repository.
            names[:] = sorted(set(names) - {".git"})
            below = Path(prefix, Path(directory).relative_to(root))
            for name in sorted(files):
                if self.files == self.wanted:
                    return
                info = tar.gettarinfo(Path(directory, name), str(below / name))
                # Links and special files are left out.
                if info is None or not info.isreg() or name == ".git":
                    continue
                content = Path(directory, name).read_bytes()
                info.size, info.mode, info.uid, info.gid = len(content), 0o644, 0, 0
                tar.addfile(info, io.BytesIO(content))
                if self.files % (self.wanted // 500 + 1) == 0:
                    sums.append(f"{hashlib.sha256(content).hexdigest()}  {Path(below, name).relative_to('tree')}\n")
                self.files += 1
                self.large_files += info.size > 1023
                self.bytes += info.size

    def compare(self, directory):
        """Counts the files of a copy of the tree, and compares some of them."""
        found = call("find", directory, "-type", "f", "-printf", ".")
        if len(found) != self.files:
            raise Failure(f"{directory} has {len(found)} files, expected {self.files}")
        call("sha256sum", "--check", "--quiet", "--strict", self.sums, cwd=directory)

    def unpacked(self):
        """The tree as a directory of the host."""
        if not self.dir.exists():
            self.dir.mkdir()
            call("tar", "-xf", self.tar, "-C", self.dir)
            call("sync", "-f", self.dir)
        return self.dir / "tree"

    def repository(self):
        """A bare repository of the tree, in one pack that git need not compress."""
        if not self.git.exists():
            tree = self.unpacked().parent
            git = ["git", "-c", "core.compression=0", "-c", "core.autocrlf=false", "-c", "user.name=bench",
                   "-c", "user.email=bench@localhost", "-c", "gc.auto=0", f"--git-dir={self.git}", f"--work-tree={tree}"]
            call("git", "init", "-q", "--bare", self.git)
            (self.git / "info" / "attributes").write_text(ATTRIBUTES)
            call(*git, "add", "--all", "--force", cwd=tree)
            call(*git, "commit", "-q", "-m", "tree", cwd=tree)
            call(*git, "repack", "-q", "-a", "-d", "--window=0")
            call("sync", "-f", self.git)
        return self.git


class History:
    """A bare clone of a repository. `pulls` are tags from its first to its last commit, evenly spaced."""

    def __init__(self, repository, work, pulls):
        self.git = work / f"history-{pulls}.git"
        call("git", "clone", "-q", "--bare", "--no-hardlinks", repository, self.git)
        git = ("git", f"--git-dir={self.git}")
        commits = call(*git, "rev-list", "--reverse", "--first-parent", "HEAD").split()
        if len(commits) < 4:
            raise Failure(f"{repository} has {len(commits)} commits: give another --history")
        pulls = min(pulls, len(commits) - 1)
        # The clone starts at a tenth of the history; the last pull brings the newest commit.
        first = len(commits) // 10
        numbers = [first + (len(commits) - 1 - first) * pull // pulls for pull in range(pulls + 1)]
        self.pulls = []
        for number in numbers:
            call(*git, "tag", f"pull-{number}", commits[number])
            self.pulls.append((number + 1, f"pull-{number}"))
        # git clone takes the state that HEAD names.
        call(*git, "branch", "-f", "start", self.pulls[0][1])
        call(*git, "symbolic-ref", "HEAD", "refs/heads/start")
        call("sync", "-f", self.git)


class Inputs:
    """Makes each input once."""

    def __init__(self, options, work):
        self.options, self.work = options, work

    @functools.cache
    def tree(self, files):
        return Tree(self.options.tree, self.work, files)

    @functools.cache
    def small_files(self, files, size):
        """A directory of the host with a balanced tree of small files."""
        directory = self.work / f"small-{files}"
        helper = self.work / "helper"
        call(helper, "tree", directory, files)
        call(helper, "create", directory, files, size, self.options.threads)
        call("sync", "-f", directory)
        return directory

    @functools.cache
    def history(self, pulls):
        return History(self.options.history, self.work, pulls)
