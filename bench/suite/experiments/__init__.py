"""The experiments, in the order of the report. Each is a module:

- its docstring says what it does, and becomes the text of the report;
- `TITLE` and `PAPER` are its heading and the section that it repeats, of BetrFS 0.2 (FAST 2016) or of the chapter
  Evaluation of the thesis on range rename and range clone;
- `sizes(options)` says how much it does at this scale, `room(options)` how many bytes that takes in an image;
- `measure(bench)` runs it on one mounted system that begins empty;
- `KINDS` are the systems that it compares, `RUNS_MAX` limits the runs of a long one, `PROGRAMS` are what it calls;
- `systems(options, work)`, if any, makes its own systems, `BASELINE` is then the column that ratios are of;
- `IMAGE_BYTES` is the size of its images, if it is not 16 GiB;
- `MOUNTED = False` leaves making and mounting to the experiment.
"""

import importlib

NAMES = (
    "zones", "rename", "sequential", "random", "unlink", "tokubench", "tree", "clone", "git", "tar", "rsync", "mail",
    "tools", "build", "check", "aged", "filled", "library",
)
KERNEL = ("ext4", "xfs", "btrfs")
MOUNTS = ("betr", *KERNEL)
WITH_FUSE = (*MOUNTS, "bindfs")


def load(name):
    return importlib.import_module(f"{__name__}.{name}")
