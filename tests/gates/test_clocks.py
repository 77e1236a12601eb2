"""The other clocks: agreement passes, hidden work and a missing clock do not. One test a rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cudaops.domain.execution import Measurement, Timing
from cudaops.domain.judgement import Comparison, Gate
from cudaops.gates.clocks import LAUNCH_GAP_US, LEAST_GAP_US, TOLERANCE, clocks_gate, is_disturbed


def side(
    events_us: float, host_us: float | None, cupti_us: tuple[float, ...] = (), **more: Any
) -> Measurement:
    samples = (events_us,) * 10
    given = {
        "regime": "warm",
        "warm_us": samples,
        "cold_us": samples,
        "host_slope_us": host_us,
        "cupti_us": cupti_us,
        **more,
    }
    return Measurement(
        source="cuda_event",
        device="H200",
        samples_us=samples,
        workload="w0",
        timing=Timing.model_validate(given),
    )


def gate_of(candidate: Measurement, baseline: Measurement | None = None) -> tuple[bool, str]:
    gate = clocks_of(candidate, baseline)
    return gate.passed, gate.summary


def clocks_of(candidate: Measurement, baseline: Measurement | None = None) -> Gate:
    traced = candidate.timing is not None and candidate.timing.cupti_us
    gate = clocks_gate(
        [
            Comparison(
                workload="w0",
                weight=1.0,
                baseline=baseline or side(400.0, 401.0, (399.0,) if traced else ()),
                candidate=candidate,
            )
        ]
    )
    assert gate.name == "clocks"
    return gate


@pytest.mark.parametrize("host", [100.0, 100.0 + LAUNCH_GAP_US, 100.0 * (1 + TOLERANCE)])
def test_clocks_that_agree(host: float) -> None:
    assert gate_of(side(100.0, host, (99.0, 101.0)))[0]


def test_an_h200s_clocks_agree() -> None:
    """Medians of one run there, 2026-11-20: examples/recorded/h200_naive_matmul."""
    passed, summary = gate_of(side(68.608, 67.054, (66.384,)), side(419.072, 417.997, (415.68,)))
    assert passed, summary


def test_work_that_the_events_do_not_see() -> None:
    """A kernel that leaves work behind: short by events, long by the host."""
    passed, summary = gate_of(side(10.0, 60.0))
    assert not passed
    assert summary == "candidate on w0: 10.0 us by events, 60.0 us by the host's clock"


def test_a_baseline_that_was_made_slow_for_the_events_alone() -> None:
    passed, summary = gate_of(side(100.0, 100.0), baseline=side(400.0, 200.0))
    assert not passed
    assert summary.startswith("baseline on w0")


def test_the_gap_between_launches_is_allowed_once_a_sample() -> None:
    """A repeated launch has it in the events' time too."""
    assert gate_of(side(4.0, 4.0 + 0.9 * LAUNCH_GAP_US))[0]
    assert not gate_of(side(4.0, 4.0 + 0.9 * LAUNCH_GAP_US, launches_a_sample=10))[0]
    assert gate_of(side(4.0, 4.0 + 0.9 * LEAST_GAP_US, launches_a_sample=10))[0]


@pytest.mark.parametrize("sample", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["cold_us", "warm_us", "cupti_us"])
def test_a_sample_that_is_no_time(sample: float, where: str) -> None:
    """One of them takes a mean or a median with it."""
    passed, summary = gate_of(side(100.0, 100.0, **{where: (100.0,) * 9 + (sample,)}))
    assert not passed
    assert "which is no time" in summary


def test_a_sample_that_events_do_not_resolve() -> None:
    passed, summary = gate_of(side(1.9, 1.9, event_overhead_us=1.5))
    assert not passed
    assert "no longer than events resolve" in summary
    assert gate_of(side(1.9, 1.9, event_overhead_us=1.5, launches_a_sample=10))[0]


def test_a_cold_launch_that_is_quicker_than_a_warm_one() -> None:
    """The host's clock is asked about warm launches: this ties the cold ones to it."""
    passed, summary = gate_of(side(100.0, 100.0, cold_us=(40.0,) * 10))
    assert not passed
    assert summary == "candidate on w0: 40.0 us on a cold L2, 100.0 us on a warm one"
    assert gate_of(side(100.0, 100.0, cold_us=(300.0,) * 10))[0]
    assert gate_of(side(100.0, 100.0, cold_us=()))[0]


