"""Runs programs. A program that fails or hangs raises Failure."""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

# Locale and git configuration of the user must change neither times nor checkouts.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {
    "PATH": os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/local/sbin:/usr/sbin:/sbin",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Failure(Exception):
    """A program or a comparison failed. Nothing is reported of that experiment on that system."""


class Limit:
    """The number of seconds after which a program counts as hanging."""

    seconds = 900


def call(*command, limit=None, cwd=None, status=0, stdin=None, stdout=None):
    """Runs a program and returns what it prints. `stdin` and `stdout` are files, if given."""
    limit = limit or Limit.seconds
    words = [str(word) for word in command]
    # Files instead of pipes: a daemon that the program starts would keep a pipe open.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(
            words, cwd=cwd, env=ENVIRONMENT, stdin=stdin or subprocess.DEVNULL, stdout=stdout or out, stderr=errors,
            start_new_session=True,
        )
        try:
            wait_for(child, limit)
        except BaseException:
            # No wait after the kill: a process that waits for a FUSE daemon ends only with the mount.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            raise
        out.seek(0)
        errors.seek(0)
        if child.returncode != status:
            said = errors.read() or out.read()
            raise Failure(f"{' '.join(words)}: exit code {child.returncode}\n{said[:2000]}".rstrip())
        return out.read()


def wait_for(child, limit):
    """Returns as soon as the child has ended. Popen.wait polls every 50 ms when it has a limit, which would be measured."""
    descriptor = os.pidfd_open(child.pid)
    try:
        if not select.select([descriptor], [], [], limit)[0]:
            raise Failure(f"{' '.join(child.args)}: still running after {limit} s")
    finally:
        os.close(descriptor)
    child.wait()


def load(*programs):
    """Brings programs into the page cache, from which drop_caches evicts them. Loading is not part of what is measured."""
    for program in programs:
        path = shutil.which(program, path=ENVIRONMENT["PATH"])
        if path:
            with open(path, "rb") as file:
                while file.read(1 << 20):
                    pass


def wait_until(condition, what, limit=None):
    """Polls every 5 ms, because the wait is part of measured times."""
    limit = limit or Limit.seconds
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise Failure(f"{what}: not within {limit} s")
        time.sleep(0.005)


@contextlib.contextmanager
def undisturbed():
    """Blocks signals until the block ends."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def expect(found, wanted, what):
    if found != wanted:
        raise Failure(f"{what}: found {str(found)[:500]}, expected {str(wanted)[:500]}")
