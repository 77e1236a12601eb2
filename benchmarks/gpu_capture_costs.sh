#!/usr/bin/env bash
# What a capture, a profile and a judgement cost on one GPU, and what they say: strangers' programs,
# 100,000 launches, a kernel of some microseconds on a quiet and on a busy GPU, the conformance tests.
# Under 7 minutes; writes six files into $OUT. results/2026-11-23-h200-capture-costs: 334 s.
#
# Needs .gpu/site.tar.xz (gpu_pack.sh) and .gpu/corpus.tar.xz: a folder `corpus` with one folder a
# program, its .cu file, and its line of arguments in ARGS. Run it in the repository's root.
# PARTS="launches clocks strangers tests" is all of it; STRANGERS="epistasis" fewer programs.
set -u
has() { [[ " ${PARTS:-launches clocks strangers tests} " == *" $1 "* ]]; }
[ -d /tmp/site/langgraph ] || { mkdir -p /tmp/site && tar -C /tmp/site -xf .gpu/site.tar.xz; } && tar -C /tmp -xf .gpu/corpus.tar.xz
export PYTHONPATH=/tmp/site:$PWD CUDAOPS_CACHE=/tmp/cache
W=/tmp/costs; mkdir -p $W; S=$SECONDS
{ nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader; df -h /tmp | tail -1; nproc; free -g | sed -n 2p; nvcc --version | tail -2; ncu --version | tail -2; compute-sanitizer --version | tail -1; } > $OUT/machine.txt 2>&1

cat > $W/many.cu <<'EOF'
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
// `many N 0`: N launches of one configuration; `many N 1`: every launch has another scalar; `many N 2`: in turn on four buffers.
__global__ void step(const float* a, const float* b, float* y, int n, int k) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a[i] * 0.5f + b[i] + (float)(k & 7);
}
int main(int argc, char** argv) {
  int launches = atoi(argv[1]), kind = atoi(argv[2]), n = 1 << 16;
  float *a, *b, *y[4];
  cudaMalloc(&a, n * 4); cudaMalloc(&b, n * 4);
  cudaMemset(a, 0, n * 4); cudaMemset(b, 0, n * 4);
  for (auto& p : y) cudaMalloc(&p, n * 4), cudaMemset(p, 0, n * 4);
  for (int i = 0; i < launches; i++) step<<<n / 256, 256>>>(a, b, y[kind == 2 ? i % 4 : 0], n, kind == 1 ? i : 0);
  float h;
  cudaMemcpy(&h, y[0], 4, cudaMemcpyDeviceToHost);
  printf("%g %s\n", h, cudaGetErrorString(cudaGetLastError()));
  return 0;
}
EOF
cat > $W/short.cu <<'EOF'
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
// About 6 us on an H200: neighbours write far apart.
__global__ void turn(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n * n) y[(i % n) * n + i / n] = x[i] * 2.0f;
}
int main(int argc, char** argv) {
  int n = 512, launches = argc > 1 ? atoi(argv[1]) : 200;
  float *x, *y, *h = (float*)malloc(n * n * 4);
  for (int i = 0; i < n * n; i++) h[i] = (i % 97) * 0.25f;
  cudaMalloc(&x, n * n * 4); cudaMalloc(&y, n * n * 4);
  cudaMemcpy(x, h, n * n * 4, cudaMemcpyHostToDevice);
  for (int i = 0; i < launches; i++) turn<<<n * n / 64, 64>>>(x, y, n);
  cudaMemcpy(h, y, n * n * 4, cudaMemcpyDeviceToHost);
  double s = 0;
  for (int i = 0; i < n * n; i++) s += h[i] * (i % 13);
  printf("%.6f\n", s);
  return 0;
}
EOF
cat > $W/short_rewrite.cu <<'EOF'
// @launch turn_tiled grid=(ceil_div(n, 32), ceil_div(n, 32)) block=(32, 8) args=(x, y, n)
__global__ void turn_tiled(const float* x, float* y, int n) {
  __shared__ float tile[32][33];
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8)
    if (c < n && r + k < n) tile[threadIdx.y + k][threadIdx.x] = x[(r + k) * n + c];
  __syncthreads();
  c = blockIdx.y * 32 + threadIdx.x, r = blockIdx.x * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8)
    if (c < n && r + k < n) y[(r + k) * n + c] = tile[threadIdx.x][threadIdx.y + k] * 2.0f;
}
EOF
cat > $W/busy.cu <<'EOF'
#include <chrono>
#include <cstdlib>
__global__ void spin(long long ticks) { long long t = clock64(); while (clock64() - t < ticks) {} }
int main(int, char** argv) {
  auto end = std::chrono::steady_clock::now() + std::chrono::seconds(atoi(argv[1]));
  while (std::chrono::steady_clock::now() < end) { for (int i = 0; i < 20; i++) spin<<<132, 256>>>(400000); cudaDeviceSynchronize(); }
}
EOF
cat > $W/cost.py <<'EOF'
"""Seconds of every stage of one program: built, run plain, captured, its kernel built, profiled. Prints one JSON line."""
import json, sys, time
from pathlib import Path
from cudaops.domain.execution import Captured, Unit
from cudaops.cuda.metrics import METRICS
from cudaops.cuda.verdict import diagnose
from cudaops.domain.profile import Profile
from cudaops.executors.cuda.executor import CudaExecutor
from cudaops.program.parse import load_program
from cudaops.program.plans import baseline_plan
name, source, kernel, timeout, modes, *argv = sys.argv[1:]
row = {"program": name, "argv": argv}
def timed(key, work):
    t = time.monotonic(); found = work(); row[key] = round(time.monotonic() - t, 2); return found
