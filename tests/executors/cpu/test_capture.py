"""Whole programs under the `cpu` executor: capture, choice of target, skipped launches, faults."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.execution import Captured, CompileFailed, Misbehaved, ProgramRan, Unit
from cudaops.domain.program import Program
from cudaops.domain.workload import PointerArgument, ScalarArgument
from cudaops.errors import InputError, PrerequisiteError
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.program.instances import callee_of
from cudaops.program.parse import load_program
from cudaops.program.plans import baseline_plan
from tests.executors.cases import Case, array, before, captured_case, program, ran


@pytest.fixture
def executor(cpu_executor: CpuExecutor) -> CpuExecutor:
    return cpu_executor


def capture(
    executor: CpuExecutor, parsed: Program, folder: Path, *argv: str, kernel: str | None = None
) -> Captured:
    outcome = executor.capture(parsed, kernel, argv, folder / "capture", 60.0)
    assert isinstance(outcome, Captured), outcome
    return outcome


FILL = """
__global__ void fill(float* x, int n, float v) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = v;
}
__global__ void work(const float* x, float* y, int n, int rounds) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float s = x[i];
  for (int r = 0; r < rounds; ++r) s = s * 0.5f + 1.0f;
  y[i] = s;
}
"""
KEEPS = FILL.replace("y[i] = s;", "if (y[i] != s) y[i] = s;")
"""It reads what it writes."""
BUFFERS = "const int n = 1 << 14; float *x, *y; cudaMalloc(&x, n * 4); cudaMalloc(&y, n * 4);"


def test_the_kernel_with_most_time_is_the_target(executor: CpuExecutor, tmp_path: Path) -> None:
    main = (
        BUFFERS
        + "for (int i = 0; i < 9; ++i) fill<<<64, 256>>>(x, n, i);"
        + "work<<<64, 256>>>(x, y, n, 3000);"
    )
    got = capture(executor, program(tmp_path, FILL, main), tmp_path)
    assert got.kernel == "work"
    assert {c.kernel: c.launches for c in got.counts} == {"fill": 9, "work": 1}
    named = capture(executor, program(tmp_path, FILL, main), tmp_path, kernel="fill")
    assert named.kernel == "fill"
    assert 1 <= len(named.workloads) <= 5
    assert all(w.launches == 1 and w.time_share < 1 for w in named.workloads)


def test_configurations_are_distinct_and_most_expensive_first(
    executor: CpuExecutor, tmp_path: Path
) -> None:
    main = (
        BUFFERS
        + """
      for (int i = 0; i < 4; ++i) work<<<64, 256>>>(x, y, n, 100 + i % 2);
      work<<<64, 256>>>(x, y + 64, n - 64, 20000);
    """
    )
    got = capture(executor, program(tmp_path, FILL, main), tmp_path, kernel="work")
    first = got.workloads[0]
    assert first.id == "w0"
    rounds, y = first.argument("rounds"), first.argument("y")
    assert isinstance(rounds, ScalarArgument)
    assert isinstance(y, PointerArgument)
    assert (rounds.value, y.offset_bytes) == (20000, 256)
    assert first.time_share > 0.9


def test_of_large_launches_that_are_alike_two_are_workloads(
    executor: CpuExecutor, tmp_path: Path
) -> None:
    main = """
      const int n = 1 << 12; float *x, *y; cudaMalloc(&x, LARGE); cudaMalloc(&y, 8 * n * 4);
      for (int i = 0; i < 4; ++i) work<<<16, 256>>>(x + 64 * i, y + n * i, n, ROUNDS);
      work<<<16, 256>>>(x, y, n, ROUNDS + 1);
    """.replace("ROUNDS", "20000")  # long enough for what else runs here not to matter
    large = program(tmp_path, FILL, main.replace("LARGE", "1 << 30"))
    got = capture(executor, large, tmp_path, kernel="work")
    rounds = [w.argument("rounds").value for w in got.workloads]  # type: ignore[union-attr]
    assert sorted(rounds) == [20000, 20000, 20001]
    assert got.alike in (1, 2)  # as far as 90 % of the time goes
    small = capture(
        executor, program(tmp_path, FILL, main.replace("LARGE", "1 << 20")), tmp_path, kernel="work"
    )
    assert (len(small.workloads) >= 4, small.alike) == (True, 0)


def test_swapped_buffers_are_one_configuration(executor: CpuExecutor, tmp_path: Path) -> None:
    main = (
        BUFFERS
        + "for (int i = 0; i < 6; ++i) {"
        + " work<<<64, 256>>>(x, y, n, 50); float* t = x; x = y; y = t; }"
    )
    got = capture(executor, program(tmp_path, FILL, main), tmp_path)
    assert [w.launches for w in got.workloads] == [6]


@pytest.mark.parametrize(("text", "skipped"), [(KEEPS, 48), (FILL, 49)])
def test_a_timing_loop_is_skipped_once_it_is_known_to_change_nothing(
    executor: CpuExecutor, tmp_path: Path, text: str, skipped: int
) -> None:
    """Proven by a second launch, or by the kernel's text."""
    main = (
        BUFFERS
        + """
      fill<<<64, 256>>>(x, n, 1.0f);
      for (int i = 0; i < 50; ++i) work<<<64, 256>>>(x, y, n, 3000);
    """
    )
    got = capture(executor, program(tmp_path, text, main), tmp_path, kernel="work")
    count = next(c for c in got.counts if c.kernel == "work")
    assert (count.launches, count.skipped) == (50, skipped)


