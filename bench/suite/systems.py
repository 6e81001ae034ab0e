"""The systems that are compared: how each is made, mounted, made cold, checked and removed."""

import contextlib
import fcntl
import glob
import os
import signal
import subprocess
import time
from pathlib import Path

from .programs import ENVIRONMENT, Failure, Limit, call, expect, load, wait_until

GIB = 1 << 30
# 16 GiB, sparse: file systems choose their usual structures at this size.
IMAGE_BYTES = 16 * GIB


def is_mounted(directory):
    """Reads the kernel's list of mounts: a mount that hangs does not answer stat(2)."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return str(directory) in (line.split()[4] for line in mounts)


def drop_caches():
    Path("/proc/sys/vm/drop_caches").write_text("3\n")


class System:
    """A file system that is mounted at `dir`. If it has an image, the image is the file `image`.

    `name` is the column of the tables. `kind` is what --only selects."""

    has_image = True
    programs = ()
    # Drivers in the kernel are always in memory; the program of a FUSE daemon is loaded before the mount.
    daemons = ()
    mount_options = "noatime"

    def __init__(self, options, work, name=None):
        self.options, self.work, self.new_bytes = options, work, 0
        self.name, self.image_bytes = name or self.kind, IMAGE_BYTES
        self.dir, self.image = work / "mnt", work / f"{self.kind}.img"
        self.anchor = self.dir / "anchor"

    def begin(self):
        """Makes an empty file system and mounts it. The anchor is a file for fsync (see settle)."""
        self.make()
        self.new_bytes = self.disk_bytes()
        self.mount()
        call("touch", self.anchor)

    def mount(self):
        load(*self.daemons)
        self.do_mount()
        if not is_mounted(self.dir):
            raise Failure(f"{self.name}: nothing is mounted")

    def unmount(self):
        """Returns when the loop device is detached or the daemon has ended."""
        call("umount", self.dir)
        self.wait_for_end()

    def sync_image(self):
        if self.has_image:
            with open(self.image, "rb") as image:
                os.fsync(image.fileno())

    def cold(self):
        """Empties all caches. Returns the seconds of unmount and write-back of the image."""
        start = time.monotonic()
        self.unmount()
        self.sync_image()
        seconds = time.monotonic() - start
        drop_caches()
        self.mount()
        return seconds

    def settle(self):
        call(self.work / "helper", "settle", self.dir, self.anchor)

    def disk_bytes(self):
        """Disk space of the image. It is exact while nothing is mounted."""
        return self.image.stat().st_blocks * 512 if self.has_image else 0

    def end(self):
        """Unmounts, checks the image with its own checker, and removes it. Returns how much it has grown."""
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
        """Unmounts and removes whatever is left. umount --force ends requests that a hanging daemon does not answer."""
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


class Kernel(System):
    """A kernel file system in an image on a loop device."""

    clones = ("cp", "-r", "--reflink=auto")
    mount_options = "loop,noatime"

    def version(self):
        printed = subprocess.run([self.maker[0], "-V"], env=ENVIRONMENT, capture_output=True, text=True, check=True)
        return (printed.stdout + printed.stderr).splitlines()[0]

    def make(self):
        with open(self.image, "xb") as image:
            image.truncate(self.image_bytes)
        call(*self.maker, self.image)

    def do_mount(self):
        call("mount", "-t", self.kind, "-o", self.mount_options, self.image, self.dir)

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
    kind = "ext4"
    programs = ("mkfs.ext4", "e2fsck", "losetup")
    # Lazy initialisation would run in the background of the measurements.
    maker = ("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0")
    checker = ("e2fsck", "-fn")


class Xfs(Kernel):
    kind = "xfs"
    programs = ("mkfs.xfs", "xfs_repair", "losetup")
    maker = ("mkfs.xfs", "-q")
    checker = ("xfs_repair", "-n")


class Btrfs(Kernel):
    kind = "btrfs"
    programs = ("mkfs.btrfs", "btrfs", "losetup")
    maker = ("mkfs.btrfs", "-q")
    # No -q: btrfs-progs 6.2 prints its usage for it, and ends with 0.
    checker = ("btrfs", "check")


class Betr(System):
    """A betr image in a FUSE mount. `zones` is the argument of mkfs --zone-size, if it is not the default."""

    kind = "betr"
    # The cache of 256 MiB is the default of betr mount.
    mount_options = "noatime,cache=256M"

    def __init__(self, options, work, name=None, zones=None):
        super().__init__(options, work, name)
        self.betr = options.betr
        self.daemons = (options.betr,)
        self.mkfs_options = ("--zone-size", zones) if zones else ()

    @property
    def clones(self):
        return (self.betr, "clone", self.dir)

    def version(self):
        return call(self.betr, "--version").strip()

    def make(self):
        call(self.betr, "mkfs", "-q", *self.mkfs_options, self.image, self.image_bytes)

    def do_mount(self):
        call(self.betr, "mount", "-o", self.mount_options, self.image, self.dir)

    def is_free(self):
        """Whether the daemon has ended. It locks the image while it runs."""
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
        """Kills a daemon that does not end: no other program has this image open."""
        try:
            wait_until(lambda: not self.image.exists() or self.is_free(), "the end of the daemon", 30)
        except Failure:
            for link in glob.glob("/proc/[0-9]*/fd/*"):
                with contextlib.suppress(OSError):
                    if os.readlink(link) == str(self.image):
                        os.kill(int(link.split("/")[2]), signal.SIGKILL)


class Bindfs(System):
    """A pass-through to tmpfs: the cost of FUSE alone."""

    kind = "bindfs"
    programs = daemons = ("bindfs",)
    clones = ("cp", "-r")
    has_image = False
    mount_options = "multithreaded, over tmpfs with noatime"

    def __init__(self, options, work, name=None):
        super().__init__(options, work, name)
        self.below, self.daemon = work / "tmpfs", None

    def version(self):
        return f"{call('bindfs', '--version').strip()} (FUSE {self.fuse()})"

    def fuse(self):
        return call("bindfs", "--fuse-version").split()[-1]

    def make(self):
        self.below.mkdir(exist_ok=True)
        call("mount", "-t", "tmpfs", "-o", f"noatime,nr_inodes=0,size={self.image_bytes}", "tmpfs", self.below)

    def do_mount(self):
        # FUSE 2, as in Debian, writes single pages unless told otherwise; FUSE 3 has no such option.
        big = ["-o", "big_writes"] if self.fuse().startswith("2.") else []
        # In the foreground, as a child that can be waited for.
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


SYSTEMS = {kind.kind: kind for kind in (Betr, Ext4, Xfs, Btrfs, Bindfs)}
