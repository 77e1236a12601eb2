"""judge: what it takes to be accepted, and everything that is not enough."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudaops.domain.execution import Measurement
from cudaops.domain.judge import (
    MEASURABLE_SPEEDUP,
    MIN_MEASURED_SAMPLES,
    REQUIRED_GATES,
    REQUIRED_MEASURED_GATES,
    is_left_open,
    mean_times_us,
    weighted_speedup,
)
from cudaops.domain.judge import judge as judge_once
from cudaops.domain.judgement import Comparison, Gate, GateName, Judgement, Policy
from tests.lanes import examples

PASSED = tuple(Gate(name=name, passed=True, summary="ok") for name in REQUIRED_MEASURED_GATES)
POLICY = Policy(min_speedup=1.2)


def measurement(
    samples: list[float], source: str = "cuda_event", workload: str = "w0"
) -> Measurement:
    return Measurement.model_validate(
        {"source": source, "device": "A10", "samples_us": samples, "workload": workload}
    )


def comparison(
    baseline: list[float], candidate: list[float], source: str = "cuda_event", weight: float = 1.0
) -> Comparison:
    return Comparison(
        workload="w0",
        weight=weight,
        baseline=measurement(baseline, source),
        candidate=measurement(candidate, source),
    )


def noisy(center_us: float, count: int = 30, seed: int = 1, spread: float = 0.01) -> list[float]:
    generator = random.Random(seed)
    return [center_us * (1 + generator.uniform(-spread, spread)) for _ in range(count)]


def judge(
    gates: Sequence[Gate], times: Sequence[Comparison], policy: Policy, judged_before: int = 0
) -> Judgement:
    """Judged on samples that came out the same twice: what the tests are about is elsewhere."""
    return judge_once(gates, times, policy, fresh=times, judged_before=judged_before)


def test_a_measured_speedup_above_the_bar_is_accepted() -> None:
    judgement = judge(PASSED, [comparison(noisy(200), noisy(100, seed=2))], POLICY)
    assert judgement.outcome == "accepted"
    assert judgement.speedup == pytest.approx(2.0, rel=0.02)
    assert judgement.speedup is not None
    assert judgement.speedup_low is not None
    assert judgement.speedup_low <= judgement.speedup
    assert [g.name for g in judgement.gates] == [
        *REQUIRED_MEASURED_GATES,
        "speedup",
        "remeasured",
    ]


def test_a_bar_within_the_interval_leaves_it_open() -> None:
    policy = POLICY.model_copy(update={"min_speedup": 1.05})
    for candidate_us, spread, is_open in (
        (92.0, 0.20, True), (92.0, 0.002, False), (50.0, 0.20, False), (99.0, 0.20, False),
    ):  # fmt: skip
        times = [comparison(noisy(100), noisy(candidate_us, seed=2, spread=spread))]
        assert is_left_open(times, policy, 0) == is_open, (candidate_us, spread)
    few = [comparison(noisy(100, 5), noisy(50, 5, seed=2))]
    assert is_left_open(few, policy, 0)


def test_a_modelled_speedup_is_never_more_than_provisional() -> None:
    judgement = judge(PASSED, [comparison([1000.0], [1.0], "modelled")], POLICY)
    assert judgement.outcome == "provisional"
    assert judgement.speedup_low is None
    assert "modelled" in judgement.reason


def test_the_bar_lies_below_the_interval_of_the_sampled_blocks() -> None:
    exact = comparison([13.0], [10.0], "modelled")
    assert judge(PASSED, [exact], POLICY).outcome == "provisional"
    for ends_us, outcome in (((9.5, 10.5), "provisional"), ((6.0, 14.0), "rejected")):
        candidate = exact.candidate.model_copy(update={"sampled_us": ends_us})
        judgement = judge(PASSED, [exact.model_copy(update={"candidate": candidate})], POLICY)
        assert judgement.outcome == outcome
        low, high = 13.0 / ends_us[1], 13.0 / ends_us[0]
        assert f"1.30x, threshold 1.20x (modelled for A10), {low:.2f}-{high:.2f}x" in (
            judgement.reason
        )
        assert judgement.gates[-1].numbers["speedup_low"] == pytest.approx(low)
        assert judgement.speedup_low == pytest.approx(low)
        assert judgement.speedup_high == pytest.approx(high)


@given(baseline=st.floats(1e-3, 1e9), candidate=st.floats(1e-3, 1e9), samples=st.integers(1, 40))
@settings(max_examples=examples(200), deadline=None)
def test_no_modelled_time_whatever_it_is_gets_accepted(
    baseline: float, candidate: float, samples: int
) -> None:
    times = comparison([baseline] * samples, [candidate] * samples, "modelled")
    assert judge(PASSED, [times], POLICY).outcome != "accepted"


@pytest.mark.parametrize("name", REQUIRED_GATES)
def test_each_required_gate_rejects_when_failed_and_when_missing(name: GateName) -> None:
    times = [comparison(noisy(200), noisy(100))]
    failed = [
        Gate(name=g.name, passed=False, summary="broken") if g.name == name else g for g in PASSED
    ]
    judgement = judge(failed, times, POLICY)
    assert judgement.outcome == "rejected"
    assert judgement.reason == f"{name}: broken"
    missing = [g for g in PASSED if g.name != name]
    assert judge(missing, times, POLICY).reason == f"{name}: this gate did not run"


def test_an_optional_gate_that_failed_rejects_too() -> None:
    gates = (*PASSED, Gate(name="nvcc_compile", passed=False, summary="error"))
    assert judge(gates, [comparison(noisy(200), noisy(100))], POLICY).outcome == "rejected"


def test_a_slow_candidate_is_rejected_for_its_speed_without_the_dear_gates() -> None:
    cheap = [g for g in PASSED if g.name in ("hygiene", "compile")]
    judgement = judge(cheap, [comparison([100.0], [99.0], "modelled")], POLICY)
    assert judgement.outcome == "rejected"
    assert "1.01x" in judgement.reason
    fast = judge(cheap, [comparison([100.0], [10.0], "modelled")], POLICY)
    assert fast.outcome == "rejected"
    assert "did not run" in fast.reason


def test_no_time_is_no_acceptance() -> None:
    assert judge(PASSED, [], POLICY).reason == "no time was measured"


def test_two_clocks_are_not_compared() -> None:
    mixed = Comparison(
        workload="w0",
        weight=1.0,
        baseline=measurement(noisy(200)),
        candidate=measurement(noisy(100), "modelled"),
    )
    judgement = judge(PASSED, [mixed], POLICY)
    assert judgement.outcome == "rejected"
    assert "different clocks" in judgement.reason


def test_too_few_measured_samples_cannot_be_accepted() -> None:
    few = MIN_MEASURED_SAMPLES - 1
    judgement = judge(PASSED, [comparison(noisy(200, few), noisy(100, few))], POLICY)
    assert judgement.outcome == "rejected"


def test_the_lower_end_of_the_interval_decides_not_the_middle() -> None:
    generator = random.Random(3)
    baseline = [100.0] * 12
    candidate = [100.0 / (1.25 * generator.choice([0.7, 1.0, 1.4])) for _ in baseline]
    judgement = judge(PASSED, [comparison(baseline, candidate)], POLICY)
    assert judgement.speedup is not None
    assert judgement.speedup_low is not None
    assert judgement.speedup_low < 1.2
    assert judgement.outcome == "rejected"


def _noise(kind: str, generator: random.Random) -> float:
    """A factor on one sample: what clocks, other tenants and a bistable cache do to a time."""
    if kind == "heavy":
        return 1 + 0.01 * abs(generator.gauss(0, 1)) ** 3
    if kind == "bimodal":
        return generator.choice((1.0, 1.04)) * generator.gauss(1, 0.003)
    return generator.gauss(1, float(kind))


_OTHERS = [(kind, drift) for kind in ("0.003", "0.03", "heavy", "bimodal") for drift in (0.0, 0.05)]


@pytest.mark.parametrize(("kind", "drift"), [("0.01", 0.0), ("0.01", 0.05), *_OTHERS])
def test_equal_kernels_are_hardly_ever_accepted(kind: str, drift: float) -> None:
    """A/A: 200 judgements of one kernel against itself at the lowest bar there is."""
    accepted = 0
    for seed in range(200):
        generator = random.Random(seed)
        level = [100 * (1 + drift * i / 40) for i in range(40)]
        a, b = ([x * _noise(kind, generator) for x in level] for _ in range(2))
        judgement = judge(PASSED, [comparison(a, b)], Policy(min_speedup=1.0))
        accepted += judgement.outcome == "accepted"
    assert accepted <= 2


TIMING = Path(__file__).parents[1] / "data" / "timing"
H200 = (TIMING / "h200_same.json", ("a_us", "b_us"))
H200_COLD = (TIMING / "h200_same.json", ("a_cold_us", "b_cold_us"))
STANDIN = (TIMING / "standin_same.json", ("a_us", "b_us"))
"""Recordings of one kernel against itself, on a GPU and, far noisier, on a processor."""
Recording = tuple[Path, tuple[str, str]]
WINDOW = 40
"""Samples of one judgement, as the runner takes them by default."""


def _recorded(recording: Recording, start: int, drift: float, faster: float = 1.0) -> Comparison:
    """A stretch of a recording; `drift` grows over it, on both sides; `faster` divides one."""
    found = json.loads(recording[0].read_text("utf-8"))
    size = len(found[recording[1][0]])
    level = [1 + drift * i / WINDOW for i in range(WINDOW)]
    a, b = (
        [found[name][(start + i) % size] * x for i, x in enumerate(level)] for name in recording[1]
    )
    return comparison(a, [sample / faster for sample in b])


@pytest.mark.parametrize("drift", [0.0, 0.05])
@pytest.mark.parametrize("recording", [H200, H200_COLD, STANDIN], ids=["h200", "cold", "standin"])
def test_recorded_samples_of_equal_kernels_are_hardly_ever_accepted(
    recording: Recording, drift: float
) -> None:
    """A/A over 200 judgements of a runner's own samples, without and with 5 % drift."""
    accepted = sum(
        judge(PASSED, [_recorded(recording, 6 * n, drift)], Policy(min_speedup=1.0)).outcome
        == "accepted"
        for n in range(200)
    )
    assert accepted <= 2


