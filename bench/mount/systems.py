"""The file systems: how each is made, mounted, forgotten by all caches, checked, and got rid of."""

import contextlib
import fcntl
import glob
import os
import signal
import subprocess
import time
from pathlib import Path

from programs import ENVIRONMENT, Failure, Limit, call, expect, wait_until


def is_mounted(directory):
    """Asks the kernel's list, and not the file system, which may hang."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return str(directory) in (line.split()[4] for line in mounts)


class FileSystem:
    """One that is mounted at `dir`. Those that have an image have it in the file `image`."""

    has_image = True

    def __init__(self, options, work):
        self.options, self.work, self.new_bytes = options, work, 0
        self.dir, self.image = work / "mnt", work / f"{self.name}.img"
        self.helper, self.anchor = work / "helper", self.dir / "anchor"

    def begin(self):
        """Makes an empty one and mounts it. The anchor is there for fsync, see settle()."""
        self.make()
        self.new_bytes = self.disk_bytes()
        self.mount()
        call("touch", self.anchor)

    def mount(self):
        self.do_mount()
        if not is_mounted(self.dir):
            raise Failure(f"{self.name}: nothing is mounted")

    def unmount(self):
        call("umount", self.dir)
        self.wait_for_end()

    def cold(self):
        """Forgets everything that was cached, and says how long it took until all was in the image."""
        start = time.monotonic()
        self.unmount()
        if self.has_image:
            with open(self.image, "rb") as image:
                os.fsync(image.fileno())
        seconds = time.monotonic() - start
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
        self.mount()
        return seconds

    def settle(self):
        call(self.helper, "settle", self.dir, self.anchor)

    def disk_bytes(self):
        """What the image takes of the disk, all of which is written back when nothing is mounted."""
        return self.image.stat().st_blocks * 512 if self.has_image else 0

    def end(self):
        """Unmounts, has the image checked, and removes it. Returns the bytes by which it has grown."""
        self.unmount()
        grown = self.disk_bytes() - self.new_bytes
        self.check()
        self.remove()
        return grown

    def check(self):
        pass

    def remove(self):
        self.image.unlink(missing_ok=True)

    def clean_up(self):
        """After whatever has happened. Who waits for a daemon that does not answer gets errors from umount --force."""
        try:
            if is_mounted(self.dir):
                with contextlib.suppress(Failure):
                    call("umount", self.dir, limit=30)
            if is_mounted(self.dir):
                call("umount", "--force", "--lazy", self.dir, limit=30)
        finally:
            self.release()
            self.remove()

    def release(self):
        pass


class Kernel(FileSystem):
    """One of the kernel's, in an image on a loop device."""

    clones = ("cp", "-r", "--reflink=auto")

    def version(self):
        printed = subprocess.run([self.maker[0], "-V"], env=ENVIRONMENT, capture_output=True, text=True, check=True)
        return (printed.stdout + printed.stderr).splitlines()[0]

    def make(self):
        with open(self.image, "xb") as image:
            image.truncate(self.options.image_bytes)
        call(*self.maker, self.image)

    def do_mount(self):
        call("mount", "-t", self.name, "-o", "loop,noatime", self.image, self.dir)

    def loops(self):
        return call("losetup", "--noheadings", "--output", "NAME", "--associated", self.image).split()

    def wait_for_end(self):
        wait_until(lambda: not self.loops(), "detaching the loop device")

    def check(self):
        call(*self.checker, self.image)

    def release(self):
        for loop in self.loops() if self.image.exists() else ():
            with contextlib.suppress(Failure):
                call("losetup", "--detach", loop, limit=30)


class Ext4(Kernel):
    name = "ext4"
    programs = ("mkfs.ext4", "e2fsck", "losetup")
    # Otherwise the kernel goes on with that in the background, while something is measured.
    maker = ("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0")
    checker = ("e2fsck", "-fn")


class Xfs(Kernel):
    name = "xfs"
    programs = ("mkfs.xfs", "xfs_repair", "losetup")
    maker = ("mkfs.xfs", "-q")
    checker = ("xfs_repair", "-n")


class Btrfs(Kernel):
    name = "btrfs"
    programs = ("mkfs.btrfs", "btrfs", "losetup")
    maker = ("mkfs.btrfs", "-q")
    checker = ("btrfs", "check", "-q")


class Betr(FileSystem):
    name = "betr"
    programs = ()

    def __init__(self, options, work):
        super().__init__(options, work)
        self.betr = options.betr

    @property
    def clones(self):
        return (self.betr, "clone", self.dir)

    def version(self):
        return call(self.betr, "--version").strip()

    def make(self):
        call(self.betr, "mkfs", "-q", self.image, self.options.image_bytes)

    def do_mount(self):
        call(self.betr, "mount", self.image, self.dir)

    def is_free(self):
        """Whether the daemon has ended: as long as it works it holds a lock on the image."""
        with open(self.image, "rb") as image:
            try:
                fcntl.flock(image, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    def wait_for_end(self):
        wait_until(self.is_free, "the end of the daemon")

    def check(self):
        call(self.betr, "fsck", "-fn", self.image)

    def release(self):
        """Ends a daemon that does not end by itself: nothing else has this image open."""
        try:
            wait_until(lambda: not self.image.exists() or self.is_free(), "the end of the daemon", 30)
        except Failure:
            for link in glob.glob("/proc/[0-9]*/fd/*"):
                with contextlib.suppress(OSError):
                    if os.readlink(link) == str(self.image):
                        os.kill(int(link.split("/")[2]), signal.SIGKILL)


class Bindfs(FileSystem):
    name = "bindfs"
    programs = ("bindfs",)
    clones = ("cp", "-r")
    has_image = False

    def __init__(self, options, work):
        super().__init__(options, work)
        self.below, self.daemon = work / "tmpfs", None

    def version(self):
        return f"{call('bindfs', '--version').strip()} (FUSE {self.fuse()})"

    def fuse(self):
        return call("bindfs", "--fuse-version").split()[-1]

    def make(self):
        self.below.mkdir(exist_ok=True)
        size = self.options.image_bytes
        call("mount", "-t", "tmpfs", "-o", f"noatime,nr_inodes=0,size={size}", "tmpfs", self.below)

    def do_mount(self):
        # FUSE 2, with which Debian has it, writes single pages if it is not told otherwise; FUSE 3 never does.
        big = ["-o", "big_writes"] if self.fuse().startswith("2.") else []
        # In the foreground, where it can be waited for.
        self.daemon = subprocess.Popen(
            ["bindfs", "-f", "--multithreaded", *big, str(self.below), str(self.dir)],
            env=ENVIRONMENT, stdin=subprocess.DEVNULL, start_new_session=True,
        )
        wait_until(lambda: is_mounted(self.dir) or self.daemon.poll() is not None, "the mount of bindfs")

    def wait_for_end(self):
        expect(self.daemon.wait(Limit.seconds), 0, "exit code of bindfs")

    def remove(self):
        if is_mounted(self.below):
            call("umount", self.below)

    def release(self):
        if self.daemon and self.daemon.poll() is None:
            self.daemon.kill()
            self.daemon.wait(30)


FILE_SYSTEMS = {kind.name: kind for kind in (Ext4, Xfs, Btrfs, Betr, Bindfs)}
