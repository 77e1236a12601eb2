"""The second clock: agreement passes, hidden work and a missing clock do not."""

from __future__ import annotations

import pytest

from cudaops.domain.execution import Measurement, Timing
from cudaops.domain.judgement import Comparison
from cudaops.sandbox.clocks import LAUNCH_GAP_US, TOLERANCE, clocks_gate


def side(events_us: float, host_us: float | None, cupti_us: tuple[float, ...] = ()) -> Measurement:
    samples = (events_us,) * 10
    timing = Timing(
        regime="warm", warm_us=samples, host_slope_us=host_us, cupti_us=cupti_us, cold_us=samples
    )
    return Measurement(
        source="cuda_event", device="H200", samples_us=samples, workload="w0", timing=timing
    )


def gate_of(candidate: Measurement, baseline: Measurement | None = None) -> tuple[bool, str]:
    gate = clocks_gate(
        [
            Comparison(
                workload="w0",
                weight=1.0,
                baseline=baseline or side(400.0, 401.0),
                candidate=candidate,
            )
        ]
    )
    assert gate.name == "clocks"
    return gate.passed, gate.summary


@pytest.mark.parametrize("host", [100.0, 100.0 + LAUNCH_GAP_US, 100.0 * (1 + TOLERANCE)])
def test_clocks_that_agree(host: float) -> None:
    assert gate_of(side(100.0, host, (99.0, 101.0)))[0]


def test_work_that_the_events_do_not_see() -> None:
    """A kernel that leaves work behind: short by events, long by the host."""
    passed, summary = gate_of(side(10.0, 60.0))
    assert not passed
    assert summary == "candidate on w0: 10.0 us by events, 60.0 us by the host's clock"


def test_a_baseline_that_was_made_slow_for_the_events_alone() -> None:
    passed, summary = gate_of(side(100.0, 100.0), baseline=side(400.0, 200.0))
    assert not passed
    assert summary.startswith("baseline on w0")


def test_kernels_that_cupti_saw_longer_than_the_events() -> None:
    passed, summary = gate_of(side(10.0, 11.0, (50.0, 50.0)))
    assert not passed
    assert "50.0 us by CUPTI" in summary
    assert gate_of(side(10.0, 11.0, (8.0, 8.0)))[0]  # without a launch's own cost


def test_a_clock_that_was_not_taken_fails() -> None:
    assert gate_of(side(100.0, None)) == (False, "candidate on w0: the host's clock was not taken")
    modelled = Measurement(source="modelled", device="A10", samples_us=(1.0,), workload="w0")
    assert not gate_of(modelled)[0]
    assert not clocks_gate([]).passed
