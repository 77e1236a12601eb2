#!/usr/bin/env bash
# Ten problems in KernelBench's form (benchmarks/problems) with kernels as a first author writes them, and
# two wrong kernels, through `cudaops run`; then each model_new.py as KernelBench evaluates it, by
# problems/evaluate.py. One call under 10 minutes; writes problems.txt (a table), evaluated.txt, a log of each
# run (NAME.txt) and runs.tar.xz into $OUT.
#
# Needs .gpu/site.tar.xz (gpu_pack.sh; with ninja, which torch builds extensions with) and a python3 with torch.
# Run it in the repository's root. GPUS=2 uses two GPUs; JOBS=4 runs at once on each; EACH=133 seconds for one
# run (default: STOP shared by the runs of a lane); STOP=400 seconds after which no run goes on;
# ONLY="layer_norm wrong-max_pool" runs these; OPTIONS="--budget-minutes 2" for other options of `cudaops run`.
set -u
S=$SECONDS
mkdir -p /tmp/runs /tmp/models
[ -d /tmp/site/langgraph ] || { mkdir -p /tmp/site && tar -C /tmp/site -xf .gpu/site.tar.xz; }
printf '#!/bin/sh\n' > /dev/shm/may && chmod +x /dev/shm/may && /dev/shm/may && export TMPDIR=/dev/shm
export PYTHONPATH=/tmp/site:$PWD PATH=/tmp/site/bin:$PATH CUDAOPS_CACHE=/tmp/cache CUDAOPS_MEMORY=off
export TORCH_EXTENSIONS_DIR=/tmp/extensions
python=$(command -v python3)
gpus=${GPUS:-1} jobs=${JOBS:-4} stop=${STOP:-400} finish=560
names=(square_matmul batched_linear_relu conv3x3 depthwise_conv layer_norm group_norm log_softmax max_pool
    gelu_residual row_cumsum)
read -ra all <<< "${ONLY:-wrong-max_pool wrong-square_matmul ${names[*]}}"  # those that end at once first
lanes=$((gpus * jobs))
each=${EACH:-$((stop / ((${#all[@]} + lanes - 1) / lanes)))}
TORCH_CUDA_ARCH_LIST=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1)
export TORCH_CUDA_ARCH_LIST

left() { echo $((stop - (SECONDS - S))); }

optimise() {  # NAME SOURCE GPU: NAME is that of the log and of the run's folder
    local problem=${1#wrong-} began=$SECONDS seconds=$(($(left) < each ? $(left) : each)) code
    if ((seconds < 20)); then echo "not started: no time left" > "$OUT/$1.txt"; return; fi
    CUDA_VISIBLE_DEVICES=$3 timeout -k 5 "$seconds" python3 -m cudaops run "benchmarks/problems/$problem.py" \
        --source "$2" --python "$python" --executor cuda --max-iterations 1 \
        ${OPTIONS:---budget-minutes 2 --timeout 60} --out "/tmp/runs/$1" > "$OUT/$1.txt" 2>&1
    code=$?
    echo "exit $code after $((SECONDS - began)) s" >> "$OUT/$1.txt"
    # Its extension is built beside the runs that follow: about a minute of two cores.
    [ -f "/tmp/runs/$1/model_new.py" ] && CUDA_VISIBLE_DEVICES='' timeout -k 5 120 python3 \
        benchmarks/problems/evaluate.py --build "/tmp/runs/$1/model_new.py" > "/tmp/models/$1.txt" 2>&1 &
}

lane() {  # GPU NAME...: one after the other
    local gpu=$1 name; shift
    for name; do
        case $name in
            wrong-*) optimise "$name" "benchmarks/problems/wrong/${name#wrong-}.cu" "$gpu" ;;
            *) optimise "$name" "benchmarks/problems/$name.cu" "$gpu" ;;
        esac
    done
    wait
}

evaluated() {  # NAME GPU: one line
    local code seconds=$((finish - (SECONDS - S)))
    [ -f "/tmp/runs/$1/model_new.py" ] || { echo "no model_new.py"; return; }
    ((seconds > 5)) || { echo "not evaluated: no time left"; return; }
    CUDA_VISIBLE_DEVICES=$2 timeout -k 5 "$((seconds < 60 ? seconds : 60))" python3 benchmarks/problems/evaluate.py \
        "benchmarks/problems/$1.py" "/tmp/runs/$1/model_new.py" >> "/tmp/models/$1.txt" 2>&1
    code=$?
    echo "exit $code: $(tail -1 "/tmp/models/$1.txt")"
}

row() {  # NAME
    python3 - "$1" "$OUT/$1.txt" <<'PY'
import re, sys
from pathlib import Path
name, log = sys.argv[1], Path(sys.argv[2]).read_text("utf-8", "replace")
ENDS = r"^(ACCEPTED|PROVISIONAL|NOTHING FOUND|cudaops:|not started)(.*)"
*_, (word, rest) = [("no end", ""), *re.findall(ENDS, log, re.M)]
*_, (code, seconds) = [("-", "-"), *re.findall(r"^exit (\d+) after (\d+) s", log, re.M)]
*_, limit = ["-", *re.findall(r"profiler +(Limited by [^:]*)", log)]
speedup = re.findall(r"runs ([\d.]+)×", rest) if word == "ACCEPTED" else []
word = "refused" if word == "cudaops:" else "killed" if code in ("124", "137") else word
print(f"{name:22s} {word:14s} {speedup[0] if speedup else '-':>7s} {seconds:>4s}  {limit}")
if not speedup:
    said = [line for line in log.splitlines() if line.strip()]
    print(f"    {(rest or said[-2 if code != '-' else -1]).strip()[:250]}")
PY
}

for ((n = 0; n < lanes; n++)); do
    mine=()
    for ((i = n; i < ${#all[@]}; i += lanes)); do mine+=("${all[i]}"); done
    lane $((n % gpus)) "${mine[@]}" &
done
wait
{
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
    echo "GPUS=$gpus JOBS=$jobs EACH=$each; runs and builds took $((SECONDS - S)) s"
    printf '%-22s %-14s %7s %4s  %s\n' problem outcome speedup s limit
    for name in "${all[@]}"; do row "$name"; done
} | tee "$OUT/problems.txt"
# The runs are over: each GPU times one model at a time.
rm -f "$TORCH_EXTENSIONS_DIR"/*/lock  # a build that was stopped leaves one, and torch would wait for it
for ((gpu = 0; gpu < gpus; gpu++)); do
    for ((i = gpu; i < ${#all[@]}; i += gpus)); do
        [[ ${all[i]} == wrong-* ]] || echo "${all[i]}: $(evaluated "${all[i]}" "$gpu")"
    done > "/tmp/models/gpu$gpu" &
done
wait
cat /tmp/models/gpu* | tee "$OUT/evaluated.txt"
tail -n 100 /tmp/models/*.txt > "$OUT/models.log" 2>&1
tar -C /tmp/runs -cJf "$OUT/runs.tar.xz" --exclude=workloads --exclude=work --exclude=problem . 2>/dev/null
echo "all took $((SECONDS - S)) s" | tee -a "$OUT/problems.txt"
