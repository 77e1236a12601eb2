"""Whole programs through the recorder, over the stand-in GPU.

The `cpu` executor, whose own recorder is another, says what is right.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from cudaops.domain.base import Dim3
from cudaops.domain.execution import Captured, Misbehaved, ProgramRan
from cudaops.domain.program import Program
from cudaops.domain.workload import Workload
from cudaops.errors import InputError
from cudaops.executors.capture.recording import MEMORY_SHARE, file_system, room_for
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.executors.cuda.platform import Executable
from cudaops.executors.ledger import LEDGER
from cudaops.program.parse import load_program
from tests.executors.cases import program
from tests.executors.cuda.gpu_programs import (
    PROGRAMS,
    REFUSED,
    StandInPrograms,
    on_gpu,
    recorded_bytes,
)
from tests.lanes import mostly_deep

MISBEHAVE = {"exits_nonzero", "never_ends", "out_of_bounds"}


@pytest.fixture
def platform(cpu_executor: CpuExecutor) -> StandInPrograms:
    return StandInPrograms(cpu_executor.cache)


def captured(
    platform: StandInPrograms, parsed: Program, folder: Path, kernel: str | None = None
) -> Captured:
    outcome = on_gpu(platform, parsed).capture(kernel, folder / "gpu")
    assert isinstance(outcome, Captured), outcome
    return outcome


def facts(workload: Workload) -> dict[str, Any]:
    """Everything that two recorders must agree on, contents instead of names of files."""
    told = workload.model_dump(
        exclude={
            "id",
            "time_share",
            "first_launch",
            "l2_regime",
            "folder",
            "allocations",
            "globals",
        }
    )
    contents = [(str(a.index), a.before, a.after) for a in workload.allocations]
    contents += [(g.name, g.before, g.after) for g in workload.globals]
    for name, *files in contents:
        told[f"contents {name}"] = [recorded_bytes(workload, f) for f in files]
    told["allocations"] = [a.model_dump(exclude={"before", "after"}) for a in workload.allocations]
    return told


def configuration(workload: Workload) -> str:
    return f"{workload.site} {workload.callee} {workload.grid} {workload.arguments}"


def or_why_not(capture: Callable[..., object], *arguments: object) -> object:
    try:
        return capture(*arguments)
    except InputError as problem:
        return str(problem)


@pytest.mark.parametrize(
    "path",
    mostly_deep((p for p in PROGRAMS if p.stem not in REFUSED | MISBEHAVE), 8),
    ids=lambda p: str(p.stem),
)
def test_workloads_are_those_of_the_cpu_executor(
    platform: StandInPrograms, cpu_executor: CpuExecutor, tmp_path: Path, path: Path
) -> None:
    parsed = load_program(path)
    first = captured(platform, parsed, tmp_path)
    for count in first.counts:
        theirs = or_why_not(cpu_executor.capture, parsed, count.kernel, (), tmp_path / "cpu", 60.0)
        known: dict[str, dict[str, Any]] = {}
        both: list[Workload] = []
        for _ in range(5):  # those kept cover most of the time, which a busy machine shifts
            ours = or_why_not(on_gpu(platform, parsed).capture, count.kernel, tmp_path / "gpu")
            if not isinstance(ours, Captured) or not isinstance(theirs, Captured):
                break
            known = {configuration(w): facts(w) for w in theirs.workloads}
            both = [w for w in ours.workloads if configuration(w) in known]
            if both:
                break
        if not isinstance(ours, Captured) or not isinstance(theirs, Captured):
            assert ours == theirs
            assert (path.stem, count.kernel) == ("indirect", "stride")
            continue
        assert ours.stdout == theirs.stdout
        assert {c.kernel: c.launches for c in ours.counts} == {
            c.kernel: c.launches for c in theirs.counts
        }
        assert both
        for workload in both:
            assert facts(workload) == known[configuration(workload)]


WORK = """
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
STOPPED = "did not end within 2 s and was stopped: "
BUFFERS = "const int n = 1 << 12; float *x, *y; cudaMalloc(&x, n * 4); cudaMalloc(&y, n * 4);\n"


