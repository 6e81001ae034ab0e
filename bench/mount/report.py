"""What was measured, and tables of it."""

import os
import statistics
from dataclasses import dataclass

from programs import call


@dataclass
class Sample:
    """`value` is in `unit`: a rate, or, where there are no seconds, an amount."""

    workload: str
    step: str
    unit: str
    file_system: str
    run: int
    value: float | None
    seconds: float | None


def show(number):
    """With about three digits."""
    if number is None:
        return ""
    digits = 0 if number >= 100 else 1 if number >= 10 else 2 if number >= 0.1 else 4
    return f"{number:,.{digits}f}"


def median(samples, field):
    numbers = [getattr(sample, field) for sample in samples if getattr(sample, field) is not None]
    return statistics.median(numbers) if numbers else None


def spread(samples):
    """Half of the distance between the best and the worst run, in percent of the median."""
    numbers = [sample.seconds for sample in samples if sample.seconds]
    return 50 * (max(numbers) - min(numbers)) / statistics.median(numbers) if numbers else None


def table(title, samples, names, runs):
    """Medians of all runs. Rows are in the order in which they were first measured."""
    rivals = [name for name in names if name != "betr"] if "betr" in names else []
    head = [title, ""] + [word for name in names for word in (name, "s")] + [f"betr/{rival}" for rival in rivals]
    lines = [head + (["± %"] if runs > 1 else [])]
    for step, unit in dict.fromkeys((sample.step, sample.unit) for sample in samples):
        of = {name: [s for s in samples if (s.step, s.unit, s.file_system) == (step, unit, name)] for name in names}
        value = {name: median(of[name], "value") for name in names}
        line = [step, unit]
        for name in names:
            line += [show(value[name]), show(median(of[name], "seconds"))]
        for rival in rivals:
            line.append(show(value["betr"] / value[rival]) if unit.endswith("/s") else "")
        if runs > 1:
            line.append(show(max(filter(None, map(spread, of.values())), default=None)))
        lines.append(line)
    widths = [max(map(len, column)) for column in zip(*lines)]
    text = ""
    for line in lines:
        words = [*map(str.ljust, line[:2], widths[:2]), *map(str.rjust, line[2:], widths[2:])]
        text += "  ".join(words).rstrip() + "\n"
    return text


def surroundings(options, systems):
    """What a reader has to know of the machine."""
    memory = next(line for line in open("/proc/meminfo") if line.startswith("MemTotal"))
    return {
        "kernel": os.uname().release,
        "processors": os.cpu_count(),
        "memory": " ".join(memory.split()[1:]),
        "disk": " ".join(call("df", "--output=fstype,source", options.dir).split()[-2:]),
        "versions": {system.name: system.version() for system in systems},
    }
