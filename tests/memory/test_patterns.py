"""What is learnt across kernels, and the order of recipes that follows."""

from __future__ import annotations

from typing import Any

import pytest

from cudaops.domain.memory import MemoryEntry, Pattern
from cudaops.domain.rewrite import LaunchPlan, Rewrite
from cudaops.memory.results import (
    PRIOR_SAVING,
    Avoided,
    KernelMemory,
    aggregate,
    expected_saving,
    share_saved,
)
from cudaops.memory.run_memory import ranking
from tests.memory.made import KEY, entry

MEASURED = {"outcome": "accepted", "time_source": "cuda_event"}


def memory(*entries: MemoryEntry, **changed: Any) -> KernelMemory:
    return KernelMemory(key=KEY.model_copy(update=changed), entries=entries)


def one(*memories: KernelMemory) -> Pattern:
    (pattern,) = aggregate(memories)
    return pattern


def pattern(**changed: Any) -> Pattern:
    values: dict[str, Any] = {
        "subtype": "dram_bandwidth", "family": "tiling", "device_class": "sm_86", "tried": 1,
        "paid": 1, "best_speedup": 4.0, "median_speedup": 4.0, "measured": 1,
    }  # fmt: skip
    return Pattern(**values | changed)


def test_nothing_known_has_no_pattern() -> None:
    assert aggregate([]) == ()
    assert aggregate([memory()]) == ()


def test_a_rewrite_counts_once_a_kernel_with_the_result_that_decides() -> None:
    twice = one(memory(entry(1, speedup=2.0), entry(1, speedup=3.0)))
    assert (twice.tried, twice.paid, twice.median_speedup, twice.measured) == (1, 1, 3.0, 0)
    elsewhere = memory(entry(1, speedup=5.0), structure="fedcba9876543210")
    both = one(memory(entry(1)), elsewhere)
    assert (both.tried, both.best_speedup, both.median_speedup) == (2, 5.0, 3.5)


def test_a_measured_result_outweighs_a_modelled_one_whichever_came_first() -> None:
    refuted = entry(1, outcome="rejected", time_source="cuda_event")
    for order in ((entry(1), refuted), (refuted, entry(1))):
        assert (one(memory(*order)).tried, one(memory(*order)).paid) == (1, 0)
    mixed = one(memory(entry(1, speedup=9.0), entry(2, speedup=1.5, **MEASURED)))
    assert (mixed.tried, mixed.paid, mixed.measured) == (2, 2, 1)
    assert (mixed.best_speedup, mixed.median_speedup) == (1.5, 1.5)


def test_no_earlier_time_outweighs_that_a_rewrite_is_wrong() -> None:
    accepted = entry(1, **MEASURED)
    wrong = entry(
        1, date="2026-11-21T08:00:00Z", outcome="rejected", gate="repeat", speedup=None,
        time_source=None,
    )  # fmt: skip
    slow = wrong.model_copy(update={"gate": "speedup"})
    for later, paid in ((wrong, 0), (slow, 1)):
        found = one(memory(accepted, later))
        assert (found.tried, found.paid) == (1, paid)


def test_a_stand_ins_times_teach_nothing() -> None:
    assert aggregate([memory(entry(1, time_source="standin"))]) == ()


def test_patterns_are_kept_apart_and_can_be_asked_for() -> None:
    here = memory(entry(1), entry(2, subtype="stall_barrier"), entry(3, family="fusion"))
    there = memory(entry(1), device_class="sm_90")
    assert len(aggregate([here, there])) == 4
    assert len(aggregate([here, there], "l1_load_throughput")) == 3
    assert len(aggregate([here, there], "l1_load_throughput", "sm_90")) == 1