def test_the_kernel_with_most_device_time_is_the_target(
    platform: StandInPrograms, tmp_path: Path
) -> None:
    main = (
        BUFFERS
        + "for (int i = 0; i < 9; ++i) fill<<<16, 256>>>(x, n, i);"
        + "for (int i = 0; i < 3; ++i) work<<<16, 256>>>(x, y, n, 20000);"
    )
    got = captured(platform, program(tmp_path, WORK, main), tmp_path)
    assert got.kernel == "work"
    assert [(c.kernel, c.launches, c.skipped) for c in got.counts] == [
        ("work", 3, 0),
        ("fill", 9, 0),
    ]
    assert got.counts[0].seconds > 10 * got.counts[1].seconds > 0
    assert got.workloads[0].time_share == pytest.approx(1.0)


ONCE = "work<<<16, 256>>>(x, y, n, ROUNDS); "
MORE = "for (int i = 0; i < 5; ++i) "
SWAPPED = "float* t = x; x = y; y = t; "
FILLED = "fill<<<1, 32>>>(x, 32, 1); "
OTHERS = "float *z, *u; cudaMalloc(&z, n * 4); cudaMalloc(&u, n * 4); "


def rounds(count: str) -> str:
    return ONCE.replace("ROUNDS", count)


@pytest.mark.parametrize(
    ("launches", "regimes"),
    [
        (MORE + rounds("50"), {50: ("warm", 0)}),
        (MORE + "{" + rounds("50") + SWAPPED + "}", {50: ("warm", 0)}),
        (MORE + "{" + FILLED + rounds("50") + "}", {50: ("cold", 0)}),
        (rounds("50"), {50: ("cold", 0)}),
        (MORE + rounds("50 + i % 2"), {50: ("cold", 0), 51: ("cold", 1)}),
        (
            FILLED + 3 * rounds("40") + FILLED + rounds("60"),
            {40: ("warm", 0), 60: ("cold", 3)},
        ),
        (
            OTHERS + MORE + "{" + rounds("50") + rounds("50").replace("x, y", "z, u") + "}",
            {50: ("cold", 0)},
        ),
    ],
)
def test_where_a_launch_stands_and_what_stood_before_it(
    platform: StandInPrograms,
    tmp_path: Path,
    launches: str,
    regimes: dict[int, tuple[str, int]],
) -> None:
    parsed = program(tmp_path, WORK, BUFFERS + launches)
    workloads = captured(platform, parsed, tmp_path, "work").workloads
    seen = {w.argument("rounds").value: (w.l2_regime, w.first_launch) for w in workloads}  # type: ignore[union-attr]
    assert set(seen.items()) <= set(regimes.items())
    assert seen


def test_managed_stream_ordered_and_pinned_memory(
    platform: StandInPrograms, tmp_path: Path
) -> None:
    kernels = """
    __global__ void add(const float* a, const float* b, float* c, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) c[i] = a[i] + b[i];
    }
    """
    main = """
      const int n = 100; float *a, *b, *c; cudaStream_t s; cudaStreamCreate(&s);
      cudaMallocManaged(&a, n * 4); cudaMallocAsync(&b, n * 4, s); cudaMallocHost(&c, n * 4);
      for (int i = 0; i < n; ++i) a[i] = i;
      cudaMemcpyAsync(b, a, n * 4, cudaMemcpyDefault, s);
      add<<<1, 128, 0, s>>>(a, b + 4, c, n - 4);
      cudaStreamSynchronize(s); printf("%g\\n", c[1]); cudaFreeAsync(b, s);
    """
    got = captured(platform, program(tmp_path, kernels, main), tmp_path)
    assert got.stdout == "6\n"
    workload = got.workloads[0]
    assert [a.size_bytes for a in workload.allocations] == [400, 400, 400]
    assert workload.argument("b").offset_bytes == 16  # type: ignore[union-attr]
    assert [a.role for a in workload.allocations] == ["in", "in", "inout"]


def test_a_reset_device_has_given_its_times_before(
    platform: StandInPrograms, tmp_path: Path
) -> None:
    main = (
        BUFFERS + "work<<<16, 256>>>(x, y, n, 50); cudaDeviceReset(); cudaMalloc(&x, n * 4);"
        "cudaMalloc(&y, n * 4); work<<<16, 256>>>(x, y, n, 50); if (cudaDeviceReset()) return 1;"
    )
    got = captured(platform, program(tmp_path, WORK, main), tmp_path)
    assert got.counts[0].launches == 2
    assert got.counts[0].seconds > 0