@pytest.mark.parametrize("arguments", ["x + i % 2, x + n / 2, n / 4", "x, x, n"])
def test_a_kernel_is_not_known_to_change_nothing_where_its_pointers_share_memory(
    executor: CpuExecutor, tmp_path: Path, arguments: str
) -> None:
    main = BUFFERS + "for (int i = 0; i < 4; ++i) work<<<64, 256>>>(ARGUMENTS, 3000);"
    text = program(tmp_path, FILL, main.replace("ARGUMENTS", arguments))
    got = capture(executor, text, tmp_path, kernel="work")
    assert got.counts[0].skipped <= 2


def test_a_loop_of_several_kernels_is_skipped_as_well(
    executor: CpuExecutor, tmp_path: Path
) -> None:
    main = (
        BUFFERS
        + """
      for (int i = 0; i < 20; ++i) {
        fill<<<64, 256>>>(x, n, 1.0f);
        work<<<64, 256>>>(x, y, n, 3000);
      }
    """
    )
    got = capture(executor, program(tmp_path, FILL, main), tmp_path)
    assert next(c for c in got.counts if c.kernel == "work").skipped == 18


@pytest.mark.parametrize(
    "body",
    [
        "x[i] += 1.0f;",
        'if (i == 0) printf("seen\\n"); x[i] = 1.0f;',
    ],
)
def test_what_changes_or_prints_is_never_skipped(
    executor: CpuExecutor, tmp_path: Path, body: str
) -> None:
    kernels = f"""
    __global__ void step(float* x) {{
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      for (int r = 0; r < 2000; ++r) x[i] = x[i] * 1.0f;
      {body}
    }}
    """
    main = (
        BUFFERS
        + """
      for (int i = 0; i < 10; ++i) step<<<64, 256>>>(x);
      float h; cudaMemcpy(&h, x, 4, cudaMemcpyDeviceToHost); printf("%g\\n", h);
    """
    )
    got = capture(executor, program(tmp_path, kernels, main), tmp_path)
    assert got.counts[0].skipped == 0
    assert got.stdout.splitlines()[-1] in ("10", "1")
    assert got.stdout.count("seen") in (0, 10)


def test_memory_touched_between_launches_ends_the_proof(
    executor: CpuExecutor, tmp_path: Path
) -> None:
    main = (
        BUFFERS
        + """
      for (int i = 0; i < 12; ++i) {
        if (i == 6) { float h = 7; cudaMemcpy(x, &h, 4, cudaMemcpyHostToDevice); }
        work<<<64, 256>>>(x, y, n, 3000);
      }
      float h; cudaMemcpy(&h, y, 4, cudaMemcpyDeviceToHost); printf("%.3f\\n", h);
    """
    )
    got = capture(executor, program(tmp_path, FILL, main), tmp_path, kernel="work")
    assert got.counts[0].skipped == 10  # a launch before, and one after
    main_once = (
        BUFFERS
        + """
      float h = 7; cudaMemcpy(x, &h, 4, cudaMemcpyHostToDevice); work<<<64, 256>>>(x, y, n, 3000);
      cudaMemcpy(&h, y, 4, cudaMemcpyDeviceToHost); printf("%.3f\\n", h);
    """
    )
    assert got.stdout == capture(executor, program(tmp_path, FILL, main_once), tmp_path).stdout


