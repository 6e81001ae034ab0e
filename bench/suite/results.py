"""Measured values: samples, their direction, medians, and ratios."""

import statistics
from dataclasses import dataclass

TIMES = ("s", "ms", "us")
MIB = 1 << 20


@dataclass
class Sample:
    """One value of one run. A point of a curve has its place `x` on an `axis`; the axis "bytes" is of sizes."""

    experiment: str
    step: str
    unit: str
    system: str
    run: int
    value: float
    axis: str | None = None
    x: float | None = None


@dataclass
class Spread:
    """The median of all runs between the least and the greatest value."""

    least: float
    median: float
    most: float
    runs: int


def spread(values):
    return Spread(min(values), statistics.median(values), max(values), len(values)) if values else None


def ratio(unit, base, peer):
    """How many times as fast the base is as the peer. None if the unit is no speed."""
    if base is None or peer is None or not base.median or not peer.median:
        return None
    if unit.endswith("/s"):
        return base.median / peer.median
    return peer.median / base.median if unit in TIMES else None


def show(number):
    """With about three digits."""
    if number is None:
        return ""
    if number == 0:
        return "0"
    size = abs(number)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 else 4
    return f"{number:,.{digits}f}"


def show_size(size):
    for unit, step in (("GiB", 1 << 30), ("MiB", MIB), ("KiB", 1 << 10)):
        if size >= step:
            return f"{size / step:g} {unit}"
    return f"{size:g} bytes"