class TestCupti:
    def test_kernels_longer_than_the_events(self) -> None:
        passed, summary = gate_of(side(10.0, 11.0, (50.0, 50.0)))
        assert not passed
        assert "50.0 us by CUPTI" in summary
        assert gate_of(side(10.0, 11.0, (8.0, 8.0)))[0]  # without a launch's own cost

    def test_events_that_enclose_more_than_kernels(self) -> None:
        """What makes a baseline slow without running longer."""
        slow = side(400.0, 400.0, (100.0,))
        passed, summary = gate_of(side(100.0, 100.0, (99.0,)), slow)
        assert not passed
        assert summary == "baseline on w0: 400.0 us by events, only 100.0 us by CUPTI's records"

    def test_gaps_between_the_launches_of_a_plan_are_no_kernels(self) -> None:
        assert not gate_of(side(20.0, 20.0, (8.0,)))[0]
        assert gate_of(side(20.0, 20.0, (8.0,), launches_a_plan=4))[0]

    @pytest.mark.parametrize("problem", ["", "it recorded hidden too, which the plan does not"])
    def test_it_recorded_one_side_alone(self, problem: str) -> None:
        baseline = side(400.0, 400.0, (399.0,))
        passed, summary = gate_of(side(100.0, 100.0, cupti_problem=problem), baseline)
        assert not passed
        assert "candidate on w0: CUPTI gives no durations of this side alone" in summary
        assert problem in summary

    def test_it_is_not_there(self) -> None:
        assert gate_of(side(100.0, 100.0), side(400.0, 400.0))[0]


def short(own_us: float, events_us: float, host_us: float, **more: Any) -> Measurement:
    """A side whose samples are its kernels' own durations; gaps of an H200 that is quiet."""
    gaps = {"gap_us": 5.0, "warm_gap_us": 1.5, "host_gap_us": 2.5, **more}
    measured = side(events_us, host_us, (own_us,), launched_us=(events_us,) * 10, **gaps)
    warm = (own_us + 1.2,) * 10
    timing = measured.timing.model_copy(update={"warm_us": warm})  # type: ignore[union-attr]
    return measured.model_copy(
        update={"source": "cupti", "samples_us": (own_us,) * 10, "timing": timing}
    )


class TestShortLaunches:
    def test_events_may_hold_what_a_launch_takes(self) -> None:
        """A pair of H200 times that constant gaps refused, 2026-11-22."""
        passed, summary = gate_of(short(3.7, 10.4, 5.9), short(6.1, 12.4, 8.4))
        assert passed, summary
        assert "w0 is judged by its kernels' own time (6.1 to 3.7 us by CUPTI)" in summary
        assert not gate_of(side(10.4, 10.4, (3.7,), event_overhead_us=1.5))[0]

    def test_what_a_launch_takes_was_measured_as_less(self) -> None:
        passed, summary = gate_of(short(3.7, 10.4, 5.9, gap_us=1.0), short(6.1, 12.4, 8.4))
        assert not passed
        assert summary == "candidate on w0: 10.4 us by events, only 3.7 us by CUPTI's records"

    def test_work_that_no_kernel_of_the_plan_does(self) -> None:
        passed, summary = gate_of(short(3.7, 10.4, 30.0), short(6.1, 12.4, 8.4))
        assert not passed
        assert summary == "candidate on w0: 4.9 us by events, 30.0 us by the host's clock"

    def test_others_on_the_gpu_slow_both_sides_down(self) -> None:
        """Time slices: 25 us by events for 6 us of kernel, and as much for no kernel at all."""
        baseline = short(6.1, 25.1, 21.0, gap_us=19.0)
        passed, summary = gate_of(short(3.7, 22.0, 15.0, gap_us=19.0), baseline)
        assert passed, summary
        said = "other processes use the GPU: both sides take 2.0 times as long by the host"
        assert said in summary

    def test_others_slow_down_no_side_alone(self) -> None:
        busy = short(3.7, 22.0, 40.0, gap_us=19.0)
        assert not gate_of(busy, short(6.1, 25.1, 21.0, gap_us=19.0))[0]
        assert not gate_of(busy, short(6.1, 25.1, 8.4, gap_us=19.0))[0]

    def test_events_shorter_than_the_kernels(self) -> None:
        found = short(20.0, 10.0, 22.0, cold_us=())
        passed, summary = gate_of(found, short(20.0, 25.0, 22.0))
        assert not passed
        assert summary == "candidate on w0: 10.0 us by events, 20.0 us by CUPTI's records"


