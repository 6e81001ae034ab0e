#!/usr/bin/env python3
"""How fast a mounted betr image is, beside ext4, xfs or btrfs in an image on the same disk and beside a pass-through FUSE
file system (bindfs over tmpfs), which shows what FUSE alone costs. The work is that of the BetrFS papers.

    apt install bindfs btrfs-progs e2fsprogs gcc git xfsprogs
    cargo build --release && sudo bench/mount/run.py
    sudo bench/mount/run.py --scale 0.1                        in less than a minute
    sudo bench/mount/run.py --scale 0.1 --only ext4,bindfs     without betr

It takes root, for mounts, loop devices and dropping caches. Everything stands in one temporary directory, with
images that are sparse files; it is unmounted and removed in the end, whatever the end is short of SIGKILL.

small   Creates files of 200 bytes in a balanced tree of fanout 128, a file in each directory in turn, as
        TokuBench does; finds them, cold.
large   Writes a file in calls of 1 MiB, reads it cold, writes 4 bytes at random places of the cold file, reads it
        cold again (what was deferred is paid here), renames it, unlinks it.
tree    Unpacks a source tree; find by name, find by size (stat), grep -r, cp -a, rename, and rm -rf of it, cold each.
        It is made of ~/.cargo/registry/src and /usr/include, as often as it takes to have enough files.
moves   Renames files and directories of growing sizes to another directory, each once, with an fsync.
clones  Clones a directory eight times, the last clone each time; writes into each file of it; grep, cold (BetrFS 0.5).
git     Clones a repository of that tree; git status, cold.

Each file system begins each workload empty. Rates count until everything is durable: syncfs(2), then fsync of a
directory and of a file, since an ordinary FUSE daemon is told nothing by syncfs. What is put off until the file
system is unmounted and its image is on the disk has a row of its own. A ratio above 1 says that betr is faster.

Cold means: unmounted, the image written back, the page cache dropped, mounted. Mind that

- data is cached twice. ext4 caches pages of files, and the file that is under its loop device is cached by the
  file system of the host. betr has pages of files in the kernel, nodes in the memory of its daemon, and pages of
  the image in the cache of the host. For bindfs there are pages of files, and tmpfs itself. Dropping takes all but
  tmpfs, which has nowhere else to be: bindfs never waits for a disk, and is only as cold as FUSE gets.
- the loop device is what `mount -o loop` makes. With direct I/O (losetup --direct-io=on) ext4 would not be cached
  twice, and its reads and writes would not be helped by the cache of the host: another measurement.
- ext4 and tmpfs are mounted with noatime, and ext4 has no lazy initialisation left to do in the background. bindfs
  serves several requests at a time and takes large writes, but lets the kernel cache neither names nor attributes.
- the disk of a virtual machine may be cached outside of it, where nothing can be dropped.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

# Root would leave its bytecode in the sources.
sys.dont_write_bytecode = True

from programs import ENVIRONMENT, SIGNALS, Failure, Limit, call, undisturbed  # noqa: E402
from report import surroundings, table  # noqa: E402
from source import Source  # noqa: E402
from systems import FILE_SYSTEMS  # noqa: E402
from workloads import WORKLOADS, Bench  # noqa: E402

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MIB, GIB = 1 << 20, 1 << 30


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--only", default="ext4,betr,bindfs", help="file systems, a list (%(default)s)")
    add("--workloads", default=",".join(WORKLOADS), help="a list (%(default)s)")
    add("--scale", type=float, default=1.0, help="what all sizes are multiplied with (%(default)s)")
    add("--runs", type=int, default=1, help="runs of each, of which the tables show the median (%(default)s)")
    add("--files", type=int, default=300_000, help="small files, before scaling (%(default)s)")
    add("--size", type=int, default=4096, help="MiB of the large file, before scaling (%(default)s)")
    add("--writes", type=int, default=100_000, help="4-byte writes, before scaling (%(default)s)")
    add("--tree-files", type=int, default=40_000, help="files of the source tree, before scaling (%(default)s)")
    add("--tree", help="directories of sources, a list (~/.cargo/registry/src,/usr/include)")
    add("--threads", type=int, default=os.cpu_count(), help="that create small files (as many as processors)")
    directory = os.environ.get("TMPDIR", "/var/tmp")
    add("--dir", type=Path, default=directory, help="on a real disk; TMPDIR says the default (%(default)s)")
    program = os.environ.get("BETR", ROOT / "target/release/betr")
    add("--betr", type=Path, default=program, help="the program; BETR says the default (target/release/betr)")
    add("--limit", type=int, default=Limit.seconds, help="seconds that a program may take (%(default)s)")
    add("--json", type=Path, help="a file for everything that was measured, all runs included")
    options = parser.parse_args()
    options.only, options.workloads = options.only.split(","), options.workloads.split(",")
    for given, known in ((options.only, FILE_SYSTEMS), (options.workloads, WORKLOADS)):
        if unknown := set(given) - set(known):
            parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    if options.scale <= 0 or options.runs < 1:
        parser.error("--scale and --runs are above 0")
    # Of who built it, and not of root.
    cargo = os.environ.get("CARGO_HOME", f"~{os.environ.get('SUDO_USER', '')}/.cargo")
    options.tree = (options.tree or f"{cargo}/registry/src,/usr/include").split(",")
    options.betr, options.dir = options.betr.resolve(), options.dir.resolve()
    options.files = max(1, round(options.files * options.scale))
    options.writes = max(1, round(options.writes * options.scale))
    options.tree_files = max(1, round(options.tree_files * options.scale))
    options.large_bytes = max(1, round(options.size * options.scale)) * MIB
    options.image_bytes = max(16 * GIB, 4 * options.large_bytes, options.files * 32 * 1024)
    return options


def check_needs(options):
    """All that can be known to fail is found before anything is measured."""
    if os.geteuid() != 0:
        raise Failure("mounting and dropping caches take root")
    programs = {"mount", "umount", "find", "grep", "tar", "sha256sum", "cc"}
    programs |= {program for name in options.only for program in FILE_SYSTEMS[name].programs}
    programs |= {"git"} if "git" in options.workloads else set()
    if missing := sorted(program for program in programs if not shutil.which(program, path=ENVIRONMENT["PATH"])):
        raise Failure(f"missing: {', '.join(missing)} (apt install bindfs btrfs-progs e2fsprogs gcc git xfsprogs)")
    if "betr" in options.only:
        if not os.access(options.betr, os.X_OK):
            raise Failure(f"there is no {options.betr}: cargo build --release, or --betr, or --only ext4,bindfs")
        call(options.betr, "mount", "--help")
    if call("stat", "-f", "-c", "%T", options.dir).strip() in ("tmpfs", "ramfs"):
        raise Failure(f"{options.dir} is in memory, where nothing is written; give another --dir")
    check_room(options, 0)


def check_room(options, tree_bytes):
    """Only one file system is there at a time; one that never writes in place takes twice what it holds."""
    content = max(options.large_bytes, 3 * tree_bytes, options.files * 4096)
    disk, memory = 2 * content + 2 * tree_bytes + GIB, 2 * content + GIB
    if (free := shutil.disk_usage(options.dir).free) < disk:
        raise Failure(f"{options.dir} has {free // MIB} MiB free, and it takes {disk // MIB}: another --dir or --scale")
    available = next(line for line in open("/proc/meminfo") if line.startswith("MemAvailable"))
    if "bindfs" in options.only and int(available.split()[1]) * 1024 < memory:
        raise Failure(f"bindfs over tmpfs takes {memory // MIB} MiB of memory: another --scale, or --only ext4,betr")


def measure(options, work):
    """Runs everything: file systems take turns within a workload, and each run begins with another."""
    # A compiler that is stopped leaves files where TMPDIR says.
    call("env", f"TMPDIR={work}", "cc", "-O2", "-pthread", "-o", work / "helper", HERE / "helper.c")
    (work / "mnt").mkdir()
    source = Source(options, work) if {"tree", "git"} & set(options.workloads) else None
    check_room(options, source.bytes if source else 0)
    systems = [FILE_SYSTEMS[name](options, work) for name in options.only]
    around, samples = surroundings(options, systems), []
    for run in range(options.runs):
        turn = run % len(systems)
        for workload in options.workloads:
            for system in systems[turn:] + systems[:turn]:
                bench = Bench(system, options, source, workload, run, samples)
                try:
                    system.begin()
                    WORKLOADS[workload][0](bench)
                    grown = system.end()
                    if system.has_image:
                        bench.add("growth of the image", "MB", grown / 1e6, None)
                finally:
                    with undisturbed():
                        system.clean_up()
    return around, samples


def report(options, around, samples):
    print(f"kernel {around['kernel']}, {around['processors']} processors, {around['memory']} of memory")
    print(f"{options.dir}: {around['disk']}", *around["versions"].values(), sep="\n")
    for workload in options.workloads:
        of_workload = [sample for sample in samples if sample.workload == workload]
        print(f"\n{WORKLOADS[workload][1](options)}")
        print(table(workload, of_workload, options.only, options.runs), end="")
    if options.json:
        given = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
        everything = {"options": given, "surroundings": around, "samples": [asdict(sample) for sample in samples]}
        options.json.write_text(json.dumps(everything, indent=1) + "\n")


def stop(number, _frame):
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


def main():
    options = parse()
    Limit.seconds = options.limit
    for number in SIGNALS:
        signal.signal(number, stop)
    try:
        check_needs(options)
        work = Path(tempfile.mkdtemp(prefix="betr-mount-", dir=options.dir))
        try:
            around, samples = measure(options, work)
        finally:
            # Never into a mount that could not be removed.
            with undisturbed():
                call("rm", "-rf", "--one-file-system", work)
        report(options, around, samples)
    except Failure as failure:
        # If cleaning up failed as well, then what failed before says why.
        while failure:
            if isinstance(failure, Failure):
                print(f"run.py: {failure}", file=sys.stderr)
            failure = failure.__context__
        sys.exit(1)


if __name__ == "__main__":
    main()