def test_the_most_promising_comes_first() -> None:
    entries = [entry(n, family="tiling", speedup=4.0, **MEASURED) for n in range(3)]
    entries += [entry(10, family="fusion", speedup=4.0)]
    entries += [entry(n, family="unrolling", outcome="rejected") for n in range(20, 24)]
    entries += [entry(30, family="reduction", speedup=float("inf"))]
    found = aggregate([memory(*entries)])
    assert [p.family for p in found] == ["tiling", "fusion", "reduction", "unrolling"]
    assert found[2].best_speedup is None, "a speedup without end is none"


def test_expected_savings() -> None:
    assert expected_saving([]) == PRIOR_SAVING
    assert share_saved(4.0) == 0.75
    assert share_saved(0.5) == share_saved(None) == share_saved(float("nan")) == 0.0
    assert expected_saving([pattern()]) == (0.5 + 0.75) / 2
    assert expected_saving([pattern()], "sm_90") == (0.5 + 0.375) / 1.5
    failed = pattern(paid=0, measured=0, best_speedup=None, median_speedup=None, tried=4)
    assert expected_saving([failed]) == 0.5 / 3
    small = pattern(median_speedup=1.25, best_speedup=1.25)
    assert expected_saving([small]) < PRIOR_SAVING, "does not outrank what nobody has tried"


def rewrite(source: str, proposer: str = "recipe:matmul") -> Rewrite:
    return Rewrite(
        source=source, plan=LaunchPlan(launches=()), proposer=proposer, title="t", why="w"
    )


def test_an_empty_memory_favours_nothing() -> None:
    favour = ranking(memory(), (), "dram_bandwidth")
    assert favour(rewrite("a"), "tiling") == 0.0


def test_what_paid_here_comes_before_patterns_and_those_before_what_was_rejected_here() -> None:
    better, good, bad, unknown = (rewrite(t, "llm:x") for t in ("better", "good", "bad", "new"))
    known = memory(
        entry(1, source_id=better.source_id, speedup=3.0),
        entry(2, source_id=good.source_id, speedup=1.3),
        entry(3, source_id=bad.source_id, outcome="rejected"),
    )
    favour = ranking(known, [pattern(family="fusion")], "dram_bandwidth")
    order = [favour(better, "tiling"), favour(good, "tiling"), favour(unknown, "fusion"), 0.0]
    assert order == sorted(order, reverse=True)
    assert order[1] >= 1.0 > order[2] > 0.0
    assert favour(bad, "fusion") <= -1.0
    assert favour(unknown, "tiling") == 0.0


def test_a_recipe_is_known_again_under_the_kernels_new_names() -> None:
    known = memory(entry(1, proposer="recipe:matmul", outcome="rejected"))
    favour = ranking(known, (), "dram_bandwidth")
    assert favour(rewrite("other names"), "tiling") <= -1.0
    assert favour(rewrite("other names", "recipe:transpose"), "coalescing") == 0.0


def test_a_model_is_not_judged_by_its_last_rewrite() -> None:
    favour = ranking(memory(entry(1, outcome="rejected", proposer="llm:x")), (), "dram_bandwidth")
    assert favour(rewrite("another", "llm:x"), "tiling") == 0.0


def test_patterns_against_another_verdict_say_nothing() -> None:
    favour = ranking(memory(), [pattern()], "stall_barrier")
    assert favour(rewrite("a"), "tiling") == 0.0


def test_what_was_put_together_is_still_avoided() -> None:
    bad = rewrite("bad", "llm:x")
    group = Avoided(
        subtype="dram_bandwidth", family="tiling", source_ids=(bad.source_id,), lesson="l"
    )
    known = KernelMemory(key=KEY, avoided=(group,))
    assert ranking(known, (), "dram_bandwidth")(bad, "tiling") == -2.0


@pytest.mark.parametrize("outcome", ["accepted", "rejected"])
def test_the_ranking_survives_a_checkpoint(outcome: str) -> None:
    favour = ranking(memory(entry(1, outcome=outcome)), [pattern()], "dram_bandwidth")
    assert type(favour).model_validate_json(favour.model_dump_json()) == favour