class TestOthersOnTheGpu:
    """Time slices fall into the host's samples of one side and not into those of the other."""

    def test_a_baseline_that_they_hit_turns_no_candidate_down(self) -> None:
        """An H200 beside another process, 2026-11-23: CUPTI has 5.2 us for the baseline."""
        baseline = short(5.2, 5.4, 44.5, host_gap_us=0.0)
        gate = clocks_of(short(1.3, 1.4, 2.1, host_gap_us=0.0), baseline)
        assert gate.passed, gate.summary
        said = "other processes use the GPU: the baseline takes 6.4 us by events, 44.5 us"
        assert said in gate.summary

    def test_nor_does_one_whose_samples_they_tear_apart(self) -> None:
        baseline = short(5.2, 5.4, 6.3, host_error_us=31.0)
        gate = clocks_of(short(1.3, 1.4, 2.4), baseline)
        assert gate.passed, gate.summary
        assert "44.5" not in gate.summary
        assert "(give or take 31.0 us)" in gate.summary
        assert "as the program launches them" not in gate.summary

    def test_a_candidate_that_they_hit_was_not_measured(self) -> None:
        baseline = short(5.2, 5.4, 44.5)
        for hit in (short(1.3, 1.4, 33.0), short(1.3, 1.4, 2.4, host_error_us=20.0)):
            gate = clocks_of(hit, baseline)
            assert (gate.passed, gate.quarantined) == (False, True)
            said = "candidate on w0: not measured, other processes use the GPU ("
            assert gate.summary.startswith(said)
            assert gate.summary.endswith("): run again on an idle one")

    def test_nothing_at_all_takes_now_this_and_now_that(self) -> None:
        """They are seen by a kernel that does nothing; its time is no measure of a gap then."""
        torn = {"host_gap_us": 40.0, "host_gap_error_us": 22.0}
        gate = clocks_of(short(1.3, 1.4, 33.0, **torn), short(5.2, 5.4, 7.0, **torn))
        assert (gate.passed, gate.quarantined) == (False, True)
        assert "a kernel that does nothing takes 40.0 us by the host's clock (give" in gate.summary

    def test_a_candidate_that_alone_varies_is_no_sign_of_them(self) -> None:
        quiet = short(6.1, 12.4, 8.4)
        for odd in (short(3.7, 10.4, 30.0), short(3.7, 10.4, 5.9, host_error_us=20.0)):
            gate = clocks_of(odd, quiet)
            assert (gate.passed, gate.quarantined) == (False, False)
            assert gate.summary.startswith("candidate on w0: 4.9 us by events")

    def test_no_slope_at_all(self) -> None:
        lost = short(1.3, 1.4, 2.4, host_slope_us=None, host_error_us=60.0)
        assert clocks_of(lost, short(5.2, 5.4, 44.5)).quarantined
        alone = clocks_of(lost, short(6.1, 12.4, 8.4))
        assert (alone.passed, alone.quarantined) == (False, False)
        assert clocks_of(
            short(1.3, 1.4, 2.4), short(5.2, 5.4, 6.0, host_slope_us=None)
        ).summary == ("baseline on w0: the host's clock was not taken")

    def test_without_cupti_nobody_confirms_the_baselines_events(self) -> None:
        gate = clocks_of(side(100.0, 100.0), side(400.0, 900.0))
        assert (gate.passed, gate.quarantined) == (False, True)
        said = "baseline on w0: not measured, other processes use the GPU ("
        assert gate.summary.startswith(said)

    def test_they_excuse_nothing_that_another_clock_shows(self) -> None:
        """A quarantine can be released: it must not hide what is wrong."""
        hit = short(20.0, 10.0, 70.0, cold_us=())
        gate = clocks_of(hit, short(20.0, 25.0, 90.0))
        assert (gate.passed, gate.quarantined) == (False, False)
        assert "20.0 us by CUPTI's records" in gate.summary

    @pytest.mark.parametrize("host", [float("inf"), float("nan")])
    def test_they_excuse_no_number_that_is_none(self, host: float) -> None:
        assert not clocks_of(short(1.3, 1.4, host), short(5.2, 5.4, 44.5)).quarantined
        assert not clocks_of(short(1.3, 1.4, 2.4), short(5.2, 5.4, host)).passed


