"""The search over sequences: what it puts together, what it drops, when it ends."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from cudaops.domain.hypothesis import Family
from cudaops.domain.rewrite import Rewrite
from cudaops.program.syntax import NotUnderstood
from cudaops.transformations.base import REROUNDING, Setting
from cudaops.transformations.draft import Draft, Step
from cudaops.transformations.inline import Inline
from cudaops.transformations.registry import TRANSFORMATIONS
from cudaops.transformations.search import PATIENCE, Found, Limits, Search, Timed
from cudaops.transformations.split_work import SplitWork
from tests.transformations.bench import Case

KERNEL = """
__global__ void k(float* y, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = 1.0f;
}"""
TIMES = {"quarter": 0.25, "half": 0.5, "tenth": 0.9, "nothing": 1.0, "worse": 1.5, "wrong": 0.1,
         "cooperate": 0.25, "accumulators": 0.5, "split_work": 0.6}  # fmt: skip
"""What each kind of step multiplies the time by."""


class Marked:
    """Writes its name above the text: what it changes is told apart, and nothing else."""

    family: Family = "other"
    relieves: frozenset[str] = frozenset()

    def __init__(self, name: str, after: str = "") -> None:
        self.name = self.title = name
        self._after = after

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        return () if f"// {self.name}\n" in draft.text else ({"times": 1},)

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        if self._after and f"// {self._after}\n" not in draft.text:
            raise NotUnderstood(f"needs {self._after}")
        if not self.settings(draft):
            raise NotUnderstood("done")
        return draft.adding(f"// {self.name}\n").stepped(Step(self.name, setting, self.name))


def timed(rewrites: Sequence[Rewrite]) -> Sequence[Timed]:
    found = []
    for rewrite in rewrites:
        us = 100.0
        for name, factor in TIMES.items():
            us *= factor if f"// {name}\n\n" in rewrite.source else 1.0
        broken = "// broken\n\n" in rewrite.source
        found.append(Timed(None, "does not compile") if broken else Timed(us))
    return found


def problem(rewrite: Rewrite) -> str | None:
    return "y differs" if "// wrong\n\n" in rewrite.source else None


@pytest.fixture
def root(case: Callable[..., Case]) -> Draft:
    y = np.zeros(32, np.float32)
    made: Case = case(KERNEL, {"y": y, "n": 20}, grid=(1,), block=(32,))
    return made.draft


def searched(root: Draft, *steps: Marked, trials: int = 100, seconds: float = 60.0) -> Found:
    limits = Limits(trials, time.monotonic() + seconds)
    return Search(timed, limits, problem, offered=steps).run(root, 100.0)


def test_gains_add_up_and_what_brings_nothing_goes(root: Draft) -> None:
    offered = [Marked(name) for name in ("nothing", "worse", "tenth", "half")]
    found = searched(root, *offered)
    assert found.best[0].time_us == pytest.approx(45.0)
    shares = {x.name: x.factor for x in found.shares}
    assert shares == {"half": pytest.approx(2.0), "tenth": pytest.approx(1 / 0.9)}
    assert found.stopped == "no step gains"
    again = searched(root, *offered)
    assert [x.title for x in again.tried] == [x.title for x in found.tried]


def test_what_is_tried_was_told_of_before(root: Draft) -> None:
    """In the same order, before anything waits for it."""
    told: list[str] = []
    tried: list[str] = []

    def attempt(rewrites: Sequence[Rewrite]) -> Sequence[Timed]:
        tried.extend(x.source_id for x in rewrites)
        assert set(tried) <= set(told)
        return timed(rewrites)

    offered = [Marked(name) for name in ("nothing", "worse", "tenth", "half")]
    limits = Limits(100, time.monotonic() + 60.0)
    search = Search(attempt, limits, offered=offered, ahead=lambda x: told.append(x.source_id))
    found = search.run(root, 100.0)
    assert len(tried) == found.trials > 4
    assert list(dict.fromkeys(x for x in told if x in tried)) == tried


CALLS = """
__device__ void fill(float* to, int n) { for (int j = 0; j < n; ++j) to[j] = 2.0f; }
__global__ void k(float* y, int n) {
    int i = threadIdx.x;
    if (i < n) fill(y + i, 1);
}"""


@pytest.mark.parametrize("cost", [1.0, 1.5, None])
def test_functions_stay_where_their_bodies_in_the_kernel_cost_something(
    case: Callable[..., Case], cost: float | None
) -> None:
    """None: they do not compile there."""
    y = np.zeros(32, np.float32)
    root = case(CALLS, {"y": y, "n": 20}, grid=(1,), block=(32,)).draft

    def attempt(rewrites: Sequence[Rewrite]) -> Sequence[Timed]:
        found = []
        for rewrite, one in zip(rewrites, timed(rewrites), strict=True):
            assert one.time_us is not None
            factor = 1.0 if "fill(y + i, 1)" in rewrite.source else cost
            found.append(Timed(one.time_us * factor) if factor else Timed(None, "no"))
        return found

    limits = Limits(100, time.monotonic() + 60.0)
    offered = (Inline(), Marked("tenth"), Marked("half"))
    found = Search(attempt, limits, offered=offered).run(root, 100.0)
    assert found.tried[0].title == "inline"
    assert found.best[0].time_us == pytest.approx(45.0)
    assert {x.name for x in found.best[0].draft.steps} == {"tenth", "half"}
    begun = Counter(x.title.partition(" > ")[0] for x in found.tried[1:])
    assert (begun["inline"] > 0) == (cost == 1)


def test_what_is_wrong_is_not_built_on(root: Draft) -> None:
    found = searched(root, Marked("wrong"), Marked("tenth"))
    assert found.best[0].time_us == pytest.approx(90.0)
    assert [x.failure for x in found.tried if x.failure] == ["y differs"]
    assert not [x for x in found.tried if x.title.startswith("wrong (times 1) > ")]


def test_a_draft_far_behind_is_not_gone_on_from(root: Draft) -> None:
    """Behind one that is right, and however fast a wrong one is."""
    offered = [Marked(name) for name in ("quarter", "tenth", "nothing")]
    after_tenth = [x for x in titles(searched(root, *offered)) if x.startswith("tenth (times 1) >")]
    assert after_tenth == []
    offered = [Marked(name) for name in ("wrong", "tenth", "half")]
    after_tenth = [x for x in titles(searched(root, *offered)) if x.startswith("tenth (times 1) >")]
    assert after_tenth


def titles(found: Found) -> list[str]:
    return [x.title for x in found.tried]


def test_a_step_that_another_makes_possible(root: Draft) -> None:
    found = searched(root, Marked("tenth"), Marked("half", after="tenth"))
    assert found.best[0].time_us == pytest.approx(45.0)
    assert {x.name: x.factor for x in found.shares} == {
        "tenth": None, "half": pytest.approx(2.0),
    }  # fmt: skip


def test_what_does_not_compile_is_told_once(root: Draft) -> None:
    found = searched(root, Marked("broken"), Marked("half"))
    assert [x.title for x in found.tried if x.failure] == ["broken (times 1)"]
    assert found.best[0].time_us == pytest.approx(50.0)


def test_one_of_what_is_found_rounds_as_the_author_does(root: Draft) -> None:
    names = ("cooperate", "accumulators", "split_work", "tenth", "nothing")
    found = searched(root, *map(Marked, names))
    steps = [{x.name for x in node.draft.steps} for node in found.best]
    assert len(steps) == 3
    assert all(x & REROUNDING for x in steps[:2])
    assert steps[2] == {"tenth"}
    assert {one.name for one in TRANSFORMATIONS} >= REROUNDING
    without = searched(root, *map(Marked, names[:3]))
    assert len(without.best) == 3


def test_the_limits_hold(root: Draft) -> None:
    offered = [Marked(name) for name in ("tenth", "half", "nothing", "worse")]
    few = searched(root, *offered, trials=2)
    assert (few.stopped, len(few.tried)) == ("trials", 2)
    late = searched(root, *offered, seconds=-1.0)
    assert (late.stopped, late.tried, late.best) == ("seconds", (), ())


def test_nothing_gains(root: Draft) -> None:
    found = searched(root, Marked("worse"), Marked("nothing"))
    assert found.best == ()
    assert found.shares == ()


def test_what_stands_in_the_way_of_most_is_said(root: Draft) -> None:
    offered = (Marked("half", "atomics"), Marked("tenth", "loops"), Marked("worse", "loops"))
    found = searched(root, *offered)
    assert (found.tried, found.in_the_way) == ((), "needs loops")
    assert searched(root, Marked("worse")).in_the_way == ""


def test_a_later_round_ends_where_nothing_gains_any_more(root: Draft) -> None:
    offered = [Marked(f"nothing {n}") for n in range(PATIENCE + 20)]
    found = searched(root, *offered, Marked("half"), Marked("tenth"), trials=1000)
    assert found.best[0].time_us == pytest.approx(45.0)
    depths = Counter(x.title.count(" > ") for x in found.tried)
    assert depths[0] == len(offered) + 2
    assert PATIENCE < depths[1] <= PATIENCE + 4


def test_a_search_that_has_gained_waits_for_more_no_longer_than_that_is_likely(root: Draft) -> None:
    offered = [Marked("half"), *(Marked(f"nothing {n}") for n in range(60))]

    def slowly(rewrites: Sequence[Rewrite]) -> Sequence[Timed]:
        time.sleep(0.02)
        return timed(rewrites)

    limits = Limits(1000, time.monotonic() + 60.0, idle_s=0.2)
    found = Search(slowly, limits, problem, offered=offered).run(root, 100.0)
    assert found.stopped == "seconds without gain"
    assert found.best[0].time_us == pytest.approx(50.0)
    assert found.trials < 40
    without = Search(slowly, limits, problem, offered=offered[1:40]).run(root, 100.0)
    assert (without.stopped, without.trials) == ("no step gains", 39)


SUMS = """
__global__ void sums(const float* x, float* y, int rows, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int k = 0; k < n; ++k) sum += x[row * n + k];
    y[row] = sum;
}"""


class Noted(Marked):
    """Once in every kernel, whose name it writes."""

    def settings(self, draft: Draft) -> tuple[Setting, ...]:
        return () if self._line(draft) in draft.text else ({"times": 1},)

    def apply(self, draft: Draft, setting: Setting) -> Draft:
        if not self.settings(draft):
            raise NotUnderstood("done")
        return draft.adding(self._line(draft)).stepped(Step(self.name, setting, self.name))

    def _line(self, draft: Draft) -> str:
        return f"// {self.name} of {draft.launch.kernel}\n"


def split_apart(case: Callable[..., Case], shares: tuple[float, ...]) -> tuple[Found, list[str]]:
    """A search over a kernel in two parts that take these shares of its time. `half` makes either
    part twice as fast."""
    x = np.arange(32 * 4000, dtype=np.float32)
    arguments = {"x": x, "y": np.zeros(32, np.float32), "rows": 32, "n": 4000}
    root = case(SUMS, arguments, grid=(1,), block=(32,)).draft
    asked: list[str] = []

    def times(rewrite: Rewrite) -> tuple[float, ...]:
        asked.append(rewrite.source)
        return tuple(
            50.0 * share * (0.5 if f"// half of {step.kernel}\n" in rewrite.source else 1.0)
            for share, step in zip(shares or (0.5, 0.5), rewrite.plan.launches, strict=True)
        )

    def attempt(rewrites: Sequence[Rewrite]) -> Sequence[Timed]:
        two = [len(r.plan.launches) == 2 for r in rewrites]
        return [
            Timed(sum(times(r)) if both else 100.0) for r, both in zip(rewrites, two, strict=True)
        ]

    limits = Limits(100, time.monotonic() + 60)
    offered = (SplitWork(), Noted("half"))
    search = Search(attempt, limits, apart=times if shares else lambda _: (), offered=offered)
    return search.run(root, 100.0), asked


def test_the_dearest_launch_comes_first_and_then_the_other(case: Callable[..., Case]) -> None:
    found, _ = split_apart(case, (0.2, 0.8))
    titles = [x.title.rpartition(" > ")[2] for x in found.tried]
    assert "half in sums_fast (times 1)" in titles
    in_parts = [i for i, x in enumerate(titles) if x == "half (times 1)" and i > 2]
    assert titles.index("half in sums_fast (times 1)") < in_parts[0]
    assert found.best[0].time_us == pytest.approx(25.0)
    assert [(x.name, x.factor and round(x.factor, 2)) for x in found.shares] == [
        ("split_work", None), ("half", 1.8), ("half", 1.2),
    ]  # fmt: skip


def test_a_launch_that_takes_nothing_is_left_alone(case: Callable[..., Case]) -> None:
    found, _ = split_apart(case, (0.999, 0.001))
    assert not [x for x in found.tried if "half in " in x.title]


def test_launches_without_times_are_all_tried(case: Callable[..., Case]) -> None:
    found, _ = split_apart(case, ())
    titles = [x.title.rpartition(" > ")[2] for x in found.tried]
    assert "half in sums_fast (times 1)" in titles
