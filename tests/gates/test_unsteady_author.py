"""An author's kernel that gives another result each time: no candidate is held to one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudaops.domain.judgement import Gate
from cudaops.executors.cpu.executor import CpuExecutor
from tests.gates.verification_bench import EACH, opened, verified

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