def clocks_not_taken() -> Sequence[Measurement]:
    modelled = Measurement(source="modelled", device="A10", samples_us=(1.0,), workload="w0")
    return (side(100.0, None), side(100.0, 100.0, warm_us=()), modelled)


@pytest.mark.parametrize("candidate", clocks_not_taken())
def test_a_clock_that_was_not_taken_fails(candidate: Measurement) -> None:
    assert gate_of(candidate) == (False, "candidate on w0: the host's clock was not taken")


def pair(baseline: Measurement, candidate: Measurement) -> list[Comparison]:
    return [Comparison(workload="w0", weight=1.0, baseline=baseline, candidate=candidate)]


def test_events_that_others_stretch_on_both_sides_are_worth_another_measurement() -> None:
    """Medians of a run beside six others on an H100, 2026-11-24: CUPTI and the host's clock agree,
    events do not."""
    baseline, candidate = side(36.8, 22.0, (23.1,)), side(33.1, 14.9, (16.6,))
    assert not clocks_gate(pair(baseline, candidate)).passed
    assert is_disturbed(pair(baseline, candidate))


def test_what_the_candidate_alone_hides_is_not() -> None:
    assert not is_disturbed(pair(side(400.0, 401.0), side(10.0, 60.0)))
    assert not is_disturbed(pair(side(400.0, 401.0), side(100.0, 101.0)))


SLOWED = {"cold_us": (1269.1,) * 10, "host_error_us": 632.1, "host_gap_us": 1.6}
"""Medians of a run beside three others on an H100, 2026-11-25: their work fell into the candidate's
warm samples."""


def test_others_work_in_the_candidates_samples_alone_is_worth_another_measurement() -> None:
    baseline = side(5386.8, 5982.3, (5366.6,), host_error_us=21.7, host_gap_us=1.6)
    slowed = side(3802.8, 3154.7, (3785.6,), **SLOWED)
    gate = clocks_of(slowed, baseline)
    assert (gate.passed, gate.quarantined) == (False, False)
    assert is_disturbed(pair(baseline, slowed))


@pytest.mark.parametrize(
    "candidate",
    [
        side(100.0, 60.0),
        side(100.0, 101.0, host_error_us=40.0),
        side(100.0, 100.0, (60.0,)),
        side(100.0, 100.0, cold_us=(40.0,) * 10),
    ],
    ids=["by the host", "torn apart", "by CUPTI", "on a cold L2"],
)
def test_a_candidate_that_another_clock_has_quicker_is_refused_and_measured_anew(
    candidate: Measurement,
) -> None:
    quiet = side(400.0, 401.0, (399.0,) if candidate.timing and candidate.timing.cupti_us else ())
    assert not clocks_gate(pair(quiet, candidate)).passed
    assert is_disturbed(pair(quiet, candidate))


@pytest.mark.parametrize(
    "candidate",
    [
        side(10.0, 60.0, host_error_us=40.0),
        side(10.0, 60.0, cold_us=(4.0,) * 10),
        side(40.0, 101.0, regime="cold", warm_us=(100.0,) * 10),
        side(100.0, 100.0, (150.0,)),
        side(100.0, float("nan")),
        side(100.0, None),
    ],
    ids=[
        "hidden, torn apart",
        "hidden, slower too",
        "quick when cold",
        "hidden from events",
        "no number",
        "not taken",
    ],
)
def test_a_candidate_that_another_clock_has_slower_gets_one_measurement(
    candidate: Measurement,
) -> None:
    quiet = side(400.0, 401.0, (399.0,) if candidate.timing and candidate.timing.cupti_us else ())
    assert not clocks_gate(pair(quiet, candidate)).passed
    assert not is_disturbed(pair(quiet, candidate))


def test_nothing_timed_fails() -> None:
    assert not clocks_gate([]).passed
