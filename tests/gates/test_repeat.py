"""Candidates that remember: each right at first, and stopped by the repeat gate or an earlier one.

The baseline squares a vector; a candidate is one block, so that what it keeps is simple to keep.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cudaops.domain.judgement import Gate
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cuda.executor import CudaExecutor
from cudaops.sandbox.workbench import Workbench
from tests.gates.verification_bench import EACH, SUM, opened, verified
from tests.standin.platform import STANDIN

SQUARES = EACH.replace("BODY", "a[i] * a[i]")

ONE_BLOCK = """// @launch g grid=(1) block=(128) args=(a, b, n)
__device__ int calls;
__device__ float kept[1000];
__device__ float seen[3];
__device__ const float* last;
__device__ unsigned done;
__global__ void g(const float* a, float* b, int n) {
    int t = threadIdx.x;
BODY
}
"""

CHEATS = {
    "counts its calls": """
    bool wrong = calls > 3;
    __syncthreads();
    for (int i = t; i < n; i += 128) b[i] = wrong ? 1.0f : a[i] * a[i];
    if (t == 0) ++calls;""",
    "is wrong once in ten calls": """
    bool wrong = calls % 10 == 7;
    __syncthreads();
    for (int i = t; i < n; i += 128)
        b[i] = wrong && i == 999 ? 2.0f * a[i] * a[i] + 1.0f : a[i] * a[i];
    if (t == 0) ++calls;""",
    "hands out its first result again": """
    bool first = calls == 0;
    __syncthreads();
    for (int i = t; i < n; i += 128) {
        if (first) kept[i] = a[i] * a[i];
        b[i] = kept[i];
    }
    if (t == 0) ++calls;""",
    "knows the values by three of them": """
    bool known = seen[0] == a[0] && seen[1] == a[n / 2] && seen[2] == a[n - 1];
    __syncthreads();
    for (int i = t; i < n; i += 128) {
        if (!known) kept[i] = a[i] * a[i];
        b[i] = kept[i];
    }
    if (t == 0) { seen[0] = a[0]; seen[1] = a[n / 2]; seen[2] = a[n - 1]; }""",
    "reads in the background which gate it is": """
    for (int i = t; i < n; i += 128) {
        unsigned was = __float_as_uint(b[i]);
        bool gate = was == 0xffffffffu || was == 0x3d3d3d3du || was == 0x3c3c3c3cu;
        b[i] = gate ? a[i] * a[i] : 2.0f;
    }""",
    "is right over one background": """
    for (int i = t; i < n; i += 128)
        b[i] = __float_as_uint(b[i]) == 0xffffffffu ? a[i] * a[i] : 2.0f;""",
}
KNOWS_THE_POINTER = """
    bool known = last == a;
    __syncthreads();
    for (int i = t; i < n; i += 128) {
        if (!known) kept[i] = a[i] * a[i];
        b[i] = kept[i];
    }
    if (t == 0) last = a;"""
KNOWS_POINTER_AND_VALUES = (
    CHEATS["knows the values by three of them"]
    .replace("bool known =", "bool known = last == a &&")
    .replace("{ seen[0]", "{ last = a; seen[0]")
)

IN_SCRATCH = ONE_BLOCK.replace("args=(a, b, n)", "args=(a, b, n, room)").replace(
    "int n) {", "int n, unsigned char* room) {\n    unsigned* mark = (unsigned*)room;"
)
IN_SCRATCH = "// @scratch room bytes=4*n+4*n\n" + IN_SCRATCH
SCRATCH_CHEATS = {
    "skips what it marked": """
    for (int i = t; i < n; i += 128) {
        if (mark[i] == 0xc0ffee11u) continue;
        b[i] = a[i] * a[i];
        mark[i] = 0xc0ffee11u;
    }""",
    "hands out what it marked": """
    float* kept = (float*)(mark + n);
    for (int i = t; i < n; i += 128) {
        if (mark[i] != 0xc0ffee11u) kept[i] = a[i] * a[i];
        b[i] = kept[i];
        mark[i] = 0xc0ffee11u;
    }""",
    "knows two of the values again": """
    float* kept = (float*)(mark + n);
    bool known = mark[0] == __float_as_uint(a[0]) && mark[1] == __float_as_uint(a[n - 1]);
    __syncthreads();
    for (int i = t; i < n; i += 128) {
        if (!known) kept[i] = a[i] * a[i];
        b[i] = kept[i];
    }
    if (t == 0) { mark[0] = __float_as_uint(a[0]); mark[1] = __float_as_uint(a[n - 1]); }""",
}
HONEST_SCRATCH = """
    float* kept = (float*)(mark + n);
    for (int i = t; i < n; i += 128) kept[i] = a[i];
    __syncthreads();
    for (int i = t; i < n; i += 128) b[i] = kept[i] * a[i];"""

ORDER = [
    "checker", "correctness_captured", "correctness_exact", "correctness_perturbed", "repeat",
    "unchanged_inputs",
]  # fmt: skip

HONEST_COUNT = """// @launch g grid=(8) block=(128) args=(a, b, partial, n)
// @scratch partial bytes=4*8
__device__ unsigned done;
__global__ void g(const float* a, float* b, unsigned char* room, int n) {
    float* partial = (float*)room;
    int i = blockIdx.x * 128 + threadIdx.x;
    __shared__ float s[128];
    s[threadIdx.x] = i < n ? a[i] : 0.0f;
    __syncthreads();
    if (threadIdx.x) return;
    float sum = 0;
    for (int k = 0; k < 128; ++k) sum += s[k];
    partial[blockIdx.x] = sum;
    __threadfence();
    if (atomicAdd(&done, 1u) != gridDim.x - 1) return;
    float all = 0;
    for (int k = 0; k < (int)gridDim.x; ++k) all += partial[k];
    b[0] = all;
    done = 0;
}
"""
HONEST_ATOMICS = """// @launch zero grid=(1) block=(1) args=(b)
// @launch g grid=(8) block=(128) args=(a, b, n)
__global__ void zero(float* b) { b[0] = 0.0f; }
__global__ void g(const float* a, float* b, int n) {
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i < n) atomicAdd(b, a[i]);
}
"""


def last_gate(bench: Workbench, body: str, text: str = ONE_BLOCK) -> Gate:
    gates = verified(bench, text.replace("BODY", body))
    assert [g.name for g in gates] == ORDER[: len(gates)]
    return gates[-1]


class RepeatSuite:
    """Inherit and give `executor`, of class scope."""

    @pytest.fixture(scope="class")
    @classmethod
    def bench(cls, executor, tmp_path_factory: pytest.TempPathFactory) -> Workbench:  # type: ignore[no-untyped-def]
        return opened(executor, tmp_path_factory.mktemp("squares"), SQUARES)

    @pytest.fixture(scope="class")
    @classmethod
    def sums(cls, executor, tmp_path_factory: pytest.TempPathFactory) -> Workbench:  # type: ignore[no-untyped-def]
        return opened(executor, tmp_path_factory.mktemp("sums"), SUM, outputs=1)

    @pytest.mark.parametrize("cheat", CHEATS, ids=lambda name: name.replace(" ", "_"))
    def test_what_remembers_is_stopped(self, bench: Workbench, cheat: str) -> None:
        gate = last_gate(bench, CHEATS[cheat])
        assert not gate.passed
        if cheat == "is right over one background":
            assert gate.name == "correctness_exact", gate.line
            return
        assert gate.name == "repeat", gate.line
        assert "of 10 in one process (" in gate.summary
        assert 1 <= gate.numbers["wrong_launch"] <= 10

    @pytest.mark.parametrize("cheat", SCRATCH_CHEATS, ids=lambda name: name.replace(" ", "_"))
    def test_what_remembers_in_scratch_memory_is_stopped(
        self, bench: Workbench, cheat: str
    ) -> None:
        """The second launch of a pair finds scratch memory as the first left it."""
        gate = last_gate(bench, SCRATCH_CHEATS[cheat], IN_SCRATCH)
        assert (gate.name, gate.passed) == ("repeat", False), gate.line
        assert gate.numbers["wrong_launch"] % 2 == 0, gate.line

    def test_an_honest_use_of_scratch_memory_passes(self, bench: Workbench) -> None:
        gates = verified(bench, IN_SCRATCH.replace("BODY", HONEST_SCRATCH))
        assert [g.name for g in gates] == ORDER
        assert all(g.passed for g in gates), [g.line for g in gates]

    def test_an_honest_kernel_passes(self, bench: Workbench) -> None:
        gates = verified(
            bench, ONE_BLOCK.replace("BODY", "for (int i = t; i < n; i += 128) b[i] = a[i] * a[i];")
        )
        assert [g.name for g in gates] == ORDER
        assert all(g.passed for g in gates), [g.line for g in gates]
        repeat = gates[ORDER.index("repeat")]
        assert repeat.numbers["launches"] == 11
        assert repeat.numbers["processes"] == 2
        assert repeat.numbers["input_sets"] >= 5

    @pytest.mark.parametrize("source", [HONEST_COUNT, HONEST_ATOMICS], ids=["counter", "atomics"])
    def test_honest_state_and_atomics_pass(self, sums: Workbench, source: str) -> None:
        gates = verified(sums, source)
        assert [g.name for g in gates] == ORDER
        assert all(g.passed for g in gates), [g.line for g in gates]


class TestCpu(RepeatSuite):
    """On the processor, where addresses within a series are as the gate wants them."""

    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls, cpu_executor: CpuExecutor) -> CpuExecutor:
        return cpu_executor

    @pytest.mark.parametrize(
        "body", [KNOWS_THE_POINTER, KNOWS_POINTER_AND_VALUES], ids=["pointer", "pointer and values"]
    )
    def test_what_is_kept_by_address_is_stopped(self, bench: Workbench, body: str) -> None:
        gate = last_gate(bench, body)
        assert (gate.name, gate.passed) == ("repeat", False), gate.line


@pytest.mark.deep
@pytest.mark.nvcc
class TestStandIn(RepeatSuite):
    """Through the runner. There every launch has other addresses, whatever the gate wants."""

    @pytest.fixture(scope="class")
    @classmethod
    def executor(cls, kernels: Path) -> Iterator[CudaExecutor]:
        made = CudaExecutor(None, kernels, driver=STANDIN)
        yield made
        made.close()