def test_what_the_program_prints_and_returns(platform: StandInPrograms, tmp_path: Path) -> None:
    main = (
        BUFFERS
        + 'fill<<<1, 32>>>(x, 32, 2.5f); printf("%s\\n", argc > 1 ? argv[1] : "none");'
        + 'fprintf(stderr, "KERNEL_MS: 1.25\\n"); return argc > 1 ? 3 : 0;'
    )
    parsed = program(tmp_path, WORK, main)
    ran = on_gpu(platform, parsed, "hello").run()
    assert isinstance(ran, ProgramRan)
    assert (ran.stdout, ran.exit_code, ran.kernel_ms) == ("hello\n", 3, 1.25)
    got = captured(platform, parsed, tmp_path)
    assert (got.stdout, got.exit_code, got.kernel_ms) == ("none\n", 0, 1.25)


def test_errors_of_a_launch_reach_the_program(platform: StandInPrograms, tmp_path: Path) -> None:
    main = (
        BUFFERS
        + """
      fill<<<1, 2048>>>(x, n, 1.0f);
      printf("%s\\n", cudaGetErrorName(cudaPeekAtLastError()));
      work<<<16, 256>>>(x, y, n, 5);
      printf("%s\\n", cudaGetErrorName(cudaGetLastError()));
      printf("%s\\n", cudaGetErrorName(cudaGetLastError()));
      work<<<16, 256>>>(x, y, n, 5);
      cudaFree((void*)x); cudaFree((void*)8);
      fill<<<16, 256>>>(y, n, 1.0f);
      printf("%s\\n", cudaGetErrorName(cudaGetLastError()));
    """
    )
    got = captured(platform, program(tmp_path, WORK, main), tmp_path, "work")
    assert got.stdout.split() == [
        "cudaErrorInvalidConfiguration",
        "cudaErrorInvalidConfiguration",
        "cudaSuccess",
        "cudaErrorInvalidValue",
    ]
    assert {c.kernel: c.launches for c in got.counts} == {"work": 2, "fill": 1}


def test_a_refused_launch_is_no_launch(platform: StandInPrograms, tmp_path: Path) -> None:
    main = (
        BUFFERS
        + "for (int t : {2048, 256, 2048, 256}) work<<<16, t>>>(x, y, n, 5); cudaGetLastError();"
    )
    got = captured(platform, program(tmp_path, WORK, main), tmp_path)
    assert [(w.block, w.launches, w.first_launch) for w in got.workloads] == [(Dim3(x=256), 2, 0)]


@pytest.mark.parametrize(
    ("main", "what", "text"),
    [
        ("fill<<<4, 256>>>(x, n, 1.0f); return 4;", "exit_code", "exits with code 4"),
        ("fill<<<1, 2048>>>(x, n, 1.0f);", "launch_refused", "block (2048,1,1)"),
        (
            "static float h[64]; fill<<<1, 64>>>(h, 64, 1.0f);",
            "out_of_bounds",
            "parameter x is given an address that is no device memory",
        ),
        ("fill<<<1, 1>>>(x, 1, 1.0f); abort();", "crash", "aborted"),
        ("fill<<<1, 64>>>((float*)16, 64, 1.0f);", "out_of_bounds", "fill"),
        ("for (;;) {} fill<<<1, 1>>>(x, 1, 1.0f);", "timeout", STOPPED + "it had launched no"),
        ("hang<<<1, 1>>>(x);", "timeout", STOPPED + "a launch, or what it waits for"),
    ],
)
def test_a_program_that_misbehaves_is_told_how(
    platform: StandInPrograms, tmp_path: Path, main: str, what: str, text: str
) -> None:
    hang = "__global__ void hang(volatile float* x) { for (;;) *x = *x + 1; }"
    parsed = program(tmp_path, WORK + hang, BUFFERS + main)
    outcome = on_gpu(platform, parsed, timeout_s=2.0).capture(None, tmp_path / "c")
    assert isinstance(outcome, Misbehaved), outcome
    assert outcome.what == what
    assert text in outcome.message


