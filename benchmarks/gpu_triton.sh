#!/usr/bin/env bash
# Triton kernels on a GPU: the five examples (examples/triton) through `cudaops run`, then two right and four
# wrong rewrites (examples/triton/rewrites) through `cudaops verify`, a run with a scripted model (model_vector_add:
# a wrong rewrite, then a right one), each best.py as a whole program, and each certificate by `cudaops certify check`.
# One call under 220 s on one GPU; writes triton.txt (a table), a log of each (NAME.txt), best.patch of each run
# (NAME.patch) and runs.tar.xz into $OUT.
#
# Needs .gpu/site.tar.xz (gpu_pack.sh) and a python3 with torch and Triton. Run it in the repository's root.
# JOBS=4 at once: measurements are one at a time by the GPU's lock. EACH=110 seconds for one of them; STOP=190
# seconds after which none goes on. ONLY="matmul right_vector_add" does these; TRIALS=6 times three configurations.
set -u
S=$SECONDS
OUT=${OUT:-$PWD/triton-out}
mkdir -p "$OUT" /tmp/runs
[ -d /tmp/site/langgraph ] || { mkdir -p /tmp/site && tar -C /tmp/site -xf .gpu/site.tar.xz; }
printf '#!/bin/sh\n' > /dev/shm/may && chmod +x /dev/shm/may && /dev/shm/may && export TMPDIR=/dev/shm
export PYTHONPATH=/tmp/site:$PWD PATH=/tmp/site/bin:$PATH CUDAOPS_CACHE=/tmp/cache CUDAOPS_MEMORY=off
python=$(command -v python3)
jobs=${JOBS:-4} each=${EACH:-110} stop=${STOP:-190} trials=${TRIALS:-6}
names=(matmul layer_norm vector_add model_vector_add right_vector_add row_softmax column_sum right_layer_norm
    wrong_mask_vector_add wrong_inputs_vector_add wrong_precision_matmul wrong_host_vector_add)
read -ra all <<< "${ONLY:-${names[*]}}"

one() {  # NAME: a run of an example, or a verify of a rewrite
    local name=$1 began=$SECONDS seconds=$((stop - (SECONDS - S))) code base
    ((seconds < each)) || seconds=$each
    if ((seconds < 15)); then echo "not started: no time left" > "$OUT/$name.txt"; return; fi
    common=(--executor cuda --python "$python" --timeout 60 --out "/tmp/runs/$name")
    if [ "$name" = model_vector_add ]; then
        timeout -k 5 "$seconds" "$python" -m cudaops run examples/triton/vector_add.py "${common[@]}" \
            --model scripted:examples/scripts/triton_vector_add.json --max-iterations 2 > "$OUT/$name.txt" 2>&1
    elif [ -f "examples/triton/$name.py" ]; then
        timeout -k 5 "$seconds" "$python" -m cudaops run "examples/triton/$name.py" "${common[@]}" \
            --max-trials "$trials" --max-iterations 2 > "$OUT/$name.txt" 2>&1
    else
        base=${name#*_} base=${base#mask_} base=${base#inputs_} base=${base#precision_} base=${base#host_}
        timeout -k 5 "$seconds" "$python" -m cudaops verify "examples/triton/$base.py" \
            "examples/triton/rewrites/$name.py" "${common[@]}" > "$OUT/$name.txt" 2>&1
    fi
    code=$?
    echo "exit $code after $((SECONDS - began)) s" >> "$OUT/$name.txt"
}

lane() {  # NUMBER: every JOBS-th of them
    local n
    for ((n = $1; n < ${#all[@]}; n += jobs)); do one "${all[n]}"; done
}

told() {  # NAME: one line of the table
    "$python" - "$1" "/tmp/runs/$1/run.json" "$OUT/$1.txt" << 'TOLD'
import json, pathlib, sys
name, record, log = sys.argv[1], *map(pathlib.Path, sys.argv[2:])
lines = log.read_text("utf-8", "replace").splitlines() if log.is_file() else ["no log"]
if not record.is_file():
    said = [line for line in lines if line.startswith(("cudaops:", "not started"))]
    print(f"{name:26} NO RECORD  {' | '.join([*said, *lines[-1:]])[:300]}")
    raise SystemExit
r = json.loads(record.read_text("utf-8"))
v = r["verify"]
last = r["attempts"][-1] if r["attempts"] else {}
times = "" if v["speedup"] is None else (
    f"{1000 * v['baseline_kernel_ms']:.1f} to {1000 * v['candidate_kernel_ms']:.1f} us {v['speedup']:.2f}x "
)
failed = [g["name"] for g in v["gates"] if not g["passed"]]
print(f"{name:26} {r['outcome']:13} {times}{last.get('title', '')} failed={failed} "
      f"isolation={last.get('judgement', {}).get('isolation')} tried={last.get('configurations_tried')} "
      f"{r['loop_time_seconds']:.0f} s | {r['reason'][:160]}")
TOLD
}

for ((lane_ = 0; lane_ < jobs; lane_++)); do lane "$lane_" & done
wait
{
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
    "$python" -c 'import torch, triton; print("torch", torch.__version__, "triton", triton.__version__)'
    for name in "${all[@]}"; do told "$name"; done
    for name in "${all[@]}"; do
        [ -f "/tmp/runs/$name/best.py" ] || continue
        cp "/tmp/runs/$name/best.patch" "$OUT/$name.patch"
        echo "$name certificate: $(timeout 30 "$python" -m cudaops certify check "/tmp/runs/$name" 2>&1 |
            grep -E "^(judgement|signature|best.py|cudaops)" | tr '\n' ' ')"
        ((SECONDS - S < stop + 5)) && echo "$name best.py: $(timeout 30 "$python" "/tmp/runs/$name/best.py" 2>&1 | tail -1)"
    done
} > "$OUT/triton.txt" 2>&1
tar -C /tmp -cJf "$OUT/runs.tar.xz" runs
echo "took $((SECONDS - S)) s" >> "$OUT/triton.txt"
cat "$OUT/triton.txt"