def say(key, value):
    row[key] = value; print(json.dumps(row), flush=True)
try:
    program = timed("parse_s", lambda: load_program(Path(source)))
    gib = float(modes.split("=")[1]) if modes.startswith("gib=") else 0
    ex = CudaExecutor(None, Path("/tmp/cache/builds"), program_folder=Path(source).parent, capture_bytes=int(gib * 2**30) or None)
    timed("open_s", ex.check_available)
    timed("build_plain_s", lambda: ex.host.platform.program(program, recorded=False))
    timed("build_recorded_s", lambda: ex.host.platform.program(program, recorded=True))
    ran = timed("own_total_s", lambda: ex.run_program(program, tuple(argv), float(timeout)))
    row["own_s"] = round(getattr(ran, "seconds", 0), 2); row["own"] = ran.kind if ran.kind == "program_ran" else ran.message
    got = timed("capture_total_s", lambda: ex.capture(program, None if kernel == "-" else kernel, tuple(argv), Path(f"/tmp/costs/{name}"), float(timeout)))
    if not isinstance(got, Captured):
        say("capture", got.placed); sys.exit()
    row["recorded_run_s"] = round(got.seconds, 2); row["stopped"] = got.stopped; row["kernel"] = got.kernel
    row["counts"] = [(c.kernel, c.launches, round(c.seconds, 6)) for c in got.counts]
    w = got.workloads[0]
    row["workloads"] = [(x.launches, round(x.time_share, 3), sum(a.size_bytes for a in x.allocations)) for x in got.workloads]
    compiled = timed("compile_s", lambda: ex.compile(Unit(program=program, kernel=w.kernel, callee=w.callee)))
    plan = baseline_plan(w)
    few = timed("ncu_deciding_s", lambda: ex.profile(compiled, w, plan, timeout_s=float(timeout)))
    if isinstance(few, Profile):
        row["deciding"] = {"metrics": len(few.metrics), "us": few.duration_us, "source": few.source, "notes": few.notes, "hot_lines": len(few.hot_lines), "verdict": diagnose(few, ex.host.device).summary}
    else:
        row["deciding"] = few.message
    if "full" in modes:
        full = timed("ncu_full_s", lambda: ex.profile(compiled, w, plan, every_metric=True, timeout_s=float(timeout)))
        row["full"] = {"metrics": len(full.metrics), "us": full.duration_us, "verdict": diagnose(full, ex.host.device).summary, "known_that_deciding_lacks": sorted(n for n in full.metrics if n in METRICS and n not in few.metrics)}
    say("done", True)