def test_a_program_that_does_not_end_is_captured_as_far_as_it_came(
    platform: StandInPrograms, tmp_path: Path
) -> None:
    main = BUFFERS + "for (;;) { fill<<<1, 32>>>(x, 32, 1.0f); usleep(50 * 1000); }"
    parsed = program(tmp_path, "#include <unistd.h>\n" + WORK, main)
    outcome = on_gpu(platform, parsed, timeout_s=2.0).capture(None, tmp_path / "c")
    assert isinstance(outcome, Captured), outcome
    assert (outcome.stopped, outcome.paused) == (True, False)
    assert [3 <= w.launches <= 40 for w in outcome.workloads] == [True]
    assert recorded_bytes(outcome.workloads[0], outcome.workloads[0].allocations[0].after)


def test_a_program_that_launches_nothing_for_long_is_not_waited_for(
    platform: StandInPrograms, tmp_path: Path
) -> None:
    """The pause is 0.6 s: what is launched after 0.1 s counts, what comes after 3 s does not. While
    a kernel of the program's has not been launched it is 1.8 s, and there is none before the one
    that is asked for was."""
    main = (
        BUFFERS
        + """
      printf("%d arguments\\n", argc);
      for (int i = 0; i < 3; ++i) {
        fill<<<1, 32>>>(x, 32, 1.0f);
        usleep(100 * 1000);
      }
      usleep(3000 * 1000);
      fill<<<2, 32>>>(x, 64, 1.0f);
      printf("the end\\n");
    """
    )
    parsed = program(tmp_path, "#include <unistd.h>\n" + WORK, main)
    gpu = on_gpu(platform, parsed, timeout_s=4.0)
    outcome = gpu.capture(None, tmp_path / "c")
    assert isinstance(outcome, Captured), outcome
    assert (outcome.paused, outcome.stopped) == (True, False)
    assert [(w.grid.x, w.launches) for w in outcome.workloads] == [(1, 3)]
    assert outcome.stdout == "1 arguments\n"
    until, whole = gpu.run(until_pause=True), gpu.run()
    assert isinstance(until, ProgramRan), until
    assert isinstance(whole, ProgramRan), whole
    assert (until.stdout, whole.stdout) == ("1 arguments\n", "1 arguments\nthe end\n")
    later = "usleep(1200 * 1000); work<<<16, 256>>>(x, y, n, 5);"
    parsed = program(tmp_path / "2", "#include <unistd.h>\n" + WORK, main + later)
    asked = on_gpu(platform, parsed, timeout_s=8.0).capture("work", tmp_path / "d")
    assert isinstance(asked, Captured), asked
    assert [w.kernel for w in asked.workloads] == ["work"]
    soon = main.replace("usleep(3000", "usleep(1200") + "work<<<16, 256>>>(x, y, n, 5);"
    parsed = program(tmp_path / "3", "#include <unistd.h>\n" + WORK, soon)
    awaited = on_gpu(platform, parsed, timeout_s=4.0).capture(None, tmp_path / "e")
    assert isinstance(awaited, Captured), awaited
    assert {c.kernel for c in awaited.counts} == {"fill", "work"}


def test_a_program_that_only_launches_is_stopped_between_two_launches(
    platform: StandInPrograms, tmp_path: Path
) -> None:
    """Its thread gives the recorder's lock back for less than a microsecond at a time."""
    main = BUFFERS + "for (;;) work<<<16, 256>>>(x, y, n, 20000);"
    parsed = program(tmp_path, WORK, main)
    outcome = on_gpu(platform, parsed, timeout_s=2.0).capture(None, tmp_path / "c")
    assert isinstance(outcome, Captured), outcome
    assert outcome.stopped
    assert outcome.workloads[0].launches > 1


@pytest.mark.parametrize(
    ("kernel", "main", "text"),
    [
        ("nothing", "fill<<<1, 32>>>(x, 32, 1.0f);", "its kernels: fill, work"),
        ("work", "fill<<<1, 32>>>(x, 32, 1.0f);", "did not launch 'work'; it launched fill"),
        (None, "if (argc > 5) fill<<<1, 1>>>(x, 0, 0.0f);", "launched no kernel"),
        (None, "fill<<<1, 1>>>(x, 1, 1.0f); _Exit(0);", "without returning from main"),
    ],
)
def test_what_cannot_be_captured_is_an_input_error(
    platform: StandInPrograms, tmp_path: Path, kernel: str | None, main: str, text: str
) -> None:
    parsed = program(tmp_path, WORK, BUFFERS + main)
    with pytest.raises(InputError, match=text):
        on_gpu(platform, parsed).capture(kernel, tmp_path / "c")


