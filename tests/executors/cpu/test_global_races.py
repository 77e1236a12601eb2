"""Races on global memory, between threads of a block and between blocks: what the checker finds,
and what it lets pass. Many small kernels are launches of one plan; each finding names its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cudaops.domain.execution import Misbehaved
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.program.plans import make_rewrite
from tests.executors.cases import Case, ran, run, vector_case
from tests.executors.conformance import SCALE, SCALE_LAUNCH

LAST_BLOCK = """
    __shared__ bool last;
    s[64 + blockIdx.x * 64 + threadIdx.x] = i;
    {before}
    if (threadIdx.x == 0) {{ {fence} last = atomicAdd(&s[0], 1) == gridDim.x - 1; }}
    {after}
    int sum = 0;
    for (int k = threadIdx.x; last && k < 512; k += 64) sum += s[64 + k];
    if (last) s[1024 + threadIdx.x] = sum;"""
LOOK_BACK = """
    volatile int* flag = s;
    if (threadIdx.x == 0) {{
        int sum = 0;
        if (blockIdx.x) {{
            while (flag[blockIdx.x - 1] == 0) ;
            __threadfence();
            sum = s[64 + blockIdx.x - 1];
        }}
        s[64 + blockIdx.x] = sum + 1;
        {fence}
        flag[blockIdx.x] = 1;
    }}"""
GRID_BARRIER = """
    for (int turn = 1; turn < 4; ++turn) {{
        int* from = s + 64 + (turn & 1) * 512; int* to = s + 64 + (~turn & 1) * 512;
        to[i] = from[(i + 63) % 128] + from[(i + 1) % 128];
        __syncthreads();
        if (threadIdx.x == 0) {{
            {fence}
            atomicAdd(&s[0], 1);
            while (*(volatile int*)s < turn * (int)gridDim.x) ;
            __threadfence();
        }}
        __syncthreads();
    }}"""
LOCK = """
    bool done = false;
    while (!done) {{
        if (atomicCAS(&s[0], 0, 1) == 0) {{
            {fence}
            s[64] += i;
            {fence}
            atomicExch(&s[0], 0);
            done = true;
        }}
    }}"""

CLEAN = {
    "own_places": "s[i] = i; s[i] += 1; s[i] = s[i] * 2;",
    "sums": "s[i] = i; atomicAdd(&s[1024], s[i]);",
    "last_block": LAST_BLOCK.format(
        before="__syncthreads();", fence="__threadfence();", after="__syncthreads();"
    ),
    "last_block_all_fence": LAST_BLOCK.format(
        before="__threadfence(); __syncthreads();", fence="", after="__syncthreads();"
    ),
    "last_block_one_writes": """
    __shared__ bool last;
    if (threadIdx.x == 0) {
        s[64 + blockIdx.x] = 1;
        __threadfence_system();
        last = atomicInc((unsigned*)s, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x < 8) s[1024 + threadIdx.x] = s[64 + threadIdx.x];
    if (last && threadIdx.x == 1) s[0] = 0;""",
    "last_block_volatile": """
    __shared__ bool last;
    volatile int* part = s + 64;
    if (threadIdx.x == 0) {
        part[blockIdx.x] = 1;
        __threadfence();
        last = atomicAdd(&s[0], 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x < 8) s[1024 + threadIdx.x] = part[threadIdx.x];""",
    "look_back": LOOK_BACK.format(fence="__threadfence();"),
    "grid_barrier": GRID_BARRIER.format(fence="__threadfence();"),
    "lock": LOCK.format(fence="__threadfence();"),
    "private_histogram": """
    __shared__ int mine[16];
    if (threadIdx.x < 16) mine[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&mine[i % 13], 1);
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&s[threadIdx.x], mine[threadIdx.x]);""",
    "through_a_barrier": """
    s[i] = i;
    __syncthreads();
    int v = s[blockIdx.x * 64 + 63 - threadIdx.x];
    __syncthreads();
    s[i] = v;""",
    "through_a_warp": """
    s[i] = i;
    __syncwarp();
    int v = s[i ^ 1];
    __syncwarp();
    s[i] = v;""",
    "all_read_then_own": """
    int v = 0;
    for (int k = 0; k < 64; ++k) v += s[blockIdx.x * 64 + k];
    __syncthreads();
    s[i] = v;""",
    "bytes": "((char*)s)[i] = 1; ((short*)s)[1024 + i] = 2; s[1024 + i] = ((char*)s)[i];",
    "fence_by_another_behind_a_barrier": """
    s[64 + i] = i;
    if (threadIdx.x == 5) __threadfence();
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&s[0], 1);
    if (threadIdx.x == 0 && *(volatile int*)s == gridDim.x) s[1024] = s[64] + s[64 + 200];""",
}
READS = "read places of s that others write"
CHANGES = "change one place of s without an atomic"
RACY = {
    "counts": ("s[(i * 7) % 50] += 1;", CHANGES),
    "volatile_counts": ("((volatile int*)s)[(i * 7) % 50] += 1;", CHANGES),
    "byte_counts": ("((unsigned char*)s)[i / 2] += 1;", CHANGES),
    "last_block": (
        LAST_BLOCK.format(before="__syncthreads();", fence="", after="__syncthreads();"), READS,
    ),
    "last_block_fence_behind": (
        LAST_BLOCK.format(
            before="__syncthreads(); if (threadIdx.x == 1) __threadfence();",
            fence="", after="__syncthreads();",
        ), READS,
    ),
    "last_block_no_barrier": (
        LAST_BLOCK.format(before="", fence="__threadfence();", after="__syncthreads();"), READS,
    ),
    "look_back": (LOOK_BACK.format(fence=""), READS),
    "written_behind_the_fence": (
        LOOK_BACK.format(fence="__threadfence(); s[64 + blockIdx.x] = sum + 1;"), READS,
    ),
    "grid_barrier": (GRID_BARRIER.format(fence=""), READS),
    "lock": (LOCK.format(fence=""), CHANGES),
    "stencil": ("s[i + 1] = (s[i] + s[i + 2]) / 2;", READS),
    "no_barrier": ("s[i] = i; s[1024 + i] = s[i ^ 63];", READS),
    "no_warp_barrier": ("s[i] = i; s[1024 + i] = s[i ^ 1];", READS),
    "one_value": ("if (i % 3 == 0) s[7] = 1;", "write one value to one place of s"),
    "set_beside_atomics": (
        "if (i == 0) s[0] = 3; __syncthreads(); atomicAdd(&s[0], 1);",
        "write places of s that others change by atomics",
    ),
    "looks_first": (
        "if (s[0] < i) atomicMax(&s[0], i);", "read places of s that others change by atomics",
    ),
}  # fmt: skip


def plan(kernels: dict[str, str]) -> str:
    """Each kernel with 4096 integers of its own, zero at first."""
    lines = [
        f"// @scratch s bytes={16384 * len(kernels)}",
        f"// @launch clear grid=({64 * len(kernels)}) block=(64) args=(s)",
    ]
    texts = ["__global__ void clear(int* s) { s[blockIdx.x * 64 + threadIdx.x] = 0; }"]
    for number, (name, body) in enumerate(kernels.items()):
        blocks = 2 if name == "grid_barrier" else 8
        lines.append(f"// @launch {name} grid=({blocks}) block=(64) args=(s)")
        head = f"__global__ void {name}(int* s) {{\n  s += {4096 * number};"
        texts.append(f"{head}\n  int i = blockIdx.x * 64 + threadIdx.x;{body}\n}}")
    return "\n".join([*lines, *texts, ""])


@pytest.fixture
def executor(cpu_executor: CpuExecutor) -> CpuExecutor:
    return CpuExecutor(cpu_executor.device, cpu_executor.cache, workers=2)


@pytest.fixture
def scale(executor: CpuExecutor, tmp_path: Path) -> Case:
    return vector_case(executor, tmp_path, SCALE, SCALE_LAUNCH)


def checked(executor: CpuExecutor, case: Case, text: str) -> tuple[Misbehaved, ...]:
    return ran(run(executor, case, make_rewrite(text, "t", "t", "t"), check="full")).warnings


def test_one_value_from_two_workers_is_one_value_whatever_their_timing(
    executor: CpuExecutor, scale: Case
) -> None:
    text = """// @scratch s bytes=4194304
