"""What an experiment uses: sizes by the scale, timed programs, cold caches, and samples."""

import sys
import time

from .programs import call, expect, load
from .results import Sample, show

# A string that no source file contains, this one included: grep reads everything and finds nothing.
ABSENT = "-".join(["absent", "5d0c93b17e2f", "a4c86b90"])


class Bench:
    """Measures one experiment on one system in one run."""

    def __init__(self, experiment, fs, options, inputs, run, samples):
        self.experiment, self.fs, self.options, self.inputs = experiment, fs, options, inputs
        self.run, self.samples = run, samples

    def add(self, step, unit, value, axis=None, x=None):
        self.samples.append(Sample(self.experiment, step, unit, self.fs.name, self.run, value, axis, x))
        if axis is None:
            print(f"{self.experiment:<10} {self.fs.name:<9} {step:<44} {show(value):>10} {unit}", file=sys.stderr)

    def rate(self, step, amount, unit, seconds, axis=None, x=None):
        self.add(step, unit, amount / seconds, axis, x)

    def curve(self, step, unit, axis, took):
        """Adds the cumulative rate at each point that the helper printed."""
        for count in filter(str.isdigit, took):
            self.rate(step, int(count), unit, took[count], axis, int(count))

    def cold(self, after=None):
        """Empties all caches. `after` names a row for the seconds of unmount and write-back, which have no ratios: they are
        few milliseconds more often than not."""
        seconds = self.fs.cold()
        if after:
            self.add(f"after {after}", "s unmounting", seconds)

    def helper(self, *command):
        """What a command of the helper measured, in seconds."""
        lines = call(self.fs.work / "helper", *command).splitlines()
        return {name: float(seconds) for name, seconds in map(str.split, lines)}

    def timed(self, *command, durable=False, **others):
        """The seconds that a program takes, and what it prints. `durable` includes the time until all is on the disk."""
        load(command[0])
        # Its libraries.
        call(command[0], "--version")
        self.fs.settle()
        start = time.monotonic()
        out = call(*command, **others)
        if durable:
            self.fs.settle()
        return time.monotonic() - start, out

    def grep(self, directory):
        """The seconds of a grep that finds nothing."""
        return self.timed("grep", "-rF", ABSENT, directory, status=1)[0]

    def find(self, directory, *test, found):
        """The seconds of a find, whose matches are counted."""
        seconds, out = self.timed("find", directory, "-type", "f", *test, "-printf", ".")
        expect(len(out), found, f"{self.fs.name}: files found in {directory.name}")
        return seconds

    def names(self, wanted):
        """Compares the names in the root directory."""
        found = set(call("ls", "-A", self.fs.dir).split()) - {"lost+found", "anchor"}
        expect(found, set(wanted), f"{self.fs.name}: names in the root directory")

    def untar(self, tree):
        """Unpacks the source tree, untimed, and makes the file system cold."""
        call("tar", "-xf", tree.tar, "-C", self.fs.dir)
        self.cold()
        return self.fs.dir / "tree"
