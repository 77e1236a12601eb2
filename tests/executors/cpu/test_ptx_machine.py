"""Inline PTX of an author's own program on the processor, beyond what a rewrite may hold."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cudaops.domain.execution import CompileFailed, Misbehaved, ProgramRan, Unit
from cudaops.executors.cpu.build import Built, build_program, build_unit
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.program.parse import load_program
from tests.executors.cases import ran, run, vector_case, went_wrong
from tests.executors.conformance import SCALE, SCALE_LAUNCH, rewrite

SOURCE = Path(__file__).parents[2] / "data" / "cpu" / "ptx_machine.cu"
HELPERS = """
__device__ float load(const float* p) {
  float x;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(x) : "l"(p));
  return x;
}
__device__ void put(unsigned at, float x) {
  asm volatile("st.shared.f32 [%0], %1;" :: "r"(at), "f"(x) : "memory");
}
"""
MAIN = "int main() { k<<<1, 32>>>(nullptr); cudaDeviceSynchronize(); }\n"
REFUSED = {
    "wgmma.fence.sync.aligned;": "`wgmma.fence.sync.aligned` is not among the instructions",
    "bar.sync 1, 64;": "a barrier other than 0",
    "mov.u32 %0, %%pm0;": "`%%pm0` is not among the registers",
    "{ bra OUT; }": "jumps to `OUT`",
}


@pytest.fixture
def executor(cpu_executor: CpuExecutor) -> CpuExecutor:
    return cpu_executor


def test_every_instruction_computes_what_plain_cpp_does(executor: CpuExecutor) -> None:
    outcome = executor.run_program(load_program(SOURCE), (), 60.0)
    assert isinstance(outcome, ProgramRan), outcome
    assert outcome.stdout == "wrong 0 | 8128 256 64 | no error\n"


def test_a_carry_goes_on_to_the_next_statement(executor: CpuExecutor, tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    source.write_text(
        "#include <cstdio>\n"
        '#define ADD(r, a, b) asm volatile("add.cc.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b))\n'
        '#define ADDC(r, a, b) asm volatile("addc.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b))\n'
        "__global__ void k(unsigned* x) {\n  unsigned i = threadIdx.x, low, high;\n"
        "  ADD(low, 0xfffffff0u, i);\n  ADDC(high, i, 0u);\n"
        "  x[2 * i] = low; x[2 * i + 1] = high;\n"
        "}\nint main() {\n  unsigned *x, h[64];\n  cudaMalloc(&x, sizeof h);\n"
        "  k<<<1, 32>>>(x);\n  cudaMemcpy(h, x, sizeof h, cudaMemcpyDeviceToHost);\n"
        "  int wrong = 0;\n  for (unsigned i = 0; i < 32; ++i)\n"
        "    wrong += h[2 * i] != 0xfffffff0u + i || h[2 * i + 1] != i + (i >= 16);\n"
        '  printf("wrong %d\\n", wrong);\n}\n'
    )
    outcome = executor.run_program(load_program(source), (), 60.0)
    assert isinstance(outcome, ProgramRan), outcome
    assert outcome.stdout == "wrong 0\n"


@pytest.mark.nvcc
def test_ptxas_takes_the_same_program(tmp_path: Path) -> None:
    command = ["nvcc", "-std=c++17", "-arch=sm_90", "-cubin", "-o", "p.cubin", str(SOURCE)]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[:2000]


def test_the_checked_build_takes_it(executor: CpuExecutor) -> None:
    built = build_program(executor.cache, load_program(SOURCE), "checked")
    assert isinstance(built, Built), built


def test_a_widened_unit_is_built_where_no_statement_has_floats(
    executor: CpuExecutor, tmp_path: Path
) -> None:
    source = tmp_path / "k.cu"
    text = 'unsigned l;\n  asm("mov.u32 %0, %%laneid;" : "=r"(l));\n  x[l] = 1.0f;'
    source.write_text(f"__global__ void k(float* x) {{\n  {text}\n}}\n{MAIN}")
    unit = Unit(program=load_program(source), kernel="k", callee="k", widened=True)
    assert isinstance(build_unit(executor.cache, unit), Built)


def test_the_checker_sees_a_load_that_leaves_its_buffer(
    executor: CpuExecutor, tmp_path: Path
) -> None:
    case = vector_case(executor, tmp_path, HELPERS + SCALE, SCALE_LAUNCH)
    body = "if (i < n) b[i] = load(a + i + (i == n - 1 ? 100000 : 0));"
    for check in ("memory", "full"):
        found = went_wrong(run(executor, case, rewrite(body), check=check))
        assert isinstance(found, Misbehaved)
        assert found.what == "out_of_bounds"


@pytest.mark.parametrize(("barrier", "said"), [("__syncthreads();", set()), ("", {"shared_race"})])
def test_the_checker_sees_a_race_through_a_store_to_shared_memory(
    executor: CpuExecutor, tmp_path: Path, barrier: str, said: set[str]
) -> None:
    case = vector_case(executor, tmp_path, HELPERS + SCALE, SCALE_LAUNCH)
    body = (
        "__shared__ float tile[128];\n"
        "  put((unsigned)__cvta_generic_to_shared(tile + threadIdx.x), 1.0f * by);\n"
        f"  {barrier}\n  if (i < n) b[i] = tile[127 - threadIdx.x];"
    )
    found = ran(run(executor, case, rewrite(body), check="full")).warnings
    assert said <= {one.what for one in found}
    assert said or not found


@pytest.mark.parametrize("text", REFUSED)
def test_what_a_processor_does_not_have_is_said_in_one_line(
    executor: CpuExecutor, tmp_path: Path, text: str
) -> None:
    source = tmp_path / "k.cu"
    source.write_text(
        "__global__ void k(int* x) {\n  unsigned u = 1;\n"
        f'  asm volatile("{text}" : "+r"(u));\n  x[0] = u;\n}}\n{MAIN}'
    )
    failed = build_program(executor.cache, load_program(source))
    assert isinstance(failed, CompileFailed)
    assert REFUSED[text] in failed.message
    assert failed.message.endswith("use --executor cuda")
    assert str(failed.location) == "k.cu:3"