@pytest.mark.parametrize(("recording", "faster"), [(H200, 1.25), (STANDIN, 1.5)])
def test_recorded_samples_of_a_faster_kernel_are_accepted(
    recording: Recording, faster: float
) -> None:
    """The same noise does not hide what is there."""
    for n in range(0, 200, 20):
        times = [_recorded(recording, 6 * n, 0.05, faster)]
        assert judge(PASSED, times, Policy(min_speedup=1.2)).outcome == "accepted"


@given(
    seed=st.integers(0, 2**32),
    ratio=st.floats(0.9, 1.5),
    bars=st.lists(st.floats(1.0, 2.0), min_size=2, max_size=2).map(sorted),
)
@settings(max_examples=examples(30), deadline=None)
def test_a_higher_bar_accepts_nothing_that_a_lower_one_does_not(
    seed: int, ratio: float, bars: list[float]
) -> None:
    times = [comparison(noisy(100 * ratio, seed=seed), noisy(100, seed=seed + 1))]
    low, high = (judge(PASSED, times, Policy(min_speedup=b)).outcome for b in bars)
    assert (low, high) != ("rejected", "accepted")


def test_what_cannot_be_measured_is_not_accepted_however_low_the_bar() -> None:
    exact = [comparison([100 * MEASURABLE_SPEEDUP * 0.999] * 40, [100.0] * 40)]
    assert judge(PASSED, exact, Policy(min_speedup=1.0)).outcome == "rejected"
    modelled = [comparison([101.0], [100.0], "modelled")]
    assert judge(PASSED, modelled, Policy(min_speedup=1.0)).outcome == "provisional"


