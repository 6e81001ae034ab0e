#!/usr/bin/env bash
# How fast an image is checked, beside e2fsck and ext4 with the same tree: alternating cold runs, read-only.
#
#   bench/check/run.sh [FILES] [RUNS]     by default 1,000,000 files of 100 to 2000 bytes, three runs
#
# The tree and both images stay in $WORK, if that is set, for the next time; $BETR is what is measured instead of a fresh
# build. Without the right to drop all caches only those of the image are dropped.
set -euo pipefail
files=${1:-1000000} runs=${2:-3}
cd "$(dirname "$0")/../.."
betr=${BETR:-}
if [[ -z $betr ]]; then
    cargo build --release --quiet -p betr
    betr=${CARGO_TARGET_DIR:-$PWD/target}/release/betr
fi
if [[ -n ${WORK:-} ]]; then
    work=$WORK
    mkdir -p "$work"
else
    work=$(mktemp -d "${TMPDIR:-/tmp}/betr-bench-XXXXXX")
    trap 'rm -rf "$work"' EXIT
fi
tree=$work/tree-$files ours=$work/betr-$files.img theirs=$work/ext4-$files.img

if [[ ! -e $tree ]]; then
    python3 - "$tree.part" "$files" <<'PY'
import os, random, sys
root, files = sys.argv[1], int(sys.argv[2])
blob = random.Random(20).randbytes(1 << 20)
for number in range(files):
    directory = f"{root}/dir-{number // 1000:04}"
    if number % 1000 == 0:
        os.makedirs(directory, exist_ok=True)
    length, start = 100 + number * 7919 % 1900, number * 104729 % (len(blob) - 2000)
    with open(f"{directory}/file-{number % 1000:04}.txt", "wb") as file:
        file.write(blob[start:start + length])
PY
    mv "$tree.part" "$tree"
fi
size=$((files * 8 + 65536))K
[[ -e $ours ]] || "$betr" mkfs -q -d "$tree" "$ours" "$size"
if [[ ! -e $theirs ]]; then
    mke2fs -q -t ext4 -d "$tree" -N $((files + files / 10)) "$theirs.part" "$size"
    mv "$theirs.part" "$theirs"
fi

forget() {
    sync
    { echo 3 > /proc/sys/vm/drop_caches; } 2> /dev/null ||
        dd if="$1" iflag=nocache count=0 status=none
}
# Seconds, processor seconds, and MiB at the most.
measure() {
    local image=$1
    shift
    forget "$image"
    /usr/bin/time -o "$work/time" -f '%e %U %S %M' "$@" "$image" > "$work/said" 2>&1 || { cat "$work/said"; exit 1; }
    awk '{ printf "%.2f %.2f %.0f", $1, $2 + $3, $4 / 1024 }' "$work/time"
}

echo "| run | e2fsck s | of processors | MiB | betr fsck s | of processors | MiB | e2fsck/betr |"
echo "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
for run in $(seq "$runs"); do
    read -r theirs_s theirs_cpu theirs_mib <<< "$(measure "$theirs" e2fsck -fn)"
    read -r ours_s ours_cpu ours_mib <<< "$(measure "$ours" "$betr" fsck -fn)"
    ratio=$(echo "scale=2; $theirs_s / $ours_s" | bc)
    echo "| $run | $theirs_s | $theirs_cpu | $theirs_mib | $ours_s | $ours_cpu | $ours_mib | $ratio |"
done
