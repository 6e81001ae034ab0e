"""The command line of the suite."""

import argparse
import os
from pathlib import Path

from . import experiments
from .programs import Limit
from .systems import SYSTEMS

BENCH = Path(__file__).resolve().parent.parent
ROOT = BENCH.parent
# tar is a baseline of one experiment.
COLUMNS = (*SYSTEMS, "tar")

DESCRIPTION = """Runs experiments of the BetrFS papers with betr, by its tools and mounted, and with ext4, xfs, btrfs and
bindfs. Writes REPORT.md and plots.

    apt install bindfs btrfs-progs e2fsprogs gcc git rsync xfsprogs
    cargo build --release -p betr -p betr-bench && sudo bench/run --json results.json
    sudo bench/run --scale 0.02 --runs 1 --out /var/tmp/bench     everything, in minutes
    sudo bench/run rename clone --only betr,xfs --runs 5          two experiments, two systems
    bench/run --from results.json                                 the report again

It needs root for mounts, loop devices and dropping caches. All images are in one temporary directory, which is unmounted
and removed at the end, also after a failure or a signal other than SIGKILL."""


class Options(argparse.Namespace):
    """The options, and sizes that follow from the scale."""

    def sized(self, size, least=1, multiple=1):
        """A size at the scale, rounded to a multiple."""
        return max(least, round(size * self.scale / multiple) * multiple)

    def runs_of(self, module):
        return min(self.runs, getattr(module, "RUNS_MAX", self.runs))


def parse():
    parser = argparse.ArgumentParser(
        prog="run", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("experiments", nargs="*", metavar="EXPERIMENT", help="what to run (everything)")
    add("--list", action="store_true", help="list the experiments and end")
    add("--only", default=",".join(COLUMNS), help="systems, a list (%(default)s)")
    add("--scale", type=float, default=1.0, help="factor of all sizes and counts (%(default)s)")
    add("--runs", type=int, default=3, help="runs of each experiment, fewer for long ones (%(default)s)")
    directory = os.environ.get("TMPDIR", "/var/tmp")
    add("--dir", type=Path, default=directory, help="on a real disk; TMPDIR sets the default (%(default)s)")
    add("--out", type=Path, default=BENCH, help="the directory of REPORT.md and plots/ (bench)")
    add("--json", type=Path, help="write all samples to this file, after each experiment")
    add("--from", type=Path, dest="source", metavar="JSON", help="measure nothing; write the report of these samples")
    add("--history", type=Path, default=ROOT, help="the repository whose history ages file systems (this one)")
    add("--tree", help="directories of sources, a list (~/.cargo/registry/src,/usr/include)")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
    add("--target", type=Path, default=target, help="where betr, plots, moves, operations and holds are (target/release)")
    add("--threads", type=int, default=os.cpu_count(), help="threads that create files (as many as processors)")
    add("--limit", type=int, default=Limit.seconds, help="seconds that a program may take (%(default)s)")
    options = parser.parse_args(namespace=Options())
    options.experiments = options.experiments or list(experiments.NAMES)
    options.only = options.only.split(",")
    for given, known in ((options.only, COLUMNS), (options.experiments, experiments.NAMES)):
        if unknown := [name for name in given if name not in known]:
            parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
    if options.scale <= 0 or options.runs < 1:
        parser.error("--scale and --runs must be above 0")
    # The sources of the user who built betr, not those of root.
    cargo = os.environ.get("CARGO_HOME", f"~{os.environ.get('SUDO_USER', '')}/.cargo")
    options.tree = (options.tree or f"{cargo}/registry/src,/usr/include").split(",")
    options.target, options.dir, options.out = (path.resolve() for path in (options.target, options.dir, options.out))
    options.betr = options.target / "betr"
    return options
