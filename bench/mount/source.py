"""A source tree, in the forms in which it comes into a file system."""

import hashlib
import io
import os
import shutil
import tarfile
from pathlib import Path

from programs import Failure, call


def read_once(path):
    with open(path, "rb") as file:
        while file.read(1 << 20):
            pass


class Source:
    """A tar archive of the tree, and what is needed for checking what becomes of it."""

    def __init__(self, options, work):
        self.work, self.tar, self.sums = work, work / "tree.tar", work / "tree.sha256"
        self.files = self.large_files = self.bytes = 0
        self.wanted = options.tree_files
        sums = []
        with tarfile.open(self.tar, "w", format=tarfile.GNU_FORMAT) as tar:
            while self.files < self.wanted:
                before, copy = self.files, f"tree/{self.files}"
                for number, root in enumerate(options.tree):
                    self.add(tar, Path(root).expanduser(), f"{copy}/{number}", sums)
                if self.files == before:
                    raise Failure(f"no files in {', '.join(options.tree)}: give a source tree with --tree")
        self.sums.write_text("".join(sums))
        with open(self.tar, "rb") as tar:
            os.fsync(tar.fileno())

    def add(self, tar, root, prefix, sums):
        """Adds files until there are enough, and the sums of some."""
        for directory, names, files in os.walk(root):
            # A repository inside of a repository would not be cloned.
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
        """Compares a sample of the files of a tree that was made of this."""
        call("sha256sum", "--check", "--quiet", "--strict", self.sums, cwd=directory)

    def repository(self):
        """A bare repository of the tree, in one pack that git need not compress; it is made when it is first needed."""
        bare, tree = self.work / "tree.git", self.work / "unpacked"
        if not bare.exists():
            tree.mkdir()
            call("tar", "-xf", self.tar, "-C", tree)
            git = ["git", "-c", "core.compression=0", "-c", "core.autocrlf=false", "-c", "user.name=bench",
                   "-c", "user.email=bench@localhost", "-c", "gc.auto=0", f"--git-dir={bare}", f"--work-tree={tree}"]
            call("git", "init", "-q", "--bare", bare)
            # No file may be ignored or converted because a file of the tree says so.
            (bare / "info" / "attributes").write_text("* -text -filter -ident -working-tree-encoding\n")
            call(*git, "add", "--all", "--force", cwd=tree)
            call(*git, "commit", "-q", "-m", "tree", cwd=tree)
            call(*git, "repack", "-q", "-a", "-d", "--window=0")
            shutil.rmtree(tree)
        return bare