// @launch flags grid=(2) block=(32) args=(s)
__global__ void flags(int* s) {
  for (int n = 0; n < 1 << 15; ++n) s[n * 32 + threadIdx.x] = 255;
}
"""
    for _ in range(3):
        (one,) = checked(executor, scale, text)
        assert "write one value to one place of s" in one.habit


def test_what_is_in_order_is_no_race(executor: CpuExecutor, scale: Case) -> None:
    for _ in range(3):
        assert checked(executor, scale, plan(CLEAN)) == ()


def test_what_nothing_puts_in_order_is_one(executor: CpuExecutor, scale: Case) -> None:
    names = list(RACY)
    for part in (names[:8], names[8:]):
        said = checked(executor, scale, plan({name: RACY[name][0] for name in part}))
        assert {one.what for one in said} == {"global_race"}
        for name in part:
            habits = {one.habit for one in said if one.message.startswith(f"{name}: ")}
            assert any(RACY[name][1] in habit for habit in habits), (name, habits)


def test_a_race_names_both_lines_and_the_place(executor: CpuExecutor, scale: Case) -> None:
    text = """// @launch counted grid=(8) block=(128) args=(a, b, n)
__global__ void counted(const float* a, float* b, int n) {
  int i = blockIdx.x * 128 + threadIdx.x;
  if (i == 40) b[17] = 1;
  if (i == 300) b[17] = 2;
}
"""
    (one,) = checked(executor, scale, text)
    assert one.what == "global_race"
    assert re.fullmatch(
        r"counted: race on global memory: block \((2|0),0,0\) thread \((44|40),0,0\) writes "
        r"b\[17\] while block \((2|0),0,0\) thread \((44|40),0,0\) writes it at "
        r"candidate.cu:[45], and nothing puts the two in order: "
        r"several threads change one place of b without an atomic",
        one.message,
    )
    assert str(one.location) in ("candidate.cu:4", "candidate.cu:5")
