"""Runs experiments in turns, and writes samples and the report."""

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from . import experiments, machine, report
from .bench import Bench
from .inputs import Inputs
from .options import BENCH, parse
from .programs import ENVIRONMENT, SIGNALS, Failure, Limit, call, undisturbed
from .systems import SYSTEMS

GIB = 1 << 30
# A repository of another user is no danger here; git must leave no daemon behind.
GITCONFIG = "[safe]\n\tdirectory = *\n[gc]\n\tautoDetach = false\n[maintenance]\n\tautoDetach = false\n"


def systems_of(module, options, work):
    """The systems of an experiment that --only selects."""
    if hasattr(module, "systems"):
        made = module.systems(options, work)
    else:
        made = [SYSTEMS[kind](options, work) for kind in module.KINDS]
    for system in made:
        system.image_bytes = getattr(module, "IMAGE_BYTES", system.image_bytes)
    return [system for system in made if system.kind in options.only]


def check_needs(options, modules, work):
    """Finds all that can be known to fail before anything is measured."""
    if os.geteuid() != 0:
        raise Failure("mounting and dropping caches need root")
    if call("stat", "-f", "-c", "%T", options.dir).strip() in ("tmpfs", "ramfs"):
        raise Failure(f"{options.dir} is in memory, not on a disk: give another --dir")
    programs = {"mount", "umount", "find", "grep", "tar", "sha256sum", "cc"}
    room, in_memory, kinds = 0, 0, set()
    for module in modules:
        systems = systems_of(module, options, work)
        programs |= {program for system in systems for program in system.programs} | set(getattr(module, "PROGRAMS", ()))
        kinds |= {system.kind for system in systems}
        room = max(room, module.room(options))
        if "bindfs" in {system.kind for system in systems}:
            in_memory = max(in_memory, module.room(options) + GIB)
    if missing := sorted(program for program in programs if not shutil.which(program, path=ENVIRONMENT["PATH"])):
        raise Failure(f"missing: {', '.join(missing)} (apt install bindfs btrfs-progs e2fsprogs gcc git rsync xfsprogs)")
    for name in ["plots", *(["betr"] if "betr" in kinds else []), *(n for m in modules for n in getattr(m, "BINARIES", ()))]:
        if not os.access(options.target / name, os.X_OK):
            raise Failure(f"no program '{name}' in {options.target}: cargo build --release -p betr -p betr-bench")
    # A file system that never overwrites in place takes up to twice its content; inputs are copies of trees.
    disk = 3 * room + 2 * GIB
    if (free := shutil.disk_usage(options.dir).free) < disk:
        raise Failure(f"{options.dir} has {free >> 20} MiB free, {disk >> 20} are needed: another --dir or --scale")
    if in_memory > machine.memory("MemAvailable"):
        raise Failure(f"bindfs needs {in_memory >> 20} MiB of memory: a smaller --scale, or --only without bindfs")


def measure_one(name, module, system, options, inputs, run, samples, failures):
    """One run of an experiment on a system. After a failure nothing is reported of the two."""
    bench = Bench(name, system, options, inputs, run, samples)
    mounted = getattr(module, "MOUNTED", True)
    try:
        try:
            if mounted:
                system.begin()
            module.measure(bench)
            if mounted:
                grown = system.end()
                if system.has_image:
                    bench.add("growth of the image", "MB", grown / 1e6)
        finally:
            with undisturbed():
                system.clean_up()
    except (Failure, OSError) as failure:
        print(f"{name} {system.name}: {failure}", file=sys.stderr)
        failures.append({"experiment": name, "system": system.name, "run": run, "failure": str(failure)})
        samples[:] = [s for s in samples if (s.experiment, s.system) != (name, system.name)]


def measure(options, modules, work, write):
    """Runs all experiments. Systems take turns within an experiment; each run begins with another system."""
    (work / "mnt").mkdir()
    (work / "gitconfig").write_text(GITCONFIG)
    ENVIRONMENT["GIT_CONFIG_GLOBAL"] = str(work / "gitconfig")
    # A compiler that is stopped leaves files where TMPDIR says.
    helper = sorted((BENCH / "suite" / "helper").glob("*.c"))
    call("env", f"TMPDIR={work}", "cc", "-O2", "-pthread", "-o", work / "helper", *helper)
    inputs, samples, failures, seconds = Inputs(options, work), [], [], {}
    about = {"machine": machine.describe(options, work), "scale": options.scale, "runs": options.runs}
    for name, module in modules.items():
        start, systems = time.monotonic(), systems_of(module, options, work)
        for run in range(options.runs_of(module)):
            turn = run % len(systems) if systems else 0
            for system in systems[turn:] + systems[:turn]:
                if (name, system.name) not in {(f["experiment"], f["system"]) for f in failures}:
                    measure_one(name, module, system, options, inputs, run, samples, failures)
        seconds[name] = time.monotonic() - start
        described = {
            name: report.describe(module, options) | {"seconds": seconds[name]}
            for name, module in modules.items() if name in seconds
        }
        write(about | {"experiments": described, "failures": failures, "samples": [asdict(s) for s in samples]})
    return not failures


def stop(number, _frame):
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


def run(options):
    modules = {name: experiments.load(name) for name in experiments.NAMES if name in options.experiments}
    if options.source:
        return report.write(json.loads(options.source.read_text()), options)
    for number in SIGNALS:
        signal.signal(number, stop)
    work = Path(tempfile.mkdtemp(prefix="betr-bench-", dir=options.dir))
    last = {}

    def write(everything):
        last.update(everything)
        if options.json:
            options.json.write_text(json.dumps(everything, indent=1) + "\n")

    try:
        check_needs(options, list(modules.values()), work)
        passed = measure(options, modules, work, write)
    finally:
        # --one-file-system: never into a mount that could not be removed.
        with undisturbed():
            call("rm", "-rf", "--one-file-system", work)
    report.write(last, options)
    if not passed:
        raise Failure("some experiments failed; the report lists them")


def main():
    options = parse()
    if options.list:
        for name in experiments.NAMES:
            print(f"{name:<11} {experiments.load(name).TITLE}")
        return
    Limit.seconds = options.limit
    try:
        run(options)
    except Failure as failure:
        # If cleaning up failed as well, the failure before it says why.
        while failure:
            if isinstance(failure, Failure):
                print(f"run: {failure}", file=sys.stderr)
            failure = failure.__context__
        sys.exit(1)
