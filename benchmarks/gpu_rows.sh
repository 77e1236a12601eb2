#!/usr/bin/env bash
# Programs in Python that compile their CUDA while they run (benchmarks/rows: load_inline, load, KernelBench's ModelNew)
# through `cudaops run` and `apply`, naive_matmul beside cuBLAS, and a candidate with CuTe through `verify`. One GPU, one
# call of up to 200 s; writes a log a program (NAME.txt), table.txt and runs.tar.xz into $OUT.
#
# Needs .gpu/site.tar.xz (gpu_pack.sh), a python3 with torch, ninja and setuptools, and for the last program
# .gpu/cutlass.tar.xz: `pip download --no-deps nvidia-cutlass==4.2.0.0`, unzip it, and
# `tar -C cutlass_library/source -cJf .gpu/cutlass.tar.xz include`. Run it in the repository's root.
# ONLY="inline loaded model matmul cute" runs these; EACH=185 seconds for one; OPTIONS="..." for more of `cudaops run`.
set -u
[ -d /tmp/site/langgraph ] || { mkdir -p /tmp/site && tar -C /tmp/site -xf .gpu/site.tar.xz; }
printf '#!/bin/sh\n' > /dev/shm/may && chmod +x /dev/shm/may && /dev/shm/may && export TMPDIR=/dev/shm
export PYTHONPATH=/tmp/site:$PWD PATH=$PATH:/tmp/site/bin CUDAOPS_CACHE=/tmp/cache CUDAOPS_MEMORY=off
root=$PWD S=$SECONDS
mkdir -p /tmp/rows/cutlass /tmp/runs
cp -r benchmarks/rows /tmp/rows/torch
[ ! -f .gpu/cutlass.tar.xz ] || tar -C /tmp/rows/cutlass -xf .gpu/cutlass.tar.xz

program() {  # NAME COMMAND...: in a copy of benchmarks/rows
    local name=$1; shift
    [[ " ${ONLY:-$name} " == *" $name "* ]] || return 0
    {
        timeout -k 5 "${EACH:-185}" "$@" --out "/tmp/runs/$name"
        echo "exit $? at $((SECONDS - S)) s"
        [ ! -f "/tmp/runs/$name/best.patch" ] || cat "/tmp/runs/$name/best.patch"
    } > "$OUT/$name.txt" 2>&1
}

run=(python3 -m cudaops run --executor cuda --max-iterations 1 --budget-minutes 1.2 ${OPTIONS:-})
cd /tmp/rows/torch || exit
program inline "${run[@]}" inline.py -- 4096 1024 &
program loaded "${run[@]}" loaded.py -- 4096 &
program model "${run[@]}" model.py --source model_new.py &
cd "$root" || exit
program matmul "${run[@]}" examples/naive_matmul.cu &
[ ! -f .gpu/cutlass.tar.xz ] || CUTLASS_PATH=/tmp/rows/cutlass program cute python3 -m cudaops verify \
    examples/naive_matmul.cu benchmarks/rows/cute_matmul.cu --allow-libraries --executor cuda &
wait
{
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
    for name in inline loaded model matmul cute; do
        [ -f "$OUT/$name.txt" ] || continue
        echo "$name: $(grep -aE '^(ACCEPTED|PROVISIONAL|NOTHING|REJECTED|cudaops: )' "$OUT/$name.txt" | head -1);" \
            "$(grep -aE 'of cuBLAS|offers this kernel' "$OUT/$name.txt" | head -1); $(grep -a '^exit' "$OUT/$name.txt")"
    done
    # Into the author's own file, which must still run and say the same, and out of it again.
    cd /tmp/rows/torch || exit
    if [ -f /tmp/runs/inline/best.py ] && python3 -m cudaops apply /tmp/runs/inline; then
        python3 -m py_compile inline.py && echo "inline.py with the rewrite is Python"
        python3 -m cudaops apply /tmp/runs/inline --revert && cmp inline.py "$root/benchmarks/rows/inline.py"
    fi
} 2>&1 | tee "$OUT/table.txt"
tar -C /tmp/runs -cJf "$OUT/runs.tar.xz" --exclude=workloads --exclude=work --exclude=tree.tar . 2> /dev/null