def test_arguments_header_kernel_template_and_one_dimension(
    executor: CpuExecutor, tmp_path: Path
) -> None:
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "shift.cuh").write_text(
        "#pragma once\nnamespace ops {\ntemplate <typename T, int K>\n"
        "__global__ void shift(const T* in, T* out, int n) {\n"
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  if (i < n) out[i] = in[(i + K) % n];\n}\n}\n"
    )
    (tmp_path / "m.cu").write_text(
        '#include <cstdlib>\n#include <vector>\n#include "ops/shift.cuh"\n'
        "int main(int argc, char** argv) {\n  int n = atoi(argv[1]);\n  std::vector<int> h(n);\n"
        "  for (int i = 0; i < n; ++i) h[i] = i;\n  int *a, *b;\n  cudaMalloc(&a, n * 4);\n"
        "  cudaMalloc(&b, n * 4);\n  cudaMemcpy(a, h.data(), n * 4, cudaMemcpyHostToDevice);\n"
        "  ops::shift<int, 3><<<(n + 63) / 64, 64>>>(a, b, n);\n"
        "  return cudaDeviceSynchronize();\n}\n"
    )
    parsed = load_program(tmp_path / "m.cu")
    case = Case(parsed, capture(executor, parsed, tmp_path, "500").workloads[0], tmp_path)
    w = case.workload
    assert (w.kernel, w.callee, str(w.grid)) == ("shift", "ops::shift<int, 3>", "(8,1,1)")
    compiled = executor.compile(Unit(program=case.program, kernel="shift", callee=w.callee))
    assert not isinstance(compiled, CompileFailed), compiled
    outcome = ran(executor.run(compiled, w, baseline_plan(w), before(case), tmp_path / "run"))
    np.testing.assert_array_equal(array(outcome.outputs[1], "i32"), (np.arange(500) + 3) % 500)


def test_deduced_template_arguments_are_spelled(executor: CpuExecutor, tmp_path: Path) -> None:
    kernels = """
    template <typename T>
    __global__ void twice(T* x, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) x[i] *= 2;
    }
    """
    main = "double* x; cudaMalloc(&x, 800); twice<<<1, 100>>>(x, 100);"
    case = captured_case(executor, program(tmp_path, kernels, main), tmp_path)
    assert case.workload.callee == "twice<double>"


def test_pointers_whose_type_a_template_decides_may_be_restricted(
    executor: CpuExecutor, tmp_path: Path
) -> None:
    """g++ keeps their `__restrict__` where else a parameter's is no part of a function's type."""
    kernels = """
    template <typename I, typename T>
    __global__ void fill(const T* __restrict__ x, T* __restrict__ y, const I n, const float by) {
      int i = threadIdx.x; if (i < n) y[i] = x[i] * by;
    }
    template <typename I, typename T>
    void filled(const T* __restrict__ x, T* __restrict__ y, const I n) {
      fill<<<1, 32>>>(x, y, n, 2.0f);
    }
    """
    main = "float *x, *y; cudaMalloc(&x, 128); cudaMalloc(&y, 128); cudaMemset(x, 0, 128);"
    main += " filled(x, y, 32);"
    case = captured_case(executor, program(tmp_path, kernels, main), tmp_path)
    assert case.workload.callee == "fill<int, float>"
    kinds = [a.kind for a in case.workload.arguments]
    assert kinds == ["pointer", "pointer", "scalar", "scalar"]


