#!/usr/bin/env bash
# How long it takes to make an image of a tree, beside tar: five alternating warm runs.
#
#   bench/import.sh [FILES] [MEBIBYTES]     by default 50,000 files and 1024 MiB, made from a seed
set -euo pipefail
files=${1:-50000} mebibytes=${2:-1024}
cd "$(dirname "$0")/.."
cargo build --release --quiet
betr=$PWD/target/release/betr
work=$(mktemp -d "${TMPDIR:-/tmp}/betr-bench-XXXXXX")
trap 'rm -rf "$work"' EXIT

# A seeded tree: sizes spread over four orders of magnitude, directories of 100 files.
python3 - "$work/tree" "$files" "$mebibytes" <<'PY'
import os, random, sys
root, files, total = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) << 20
rng = random.Random(20)
weights = [10 ** rng.uniform(0, 4) for _ in range(files)]
scale = total / sum(weights)
for number, weight in enumerate(weights):
    directory = f"{root}/d{number // 10000}/e{number // 100 % 100}"
    os.makedirs(directory, exist_ok=True)
    with open(f"{directory}/f{number}", "wb") as file:
        file.write(rng.randbytes(max(1, int(weight * scale))))
PY

seconds() { local start end; start=$(date +%s.%N); "$@"; end=$(date +%s.%N); echo "$end - $start" | bc; }
by_tar() { tar cf "$work/t.tar" -C "$work" tree && sync "$work/t.tar"; }
by_betr() { "$betr" mkfs -qf "$work/t.img" -d "$work/tree"; }
sync; by_tar; by_betr
for _ in 1 2 3 4 5; do
    rm -f "$work/t.tar" "$work/t.img"
    tar=$(seconds by_tar) image=$(seconds by_betr)
    echo "tar $tar s   betr $image s   ratio $(echo "scale=2; $image / $tar" | bc)"
done | tee "$work/runs"
echo "median ratio: $(awk '{print $NF}' "$work/runs" | sort -n | sed -n 3p)"
rm -f "$work/t.img"
/usr/bin/time -f 'memory: %M KiB at the most' "$betr" mkfs -qf "$work/t.img" -d "$work/tree"
echo "image: $(du -B1 "$work/t.img" | cut -f1) bytes, tar: $(stat -c %s "$work/t.tar") bytes"
"$betr" fsck -fn "$work/t.img"
