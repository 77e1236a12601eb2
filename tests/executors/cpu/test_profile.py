"""From CUDA source to modelled time and metrics, through real builds and sampled runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cudaops.cuda import metrics as ncu
from cudaops.cuda.devices import DEVICES
from cudaops.cuda.metrics import METRICS
from cudaops.cuda.verdict import diagnose
from cudaops.domain.execution import (
    Compiled,
    KernelResources,
    Misbehaved,
)
from cudaops.domain.profile import Profile
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cpu.profile import sample
from cudaops.program.plans import baseline_plan, make_rewrite
from cudaops.timemodel.launch import LaunchModel, model_launch
from tests.executors.cpu.profile_cases import Case, measured, plan_of, profiled

ADD = """
    __global__ void add(const float* a, const float* b, float* c, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) c[i] = a[i] + b[i];
    }
"""


def test_vector_add_is_bound_by_dram(executor: CpuExecutor, case: Callable[..., Case]) -> None:
    n = 1 << 24
    own = profiled(executor, case(ADD, (n // 256,), (256,), n, {"n": n}))
    floor_us = 12 * n / (DEVICES["H200"].dram_bandwidth_gb_s * 1e3)
    assert floor_us < own.duration_us < 1.3 * floor_us
    assert own.get(ncu.DRAM_READ_BYTES) == pytest.approx(8 * n, rel=0.01)
    assert own.get(ncu.FADD) == n
    assert (own.get(ncu.DRAM_THROUGHPUT) or 0) > 80


def test_small_kernel_is_a_launch(executor: CpuExecutor, case: Callable[..., Case]) -> None:
    found = measured(executor, case(ADD, (4,), (256,), 1024, {"n": 1000}))
    launch_us = DEVICES["H200"].launch_us
    assert found.profile is not None
    assert launch_us + 0.3 <= found.profile.duration_us <= launch_us + 2.5
    assert found.median_us == found.profile.duration_us - UNSEEN_US
    assert found.source == "modelled"


UNSEEN_US = DEVICES["H200"].before_start_us
"""What ncu's duration has and the judging clock has not."""

COLUMN = """
    __global__ void total(const float* a, const int* key, float* b, int n, int stride) {
      float sum = 0.0f;
      LOOP
      b[blockIdx.x * blockDim.x + threadIdx.x] = sum;
    }
"""


def modelled_column(
    executor: CpuExecutor, case: Callable[..., Case], loop: str, *, cold: bool = False
) -> float:
    made = case(
        COLUMN.replace("LOOP", loop), (8,), (128,), 1 << 14, {"n": 1 << 14, "stride": 128}, None,
        ("a", "key", "b"),
    )  # fmt: skip
    regime = made.workload.model_copy(update={"l2_regime": "cold" if cold else "warm"})
    return measured(executor, made._replace(workload=regime)).median_us


