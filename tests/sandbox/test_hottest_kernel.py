"""Which kernel is worked on where the processor's clock and the device's model differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.domain.execution import Captured, LaunchCount, Misbehaved
from cudaops.domain.judgement import Policy
from cudaops.domain.options import program_run
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.program.parse import load_program
from cudaops.sandbox import captures
from cudaops.sandbox.hottest_kernel import MOST, HottestKernel, contenders
from cudaops.sandbox.workbench import Workbench, open_workbench

PROGRAM = Path(__file__).parents[1] / "data" / "sizes" / "two_kernels.cu"


def opened(folder: Path, kernels: Path, *lines: str, kernel: str | None = None) -> Workbench:
    return open_workbench(
        load_program(PROGRAM), kernel, tuple(program_run(line) for line in lines),
        CpuExecutor("H200", kernels), Policy(min_speedup=1.05, seed=3), folder,
        sm_arch="sm_90", timeout_s=60.0,
    )  # fmt: skip


def test_what_takes_longest_on_the_device_is_worked_on(tmp_path: Path, kernels: Path) -> None:
    bench = opened(tmp_path, kernels, "512 1")
    counts = bench.captured.judged.captured.counts
    assert [c.kernel for c in counts] == ["folded", "turned"], "the premise: by the processor"
    assert bench.kernel.name == "turned"
    (notice,) = bench.captured.notices
    assert notice.startswith("turned is optimized: its launches take")
    assert [Path(w.folder).is_dir() for w in bench.workloads] == [True]
    assert sorted(p.name for p in Path(bench.workloads[0].folder).parent.iterdir()) == ["w0"]


def test_it_is_the_kernel_of_every_run(tmp_path: Path, kernels: Path) -> None:
    bench = opened(tmp_path, kernels, "judged: 32 1", "timed: 512 1")
    assert {w.kernel for w in bench.workloads} == {"turned"}
    assert len(bench.workloads) == 2


@pytest.mark.parametrize(("line", "kernel"), [("512 1", "folded"), ("512 1 before", None)])
def test_what_was_named_or_is_timed_stays(
    tmp_path: Path, kernels: Path, line: str, kernel: str | None
) -> None:
    bench = opened(tmp_path, kernels, line, kernel=kernel)
    assert bench.kernel.name == "folded"
    assert not bench.captured.notices


def test_a_rival_that_cannot_be_captured_refuses_nothing(
    tmp_path: Path, kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        captures, "hottest_by_model", lambda *_: HottestKernel("none", "none it is")
    )
    bench = opened(tmp_path, kernels, "512 1")
    assert bench.kernel.name == "folded"
    assert not bench.captured.notices


def test_a_rival_without_a_model_is_none(
    tmp_path: Path, kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = Misbehaved(what="not_measured", message="no model")
    monkeypatch.setattr(CpuExecutor, "measure", lambda *_, **__: fault)
    assert opened(tmp_path, kernels, "512 1").kernel.name == "folded"


def counted(*seconds: float, timed: int = 0) -> Captured:
    """A capture of the first of kernels with these seconds, of which the last `timed` are timed."""
    names = [f"k{n}" for n in range(len(seconds))]
    counts = tuple(
        LaunchCount(
            kernel=name, launches=1, skipped=0, seconds=s, is_timed=n >= len(seconds) - timed
        )
        for n, (name, s) in enumerate(zip(names, seconds, strict=True))
    )
    return Captured(
        kernel="k0", workloads=(), counts=counts, stdout="", stderr="", exit_code=0, seconds=1.0
    )


def test_rivals_take_a_part_of_the_time(tmp_path: Path) -> None:
    source = tmp_path / "k.cu"
    named = "".join(f"__global__ void k{n}() {{}}\n" for n in range(6))
    launched = "".join(f"k{n}<<<1, 1>>>(); " for n in range(6))
    source.write_text(f"{named}int main() {{ {launched} }}\n")
    program = load_program(source)
    assert contenders(program, counted(1.0, 0.9, 0.04, 0.06)) == ["k1", "k3"]
    assert len(contenders(program, counted(1.0, 0.9, 0.8, 0.7, 0.6))) == MOST
    assert contenders(program, counted(1.0, 0.9, timed=1)) == []
    assert contenders(program, counted(1.0)) == []
    assert contenders(program, counted(*[1.0] * 9))[-1] != "k8"