except BaseException as problem:
    say("problem", f"{type(problem).__name__}: {problem}"[:600])
finally:
    try: ex.close()
    except Exception: pass
EOF
cd_run() { timeout $1 python $W/cost.py "${@:2}" 2>>$W/errors.txt | tail -1 >> $OUT/cost.jsonl; }
v() { ( timeout 100 python -m cudaops verify $W/short.cu $W/short_rewrite.cu --executor cuda --min-speedup 1.05 --out $W/v$1 ) > $W/v$1.txt 2>&1; { echo "== $1: rc $? at $SECONDS s"; tail -60 $W/v$1.txt; python - $W/v$1/run.json <<'EOF'
import json, sys
try: r = json.load(open(sys.argv[1]))
except OSError: sys.exit()
for a in (x.get("judgement", {}) for x in r.get("attempts", [])):
    for g in a.get("gates", []):
        if g["name"] in ("clocks", "speedup", "remeasured", "timed_outputs"): print(json.dumps(g))
print(json.dumps(r.get("verify", {}).get("timing")))
EOF
} >> $OUT/clocks.txt 2>&1; }
nvcc -O3 -arch=native -o $W/many $W/many.cu & nvcc -O3 -arch=native -o $W/busy $W/busy.cu & wait
# quiet: 100,000 launches by themselves and captured; ncu's two sets; a kernel of some microseconds
if has launches; then
    for k in 0 1 2; do /usr/bin/env time -f "many $k alone: %e s" $W/many 100000 $k >> $OUT/many.txt 2>&1; done
    cd_run 60 many0 $W/many.cu - 60 - 100000 0; cd_run 60 many1 $W/many.cu - 60 - 100000 1; cd_run 60 many2 $W/many.cu - 60 - 100000 2
    cd_run 60 naive examples/naive_matmul.cu - 60 full
fi
if has clocks; then
    v quiet
    $W/busy 75 & B=$!; sleep 1; v busy; kill $B 2>/dev/null; wait $B 2>/dev/null
fi
echo "quiet part over at $((SECONDS - S)) s" >> $OUT/machine.txt
# strangers beside each other, beside the tests: seconds that a program may take, GiB that it may hold
stranger() { cd_run 235 $1 $(ls /tmp/corpus/$1/*.cu | head -1) - $2 gib=$3 $(cat /tmp/corpus/$1/ARGS); }
if has strangers; then
    for one in ${STRANGERS:-page-rank epistasis channelShuffle lrn}; do
        case $one in page-rank) stranger $one 60 8 & ;; channelShuffle) stranger $one 75 5 & ;; lrn) stranger $one 75 27 & ;; *) stranger $one 75 8 & ;; esac
    done
fi
has tests && ( timeout 220 python -m pytest -q -x -p no:cacheprovider --lane test tests/executors/cuda/test_conformance.py -m gpu ) > $OUT/tests.txt 2>&1 &
wait
echo "all over at $((SECONDS - S)) s" >> $OUT/machine.txt; df -h /tmp | tail -1 >> $OUT/machine.txt
tail -c 20000 $W/errors.txt > $OUT/errors.txt 2>/dev/null
for said in machine.txt many.txt clocks.txt; do [ -f $OUT/$said ] && cat $OUT/$said; done
[ -f $OUT/tests.txt ] && tail -3 $OUT/tests.txt; [ -f $OUT/cost.jsonl ] && cut -c1-900 $OUT/cost.jsonl
