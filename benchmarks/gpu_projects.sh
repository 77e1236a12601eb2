#!/usr/bin/env bash
# Projects of people on one GPU, each built by its own command, improved, patched and reverted: Make with a
# static library, CMake with two programs, Python over a shared library, a PyTorch extension, streams with Thrust
# and cuBLAS around the kernel. And programs that launch by the driver's API, run as they are and then with the
# rewrite loaded into them: C++ with a cubin, Python with NVRTC, CuPy (where they can be imported). Four of them
# take under 10 minutes; writes a log a project (NAME.txt) and table.txt into $OUT.
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

digest() { (cd "$1" && find . -type f ! -path './runs/*' -print0 | sort -z | xargs -0 sha256sum | sha256sum); }

project() {  # NAME FOLDER FILE BUILD RUN
    local name=$1 folder=/tmp/projects/$1 before after patched
    [[ " ${ONLY:-$name} " == *" $name "* ]] || return 0
    mkdir -p /tmp/projects && cp -r "$root/$2" "$folder"
    before=$(digest "$folder")
    (
        cd "$folder" || exit
        timeout "${EACH:-150}" python -m cudaops run "$3" --build "$4" --run "$5" --executor cuda --max-iterations 1 \
            ${OPTIONS:-} --out "/tmp/runs/$name"
        echo "exit $?"
        python -m cudaops apply "/tmp/runs/$name" && git diff --no-index --stat "$root/$2" . ; patched=$(digest .)
        [ "$patched" != "$before" ] && echo "patched: another tree"
        python -m cudaops apply "/tmp/runs/$name" --revert
    ) > "$OUT/$name.txt" 2>&1
    after=$(digest "$folder")
    echo "$name: $(grep -E '^(ACCEPTED|PROVISIONAL|NOTHING|cudaops:)' "$OUT/$name.txt" | head -1);" \
        "$([ "$before" = "$after" ] && echo tree as before || echo TREE CHANGED); $((SECONDS - S)) s" | tee -a "$OUT/table.txt"
}

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
project python tests/data/projects/python blur.cu make "python3 app.py 2048 2048"
project torch benchmarks/torch_project softmax.cu "python3 setup.py build_ext --inplace" "python3 bench.py 4096 2048"
application driver tests/data/projects/driver make "./app 2048 2048"
jit nvrtc cuda.bindings.nvrtc
jit cupy cupy
project filters tests/data/projects/filters src/blur.cu make "./app 2048 2048"
project streams tests/data/projects/streams src/relax.cu make "./app 2048 2048"
project rows tests/data/projects/rows kernels/rows.cu "cmake -S . -B out && cmake --build out" "out/bench 8192 1024"
tar -C /tmp/runs -cJf "$OUT/runs.tar.xz" --exclude=workloads --exclude=work . 2>/dev/null