def test_the_programs_own_outputs_come_back(executor: CpuExecutor, tmp_path: Path) -> None:
    main = (
        BUFFERS
        + 'fill<<<1, 32>>>(x, 32, 2.5f); printf("%s\\n", argv[1]);'
        + 'fprintf(stderr, "KERNEL_MS: 1.25\\n"); return 3;'
    )
    outcome = executor.run_program(program(tmp_path, FILL, main), ("hello",), 30.0)
    assert isinstance(outcome, ProgramRan)
    assert (outcome.stdout, outcome.exit_code, outcome.kernel_ms) == ("hello\n", 3, 1.25)


def test_errors_of_a_launch_reach_the_program(executor: CpuExecutor, tmp_path: Path) -> None:
    main = (
        BUFFERS
        + """
      fill<<<1, 2048>>>(x, n, 1.0f);
      printf("%s\\n", cudaGetErrorName(cudaGetLastError()));
      printf("%s\\n", cudaGetErrorName(cudaGetLastError()));
      printf("%d\\n", cudaMemcpy(x, y, n * 8, cudaMemcpyDeviceToDevice));
    """
    )
    outcome = executor.run_program(program(tmp_path, FILL, main), (), 30.0)
    assert isinstance(outcome, ProgramRan)
    assert outcome.stdout.split() == ["cudaErrorInvalidConfiguration", "cudaSuccess", "1"]


@pytest.mark.parametrize(
    ("main", "what", "text"),
    [
        ("fill<<<4, 256>>>(x, n, 1.0f); return 4;", "exit_code", "exits with code 4"),
        (
            'fill<<<4, 256>>>(x, n, 1.0f); fputs("no input\\nKERNEL_MS: 1\\n", stderr); return 4;',
            "exit_code",
            "exits with code 4: no input",
        ),
        (
            "fill<<<64, 256>>>(x, n + 9000, 1.0f);",
            "out_of_bounds",
            "allocation x (size 65536 bytes)",
        ),
        ("fill<<<1, 2048>>>(x, n, 1.0f);", "launch_refused", "1024 threads"),
        ("static float h[64]; fill<<<1, 64>>>(h, 64, 1.0f);", "out_of_bounds", "no device memory"),
        ("fill<<<1, 1>>>(x, 1, 1.0f); abort();", "crash", "aborted"),
        ('fill<<<1, 1>>>(x, 1, 1.0f); throw "up";', "crash", "terminate called"),
        ("fill<<<1, 1>>>(x, 1, 1.0f); int* p = (int*)16; *p = 1;", "crash", "segmentation fault"),
    ],
)
def test_a_program_that_misbehaves_is_told_how(
    executor: CpuExecutor, tmp_path: Path, main: str, what: str, text: str
) -> None:
    kernels = FILL.replace("if (i < n) x[i] = v;", "for (; i < n; i += 64 * 256)\n    x[i] = v;")
    outcome = executor.capture(
        program(tmp_path, kernels, BUFFERS + main), None, (), tmp_path / "c", 30.0
    )
    assert isinstance(outcome, Misbehaved), outcome
    assert outcome.what == what
    assert text in outcome.message
    if "allocation" in text:
        assert str(outcome.location) == "k.cu:6"


def test_a_program_that_never_ends_is_stopped(executor: CpuExecutor, tmp_path: Path) -> None:
    kernels = "__global__ void endless(volatile int* x) { while (*x == 0) {} }"
    parsed = program(
        tmp_path, kernels, "int* x; cudaMalloc(&x, 4); cudaMemset(x, 0, 4); endless<<<1, 1>>>(x);"
    )
    outcome = executor.capture(parsed, None, (), tmp_path / "c", 4.0)
    assert isinstance(outcome, Misbehaved)
    assert outcome.what == "timeout"
    assert outcome.message.startswith("a launch of endless did not end within 4 s")


TURNS = "for (long turn = 0; turn < 1000000000; ++turn) fill<<<64, 256>>>(x, n, (float)turn);"


@pytest.mark.parametrize("whole", [True, False])
def test_a_program_of_endless_launches_stands_as_far_as_it_came(
    executor: CpuExecutor, tmp_path: Path, whole: bool
) -> None:
    """Each launch that was recorded is whole, since no block of it takes long."""
    parsed = program(tmp_path, FILL, BUFFERS + TURNS)
    folder = tmp_path / "c"
    outcome = executor.capture(parsed, None, (), folder, 2.0, whole=whole, whole_s=1.0)
    assert isinstance(outcome, Captured), outcome
    assert outcome.stopped
    assert outcome.workloads
    assert not outcome.cut


