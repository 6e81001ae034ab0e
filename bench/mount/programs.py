"""Running programs, none of which may fail or hang unnoticed."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time

# Neither a locale nor somebody's git may decide how long a comparison takes, or what a checkout is like.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {
    "PATH": os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/local/sbin:/usr/sbin:/sbin",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Failure(Exception):
    """What ends the run: of a file system that fails nothing is reported."""


class Limit:
    """How many seconds anything may take; more is a failure, too."""

    seconds = 900


def call(*command, limit=None, cwd=None, status=0):
    """Runs a program and returns what it prints."""
    limit = limit or Limit.seconds
    words = [str(word) for word in command]
    # Files and no pipes, the other ends of which a daemon would keep open that a program leaves behind.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(
            words, cwd=cwd, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, start_new_session=True
        )
        try:
            child.wait(limit)
        except BaseException as stop:
            # It is not waited for: who waits for a FUSE daemon can't be killed before the mount is gone.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            if isinstance(stop, subprocess.TimeoutExpired):
                raise Failure(f"{' '.join(words)}: no end after {limit} s") from None
            raise
        out.seek(0)
        errors.seek(0)
        if child.returncode != status:
            said = errors.read() or out.read()
            raise Failure(f"{' '.join(words)}: exit code {child.returncode}\n{said}".rstrip())
        return out.read()


def wait_until(condition, what, limit=None):
    """Polls, often enough for a time that is measured with it."""
    limit = limit or Limit.seconds
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise Failure(f"{what}: not within {limit} s")
        time.sleep(0.005)


@contextlib.contextmanager
def undisturbed():
    """Signals wait until this is done."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def expect(found, wanted, what):
    if found != wanted:
        raise Failure(f"{what}: {found}, but it should be {wanted}")
