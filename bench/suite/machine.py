"""What the report says of the machine and of the versions."""

import datetime
import os
import shutil

from .options import ROOT
from .programs import Failure, call
from .systems import SYSTEMS


def memory(field):
    """A field of /proc/meminfo, in bytes."""
    line = next(line for line in open("/proc/meminfo") if line.startswith(field))
    return int(line.split()[1]) * 1024


def processor():
    lines = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return lines[0] if lines else os.uname().machine


def commit():
    try:
        git = ("git", "-c", "safe.directory=*", "-C", ROOT)
        name = call(*git, "rev-parse", "--short=10", "HEAD").strip()
        return name + (" with changes" if call(*git, "status", "--porcelain", "-uno").strip() else "")
    except Failure:
        return "unknown"


def describe(options, work):
    systems = [SYSTEMS[name](options, work) for name in options.only if name in SYSTEMS]
    # The file system, without the name of its directory.
    disk = call("df", "--output=fstype,source,size", options.dir).splitlines()[-1].split()
    return {
        "kernel": os.uname().release,
        "processors": f"{os.cpu_count()} x {processor()}",
        "memory": f"{memory('MemTotal') / (1 << 30):.1f} GiB",
        "disk": f"images are files on {disk[0]}, {disk[1]}, {int(disk[2]) >> 20} GiB",
        "load": f"{os.getloadavg()[0]:.2f} processes on average in the minute before",
        "commit": commit(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "programs": ", ".join(call(name, "--version").splitlines()[0] for name in ("git", "tar", "grep", "rsync")
                              if shutil.which(name)),
        "versions": {system.kind: system.version() for system in systems},
        "mounts": {system.kind: system.mount_options for system in systems},
    }