def test_a_read_past_an_allocation_is_let_through_where_only_times_are_wanted(
    executor: CpuExecutor, tmp_path: Path
) -> None:
    kernels = "__global__ void next(const float* x, float* y, int n) { y[threadIdx.x] = x[n]; }"
    parsed = program(
        tmp_path, kernels, "float* x; cudaMalloc(&x, 4096); next<<<1, 256>>>(x, x, 1024);"
    )
    outcome = executor.capture(parsed, None, (), tmp_path / "c", 30.0)
    assert isinstance(outcome, Misbehaved)
    assert outcome.what == "out_of_bounds"
    outcome = executor.capture(parsed, None, (), tmp_path / "d", 30.0, whole=False, whole_s=9.0)
    assert isinstance(outcome, Captured), outcome
    assert [line.partition(" ")[0] for line in outcome.beyond] == ["k.cu:3:"]
    assert "past the end of allocation x (size 4096 bytes)" in outcome.beyond[0]


def test_a_host_fault_names_the_authors_line_and_the_file_that_was_not_opened(
    executor: CpuExecutor, tmp_path: Path
) -> None:
    main = 'fill<<<1, 1>>>(0, 0, 0);\nFILE* out = fopen("results/x.txt", "w");\nfputs("1", out);'
    parsed = program(tmp_path, FILL, main)
    outcome = executor.run_program(parsed, (), 60.0)
    assert isinstance(outcome, Misbehaved)
    text = parsed.files[0].text
    line = text[: text.index("fputs")].count("\n") + 1
    assert str(outcome.location) == f"k.cu:{line}"
    assert outcome.message.startswith("host code: segmentation fault")
    told = "; it could not write results/x.txt: there is no folder results"
    assert outcome.message.endswith(told)


def test_a_flood_of_output_is_stopped(executor: CpuExecutor, tmp_path: Path) -> None:
    parsed = program(
        tmp_path,
        FILL,
        'fill<<<1, 1>>>(0, 0, 0); for (;;) puts("0123456789012345678901234567890123456789");',
    )
    outcome = executor.run_program(parsed, (), 60.0)
    assert isinstance(outcome, Misbehaved)
    assert outcome.what == "output_flood"
    assert outcome.message.startswith(
        "printed more than 128 MiB and was stopped; give it arguments"
    )


def test_a_host_stack_that_overflows_is_said(executor: CpuExecutor, tmp_path: Path) -> None:
    deep = (
        "int deep(volatile int* p, int left) {\n"
        "  volatile int held[1024];\n"
        "  held[0] = *p;\n"
        "  return left ? deep(held, left - 1) + held[1] : 0;\n"
        "}\n"
    )
    parsed = program(
        tmp_path, deep + FILL, "fill<<<1, 1>>>(0, 0, 0); int one = 1; return deep(&one, 1 << 30);"
    )
    outcome = executor.run_program(parsed, (), 60.0)
    assert isinstance(outcome, Misbehaved)
    assert outcome.message.startswith("host code: local arrays or calls need more than the 256 MiB")
    assert str(outcome.location).startswith("k.cu:")


def test_what_cannot_be_captured_is_said(executor: CpuExecutor, tmp_path: Path) -> None:
    kernels = """
    __device__ float kept[32];
    __global__ void fill(float* x) { if (threadIdx.x < 32) x[threadIdx.x] = 1; }
    """
    main = "void* x; cudaGetSymbolAddress(&x, kept); fill<<<1, 32>>>((float*)x);"
    parsed = program(tmp_path, kernels, main)
    with pytest.raises(InputError, match="parameter x points into a __device__ variable"):
        executor.capture(parsed, None, (), tmp_path / "c", 30.0)


