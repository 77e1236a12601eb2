"""The main job on the `cuda` executor, through every part but NVIDIA's driver and ncu themselves:
the GPU is the stand-in, ncu its double with a recorded report."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cudaops.cli.runs import load_record
from cudaops.domain.judgement import Policy
from cudaops.domain.run import RunRecord
from cudaops.graph.events import read_events
from cudaops.graph.resolve_options import place, run_options
from cudaops.graph.run import start
from cudaops.settings import load_settings
from tests.executors.cuda import ncu_double
from tests.standin.platform import STANDIN

EXAMPLE = Path(__file__).parents[2] / "examples" / "naive_matmul.cu"

pytestmark = [pytest.mark.nvcc]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cuda")
    ncu_double.install(folder / "bin")
    before = dict(os.environ)
    os.environ["PATH"] = f"{folder / 'bin'}:{os.environ['PATH']}"
    os.environ["CUDAOPS_GPU_DRIVER"] = STANDIN
    yield folder
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def job(environment: Path) -> RunRecord:
    source = environment / "naive_matmul.cu"
    source.write_text(EXAMPLE.read_text("utf-8").replace("= 1024", "= 64"), "utf-8")
    options = run_options(
        source,
        environment / "run",
        place("cuda", None, None),
        max_iterations=1,
        policy=Policy(min_speedup=1.0),
        timeout_seconds=60.0,
    )
    return start(options, lambda _: None, load_settings())


def test_the_record_says_where_and_by_which_clock(job: RunRecord) -> None:
    assert (job.executor, job.device, job.sm_arch) == ("cuda", "A10", "sm_86")
    assert job.time_source == "standin"
    assert job.outcome != "accepted"
    assert job.tools["nvcc"]
    assert job.tools["gpu"] == "cudaops stand-in (no GPU)"


def test_the_profile_is_ncus_with_its_rules_and_lines(job: RunRecord) -> None:
    assert job.profile is not None
    assert job.profile.baseline.source == "measured"
    assert job.profile.metrics_parsed >= 87
    assert job.profile.verdict_detail.nvidia_rules
    assert job.profile.verdict_detail.evidence


def test_a_rewrite_was_judged_by_both_regimes(job: RunRecord) -> None:
    assert job.attempts
    timing = job.verify.timing
    assert timing is not None
    assert timing.cold is not None
    assert timing.warm is not None
    assert timing.regime == "warm"  # the program launches the kernel in a row
    assert timing.samples >= 10


def test_the_time_is_broken_down(job: RunRecord) -> None:
    spent = job.seconds_by_tool
    # No nvcc where another test has left everything compiled.
    assert {"ncu", "kernels", "program", "cudaops itself"} <= set(spent)
    assert all(seconds >= 0 for seconds in spent.values())
    assert spent["cudaops itself"] <= job.loop_time_seconds + 1.0


def test_the_record_reads_back_and_its_folder_tells_the_story(job: RunRecord) -> None:
    folder = Path(job.options.out)
    assert load_record(folder) == job
    stages = {e.stage for e in read_events(folder / "events.jsonl")}
    assert {"intake", "profiler", "optimizer", "sandbox"} <= stages
    judged = json.loads(next((folder / "iterations").glob("01/*.json")).read_text("utf-8"))
    assert judged
