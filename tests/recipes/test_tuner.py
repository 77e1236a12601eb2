"""The search over tune names: order, budget, pruning, ties."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from cudaops.domain.rewrite import LaunchPlan, Rewrite, Tune
from cudaops.recipes.tuner import TuneResult, TunerTrial, tune


def _rewrite(**names: tuple[int, ...]) -> Rewrite:
    tunes = tuple(Tune(name=name, values=values) for name, values in names.items())
    plan = LaunchPlan(launches=(), tune=tunes)
    return Rewrite(source="text", plan=plan, proposer="recipe:test", title="t", why="w")


def _timed(rewrite: Rewrite, time_us: float) -> TunerTrial:
    return TunerTrial(rewrite.values(), time_us)


def _bowl(rewrite: Rewrite) -> TunerTrial:
    """Best at X = 32, Y = 4; a path of better neighbours leads there from anywhere."""
    values = rewrite.values()
    return _timed(rewrite, 10.0 + abs(values["X"] - 32) + 3 * abs(values["Y"] - 4))


def _feasible(rewrite: Rewrite) -> str | None:
    return None


_SEEDS: tuple[Mapping[str, int], ...] = ({}, {"X": 64})
_XY = {"X": (128, 16, 32, 64, 256), "Y": (1, 2, 4, 8)}


def _tune(seeds: tuple[Mapping[str, int], ...] = ({},), **options: float) -> TuneResult:
    return tune(
        _rewrite(**_XY), _bowl, feasible=_feasible, seeds=seeds,
        max_trials=int(options.get("max_trials", 100)), workers=int(options.get("workers", 2)),
        max_seconds=options.get("max_seconds", 60.0),
    )  # fmt: skip


def test_walks_to_the_best_without_trying_everything() -> None:
    result = _tune()
    assert result.best is not None
    assert result.best.values() == {"X": 32, "Y": 4}
    assert result.best_us == 10.0
    assert result.stopped == "no neighbour is better"
    assert len(result.trials) < 20


def test_order_is_the_same_every_time() -> None:
    first, again = _tune(workers=3), _tune(workers=3)
    assert [t.values for t in first.trials] == [t.values for t in again.trials]


def test_seeds_come_first_and_the_default_is_always_measured() -> None:
    result = _tune(({"X": 16, "Y": 8}, {"X": 64}))
    assert [dict(t.values) for t in result.trials[:3]] == [
        {"X": 16, "Y": 8},
        {"X": 64, "Y": 1},
        {"X": 128, "Y": 1},
    ]


def test_stops_at_the_number_of_trials() -> None:
    result = _tune(max_trials=3)
    assert (len(result.trials), result.stopped) == (3, "trials")


def test_stops_at_the_time() -> None:
    def slow(rewrite: Rewrite) -> TunerTrial:
        time.sleep(0.05)
        return _bowl(rewrite)

    result = tune(
        _rewrite(**_XY), slow, feasible=_feasible, max_trials=100, workers=1, max_seconds=0.12
    )
    assert result.stopped == "seconds"
    assert 1 <= len(result.trials) <= 4


def test_infeasible_settings_are_kept_with_their_reason_and_cost_no_trial() -> None:
    def feasible(rewrite: Rewrite) -> str | None:
        return "too small" if rewrite.values()["X"] < 64 else None

    evaluated: list[int] = []

    def evaluate(rewrite: Rewrite) -> TunerTrial:
        evaluated.append(rewrite.values()["X"])
        return _bowl(rewrite)

    result = tune(_rewrite(**_XY), evaluate, feasible=feasible, max_trials=100, workers=2)
    assert result.best is not None
    assert result.best.values()["X"] == 64
    assert min(evaluated) == 64
    refused = [t for t in result.trials if not t.measured]
    assert refused
    assert {t.failure for t in refused} == {"too small"}


def test_failed_trials_do_not_win_and_do_not_end_the_search() -> None:
    def evaluate(rewrite: Rewrite) -> TunerTrial:
        if rewrite.values()["X"] == 128:
            return TunerTrial(rewrite.values(), None, "did not compile")
        return _bowl(rewrite)

    result = tune(
        _rewrite(**_XY), evaluate, feasible=_feasible, max_trials=100, workers=2, seeds=_SEEDS,
    )  # fmt: skip
    assert result.best is not None
    assert result.best.values() == {"X": 32, "Y": 4}
    assert result.trials[0].failure == "did not compile"


def test_nothing_works() -> None:
    result = tune(
        _rewrite(X=(1, 2)), lambda r: TunerTrial(r.values(), None, "no"),
        feasible=_feasible, max_trials=9, workers=2,
    )  # fmt: skip
    assert result.best is None
    assert result.best_us is None


def test_a_tie_goes_to_fewer_resources() -> None:
    result = tune(
        _rewrite(X=(64, 32, 128)), lambda r: _timed(r, 100.0 + r.values()["X"] / 1000),
        feasible=_feasible, max_trials=9, workers=1,
    )  # fmt: skip
    assert result.best is not None
    assert result.best.values() == {"X": 32}


def test_evaluations_overlap() -> None:
    meeting = threading.Barrier(2, timeout=5)

    def evaluate(rewrite: Rewrite) -> TunerTrial:
        meeting.wait()
        return _bowl(rewrite)

    result = tune(
        _rewrite(**_XY), evaluate, feasible=_feasible, max_trials=2, workers=2, seeds=_SEEDS,
    )  # fmt: skip
    assert len(result.trials) == 2


def test_a_search_far_behind_what_it_must_beat_gives_up() -> None:
    rewrite = _rewrite(**_XY)
    slow = tune(
        rewrite,
        lambda candidate: TunerTrial(candidate.values(), 500.0),
        feasible=lambda _: None,
        max_trials=30,
        workers=1,
        must_beat_us=100.0,
    )
    assert slow.stopped == "far behind"
    assert len(slow.trials) < 6
    near = tune(
        rewrite,
        lambda candidate: TunerTrial(candidate.values(), 150.0),
        feasible=lambda _: None,
        max_trials=30,
        workers=1,
        must_beat_us=100.0,
    )
    assert near.stopped == "no neighbour is better"


def test_settings_whose_sampled_times_overlap_count_as_equal() -> None:
    times: dict[int, tuple[float, tuple[float, float] | None]] = {
        64: (10.0, (9.0, 11.5)), 32: (11.0, (10.0, 12.0)), 16: (13.0, (12.0, 14.0)),
    }  # fmt: skip

    def evaluate(rewrite: Rewrite) -> TunerTrial:
        time_us, ends_us = times[rewrite.values()["X"]]
        return TunerTrial(rewrite.values(), time_us, sampled_us=ends_us)

    result = tune(
        _rewrite(X=(64, 32, 16)), evaluate, feasible=_feasible, max_trials=9, workers=1,
        seeds=({"X": 64}, {"X": 32}, {"X": 16}),
    )  # fmt: skip
    assert result.best is not None
    assert result.best.values() == {"X": 32}
