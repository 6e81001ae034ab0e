"""Writes REPORT.md: tables of samples, and the plots that the `plots` program draws of the same samples."""

import inspect
import json
import math
import statistics
import tempfile
from pathlib import Path

from .options import ROOT
from .programs import call
from .results import Sample, ratio, show, show_size, spread

# A curve has at most 8 rows in the table; its plot has all points.
CURVE_ROWS = 8
INTRODUCTION = """\
Written by `bench/run`; [README.md](README.md) describes the suite and what was learned from it.

Each cell is the median of all runs, with the least and the greatest value if there were several. Columns `x/betr` say how
many times as fast betr is as x: above 1 betr is faster. They are made of medians. Amounts (MB, KiB) and
the seconds of unmounting, which pay for what was put off until then, have no such ratio. In plots a point is a median,
and a line through it reaches from the least to the greatest value.

"BetrFS 0.2" is the paper of FAST 2016, "thesis" the chapter Evaluation of the thesis on range rename and range clone.

*Cold*: unmounted, the image written back, the page cache dropped, mounted again. *Durable*: the time includes syncfs and
fsync of a directory and of a file. All images are sparse files on the same disk; contents are compared after each experiment,
and each image is checked by its own checker. A virtual machine changes its speed by a quarter and more from one minute to
the next, so a ratio between 0.8 and 1.25 says little.
"""


def describe(module, options):
    """What the report says of an experiment besides its samples."""
    return {
        "title": module.TITLE,
        "paper": module.PAPER,
        "about": inspect.cleandoc(module.__doc__),
        "sizes": module.sizes(options),
        "runs": options.runs_of(module),
        "baseline": getattr(module, "BASELINE", "betr"),
    }


class Table:
    """The samples of one experiment by row and by column."""

    def __init__(self, samples, baseline):
        self.systems = list(dict.fromkeys(sample.system for sample in samples))
        self.baseline = baseline if baseline in self.systems else None
        if self.baseline:
            self.systems.sort(key=lambda system: system != baseline)
        self.values = {}
        for sample in samples:
            row = (sample.step, sample.unit, sample.axis, sample.x)
            self.values.setdefault(row, {}).setdefault(sample.system, []).append(sample.value)
        self.peers = [system for system in self.systems if self.baseline and system != self.baseline]

    def spreads(self, row):
        return {system: spread(self.values[row].get(system, [])) for system in self.systems}

    def ratios(self, row):
        """By peer."""
        of = self.spreads(row)
        found = {peer: ratio(row[1], of[self.baseline], of[peer]) for peer in self.peers}
        return {peer: value for peer, value in found.items() if value}

    def shown_rows(self):
        """All rows; those of a long curve are thinned out, its last one stays."""
        curves = {}
        for row in self.values:
            curves.setdefault(row[:3], []).append(row)
        for (_, _, axis), rows in curves.items():
            step = math.ceil(len(rows) / CURVE_ROWS) if axis else 1
            yield from rows[::-1][::step][::-1]

    def markdown(self):
        head = ["", "unit", *self.systems, *(f"{peer}/{self.baseline}" for peer in self.peers)]
        lines = [head, ["---", "---", *["---:"] * (len(head) - 2)]]
        for row in self.shown_rows():
            step, unit, axis, x = row
            place = "" if axis is None else f", {show_size(x)}" if axis == "bytes" else f", {axis} {x:,.0f}"
            ratios = self.ratios(row)
            cells = [cell(of) for of in self.spreads(row).values()]
            lines.append([step + place, unit, *cells, *(show(ratios.get(peer)) for peer in self.peers)])
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cell(of):
    if of is None:
        return ""
    return show(of.median) + (f" ({show(of.least)}..{show(of.most)})" if of.runs > 1 else "")


def is_mean_row(row, table):
    """Rows of the summary: a curve counts by its last point alone."""
    _, _, axis, x = row
    return axis is None or axis == "bytes" or x == max(r[3] for r in table.values if r[:3] == row[:3])


def summary(tables, described):
    """Geometric means of the ratios of each experiment, and how many of its rows are faster with betr."""
    peers = [p for p in ("ext4", "xfs", "btrfs", "bindfs") if any(p in table.peers for table in tables.values())]
    lines = [["experiment", *(f"{peer}/betr" for peer in peers)], ["---", *["---:"] * len(peers)]]
    for name, table in tables.items():
        found = {peer: [] for peer in peers}
        for row in filter(lambda row: is_mean_row(row, table), table.values):
            for peer, value in table.ratios(row).items() if table.baseline == "betr" else ():
                if peer in found:
                    found[peer].append(value)
        if any(found.values()):
            line = [f"[{described[name]['title']}](#{anchor(described[name]['title'])})"]
            for values in found.values():
                mean = statistics.geometric_mean(values) if values else None
                faster = sum(value > 1 for value in values)
                line.append(f"{show(mean)} ({faster} of {len(values)})" if values else "")
            lines.append(line)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def anchor(title):
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


def machine_table(results):
    machine = results["machine"]
    shown = ("date", "commit", "kernel", "processors", "memory", "disk", "load", "programs")
    rows = [(key, machine[key]) for key in shown if key in machine]
    rows += [("scale", f"{results['scale']:g}"), ("runs", f"{results['runs']}, fewer where an experiment says so")]
    for kind, version in machine["versions"].items():
        rows.append((kind, f"{version}; mounted with {machine['mounts'][kind]}"))
    minutes = sum(each["seconds"] for each in results["experiments"].values()) / 60
    rows.append(("took", f"{minutes:.1f} minutes"))
    return "| | |\n| --- | --- |\n" + "".join(f"| {key} | {value} |\n" for key, value in rows)


def section(name, described, table, plots):
    text = f"\n## {described['title']}\n\nRepeats: {described['paper']}. Size: {described['sizes']}. "
    text += f"Runs: {described['runs']}, in {described['seconds']:.0f} s altogether.\n\n"
    text += f"{described['about']}\n\n{table.markdown()}"
    for plot in plots:
        text += f"\n![{plot.stem}]({plot.parent.name}/{plot.name})\n"
    return text


def write(results, options):
    """Draws the plots, and writes the report beside them."""
    described = results["experiments"]
    samples = [Sample(**sample) for sample in results["samples"]]
    plots = draw(results, options)
    tables = {
        name: Table([sample for sample in samples if sample.experiment == name], described[name]["baseline"])
        for name in described
    }
    text = f"# Benchmarks\n\n{INTRODUCTION}\n{machine_table(results)}"
    text += "\n## Summary\n\nGeometric means of the ratios, and in how many rows betr is faster. "
    text += "A curve of operations counts by its last point. In the plot a line reaches from the least to the greatest "
    text += "ratio.\n\n"
    text += summary(tables, described)
    text += "".join(f"\n![{plot.stem}](plots/{plot.name})\n" for plot in plots if plot.stem == "summary")
    for failure in results["failures"]:
        reason = failure["failure"].splitlines()[0]
        text += f"\n**Failed**: {failure['experiment']} on {failure['system']}: `{reason}`\n"
    for name, about in described.items():
        own = [plot for plot in plots if plot.stem.split("-")[0] == name]
        text += section(name, about, tables[name], own)
    (options.out / "REPORT.md").write_text(text)


def draw(results, options):
    """The paths of the plots that the program has drawn. Older plots are removed."""
    directory = options.out / "plots"
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("*.svg"):
        old.unlink()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(results, file)
        file.flush()
        printed = call(options.target / "plots", file.name, directory, cwd=ROOT)
    return [Path(line) for line in printed.splitlines()]