def test_pointers_that_cannot_be_followed_are_limits(
    platform: StandInPrograms, tmp_path: Path
) -> None:
    kernels = """
    struct View { float* data; unsigned long address; };
    __global__ void fill(View v) { if (threadIdx.x < 32) v.data[threadIdx.x] = 1; }
    __global__ void rows(float** x) { x[0] = (float*)malloc(4); }
    """
    parsed = program(
        tmp_path,
        kernels,
        "View v; cudaMalloc(&v.data, 128); v.address = (unsigned long)v.data; fill<<<1, 32>>>(v);"
        "float** p; cudaMalloc(&p, 8); cudaMemset(p, 0, 8);"
        "rows<<<1, 1>>>(p);",
    )
    with pytest.raises(InputError, match="parameter v holds a device address at byte 8, where"):
        on_gpu(platform, parsed).capture("fill", tmp_path / "c")
    says = "parameter x points to pointers to memory that is not an allocation"
    with pytest.raises(InputError, match=says):
        on_gpu(platform, parsed).capture("rows", tmp_path / "c")


def test_a_variable_that_points_into_the_kernels_heap_is_a_limit_where_it_is_named(
    platform: StandInPrograms, cpu_executor: CpuExecutor, tmp_path: Path
) -> None:
    kernels = """
    struct Scale { float by; __device__ Scale(float by) : by(by) {} };
    __device__ Scale* made;
    __device__ float* given;
    __global__ void make() { made = new Scale(2.0f); }
    __global__ void use(float* x) { x[threadIdx.x] = made->by * threadIdx.x; }
    __global__ void read(float* x) { x[threadIdx.x] += given[threadIdx.x]; }
    """
    parsed = program(
        tmp_path,
        kernels,
        "float *x, *y; cudaMalloc(&x, 128); cudaMalloc(&y, 128); cudaMemset(y, 0, 128);"
        "cudaMemcpyToSymbol(given, &y, sizeof y); make<<<1, 1>>>(); use<<<1, 32>>>(x);"
        "read<<<1, 32>>>(x); cudaDeviceSynchronize();",
    )
    says = "the variable made points to memory that is not an allocation"
    with pytest.raises(InputError, match=says):
        on_gpu(platform, parsed).capture("use", tmp_path / "gpu")
    with pytest.raises(InputError, match=says):
        cpu_executor.capture(parsed, "use", (), tmp_path / "cpu", 60.0)
    captured(platform, parsed, tmp_path, "read")


def test_what_does_not_fit_is_said(platform: StandInPrograms, tmp_path: Path) -> None:
    parsed = program(
        tmp_path, WORK, "float* x; cudaMalloc(&x, 13ull << 30); fill<<<1, 32>>>(x, 32, 1.0f);"
    )
    started = time.monotonic()
    with pytest.raises(InputError, match=r"the buffers of fill exceed [\d.]+ GiB before and"):
        on_gpu(platform, parsed).capture(None, tmp_path / "c")
    runs = [i for i in LEDGER.since(started) if i.tool == "program"]
    assert len(runs) == 1  # of a second one it was known that it would not fit either


