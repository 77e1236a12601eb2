#!/usr/bin/env bash
# What `cudaops run` reaches on one GPU without a model: naive_matmul, and a third of a folder of
# strangers' programs, searched, judged, and built again by plain nvcc. Three calls make the table:
# PART=1/3, 2/3, 3/3. Under 10 minutes each; writes improve.json (a row a program: speedup, what was
# tried, the search's cost by part), runs.tar.xz, matmul.txt, machine.txt into $OUT.
#
# Needs .gpu/site.tar.xz (gpu_pack.sh) and .gpu/corpus.tar.xz: a folder `corpus` with one folder a
# program, its .cu file, and its line of arguments in ARGS. Run it in the repository's root.
# JOBS=4 programs at once: the GPU takes one measurement at a time. MIN_SPEEDUP=1.05 asks for less,
# OPTIONS="--budget-minutes 2" for more of `cudaops run`, LIMIT=400 ends it sooner; ONLY="attention
# is" for these programs of the part; QUIET=attention runs that one by itself before the others;
# GPUS=2 shares the jobs out to two.
set -u
[ -d /tmp/site/langgraph ] || { mkdir -p /tmp/site && tar -C /tmp/site -xf .gpu/site.tar.xz; } && tar -C /tmp -xf .gpu/corpus.tar.xz
# Buffers are written to files and read again: in memory, where programs may be run from there.
printf '#!/bin/sh\n' > /dev/shm/may && chmod +x /dev/shm/may && /dev/shm/may && export TMPDIR=/dev/shm
export PYTHONPATH=/tmp/site:$PWD CUDAOPS_CACHE=/tmp/cache CUDAOPS_MEMORY=off
{ nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader; nproc; nvcc --version | tail -2; ncu --version | tail -2; date -u; git rev-parse HEAD 2>/dev/null; } > $OUT/machine.txt 2>&1
S=$SECONDS; PART=${PART:-1/3}
if [ "$PART" = "1/${PART##*/}" ]; then
    timeout 100 python -m cudaops run examples/naive_matmul.cu --executor cuda --out /tmp/mm > $OUT/matmul.txt 2>&1
fi
if [ -n "${QUIET:-}" ]; then  # trials a minute with the GPU to itself
    cp -r "/tmp/corpus/$QUIET" /tmp/quiet && ( cd /tmp/quiet && timeout 120 python -m cudaops run *.cu --executor cuda --out /tmp/q -- $(cat ARGS) ) > $OUT/quiet.txt 2>&1
fi
python benchmarks/improve.py /tmp/corpus --executor cuda --jobs "${JOBS:-4}" ${GPUS:+--gpus $GPUS} --part "$PART" \
    ${ONLY:+--only $ONLY} --limit $((${LIMIT:-565} - SECONDS + S)) --each "${EACH:-200}" --options "--min-speedup ${MIN_SPEEDUP:-1.2} ${OPTIONS:-}" --out $OUT 2>&1 | tee $OUT/improve.txt
echo "all over at $((SECONDS - S)) s" >> $OUT/machine.txt
