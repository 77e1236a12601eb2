"""An author's kernel that gives another result each time: no candidate is held to one of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from cudaops.domain.execution import Measurement, Ran, TimedOutput, Timing
from cudaops.domain.judgement import Comparison, Gate
from cudaops.domain.workload import Allocation
from cudaops.executors.cpu.executor import CpuExecutor
from cudaops.gates.accuracy import BufferAccuracy
from cudaops.gates.correctness import Subject, Verifier
from cudaops.gates.timed_outputs import timed_outputs_gate
from cudaops.sandbox.oracle import Oracle, Reference
from cudaops.sandbox.timed_references import timed_references
from cudaops.sandbox.workbench import Workbench
from tests.gates.verification_bench import EACH, TIMEOUT_S, opened, oracle, verified

NOT_WIDENED = '    static_assert(sizeof(*a) == 4, "no double says what is right");\n'
UNSTEADY = NOT_WIDENED + EACH.replace("BODY", "a[i] + (float)(clock64() % 89) * NOISE * a[i]")
"""By a clock, as atomics in floating point are by chance."""
CANDIDATE = """// @launch g grid=(8) block=(128) args=(a, b, n)
__global__ void g(const float* a, float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = BODY;
}
"""


def last_gate(folder: Path, noise: str, body: str, *, unsteady: bool) -> Gate:
    bench = opened(CpuExecutor("A10", folder / "cache"), folder, UNSTEADY.replace("NOISE", noise))
    return verified(bench, CANDIDATE.replace("BODY", body), unsteady=unsteady)[-1]


def test_it_is_said_and_allowed(tmp_path: Path) -> None:
    gate = last_gate(tmp_path / "held", "1e-7f", "a[i]", unsteady=False)
    assert (gate.name, gate.passed) == ("correctness_captured", False)
    gate = last_gate(tmp_path / "free", "1e-7f", "a[i]", unsteady=True)
    assert gate.passed, gate.summary


@pytest.mark.parametrize("body", ["a[i] * 1.001f", "i == 7 ? a[i] + 1 : a[i]", "0.0f"])
def test_a_wrong_result_stays_wrong(tmp_path: Path, body: str) -> None:
    gate = last_gate(tmp_path, "1e-7f", body, unsteady=True)
    assert not gate.passed


def test_what_is_farther_off_is_told_why_it_was_nearly_allowed(tmp_path: Path) -> None:
    gate = last_gate(tmp_path, "1e-7f", "a[i] * (1.0f + 9e-5f)", unsteady=True)
    assert not gate.passed
    assert "the author's kernel differs from itself by" in gate.summary


def timed(bench: Workbench, author: float, candidate: float, *, again: bool = True) -> Gate:
    """The gate on timed results that are so many times as large as the reference."""
    held, workload = oracle(bench), bench.workloads[0]
    (written,) = (a for a in held.workload.allocations if a.role != "in")

    def side(factor: float) -> Measurement:
        scaled = bench.folder / f"times_{factor}.bin"
        right = np.fromfile(held.captured.outputs[written.index], np.float32)
        (right * np.float32(factor)).tofile(scaled)
        files = [{written.index: str(scaled)}, *(r.outputs for r in timed_references(held)[1:])]
        outputs = tuple(
            TimedOutput(inputs=n, files=one, cold=(0, 1), apart=n) for n, one in enumerate(files)
        )
        timing = Timing(regime="cold", timed_outputs=outputs, apart_us=(9.0,))
        return Measurement(
            source="cuda_event", device="H200", samples_us=(9.0,), workload="w0", timing=timing
        )

    compared = Comparison(
        workload="w0", weight=1.0, baseline=side(author), candidate=side(candidate)
    )
    verifier = Verifier(bench.executor, bench.policy, bench.folder / "again", TIMEOUT_S)
    plan, again_by = bench.plan(workload, None), partial(bench.run_author, workload)
    subject = Subject(bench.compiled_baseline(workload), plan, held, again_by)

    def closer(oracle: Oracle, a: Allocation, ran: Ran, reference: Reference) -> BufferAccuracy:
        return verifier.accuracy_of(subject, a, ran, reference)

    return timed_outputs_gate([held], [compared], bench.policy, closer if again else None)


def test_his_timed_results_are_held_against_further_runs_of_his(tmp_path: Path) -> None:
    kernel = UNSTEADY.replace("NOISE", "1e-7f")
    bench = opened(CpuExecutor("A10", tmp_path / "cache"), tmp_path, kernel)
    rounding = 1.0 + 5e-6
    refused = timed(bench, rounding, rounding, again=False)
    assert "the author's own kernel on w0 was wrong while it was timed" in refused.summary
    held = timed(bench, rounding, rounding)
    assert held.passed, held.summary
    farther = timed(bench, rounding, 1.001)
    assert not farther.passed
    assert farther.summary.startswith("the candidate on w0 was wrong while it was timed")