def test_the_programs_environment_has_no_secret_and_no_trace_of_us(
    platform: StandInPrograms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVIDIA_API_KEY", "secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    main = (
        BUFFERS
        + 'fill<<<1, 1>>>(x, 1, 1.0f); printf("%d %d %s\\n", getenv("NVIDIA_API_KEY") != nullptr,'
        'getenv("CUDAOPS_RECORDER_FOLDER") != nullptr, getenv("CUDA_VISIBLE_DEVICES"));'
    )
    assert captured(platform, program(tmp_path, WORK, main), tmp_path).stdout == "0 0 1\n"


@pytest.mark.parametrize("callee", ["fill", "fill<float>"])
def test_a_kernel_may_be_called_like_a_function_of_the_standard_library(
    platform: StandInPrograms, tmp_path: Path, callee: str
) -> None:
    template = "template <typename T> " if "<" in callee else ""
    kernels = f"#include <algorithm>\nusing namespace std;\n{template}"
    kernels += "__global__ void fill(float* x, float v) { x[threadIdx.x] = v; }\n"
    main = f"float* x; cudaMalloc(&x, 128); {callee}<<<1, 32>>>(x, 1);"
    got = captured(platform, program(tmp_path, kernels, main), tmp_path)
    assert [w.callee for w in got.workloads] == [callee]


def test_launches_that_all_differ_are_counted(platform: StandInPrograms, tmp_path: Path) -> None:
    """A loop's index as an argument: every launch is a configuration of its own."""
    main = BUFFERS + "for (int i = 0; i < 300; ++i) fill<<<1, 32>>>(x, 32, (float)i);"
    got = captured(platform, program(tmp_path, WORK, main), tmp_path)
    assert [(c.kernel, c.launches) for c in got.counts] == [("fill", 300)]
    assert all(w.launches == 1 for w in got.workloads)


def test_contents_larger_than_a_piece_are_whole(platform: StandInPrograms, tmp_path: Path) -> None:
    """40 MiB and some: three pieces, one of them zero; what is only read is kept once."""
    main = (
        "const int n = (40 << 18) + 77; float *x, *y; cudaMalloc(&x, n * 4); cudaMalloc(&y, n * 4);"
        "float* h = new float[n](); for (int i = 0; i < n; ++i)"
        "  if (i < 1000 || i > (33 << 18)) h[i] = i % 1013;"
        "cudaMemcpy(x, h, n * 4, cudaMemcpyHostToDevice); cudaMemset(y, 0, n * 4);"
        "work<<<16, 256>>>(x, y, 1000, 3);"
    )
    got = captured(platform, program(tmp_path, WORK, main), tmp_path, "work")
    (workload,) = got.workloads
    size = 4 * ((40 << 18) + 77)
    assert [a.size_bytes for a in workload.allocations] == [size, size]
    read, written = workload.allocations
    stood = np.zeros(size // 4, np.float32)
    places = np.arange(size // 4)
    kept = (places < 1000) | (places > 33 << 18)
    stood[kept] = (places % 1013)[kept]
    assert np.array_equal(np.frombuffer(recorded_bytes(workload, read.before), np.float32), stood)
    assert read.before == read.after
    assert not any(recorded_bytes(workload, written.before))
    assert any(recorded_bytes(workload, written.after)[:4000])


def test_what_takes_most_time_has_the_larger_room(
    platform: StandInPrograms, tmp_path: Path
) -> None:
    """Neither kernel has room at its first launch; the one that takes the time has it later."""
    main = BUFFERS + (
        "for (int i = 0; i < 6; ++i) {"
        " fill<<<16, 256>>>(x, n, 1.0f); work<<<16, 256>>>(x, y, n, 20000); }"
    )
    built = platform.program(program(tmp_path, WORK, main), recorded=True)
    assert isinstance(built, Executable)
    report = tmp_path / "report.tsv"
    environment = {
        "CUDAOPS_RECORDER_REPORT": str(report), "CUDAOPS_RECORDER_FOLDER": str(tmp_path),
        "CUDAOPS_RECORDER_BYTES": "1000", "CUDAOPS_RECORDER_MOST_BYTES": str(1 << 20),
    }  # fmt: skip
    subprocess.run([built.path], env=environment, check=True, timeout=60)
    lines = [line.split("\t") for line in report.read_text().splitlines()]
    assert [line[1] for line in lines if line[0] == "full"] == ["fill", "work"]
    assert [line[2] for line in lines if line[0] == "config"] == ["work"]
    assert [line[1:] for line in lines if line[0] == "needs"] == [["fill", str(2 * 4 * (1 << 12))]]
    (usage,) = (line for line in lines if line[0] == "usage")
    assert usage[2] == "6"
    assert int(usage[5]) in (1, 2, 4)
    assert sorted(line[1:3] for line in lines if line[0] == "count") == [
        ["fill", "6"],
        ["work", "6"],
    ]


@pytest.mark.skipif(file_system(Path("/dev/shm")) != "tmpfs", reason="/dev/shm is not in memory")
def test_what_is_kept_in_memory_leaves_most_of_it(tmp_path: Path) -> None:
    memory = psutil.virtual_memory().available
    most = room_for(2**60, Path("/dev/shm"))
    assert most <= 1.1 * MEMORY_SHARE * memory
    assert room_for(most // 2, Path("/dev/shm")) == most // 2, "no more than is asked for"
    assert file_system(tmp_path / "not" / "there") == file_system(tmp_path)
