#!/usr/bin/env bash
# What only a GPU can tell about the `cpu` executor's work, in one call on a machine that has one:
# how fast the author's program and the drop-in rewrite of a run really are, whether both print the
# same, and how far the model's times of the calibration programs are off on this very device.
#
#   benchmarks/gpu_check.sh FOLDER [ARCH]    FOLDER holds naive_matmul.cu's best.cu (a run folder)
#
# Needs nvcc and nvidia-smi, no Python package. Writes gpu_check.md into $OUT (default: here). Clocks
# are left as they are.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
run=${1:?name a run folder of examples/naive_matmul.cu, with its best.cu}
arch=${2:-native}
out=${OUT:-$PWD}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
repeats=5

build() { nvcc -O3 -arch="$arch" -o "$work/$1" "$2"; }

# Prints KERNEL_MS of each run, sorted; the middle one is the median.
times() { for _ in $(seq $repeats); do "$work/$1" 2>&1 >/dev/null | sed -n 's/^KERNEL_MS: //p'; done | sort -g; }

row() { # name, source
    build "$1" "$2"
    mapfile -t ms < <(times "$1")
    printf '| %s | %s | %s | %s |\n' "$1" "${ms[$((repeats / 2))]}" "${ms[0]}" "${ms[-1]}"
}

{
    echo "# Times on a GPU"
    echo
    echo "$(nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm --format=csv,noheader | head -1)"
    echo "$(nvcc --version | grep release), $(date -u +%Y-%m-%d), \`benchmarks/gpu_check.sh $*\`"
    echo
    echo "KERNEL_MS as the programs print it: mean of 20 launches after 3, $repeats runs of each."
    echo
    echo "| program | median ms | least | most |"
    echo "|---|---|---|---|"
    row author "$root/examples/naive_matmul.cu"
    row rewrite "$run/best.cu"
    for program in "$root"/tests/data/calibration/*.cu; do row "$(basename "$program" .cu)" "$program"; done
    echo
    if diff <("$work/author" 2>/dev/null) <("$work/rewrite" 2>/dev/null) >"$work/diff"; then
        echo "Author's program and rewrite print the same, character by character."
    else
        echo "Author's program and rewrite print (the gate is rtol 1e-3):"
        echo
        sed 's/^/    /' "$work/diff"
    fi
} | tee "$out/gpu_check.md"
