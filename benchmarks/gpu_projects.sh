#!/usr/bin/env bash
# The projects of projects.tsv on one GPU (projects.py): Make with a static library, CMake with two programs, Python
# over a shared library, a PyTorch extension, streams with Thrust and cuBLAS around the kernel. And programs that
# launch by the driver's API, run as they are and then with the rewrite loaded into them: C++ with a cubin, Python
# with NVRTC, CuPy (where they can be imported). Four of them take under 10 minutes; writes a log a program
# (NAME.txt), projects/ and table.txt into $OUT.
#
# Needs .gpu/site.tar.xz (gpu_pack.sh). Run it in the repository's root. ONLY="driver nvrtc cupy" runs these;
# EACH=150 seconds for one run; OPTIONS="--budget-minutes 1.5" for more of `cudaops run`.
set -u
[ -d /tmp/site/langgraph ] || { mkdir -p /tmp/site && tar -C /tmp/site -xf .gpu/site.tar.xz; }
printf '#!/bin/sh\n' > /dev/shm/may && chmod +x /dev/shm/may && /dev/shm/may && export TMPDIR=/dev/shm
export PYTHONPATH=/tmp/site:$PWD CUDAOPS_CACHE=/tmp/cache CUDAOPS_MEMORY=off
root=$PWD S=$SECONDS

nvcc=$(python -c "from cudaops.executors.cuda.toolchain import require_nvcc; print(require_nvcc())")
export PATH=$PATH:$(dirname "$nvcc")

application() {  # NAME FOLDER MAKE RUN
    local name=$1 folder=/tmp/projects/$1
    [[ " ${ONLY:-$name} " == *" $name "* ]] || return 0
    mkdir -p /tmp/projects && cp -r "$root/$2" "$folder"
    (
        cd "$folder" && eval "$3" || exit
        timeout "${EACH:-150}" python -m cudaops run kernel.cu --run "$4" --executor cuda --max-iterations 1 \
            ${OPTIONS:-} --out "/tmp/runs/$name"
        echo "exit $?"
        PYTHONPATH=$root:/tmp/site python -m cudaops preload "/tmp/runs/$name" --out winner.so || exit
        eval "$4" > as_it_is && CUDAOPS_PRELOAD=report LD_PRELOAD=./winner.so $4 > loaded && cat as_it_is loaded
    ) > "$OUT/$name.txt" 2>&1
    echo "$name: $(grep -E '^(ACCEPTED|PROVISIONAL|NOTHING|cudaops: )' "$OUT/$name.txt" | head -1);" \
        "$(grep -oE '[0-9]+ launches by the rewrite, [0-9]+ by.*' "$OUT/$name.txt" | tail -1); $((SECONDS - S)) s" |
        tee -a "$OUT/table.txt"
}

jit() {  # NAME MODULE
    if python -c "import $2" 2> /dev/null; then
        application "$1" tests/data/projects/jit : "python3 $1_app.py 2048 2048"
    else
        echo "$1: skipped, no $2 here" | tee -a "$OUT/table.txt"
    fi
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader > "$OUT/table.txt"
python benchmarks/projects.py benchmarks/projects.tsv --executor cuda --jobs "${JOBS:-1}" --each "${EACH:-150}" \
    --options "--max-iterations 1 ${OPTIONS:-}" --only ${ONLY:-} --out "$OUT/projects" | tee -a "$OUT/table.txt"
application driver tests/data/projects/driver make "./app 2048 2048"
jit nvrtc cuda.bindings.nvrtc
jit cupy cupy
tar -C /tmp/runs -cJf "$OUT/runs.tar.xz" --exclude=workloads --exclude=work . 2>/dev/null