def test_wrong_targets_are_told(executor: CpuExecutor, tmp_path: Path) -> None:
    parsed = program(tmp_path, FILL, BUFFERS + "fill<<<1, 32>>>(x, 32, 1.0f);")
    with pytest.raises(
        InputError, match="no kernel 'nothing' in this program; its kernels: fill, work"
    ):
        executor.capture(parsed, "nothing", (), tmp_path / "c", 30.0)
    with pytest.raises(InputError, match="did not launch 'work'; it launched fill"):
        executor.capture(parsed, "work", (), tmp_path / "c", 30.0)
    quiet = program(tmp_path, FILL, "if (argc > 5) fill<<<1, 1>>>(nullptr, 0, 0.0f);")
    with pytest.raises(InputError, match="launched no kernel"):
        executor.capture(quiet, None, (), tmp_path / "c", 30.0)
    slow = program(
        tmp_path, "#include <unistd.h>\n" + FILL, "sleep(60); fill<<<1, 1>>>(nullptr, 0, 0.0f);"
    )
    with pytest.raises(InputError, match="launched no kernel when its 2 s were over; --timeout"):
        executor.capture(slow, None, (), tmp_path / "c", 2.0, whole=False)


def test_an_unknown_header_is_an_error_at_its_line(executor: CpuExecutor, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(
        "#include <cusparse.h>\n__global__ void k() {}\nint main() { k<<<1, 1>>>(); }\n"
    )
    outcome = executor.run_program(load_program(tmp_path / "k.cu"), (), 30.0)
    assert isinstance(outcome, CompileFailed)
    assert "cusparse.h" in outcome.message
    assert str(outcome.location).startswith("k.cu:1")


def test_an_unsupported_call_is_a_compile_error_that_names_it(
    executor: CpuExecutor, tmp_path: Path
) -> None:
    parsed = program(tmp_path, FILL, "cudaExternalMemory_t m; fill<<<1, 1>>>(0, 0, 0);")
    outcome = executor.run_program(parsed, (), 30.0)
    assert isinstance(outcome, CompileFailed)
    assert "cudaExternalMemory_t" in outcome.message


def test_children_see_no_secrets(
    executor: CpuExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVIDIA_API_KEY", "secret")
    main = (
        'printf("%s\\n", getenv("NVIDIA_API_KEY") ? "leaked" : "clean"); fill<<<1, 1>>>(0, 0, 0);'
    )
    outcome = executor.run_program(program(tmp_path, FILL, main), (), 30.0)
    assert isinstance(outcome, ProgramRan)
    assert outcome.stdout == "clean\n"
    assert os.environ["NVIDIA_API_KEY"] == "secret"


@pytest.mark.parametrize(
    ("demangled", "callee"),
    [
        ("k(float const*, int)", "k"),
        ("void ops::shift<int, 3>(int const*, int*, int)", "ops::shift<int, 3>"),
        ("void k<float (*)(float)>(float*)", "k<float (*)(float)>"),
        ("void (anonymous namespace)::k<8>(float*)", "k<8>"),
        ("void k<std::pair<int, float>, (Mode)2>(int)", "k<std::pair<int, float>, (Mode)2>"),
    ],
)
def test_a_callee_is_read_from_its_linker_name(demangled: str, callee: str) -> None:
    assert callee_of(demangled) == callee


def test_an_unknown_device_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown device"):
        CpuExecutor("NoSuchDevice", tmp_path)


def test_a_missing_tool_is_an_environment_fault(
    executor: CpuExecutor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    executor.check_available()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PrerequisiteError, match="apt-get install"):
        executor.check_available()


@pytest.mark.parametrize("made", ["malloc(n * 4)", "new char[n * 4]"])
def test_an_access_past_what_a_kernel_allocates_is_named(
    executor: CpuExecutor, tmp_path: Path, made: str
) -> None:
    kernel = f"""
__global__ void own(float* x, int n) {{
  float* mine = (float*){made};
  for (int i = 0; i < 2 * n; ++i) mine[i] = x[0];
  x[threadIdx.x] = mine[0];
}}
"""
    main = "float* x; cudaMalloc(&x, 64 * 4); own<<<1, 64>>>(x, 100); cudaDeviceSynchronize();"
    found = executor.capture(program(tmp_path, kernel, main), None, (), tmp_path / "c", 60.0)
    assert isinstance(found, Misbehaved)
    assert found.what == "out_of_bounds"
    assert "past the end of 400 bytes that malloc or new gave in a kernel" in found.message
    assert found.location is not None