def test_a_loop_that_nvcc_cannot_count_is_not_unrolled(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    """`i += blockDim.x` may wrap; SASS of nvcc 13.0.88 has one copy, four, and sixteen."""
    add = "sum += a[i];"
    times = [
        modelled_column(executor, case, f"for (int i = threadIdx.x; i < n; i += {step}) {add}")
        for step in ("blockDim.x", "stride", "128")
    ]
    assert times[0] > 1.5 * times[1] > 1.5 * times[2]


def test_what_a_value_decides_is_loaded_after_it(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    loop = "for (int i = threadIdx.x; i < n; i += blockDim.x) "
    always = modelled_column(executor, case, loop + "sum += key[i] * a[i];")
    chosen = modelled_column(executor, case, loop + "if (key[i] % 2 == i % 2) sum += a[i];")
    assert chosen > 1.2 * always


def test_blocks_that_share_data_wait_for_dram_together(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    loop = "for (int i = threadIdx.x; i < n; i += blockDim.x) sum += a[i];"
    warm = modelled_column(executor, case, loop)
    assert modelled_column(executor, case, loop, cold=True) > 1.5 * warm


FEW_WORK = """
    __global__ void few(const float* a, float* b, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) b[i] = a[i];
    }
"""


def test_blocks_that_do_nothing_take_their_time_to_start(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    """An H200 takes 38 us for 65,280 such blocks of 256 threads."""
    few = measured(executor, case(FEW_WORK, (16,), (256,), 4096, {"n": 4096}, None, ("a", "b")))
    many = case(FEW_WORK, (65296,), (256,), 4096, {"n": 4096}, None, ("a", "b"))
    assert 30.0 < measured(executor, many).median_us - few.median_us < 46.0


SERIAL_SUM = """
    __global__ void total(const float* a, float* b, int n) {
      if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (int i = 0; i < n; ++i) sum += a[i];
        b[0] = sum;
      }
    }
"""

WARP_SUM = """
// @launch total grid=(1) block=(32) smem=0 args=(a, b, n)
__global__ void total(const float* a, float* b, int n) {
  float sum = 0.0f;
  for (int i = threadIdx.x; i < n; i += 32) sum += a[i];
  for (int k = 16; k > 0; k >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, k);
  if (threadIdx.x == 0) b[0] = sum;
}
"""


def test_a_rewrite_of_a_tiny_kernel_is_told_apart(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    """Both take less than a launch does; nothing hides that one takes less than the other."""
    made = case(SERIAL_SUM, (1,), (32,), 64, {"n": 64}, None, ("a", "b"))
    theirs = measured(executor, made)
    ours = measured(executor, made, make_rewrite(WARP_SUM, "user", "a warp", "test"))
    launch_us = DEVICES["H200"].launch_us
    assert launch_us < ours.median_us < theirs.median_us - 0.2
    assert theirs.median_us < 4 * launch_us


ACROSS_BARRIERS = """
    __global__ void rounds(const float* a, float* b, int n) {
      __shared__ float part[1024];
      __shared__ float total;
      int t = threadIdx.x;
      if (t == 0) total = 0.0f;
      __syncthreads();
      float sum = 0.0f;
      for (int r = 0; r < 8; ++r) {
        for (int i = t; i < n; i += blockDim.x) sum += a[r * n + i] * 2.0f;
        part[t] = sum;
        __syncthreads();
        if (t == 0) {
          float first = 0.0f;
          for (int i = 0; i < 32; ++i) first += part[i];
          total += first;
        }
        __syncthreads();
        if (t == 0) b[r] = total;
        sum += total;
      }
      b[8 + t] = sum;
    }
"""


def test_constant_work_between_barriers_does_not_grow_with_the_block(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    """g++ copies a barrier into both arms of `if (t == 0)` and counts each copy's threads alone;
    the phases before such a copy were taken for as many as there are threads."""

    def of(threads: int) -> Profile:
        return profiled(
            executor,
            case(ACROSS_BARRIERS, (4,), (threads,), 8 * 2048, {"n": 2048}, None, ("a", "b")),
        )

    small, large = of(256), of(1024)
    assert large.duration_us < 1.5 * small.duration_us
    assert small.get(ncu.FFMA) == large.get(ncu.FFMA) == 4 * 8 * 2048


PAIRS = """
    __device__ __noinline__ float one(float x, float y) { return x * y + 0.5f; }
    __global__ void pairs(const float* a, float* b, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      float x = a[i], sum = 0.0f;
      for (int k = 0; k < n; ++k) {
        sum = fmaf(x, a[k], sum);
        sum += x * a[k + 1];
        if (k % 2 == 0) sum = one(sum, x);
      }
      b[i] = sum;
    }
"""


def test_multiply_adds_are_counted_exactly_however_they_are_written(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    """By `fmaf`, by a product and a sum, and in a function that stays a call."""
    n, threads = 256, 16 * 128
    own = profiled(executor, case(PAIRS, (16,), (128,), 4096, {"n": n}, None, ("a", "b")))
    assert own.get(ncu.FFMA) == pytest.approx(2.5 * n * threads, rel=0.001)
    instructions = own.get(ncu.INST_EXECUTED)
    assert instructions is not None
    assert instructions > 2.5 * n * threads / 32


@pytest.mark.parametrize(
    "text",
    [
        PAIRS.replace("__global__", "static __global__").replace("__device__", "static __device__"),
        f"namespace {{ {PAIRS} }}",
    ],
    ids=["static", "unnamed namespace"],
)
def test_what_one_file_alone_can_name_is_counted_too(
    text: str, executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    n, threads = 100, 16 * 128
    own = profiled(executor, case(text, (16,), (128,), 4096, {"n": n}, None, ("a", "b")))
    assert own.get(ncu.FFMA) == pytest.approx(2.5 * n * threads, rel=0.001)


RETURNED = """
    struct Two { float x, y, z, w, v; };
    __device__ __noinline__ Two both(float a) { return {a * 2.0f + 1.0f, a * a + 1.0f, a, a, a}; }
    __global__ void calls(const float* a, Two* b, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) b[i] = both(a[i]);
    }
"""


def test_a_call_whose_result_goes_straight_to_memory_counts(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    n = 1024
    own = profiled(executor, case(RETURNED, (4,), (256,), 5 * n, {"n": n}, None, ("a", "b")))
    assert own.get(ncu.FFMA) == 2 * n


DEAR = """
    __global__ void dear(const float* a, float* b, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      float sum = 0.0f;
      for (int k = 0; k < n; ++k)
        sum += TERM;
      b[i] = sum;
    }
"""


@pytest.mark.parametrize(
    ("term", "note"),
    [
        ("sinf(a[k] + i) * expf(a[k])", "arithmetic, sinf, expf"),
        ("a[i + k]", "global load, 4.9 sectors/request"),
    ],
)
def test_a_line_is_told_by_what_it_costs(
    term: str, note: str, executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    made = case(DEAR.replace("TERM", term), (1024,), (256,), 1 << 19, {"n": 64}, None, ("a", "b"))
    line = profiled(executor, made).hot_lines[0]
    assert line.text == f"sum += {term};"
    assert line.note == note


INDEXED = """
    __global__ void table(const float* a, float* b, int n) {
      float held[32];
      for (int i = 0; i < 32; ++i) held[i] = a[i + threadIdx.x];
      float sum = 0.0f;
      for (int k = 0; k < n; ++k) sum += held[INDEX];
      b[blockIdx.x * blockDim.x + threadIdx.x] = sum;
    }
"""


def test_a_private_array_indexed_by_a_value_is_in_local_memory(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    def of(index: str) -> float:
        source = INDEXED.replace("INDEX", index)
        made = case(source, (1024,), (256,), 1024 * 256, {"n": 256}, None, ("a", "b"))
        return profiled(executor, made).duration_us

    fixed, by_loop, by_lane = of("5"), of("k % 32"), of("(int)(a[k] * 31.0f + threadIdx.x) % 32")
    assert fixed < by_loop < by_lane


def transpose(pad: int) -> str:
    return f"""
    __global__ void flip(const float* a, float* b, int n) {{
      __shared__ float t[32][32 + {pad}];
      int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
      for (int j = 0; j < 32; j += 8) t[threadIdx.y + j][threadIdx.x] = a[(y + j) * n + x];
      __syncthreads();
      x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
      for (int j = 0; j < 32; j += 8) b[(y + j) * n + x] = t[threadIdx.x][threadIdx.y + j];
    }}
    """


NAIVE_TRANSPOSE = """
    __global__ void flip(const float* a, float* b, int n) {
      int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
      b[x * n + y] = a[y * n + x];
    }
"""


def test_padded_transpose_beats_conflicts_beats_strided_stores(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    n, grid = 2048, (64, 64)
    runs = {
        "naive": profiled(
            executor, case(NAIVE_TRANSPOSE, grid, (32, 32), n * n, {"n": n}, None, ("a", "b"))
        ),
        "tile": profiled(
            executor, case(transpose(0), grid, (32, 8), n * n, {"n": n}, None, ("a", "b"))
        ),
        "padded": profiled(
            executor, case(transpose(1), grid, (32, 8), n * n, {"n": n}, None, ("a", "b"))
        ),
    }
    assert runs["padded"].duration_us < runs["tile"].duration_us < runs["naive"].duration_us
    assert runs["naive"].get(ncu.BYTES_PER_SECTOR_ST) == 4.0
    assert runs["padded"].get(ncu.BANK_CONFLICTS) == 0.0
    warps = 64 * 64 * 8
    assert runs["tile"].get(ncu.BANK_CONFLICTS_LD) == warps * 4 * 31


@pytest.mark.parametrize(
    ("index", "conflicts"), [("t", 0), ("t * 2", 1), ("t * 32", 31), ("t * 33", 0), ("0", 0)]
)
def test_bank_conflicts_follow_the_stride(
    executor: CpuExecutor, case: Callable[..., Case], index: str, conflicts: int
) -> None:
    source = f"""
    __global__ void strided(float* a, int n) {{
      __shared__ float s[1088];
      int t = threadIdx.x;
      for (int i = t; i < n; i += 32) s[i] = a[i];
      __syncthreads();
      a[t] = s[{index}];
    }}
    """
    own = profiled(executor, case(source, (4,), (32,), 1088, {"n": 1088}, None, ("a",)))
    assert own.get(ncu.BANK_CONFLICTS_LD) == 4 * conflicts
    assert own.get(ncu.BANK_CONFLICTS_ST) == 0


def test_atomics_on_one_address_are_seen(executor: CpuExecutor, case: Callable[..., Case]) -> None:
    source = """
    __global__ void count(const float* a, float* b, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) atomicAdd(b, a[i]);
    }
    """
    n = 1 << 20
    own = profiled(executor, case(source, (n // 256,), (256,), n, {"n": n}, None, ("a", "b")))
    assert own.get(ncu.GLOBAL_RED_REQUESTS) == n / 32
    assert any("atomics" in note for note in own.notes)
    assert "atomic" in own.hot_lines[0].note


TWO_STEPS = """
// @launch first grid=(ceil_div(n, 256)) block=(256) smem=0 args=(a, part, n)
// @launch second grid=(1) block=(32) smem=0 args=(part, c, n)
// @scratch part bytes=4*ceil_div(n, 256)
__global__ void first(const float* a, float* part, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = i < n ? a[i] : 0.0f;
  for (int k = 16; k > 0; k >>= 1) v += __shfl_down_sync(0xffffffffu, v, k);
  if (threadIdx.x == 0) part[blockIdx.x] = v;
}
__global__ void second(const float* part, float* c, int n) {
  if (threadIdx.x == 0) c[0] = part[0];
}
"""


def test_a_plan_of_two_launches_costs_both(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    n = 1 << 20
    made = case(ADD, (n // 256,), (256,), n, {"n": n})
    rewrite = make_rewrite(TWO_STEPS, "user", "two launches", "test")
    found = measured(executor, made, rewrite)
    assert found.profile is not None
    assert found.profile.kernel == "first"
    assert found.median_us + UNSEEN_US > found.profile.duration_us + 2.0
    assert "of 2 launches" in found.profile.notes[0]
    assert found.profile.hot_lines[0].location.file == "candidate.cu"
    assert found.profile.hot_lines[0].text in TWO_STEPS


def test_what_nvcc_says_goes_before_the_estimate(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    n = 1 << 12
    made = case(INDEXED.replace("INDEX", "k % 32"), (16,), (256,), n, {"n": 256}, None, ("a", "b"))
    plan = baseline_plan(made.workload)
    taken = sample(executor, made.unit, made.workload, plan, 60.0)
    assert not isinstance(taken, Misbehaved)

    def of(resources: KernelResources | None) -> LaunchModel:
        sizes = {a.index: a.size_bytes for a in made.workload.allocations}
        model = model_launch(
            taken, made.unit, "table", plan.launches[0], sizes, DEVICES["H200"], bounded=False,
            resources=resources,
        )  # fmt: skip
        assert isinstance(model, LaunchModel)
        return model

    def said(stack: int, spilled: int) -> KernelResources:
        return KernelResources(
            kernel="table", sm_arch="sm_90", registers=168, static_smem_bytes=4096,
            stack_bytes=stack, spill_store_bytes=spilled, spill_load_bytes=spilled,
            constant_bytes=0,
        )  # fmt: skip

    guessed, in_registers, local, spilling = (
        of(None), of(said(0, 0)), of(said(128, 0)), of(said(192, 64)),
    )  # fmt: skip
    assert "estimated" in guessed.notes[1]
    assert in_registers.modelled.work.registers_per_thread == 168
    assert in_registers.modelled.work.static_smem_bytes == 4096
    assert "168 registers/thread and 0 bytes of spills by ptxas" in in_registers.notes[1]
    spaces = [{s.space for s in m.modelled.work.sites} for m in (in_registers, local)]
    assert ["local" in s for s in spaces] == [False, True]
    assert in_registers.duration_us < local.duration_us < spilling.duration_us


COUNT_THEN_WORK = """
// @launch fill grid=(ceil_div(n, 256)) block=(256) smem=0 args=(turns, n)
// @launch work grid=(ceil_div(n, 256)) block=(256) smem=0 args=(a, turns, c, n)
// @scratch turns bytes=4*n
__global__ void fill(int* turns, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) turns[i] = 100;
}
__global__ void work(const float* a, const int* turns, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float sum = 0.0f;
  for (int k = 0; k < turns[i]; ++k) sum = fmaf(sum, 0.5f, a[i]);
  c[i] = sum;
}
"""


def test_a_launch_that_reads_scratch_is_counted_on_what_the_first_wrote(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    n = 1 << 12
    made = case(ADD, (n // 256,), (256,), n, {"n": n})
    rewrite = make_rewrite(COUNT_THEN_WORK, "user", "two launches", "test")
    own = measured(executor, made, rewrite).profile
    assert own is not None
    assert own.kernel == "work"
    assert own.get(ncu.FFMA) == 100 * n


SAME_TWICE = """
// @launch twice grid=(ceil_div(n, 256)) block=(256) smem=0 args=(a, part, n)
// @launch twice grid=(1) block=(256) smem=0 args=(part, c, 256)
// @scratch part bytes=4*n
__global__ void twice(const float* a, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] * 2.0f;
}
"""


def test_a_launch_is_counted_without_those_before_it(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    """The same kernel ran before, on the whole grid; its counters start again."""
    n = 1 << 16
    made = case(ADD, (n // 256,), (256,), n, {"n": n})
    rewrite = make_rewrite(SAME_TWICE, "user", "two launches", "test")
    unit = made.unit.model_copy(update={"rewrite": rewrite})
    assert isinstance(executor.compile(unit), Compiled)
    plan = plan_of(made, rewrite)
    second = sample(executor, unit, made.workload, plan, 60.0)
    assert not isinstance(second, Misbehaved)
    kernel = next(f for f in second.functions if "twice" in f.name)
    assert next(iter(kernel.blocks.values())).count == 256


def test_a_kernel_that_leaves_its_buffer_is_a_value(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    source = """
    __global__ void wild(float* a, int n) { a[(size_t)n * 1000000 + threadIdx.x] = 1.0f; }
    """
    made = case(source, (4,), (32,), 1024, {"n": 1024}, None, ("a",))
    compiled = executor.compile(made.unit)
    assert isinstance(compiled, Compiled)
    outcome = executor.measure(compiled, made.workload, baseline_plan(made.workload))
    assert isinstance(outcome, Misbehaved)


def test_every_metric_is_one_of_the_table(executor: CpuExecutor, case: Callable[..., Case]) -> None:
    own = profiled(executor, case(ADD, (64,), (256,), 1 << 14, {"n": 1 << 14}))
    assert set(own.metrics) <= set(METRICS)
    assert own.get(ncu.GRID_SIZE) == 64
    assert own.metrics[ncu.GRID_SIZE].source == "launch"
    assert own.metrics[ncu.DURATION].source == "modelled"


PLAIN = ("float* a", "float* b", "const float* c", "const float* d")
INPUTS = (*PLAIN[:2], "const float* __restrict__ c", "const float* __restrict__ d")
OUTPUTS = ("float* __restrict__ a", "float* __restrict__ b", *PLAIN[2:])
ONE_OUTPUT = (OUTPUTS[0], *PLAIN[1:])
ALL = (*OUTPUTS[:2], *INPUTS[2:])
TWO = "a[i] = c[i] * 2.0f; b[i] = d[i] * 3.0f;"
LOOP = "for (int k = 0; k < m; ++k) a[i + k * n] = c[i + k * n] * 2.0f;"
FAR = "for (int k = 0; k < m; ++k) a[i + k * n] = a[i + k * n] * 2.0f;"
NEAR = "for (int k = 0; k < m; ++k) a[i + k * 512] = a[i + k * 512] * 2.0f;"
CHAIN = "for (int k = 0; k < m; ++k) a[i + k * 512 + 512] = a[i + k * 512] * 2.0f;"
ADDED = "atomicAdd(b + i, 1.0f); for (int k = 0; k < m; ++k) a[i + k * n] = c[i + k * n] * 2.0f;"
LDG = "for (int k = 0; k < m; ++k) a[i + k * n] = __ldg(c + i + k * n) * 2.0f;"


@pytest.mark.parametrize(
    ("body", "blocked", "free"),
    [
        (TWO, (PLAIN, ONE_OUTPUT), (INPUTS, OUTPUTS, ALL)),
        (LOOP, (PLAIN,), (INPUTS, OUTPUTS, ALL, ONE_OUTPUT)),
        (FAR, (PLAIN, ALL), ()),
        (ADDED, (PLAIN, OUTPUTS), (INPUTS, ALL)),
    ],
    ids=["two-statements", "loop", "in-place-at-an-unknown-distance", "atomic"],
)
def test_restrict_lets_loads_pass_stores_where_nvcc_lets_them(
    executor: CpuExecutor, case: Callable[..., Case], body: str,
    blocked: tuple[tuple[str, ...], ...], free: tuple[tuple[str, ...], ...],
) -> None:  # fmt: skip
    """As in SASS of nvcc 13.0.88 for sm_90: with `__restrict__` on what is read, loads go first,
    whatever the results are declared; with it on results only where it is on all of them."""
    slow = [aliased(executor, case, names, body) for names in blocked]
    fast = [aliased(executor, case, names, body) for names in free]
    assert max(slow) == pytest.approx(min(slow), rel=0.01)
    assert not fast or max(fast) == pytest.approx(min(fast), rel=0.01)
    assert not fast or max(fast) < 0.95 * min(slow)


def test_what_is_a_known_distance_away_passes_a_store(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    """In place by a constant step the loads of several iterations go out together, declared
    `__restrict__` or not; each as the last one's result, they do not. So does `__ldg` always."""
    unknown = aliased(executor, case, PLAIN, FAR)
    for names in (PLAIN, ALL):
        assert aliased(executor, case, names, NEAR) < 0.5 * unknown
        assert aliased(executor, case, names, CHAIN) > 0.8 * unknown
    assert aliased(executor, case, PLAIN, LDG) < 0.5 * aliased(executor, case, PLAIN, LOOP)


def aliased(
    executor: CpuExecutor, case: Callable[..., Case], pointers: tuple[str, ...], body: str
) -> float:
    """Modelled microseconds of a kernel of few warps, whose time is that of loads on their own."""
    source = f"""
        __global__ void scaled({", ".join(pointers)}, int n, int m) {{
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          {body}
        }}
    """
    sizes = {"n": 512, "m": 64}
    return measured(
        executor, case(source, (4,), (128,), 65 * 512, sizes, None, ("a", "b", "c", "d"))
    ).median_us


MIXED = "unsigned h = i * 747796405u + 2891336453u; h = (h >> 16 ^ h) * 277803737u; h ^= h >> 13;"


@pytest.mark.parametrize(
    ("body", "measured_us"),
    [
        (MIXED + "atomicAdd((unsigned*)a + ((h & 255) + (h >> 8 & 255)) / 2, 1u);", 16004.7 / 16),
        ("atomicAdd(a + i % 96, 1.0f); atomicAdd(b + i % 96, 2.0f);", 5018.0 / 12),
    ],
    ids=["histogram", "columns"],
)
def test_atomics_on_one_line_wait_for_each_other(
    executor: CpuExecutor, case: Callable[..., Case], body: str, measured_us: float
) -> None:
    """Measured on an H200 (driver 580.159.04, CUDA 13.0.88, 2026-11-24), 67.1 million bytes in 256
    bins and sums of 96 columns of 50.3 million floats: a sixteenth and a twelfth of it."""
    source = f"__global__ void met(float* a, float* b) {{ {PLACE} {body} }}"
    made = case(source, (16384,), (256,), 1024, {}, None, ("a", "b"))
    assert 0.7 * measured_us < measured(executor, made).median_us < 1.3 * measured_us


PLACE = "int i = blockIdx.x * blockDim.x + threadIdx.x;"


def test_what_each_block_adds_up_by_itself_is_no_contention(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    def of(where: str) -> float:
        body = f"if (threadIdx.x % 32 == 0) atomicAdd({where}, 1.0f);"
        source = f"__global__ void met(float* a, float* b) {{ {PLACE} {body} b[i] = 1.0f; }}"
        return measured(
            executor, case(source, (4096,), (256,), 1 << 20, {}, None, ("a", "b"))
        ).median_us

    assert of("a + 32 * blockIdx.x") < 0.3 * of("a")


COUNTED = """
    __global__ void counted(const float* a, float* b, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      unsigned char count[64];
      for (int k = 0; k < 64; ++k) count[k] = 0;
      for (int k = 0; k < 200; ++k) count[(int)(a[(i + k) % n] * 63.0f)]++;
      int most = 0;
      for (int k = 0; k < 64; ++k) most = max(most, (int)count[k]);
      b[i] = most;
    }
"""


def test_an_array_indexed_by_a_value_is_local_memory(
    executor: CpuExecutor, case: Callable[..., Case]
) -> None:
    """The verdict names it, and the hottest line is where the array is declared."""
    n = 1 << 15
    own = profiled(executor, case(COUNTED, (n // 256,), (256,), n, {"n": n}, buffers=("a", "b")))
    assert (own.get(ncu.LOCAL_LD_SECTORS) or 0) > 0
    assert (own.get(ncu.LOCAL_ST_SECTORS) or 0) > 0
    assert diagnose(own, DEVICES["H200"]).subtype == "register_spills"
    assert own.hot_lines[0].text == "unsigned char count[64];"
    assert own.hot_lines[0].note.startswith("local memory")