@pytest.mark.parametrize("name", sorted(set(REQUIRED_MEASURED_GATES) - set(REQUIRED_GATES)))
def test_measured_times_need_a_second_clock_and_the_whole_program(name: GateName) -> None:
    without = tuple(g for g in PASSED if g.name != name)
    judgement = judge(without, [comparison(noisy(200), noisy(100))], POLICY)
    assert (judgement.outcome, judgement.reason) == (
        "rejected",
        f"{name}: this gate did not run",
    )
    modelled = judge(without, [comparison([200.0], [100.0], "modelled")], POLICY)
    assert modelled.outcome == "provisional"


def test_workloads_count_by_their_share_of_the_time() -> None:
    slow = comparison([100.0], [100.0], "modelled", weight=0.9)
    fast = comparison([100.0], [1.0], "modelled", weight=0.1)
    judgement = judge(PASSED, [slow, fast], POLICY)
    assert judgement.speedup == pytest.approx(1 / (0.9 * 1.0 + 0.1 * 0.01), rel=1e-9)
    assert judgement.outcome == "rejected"


def test_mean_times_over_all_launches_give_the_same_speedup() -> None:
    """A mean launch of three at 14.8 us and one at 9.58 us takes 13.5 us; the bar follows."""
    slow = comparison([14.8], [2.65], "modelled", weight=44.4 / 53.98)
    fast = comparison([9.58], [4.0], "modelled", weight=9.58 / 53.98)
    before, after = mean_times_us([slow, fast])
    assert before == pytest.approx(53.98 / 4)
    assert after == pytest.approx((3 * 2.65 + 4.0) / 4)
    assert before / after == pytest.approx(weighted_speedup([slow, fast]))


def test_the_same_samples_always_give_the_same_judgement() -> None:
    times = [comparison(noisy(130, spread=0.3), noisy(100, seed=5, spread=0.3))]
    assert judge(PASSED, times, POLICY) == judge(PASSED, times, POLICY)
