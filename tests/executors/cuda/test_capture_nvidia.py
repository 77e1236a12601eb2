"""The recorded form as nvcc builds it: it compiles, and what it does under NVIDIA's runtime."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.execution import Captured, CompileFailed, Misbehaved
from cudaops.domain.program import Program
from cudaops.errors import InputError
from cudaops.executors.cpu.report import function_names
from cudaops.executors.cuda.platform import NVIDIA, Executable
from cudaops.executors.cuda.recorded_source import recorded_source
from cudaops.executors.cuda.toolchain import find_nvcc, nvcc_command
from cudaops.executors.isolation.phases import Phase
from cudaops.program.parse import load_program
from tests.executors.cuda.gpu_programs import (
    DATA,
    PROGRAMS,
    REFUSED,
    ROOT,
    StandInPrograms,
    on_gpu,
    recorded_bytes,
)
from tests.lanes import mostly_deep


def nvcc_build(
    program: Program, folder: Path, runtime: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """The recorded form as `folder / "program"`, with `runtime` in place of NVIDIA's."""
    nvcc = find_nvcc()
    assert nvcc is not None
    source = recorded_source(program)
    for name, text in source.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8", newline="")
    command = nvcc_command(nvcc, Path(source.sources[0]), folder / "program", "sm_86")
    if runtime is not None:  # linked first: it must be there when the program's kernels register
        command = ["none" if word == "static" else word for word in command]
        command.insert(1, str(runtime))
    return subprocess.run(
        [*command, *source.flags, *source.sources[1:]],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


class DoubledRuntime(StandInPrograms):
    """Programs built by nvcc over a double of NVIDIA's runtime, see tests/data/recorder."""

    driver: str = NVIDIA
    program_phase: Phase = "gpu"
    names_faults = False

    def program(self, program: Program, *, recorded: bool) -> Executable | CompileFailed:
        assert recorded
        made = self.cache / "program"
        if not made.is_file():
            done = nvcc_build(program, self.cache, DATA / "recorder" / "runtime_double.cpp")
            assert done.returncode == 0, done.stderr
        return Executable(made, "nvcc", 0.0, False)


@pytest.fixture(scope="module")
def doubled(tmp_path_factory: pytest.TempPathFactory) -> DoubledRuntime:
    return DoubledRuntime(tmp_path_factory.mktemp("doubled"))


LAUNCHES = DATA / "recorder" / "launches.cu"
SCALE_S = 1001e-6
"""The double's clock: 1000 us a launch of `scale`, 1 us an event."""


@pytest.mark.nvcc
def test_nvidia_launches_are_timed_and_captured(doubled: DoubledRuntime, tmp_path: Path) -> None:
    parsed = load_program(LAUNCHES)
    got = on_gpu(doubled, parsed, "plain").capture(None, tmp_path / "c")
    assert isinstance(got, Captured), got
    assert got.stdout.split() == [
        "cudaErrorInvalidConfiguration",
        "cudaSuccess",
        "cudaErrorInvalidValue",
        "cudaSuccess",
    ]
    assert [(c.kernel, c.launches) for c in got.counts] == [("scale", 4003), ("twice", 2)]
    assert got.counts[0].seconds == pytest.approx(4003 * SCALE_S, rel=1e-5)
    (workload,) = got.workloads
    assert (workload.launches, workload.first_launch, workload.l2_regime) == (4000, 3, "warm")
    assert workload.time_share == pytest.approx(4000 / 4003)
    x, y = (recorded_bytes(workload, a.after) for a in workload.allocations)
    assert [a.role for a in workload.allocations] == ["in", "inout"]
    assert np.array_equal(np.frombuffer(x, np.float32), np.arange(100, dtype=np.float32))
    assert np.array_equal(np.frombuffer(y, np.float32), 3 * np.frombuffer(x, np.float32) + 0.5)
    assert [(g.name, recorded_bytes(workload, g.after)) for g in workload.globals] == [
        ("step", np.float32(0.5).tobytes())
    ]


@pytest.mark.nvcc
def test_what_the_program_times_counts(doubled: DoubledRuntime, tmp_path: Path) -> None:
    """By the C++ library's clock and by events; the recorder's own events are no readings."""
    got = on_gpu(doubled, load_program(LAUNCHES), "clocks").capture(None, tmp_path / "c")
    assert isinstance(got, Captured), got
    found = {c.kernel: (c.launches, c.warm_ups) for c in got.counts}
    assert found == {"scale": (8, 3), "twice": (4, 0)}
    assert [w.launches for w in got.workloads] == [5]


@pytest.mark.nvcc
def test_an_instance_is_one_named_or_deduced(doubled: DoubledRuntime, tmp_path: Path) -> None:
    got = on_gpu(doubled, load_program(LAUNCHES), "plain").capture("twice", tmp_path / "c")
    assert isinstance(got, Captured), got
    assert [(w.callee, w.first_launch, w.launches) for w in got.workloads] == [("twice<int>", 0, 2)]
    assert got.counts[1].seconds == pytest.approx(2 * 11e-6, rel=1e-3)


@pytest.mark.nvcc
def test_a_graph_is_left_alone(doubled: DoubledRuntime, tmp_path: Path) -> None:
    ours = on_gpu(doubled, load_program(LAUNCHES), "graph")
    got = ours.capture(None, tmp_path / "c")
    assert isinstance(got, Captured), got
    assert got.stdout == "cudaSuccess\n"
    assert [(w.kernel, w.first_launch) for w in got.workloads] == [("scale", 2000)]
    with pytest.raises(InputError, match="twice is launched through a CUDA graph only"):
        ours.capture("twice", tmp_path / "c")


@pytest.mark.nvcc
def test_launches_of_a_graph_are_recorded_one_by_one(
    doubled: DoubledRuntime, tmp_path: Path
) -> None:
    got = on_gpu(doubled, load_program(LAUNCHES), "launched_graph").capture(None, tmp_path / "c")
    assert isinstance(got, Captured), got
    assert got.stdout == 3 * "cudaSuccess\n"
    assert [(w.kernel, w.callee, w.launches) for w in got.workloads] == [("twice", "twice<int>", 6)]


@pytest.mark.nvcc
def test_a_kernel_that_breaks_the_device_is_named(doubled: DoubledRuntime, tmp_path: Path) -> None:
    got = on_gpu(doubled, load_program(LAUNCHES), "broken").capture(None, tmp_path / "c")
    assert isinstance(got, Misbehaved), got
    assert got.what == "out_of_bounds"
    assert got.message.startswith("broken: an illegal memory access was encountered")


@pytest.mark.nvcc
def test_nvidia_times_outlive_a_reset(doubled: DoubledRuntime, tmp_path: Path) -> None:
    got = on_gpu(doubled, load_program(LAUNCHES), "reset").capture(None, tmp_path / "c")
    assert isinstance(got, Captured), got
    assert got.counts[0].seconds == pytest.approx(2 * SCALE_S, rel=1e-5)


COMPILED = [
    *(p for p in PROGRAMS if p.stem not in REFUSED),
    ROOT / "examples" / "naive_matmul.cu",
    *sorted((DATA / "calibration").glob("*.cu")),
]


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "path",
    mostly_deep(COMPILED, 6),
    ids=lambda p: f"{p.parent.name}-{p.stem}",
)
def test_nvcc_builds_the_recorded_form(tmp_path: Path, path: Path) -> None:
    parsed = load_program(path)
    done = nvcc_build(parsed, tmp_path)
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip()
    made = tmp_path / "program"
    symbols = subprocess.run(
        ["nm", "--defined-only", str(made)], capture_output=True, text=True, timeout=30, check=True
    )
    addresses = {int(s.split()[0], 16) for s in symbols.stdout.splitlines() if s.split()[1] in "tT"}
    named = " ".join(function_names(made, addresses).values())
    assert all(site.kernel in named for site in parsed.launches if site.kernel != "chosen")
